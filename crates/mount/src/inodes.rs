//! The inodes that the kernel knows, each with a path to the origin's file.
//!
//! Invariants
//! - An inode in the table has a path to its file, open (`O_PATH`) or to be opened again by its place
//!   ([`places`](crate::places)). As many stay open as there is room for; those of files whose last name is gone
//!   and that are used all the same stay open to the end, and the root.
//! - A node id *is* the inode number that applications see: fuser has one field for both. The
//!   origin's root is node 1, whatever its number. Files on other file systems mounted below the
//!   origin get numbers from the top half, so that two files never share one.
//! - A number that the origin has given to another file is another inode with another generation, by which the kernel
//!   tells the two; lookups of both are counted together, as it gives them back by the number.
//! - Where the origin keeps no birth times, a number alone does not tell a file from the next one that gets it. What is
//!   held of the file does: before a name is believed to be of a file that is open here, it is asked whether that is gone.
//!   Nothing else makes a new inode of a number: applications that use the earlier one lose it.
//! - The kernel's lookups are counted; at zero, when nothing else holds it, the inode leaves the table and its
//!   descriptor is closed.
//!
//! Memory: some 400 bytes for each inode that the kernel remembers, and its name; a descriptor, which keeps the origin's
//! inode in the kernel's memory, only for as many as may be open.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fmt;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, Weak};

use headpond_base::UnixNanos;
use headpond_shard::{Holder, Opened, Removed, Slot};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawMode, Statx, StatxFlags};
use rustix::io::Errno;
use rustix::path::Arg;

use crate::kernel_pages::KernelPages;
use crate::known::{FileKey, Known};
use crate::places::{Home, Place};
use crate::times;
use crate::unsynced::{Forgotten, Unsynced};

/// The kernel's name for the mount's root directory.
pub(crate) const ROOT: u64 = 1;

/// Numbers from here up are the mount's own: no file system that is a fit origin uses them.
const FOREIGN: u64 = 1 << 63;

/// Numbers from here up are those of [`panel`](crate::panel): 2^63 files on other file systems would have
/// to be known before one of them had such a number.
pub(crate) const PANEL: u64 = u64::MAX - 0xffff;

/// What a descriptor or a name in a directory shows of a file. All fields that are needed
/// anywhere, in one system call.
pub(crate) fn stat(directory: impl AsFd, name: impl rustix::path::Arg) -> Result<Statx, Errno> {
    rustix::fs::statx(
        directory,
        name,
        AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT,
        StatxFlags::BASIC_STATS | StatxFlags::BTIME,
    )
}

/// The same of an open file, with a word for how fresh it is to be.
fn look(open: &Opened, how: AtFlags) -> Result<Statx, Errno> {
    rustix::fs::statx(open, c"", AtFlags::EMPTY_PATH | how, StatxFlags::BASIC_STATS | StatxFlags::BTIME)
}

/// The birth time of a file where the origin keeps none.
const NO_BIRTH: UnixNanos = UnixNanos(0);

/// The file's name under which the engine knows it.
pub(crate) fn file_key(stat: &Statx) -> FileKey {
    let birth =
        if stat.stx_mask & StatxFlags::BTIME.bits() != 0 { times::from_statx(stat.stx_btime) } else { NO_BIRTH };
    FileKey { inode: stat.stx_ino, birth }
}

/// The kind of file in a mode.
pub(crate) fn kind_of(stat: &Statx) -> FileType {
    FileType::from_raw_mode(RawMode::from(stat.stx_mode))
}

/// A file system of the machine.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct DeviceNumber {
    major: u32,
    minor: u32,
}

impl DeviceNumber {
    pub(crate) fn of(stat: &Statx) -> Self {
        Self { major: stat.stx_dev_major, minor: stat.stx_dev_minor }
    }
}

/// What is known of the bits that a write takes away: set-user-id, set-group-id, and the
/// capabilities of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Privileges {
    /// Not looked at since they may have changed.
    Unknown = 0,
    /// There are none: writes need not look.
    None = 1,
}

