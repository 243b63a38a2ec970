//! Rows of inodes, and of their places: a directory and a name in it.
//!
//! ```text
//!   inode row   node | inode | birth | generation, kind, managed | device | lookups | place | marks
//!   place row   directory's row | length | name, 255 bytes
//! ```
//!
//! Invariant: a place counts while an inode's row names it, so a change of place is one store.

use std::sync::Arc;

use crate::MountLedger;
use crate::layout::PLACE_WORDS;
use crate::table::Extent;
use crate::words::Words;

const NODE: usize = 0;
const INODE: usize = 1;
const BIRTH: usize = 2;
const WHAT: usize = 3;
const DEVICE: usize = 4;
const LOOKUPS: usize = 5;
const PLACE: usize = 6;
const MARKS: usize = 7;

/// What of an inode never changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InodeRow {
    /// Its node id. Never 0.
    pub node: u64,
    /// Its number at the origin.
    pub inode: u64,
    /// Its birth time at the origin, or 0.
    pub birth: i64,
    /// What tells it from other files that had its number: 32 bits.
    pub generation: u32,
    /// Its kind, as the name layer numbers them.
    pub kind: u8,
    /// Its content goes through the engine.
    pub managed: bool,
    /// The file system that it is on: major and minor number.
    pub device: (u32, u32),
}

/// What may become of an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum InodeMark {
    /// The engine may know an earlier file by its name.
    Newcomer = 1,
    /// The file is gone, and the origin gave its number to another.
    Replaced = 2,
    /// Its last name went while nothing counted on it.
    Gone = 4,
    /// No name leads to it: the keeper has its descriptor.
    Kept = 8,
    /// It has changes at the origin alone that are not synced.
    Unsynced = 16,
    /// It can never open again.
    Lost = 32,
    /// Another inode has its node by now, with the kernel's lookups.
    Superseded = 64,
    /// No name leads to it, and the keeper could not take its descriptor. It counts as if it had no row.
    Unkept = 128,
}

/// A directory and a name in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlaceRow {
    /// The number of the directory's row, 0 for the root.
    pub directory: u64,
    /// The name.
    pub name: Vec<u8>,
}

/// An inode as it stands in a ledger.
#[derive(Debug)]
pub struct StoredInode {
    /// What of it never changes.
    pub row: InodeRow,
    /// The kernel's lookups.
    pub lookups: u64,
    /// What leads to it.
    pub place: Option<PlaceRow>,
    marks: u64,
    /// Its row, for a part that goes on with it.
    pub entry: InodeEntry,
}

impl StoredInode {
    /// Whether it has this mark.
    #[must_use]
    pub const fn has(&self, mark: InodeMark) -> bool {
        self.marks & mark as u64 != 0
    }
}

/// An inode's row. It counts until this is dropped.
#[derive(Debug)]
pub struct InodeEntry {
    ledger: Arc<MountLedger>,
    /// None if there was no room.
    row: Option<u32>,
}

impl MountLedger {
    /// Enters an inode, without a place.
    pub fn enter(self: &Arc<Self>, inode: &InodeRow, lookups: u64, marks: &[InodeMark]) -> InodeEntry {
        let row = self.inodes.take();
        match row {
            Some(row) => {
                let set = |word, value| self.words.set(self.inodes.at(row, word), value);
                let what = u64::from(inode.generation) | u64::from(inode.kind) << 32 | u64::from(inode.managed) << 40;
                set(INODE, inode.inode);
                set(BIRTH, inode.birth.cast_unsigned());
                set(WHAT, what);
                set(DEVICE, u64::from(inode.device.0) << 32 | u64::from(inode.device.1));
                set(LOOKUPS, lookups);
                set(PLACE, 0);
                set(MARKS, marks.iter().fold(0, |all, mark| all | *mark as u64));
                set(NODE, inode.node);
            }
            None => self.lacks_one(),
        }
        InodeEntry { ledger: self.clone(), row }
    }

    /// All inodes. Call it once, before any is entered.
    #[must_use]
    pub fn stored_inodes(self: &Arc<Self>) -> Vec<StoredInode> {
        let of = |row| {
            let get = |word| self.words.get(self.inodes.at(row, word));
            let (node, what, device) = (get(NODE), get(WHAT), get(DEVICE));
            (node != 0).then(|| StoredInode {
                row: InodeRow {
                    node,
                    inode: get(INODE),
                    birth: get(BIRTH).cast_signed(),
                    generation: what as u32,
                    kind: (what >> 32) as u8,
                    managed: what >> 40 & 1 != 0,
                    device: ((device >> 32) as u32, device as u32),
                },
                lookups: get(LOOKUPS),
                place: self.place(get(PLACE)),
                marks: get(MARKS),
                entry: InodeEntry { ledger: self.clone(), row: Some(row) },
            })
        };
        self.inodes.used().filter_map(of).collect()
    }

