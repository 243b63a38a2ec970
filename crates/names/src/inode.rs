//! One inode, for as long as the kernel or something here holds it.
//!
//! Invariant: what of it changes, changes in one step: each field by itself, under its own lock or atomically.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, Weak};

use headpond_base::{Errno, Result};
use headpond_ledger::{InodeMark, InodeRow};

use crate::inodes::ROOT;
use crate::known::Known;
use crate::lasting::{Entry, number_of};
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
    /// The last attributes, if it is gone.
    last_seen: OnceLock<Box<Found>>,
    lookups: AtomicU64,
    /// Its row in the ledger, if there is a ledger. The root has none.
    pub(crate) entry: Option<Box<Entry<T::Path>>>,
    /// The file is gone, and the origin has given its number to another.
    replaced: AtomicBool,
    /// The engine may know an earlier file by its name.
    newcomer: AtomicBool,
    /// The file has no name, and the engine's part of it is lost: the origin's bytes are older.
    lost: AtomicBool,
    /// The last open by its place did not find it.
    astray: AtomicBool,
    known: RwLock<Option<Arc<KnownIn<T>>>>,
    /// The last name is gone. Declared after the path, which must drop first.
    removed: OnceLock<Box<dyn Removed>>,
}

/// What the table knows of a file before the kernel asks for it.
pub(crate) struct Before<T: Tree> {
    pub(crate) managed: bool,
    pub(crate) known: Option<Arc<KnownIn<T>>>,
    pub(crate) unsynced: Unsynced,
    pub(crate) newcomer: bool,
    pub(crate) lookups: u64,
}

impl<T: Tree> Default for Before<T> {
    fn default() -> Self {
        Self { managed: false, known: None, unsynced: Unsynced::default(), newcomer: false, lookups: 1 }
    }
}

impl<T: Tree> Inode<T> {
    pub(crate) fn new(home: &Arc<Home<T>>, node: u64, generation: u64, found: &Found, before: Before<T>) -> Arc<Self> {
        Self::of_row(home, node, generation, found.key(), found, before, None)
    }

    /// The same of an inode that has a row. Of `found` only what never changes counts.
    pub(crate) fn of_row(
        home: &Arc<Home<T>>,
        node: u64,
        generation: u64,
        key: FileKey,
        found: &Found,
        before: Before<T>,
        entry: Option<Entry<T::Path>>,
    ) -> Arc<Self> {
        let before_newcomer = before.newcomer;
        let enter = |mut inode: Self| {
            let register = home.register.get().filter(|_| inode.entry.is_none() && node != ROOT);
            if let Some(register) = register {
                let marks = [(before_newcomer, InodeMark::Newcomer), (inode.unsynced.is_so(), InodeMark::Unsynced)];
                let marks: Vec<InodeMark> = marks.into_iter().filter_map(|(is, mark)| is.then_some(mark)).collect();
                inode.entry = Some(Box::new(register.enter(&inode.as_row(), inode.lookups(), &marks)));
            }
            inode
        };
        Arc::new_cyclic(|me| {
            enter(Self {
                node,
                key,
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
                lookups: AtomicU64::new(before.lookups),
                entry: entry.map(Box::new),
                replaced: AtomicBool::new(false),
                newcomer: AtomicBool::new(before.newcomer),
                lost: AtomicBool::new(false),
                astray: AtomicBool::new(false),
                known: RwLock::new(before.known),
                removed: OnceLock::new(),
            })
        })
    }

    /// Its path, opened again if it was closed. It stays open as long as the result lives.
    ///
    /// # Errors
    /// [`Errno::STALE`] if its place no longer leads to it; the origin's errors.
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

    /// Its attributes at the origin now. For a file that is gone: the last ones.
    ///
    /// # Errors
    /// As of [`reach`](Self::reach).
    pub async fn look(&self) -> Result<Found> {
        self.look_as(Freshness::Usual).await
    }

    /// The same, without a question to a server. Only this mount changes the origin, so this machine has the
    /// attributes.
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

    /// What all inodes have in common. After the mount has ended it is gone.
    pub(crate) fn home(&self) -> Result<Arc<Home<T>>> {
        self.home.upgrade().ok_or(Errno::STALE)
    }

    /// Closes unused paths of other inodes: the process has no descriptor left.
    pub fn make_room(&self) {
        if let Ok(home) = self.home() {
            home.make_room();
        }
    }

    /// Whether its place did not lead to it. True once; a lookup that finds it by another name then gives it that
    /// place.
    pub(crate) fn take_astray(&self) -> bool {
        self.astray.load(Ordering::Acquire) && self.astray.swap(false, Ordering::AcqRel)
    }

    /// The inode as it is in the table.
    pub(crate) fn me(&self) -> Result<Arc<Self>> {
        self.me.upgrade().ok_or(Errno::STALE)
    }

    /// Its last name went while nothing used it: the file is gone.
    pub fn is_gone(&self) -> bool {
        self.slot.is_gone()
    }

    /// Its last name is about to go. These are its attributes from then on.
    pub(crate) fn set_last_seen(&self, found: &Found) {
        let _ = self.last_seen.set(Box::new(Found { links: 0, ..*found }));
    }

    /// Whether this is what was found.
    pub(crate) fn is(&self, found: &Found) -> bool {
        self.key == found.key() && !self.is_gone() && !self.is_replaced()
    }

