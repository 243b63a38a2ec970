//! The places of inodes: a directory and a name in it, up to the root. With its place, an inode opens again after its
//! path was closed.
//!
//! Invariants
//! - A directory that a place names stays in the table, also when the kernel has forgotten it. A rename of the
//!   directory changes only its own place, and so moves all that is below.
//! - A place changes with the rename at the origin. Between the two, no operation takes the file for missing
//!   ([`DirectoryMoves`]).
//! - An open finds the same file as before, by inode number, birth time and device, or it fails (ESTALE).
//! - No function recurses over a chain of directories, so a long one is safe.
//!
//! Places are names and not the origin's file handles. Handles need a capability that ordinary users' daemons lack,
//! and a file opened by handle may have no path, which the sync of its directory needs.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use headpond_base::{Errno, Result};

use crate::inode::Inode;
use crate::inodes::Table;
use crate::lasting::Register;
use crate::moves::DirectoryMoves;
use crate::slots::{PathHolder, PathInUse, Paths};
use crate::{Freshness, Tree};

/// How often a look for an inode starts again when a rename above it gets in the way.
const TRIES: usize = 8;

/// How many inodes stay known after the kernel forgot them. NFS servers and some backup programs ask for such inodes by
/// file handle. Some 4 MB.
const FORGOTTEN: usize = 8192;

/// How many paths close when the process has no descriptor left.
const ROOM: usize = 64;

/// What the inodes of a mount have in common.
pub(crate) struct Home<T: Tree> {
    pub(crate) tree: Arc<T>,
    pub(crate) table: RwLock<Table<T>>,
    pub(crate) open: Paths<Inode<T>>,
    pub(crate) moves: DirectoryMoves,
    /// Where inodes are entered, if anything of the mount outlives the process.
    pub(crate) register: OnceLock<Register<T::Path>>,
    /// What the kernel forgot last. A program with a file handle may still ask for it.
    forgotten: Mutex<VecDeque<Hold<T>>>,
}

/// A directory and a name in it.
pub(crate) struct NameInDirectory<T: Tree> {
    pub(crate) parent: Hold<T>,
    pub(crate) name: Box<OsStr>,
}

impl<T: Tree> NameInDirectory<T> {
    /// A name in a directory that something holds at this moment.
    pub(crate) fn of(directory: &Arc<Inode<T>>, name: &[u8]) -> Self {
        Self { parent: Hold::of(directory), name: OsStr::from_bytes(name).into() }
    }
}

/// Keeps an inode in the table.
pub(crate) struct Hold<T: Tree>(Option<Arc<Inode<T>>>);

impl<T: Tree> Hold<T> {
    /// Of an inode that the kernel holds at this moment.
    pub(crate) fn of(inode: &Arc<Inode<T>>) -> Self {
        inode.holds.fetch_add(1, Ordering::Relaxed);
        Self(Some(inode.clone()))
    }

    pub(crate) fn inode(&self) -> &Arc<Inode<T>> {
        self.0.as_ref().expect("there up to the end")
    }

    /// Ends it. Returns the inode if this was the last hold. The caller then ends what the inode holds.
    fn end(&mut self) -> Option<Inode<T>> {
        let inode = self.0.take()?;
        if inode.holds.fetch_sub(1, Ordering::AcqRel) == 1
            && inode.lookups() == 0
            && let Some(home) = inode.home.upgrade()
        {
            home.let_go(&inode);
        }
        Arc::into_inner(inode)
    }
}

impl<T: Tree> Drop for Hold<T> {
    fn drop(&mut self) {
        let mut next = self.end();
        while let Some(inode) = next {
            next = inode.take_place().and_then(|mut place| place.parent.end());
        }
    }
}

impl<T: Tree> Home<T> {
    pub(crate) fn new(tree: Arc<T>, descriptors: usize) -> Self {
        Self {
            tree,
            table: RwLock::default(),
            open: Paths::new(descriptors),
            moves: DirectoryMoves::default(),
            register: OnceLock::new(),
            forgotten: Mutex::default(),
        }
    }

    /// Takes an inode out of the table that neither the kernel nor anything else holds.
    fn let_go(&self, inode: &Arc<Inode<T>>) {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        if inode.lookups() == 0 && inode.holds.load(Ordering::Acquire) == 0 {
            table.remove(inode);
        }
    }

