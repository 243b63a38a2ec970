//! The flash file or device: made, locked for one daemon, and recognised.
//!
//! Invariants:
//! - Nobody else uses a flash that is held: an advisory lock for files, and exclusive opening
//!   for devices, which a mounted file system holds too.
//! - Bytes that are not known to be a pool's are not overwritten unless the operator said so.
//! - A file made for a start that is refused is removed again.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use headpond_base::{BLOCK, BLOCK_U64};
use headpond_format::{Damage, Geometry, GeometryError, SUPERBLOCK_SLOTS, Superblock, decode_superblock};
use rustix::fs::{FallocateFlags, FlockOperation, SeekFrom, fallocate, flock, seek};
use rustix::io::Errno;

use crate::{ExitStatus, Refusal, Size};

/// The flash, held by this process alone.
#[derive(Debug)]
pub struct Flash {
    path: PathBuf,
    file: File,
    bytes: u64,
    device: bool,
    undo: Undo,
}

/// What leaves the flash as it was found, should the start come to nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Undo {
    Nothing,
    Remove,
    Empty,
}

/// What a flash holds before it is taken into use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Content {
    /// Nothing: an empty or new file.
    Nothing,
    /// Bytes that are no pool; in words, what they look like.
    Foreign(String),
    /// A pool.
    Pool(Box<Superblock>),
    /// A pool that cannot be read.
    Unreadable(Damage),
}

impl Flash {
    /// Opens or makes the flash and takes it for this process. Nothing is written to one that exists.
    ///
    /// # Errors
    /// The statuses 30, 31, 34 and 35.
    pub fn take(path: &Path, size: Option<Size>) -> Result<Self, Refusal> {
        let size = size.map(|size| size.0 / BLOCK_U64 * BLOCK_U64);
        if let Some(bytes) = size {
            check_size(path, bytes)?;
        }
        match fs::metadata(path) {
            Ok(metadata) if metadata.is_file() => {
                let flash = Self::open(path, false)?;
                if flash.bytes == 0 { flash.fill(size) } else { Ok(flash) }
            }
            Ok(metadata) if metadata.file_type().is_block_device() => Self::open(path, true),
            Ok(metadata) => {
                let what = if metadata.is_dir() { "is a directory" } else { "is neither a file nor a block device" };
                let why = format!("{what}: give a file (made if missing) or a block device");
                Err(Refusal::Flash { path: path.to_owned(), why })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::make(path, size),
            Err(error) => Err(Refusal::from_io("open the flash", path, error)),
        }
    }

    fn open(path: &Path, device: bool) -> Result<Self, Refusal> {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        if device {
            options.custom_flags(rustix::fs::OFlags::EXCL.bits().cast_signed());
        }
        let file = match options.open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                return Err(Refusal::FlashInUse { path: path.to_owned() });
            }
            Err(error) => return Err(Refusal::from_io("open the flash", path, error)),
        };
        lock(&file, path)?;
        let bytes = seek(&file, SeekFrom::End(0)).map_err(|error| Refusal::from_io("measure the flash", path, error))?;
        Ok(Self { path: path.to_owned(), file, bytes, device, undo: Undo::Nothing })
    }

    fn make(path: &Path, size: Option<u64>) -> Result<Self, Refusal> {
        need_size(path, size)?;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .map_err(|error| Refusal::from_io("make the flash", path, error))?;
        let flash = Self { path: path.to_owned(), file, bytes: 0, device: false, undo: Undo::Remove };
        lock(&flash.file, path)?;
        flash.fill(size)
    }

    /// Gives an empty file its size, with its space reserved: a pool must not find its file
    /// system full later.
    fn fill(mut self, size: Option<u64>) -> Result<Self, Refusal> {
        let bytes = need_size(&self.path, size)?;
        if self.undo == Undo::Nothing {
            self.undo = Undo::Empty;
        }
        self.resize(bytes)?;
        Ok(self)
    }

    fn resize(&mut self, bytes: u64) -> Result<(), Refusal> {
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                Refusal::FlashNoSpace { path: self.path.clone(), bytes }
            }
            _ => Refusal::from_io("give its size to the flash", &self.path, error),
        };
        if bytes < self.bytes {
            self.file.set_len(bytes).map_err(failed)?;
        }
        match fallocate(&self.file, FallocateFlags::empty(), 0, bytes) {
            Ok(()) => {}
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.file.set_len(bytes).map_err(failed)?,
            Err(error) => return Err(failed(error.into())),
        }
        self.file.sync_all().map_err(failed)?;
        if let Some(parent) = self.path.parent() {
            File::open(parent).and_then(|dir| dir.sync_all()).map_err(failed)?;
        }
        self.bytes = bytes;
        Ok(())
    }

    /// The bytes to divide when a new pool is made here: the size asked for, or all there is.
    /// A file that is formatted anew gets that size.
    ///
    /// # Errors
    /// The statuses 30, 34 and 35.
    pub fn prepare_format(&mut self, size: Option<Size>) -> Result<Geometry, Refusal> {
        let wanted = size.map(|size| size.0 / BLOCK_U64 * BLOCK_U64);
        let bytes = wanted.unwrap_or(self.bytes / BLOCK_U64 * BLOCK_U64);
        let geometry = check_size(&self.path, bytes)?;
        if self.device && bytes > self.bytes {
            let why = format!("has {}, and {} are asked for", Size(self.bytes), Size(bytes));
            return Err(Refusal::FlashTooSmall { path: self.path.clone(), why });
        }
        if !self.device && bytes != self.bytes {
            self.resize(bytes)?;
        }
        Ok(geometry)
    }

    /// What the flash holds. Reads only.
    ///
    /// # Errors
    /// When the flash cannot be read.
    pub fn recognise(&self) -> Result<Content, Refusal> {
        if self.undo != Undo::Nothing {
            return Ok(Content::Nothing);
        }
        let mut start = vec![0; LOOKED_AT];
        let mut filled = 0;
        while filled < start.len() {
            match self.file.read_at(&mut start[filled..], filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let what = format!("cannot be read: {error}");
                    let advice = "Look at the kernel's log; the device may be failing.";
                    return Err(Refusal::Pool { path: self.path.clone(), what, advice, status: ExitStatus::FlashFailed });
                }
            }
        }
        start.truncate(filled);
        Ok(recognise(&start, self.bytes))
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How much there is.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The open file, which holds the lock.
    #[must_use]
    pub const fn file(&self) -> &File {
        &self.file
    }

    /// From now on it is a pool: it stays, whatever becomes of this start.
    pub const fn settle(&mut self) {
        self.undo = Undo::Nothing;
    }
}