/// A file, directory or other that the kernel knows.
pub(crate) struct Inode {
    /// Its node id, and its number as applications see it.
    pub(crate) node: u64,
    /// Its name for the engine.
    pub(crate) key: FileKey,
    /// What it is; never changes.
    pub(crate) kind: FileType,
    /// A regular file on the origin's own device: its content goes through the engine.
    pub(crate) managed: bool,
    /// What the kernel may keep of its bytes.
    pub(crate) pages: KernelPages,
    /// Changed at the origin in ways that the log does not have, since the origin's last fsync.
    pub(crate) unsynced: Unsynced,
    /// Tells it from other files that had its number.
    pub(crate) generation: u64,
    /// The file system that it is on.
    pub(crate) device: DeviceNumber,
    pub(crate) slot: Slot,
    /// Handles by which it may be written.
    pub(crate) writers: AtomicU32,
    /// What keeps it in the table besides the kernel.
    pub(crate) holds: AtomicU64,
    pub(crate) home: Weak<Home>,
    me: Weak<Self>,
    place: Mutex<Option<Place>>,
    /// What was last seen of it, if it is gone.
    last_seen: OnceLock<Box<Statx>>,
    lookups: AtomicU64,
    privileges: AtomicU8,
    /// It is gone from the origin, which has given its number to another file.
    replaced: AtomicBool,
    /// The engine may know an earlier file by its name.
    newcomer: AtomicBool,
    /// It has no name, and what the engine alone had of it is gone: the origin's bytes are older.
    lost: AtomicBool,
    /// Its place did not lead to it when it was to be opened.
    astray: AtomicBool,
    known: RwLock<Option<Arc<Known>>>,
    /// Its last name is gone. Behind the path, which is closed first.
    removed: OnceLock<Removed>,
}

// What the head of this file says of memory.
const _: () = assert!(size_of::<Inode>() <= 360);

/// A name of an open file in `/proc/self/fd`, for as long as this is there.
pub(crate) struct ProcPath {
    name: String,
    _open: Opened,
}

impl Arg for ProcPath {
    fn as_str(&self) -> Result<&str, Errno> {
        Ok(&self.name)
    }

    fn to_string_lossy(&self) -> std::borrow::Cow<'_, str> {
        self.name.as_str().into()
    }

    fn as_cow_c_str(&self) -> Result<std::borrow::Cow<'_, std::ffi::CStr>, Errno> {
        self.name.as_cow_c_str()
    }

    fn into_c_str<'b>(self) -> Result<std::borrow::Cow<'b, std::ffi::CStr>, Errno>
    where
        Self: 'b,
    {
        // The descriptor would not be held any more.
        Err(Errno::INVAL)
    }

    fn into_with_c_str<T, F>(self, f: F) -> Result<T, Errno>
    where
        F: FnOnce(&std::ffi::CStr) -> Result<T, Errno>,
    {
        self.name.as_str().into_with_c_str(f)
    }
}

/// What is known of a file before the kernel asks for it.
#[derive(Default)]
struct Before {
    managed: bool,
    known: Option<Arc<Known>>,
    unsynced: Unsynced,
    newcomer: bool,
}

