//! A flash file or block device: opened, locked, created.
//!
//! Invariants:
//! - An open [`Flash`] holds a lock that no other process has, so two daemons never share a pool. The lock belongs to
//!   the open file. It ends with the process, however that ends.
//! - A file that [`Flash::create`] made has all its space, so the file system cannot run full under the pool.
//! - Nothing is written to an existing file before the caller writes.
//!
//! The blocking reads and writes are for recovery and format, before a reactor drives the flash.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use headpond_base::{BLOCK, BLOCK_U64, Buf, BufMut, Errno, MemberId, Result};
use rustix::fs::{FallocateFlags, FlockOperation, OFlags};

use crate::FlashError;
use crate::far_disk::{FarDisk, let_go, plain_result, read_result, wait_for};
use crate::op::{Completion, DiskOp, End, Tag};

/// The kind of a flash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlashKind {
    /// A regular file.
    File,
    /// A block device.
    BlockDevice,
    /// A disk that lies elsewhere.
    Far,
}

/// How a new flash file is filled.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Fill {
    /// Space is reserved and stays unwritten. Quick, but the file system notes the first write of each part with every
    /// sync. Measured on ext4: 4,500 small appends with fdatasync a second, against 7,900 once every part was written.
    #[default]
    Reserved,
    /// Zeros are written everywhere. Takes as long as writing the whole file.
    Zeros,
}

/// An open and locked flash file or block device.
#[derive(Debug)]
pub struct Flash {
    place: Place,
    path: PathBuf,
    kind: FlashKind,
    /// Grows if the file or device does, and [`Flash::measure`] is called then.
    bytes: AtomicU64,
    direct: bool,
}

/// Where its bytes are.
#[derive(Debug)]
enum Place {
    Here(File),
    Elsewhere(Arc<dyn FarDisk>),
}

/// How long [`Flash`] tries to get a lock, or a block device for itself alone. When a daemon is killed in the middle
/// of writes, the kernel finishes them and lets go of the file a moment later. Until then those writes may still land,
/// so the wait is needed. On a busy machine one second was too short for a worker whose holder was killed as it started.
const LOCK_PATIENCE: Duration = Duration::from_secs(3);

/// Bytes of zeros in one write: so many that the device's speed counts.
const ZEROS: usize = 1 << 20;

impl Flash {
    /// Opens and locks a file or device.
    ///
    /// # Errors
    /// When it is missing, in use, or neither a file nor a block device.
    pub fn open(path: &Path) -> std::result::Result<Self, FlashError> {
        Self::open_with(path, true)
    }

    /// Opens for examination only. Other readers may open it too, but no daemon.
    ///
    /// # Errors
    /// As [`Flash::open`].
    pub fn open_read_only(path: &Path) -> std::result::Result<Self, FlashError> {
        Self::open_with(path, false)
    }

