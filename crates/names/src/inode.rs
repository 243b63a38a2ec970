//! One inode: what is known of it for as long as the kernel, or something here, holds it.
//!
//! Invariant: what of it changes, changes in one step: each field by itself, under its own lock or atomically.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, Weak};

use headpond_base::{Errno, Result};

use crate::known::Known;
use crate::places::{Home, NameInDirectory};
use crate::removed::Removed;
use crate::slots::{PathHolder, PathInUse, PathSlot};
use crate::unsynced::Unsynced;
use crate::{Access, DeviceNumber, FileKey, FileKind, Found, Freshness, Tree};

/// What the engine knows of a file, in this tree.
pub(crate) type KnownIn<T> = Known<<T as Tree>::OfKnown>;

/// A file, directory or other that the kernel knows.
pub struct Inode<T: Tree> {
    /// Its node id, and its number as applications see it.
    pub node: u64,
    /// Its name for the engine.
    pub key: FileKey,
    /// What it is; never changes.
    pub kind: FileKind,
    /// A regular file on the origin's own device: its content goes through the engine.
    pub managed: bool,
    /// Tells it from other files that had its number.
    pub generation: u64,
    /// The file system that it is on.
    pub device: DeviceNumber,
    /// Changed at the origin in ways that the log does not have, since the origin's last fsync.
    pub unsynced: Unsynced,
    /// Its path.
    pub slot: PathSlot<T::Path>,
    /// The front door's.
    pub beside: T::OfInode,
    /// Handles by which it may be written.
    pub(crate) writers: AtomicU32,
    /// What keeps it in the table besides the kernel.
    pub(crate) holds: AtomicU64,
    pub(crate) home: Weak<Home<T>>,
    me: Weak<Self>,
    place: Mutex<Option<NameInDirectory<T>>>,
    /// What was last seen of it, if it is gone.
    last_seen: OnceLock<Box<Found>>,
    lookups: AtomicU64,
    /// It is gone from the origin, which has given its number to another file.
    replaced: AtomicBool,
    /// The engine may know an earlier file by its name.
    newcomer: AtomicBool,
    /// It has no name, and what the engine alone had of it is gone: the origin's bytes are older.
    lost: AtomicBool,
    /// Its place did not lead to it when it was to be opened.
    astray: AtomicBool,
    known: RwLock<Option<Arc<KnownIn<T>>>>,
    /// Its last name is gone. Behind the path, which is closed first.
    removed: OnceLock<Box<dyn Removed>>,
}

/// What is known of a file before the kernel asks for it.
pub(crate) struct Before<T: Tree> {
    pub(crate) managed: bool,
    pub(crate) known: Option<Arc<KnownIn<T>>>,
    pub(crate) unsynced: Unsynced,
    pub(crate) newcomer: bool,
}

impl<T: Tree> Default for Before<T> {
    fn default() -> Self {
        Self { managed: false, known: None, unsynced: Unsynced::default(), newcomer: false }
    }
}

