//! The flash file or device: making it, locking it for one daemon, and telling what it holds.
//!
//! Invariants:
//! - One process uses a flash. It locks a file, and opens a device exclusively, as a mounted file system does.
//! - headpond overwrites bytes that are no pool only if the operator said so.
//! - A refused start removes the file that it made, and no other file that has its name by then.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use headpond_base::{BLOCK, BLOCK_U64, BufMut};
use headpond_device::{Fill, Flash, FlashError, FlashKind, discard_now};
use headpond_engine::heal_superblock;
use headpond_format::{
    Damage, Geometry, GeometryError, POOL_BYTES_MAX, POOL_BYTES_MIN, SUPERBLOCK_SLOTS, Superblock, decode_superblock,
};
use headpond_shard::FlashReader;
use rustix::fs::{FallocateFlags, fallocate, fstatvfs};

use crate::devices::PoolDevices;
use crate::refusal::{ExitStatus, Refusal};
use crate::reserve::Reserve;
use crate::wording::Size;

/// The flash, held by this process alone.
#[derive(Debug)]
pub struct HeldFlash {
    path: PathBuf,
    /// `None` only while the flash is reopened at another size, and after its device has started.
    opened: Option<Flash>,
    undo: Undo,
}

/// How to leave the flash as it was if the start fails. It holds the file itself.
#[derive(Debug)]
enum Undo {
    Nothing,
    /// Made elsewhere, for this start: nothing on it counts.
    Nowhere,
    Remove(File),
    Empty(File),
}

impl Undo {
    /// A second open file of a flash. A copy of the descriptor would share its lock.
    fn file(opened: &Flash, path: &Path) -> Result<File, Refusal> {
        let descriptor = opened.file().map_or(-1, AsRawFd::as_raw_fd);
        let same = format!("/proc/self/fd/{descriptor}");
        File::options().write(true).open(same).map_err(|error| Refusal::from_io("open once more", path, error))
    }
}

/// What a flash holds at the start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FlashContent {
    /// Nothing: an empty or new file.
    Nothing,
    /// Bytes that are no pool, and in words what they look like.
    Foreign(String),
    /// A pool.
    Pool(Box<Superblock>),
    /// A pool that cannot be read.
    Unreadable(Damage),
    /// The device fails.
    Failing(String),
}

impl HeldFlash {
    /// Opens or makes the flash and takes it for this process. It writes nothing to an existing flash, but an empty
    /// file gets its size.
    ///
    /// # Errors
    /// The statuses 30, 31, 34 and 35.
    pub fn take(path: &Path, size: Option<Size>, fill: Fill, reserve: Reserve) -> Result<Self, Refusal> {
        if let Some(size) = size {
            geometry(path, whole_blocks(size), reserve)?;
        }
        let need_size = || {
            let why = "does not exist or is empty. To make it, give its size, such as --size 200G".to_owned();
            size.map(whole_blocks).ok_or_else(|| Refusal::Flash { path: path.to_owned(), why })
        };
        let opened = match Flash::open(path) {
            Ok(opened) => opened,
            Err(FlashError::Missing(_)) => {
                let bytes = need_size()?;
                let filled = reserve.used_of(bytes);
                let opened = Flash::create(path, filled, fill).map_err(|error| refusal(path, error))?;
                let undo = Undo::Remove(Undo::file(&opened, path)?);
                let mut flash = Self { path: path.to_owned(), opened: Some(opened), undo };
                if filled < bytes {
                    flash.resize(bytes)?;
                }
                return Ok(flash);
            }
            Err(error) => return Err(refusal(path, error)),
        };
        let empty = opened.kind() == FlashKind::File
            && opened.file().is_some_and(|file| file.metadata().is_ok_and(|file| file.len() == 0));
        let mut flash = Self { path: path.to_owned(), opened: Some(opened), undo: Undo::Nothing };
        if empty {
            let bytes = need_size()?;
            flash.undo = Undo::Empty(Undo::file(flash.opened(), path)?);
            flash.resize(bytes)?;
        }
        Ok(flash)
    }

