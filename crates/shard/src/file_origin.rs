//! An origin of files, through the page cache of the machine.
//!
//! Costs: what is read from or written to the origin takes page cache once more. The origin is touched
//! rarely, and its own read-ahead and write-behind are worth more than that memory.
//!
//! Invariants
//! - An object's file, once it can be written, stays the one it is until released.
//! - No change of the origin begins but through the gate (`claim.rs`).

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use headpond_base::{Buf, BufMut, Errno, ObjectId, Result, UnixNanos};
use headpond_format::Stamp;
use rustix::fs::{FallocateFlags, OFlags, SeekFrom, Timespec, Timestamps};
use rustix::io::Errno as E;

use crate::Removed;
use crate::beneath::{Mounts, open_beneath};
use crate::claim::Gate;
use crate::origin::Remains;
use crate::removed::RemovedFiles;

/// The files of a directory tree.
#[derive(Default)]
pub struct FileOrigin {
    files: RwLock<HashMap<ObjectId, Arc<Attached>>>,
    root: Option<Root>,
    removed: RemovedFiles,
    /// What says beside the origin that the flash failed; see [`Origin::pool_failed`].
    on_pool_failed: OnceLock<Box<dyn Fn() -> io::Result<()> + Send + Sync>>,
    /// Every change goes through it. None for an origin that nobody else can take over.
    gate: OnceLock<Arc<Gate>>,
}

struct Attached {
    file: File,
    writable: bool,
    /// The directory that names it has been synced since it was attached.
    anchored: AtomicBool,
    /// Held while the file's mtime is read and put back, or set: one at a time, or what one puts
    /// back is what another's reservation made of it.
    times: Mutex<()>,
    /// Its last name is gone. Behind the file, which is closed first.
    removed: OnceLock<Removed>,
}

/// The top of the tree. Its path is asked for anew each time: it may be renamed meanwhile.
struct Root {
    directory: File,
}

/// The most pieces that the kernel takes with one call.
const PIECES_MAX: usize = 1024;

/// Zeros that are written where the file system cannot make a hole.
const ZEROS: usize = 1 << 20;

impl FileOrigin {
    /// An origin of whatever files are attached. The directory entries of new files are as durable as
    /// their file system makes them with an fsync of the file (ext4, xfs and btrfs: fully).
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An origin below a directory. The first sync of a file after it was attached also syncs the
    /// directory that names it, on whatever file system.
    ///
    /// # Errors
    /// When it cannot be told where the directory is.
    pub fn below(directory: OwnedFd) -> io::Result<Self> {
        let directory = File::from(directory);
        path_of(&directory)?;
        Ok(Self { root: Some(Root { directory }), ..Self::default() })
    }

    /// Gives what says, durably and beside the origin, that the flash failed. Without it the
    /// origin is never changed once the flash has failed. Only the first counts.
    pub fn when_pool_fails(&self, tell: Box<dyn Fn() -> io::Result<()> + Send + Sync>) {
        let _ = self.on_pool_failed.set(tell);
    }

    /// Gives the gate through which changes go from now on. Only the first counts.
    pub fn guard(&self, gate: Arc<Gate>) {
        let _ = self.gate.set(gate);
    }

    /// Makes a change, if the origin is still ours.
    fn change<T>(&self, change: impl FnOnce() -> Result<T>) -> Result<T> {
        let Some(gate) = self.gate.get() else { return change() };
        gate.pass()?;
        self.doubting(change())
    }

    /// The origin's errors make the claim doubtful; but not those that say what a healthy one says, too.
    fn doubting<T>(&self, result: Result<T>) -> Result<T> {
        let healthy =
            [Errno::NOSPC, Errno::DQUOT, Errno::FBIG, Errno::OPNOTSUPP, Errno::BADF, Errno::NXIO, Errno::INVAL];
        if let (Some(gate), Err(errno)) = (self.gate.get(), &result)
            && !healthy.contains(errno)
        {
            gate.doubt();
        }
        result
    }

    fn get(&self, object: ObjectId) -> Result<Arc<Attached>> {
        self.files.read().unwrap_or_else(PoisonError::into_inner).get(&object).cloned().ok_or(Errno::BADF)
    }

    /// Syncs the directory that names a file. Failing to find it is no error: the file may have no
    /// name any more.
    fn sync_name(&self, attached: &Attached) -> Result<()> {
        let Some(root) = &self.root else { return Ok(()) };
        if attached.anchored.load(Ordering::Relaxed) || attached.file.metadata().is_ok_and(|file| file.nlink() == 0) {
            return Ok(());
        }
        let Some(parent) = root.parent_of(&attached.file) else { return Ok(()) };
        File::from(parent).sync_all()?;
        attached.anchored.store(true, Ordering::Relaxed);
        Ok(())
    }
}

