//! What the kernel believes of a mount: the inodes that it knows, what it has open, and what it was told. A successor
//! of the process that served the mount reads it, and goes on.
//!
//! Invariants
//! - Between any two stores the ledger is readable. A row counts once its first word, which is stored last, says so. A
//!   place is written into a row of its own, and then one word of the inode's row changes.
//! - A row is written before the kernel has the answer that depends on it, and cleared before the kernel's word that
//!   ends it is answered. So a successor knows all that the kernel holds. It may know something that the kernel never
//!   heard of: that stays until the unmount, unless the request is sent again ([`MountLedger::counted`]).
//! - What has no row for want of room is counted. A successor refuses as long as there is any.
//!
//! Price: for each new inode, name or handle a lock that is never held for long, and some stores to memory; none for
//! reads and writes of data.

mod asked;
mod handles;
mod inodes;
mod layout;
mod promises;
mod table;
mod words;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub use asked::ExchangeRow;
pub use handles::{HandleEntry, HandleKind, HandleRow};
pub use inodes::{InodeEntry, InodeMark, InodeRow, PlaceRow, StoredInode};
pub use layout::LedgerRoom;
pub use promises::{PromiseEntry, PromiseRow};

use layout::{
    AT_AGREED, AT_FORGOTTEN_UNSYNCED, AT_HANDLES, AT_INODES, AT_MISSING, AT_NEXT_FOREIGN, AT_NUMBERS, AT_VERSION,
    Layout, VERSION,
};
use table::Table;
use words::Words;

/// The share of the rows that is free when the ledger is crowded, as a fraction: room for what the kernel takes in while
/// it is asked to forget others.
const CROWDED: usize = 4;

/// See the module.
#[derive(Debug)]
pub struct MountLedger {
    words: Words,
    layout: Layout,
    inodes: Table,
    places: Table,
    handles: Table,
    promises: Table,
    /// Rows stay, whatever is dropped.
    is_left: AtomicBool,
}

/// Why a worker cannot go on from a ledger.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LedgerRefusal {
    /// Another version of headpond wrote it, or no ledger is there.
    Layout,
    /// There are fewer words than it needs.
    Words {
        /// How many it needs.
        needed: usize,
        /// How many there are.
        there: usize,
    },
    /// It had no room for so many inodes and handles.
    Incomplete(u64),
    /// The worker before agreed on something else with the kernel.
    Agreement,
}

impl fmt::Display for LedgerRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let helps = "To go on: unmount, and mount again";
        match self {
            Self::Layout => write!(f, "the state of the mount is of another version of headpond. {helps}"),
            Self::Words { needed, there } => {
                write!(f, "the state of the mount needs {needed} words, and there are {there}. {helps}")
            }
            Self::Incomplete(missing) => {
                write!(f, "the state of the mount lacks {missing} files that were in use. {helps}")
            }
            Self::Agreement => write!(f, "the mount has other properties than this version would give it. {helps}"),
        }
    }
}

impl std::error::Error for LedgerRefusal {}

impl MountLedger {
    /// A new ledger in words that are all 0.
    ///
    /// # Errors
    /// If there are too few words.
    pub fn create(words: &'static [AtomicU64], room: LedgerRoom) -> Result<Arc<Self>, LedgerRefusal> {
        let words = Words::over(words);
        enough(words, room.words())?;
        words.set(AT_INODES, room.inodes.into());
        words.set(AT_HANDLES, room.handles.into());
        (0..3).for_each(|kind| words.set(AT_NUMBERS + kind, 1));
        words.set(AT_VERSION, VERSION);
        Ok(Arc::new(Self::over(words, Layout::of(room))))
    }

    /// A new ledger of a process that `lives` asks about before each store.
    ///
    /// # Errors
    /// As of [`create`](Self::create).
    #[cfg(any(test, feature = "mortal"))]
    pub fn create_mortal(
        words: &'static [AtomicU64],
        room: LedgerRoom,
        lives: words::Lives,
    ) -> Result<Arc<Self>, LedgerRefusal> {
        drop(Self::create(words, room)?);
        Ok(Arc::new(Self::over(Words::over(words).while_it_lives(lives), Layout::of(room))))
    }