    /// Creates and locks a file of `bytes`, rounded down to whole blocks, with all its space. When this returns, the
    /// file and its name are durable. When it fails, nothing is left.
    ///
    /// # Errors
    /// When the file exists, or there is no room.
    pub fn create(path: &Path, bytes: u64, fill: Fill) -> std::result::Result<Self, FlashError> {
        let bytes = bytes / BLOCK_U64 * BLOCK_U64;
        let file = options(true).create_new(true).mode(0o600).open(path).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => FlashError::Exists(path.to_owned()),
            _ => failed("create", path, error),
        })?;
        // The lock comes before the size: a process that opens the file meanwhile finds it locked.
        let made = lock(&file, true, path).and_then(|()| {
            allocate(&file, path, bytes)?;
            if fill == Fill::Zeros {
                write_zeros(&file, bytes).map_err(|error| failed("fill", path, error))?;
            }
            file.sync_all().map_err(|error| failed("sync", path, error))?;
            sync_directory_of(path).map_err(|error| failed("sync the directory of", path, error))?;
            let (file, direct) = into_direct(file, path)?;
            let place = Place::Here(file);
            Ok(Self { place, path: path.to_owned(), kind: FlashKind::File, bytes: bytes.into(), direct })
        });
        if made.is_err() {
            // Report the first error, not this one.
            let _ = std::fs::remove_file(path);
        }
        made
    }

    fn open_with(path: &Path, write: bool) -> std::result::Result<Self, FlashError> {
        // Check before the real open: opening a FIFO hangs, and opening a device may act on it.
        let place = options(false).custom_flags(OFlags::PATH.bits().cast_signed()).open(path);
        let place = place.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => FlashError::Missing(path.to_owned()),
            _ => failed("look at", path, error),
        })?;
        let metadata = place.metadata().map_err(|error| failed("look at", path, error))?;
        let kind = match metadata.file_type() {
            kind if kind.is_file() => FlashKind::File,
            kind if kind.is_block_device() => FlashKind::BlockDevice,
            _ => return Err(FlashError::NotFlash(path.to_owned())),
        };
        if kind == FlashKind::File && write {
            check_owner(path, &metadata)?;
        }
        // Opens that very file, even if its name now leads elsewhere.
        let same = format!("/proc/self/fd/{}", place.as_raw_fd());
        let mut how = options(write);
        if kind == FlashKind::BlockDevice && write {
            // On a block device O_EXCL means: not while it is mounted or part of something else.
            how.custom_flags(OFlags::EXCL.bits().cast_signed());
        }
        let busy = |error: &io::Error| error.raw_os_error() == Some(Errno::BUSY.0);
        let file = patiently(|| how.open(&same), busy).map_err(|error| match error {
            error if busy(&error) => FlashError::InUse(path.to_owned()),
            error => failed("open", path, error),
        })?;
        lock(&file, write, path)?;
        Self::locked(file, path, kind)
    }

    /// Takes over what another process opened for writing, with its lock.
    ///
    /// # Errors
    /// When it cannot be measured.
    pub fn taken_over(file: File, path: &Path) -> std::result::Result<Self, FlashError> {
        let metadata = file.metadata().map_err(|error| failed("look at", path, error))?;
        let kind = if metadata.is_file() { FlashKind::File } else { FlashKind::BlockDevice };
        Self::locked(file, path, kind)
    }

    fn locked(file: File, path: &Path, kind: FlashKind) -> std::result::Result<Self, FlashError> {
        let (file, direct) = into_direct(file, path)?;
        let place = Place::Here(file);
        let flash = Self { place, path: path.to_owned(), kind, bytes: AtomicU64::new(0), direct };
        flash.measure()?;
        Ok(flash)
    }

    /// A disk that lies elsewhere. The path says where, for people.
    #[must_use]
    pub fn far(disk: Arc<dyn FarDisk>, path: &Path) -> Self {
        let bytes = disk.bytes().into();
        Self { place: Place::Elsewhere(disk), path: path.to_owned(), kind: FlashKind::Far, bytes, direct: true }
    }

    /// The disk, if it lies elsewhere.
    #[must_use]
    pub const fn far_disk(&self) -> Option<&Arc<dyn FarDisk>> {
        match &self.place {
            Place::Here(_) => None,
            Place::Elsewhere(disk) => Some(disk),
        }
    }

    /// Measures it once more, and returns its size in whole blocks. Nobody may shorten it while it is open.
    ///
    /// # Errors
    /// When it cannot be measured.
    pub fn measure(&self) -> std::result::Result<u64, FlashError> {
        let bytes = match (&self.place, self.kind) {
            (Place::Elsewhere(disk), _) => Ok(disk.bytes()),
            // Nothing reads or writes at the file's own position.
            (Place::Here(file), FlashKind::BlockDevice) => {
                let mut file: &File = file;
                file.seek(SeekFrom::End(0))
            }
            (Place::Here(file), _) => file.metadata().map(|metadata| metadata.len()),
        };
        let bytes = bytes.map_err(|error| failed("measure", &self.path, error))? / BLOCK_U64 * BLOCK_U64;
        self.bytes.store(bytes, Ordering::Relaxed);
        Ok(bytes)
    }

    /// Gives a file all its space, if another process created it. Its content stays as it is. Does nothing for block
    /// devices.
    ///
    /// # Errors
    /// When there is no room.
    pub fn allocate(&self) -> std::result::Result<(), FlashError> {
        let Some(file) = self.file().filter(|_| self.kind == FlashKind::File) else { return Ok(()) };
        let allocated = file.metadata().map_or(0, |metadata| metadata.blocks() * 512);
        if allocated < self.bytes() { allocate(file, &self.path, self.bytes()) } else { Ok(()) }
    }

    /// Usable size in bytes: whole blocks.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The kind of the flash.
    #[must_use]
    pub const fn kind(&self) -> FlashKind {
        self.kind
    }

    /// Whether reads and writes go past the page cache. Some file systems cannot do that: tmpfs on older kernels, some
    /// network file systems. Then each block takes memory twice, and nothing else changes.
    #[must_use]
    pub const fn is_direct(&self) -> bool {
        self.direct
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The open file. Its lock lives as long as any clone of it. None if it lies elsewhere.
    #[must_use]
    pub const fn file(&self) -> Option<&File> {
        match &self.place {
            Place::Here(file) => Some(file),
            Place::Elsewhere(_) => None,
        }
    }

    /// Reads exactly `len` bytes, and waits for them. `offset` and `len` are multiples of a block.
    ///
    /// # Errors
    /// The device's error; [`Errno::IO`] when it ends too early.
    pub fn read(&self, offset: u64, len: usize) -> Result<Buf> {
        match &self.place {
            Place::Here(file) => {
                let mut buf = BufMut::unwritten(len);
                read_fully(file, &mut buf, offset)?;
                Ok(buf.freeze())
            }
            Place::Elsewhere(disk) => {
                wait_for(&**disk, DiskOp::Read { tag: Tag(0), offset, len }).and_then(read_result)
            }
        }
    }

    /// Writes all of `data`, and waits. `offset` and the length are multiples of a block.
    ///
    /// # Errors
    /// The device's error.
    pub fn write(&self, offset: u64, data: &Buf) -> Result<()> {
        match &self.place {
            Place::Here(file) => write_fully(file, data, offset),
            Place::Elsewhere(disk) => {
                let data = data.clone();
                wait_for(&**disk, DiskOp::Write { tag: Tag(0), offset, data }).and_then(plain_result)
            }
        }
    }

    /// Carries out an operation of `disk`, which has this flash, with blocking calls. `None` for a trim, which has a
    /// thread of its own.
    pub(crate) fn carry_out(&self, disk: MemberId, op: DiskOp) -> Option<Completion> {
        let (tag, end) = match op {
            DiskOp::Read { tag, offset, len } => (tag, End::Read(self.read(offset, len))),
            DiskOp::Write { tag, offset, data } => (tag, End::Write(self.write(offset, &data))),
            DiskOp::Sync { tag } => (tag, End::Sync(self.sync())),
            DiskOp::Trim { .. } => return None,
        };
        Some(Completion { disk, tag, end })
    }

    /// Makes all earlier writes durable, and waits.
    ///
    /// # Errors
    /// The device's error.
    pub fn sync(&self) -> Result<()> {
        match &self.place {
            Place::Here(file) => Ok(file.sync_data()?),
            Place::Elsewhere(disk) => wait_for(&**disk, DiskOp::Sync { tag: Tag(0) }).and_then(plain_result),
        }
    }

    /// Tells the host of a disk elsewhere that nobody needs it any more, and waits for the answer. For one that lies here it
    /// does nothing.
    ///
    /// # Errors
    /// What the other end says, or that it says nothing.
    pub fn let_go(&self) -> Result<()> {
        self.far_disk().map_or(Ok(()), |disk| let_go(&**disk))
    }
}