impl Attached {
    fn read(&self, offset: u64, len: usize) -> Result<Buf> {
        let mut buf = BufMut::zeroed(len);
        let mut got = 0;
        while got < len {
            match self.file.read_at(&mut buf[got..], offset + got as u64) {
                Ok(0) => break,
                Ok(more) => got += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        buf.truncate(got);
        Ok(buf.freeze())
    }

    fn write(&self, offset: u64, data: &[Buf]) -> Result<()> {
        let mut slices: Vec<_> = data.iter().map(|piece| IoSlice::new(piece)).collect();
        let mut rest = &mut slices[..];
        let mut at = offset;
        IoSlice::advance_slices(&mut rest, 0);
        while !rest.is_empty() {
            let now = &rest[..rest.len().min(PIECES_MAX)];
            match rustix::io::pwritev(&self.file, now, at) {
                Ok(0) => return Err(Errno::IO),
                Ok(put) => {
                    at += put as u64;
                    IoSlice::advance_slices(&mut rest, put);
                }
                Err(E::INTR) => {}
                Err(errno) => return Err(from(errno)),
            }
        }
        Ok(())
    }

    fn zero(&self, offset: u64, len: u64) -> Result<()> {
        let size = self.file.metadata()?.len();
        let len = len.min(size.saturating_sub(offset));
        if len == 0 {
            return Ok(());
        }
        for how in [FallocateFlags::PUNCH_HOLE, FallocateFlags::ZERO_RANGE] {
            match allocate(&self.file, how | FallocateFlags::KEEP_SIZE, offset, len) {
                Err(Errno::OPNOTSUPP) => {}
                result => return result,
            }
        }
        let zeros = BufMut::zeroed(ZEROS);
        let (mut at, end) = (offset, offset + len);
        while at < end {
            let step = usize::try_from(end - at).unwrap_or(ZEROS).min(ZEROS);
            self.file.write_all_at(&zeros[..step], at)?;
            at += step as u64;
        }
        Ok(())
    }

    fn reserve(&self, offset: u64, len: u64) -> Result<()> {
        let times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.file.metadata()?;
        match allocate(&self.file, FallocateFlags::KEEP_SIZE, offset, len) {
            Err(Errno::OPNOTSUPP) => {}
            // File systems take this for a change of the file. It is none: left like that, the next
            // mount would find a file that somebody else seems to have changed.
            result => {
                let put_back = set_mtime(&self.file, unix(before.mtime(), before.mtime_nsec()));
                return result.and(put_back);
            }
        }
        drop(times);
        // No reservation is to be had. The next best: refuse what surely does not fit.
        let stat = rustix::fs::fstatvfs(&self.file).map_err(from)?;
        let free = stat.f_bavail.saturating_mul(stat.f_frsize);
        if free < len { Err(Errno::NOSPC) } else { Ok(()) }
    }
}

impl Root {
    /// The directory that names a file now. Looked up from the top of the tree itself and never
    /// through a mount: the front door's own may lie on top of this one.
    fn parent_of(&self, file: &File) -> Option<OwnedFd> {
        let path = path_of(file).ok()?;
        let below = path.strip_prefix(path_of(&self.directory).ok()?).ok()?.parent()?;
        open_beneath(&self.directory, below, OFlags::RDONLY | OFlags::DIRECTORY, Mounts::Refused).ok()
    }
}

fn path_of(file: &File) -> io::Result<PathBuf> {
    let link = rustix::fs::readlink(format!("/proc/self/fd/{}", file.as_raw_fd()), Vec::new())?;
    Ok(PathBuf::from(OsStr::from_bytes(link.as_bytes())))
}

impl crate::Origin for FileOrigin {
    fn read(&self, object: ObjectId, offset: u64, len: usize) -> Result<Buf> {
        let attached = self.get(object)?;
        self.doubting(attached.read(offset, len))
    }

    fn write(&self, object: ObjectId, offset: u64, data: &[Buf]) -> Result<()> {
        let attached = self.get(object)?;
        self.change(|| self.removed.asking_again(|| attached.write(offset, data)))
    }

    fn zero(&self, object: ObjectId, offset: u64, len: u64) -> Result<()> {
        let attached = self.get(object)?;
        self.change(|| self.removed.asking_again(|| attached.zero(offset, len)))
    }

    fn resize(&self, object: ObjectId, size: u64) -> Result<()> {
        let attached = self.get(object)?;
        self.change(|| self.removed.asking_again(|| Ok(attached.file.set_len(size)?)))
    }

    fn reserve(&self, object: ObjectId, offset: u64, len: u64) -> Result<()> {
        let attached = self.get(object)?;
        self.change(|| self.removed.asking_again(|| attached.reserve(offset, len)))
    }

    fn sync(&self, object: ObjectId) -> Result<()> {
        let attached = self.get(object)?;
        self.change(|| {
            attached.file.sync_all()?;
            self.sync_name(&attached)
        })
    }

    fn stamp(&self, object: ObjectId, mtime: UnixNanos) -> Result<Stamp> {
        let attached = self.get(object)?;
        self.change(|| {
            let _times = attached.times.lock().unwrap_or_else(PoisonError::into_inner);
            set_mtime(&attached.file, mtime)?;
            let metadata = attached.file.metadata()?;
            Ok(Stamp {
                size: metadata.len(),
                mtime: unix(metadata.mtime(), metadata.mtime_nsec()),
                ctime: unix(metadata.ctime(), metadata.ctime_nsec()),
            })
        })
    }

    fn pool_failed(&self) -> Result<()> {
        let tell = self.on_pool_failed.get().ok_or(Errno::IO)?;
        self.change(|| tell().map_err(Errno::from))
    }

    fn may_change(&self) -> Result<()> {
        self.gate.get().map_or(Ok(()), |gate| gate.pass())
    }

    fn is_barred(&self) -> bool {
        self.gate.get().is_some_and(|gate| gate.is_lost())
    }

    fn seek(&self, object: ObjectId, offset: u64, data: bool) -> Result<u64> {
        let attached = self.get(object)?;
        // Moves the file's own position, which nothing here uses.
        let from_here = if data { SeekFrom::Data(offset) } else { SeekFrom::Hole(offset) };
        rustix::fs::seek(&attached.file, from_here).map_err(from)
    }

    fn attach(&self, object: ObjectId, file: File) {
        let mode = rustix::fs::fcntl_getfl(&file).map_or(OFlags::RDONLY, |flags| flags & OFlags::RWMODE);
        let writable = mode != OFlags::RDONLY;
        let mut files = self.files.write().unwrap_or_else(PoisonError::into_inner);
        if files.get(&object).is_some_and(|earlier| earlier.writable || !writable) {
            return;
        }
        files.insert(
            object,
            Arc::new(Attached {
                file,
                writable,
                anchored: AtomicBool::new(false),
                times: Mutex::new(()),
                removed: OnceLock::new(),
            }),
        );
    }

    fn release(&self, object: ObjectId) -> Option<Remains> {
        let released = self.files.write().unwrap_or_else(PoisonError::into_inner).remove(&object)?;
        // In this order: closed, and then told. It may be removed before it is closed.
        Some(Box::new((released, self.removed.add_closing())))
    }

    fn removed(&self, object: Option<ObjectId>) -> Option<Removed> {
        let removed = self.removed.add();
        if let Some(attached) = object.and_then(|object| self.get(object).ok()) {
            let _ = attached.removed.set(removed.clone());
        }
        Some(removed)
    }
}

fn allocate(file: &File, how: FallocateFlags, offset: u64, len: u64) -> Result<()> {
    loop {
        match rustix::fs::fallocate(file, how, offset, len) {
            Ok(()) => return Ok(()),
            Err(E::INTR) => {}
            Err(E::OPNOTSUPP | E::NOSYS) => return Err(Errno::OPNOTSUPP),
            Err(errno) => return Err(from(errno)),
        }
    }
}

fn from(errno: E) -> Errno {
    Errno(errno.raw_os_error())
}

fn set_mtime(file: &File, mtime: UnixNanos) -> Result<()> {
    const SECOND: i64 = 1_000_000_000;
    let keep = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT };
    let set = Timespec { tv_sec: mtime.0.div_euclid(SECOND), tv_nsec: mtime.0.rem_euclid(SECOND) };
    rustix::fs::futimens(file, &Timestamps { last_access: keep, last_modification: set }).map_err(from)
}

fn unix(seconds: i64, nanos: i64) -> UnixNanos {
    UnixNanos(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_directory_of_a_file_is_found_over_renames_of_the_origin_and_not_through_links() {
        let top = tempfile::tempdir().unwrap();
        let at = |name: &str| top.path().join(name);
        fs::create_dir_all(at("origin/db")).unwrap();
        fs::write(at("origin/db/file"), "").unwrap();
        let file = File::open(at("origin/db/file")).unwrap();
        let root = Root { directory: File::open(at("origin")).unwrap() };
        let inode = |file: &OwnedFd| rustix::fs::fstat(file).unwrap().st_ino;
        let db = fs::metadata(at("origin/db")).unwrap().ino();
        assert_eq!(root.parent_of(&file).as_ref().map(inode), Some(db));
        fs::rename(at("origin"), at("renamed")).unwrap();
        assert_eq!(root.parent_of(&file).as_ref().map(inode), Some(db), "its name is made durable as before");
        fs::rename(at("renamed/db"), at("outside")).unwrap();
        std::os::unix::fs::symlink(at("outside"), at("renamed/db")).unwrap();
        assert!(root.parent_of(&file).is_none());
    }
}