    /// The kernel has forgotten it. It closes, and for a while its place leads to it.
    pub(crate) fn remember(&self, inode: &Arc<Inode<T>>) {
        if !inode.slot.may_close() || !inode.can_reopen() {
            // No place leads to it. Without another hold, it goes.
            return drop(Hold::of(inode));
        }
        let closed = inode.slot.close_unused();
        let mut forgotten = self.forgotten.lock().unwrap_or_else(PoisonError::into_inner);
        forgotten.push_back(Hold::of(inode));
        let oldest = if forgotten.len() > FORGOTTEN { forgotten.pop_front() } else { None };
        // Without the lock: each may let go of more.
        drop(forgotten);
        drop((closed, oldest));
    }

    /// Forgets what the kernel forgot.
    pub(crate) fn forget_all(&self) {
        let forgotten = std::mem::take(&mut *self.forgotten.lock().unwrap_or_else(PoisonError::into_inner));
        drop(forgotten);
    }

    /// Closes paths that are not in use.
    pub(crate) fn make_room(&self) {
        self.open.make_room(ROOM);
    }

    /// A path to an inode whose own is closed.
    pub(crate) async fn reopen(&self, inode: &Arc<Inode<T>>) -> Result<PathInUse<T::Path>> {
        let mut tries = 0;
        loop {
            tries += 1;
            match self.reopen_chain(inode).await {
                Err(Errno::MFILE | Errno::NFILE) if tries < TRIES => self.make_room(),
                // A rename of it, or of a directory above it, may be under way.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::STALE) if tries < TRIES && !inode.is_gone() => {
                    self.moves.ended().await;
                }
                Err(Errno::NOENT | Errno::NOTDIR) => return Err(Errno::STALE),
                result => return result,
            }
        }
    }

    /// Opens all that is closed between it and the next directory above that is open.
    async fn reopen_chain(&self, inode: &Arc<Inode<T>>) -> Result<PathInUse<T::Path>> {
        // A removal of one of its names may have taken its place, and opened it.
        if let Some(open) = inode.slot.get() {
            return Ok(open);
        }
        let mut closed = vec![inode.clone()];
        let mut above = loop {
            let (parent, _) = closed.last().and_then(|inode| inode.place()).ok_or(Errno::STALE)?;
            match parent.slot.get() {
                Some(open) => break open,
                None => closed.push(parent),
            }
        };
        while let Some(inode) = closed.pop() {
            above = self.open.get(&inode, self.open_in(&above, &inode)).await?;
        }
        Ok(above)
    }

    async fn open_in(&self, directory: &PathInUse<T::Path>, inode: &Inode<T>) -> Result<T::Path> {
        let (_, name) = inode.place().ok_or(Errno::STALE)?;
        let path = self.tree.find(directory, &name).await?;
        let found = self.tree.look(&path, Freshness::Usual).await?;
        let same = found.key() == inode.key && found.device == inode.device;
        if same { Ok(path) } else { Err(Errno::STALE) }
    }
}

impl<T: Tree> Inode<T> {
    /// The directory and the name that lead to it.
    pub fn place(&self) -> Option<(Arc<Self>, OsString)> {
        self.place_slot().as_ref().map(|place| (place.parent.inode().clone(), place.name.to_os_string()))
    }

    /// From now on another name leads to it.
    pub(crate) fn set_place(&self, parent: &Arc<Self>, name: &OsStr) {
        let earlier = self.put_place(NameInDirectory::of(parent, name.as_bytes()));
        // Without the lock: it may let go of directories.
        drop(earlier);
        self.let_go_of_kept();
    }

    /// Puts a place in, and returns the one before.
    pub(crate) fn put_place(&self, place: NameInDirectory<T>) -> Option<NameInDirectory<T>> {
        let mut slot = self.place_slot();
        if let Some(entry) = &self.entry {
            entry.row().set_place(place.parent.inode().row(), place.name.as_bytes());
        }
        slot.replace(place)
    }

    /// The same, if it has no place, or one that does not lead to it.
    pub(crate) fn find_by(&self, parent: &Arc<Self>, name: &OsStr) {
        if self.take_astray() || self.place_slot().is_none() {
            self.set_place(parent, name);
        }
    }

    /// Whether this name is its place.
    pub(crate) fn is_found_by(&self, parent: &Self, name: &OsStr) -> bool {
        self.place_slot().as_ref().is_some_and(|place| place.parent.inode().node == parent.node && *place.name == *name)
    }

    pub(crate) fn take_place(&self) -> Option<NameInDirectory<T>> {
        let mut slot = self.place_slot();
        if let Some(entry) = &self.entry {
            entry.row().clear_place();
        }
        slot.take()
    }
}