    /// Whether the file that a name led to has only the number of this one, which is gone. Costs a look, and a question
    /// to a server if the two look different. A file that is not open cannot be asked.
    pub(crate) async fn lost_its_number_to(&self, found: &Found) -> bool {
        // The kind of a file never changes.
        if self.kind != found.kind {
            return true;
        }
        let (Some(open), Ok(home)) = (self.slot.get(), self.home()) else { return false };
        // The same file shows the same attributes twice, as this machine has one set of them.
        let of = |found: &Found| (found.stamp().ctime, found.links, found.size, found.kind, found.mode);
        let held = home.tree.look(&open, Freshness::AsHeld).await;
        if held.is_ok_and(|held| of(&held) == of(found)) {
            return false;
        }
        match home.tree.look(&open, Freshness::Asked).await {
            // This file has no name, and the found one has.
            Ok(held) => held.links == 0 && found.links > 0,
            Err(error) => error == Errno::STALE,
        }
    }

    /// Whether the file is known to be gone, and its number to be another file's.
    pub fn is_replaced(&self) -> bool {
        self.replaced.load(Ordering::Acquire)
    }

    /// The file is gone, and its number is another file's.
    pub fn set_replaced(&self) {
        self.replaced.store(true, Ordering::Release);
        self.mark(InodeMark::Replaced);
    }

    /// Whether the engine takes it for a new file at the first open.
    pub fn is_newcomer(&self) -> bool {
        self.newcomer.load(Ordering::Acquire)
    }

    /// The engine knows this file now, and not the earlier one.
    pub(crate) fn set_settled(&self) {
        self.newcomer.store(false, Ordering::Release);
        if let Some(entry) = &self.entry {
            entry.row().unmark(InodeMark::Newcomer);
        }
    }

    /// Whether it can never open again: it has no name, and the engine's part of it is lost.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// From now on it can never open again. Call it in the order of the engine's answers.
    pub(crate) fn set_lost(&self) {
        self.lost.store(true, Ordering::Release);
        self.mark(InodeMark::Lost);
    }

    /// The lookups that the kernel has not given back.
    pub fn lookups(&self) -> u64 {
        self.lookups.load(Ordering::Acquire)
    }

    /// Counts one more lookup. Call it with the lock on the table, as forgetting does.
    pub(crate) fn count_lookup(&self) {
        self.lookups.fetch_add(1, Ordering::Relaxed);
        if let Some(entry) = &self.entry {
            entry.row().count_lookup();
        }
    }

    /// Sets the count of lookups. Call it with the table locked.
    pub(crate) fn set_lookups(&self, lookups: u64) {
        self.lookups.store(lookups, Ordering::Release);
        if let Some(entry) = &self.entry {
            entry.row().set_lookups(lookups);
        }
    }

    pub(crate) fn place_slot(&self) -> MutexGuard<'_, Option<NameInDirectory<T>>> {
        // Each change is one assignment, so a poisoned lock has a whole value.
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it changed at the origin alone since the last sync there.
    pub fn is_unsynced(&self) -> bool {
        self.unsynced.is_so()
    }

    /// How many handles may write to it.
    pub fn writers(&self) -> u32 {
        self.writers.load(Ordering::Acquire)
    }

    /// The size and times that applications see, where the engine knows better than the origin.
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

    /// The kernel forgot it. What the engine knows of it stays in the list of known files.
    pub(crate) fn forget_known(&self) {
        let mut slot = self.known.write().unwrap_or_else(PoisonError::into_inner);
        // If the kernel looked it up meanwhile, the next lookup finds nothing here and recalls it.
        let known = if self.lookups() == 0 { slot.take() } else { None };
        drop(slot);
        drop(known);
    }

    /// The number of its row; 0 for the root, and without a ledger.
    pub fn row(&self) -> u64 {
        self.entry.as_ref().map_or(0, |entry| entry.row().number())
    }

    /// No name will lead to it: its path must outlive the process.
    pub(crate) fn keep_path(&self, path: &T::Path) {
        if let Some(entry) = &self.entry {
            entry.keep(path);
        }
    }

    /// Its path need not outlive the process.
    pub(crate) fn let_go_of_kept(&self) {
        if let Some(entry) = &self.entry {
            entry.let_go();
        }
    }

    pub(crate) fn mark(&self, mark: InodeMark) {
        if let Some(entry) = &self.entry {
            entry.row().mark(mark);
        }
    }

    /// It was changed at the origin alone. Call it before the caller has its answer.
    pub(crate) fn note_unsynced(&self) {
        // The lock keeps the mark and the count together.
        let _place = self.place_slot();
        self.unsynced.note();
        self.mark(InodeMark::Unsynced);
    }

    /// Syncs it, if there is something to sync.
    pub(crate) async fn settle_unsynced(&self, sync: impl Future<Output = Result<()>>) -> Result<()> {
        self.unsynced.settle(sync).await?;
        if let Some(entry) = &self.entry {
            let _place = self.place_slot();
            if !self.unsynced.is_so() {
                entry.row().unmark(InodeMark::Unsynced);
            }
        }
        Ok(())
    }

    /// What its row has of it.
    fn as_row(&self) -> InodeRow {
        InodeRow {
            node: self.node,
            inode: self.key.inode,
            birth: self.key.birth.0,
            generation: self.generation as u32,
            kind: number_of(self.kind),
            managed: self.managed,
            device: (self.device.major, self.device.minor),
        }
    }

    /// Its last name is gone.
    pub(crate) fn set_removed(&self, removed: Box<dyn Removed>) {
        let _ = self.removed.set(removed);
    }

    /// The removal of its last name, if that is gone.
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

    fn went(&self) {
        self.mark(InodeMark::Gone);
        self.let_go_of_kept();
    }
}

impl<T: Tree> fmt::Debug for Inode<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Inode({}, {:?})", self.node, self.kind)
    }
}