/// Reads until `into` is full.
pub(crate) fn read_fully(file: &File, into: &mut [u8], offset: u64) -> Result<()> {
    file.read_exact_at(into, offset).map_err(Errno::from)
}

/// Writes until all of `from` is written.
pub(crate) fn write_fully(file: &File, from: &[u8], offset: u64) -> Result<()> {
    file.write_all_at(from, offset).map_err(Errno::from)
}

/// Refuses a pool file that others own or can write. A pool has copies of the origin's data, and headpond believes
/// them: who writes the file changes the data, and who owns it can read them. The system gives devices to a group of
/// their own, so they are not checked.
fn check_owner(path: &Path, found: &Metadata) -> std::result::Result<(), FlashError> {
    let own = rustix::process::geteuid().as_raw();
    let why = if found.uid() != own && found.uid() != 0 {
        format!(
            "belongs to user {}, and this headpond runs as user {own}. If it is yours to give: chown {own} FILE",
            found.uid()
        )
    } else if found.mode() & 0o002 != 0 || (found.mode() & 0o020 != 0 && (own == 0 || own == found.uid())) {
        // Not for root's file: its group may be what lets this user write it.
        "can be written by others than its owner. If nobody has: chmod 600 FILE".to_owned()
    } else {
        return Ok(());
    };
    Err(FlashError::NotOwn { path: path.to_owned(), why })
}