    /// Takes over the open flash of the worker that died, with its lock.
    ///
    /// # Errors
    /// If it cannot be measured.
    pub fn taken_over(file: File, path: &Path) -> Result<Self, Refusal> {
        let opened = Flash::taken_over(file, path).map_err(|error| refusal(path, error))?;
        Ok(Self { path: path.to_owned(), opened: Some(opened), undo: Undo::Nothing })
    }

    /// A disk of a peer. One that was made for this start holds nothing.
    #[must_use]
    pub fn of_peer(opened: Flash, made: bool) -> Self {
        let undo = if made { Undo::Nowhere } else { Undo::Nothing };
        Self { path: opened.path().to_owned(), opened: Some(opened), undo }
    }

    /// Opens a flash that no daemon uses, only to read it.
    ///
    /// # Errors
    /// The statuses 30, 31 and 61.
    pub fn open_read_only(path: &Path) -> Result<Flash, Refusal> {
        Flash::open_read_only(path).map_err(|error| refusal(path, error))
    }

    /// Gives a file another size, with all its space: a pool must not find its file system full later.
    fn resize(&mut self, bytes: u64) -> Result<(), Refusal> {
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                Refusal::FlashNoSpace { path: self.path.clone(), bytes }
            }
            _ => Refusal::from_io("give its size to the flash", &self.path, error),
        };
        let Some(file) = self.opened().file() else { return Ok(()) };
        // It asks for free space first, as when it makes a file: a refusal must not take space from others meanwhile.
        let there = file.metadata().map_or(0, |metadata| metadata.blocks() * 512);
        let free = fstatvfs(file).map_or(u64::MAX, |stat| stat.f_bavail.saturating_mul(stat.f_frsize));
        if bytes.saturating_sub(there) > free {
            return Err(Refusal::FlashNoSpace { path: self.path.clone(), bytes });
        }
        match fallocate(file, FallocateFlags::empty(), 0, bytes) {
            Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => {}
            Err(error) => return Err(failed(error.into())),
        }
        file.set_len(bytes).and_then(|()| file.sync_all()).map_err(failed)?;
        // Its size is measured at the open. Two open files cannot both have the lock.
        self.opened = None;
        self.opened = Some(Flash::open(&self.path).map_err(|error| refusal(&self.path, error))?);
        Ok(())
    }

    /// The bytes for a new pool here: the size asked for, or all there is, but for what stays unwritten. A file that is
    /// formatted anew gets that size.
    ///
    /// # Errors
    /// The statuses 30, 34 and 35.
    pub fn prepare_format(&mut self, size: Option<Size>, reserve: Reserve) -> Result<u64, Refusal> {
        let bytes = size.map_or(self.bytes(), whole_blocks);
        geometry(&self.path, bytes, reserve)?;
        if bytes != self.bytes() {
            match self.opened().kind() {
                FlashKind::File => self.resize(bytes)?,
                FlashKind::BlockDevice if bytes > self.bytes() => {
                    let why = format!("the device has {}, less than --size {}", Size(self.bytes()), Size(bytes));
                    return Err(Refusal::FlashTooSmall { path: self.path.clone(), why });
                }
                FlashKind::BlockDevice | FlashKind::Far => {}
            }
        }
        let used = reserve.used_of(bytes);
        self.leave_unwritten(used..bytes)?;
        Ok(used)
    }

    /// Tells the device that it holds nothing there, if it takes that: it may have been written in an earlier use, and the
    /// pool will not write there.
    ///
    /// # Errors
    /// The status 35, if another file took the space of this one meanwhile.
    pub fn leave_unwritten(&self, range: Range<u64>) -> Result<(), Refusal> {
        if range.is_empty() {
            return Ok(());
        }
        discard_now(self.opened(), &range);
        self.allocate()
    }

    /// Tells what the flash holds. Reads only.
    ///
    /// # Errors
    /// If the flash cannot be read.
    pub fn recognise(&self) -> Result<FlashContent, Refusal> {
        if !matches!(self.undo, Undo::Nothing) {
            return Ok(FlashContent::Nothing);
        }
        let len = LOOKED_AT.min(usize::try_from(self.bytes()).unwrap_or(LOOKED_AT));
        let start = self.opened().read(0, len).map_err(|errno| self.unreadable(errno))?;
        Ok(recognise(&start, self.bytes()))
    }

    /// Makes sure that a file has all its space: a copied one may have holes.
    ///
    /// # Errors
    /// [`Refusal::FlashNoSpace`].
    pub fn allocate(&self) -> Result<(), Refusal> {
        self.opened().allocate().map_err(|error| refusal(&self.path, error))
    }

    /// Rewrites a damaged copy of the superblock from the other one, and says which it was: 1 or 2.
    ///
    /// # Errors
    /// If the flash cannot be read or written.
    pub fn heal_superblock(&self) -> Result<Option<usize>, headpond_base::Errno> {
        let Some((damaged, bytes)) = heal_superblock(&mut FlashReader(self.opened()))? else { return Ok(None) };
        self.opened().write(damaged, &BufMut::copy_of(&bytes).freeze())?;
        self.opened().sync()?;
        Ok(SUPERBLOCK_SLOTS.iter().position(|offset| *offset == damaged).map(|copy| copy + 1))
    }

    /// The refusal for a flash that fails during a read.
    #[must_use]
    pub fn unreadable(&self, errno: headpond_base::Errno) -> Refusal {
        Refusal::Pool {
            path: self.path.clone(),
            what: format!("cannot read it: {errno}"),
            advice: "Nothing was written. Read the kernel's log: the device may be failing.",
            status: ExitStatus::FlashFailed,
        }
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its size in whole blocks.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.opened().bytes()
    }

    /// The open flash, to read and write during the start.
    ///
    /// # Panics
    /// After its reactor has started: the flash is the reactor's then.
    #[must_use]
    pub fn opened(&self) -> &Flash {
        self.opened.as_ref().expect("the flash is asked before its reactor is started")
    }

    /// It is a pool from now on, and stays, even if this start fails.
    pub fn settle(&mut self) {
        self.undo = Undo::Nothing;
    }

    /// Gives the open flash away, with its lock. What stays here only undoes the making of the file, until
    /// [`Self::settle`]. `None` if it was given away before.
    pub fn give(&mut self) -> Option<Flash> {
        self.opened.take()
    }
}

