//! An origin of files, through the page cache of the machine.
//!
//! Price: data read from or written to the origin also takes page cache. The shard uses the origin rarely, and the
//! kernel's read-ahead and write-behind are worth that memory.
//!
//! Invariants
//! - Once an object's file is writable, it stays the same file until it is released.
//! - Every change of the origin begins at the gate (`claim.rs`).
//! - Files that can be opened again ([`Reopen`]) stay open only up to a limit ([`Descriptors`]). There is one for each
//!   file that an application has open, or that has something the origin lacks.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use headpond_base::{Buf, BufMut, Errno, ObjectId, Result, UnixNanos};
use headpond_engine::{Room, Space};
use headpond_format::Stamp;
use rustix::fs::{FallocateFlags, OFlags, SeekFrom, Timespec, Timestamps};
use rustix::io::Errno as E;

use crate::RemovedFile;
use crate::beneath::{Mounts, open_beneath, path_of};
use crate::claim::Gate;
use crate::crowd::Crowd;
use crate::descriptors::{Budget, DescriptorHolder, DescriptorSlot, Descriptors, LeavingDescriptor, Opened};
use crate::directories::{Directories, NameChanges, Syncs};
use crate::file_space::{self, SpaceKind, allocate, from};
use crate::on_behalf::as_user;
use crate::origin::{Remains, Reopen};
use crate::refused::{self, RefusedOfFile};
use crate::removed::RemovedFiles;
use crate::write_out::write_out;

/// The files of a directory tree.
pub struct FileOrigin {
    files: RwLock<HashMap<ObjectId, Arc<Attached>>>,
    open: Descriptors<Attached>,
    closing: ClosingFiles,
    root: Option<Root>,
    removed: RemovedFiles,
    crowd: Crowd,
    directories: Directories,
    synced: AtomicU64,
    /// Writes beside the origin that the flash failed; see [`Origin::pool_failed`].
    on_pool_failed: OnceLock<Box<dyn Fn() -> io::Result<()> + Send + Sync>>,
    /// Writes beside the origin which list of members counts; see [`Origin::members_changed`].
    on_members_changed: OnceLock<Box<dyn Fn(u64) -> io::Result<()> + Send + Sync>>,
    /// Every change goes through it. None for an origin that no other host can take over.
    gate: OnceLock<Arc<Gate>>,
}

struct Attached {
    slot: DescriptorSlot,
    /// Opens the file again. Without it, the file stays open.
    again: Mutex<Option<Arc<dyn Reopen>>>,
    /// The file stays open, even with `again`.
    kept_open: AtomicBool,
    writable: bool,
    /// How many changes were made; `synced` is how many of them a sync covered. Between the two the file stays open:
    /// the origin reports a failed write only once, and only to descriptors that were open then.
    changes: AtomicU64,
    synced: AtomicU64,
    /// Since it was attached, the directory that names the file was synced, or is noted for a sync.
    anchored: AtomicBool,
    /// Name changes to sync with the file.
    names: Arc<NameChanges>,
    /// Locked while the file's mtime is read and put back, or set. Otherwise one thread would put back an mtime that
    /// another's reservation made.
    times: Mutex<()>,
    /// How its file system treats space.
    space: OnceLock<SpaceKind>,
    /// Errors that the engine has not received.
    refused: RefusedOfFile,
    /// Whether writes can also receive the error of earlier writes.
    tells_writers: OnceLock<bool>,
    /// Its last name is gone. After `slot`, so that the file closes first.
    removed: OnceLock<RemovedFile>,
}

/// The objects whose released files are not closed yet, each with its number of such files.
#[derive(Default)]
struct ClosingFiles {
    shared: Arc<(Mutex<HashMap<ObjectId, u32>>, Condvar)>,
}

/// Behind a released file, so that the file closes first.
struct Closed {
    object: ObjectId,
    shared: Arc<(Mutex<HashMap<ObjectId, u32>>, Condvar)>,
}

impl ClosingFiles {
    fn add(&self, object: ObjectId) -> Closed {
        *self.shared.0.lock().unwrap_or_else(PoisonError::into_inner).entry(object).or_default() += 1;
        Closed { object, shared: self.shared.clone() }
    }