impl Drop for Flash {
    fn drop(&mut self) {
        // Best effort: what cannot be undone is a file of zeros, which the next start names.
        let _ = match self.undo {
            Undo::Nothing => Ok(()),
            Undo::Remove => fs::remove_file(&self.path),
            Undo::Empty => self.file.set_len(0),
        };
    }
}

/// As far as the start of the flash is looked at to tell what it is.
const LOOKED_AT: usize = 128 << 10;

fn recognise(start: &[u8], bytes: u64) -> Content {
    let slots = SUPERBLOCK_SLOTS.map(|offset| {
        let block = usize::try_from(offset).ok().and_then(|offset| start.get(offset..offset + BLOCK));
        block.map_or(Err(Damage::Missing("superblock")), decode_superblock)
    });
    let best = slots.iter().flatten().max_by_key(|superblock| superblock.counter);
    let newer = slots.iter().find_map(|slot| match slot {
        Err(damage @ Damage::Newer { .. }) => Some(damage.clone()),
        _ => None,
    });
    // A newer slot beside one that is known: a newer headpond used the pool last.
    if let Some(newer) = newer {
        return Content::Unreadable(newer);
    }
    if let Some(superblock) = best {
        return Content::Pool(Box::new(superblock.clone()));
    }
    let damaged = slots.into_iter().filter_map(Result::err).find(|damage| !matches!(damage, Damage::Missing(_)));
    damaged.map_or_else(|| Content::Foreign(looks_like(start, bytes)), Content::Unreadable)
}

/// What bytes look like to somebody who knows the common magic numbers. Zeros are no proof of
/// nothing: they may be the start of a sparse image.
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
        format!("holds {size} that start with zeros")
    } else {
        format!("holds {size} of something else")
    }
}

