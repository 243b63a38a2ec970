//! What outlives the process: rows of inodes in a ledger, and descriptors of files that no name leads to, with a
//! keeper. A successor takes both over ([`Inodes::take_over`]).
//!
//! Invariants
//! - A file without a name is with the keeper before its last name goes at the origin. A crash in between leaves one
//!   descriptor too many, which the successor gives back.
//! - The keeper lets go of a file before its row goes, and before programs that wait for its space are told.
//! - What a successor finds at a place counts only if it has the inode's key. So a place that a crash left behind a
//!   rename leads to nothing, until the rename is sent again.
//!
//! What memory alone had, and what its loss means:
//! - Changes that only the origin has and that are not synced are in the rows. Of files that the kernel forgot before
//!   they were synced the ledger knows only that there were some: then each file that the kernel meets again counts as
//!   changed, and its first sync costs one at the origin.
//! - Sizes and times come from the engine, or else from the origin. The origin's status change time may be later than
//!   the one that was shown, as destage moves it. It is never earlier, so no time goes back.
//! - The last status of a file that went while nothing had it open is lost: a program that only named it gets ESTALE.
//! - The order of what the kernel forgot last.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use headpond_base::{Result, UnixNanos};
use headpond_ledger::{InodeEntry, InodeRow, Ledger, Mark, StoredInode};

use crate::inode::{Before, Inode, KnownIn};
use crate::inodes::{FOREIGN, Inodes, ROOT};
use crate::places::{Home, NameInDirectory};
use crate::unsynced::Unsynced;
use crate::{DeviceNumber, FileKey, FileKind, Freshness, Tree};

/// Keeps paths of files that no name leads to, where the end of this process does not reach them.
pub trait Keeper<P>: Send + Sync {
    /// Keeps the path under a number until [`let_go`](Self::let_go). Returns when it is safe.
    ///
    /// # Errors
    /// If it cannot. The mount goes on, but no successor can take it over while the file is in use.
    fn keep(&self, number: u64, path: &P) -> Result<()>;

    /// It is not needed any more.
    fn let_go(&self, number: u64);
}

/// What outlives the process, for [`Names::lasting`](crate::Names::lasting).
pub struct Lasting<P> {
    /// Empty, or with what the process before knew.
    pub ledger: Arc<Ledger>,
    /// Keeps paths of files that no name leads to.
    pub keeper: Arc<dyn Keeper<P>>,
    /// What it kept for the process before, by number.
    pub kept: BTreeMap<u64, P>,
}

/// The inodes that a successor took over, by the numbers of their rows. 0 is the root.
pub type TakenOver<T> = BTreeMap<u64, Arc<Inode<T>>>;

/// Where the inodes of a mount are entered.
pub(crate) struct Register<P> {
    ledger: Arc<Ledger>,
    keeper: Arc<dyn Keeper<P>>,
}

/// An inode's row, and its path with the keeper.
pub(crate) struct Entry<P> {
    row: InodeEntry,
    keeper: Arc<dyn Keeper<P>>,
}

impl<P> Register<P> {
    pub(crate) fn of(lasting: &Lasting<P>) -> Self {
        Self { ledger: lasting.ledger.clone(), keeper: lasting.keeper.clone() }
    }

    pub(crate) const fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }

    pub(crate) fn enter(&self, row: &InodeRow, lookups: u64, marks: &[Mark]) -> Entry<P> {
        self.entry(self.ledger.enter(row, lookups, marks))
    }

    fn entry(&self, row: InodeEntry) -> Entry<P> {
        Entry { row, keeper: self.keeper.clone() }
    }
}

impl<P> Entry<P> {
    pub(crate) const fn row(&self) -> &InodeEntry {
        &self.row
    }

    /// The name that leads to it is about to go.
    pub(crate) fn keep(&self, path: &P) {
        if self.row.has(Mark::Kept) {
            return;
        }
        match self.keeper.keep(self.row.number(), path) {
            Ok(()) => self.row.mark(Mark::Kept),
            Err(_) => self.row.set_unkept(true),
        }
    }

    /// A name leads to it, or it is gone.
    pub(crate) fn let_go(&self) {
        self.row.set_unkept(false);
        if self.row.has(Mark::Kept) {
            self.row.unmark(Mark::Kept);
            self.keeper.let_go(self.row.number());
        }
    }
}

impl<P> Drop for Entry<P> {
    fn drop(&mut self) {
        if self.row.has(Mark::Kept) && !self.row.ledger().is_left() {
            self.keeper.let_go(self.row.number());
        }
    }
}

/// The kinds of inodes, in the order of their numbers in a row.
const KINDS: [FileKind; 8] = [
    FileKind::File,
    FileKind::Directory,
    FileKind::Symlink,
    FileKind::Fifo,
    FileKind::Socket,
    FileKind::CharacterDevice,
    FileKind::BlockDevice,
    FileKind::Unknown,
];

/// What a row has of an inode.
pub(crate) fn row_of<T: Tree>(inode: &Inode<T>) -> InodeRow {
    InodeRow {
        node: inode.node,
        inode: inode.key.inode,
        birth: inode.key.birth.0,
        generation: inode.generation as u32,
        kind: KINDS.iter().position(|kind| *kind == inode.kind).map_or(7, |at| at as u8),
        managed: inode.managed,
        device: (inode.device.major, inode.device.minor),
    }
}

