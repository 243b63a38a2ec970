//! What outlives the process: rows of inodes in a ledger, and descriptors of files that no name leads to, with a
//! keeper. A successor takes both over (`take_over.rs`).
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

use headpond_base::Result;
use headpond_ledger::{InodeEntry, InodeMark, InodeRow, MountLedger};

use crate::FileKind;

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
    pub ledger: Arc<MountLedger>,
    /// Keeps paths of files that no name leads to.
    pub keeper: Arc<dyn Keeper<P>>,
    /// What it kept for the process before, by number.
    pub kept: BTreeMap<u64, P>,
}

/// Where the inodes of a mount are entered.
pub(crate) struct Register<P> {
    ledger: Arc<MountLedger>,
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

    pub(crate) const fn ledger(&self) -> &Arc<MountLedger> {
        &self.ledger
    }

    pub(crate) fn enter(&self, row: &InodeRow, lookups: u64, marks: &[InodeMark]) -> Entry<P> {
        self.entry(self.ledger.enter(row, lookups, marks))
    }

    pub(crate) fn entry(&self, row: InodeEntry) -> Entry<P> {
        Entry { row, keeper: self.keeper.clone() }
    }
}

impl<P> Entry<P> {
    pub(crate) const fn row(&self) -> &InodeEntry {
        &self.row
    }

    /// The name that leads to it is about to go.
    pub(crate) fn keep(&self, path: &P) {
        if self.row.has(InodeMark::Kept) {
            return;
        }
        match self.keeper.keep(self.row.number(), path) {
            Ok(()) => self.row.mark(InodeMark::Kept),
            Err(_) => self.row.set_unkept(true),
        }
    }

    /// A name leads to it, or it is gone.
    pub(crate) fn let_go(&self) {
        self.row.set_unkept(false);
        if self.row.has(InodeMark::Kept) {
            self.row.unmark(InodeMark::Kept);
            self.keeper.let_go(self.row.number());
        }
    }
}

impl<P> Drop for Entry<P> {
    fn drop(&mut self) {
        if self.row.has(InodeMark::Kept) && !self.row.ledger().is_left() {
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

/// The number of a kind in a row.
pub(crate) fn number_of(kind: FileKind) -> u8 {
    KINDS.iter().position(|known| *known == kind).map_or(7, |at| at as u8)
}

/// The kind with this number.
pub(crate) fn kind_of(number: u8) -> FileKind {
    KINDS.get(usize::from(number)).copied().unwrap_or(FileKind::Unknown)
}

impl<P> fmt::Debug for Lasting<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lasting({:?})", self.ledger.counts())
    }
}