/// Reads the superblocks of a pool that a shard has in use.
#[derive(Clone, Debug)]
pub(crate) struct Superblocks(PoolDevices);

impl Superblocks {
    pub(crate) const fn of(devices: PoolDevices) -> Self {
        Self(devices)
    }

    /// The count in the superblock of a stop in order. `None` if there is none.
    pub(crate) fn stopped_at(&self) -> Option<u64> {
        let newest = self.newest()?;
        newest.clean_stop.then_some(newest.counter)
    }

    /// The newest superblock of all members here.
    pub(crate) fn newest(&self) -> Option<Superblock> {
        let devices = self.0.all();
        let newest = devices.iter().filter_map(|device| newest_superblock(|block, at| device.file.read_at(block, at)));
        newest.max_by_key(|superblock| (superblock.epoch, superblock.counter))
    }
}

/// The newer superblock of a device. `read` fills a block from this offset.
pub(crate) fn newest_superblock(read: impl Fn(&mut BufMut, u64) -> io::Result<()>) -> Option<Superblock> {
    let decode = |offset| {
        let mut block = BufMut::zeroed(BLOCK);
        read(&mut block, offset).ok()?;
        decode_superblock(&block).ok()
    };
    SUPERBLOCK_SLOTS.into_iter().filter_map(decode).max_by_key(|superblock| (superblock.epoch, superblock.counter))
}

impl Drop for HeldFlash {
    fn drop(&mut self) {
        // Best effort. Otherwise a file of zeros stays, and the next start names it.
        let _ = match &self.undo {
            Undo::Nothing | Undo::Nowhere => Ok(()),
            Undo::Remove(file) if is_at(file, &self.path) => fs::remove_file(&self.path),
            Undo::Remove(_) => Ok(()),
            Undo::Empty(file) => file.set_len(0),
        };
    }
}

/// Whether the name leads to this very file. It follows no link.
fn is_at(file: &File, path: &Path) -> bool {
    let (held, named) = (file.metadata(), fs::symlink_metadata(path));
    held.is_ok_and(|held| named.is_ok_and(|named| (held.dev(), held.ino()) == (named.dev(), named.ino())))
}