impl<T: Tree> Inodes<T> {
    /// Takes over what the ledger has. Call it before the kernel's first request.
    pub(crate) async fn take_over(
        &self,
        lasting: Lasting<T::Path>,
        known: impl Fn(FileKey) -> Option<Arc<KnownIn<T>>>,
    ) -> TakenOver<T> {
        let register = Register::of(&lasting);
        let stored = lasting.ledger.stored_inodes();
        let mut kept = lasting.kept;
        let mut all = TakenOver::from([(0, self.root().clone())]);
        let mut places = Vec::new();
        let mut forgotten = Vec::new();
        let mut of_keeper = Vec::new();
        for mut one in stored {
            let number = one.entry.number();
            let is_superseded = one.has(Mark::Superseded);
            if one.has(Mark::Kept) {
                of_keeper.push((number, kept.remove(&number)));
            }
            places.extend(one.place.take().map(|place| (number, place)));
            let lookups = one.lookups;
            let inode = restored(&self.home, &register, one, &known);
            if lookups == 0 && !is_superseded {
                forgotten.push(inode.clone());
            }
            self.put(&inode, is_superseded);
            all.insert(number, inode);
        }
        // What was kept a moment before the end, and not noted.
        kept.into_keys().for_each(|number| lasting.keeper.let_go(number));
        for (number, place) in places {
            // A row without its directory is of an inode that nothing holds.
            if let (Some(inode), Some(directory)) = (all.get(&number), all.get(&place.directory)) {
                inode.restore_place(directory, &place.name);
            }
        }
        for (number, path) in of_keeper {
            if let Some(inode) = all.get(&number) {
                self.take_back(inode, path).await;
            }
        }
        for inode in forgotten {
            self.home.remember(&inode);
        }
        all
    }

    /// Puts the path of a file in that no name leads to, or of one whose name stayed after all.
    async fn take_back(&self, inode: &Arc<Inode<T>>, path: Option<T::Path>) {
        let Some(path) = path else {
            // The keeper has lost it.
            inode.slot.set_gone();
            return inode.mark(Mark::Gone);
        };
        let links = self.home.tree.look(&path, Freshness::Usual).await.map_or(0, |found| found.links);
        let is_named = inode.is_found().await;
        let open = self.home.open.put(inode, path);
        if is_named {
            inode.let_go_of_kept();
        } else if links == 0 || inode.kind == FileKind::Directory {
            self.home.open.keep(inode, open);
        } else {
            // It has other names, and none of them is known.
            drop(inode.take_place());
        }
    }
}

/// An inode as its row has it, without a place and a path.
fn restored<T: Tree>(
    home: &Arc<Home<T>>,
    register: &Register<T::Path>,
    one: StoredInode,
    known: impl Fn(FileKey) -> Option<Arc<KnownIn<T>>>,
) -> Arc<Inode<T>> {
    let marks = [Mark::Gone, Mark::Replaced, Mark::Lost, Mark::Unsynced, Mark::Newcomer].map(|mark| one.has(mark));
    let [is_gone, is_replaced, is_lost, is_unsynced, newcomer] = marks;
    let StoredInode { row, lookups, entry, .. } = one;
    let key = FileKey { inode: row.inode, birth: UnixNanos(row.birth) };
    let known = Some(key).filter(|_| row.managed && !is_gone && !is_replaced).and_then(known);
    let unsynced = Unsynced::default();
    if is_unsynced {
        unsynced.note();
    }
    let found = crate::Found {
        device: DeviceNumber { major: row.device.0, minor: row.device.1 },
        inode: row.inode,
        kind: KINDS.get(usize::from(row.kind)).copied().unwrap_or(FileKind::Unknown),
        ..crate::Found::default()
    };
    let before = Before { managed: row.managed, known, unsynced, newcomer, lookups };
    let entry = register.entry(entry);
    let inode = Inode::of_row(home, row.node, row.generation.into(), key, &found, before, Some(entry));
    if is_replaced {
        inode.set_replaced();
    }
    if is_lost {
        inode.set_lost();
    }
    if is_gone {
        inode.slot.set_gone();
    }
    inode
}

impl<T: Tree> Inode<T> {
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

    pub(crate) fn mark(&self, mark: Mark) {
        if let Some(entry) = &self.entry {
            entry.row().mark(mark);
        }
    }

    /// It was changed at the origin alone. Call it before the caller has its answer.
    pub(crate) fn note_unsynced(&self) {
        // The lock keeps the mark and the count together.
        let _place = self.place_slot();
        self.unsynced.note();
        self.mark(Mark::Unsynced);
    }

    /// Syncs it, if there is something to sync.
    pub(crate) async fn settle_unsynced(&self, sync: impl Future<Output = Result<()>>) -> Result<()> {
        self.unsynced.settle(sync).await?;
        if let Some(entry) = &self.entry {
            let _place = self.place_slot();
            if !self.unsynced.is_so() {
                entry.row().unmark(Mark::Unsynced);
            }
        }
        Ok(())
    }

    /// Whether its place leads to it.
    async fn is_found(&self) -> bool {
        let (Some((parent, name)), Ok(home)) = (self.place(), self.home()) else { return false };
        let Ok(directory) = parent.reach().await else { return false };
        home.tree.look_in(&directory, &name).await.is_ok_and(|found| found.key() == self.key)
    }

    pub(crate) fn restore_place(&self, directory: &Arc<Self>, name: &[u8]) {
        let place = NameInDirectory::of(directory, name);
        *self.place_slot() = Some(place);
    }
}

/// Whether a node id is one of the mount's own.
pub(crate) const fn is_foreign(node: u64) -> bool {
    node >= FOREIGN && node != ROOT
}

impl<P> fmt::Debug for Lasting<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lasting({:?})", self.ledger.counts())
    }
}
