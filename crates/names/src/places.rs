//! The places of inodes: a directory and a name in it, up to the root. With its place, an inode opens again after its
//! path was closed.
//!
//! Invariants
//! - A directory that a place names stays in the table, also when the kernel has forgotten it: renaming it moves what is
//!   below it, as nothing but its own place changes.
//! - A place changes with the rename at the origin. Between the two, no operation takes the file for missing
//!   ([`DirectoryMoves`]).
//! - An open finds the same file as before, by inode number, birth time and device, or it fails (ESTALE).
//! - No function recurses over a chain of directories, so a long one is safe.
//!
//! Places are names and not the origin's file handles. Handles need a capability that ordinary users' daemons lack,
//! and a file opened by handle may have no path, which the sync of its directory needs.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use headpond_base::{Errno, Result};

use crate::inode::Inode;
use crate::inodes::Table;
use crate::moves::DirectoryMoves;
use crate::slots::{PathHolder, PathInUse, Paths};
use crate::{Freshness, Tree};

/// How often an inode is looked for while others rename what is above it.
const TRIES: usize = 8;

/// How many inodes are known for how long the kernel has forgotten them: for file handles, by which NFS servers and some
/// backup programs ask. Some 4 MB.
const FORGOTTEN: usize = 8192;

/// How many paths are closed when no descriptor is left.
const ROOM: usize = 64;

/// What the inodes of a mount have in common.
pub(crate) struct Home<T: Tree> {
    pub(crate) tree: Arc<T>,
    pub(crate) table: RwLock<Table<T>>,
    pub(crate) open: Paths<Inode<T>>,
    pub(crate) moves: DirectoryMoves,
    /// What the kernel forgot last: who has a file handle may still ask for it.
    forgotten: Mutex<VecDeque<Hold<T>>>,
}

/// A directory and a name in it.
pub(crate) struct NameInDirectory<T: Tree> {
    pub(crate) parent: Hold<T>,
    pub(crate) name: Box<OsStr>,
}

/// Keeps an inode in the table.
pub(crate) struct Hold<T: Tree>(Option<Arc<Inode<T>>>);

impl<T: Tree> Hold<T> {
    /// Of one that the kernel holds at this moment.
    pub(crate) fn of(inode: &Arc<Inode<T>>) -> Self {
        inode.holds.fetch_add(1, Ordering::Relaxed);
        Self(Some(inode.clone()))
    }

    pub(crate) fn inode(&self) -> &Arc<Inode<T>> {
        self.0.as_ref().expect("there up to the end")
    }

    /// Ends it. Gives the inode if nobody else has it: what that holds is for the caller to end.
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

    /// The kernel has forgotten it: it is closed, and found again by its place for a while.
    pub(crate) fn remember(&self, inode: &Arc<Inode<T>>) {
        if !inode.slot.may_close() || !inode.can_reopen() {
            // Nothing finds it again. If nothing else holds it either, it goes.
            return drop(Hold::of(inode));
        }
        let closed = inode.slot.close_unused();
        let mut forgotten = self.forgotten.lock().unwrap_or_else(PoisonError::into_inner);
        forgotten.push_back(Hold::of(inode));
        let oldest = if forgotten.len() > FORGOTTEN { forgotten.pop_front() } else { None };
        // Not with the lock held: each may let go of more.
        drop(forgotten);
        drop((closed, oldest));
    }

    /// What the kernel forgot is forgotten here too.
    pub(crate) fn forget_all(&self) {
        let forgotten = std::mem::take(&mut *self.forgotten.lock().unwrap_or_else(PoisonError::into_inner));
        drop(forgotten);
    }

    /// Closes paths that are not in use.
    pub(crate) fn make_room(&self) {
        self.open.make_room(ROOM);
    }

    /// The path of an inode, whose own is closed.
    pub(crate) async fn reopen(&self, inode: &Arc<Inode<T>>) -> Result<PathInUse<T::Path>> {
        let mut tries = 0;
        loop {
            tries += 1;
            match self.reopen_chain(inode).await {
                Err(Errno::MFILE | Errno::NFILE) if tries < TRIES => self.make_room(),
                // Perhaps it, or a directory above it, is being renamed just now.
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
        // A change that took its place may have opened it meanwhile: it loses one of several names.
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
    /// The directory and the name by which it can be found.
    pub fn place(&self) -> Option<(Arc<Self>, OsString)> {
        self.place_slot().as_ref().map(|place| (place.parent.inode().clone(), place.name.to_os_string()))
    }

    /// It is found by another name from now on.
    pub(crate) fn set_place(&self, parent: &Arc<Self>, name: &OsStr) {
        let place = NameInDirectory { parent: Hold::of(parent), name: name.into() };
        let earlier = self.place_slot().replace(place);
        // Not with the lock held: it may let go of directories.
        drop(earlier);
    }

    /// The same if it has none, or none that leads to it.
    pub(crate) fn find_by(&self, parent: &Arc<Self>, name: &OsStr) {
        if self.take_astray() || self.place_slot().is_none() {
            self.set_place(parent, name);
        }
    }

    /// Whether it would be found by this name.
    pub(crate) fn is_found_by(&self, parent: &Self, name: &OsStr) -> bool {
        self.place_slot().as_ref().is_some_and(|place| place.parent.inode().node == parent.node && *place.name == *name)
    }

    pub(crate) fn take_place(&self) -> Option<NameInDirectory<T>> {
        self.place_slot().take()
    }
}