impl Inode {
    fn new(home: &Arc<Home>, node: u64, generation: u64, found: &Statx, before: Before) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            node,
            key: file_key(found),
            kind: kind_of(found),
            managed: before.managed,
            pages: KernelPages::default(),
            unsynced: before.unsynced,
            generation,
            device: DeviceNumber::of(found),
            slot: Slot::default(),
            writers: AtomicU32::new(0),
            holds: AtomicU64::new(0),
            home: Arc::downgrade(home),
            me: me.clone(),
            place: Mutex::new(None),
            last_seen: OnceLock::new(),
            lookups: AtomicU64::new(1),
            privileges: AtomicU8::new(Privileges::Unknown as u8),
            replaced: AtomicBool::new(false),
            newcomer: AtomicBool::new(before.newcomer),
            lost: AtomicBool::new(false),
            astray: AtomicBool::new(false),
            known: RwLock::new(before.known),
            removed: OnceLock::new(),
        })
    }

    /// Its path: a descriptor that only names it, for as long as the result is kept.
    pub(crate) fn path(&self) -> Result<Opened, Errno> {
        match self.slot.get() {
            Some(open) => Ok(open),
            None => {
                let reopened = self.home.upgrade().ok_or(Errno::STALE)?.reopen(&self.me()?);
                if reopened.as_ref().is_err_and(|error| *error == Errno::STALE) {
                    self.astray.store(true, Ordering::Release);
                }
                reopened
            }
        }
    }

    /// Whether its place did not lead to it, for the first who asks: found by another name, it gets that one.
    pub(crate) fn take_astray(&self) -> bool {
        self.astray.load(Ordering::Acquire) && self.astray.swap(false, Ordering::AcqRel)
    }

    /// The inode as it is in the table.
    pub(crate) fn me(&self) -> Result<Arc<Self>, Errno> {
        self.me.upgrade().ok_or(Errno::STALE)
    }

    /// What the origin says of it now; what it said last of a file that is gone.
    pub(crate) fn stat(&self) -> Result<Statx, Errno> {
        self.look(AtFlags::empty())
    }

    /// The same without asking a server: as this machine has it. The origin is this mount's alone, so what is changed of
    /// it is changed from here.
    pub(crate) fn stat_as_held(&self) -> Result<Statx, Errno> {
        self.look(AtFlags::STATX_DONT_SYNC)
    }

    fn look(&self, how: AtFlags) -> Result<Statx, Errno> {
        match self.path() {
            Ok(path) => look(&path, how),
            Err(error) => self.last_seen.get().filter(|_| self.is_gone()).map(|found| **found).ok_or(error),
        }
    }

    /// Its name in `/proc/self/fd`: through it, calls that take only paths reach the file
    /// itself, wherever it has been moved, and even if it is a symbolic link.
    pub(crate) fn proc_path(&self) -> Result<ProcPath, Errno> {
        let open = self.path()?;
        Ok(ProcPath { name: format!("/proc/self/fd/{}", open.as_raw_fd()), _open: open })
    }

    /// Opens the origin's file itself.
    pub(crate) fn open(&self, flags: OFlags) -> Result<OwnedFd, Errno> {
        let flags = (flags - OFlags::NOFOLLOW) | OFlags::CLOEXEC;
        let home = self.home.upgrade().ok_or(Errno::STALE)?;
        home.with_room(|| rustix::fs::open(self.proc_path()?, flags, Mode::empty()))
    }

    /// Its last name went while nothing used it: there is no such file any more.
    pub(crate) fn is_gone(&self) -> bool {
        self.slot.is_gone()
    }

    /// Its last name is about to go: what is to be said of it from then on.
    pub(crate) fn set_last_seen(&self, found: &Statx) {
        let mut found = Box::new(*found);
        found.stx_nlink = 0;
        let _ = self.last_seen.set(found);
    }

    /// Whether this is what was found.
    fn is(&self, found: &Statx) -> bool {
        self.key == file_key(found) && !self.is_gone() && !self.is_replaced()
    }

    /// Whether what was found by a name has only the number of this one, which is gone. It costs a system call, and a
    /// question to a server where the two do not look the same. One that is not open cannot be asked.
    fn lost_its_number_to(&self, found: &Statx) -> bool {
        let Some(open) = self.slot.get() else { return false };
        // One and the same file is looked at twice: this machine has one set of attributes for it.
        let same = |held: Statx| {
            let of = |stat: &Statx| (times::from_statx(stat.stx_ctime), stat.stx_nlink, stat.stx_size, stat.stx_mode);
            of(&held) == of(found)
        };
        if look(&open, AtFlags::STATX_DONT_SYNC).is_ok_and(same) {
            return false;
        }
        match look(&open, AtFlags::STATX_FORCE_SYNC) {
            // It has no name, and what was found has one.
            Ok(held) => held.stx_nlink == 0 && found.stx_nlink > 0,
            Err(error) => error == Errno::STALE,
        }
    }

    /// Whether that is known: it is gone, and its number is another file's.
    pub(crate) fn is_replaced(&self) -> bool {
        self.replaced.load(Ordering::Acquire)
    }

    /// It is gone, and its number is another file's.
    pub(crate) fn set_replaced(&self) {
        self.replaced.store(true, Ordering::Release);
    }

    /// Whether the engine, when it opens it for the first time, is to take it for a new file.
    pub(crate) fn is_newcomer(&self) -> bool {
        self.newcomer.load(Ordering::Acquire)
    }

    /// The engine knows it by now, and not the earlier one.
    pub(crate) fn set_settled(&self) {
        self.newcomer.store(false, Ordering::Release);
    }

    /// Whether it cannot be opened any more: it has no name, and what the engine alone had of it is gone.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// That is so from now on. To be called in order with the engine's answers.
    pub(crate) fn set_lost(&self) {
        self.lost.store(true, Ordering::Release);
    }

    /// How many lookups the kernel has.
    pub(crate) fn lookups(&self) -> u64 {
        self.lookups.load(Ordering::Acquire)
    }

    pub(crate) fn place_slot(&self) -> MutexGuard<'_, Option<Place>> {
        // Each change is one assignment.
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// There are no privileges that a write would have to take away.
    pub(crate) fn has_no_privileges(&self) -> bool {
        self.privileges() == Privileges::None
    }

    /// Changed at the origin alone since the origin was last synced.
    pub(crate) fn is_unsynced(&self) -> bool {
        self.unsynced.is_so()
    }

    /// What applications see of its size and times, where the engine knows better than the
    /// origin.
    pub(crate) fn known(&self) -> Option<Arc<Known>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The engine knows it from now on.
    pub(crate) fn set_known(&self, known: &Arc<Known>) {
        let mut slot = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if !slot.as_ref().is_some_and(|old| Arc::ptr_eq(old, known)) {
            *slot = Some(known.clone());
        }
    }

    /// The kernel forgot it: what is known of it is kept elsewhere.
    pub(crate) fn forget_known(&self) {
        let mut slot = self.known.write().unwrap_or_else(PoisonError::into_inner);
        // Looked up again meanwhile: who looks it up later than this finds nothing here, and recalls it.
        let known = if self.lookups() == 0 { slot.take() } else { None };
        drop(slot);
        drop(known);
    }

    /// Its last name is gone.
    pub(crate) fn set_removed(&self, removed: Removed) {
        let _ = self.removed.set(removed);
    }

    /// That its last name is gone, if it is.
    pub(crate) fn removed(&self) -> Option<&Removed> {
        self.removed.get()
    }

    pub(crate) fn privileges(&self) -> Privileges {
        match self.privileges.load(Ordering::Acquire) {
            1 => Privileges::None,
            _ => Privileges::Unknown,
        }
    }

    pub(crate) fn set_privileges(&self, privileges: Privileges) {
        self.privileges.store(privileges as u8, Ordering::Release);
    }
}