    /// Waits, up to [`CLOSE`], until no such file of the object is left.
    fn wait(&self, object: ObjectId) {
        let (objects, closed) = &*self.shared;
        let objects = objects.lock().unwrap_or_else(PoisonError::into_inner);
        drop(closed.wait_timeout_while(objects, CLOSE, |objects| objects.contains_key(&object)));
    }
}

impl Drop for Closed {
    fn drop(&mut self) {
        let mut objects = self.shared.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Occupied(mut count) = objects.entry(self.object) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        drop(objects);
        self.shared.1.notify_all();
    }
}

/// The top of the tree. Its path is read again each time: it may be renamed.
struct Root {
    directory: File,
}

/// The most pieces of one call to the kernel.
const PIECES_MAX: usize = 1024;

/// How many files to close when the process has no descriptor left.
const ROOM: usize = 32;

/// How long a removal waits until the file is closed.
const CLOSE: Duration = Duration::from_secs(10);

/// Bytes of zeros in one write, where the file system cannot make a hole.
const ZEROS: usize = 1 << 20;

/// How often a change that came too late asks once more.
const ASKED_AGAIN: u32 = 3;

impl FileOrigin {
    /// An origin of all attached files. An fsync of a new file makes its directory entry as durable as its file system
    /// does (ext4, xfs and btrfs: fully).
    #[must_use]
    pub fn new() -> Self {
        Self::with(None, Budget::of_process())
    }

    /// An origin below a directory. The first sync of a file after it was attached also syncs the directory that names
    /// it, on every file system.
    ///
    /// # Errors
    /// When the directory's path cannot be read.
    pub fn below(directory: OwnedFd) -> io::Result<Self> {
        Self::below_within(directory, Budget::of_process())
    }

    /// Like [`below`](Self::below), with another budget of descriptors.
    ///
    /// # Errors
    /// Those of [`below`](Self::below).
    pub fn below_within(directory: OwnedFd, budget: Budget) -> io::Result<Self> {
        let directory = File::from(directory);
        path_of(&directory)?;
        Ok(Self::with(Some(Root { directory }), budget))
    }

    fn with(root: Option<Root>, budget: Budget) -> Self {
        Self {
            files: RwLock::default(),
            open: Descriptors::new(budget.files),
            closing: ClosingFiles::default(),
            root,
            removed: RemovedFiles::default(),
            crowd: Crowd::default(),
            directories: Directories::default(),
            synced: AtomicU64::new(0),
            on_pool_failed: OnceLock::new(),
            on_members_changed: OnceLock::new(),
            gate: OnceLock::new(),
        }
    }

    /// Sets the call that durably writes beside the origin that the flash failed. Without it the origin never changes
    /// after the flash has failed. Only the first call counts.
    pub fn when_pool_fails(&self, tell: Box<dyn Fn() -> io::Result<()> + Send + Sync>) {
        let _ = self.on_pool_failed.set(tell);
    }

    /// Sets the call that durably writes beside the origin which generation of the list of members counts. Without it
    /// a pool of several members that loses one makes nothing durable any more. Only the first call counts.
    pub fn when_members_change(&self, tell: Box<dyn Fn(u64) -> io::Result<()> + Send + Sync>) {
        let _ = self.on_members_changed.set(tell);
    }

    /// Sets the gate for all changes from now on. Only the first call counts.
    pub fn guard(&self, gate: Arc<Gate>) {
        let _ = self.gate.set(gate);
    }

    /// Makes a change, if the origin is still ours.
    fn change<T>(&self, change: impl FnOnce() -> Result<T>) -> Result<T> {
        let Some(gate) = self.gate.get() else { return change() };
        gate.pass()?;
        self.doubting(change())
    }

    /// Makes a change as `user`, if the origin is still ours right before it: for one that was let through, and then
    /// waited for a lock.
    fn change_as(&self, user: u32, change: impl Fn() -> Result<()>) -> Result<()> {
        let Some(gate) = self.gate.get() else { return as_user(user, change) };
        for _ in 0..ASKED_AGAIN {
            if let Some(done) = as_user(user, || gate.is_open().then(&change)) {
                return done;
            }
            // As the daemon: a look at the claim is none of the user's.
            gate.pass()?;
        }
        Err(Errno::AGAIN)
    }