fn whole_blocks(size: Size) -> u64 {
    size.0 / BLOCK_U64 * BLOCK_U64
}

/// The refusal for a device's error.
pub(crate) fn refusal(path: &Path, error: FlashError) -> Refusal {
    let path = path.to_owned();
    match error {
        FlashError::InUse(_) => Refusal::FlashInUse { path },
        FlashError::NoSpace { wanted, .. } => Refusal::FlashNoSpace { path, bytes: wanted },
        FlashError::Permission { doing, .. } => Refusal::NoPermission {
            what: format!("{doing} the flash {}", path.display()),
            advice: "Make this user its owner (chown), or run headpond as root.".to_owned(),
        },
        FlashError::Missing(_) => Refusal::Flash { path, why: "does not exist".to_owned() },
        FlashError::Exists(_) => {
            Refusal::Flash { path, why: "another process has just made this file. Mount again".to_owned() }
        }
        FlashError::NotOwn { why, .. } => Refusal::Flash { path, why },
        FlashError::NotFlash(_) => {
            let why =
                "is neither a file nor a block device. Name a file (headpond makes it with --size) or a block device";
            Refusal::Flash { path, why: why.to_owned() }
        }
        FlashError::NoUring { source, .. } => {
            let why = format!("the kernel refuses io_uring: {source}. Use --backend psync or auto");
            Refusal::Flash { path, why }
        }
        FlashError::Io { doing, source, .. } => Refusal::from_io(&format!("{doing} the flash"), &path, source),
    }
}

/// How many bytes from the start tell what the flash is.
const LOOKED_AT: usize = 128 << 10;

fn recognise(start: &[u8], bytes: u64) -> FlashContent {
    let slots = SUPERBLOCK_SLOTS.map(|offset| {
        let block = usize::try_from(offset).ok().and_then(|offset| start.get(offset..offset + BLOCK));
        block.map_or(Err(Damage::Missing("superblock")), decode_superblock)
    });
    let best = slots.iter().flatten().max_by_key(|superblock| superblock.counter);
    let newer = slots.iter().find_map(|slot| match slot {
        Err(damage @ Damage::Version { .. }) => Some(damage.clone()),
        _ => None,
    });
    // A newer slot beside a readable one: a newer headpond used the pool last.
    if let Some(newer) = newer {
        return FlashContent::Unreadable(newer);
    }
    if let Some(superblock) = best {
        return FlashContent::Pool(Box::new(superblock.clone()));
    }
    let damaged = slots.into_iter().filter_map(Result::err).find(|damage| !matches!(damage, Damage::Missing(_)));
    damaged.map_or_else(|| FlashContent::Foreign(looks_like(start, bytes)), FlashContent::Unreadable)
}

/// What the bytes look like by the common magic numbers. Zeros do not prove that it is empty: they may
/// be the start of a sparse image.
fn looks_like(start: &[u8], bytes: u64) -> String {
    let has = |offset: usize, magic: &[u8]| start.get(offset..offset + magic.len()) == Some(magic);
    let known: [(usize, &[u8], &str); 11] = [
        (0x438, &[0x53, 0xef], "an ext2, ext3 or ext4 file system"),
        (0, b"XFSB", "an XFS file system"),
        (0x1_0040, b"_BHRfS_M", "a Btrfs file system"),
        (0, b"LUKS\xba\xbe", "an encrypted (LUKS) volume"),
        (0x218, b"LVM2 001", "an LVM physical volume"),
        (0xff6, b"SWAPSPACE2", "swap space"),
        (0, b"SQLite format 3\0", "an SQLite database"),
        (0, b"QFI\xfb", "a QCOW image"),
        (0, &[0x1f, 0x8b], "a gzip archive"),
        (0x200, b"EFI PART", "a partitioned disk"),
        (0x1fe, &[0x55, 0xaa], "a partitioned disk"),
    ];
    if let Some((_, _, name)) = known.into_iter().find(|(offset, magic, _)| has(*offset, magic)) {
        return format!("holds {name}");
    }
    let size = Size(bytes);
    if start.iter().all(|&byte| byte == 0) {
        format!("is {size} long, holds no pool, and begins with zeros")
    } else {
        format!("holds {size} of something else")
    }
}