    fn place(&self, number: u64) -> Option<PlaceRow> {
        let row = u32::try_from(number.checked_sub(1)?).ok()?;
        let get = |word| self.words.get(self.places.at(row, word));
        let len = usize::try_from(get(1)).unwrap_or(0).min(8 * (PLACE_WORDS - 2));
        let mut name: Vec<u8> = (2..2 + len.div_ceil(8)).flat_map(|word| get(word).to_le_bytes()).collect();
        name.truncate(len);
        Some(PlaceRow { directory: get(0), name })
    }

    fn write_place(&self, row: u32, directory: u64, name: &[u8]) {
        let set = |word, value| self.words.set(self.places.at(row, word), value);
        set(0, directory);
        set(1, name.len() as u64);
        for (word, piece) in name.chunks(8).enumerate() {
            let mut bytes = [0; 8];
            bytes[..piece.len()].copy_from_slice(piece);
            set(2 + word, u64::from_le_bytes(bytes));
        }
    }
}

/// The place rows that inodes name.
pub(crate) fn placed(words: Words, inodes: Extent, places: Extent) -> Vec<bool> {
    let mut placed = vec![false; places.used(words).len()];
    let of = |row| {
        let counts = words.get(inodes.at(row, NODE)) != 0;
        let place = words.get(inodes.at(row, PLACE)).checked_sub(1)?;
        u32::try_from(place).ok().filter(|_| counts)
    };
    for row in inodes.used(words).filter_map(of) {
        if let Some(placed) = placed.get_mut(row as usize) {
            *placed = true;
        }
    }
    placed
}

impl InodeEntry {
    /// The number of its row, by which others name it. 0 if it has none.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.row.map_or(0, |row| u64::from(row) + 1)
    }

    /// The kernel has so many lookups of it.
    pub fn set_lookups(&self, lookups: u64) {
        if let Some(at) = self.at(LOOKUPS) {
            self.ledger.words.set(at, lookups);
        }
    }

    /// The kernel has one more lookup of it.
    pub fn count_lookup(&self) {
        if let Some(at) = self.at(LOOKUPS) {
            self.ledger.words.add(at, 1);
        }
    }

    /// From now on this name leads to it. `directory` is the number of the directory's row, 0 for the root. Call it
    /// with a lock on the place.
    pub fn set_place(&self, directory: u64, name: &[u8]) {
        let ledger = &self.ledger;
        let (Some(at), true) = (self.at(PLACE), name.len() <= 8 * (PLACE_WORDS - 2)) else { return };
        // There are more places than inodes and moves under way. Without one, no name leads to it.
        let place = ledger.places.take();
        if let Some(row) = place {
            ledger.write_place(row, directory, name);
        }
        self.settle(at, place);
    }

    /// No name leads to it any more.
    pub fn clear_place(&self) {
        if let Some(at) = self.at(PLACE) {
            self.settle(at, None);
        }
    }

    fn settle(&self, at: usize, place: Option<u32>) {
        let words = self.ledger.words;
        let earlier = words.get(at).checked_sub(1).and_then(|row| u32::try_from(row).ok());
        words.set(at, place.map_or(0, |row| u64::from(row) + 1));
        earlier.into_iter().for_each(|row| self.ledger.places.give(row));
    }

    /// It has this mark from now on.
    pub fn mark(&self, mark: InodeMark) {
        if let Some(at) = self.at(MARKS) {
            self.ledger.words.mark(at, mark as u64);
        }
    }

    /// It has this mark no more.
    pub fn unmark(&self, mark: InodeMark) {
        if let Some(at) = self.at(MARKS) {
            self.ledger.words.unmark(at, mark as u64);
        }
    }

    /// Whether no name leads to it, and the keeper could not take its descriptor.
    pub fn set_unkept(&self, is_unkept: bool) {
        if self.row.is_none() {
            return;
        }
        match (self.has(InodeMark::Unkept), is_unkept) {
            (false, true) => {
                self.mark(InodeMark::Unkept);
                self.ledger.lacks_one();
            }
            (true, false) => {
                self.unmark(InodeMark::Unkept);
                self.ledger.lacks_one_less();
            }
            _ => {}
        }
    }

    /// Whether it has this mark.
    #[must_use]
    pub fn has(&self, mark: InodeMark) -> bool {
        self.at(MARKS).is_some_and(|at| self.ledger.words.get(at) & mark as u64 != 0)
    }

    /// The ledger that it is in.
    #[must_use]
    pub const fn ledger(&self) -> &Arc<MountLedger> {
        &self.ledger
    }

    fn at(&self, word: usize) -> Option<usize> {
        self.row.map(|row| self.ledger.inodes.at(row, word))
    }
}

impl Drop for InodeEntry {
    fn drop(&mut self) {
        if self.ledger.is_left() {
            return;
        }
        let Some(row) = self.row else { return self.ledger.lacks_one_less() };
        self.set_unkept(false);
        let (words, inodes) = (self.ledger.words, &self.ledger.inodes);
        words.set(inodes.at(row, NODE), 0);
        if let Some(place) = words.get(inodes.at(row, PLACE)).checked_sub(1).and_then(|place| u32::try_from(place).ok())
        {
            self.ledger.places.give(place);
        }
        inodes.give(row);
    }
}