    /// Makes a change that may need space. Tries again if it finds none and other changes or closes are about to give
    /// some back.
    fn change_with_space<T>(
        &self,
        file: &File,
        attached: &Attached,
        mut change: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        let in_the_way = attached.space_kind(file).has_others_in_the_way() && !attached.tells_writers(file);
        self.removed.asking_again(|| self.crowd.or_alone(in_the_way, || self.change(&mut change)))
    }

    /// Doubts the claim after an error of the origin, unless a healthy origin gives that error, too.
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

    /// How many syncs of files and directories there were.
    #[must_use]
    pub fn syncs(&self) -> Syncs {
        Syncs { files: self.synced.load(Ordering::Relaxed), directories: self.directories.synced() }
    }

    fn attach_any(&self, object: ObjectId, file: File, again: Option<Arc<dyn Reopen>>) {
        let mode = rustix::fs::fcntl_getfl(&file).map_or(OFlags::RDONLY, |flags| flags & OFlags::RWMODE);
        let writable = mode != OFlags::RDONLY;
        // Names do not change while their file is being opened, so no change is noted between this and the end.
        let names = self.get(object).map_or_else(|_| Arc::default(), |earlier| earlier.names.clone());
        let attached = Arc::new(Attached {
            slot: DescriptorSlot::default(),
            again: Mutex::new(again),
            kept_open: AtomicBool::new(false),
            writable,
            changes: AtomicU64::new(0),
            synced: AtomicU64::new(0),
            anchored: AtomicBool::new(false),
            names,
            times: Mutex::new(()),
            space: OnceLock::new(),
            refused: RefusedOfFile::default(),
            tells_writers: OnceLock::new(),
            removed: OnceLock::new(),
        });
        let open = self.open.put(&attached, file);
        let mut files = self.files.write().unwrap_or_else(PoisonError::into_inner);
        let earlier = files.get(&object).filter(|earlier| !earlier.slot.is_gone());
        if let Some(earlier) = earlier.filter(|earlier| earlier.writable || !writable).cloned() {
            drop(files);
            match attached.again() {
                Some(again) => {
                    earlier.set_again(again);
                    earlier.kept_open.store(false, Ordering::Release);
                }
                None => self.open.hold(&earlier, open, || earlier.kept_open.store(true, Ordering::Release)),
            }
            return;
        }
        let earlier = files.insert(object, attached);
        // A close may take long: not with the lock held.
        drop(files);
        drop(earlier);
    }

    /// The open file of an object.
    fn file(&self, attached: &Arc<Attached>) -> Result<Opened> {
        self.open.get(attached, Errno(E::STALE.raw_os_error()), || {
            let again = attached.again().ok_or(Errno::BADF)?;
            match again.reopen(attached.writable) {
                // The process, or the system, has no descriptor left.
                Err(Errno(23 | 24)) => {
                    self.open.make_room(ROOM);
                    again.reopen(attached.writable)
                }
                result => result,
            }
        })
    }

    /// Like [`file`](Self::file), for a change. None if the file's last name is gone: nobody reads what is written to
    /// it. Such a write counts as done once a sync has made the removal durable.
    fn file_to_change(&self, attached: &Arc<Attached>) -> Result<Option<Opened>> {
        match self.file(attached) {
            Err(_) if attached.slot.is_gone() => Ok(None),
            result => result.map(Some),
        }
    }

    /// Syncs a file. `how` does the file's own part.
    fn sync_file(
        &self,
        object: ObjectId,
        how: impl FnOnce(&RefusedOfFile, &dyn Fn() -> Result<()>) -> Result<()>,
    ) -> Result<()> {
        let attached = self.get(object)?;
        let file = self.file(&attached);
        if attached.slot.is_gone() {
            self.synced.fetch_add(1, Ordering::Relaxed);
            return self.change(|| self.sync_removal(&attached));
        }
        let file = file?;
        self.change(|| {
            let through = attached.changes.load(Ordering::Acquire);
            how(&attached.refused, &|| Ok(file.sync_all()?)).inspect_err(|_| attached.refused.look_anew(&file))?;
            attached.synced.fetch_max(through, Ordering::AcqRel);
            self.synced.fetch_add(1, Ordering::Relaxed);
            self.note_name(&attached, &file)?;
            attached.names.sync()?;
            Ok(())
        })
    }