    /// The ledger that a process before this one left. That process must have ended.
    ///
    /// # Errors
    /// If it cannot be used.
    pub fn open(words: &'static [AtomicU64]) -> Result<Arc<Self>, LedgerRefusal> {
        let words = Words::over(words);
        enough(words, AT_NUMBERS)?;
        if words.get(AT_VERSION) != VERSION {
            return Err(LedgerRefusal::Layout);
        }
        let [inodes, handles] = [AT_INODES, AT_HANDLES].map(|at| u32::try_from(words.get(at)));
        let (Ok(inodes), Ok(handles)) = (inodes, handles) else { return Err(LedgerRefusal::Layout) };
        let room = LedgerRoom { inodes, handles };
        enough(words, room.words())?;
        match words.get(AT_MISSING) {
            0 => Ok(Arc::new(Self::over(words, Layout::of(room)))),
            missing => Err(LedgerRefusal::Incomplete(missing)),
        }
    }

    fn over(words: Words, layout: Layout) -> Self {
        let counts = |extent: table::Extent| move |row| words.get(extent.at(row, 0)) != 0;
        let placed = inodes::placed(words, layout.inodes, layout.places);
        Self {
            words,
            layout,
            inodes: Table::open(words, layout.inodes, counts(layout.inodes)),
            places: Table::open(words, layout.places, |row| placed.get(row as usize) == Some(&true)),
            handles: Table::open(words, layout.handles, counts(layout.handles)),
            promises: Table::open(words, layout.promises, counts(layout.promises)),
            is_left: AtomicBool::new(false),
        }
    }

    /// Notes, or compares, what a worker agreed on with the kernel when it mounted.
    ///
    /// # Errors
    /// If that was something else.
    pub fn agree(&self, on: u64) -> Result<(), LedgerRefusal> {
        match self.words.get(AT_AGREED) {
            0 => self.words.set(AT_AGREED, on),
            there if there == on => {}
            _ => return Err(LedgerRefusal::Agreement),
        }
        Ok(())
    }

    /// How many inodes, handles and promises have no row, for want of room.
    #[must_use]
    pub fn missing(&self) -> u64 {
        self.words.get(AT_MISSING)
    }

    /// How many inodes and handles have a row.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        (self.inodes.count(), self.handles.count())
    }

    /// Whether it is nearly full of inodes.
    #[must_use]
    pub fn is_crowded(&self) -> bool {
        let rows = self.layout.inodes.rows as usize;
        self.inodes.count() >= rows - rows / CROWDED
    }

    /// How many inodes should go, so that it is not crowded again at once.
    #[must_use]
    pub fn wanted_room(&self) -> usize {
        self.layout.inodes.rows as usize / CROWDED
    }

    /// The number of the next file on another file system.
    #[must_use]
    pub fn next_foreign(&self) -> u64 {
        self.words.get(AT_NEXT_FOREIGN)
    }

    /// Sets that number.
    pub fn set_next_foreign(&self, next: u64) {
        self.words.set(AT_NEXT_FOREIGN, next);
    }

    /// The kernel forgot a file before it was synced, and the file's row went.
    pub fn note_forgotten_unsynced(&self) {
        self.words.mark(AT_FORGOTTEN_UNSYNCED, 1);
    }

    /// Whether that ever happened.
    #[must_use]
    pub fn forgot_unsynced(&self) -> bool {
        self.words.get(AT_FORGOTTEN_UNSYNCED) != 0
    }

    /// This process ends and another one goes on: from now on the drop of an entry leaves its row.
    pub fn leave(&self) {
        self.is_left.store(true, Ordering::Release);
    }

    /// Whether the drop of an entry leaves its row.
    #[must_use]
    pub fn is_left(&self) -> bool {
        self.is_left.load(Ordering::Acquire)
    }

    /// Something has no row.
    fn lacks_one(&self) {
        self.words.add(AT_MISSING, 1);
    }

    /// Something that had no row is gone.
    fn lacks_one_less(&self) {
        self.words.take(AT_MISSING, 1);
    }
}

fn enough(words: Words, needed: usize) -> Result<(), LedgerRefusal> {
    let there = words.len();
    if there < needed { Err(LedgerRefusal::Words { needed, there }) } else { Ok(()) }
}

#[cfg(test)]
mod tests;