fn options(write: bool) -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(write);
    options
}

fn failed(doing: &'static str, path: &Path, source: io::Error) -> FlashError {
    let path = path.to_owned();
    match source.kind() {
        io::ErrorKind::PermissionDenied => FlashError::Permission { doing, path },
        _ => FlashError::Io { doing, path, source },
    }
}

fn lock(file: &File, alone: bool, path: &Path) -> std::result::Result<(), FlashError> {
    let how = if alone { FlockOperation::NonBlockingLockExclusive } else { FlockOperation::NonBlockingLockShared };
    let taken = |errno: &rustix::io::Errno| *errno == rustix::io::Errno::WOULDBLOCK;
    patiently(|| rustix::fs::flock(file, how), taken).map_err(|errno| match errno {
        errno if taken(&errno) => FlashError::InUse(path.to_owned()),
        errno => failed("lock", path, errno.into()),
    })
}

/// Repeats `attempt` until it works, fails with an error that is not `taken`, or [`LOCK_PATIENCE`] is over.
fn patiently<T, E>(
    mut attempt: impl FnMut() -> std::result::Result<T, E>,
    taken: impl Fn(&E) -> bool,
) -> std::result::Result<T, E> {
    let until = Instant::now() + LOCK_PATIENCE;
    loop {
        match attempt() {
            Err(error) if taken(&error) && Instant::now() < until => std::thread::sleep(LOCK_PATIENCE / 200),
            result => return result,
        }
    }
}

/// Makes the file go past the page cache, if its file system can. It sets the flag and reads one block: some file
/// systems take the flag and refuse the reads.
fn into_direct(file: File, path: &Path) -> std::result::Result<(File, bool), FlashError> {
    let set = |flags: OFlags| rustix::fs::fcntl_setfl(&file, flags);
    let now = rustix::fs::fcntl_getfl(&file).map_err(|errno| failed("open", path, errno.into()))?;
    if set(now | OFlags::DIRECT).is_err() {
        return Ok((file, false));
    }
    let mut block = BufMut::zeroed(BLOCK);
    match file.read_at(&mut block, 0) {
        Err(error) if error.raw_os_error() == Some(Errno::INVAL.0) => {
            set(now).map_err(|errno| failed("open", path, errno.into()))?;
            Ok((file, false))
        }
        // Any other failure may be a bad sector. The read that needs that sector reports it.
        _ => Ok((file, true)),
    }
}

fn allocate(file: &File, path: &Path, bytes: u64) -> std::result::Result<(), FlashError> {
    let no_space = || FlashError::NoSpace { path: path.to_owned(), wanted: bytes, free: free_near(path) };
    // Check before fallocate. If a file system has too little, it may first take all of it, so that all other writes
    // fail, and then refuse and give it back.
    let there = file.metadata().map_or(0, |metadata| metadata.blocks() * 512);
    if bytes.saturating_sub(there) > free_near(path) {
        return Err(no_space());
    }
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::NOSPC | rustix::io::Errno::DQUOT | rustix::io::Errno::FBIG) => Err(no_space()),
        // Without fallocate, write zeros to get the space. Only into an empty file.
        Err(rustix::io::Errno::OPNOTSUPP) if file.metadata().is_ok_and(|metadata| metadata.len() == 0) => {
            write_zeros(file, bytes).map_err(|error| match error.raw_os_error() {
                Some(errno) if errno == Errno::NOSPC.0 => no_space(),
                _ => failed("fill", path, error),
            })
        }
        Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
        Err(errno) => Err(failed("allocate", path, errno.into())),
    }
}

fn write_zeros(file: &File, bytes: u64) -> io::Result<()> {
    let zeros = BufMut::zeroed(ZEROS);
    let mut offset = 0;
    while offset < bytes {
        let len = usize::try_from(bytes - offset).unwrap_or(ZEROS).min(ZEROS);
        file.write_all_at(&zeros[..len], offset)?;
        offset += len as u64;
    }
    Ok(())
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn sync_directory_of(path: &Path) -> io::Result<()> {
    File::open(parent(path))?.sync_all()
}

fn free_near(path: &Path) -> u64 {
    rustix::fs::statvfs(parent(path)).map_or(0, |stat| stat.f_bavail * stat.f_frsize)
}