impl Holder for Inode {
    fn slot(&self) -> &Slot {
        &self.slot
    }

    fn can_reopen(&self) -> bool {
        self.place_slot().is_some()
    }
}

impl fmt::Debug for Inode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Inode({}, {:?})", self.node, self.kind)
    }
}

#[derive(Default)]
pub(crate) struct Table {
    nodes: HashMap<u64, Arc<Inode>>,
    /// Node ids of files on other file systems.
    foreign: HashMap<(DeviceNumber, u64), u64>,
    next_foreign: u64,
    /// Files that the kernel forgot, and that were not synced.
    unsynced: Forgotten,
}

impl Table {
    /// Takes an inode out, unless its number is another's by now.
    pub(crate) fn remove(&mut self, inode: &Arc<Inode>) {
        if self.nodes.get(&inode.node).is_some_and(|there| Arc::ptr_eq(there, inode)) {
            self.nodes.remove(&inode.node);
            // One without a name never comes back.
            if inode.managed && inode.removed().is_none() && !inode.is_gone() && inode.is_unsynced() {
                self.unsynced.keep(inode.key);
            }
            if inode.node >= FOREIGN {
                self.foreign.remove(&(inode.device, inode.key.inode));
            }
        }
    }
}

impl Drop for Inodes {
    /// The kernel is gone, and says of no inode any more that it forgets it.
    fn drop(&mut self) {
        let mut table = self.home.table.write().unwrap_or_else(PoisonError::into_inner);
        let unheld = |inode: &mut Arc<Inode>| {
            inode.lookups.store(0, Ordering::Release);
            inode.holds.load(Ordering::Acquire) == 0
        };
        let all = table.nodes.extract_if(|_, inode| unheld(inode)).map(|(_, inode)| inode);
        let forgotten: Vec<_> = all.collect();
        // Each lets go of its directory, which takes the lock.
        drop(table);
        drop(forgotten);
    }
}