impl<T: Tree> Inode<T> {
    pub(crate) fn new(home: &Arc<Home<T>>, node: u64, generation: u64, found: &Found, before: Before<T>) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            node,
            key: found.key(),
            kind: found.kind,
            managed: before.managed,
            generation,
            device: found.device,
            unsynced: before.unsynced,
            slot: PathSlot::default(),
            beside: T::OfInode::default(),
            writers: AtomicU32::new(0),
            holds: AtomicU64::new(0),
            home: Arc::downgrade(home),
            me: me.clone(),
            place: Mutex::new(None),
            last_seen: OnceLock::new(),
            lookups: AtomicU64::new(1),
            replaced: AtomicBool::new(false),
            newcomer: AtomicBool::new(before.newcomer),
            lost: AtomicBool::new(false),
            astray: AtomicBool::new(false),
            known: RwLock::new(before.known),
            removed: OnceLock::new(),
        })
    }

    /// Its path, opened again if it was closed: it stays open for as long as the result is kept.
    ///
    /// # Errors
    /// [`Errno::STALE`] if it is not found any more; the origin's.
    pub async fn reach(&self) -> Result<PathInUse<T::Path>> {
        match self.slot.get() {
            Some(open) => Ok(open),
            None => {
                let home = self.home()?;
                let reopened = home.reopen(&self.me()?).await;
                if reopened.as_ref().is_err_and(|error| *error == Errno::STALE) {
                    self.astray.store(true, Ordering::Release);
                }
                reopened
            }
        }
    }

    /// What the origin says of it now; what it said last of a file that is gone.
    ///
    /// # Errors
    /// As of [`reach`](Self::reach).
    pub async fn look(&self) -> Result<Found> {
        self.look_as(Freshness::Usual).await
    }

    /// The same, so fresh. The origin is this mount's alone, so what is changed of it is changed from here: this machine has it.
    ///
    /// # Errors
    /// As of [`reach`](Self::reach).
    pub async fn look_as(&self, how: Freshness) -> Result<Found> {
        match self.reach().await {
            Ok(path) => self.home()?.tree.look(&path, how).await,
            Err(error) => self.last_seen().ok_or(error),
        }
    }

    /// What was last seen of it, if it is gone.
    pub fn last_seen(&self) -> Option<Found> {
        self.last_seen.get().filter(|_| self.is_gone()).map(|found| **found)
    }

    /// Opens the origin's file itself.
    ///
    /// # Errors
    /// As of [`reach`](Self::reach).
    pub async fn open_for(&self, access: Access) -> Result<T::File> {
        let home = self.home()?;
        let opened = home.tree.open(&*self.reach().await?, access).await;
        if !matches!(opened, Err(Errno::MFILE | Errno::NFILE)) {
            return opened;
        }
        home.make_room();
        home.tree.open(&*self.reach().await?, access).await
    }

    /// What all inodes have in common; the mount is over if that is not there any more.
    pub(crate) fn home(&self) -> Result<Arc<Home<T>>> {
        self.home.upgrade().ok_or(Errno::STALE)
    }

    /// Closes paths of others, that are not in use: no descriptor is left.
    pub fn make_room(&self) {
        if let Ok(home) = self.home() {
            home.make_room();
        }
    }

    /// Whether its place did not lead to it, for the first who asks: found by another name, it gets that one.
    pub(crate) fn take_astray(&self) -> bool {
        self.astray.load(Ordering::Acquire) && self.astray.swap(false, Ordering::AcqRel)
    }

    /// The inode as it is in the table.
    pub(crate) fn me(&self) -> Result<Arc<Self>> {
        self.me.upgrade().ok_or(Errno::STALE)
    }

    /// Its last name went while nothing used it: there is no such file any more.
    pub fn is_gone(&self) -> bool {
        self.slot.is_gone()
    }

    /// Its last name is about to go: what is to be said of it from then on.
    pub(crate) fn set_last_seen(&self, found: &Found) {
        let _ = self.last_seen.set(Box::new(Found { links: 0, ..*found }));
    }

    /// Whether this is what was found.
    pub(crate) fn is(&self, found: &Found) -> bool {
        self.key == found.key() && !self.is_gone() && !self.is_replaced()
    }

    /// Whether what was found by a name has only the number of this one, which is gone. It costs a look, and a
    /// question to a server where the two do not look the same. One that is not open cannot be asked.
    pub(crate) async fn lost_its_number_to(&self, found: &Found) -> bool {
        // What it is never changes.
        if self.kind != found.kind {
            return true;
        }
        let (Some(open), Ok(home)) = (self.slot.get(), self.home()) else { return false };
        // One and the same file is looked at twice: this machine has one set of attributes for it.
        let of = |found: &Found| (found.stamp().ctime, found.links, found.size, found.kind, found.mode);
        let held = home.tree.look(&open, Freshness::AsHeld).await;
        if held.is_ok_and(|held| of(&held) == of(found)) {
            return false;
        }
        match home.tree.look(&open, Freshness::Asked).await {
            // It has no name, and what was found has one.
            Ok(held) => held.links == 0 && found.links > 0,
            Err(error) => error == Errno::STALE,
        }
    }

    /// Whether that is known: it is gone, and its number is another file's.
    pub fn is_replaced(&self) -> bool {
        self.replaced.load(Ordering::Acquire)
    }

    /// It is gone, and its number is another file's.
    pub fn set_replaced(&self) {
        self.replaced.store(true, Ordering::Release);
    }

    /// Whether the engine, when it opens it for the first time, is to take it for a new file.
    pub fn is_newcomer(&self) -> bool {
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
    pub fn lookups(&self) -> u64 {
        self.lookups.load(Ordering::Acquire)
    }

    /// One more. To be called with the table's lock held, as forgetting is.
    pub(crate) fn count_lookup(&self) {
        self.lookups.fetch_add(1, Ordering::Relaxed);
    }

    /// So many from now on. To be called with the table locked.
    pub(crate) fn set_lookups(&self, lookups: u64) {
        self.lookups.store(lookups, Ordering::Release);
    }

    pub(crate) fn place_slot(&self) -> MutexGuard<'_, Option<NameInDirectory<T>>> {
        // Each change is one assignment.
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changed at the origin alone since the origin was last synced.
    pub fn is_unsynced(&self) -> bool {
        self.unsynced.is_so()
    }

    /// By how many handles it may be written.
    pub fn writers(&self) -> u32 {
        self.writers.load(Ordering::Acquire)
    }

    /// What applications see of its size and times, where the engine knows better than the
    /// origin.
    pub fn known(&self) -> Option<Arc<KnownIn<T>>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The engine knows it from now on.
    pub(crate) fn set_known(&self, known: &Arc<KnownIn<T>>) {
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
    pub(crate) fn set_removed(&self, removed: Box<dyn Removed>) {
        let _ = self.removed.set(removed);
    }

    /// That its last name is gone, if it is.
    pub fn removed(&self) -> Option<&dyn Removed> {
        self.removed.get().map(|removed| &**removed)
    }
}

impl<T: Tree> PathHolder<T::Path> for Inode<T> {
    fn slot(&self) -> &PathSlot<T::Path> {
        &self.slot
    }

    fn can_reopen(&self) -> bool {
        self.place_slot().is_some()
    }
}

impl<T: Tree> fmt::Debug for Inode<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Inode({}, {:?})", self.node, self.kind)
    }
}