fn geometry(path: &Path, whole: u64, reserve: Reserve) -> Result<Geometry, Refusal> {
    let bytes = reserve.used_of(whole);
    let remark = reserve.remark(Size(whole));
    Geometry::for_bytes(bytes).map(Geometry::with_history).map_err(|error| {
        let path = path.to_owned();
        match error {
            GeometryError::TooSmall(_) => Refusal::FlashTooSmall {
                path,
                why: format!(
                    "{} is too small for a pool, which needs at least {}{remark}",
                    Size(bytes),
                    Size(POOL_BYTES_MIN)
                ),
            },
            GeometryError::TooLarge(_) => Refusal::Flash {
                path,
                why: format!(
                    "{} is too large for a pool, which has at most {}{remark}",
                    Size(bytes),
                    Size(POOL_BYTES_MAX)
                ),
            },
        }
    })
}

#[cfg(test)]
mod tests {
    use headpond_format::encode_superblock;

    use super::*;
    use headpond_base::{BatchNumber, CacheMode, Epoch, MemberId, OwnerNumber, PoolId};
    use headpond_format::{HostCopies, MemberName, Members};

    const SIZE: Option<Size> = Some(Size(64 << 20));

    fn superblock(counter: u64) -> Superblock {
        let geometry = Geometry::for_bytes(1 << 30).unwrap();
        Superblock {
            pool: PoolId([7; 16]),
            member: MemberId(0),
            members: Members::first(geometry.member(MemberName([5; 16]))),
            owner: OwnerNumber(1),
            geometry,
            counter,
            epoch: Epoch(1),
            origin: None,
            checkpoint_area: 0,
            checkpoint_bytes: 4096,
            synced_through: BatchNumber(0),
            synced_host: BatchNumber(0),
            mode: CacheMode::WriteBack,
            clean_stop: true,
            dirty_blocks: 0,
            boot: [0; 16],
            claim: [0; 16],
            host_copies: HostCopies::ONE,
            may_have_packed: false,
            may_have_blanks: false,
        }
    }

    fn image(slots: [Option<Vec<u8>>; 2]) -> Vec<u8> {
        let mut start = vec![0; LOOKED_AT];
        for (slot, offset) in slots.into_iter().zip(SUPERBLOCK_SLOTS) {
            if let Some(block) = slot {
                start[offset as usize..offset as usize + BLOCK].copy_from_slice(&block);
            }
        }
        start
    }

    #[test]
    fn a_pool_is_recognised_by_either_superblock_and_the_later_counts() {
        let block = |counter| Some(encode_superblock(&superblock(counter)));
        let mut rotten = encode_superblock(&superblock(9));
        rotten[100] ^= 1;
        for (slots, counter) in [
            ([block(1), block(2)], 2),
            ([block(3), block(2)], 3),
            ([block(1), None], 1),
            ([Some(rotten.clone()), block(2)], 2),
        ] {
            let FlashContent::Pool(found) = recognise(&image(slots), 1 << 30) else { panic!("no pool found") };
            assert_eq!(found.counter, counter);
        }
        let both = image([Some(rotten.clone()), Some(rotten)]);
        assert_eq!(recognise(&both, 1 << 30), FlashContent::Unreadable(Damage::Checksum("superblock")));
    }

    #[test]
    fn foreign_bytes_are_told_by_what_they_look_like() {
        let mut ext = vec![0; LOOKED_AT];
        ext[0x438..0x43a].copy_from_slice(&[0x53, 0xef]);
        for (bytes, says) in [
            (ext, "ext4"),
            (vec![0; 5000], "zeros"),
            (b"SQLite format 3\0 and so on".to_vec(), "SQLite"),
            (vec![9; 77], "77 B of"),
        ] {
            let FlashContent::Foreign(what) = recognise(&bytes, bytes.len() as u64) else { panic!("taken for a pool") };
            assert!(what.contains(says), "{what}");
        }
    }