    /// Makes the removal of the last name of a closed file durable.
    fn sync_removal(&self, attached: &Attached) -> Result<()> {
        if attached.names.sync()? {
            return Ok(());
        }
        // The directory could not be opened when the name was removed.
        let root = self.root.as_ref().ok_or(Errno::BADF)?;
        rustix::fs::syncfs(&root.directory).map_err(from)
    }

    /// Notes that the directory that names a file needs a sync, if the file has a name.
    fn note_name(&self, attached: &Attached, file: &File) -> Result<()> {
        let Some(root) = &self.root else { return Ok(()) };
        if attached.anchored.load(Ordering::Relaxed) || file.metadata().is_ok_and(|file| file.nlink() == 0) {
            return Ok(());
        }
        let Some(parent) = root.parent_of(file) else {
            // It was just renamed, or has no path: sync the whole file system.
            return rustix::fs::syncfs(&root.directory).map_err(from);
        };
        self.directories.changed(parent, &attached.names)?;
        attached.anchored.store(true, Ordering::Relaxed);
        Ok(())
    }
}

impl DescriptorHolder for Attached {
    fn slot(&self) -> &DescriptorSlot {
        &self.slot
    }

    fn can_reopen(&self) -> bool {
        self.again().is_some()
            && !self.kept_open.load(Ordering::Acquire)
            && self.synced.load(Ordering::Acquire) >= self.changes.load(Ordering::Acquire)
    }
}