fn lock(file: &File, path: &Path) -> Result<(), Refusal> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(()),
        Err(Errno::WOULDBLOCK) => Err(Refusal::FlashInUse { path: path.to_owned() }),
        Err(error) => Err(Refusal::from_io("lock the flash", path, error)),
    }
}

fn need_size(path: &Path, size: Option<u64>) -> Result<u64, Refusal> {
    size.ok_or_else(|| Refusal::Flash {
        path: path.to_owned(),
        why: "does not exist or is empty: say how large to make it, such as --size 200G".to_owned(),
    })
}

fn check_size(path: &Path, bytes: u64) -> Result<Geometry, Refusal> {
    Geometry::for_bytes(bytes).map_err(|error| {
        let path = path.to_owned();
        match error {
            GeometryError::TooSmall(_) => Refusal::FlashTooSmall {
                path,
                why: format!(
                    "{} are too few for a pool: at least {} are needed",
                    Size(bytes),
                    Size(headpond_format::POOL_BYTES_MIN)
                ),
            },
            GeometryError::TooLarge(_) => {
                Refusal::Flash { path, why: format!("{} are too many for one pool: at most 16 TiB can be used", Size(bytes)) }
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_base::{BatchNumber, CacheMode, Epoch, PoolId};
    use headpond_format::encode_superblock;

    const SIZE: Option<Size> = Some(Size(64 << 20));

    fn superblock(counter: u64) -> Superblock {
        Superblock {
            pool: PoolId([7; 16]),
            geometry: Geometry::for_bytes(1 << 30).unwrap(),
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
            let Content::Pool(found) = recognise(&image(slots), 1 << 30) else { panic!("no pool found") };
            assert_eq!(found.counter, counter);
        }
        let both = image([Some(rotten.clone()), Some(rotten)]);
        assert_eq!(recognise(&both, 1 << 30), Content::Unreadable(Damage::Checksum("superblock")));
    }

    #[test]
    fn foreign_bytes_are_told_by_what_they_look_like() {
        let mut ext = vec![0; LOOKED_AT];
        ext[0x438..0x43a].copy_from_slice(&[0x53, 0xef]);
        for (bytes, says) in
            [(ext, "ext4"), (vec![0; 5000], "zeros"), (b"SQLite format 3\0 and so on".to_vec(), "SQLite"), (vec![9; 77], "77 B of")]
        {
            let Content::Foreign(what) = recognise(&bytes, bytes.len() as u64) else { panic!("taken for a pool") };
            assert!(what.contains(says), "{what}");
        }
    }

    #[test]
    fn a_missing_flash_is_made_at_its_size_and_removed_again_if_nothing_comes_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pond");
        let flash = Flash::take(&path, SIZE).unwrap();
        assert_eq!((flash.bytes(), flash.recognise().unwrap()), (64 << 20, Content::Nothing));
        assert_eq!(fs::metadata(&path).unwrap().len(), 64 << 20);
        drop(flash);
        assert!(!path.exists());
        let mut flash = Flash::take(&path, SIZE).unwrap();
        flash.settle();
        drop(flash);
        assert!(path.exists());
    }

    #[test]
    fn a_held_flash_is_refused_to_others() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pond");
        let _flash = Flash::take(&path, SIZE).unwrap();
        assert_eq!(Flash::take(&path, SIZE).unwrap_err().status(), ExitStatus::FlashInUse);
    }

    #[test]
    fn each_unusable_flash_has_its_message_and_its_status() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("dir")).unwrap();
        for (name, size, status, says) in [
            ("new", None, ExitStatus::FlashUnusable, "--size 200G"),
            ("new", Some(Size(1 << 20)), ExitStatus::FlashTooSmall, "at least 64 MiB"),
            ("new", Some(Size(17 << 40)), ExitStatus::FlashUnusable, "at most 16 TiB"),
            ("dir", SIZE, ExitStatus::FlashUnusable, "is a directory"),
        ] {
            let refusal = Flash::take(&at(name), size).unwrap_err();
            assert_eq!(refusal.status(), status, "{refusal}");
            assert!(refusal.to_string().contains(says), "{refusal}");
            assert!(!at("new").exists(), "a refusal leaves nothing");
        }
    }
}
