//! The inodes that the kernel knows, each with an open path to the origin's file.
//!
//! Invariants
//! - An inode in the table holds an `O_PATH` descriptor, so the origin cannot give its inode
//!   number to another file, and renames of any directory above it do not matter.
//! - A node id *is* the inode number that applications see: fuser has one field for both. The
//!   origin's root is node 1, whatever its number. Files on other file systems mounted below the
//!   origin get numbers from the top half, so that two files never share one.
//! - The kernel's lookups are counted; at zero the inode leaves the table and its descriptor is
//!   closed.

use std::collections::HashMap;
use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use headpond_shard::Removed;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawMode, Statx, StatxFlags};
use rustix::io::Errno;

use crate::known::{FileKey, Known};
use crate::times;

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

/// The file's name under which the engine knows it.
pub(crate) fn file_key(stat: &Statx) -> FileKey {
    let birth = if stat.stx_mask & StatxFlags::BTIME.bits() != 0 {
        times::from_statx(stat.stx_btime)
    } else {
        headpond_base::UnixNanos(0)
    };
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
    /// Changed at the origin in ways that the log does not have, since the origin's last fsync.
    pub(crate) unsynced: AtomicBool,
    path: OwnedFd,
    lookups: AtomicU64,
    privileges: AtomicU8,
    known: RwLock<Option<Arc<Known>>>,
    /// Its last name is gone. Behind the path, which is closed first.
    removed: OnceLock<Removed>,
}

impl Inode {
    /// What the origin says of it now.
    pub(crate) fn stat(&self) -> Result<Statx, Errno> {
        stat(&self.path, c"")
    }

    /// The same without asking a server: as this machine has it. The origin is this mount's alone, so what is changed of
    /// it is changed from here.
    pub(crate) fn stat_as_held(&self) -> Result<Statx, Errno> {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        rustix::fs::statx(&self.path, c"", flags, StatxFlags::BASIC_STATS | StatxFlags::BTIME)
    }

    /// Its name in `/proc/self/fd`: through it, calls that take only paths reach the file
    /// itself, wherever it has been moved, and even if it is a symbolic link.
    pub(crate) fn proc_path(&self) -> String {
        format!("/proc/self/fd/{}", self.path.as_raw_fd())
    }

    /// Opens the origin's file itself.
    pub(crate) fn open(&self, flags: OFlags) -> Result<OwnedFd, Errno> {
        rustix::fs::open(self.proc_path(), (flags - OFlags::NOFOLLOW) | OFlags::CLOEXEC, Mode::empty())
    }

    /// There are no privileges that a write would have to take away.
    pub(crate) fn has_no_privileges(&self) -> bool {
        self.privileges() == Privileges::None
    }

    /// Changed at the origin alone since the origin was last synced.
    pub(crate) fn is_unsynced(&self) -> bool {
        self.unsynced.load(Ordering::Acquire)
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

impl AsFd for Inode {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.path.as_fd()
    }
}

impl fmt::Debug for Inode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Inode({}, {:?})", self.node, self.kind)
    }
}

#[derive(Default)]
struct Table {
    nodes: HashMap<u64, Arc<Inode>>,
    /// Node ids of files on other file systems.
    foreign: HashMap<(DeviceNumber, u64), u64>,
    next_foreign: u64,
}

/// All inodes that the kernel knows.
pub(crate) struct Inodes {
    root: Arc<Inode>,
    root_inode: u64,
    device: DeviceNumber,
    table: RwLock<Table>,
}

impl Inodes {
    /// A table with only the origin's root.
    pub(crate) fn new(root: OwnedFd) -> Result<Self, Errno> {
        let found = stat(&root, c"")?;
        let root = Arc::new(Inode {
            node: ROOT,
            key: file_key(&found),
            kind: kind_of(&found),
            managed: false,
            unsynced: AtomicBool::new(false),
            path: root,
            lookups: AtomicU64::new(1),
            privileges: AtomicU8::new(Privileges::Unknown as u8),
            known: RwLock::new(None),
            removed: OnceLock::new(),
        });
        Ok(Self {
            root,
            root_inode: found.stx_ino,
            device: DeviceNumber::of(&found),
            table: RwLock::new(Table::default()),
        })
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
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        table.nodes.get(&node).cloned().ok_or(Errno::STALE)
    }

    /// The inode of a file that was just looked at, if the kernel holds it. Counts nothing.
    pub(crate) fn find(&self, found: &Statx) -> Option<Arc<Inode>> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let node = self.node_of(&table, found)?;
        if node == ROOT {
            return Some(self.root.clone());
        }
        table.nodes.get(&node).filter(|inode| inode.key == file_key(found)).cloned()
    }

    /// The inode of a file that was just looked at, with one more lookup by the kernel, if the
    /// kernel holds it already.
    pub(crate) fn look_up(&self, found: &Statx) -> Option<Arc<Inode>> {
        // Counting under the read lock is enough: forgetting takes the write lock.
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let node = self.node_of(&table, found)?;
        if node == ROOT {
            return Some(self.root.clone());
        }
        let inode = table.nodes.get(&node).filter(|inode| inode.key == file_key(found))?;
        inode.lookups.fetch_add(1, Ordering::Relaxed);
        Some(inode.clone())
    }

    /// Takes in a file by its `O_PATH` descriptor, with one lookup by the kernel.
    pub(crate) fn take_in(
        &self,
        path: OwnedFd,
        found: &Statx,
        known: impl FnOnce(FileKey) -> Option<Arc<Known>>,
    ) -> Arc<Inode> {
        let key = file_key(found);
        let kind = kind_of(found);
        let managed = kind == FileType::RegularFile && DeviceNumber::of(found) == self.device;
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let node = self.node_of(&table, found).unwrap_or_else(|| {
            let node = FOREIGN + table.next_foreign;
            assert!(node < PANEL, "2^63 files were never known");
            table.next_foreign += 1;
            table.foreign.insert((DeviceNumber::of(found), found.stx_ino), node);
            node
        });
        if node == ROOT {
            return self.root.clone();
        }
        if let Some(inode) = table.nodes.get(&node) {
            // Another thread was faster. The held descriptor pins the number, so it is the same file.
            inode.lookups.fetch_add(1, Ordering::Relaxed);
            return inode.clone();
        }
        let inode = Arc::new(Inode {
            node,
            key,
            kind,
            managed,
            unsynced: AtomicBool::new(false),
            path,
            lookups: AtomicU64::new(1),
            privileges: AtomicU8::new(Privileges::Unknown as u8),
            known: RwLock::new(if managed { known(key) } else { None }),
            removed: OnceLock::new(),
        });
        table.nodes.insert(node, inode.clone());
        inode
    }

    /// The kernel gave back `count` lookups. Returns the inode if these were the last.
    pub(crate) fn forget(&self, node: u64, count: u64) -> Option<Arc<Inode>> {
        if node == ROOT || node >= PANEL {
            return None;
        }
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let left = {
            let inode = table.nodes.get(&node)?;
            let before = inode.lookups.load(Ordering::Relaxed);
            let left = before.saturating_sub(count);
            inode.lookups.store(left, Ordering::Relaxed);
            left
        };
        if left > 0 {
            return None;
        }
        if node >= FOREIGN {
            table.foreign.retain(|_, number| *number != node);
        }
        table.nodes.remove(&node)
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