impl Attached {
    fn read(file: &File, offset: u64, len: usize) -> Result<Buf> {
        let mut buf = BufMut::zeroed(len);
        let mut got = 0;
        while got < len {
            match file.read_at(&mut buf[got..], offset + got as u64) {
                Ok(0) => break,
                Ok(more) => got += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        buf.truncate(got);
        Ok(buf.freeze())
    }

    /// Notes that its bytes are about to change. Call this before you ask for its descriptor: from now on no thread
    /// closes that.
    fn will_change(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    fn again(&self) -> Option<Arc<dyn Reopen>> {
        self.again.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_again(&self, again: Arc<dyn Reopen>) {
        let earlier = self.again.lock().unwrap_or_else(PoisonError::into_inner).replace(again);
        // Not with the lock held: the drop may free much.
        drop(earlier);
    }

    fn write(file: &File, offset: u64, data: &[Buf]) -> Result<()> {
        let mut slices: Vec<_> = data.iter().map(|piece| IoSlice::new(piece)).collect();
        let mut rest = &mut slices[..];
        let mut at = offset;
        IoSlice::advance_slices(&mut rest, 0);
        while !rest.is_empty() {
            let now = &rest[..rest.len().min(PIECES_MAX)];
            match rustix::io::pwritev(file, now, at) {
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

    /// Asks `may_change` before each piece of zeros that it writes.
    fn zero(file: &File, offset: u64, len: u64, keep_space: bool, may_change: impl Fn() -> Result<()>) -> Result<()> {
        let size = file.metadata()?.len();
        let len = len.min(size.saturating_sub(offset));
        if len == 0 {
            return Ok(());
        }
        let mut ways = [FallocateFlags::PUNCH_HOLE, FallocateFlags::ZERO_RANGE];
        if keep_space {
            ways.reverse();
        }
        for how in ways {
            match allocate(file, how | FallocateFlags::KEEP_SIZE, offset, len) {
                Err(Errno::OPNOTSUPP) => {}
                Ok(()) if keep_space && how == FallocateFlags::PUNCH_HOLE => {
                    // No call does both at once. A later write without space gets the error.
                    let _ = allocate(file, FallocateFlags::KEEP_SIZE, offset, len);
                    return Ok(());
                }
                result => return result,
            }
        }
        let zeros = BufMut::zeroed(ZEROS);
        let (mut at, end) = (offset, offset + len);
        while at < end {
            let step = usize::try_from(end - at).unwrap_or(ZEROS).min(ZEROS);
            may_change()?;
            file.write_all_at(&zeros[..step], at)?;
            at += step as u64;
        }
        Ok(())
    }

    fn space_kind(&self, file: &File) -> SpaceKind {
        *self.space.get_or_init(|| SpaceKind::of(file))
    }

    fn tells_writers(&self, file: &File) -> bool {
        *self.tells_writers.get_or_init(|| refused::tells_writers(file))
    }

    /// Call it with `times` locked.
    fn reserve(&self, file: &File, ranges: &[(u64, u64)], user: u32, insists: bool) -> Result<Space> {
        let kind = self.space_kind(file);
        let before = Self::found(file)?;
        let (asked, result) = as_user(user, || file_space::reserve(file, kind, ranges, insists));
        if !asked || Self::found(file)? == before {
            return result;
        }
        // File systems take the reservation for a change of the file. Without the old time, the next mount would find
        // a file that others seem to have changed.
        let put_back = set_mtime(file, before.mtime);
        let space = result?;
        put_back?;
        Ok(Space { stamp: Some(Self::found(file)?), ..space })
    }

    fn found(file: &File) -> Result<Stamp> {
        let metadata = file.metadata()?;
        Ok(Stamp {
            size: metadata.len(),
            mtime: unix(metadata.mtime(), metadata.mtime_nsec()),
            ctime: unix(metadata.ctime(), metadata.ctime_nsec()),
        })
    }
}

impl Root {
    /// The directory that names a file now. Looked up from the top of the tree itself, never through a mount: the
    /// door's own mount may lie on top of this directory.
    fn parent_of(&self, file: &File) -> Option<OwnedFd> {
        let path = path_of(file).ok()?;
        let below = path.strip_prefix(path_of(&self.directory).ok()?).ok()?.parent()?;
        open_beneath(&self.directory, below, OFlags::RDONLY | OFlags::DIRECTORY, Mounts::Refused).ok()
    }
}

impl Default for FileOrigin {
    fn default() -> Self {
        Self::new()
    }
}

impl crate::Origin for FileOrigin {
    fn read(&self, object: ObjectId, offset: u64, len: usize) -> Result<Buf> {
        let file = self.file(&self.get(object)?)?;
        self.doubting(Attached::read(&file, offset, len))
    }

    fn write(&self, object: ObjectId, offset: u64, data: &[Buf], user: u32, written_out: bool) -> Result<()> {
        let attached = self.get(object)?;
        attached.will_change();
        let Some(file) = self.file_to_change(&attached)? else { return Ok(()) };
        let write = || {
            self.change_as(user, || Attached::write(&file, offset, data))?;
            if written_out {
                let bytes = data.iter().map(|piece| piece.len() as u64).sum();
                write_out(&file, offset, bytes)?;
            }
            Ok(())
        };
        let told = written_out || attached.tells_writers(&file);
        self.change_with_space(&file, &attached, || if told { attached.refused.write(write) } else { write() })
    }

    fn zero(&self, object: ObjectId, offset: u64, len: u64, keep_space: bool) -> Result<()> {
        let attached = self.get(object)?;
        attached.will_change();
        let Some(file) = self.file_to_change(&attached)? else { return Ok(()) };
        self.change_with_space(&file, &attached, || {
            Attached::zero(&file, offset, len, keep_space, || self.may_change())
        })
    }

    fn resize(&self, object: ObjectId, size: u64) -> Result<()> {
        let attached = self.get(object)?;
        attached.will_change();
        let Some(file) = self.file_to_change(&attached)? else { return Ok(()) };
        self.change_with_space(&file, &attached, || attached.refused.resize(&file, size))
    }

    fn reserve(&self, object: ObjectId, ranges: &[(u64, u64)], user: u32, insists: bool) -> Result<Space> {
        let attached = self.get(object)?;
        let Some(file) = self.file_to_change(&attached)? else {
            return Ok(Space::default());
        };
        self.change_with_space(&file, &attached, || {
            let _times = attached.times.lock().unwrap_or_else(PoisonError::into_inner);
            self.may_change()?;
            attached.reserve(&file, ranges, user, insists)
        })
    }

    fn free(&self, object: ObjectId, settles: bool) -> Result<Room> {
        let file = self.file(&self.get(object)?)?;
        self.doubting(file_space::free(&file, settles))
    }

    fn sync(&self, object: ObjectId) -> Result<()> {
        self.sync_file(object, |refused, sync| refused.sync(sync))
    }

    fn sync_aside(&self, object: ObjectId) -> Result<()> {
        self.sync_file(object, |refused, sync| refused.sync_aside(sync))
    }

    fn stamp(&self, object: ObjectId, mtime: UnixNanos) -> Result<Stamp> {
        let attached = self.get(object)?;
        let Some(file) = self.file_to_change(&attached)? else {
            return Ok(Stamp { size: 0, mtime, ctime: mtime });
        };
        self.change(|| {
            let _times = attached.times.lock().unwrap_or_else(PoisonError::into_inner);
            self.may_change()?;
            set_mtime(&file, mtime)?;
            Attached::found(&file)
        })
    }

    fn pool_failed(&self) -> Result<()> {
        let tell = self.on_pool_failed.get().ok_or(Errno::IO)?;
        self.change(|| tell().map_err(Errno::from))
    }

    fn members_changed(&self, generation: u64) -> Result<()> {
        let tell = self.on_members_changed.get().ok_or(Errno::IO)?;
        let told = self.change(|| tell(generation).map_err(Errno::from));
        // For good, unlike any error of a file system: the engine gives up then.
        told.map_err(|errno| if self.is_barred() { Errno::SHUTDOWN } else { errno })
    }

    fn may_change(&self) -> Result<()> {
        self.gate.get().map_or(Ok(()), |gate| gate.pass())
    }

    fn is_barred(&self) -> bool {
        self.gate.get().is_some_and(|gate| gate.is_lost())
    }

    fn seek(&self, object: ObjectId, offset: u64, data: bool) -> Result<u64> {
        let file = self.file(&self.get(object)?)?;
        // Moves the file's own position. No code here uses it.
        let from_here = if data { SeekFrom::Data(offset) } else { SeekFrom::Hole(offset) };
        rustix::fs::seek(&*file, from_here).map_err(from)
    }

    fn attach(&self, object: ObjectId, file: File) {
        self.attach_any(object, file, None);
    }

    fn attach_lasting(&self, object: ObjectId, file: File, again: Arc<dyn Reopen>) {
        self.attach_any(object, file, Some(again));
    }

    fn keep_open(&self, object: ObjectId) {
        let Ok(attached) = self.get(object) else { return };
        if attached.again().is_none() || attached.kept_open.load(Ordering::Acquire) {
            return;
        }
        // If the file cannot be opened now, the next use tries again.
        if let Ok(open) = self.file(&attached) {
            self.open.hold(&attached, open, || attached.kept_open.store(true, Ordering::Release));
        }
    }

    fn reopened_by(&self, object: ObjectId, again: Arc<dyn Reopen>) {
        if let Ok(attached) = self.get(object) {
            attached.set_again(again);
        }
    }

    fn leaving(&self, object: ObjectId) -> Option<LeavingDescriptor> {
        self.closing.wait(object);
        let attached = self.get(object).ok()?;
        if attached.again().is_some() { LeavingDescriptor::of(attached) } else { None }
    }

    fn release(&self, object: ObjectId) -> Option<Remains> {
        let released = self.files.write().unwrap_or_else(PoisonError::into_inner).remove(&object)?;
        // In this order: the file closes, then `closing` reports it. The file may be removed before it is closed.
        let closing = self.closing.add(object);
        Some(Box::new((released, closing, self.removed.add_closing())))
    }

    fn name_changed(&self, object: ObjectId, directory: OwnedFd) {
        // A released file lacks nothing here: the next attach finds what its names lack. A directory that cannot be
        // examined cannot be synced, either.
        if let Ok(attached) = self.get(object) {
            let _ = self.directories.changed(directory, &attached.names);
        }
    }

    fn removed(&self, object: Option<ObjectId>) -> Option<RemovedFile> {
        let removed = self.removed.add();
        if let Some(attached) = object.and_then(|object| self.get(object).ok()) {
            let _ = attached.removed.set(removed.clone());
        }
        Some(removed)
    }
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
mod tests;