    #[test]
    fn what_stays_unwritten_takes_space_and_no_zeros() {
        let dir = tempfile::tempdir().unwrap();
        let (path, reserve) = (dir.path().join("pond"), "25%".parse().unwrap());
        let mut flash = HeldFlash::take(&path, Some(Size(96 << 20)), Fill::Zeros, reserve).unwrap();
        assert_eq!((flash.bytes(), flash.prepare_format(None, reserve).unwrap()), (96 << 20, 72 << 20));
        assert!(fs::metadata(&path).unwrap().blocks() * 512 >= 96 << 20, "others cannot take it");
        // An earlier use wrote there.
        flash.opened().write(80 << 20, &BufMut::copy_of(&[7; 8192]).freeze()).unwrap();
        flash.prepare_format(None, reserve).unwrap();
        assert!(flash.opened().read(80 << 20, 8192).unwrap().iter().all(|byte| *byte == 0));
        let small = HeldFlash::take(&dir.path().join("small"), SIZE, Fill::Reserved, reserve).unwrap_err();
        assert_eq!(small.status(), ExitStatus::FlashTooSmall);
        assert!(small.to_string().contains("--reserve 25% of 64 MiB"), "{small}");
    }

    #[test]
    fn a_missing_flash_is_made_at_its_size_and_removed_again_if_nothing_comes_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pond");
        let flash = HeldFlash::take(&path, SIZE, Fill::Reserved, Reserve::default()).unwrap();
        assert_eq!((flash.bytes(), flash.recognise().unwrap()), (64 << 20, FlashContent::Nothing));
        assert_eq!(fs::metadata(&path).unwrap().len(), 64 << 20);
        drop(flash);
        assert!(!path.exists());
        let mut flash = HeldFlash::take(&path, SIZE, Fill::Reserved, Reserve::default()).unwrap();
        flash.settle();
        drop(flash);
        assert!(path.exists());
    }

    #[test]
    fn an_empty_file_is_given_its_size_and_emptied_again_if_nothing_comes_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pond");
        fs::write(&path, "").unwrap();
        let flash = HeldFlash::take(&path, SIZE, Fill::Reserved, Reserve::default()).unwrap();
        assert_eq!((flash.bytes(), flash.recognise().unwrap()), (64 << 20, FlashContent::Nothing));
        drop(flash);
        assert_eq!(fs::metadata(&path).unwrap().len(), 0);
    }

    #[test]
    fn a_start_that_comes_to_nothing_touches_no_other_file_that_took_the_name() {
        let dir = tempfile::tempdir().unwrap();
        let (path, other) = (dir.path().join("pond"), dir.path().join("other"));
        for made_before in [true, false] {
            fs::write(&other, "not headpond's").unwrap();
            if made_before {
                fs::write(&path, "").unwrap();
            }
            let flash = HeldFlash::take(&path, SIZE, Fill::Reserved, Reserve::default()).unwrap();
            fs::rename(&path, dir.path().join("aside")).unwrap();
            std::os::unix::fs::symlink(&other, &path).unwrap();
            drop(flash);
            assert_eq!(fs::read(&other).unwrap(), b"not headpond's");
            fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn a_held_flash_is_refused_to_others() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pond");
        let _flash = HeldFlash::take(&path, SIZE, Fill::Reserved, Reserve::default()).unwrap();
        assert_eq!(
            HeldFlash::take(&path, SIZE, Fill::Reserved, Reserve::default()).unwrap_err().status(),
            ExitStatus::FlashInUse
        );
    }

    #[test]
    fn each_unusable_flash_has_its_message_and_its_status() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("dir")).unwrap();
        for (name, size, status, says) in [
            ("new", None, ExitStatus::FlashUnusable, "--size 200G"),
            ("new", Some(Size(1 << 20)), ExitStatus::FlashTooSmall, "at least 64 MiB"),
            ("new", Some(Size(5 << 50)), ExitStatus::FlashUnusable, "at most 4096 TiB"),
            ("dir", SIZE, ExitStatus::FlashUnusable, "neither a file"),
        ] {
            let refusal = HeldFlash::take(&at(name), size, Fill::Reserved, Reserve::default()).unwrap_err();
            assert_eq!(refusal.status(), status, "{refusal}");
            assert!(refusal.to_string().contains(says), "{refusal}");
            assert!(!at("new").exists(), "a refusal leaves nothing");
        }
    }
}