/// All inodes that the kernel knows.
pub(crate) struct Inodes {
    root: Arc<Inode>,
    root_inode: u64,
    device: DeviceNumber,
    pub(crate) home: Arc<Home>,
}

impl Inodes {
    /// A table with only the origin's root, of whose paths so many stay open.
    pub(crate) fn new(root: OwnedFd, descriptors: usize) -> Result<Self, Errno> {
        let found = stat(&root, c"")?;
        let home = Arc::new(Home::new(descriptors));
        let inode = Inode::new(&home, ROOT, 0, &found, Before::default());
        // Without a place, so that it stays open.
        home.open.put(&inode, root.into());
        Ok(Self { root: inode, root_inode: found.stx_ino, device: DeviceNumber::of(&found), home })
    }

    /// The mount's root.
    pub(crate) fn root(&self) -> &Arc<Inode> {
        &self.root
    }

    /// The inode of a node id that the kernel holds. What concerns the panel's nodes and comes here is a
    /// change, as whatever else there is to be done with them is done before.
    pub(crate) fn get(&self, node: u64) -> Result<Arc<Inode>, Errno> {
        if node == ROOT {
            return Ok(self.root.clone());
        }
        if node >= PANEL {
            return Err(Errno::ROFS);
        }
        let table = self.home.table.read().unwrap_or_else(PoisonError::into_inner);
        table.nodes.get(&node).cloned().ok_or(Errno::STALE)
    }

    /// A node that the kernel knows by its number alone: from a file handle, of which it has forgotten the inode. With one
    /// more lookup.
    pub(crate) fn by_number(&self, node: u64) -> Result<Arc<Inode>, Errno> {
        // Counted under the lock, so that it is not let go meanwhile.
        let table = self.home.table.read().unwrap_or_else(PoisonError::into_inner);
        if node == ROOT {
            return Ok(self.root.clone());
        }
        let inode = table.nodes.get(&node).filter(|inode| !inode.is_gone()).ok_or(Errno::STALE)?;
        inode.lookups.fetch_add(1, Ordering::Relaxed);
        Ok(inode.clone())
    }

    /// The inode of a file that was just looked at, if the kernel holds it. Counts nothing.
    pub(crate) fn find(&self, found: &Statx) -> Option<Arc<Inode>> {
        let table = self.home.table.read().unwrap_or_else(PoisonError::into_inner);
        let node = self.node_of(&table, found)?;
        if node == ROOT {
            return Some(self.root.clone());
        }
        table.nodes.get(&node).filter(|inode| inode.is(found)).cloned()
    }

    /// The inode that is held by the number of what a name has just shown, if it turns out to be gone: where nothing but
    /// the number names it.
    pub(crate) fn replaced_by(&self, found: &Statx) -> Option<Arc<Inode>> {
        if file_key(found).birth != NO_BIRTH {
            return None;
        }
        // Asked with no lock held: a server may have to answer.
        self.find(found).filter(|inode| inode.node != ROOT && inode.lost_its_number_to(found))
    }

    /// The inode of a file that was just looked at, with one more lookup by the kernel, if the
    /// kernel holds it already.
    pub(crate) fn look_up(&self, found: &Statx) -> Option<Arc<Inode>> {
        // Counting under the read lock is enough: forgetting takes the write lock.
        let table = self.home.table.read().unwrap_or_else(PoisonError::into_inner);
        let node = self.node_of(&table, found)?;
        if node == ROOT {
            return Some(self.root.clone());
        }
        let inode = table.nodes.get(&node).filter(|inode| inode.is(found))?;
        inode.lookups.fetch_add(1, Ordering::Relaxed);
        Some(inode.clone())
    }

    /// Takes in a file that was found by this name, by its `O_PATH` descriptor, with one lookup by the kernel.
    pub(crate) fn take_in(
        &self,
        path: OwnedFd,
        found: &Statx,
        place: (&Inode, &OsStr),
        known: impl Fn(FileKey) -> Option<Arc<Known>>,
    ) -> Result<Arc<Inode>, Errno> {
        let (parent, name) = (place.0.me()?, place.1);
        let (inode, replaced) = self.enter(found, Some(&known));
        // Behind the table's lock: each of these may close something.
        drop(replaced);
        inode.find_by(&parent, name);
        self.home.open.put(&inode, path.into());
        Ok(inode)
    }

    /// Takes in a file that has no name, with one lookup. It stays open, as nothing finds it, and goes straight to the
    /// origin.
    pub(crate) fn take_in_nameless(&self, path: OwnedFd, found: &Statx) -> Arc<Inode> {
        let (inode, replaced) = self.enter(found, None);
        drop(replaced);
        self.home.open.put(&inode, path.into());
        inode
    }

    /// The inode of what was found, with one more lookup; and the one that had its number before. Its content is the
    /// engine's if that can be `known`.
    fn enter(
        &self,
        found: &Statx,
        known: Option<&dyn Fn(FileKey) -> Option<Arc<Known>>>,
    ) -> (Arc<Inode>, Option<Arc<Inode>>) {
        let regular = kind_of(found) == FileType::RegularFile && DeviceNumber::of(found) == self.device;
        let mut table = self.home.table.write().unwrap_or_else(PoisonError::into_inner);
        let node = self.node_of(&table, found).unwrap_or_else(|| {
            let node = FOREIGN + table.next_foreign;
            assert!(node < PANEL, "2^63 files were never known");
            table.next_foreign += 1;
            table.foreign.insert((DeviceNumber::of(found), found.stx_ino), node);
            node
        });
        if node == ROOT {
            return (self.root.clone(), None);
        }
        let (lookups, generation, newcomer) = match table.nodes.get(&node) {
            Some(inode) if inode.is(found) => {
                // Another thread was faster.
                inode.lookups.fetch_add(1, Ordering::Relaxed);
                return (inode.clone(), None);
            }
            // The number is another file's by now.
            Some(inode) => {
                let newcomer = inode.key == file_key(found);
                (inode.lookups(), next_generation(inode.generation, found), newcomer)
            }
            None => (0, generation_of(found), false),
        };
        let key = file_key(found);
        let known = known.filter(|_| regular);
        let before = Before {
            managed: known.is_some(),
            known: known.and_then(|known| known(key)),
            unsynced: table.unsynced.taken_in(key),
            newcomer,
        };
        let inode = Inode::new(&self.home, node, generation, found, before);
        inode.lookups.store(lookups + 1, Ordering::Relaxed);
        let replaced = table.nodes.insert(node, inode.clone());
        (inode, replaced)
    }

    /// The kernel gave back `count` lookups. Returns the inode if these were the last: it is in the table until it was
    /// [remembered](Home::remember).
    pub(crate) fn forget(&self, node: u64, count: u64) -> Option<Arc<Inode>> {
        if node == ROOT || node >= PANEL {
            return None;
        }
        let mut table = self.home.table.write().unwrap_or_else(PoisonError::into_inner);
        let inode = table.nodes.get(&node)?.clone();
        let left = inode.lookups().saturating_sub(count);
        inode.lookups.store(left, Ordering::Release);
        if left > 0 {
            return None;
        }
        if inode.is_gone() {
            table.remove(&inode);
        }
        Some(inode)
    }

    /// Whether a file is on the origin's own device.
    pub(crate) fn same_device(&self, found: &Statx) -> bool {
        DeviceNumber::of(found) == self.device
    }

    /// The node id of a file, if it has one or needs none of its own.
    fn node_of(&self, table: &Table, found: &Statx) -> Option<u64> {
        let device = DeviceNumber::of(found);
        if device == self.device && found.stx_ino == self.root_inode {
            return Some(ROOT);
        }
        if device == self.device && found.stx_ino > ROOT && found.stx_ino < FOREIGN {
            return Some(found.stx_ino);
        }
        table.foreign.get(&(device, found.stx_ino)).copied()
    }
}

/// What tells a file from others that had its number, for the kernel: it compares 32 bits. The same for the same file
/// after a remount, where the origin has birth times.
fn generation_of(found: &Statx) -> u64 {
    let birth = file_key(found).birth.0.cast_unsigned();
    (birth ^ birth >> 32) & u64::from(u32::MAX)
}

fn next_generation(earlier: u64, found: &Statx) -> u64 {
    let own = generation_of(found);
    // Without birth times all have the same of their own.
    if own == earlier || file_key(found).birth == NO_BIRTH { (earlier + 1) & u64::from(u32::MAX) } else { own }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::places::open_path;

    struct Origin {
        directory: tempfile::TempDir,
        inodes: Inodes,
    }

    impl Origin {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let root = rustix::fs::open(directory.path(), OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
            Self { inodes: Inodes::new(root, 16).unwrap(), directory }
        }

        fn make(&self, name: &str, kind: FileType) {
            let path = self.directory.path().join(name);
            if kind == FileType::Directory { fs::create_dir(path).unwrap() } else { fs::write(path, name).unwrap() }
        }

        /// What a name shows at an origin without birth times, which gives every file the same number.
        fn see(&self, name: &str) -> Statx {
            let mut found = stat(self.inodes.root().path().unwrap(), name).unwrap();
            found.stx_mask &= !StatxFlags::BTIME.bits();
            found.stx_ino = 77;
            found
        }

        fn take_in(&self, name: &str) -> Arc<Inode> {
            let path = open_path(&self.inodes.root().path().unwrap(), OsStr::new(name)).unwrap();
            self.inodes.take_in(path, &self.see(name), (self.inodes.root(), OsStr::new(name)), |_| None).unwrap()
        }
    }

    #[test]
    fn a_number_that_is_given_to_another_is_noticed_where_there_are_no_birth_times() {
        for kind in [FileType::Directory, FileType::RegularFile] {
            let origin = Origin::new();
            let mut generations = Vec::new();
            let mut held = Vec::new();
            for round in 0..4_u64 {
                origin.make("name", kind);
                let seen = origin.see("name");
                if let Some(earlier) = origin.inodes.replaced_by(&seen) {
                    earlier.set_replaced();
                }
                assert!(origin.inodes.look_up(&seen).is_none(), "{kind:?}: an earlier one is not taken for it");
                let inode = origin.take_in("name");
                assert_eq!((inode.lookups(), inode.is_newcomer()), (round + 1, round > 0), "{kind:?}");
                assert!(Arc::ptr_eq(&inode, &origin.inodes.get(77).unwrap()));
                generations.push(inode.generation);
                // Open to its end, as by an application.
                held.push((inode.path().unwrap(), inode));
                let path = origin.directory.path().join("name");
                if kind == FileType::Directory { fs::remove_dir(path).unwrap() } else { fs::remove_file(path).unwrap() }
            }
            assert_eq!(generations, [0, 1, 2, 3], "{kind:?}");
        }
    }

    #[test]
    fn a_file_that_was_changed_or_renamed_is_not_taken_for_another_where_there_are_no_birth_times() {
        for kind in [FileType::Directory, FileType::RegularFile] {
            let origin = Origin::new();
            origin.make("name", kind);
            let inode = origin.take_in("name");
            let before = origin.see("name");
            let path = origin.directory.path().join("name");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o711)).unwrap();
            fs::rename(&path, origin.directory.path().join("hidden")).unwrap();
            // What was seen before others changed it counts as little as what is seen now.
            for seen in [before, origin.see("hidden")] {
                assert!(origin.inodes.replaced_by(&seen).is_none(), "{kind:?}");
                assert!(Arc::ptr_eq(&inode, &origin.inodes.find(&seen).unwrap()), "{kind:?}");
            }
        }
    }
}
