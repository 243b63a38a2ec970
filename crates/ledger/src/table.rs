//! Rows of one width. A row counts once its first word, which is stored last, is not 0.
//!
//! Invariants
//! - Rows at or above the table's mark have never been used. So a successor reads only what was used.
//! - The lowest free rows go first, so that the memory in use stays together. The rest takes none.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::words::Words;

/// A table's place among the words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    /// Its first word.
    pub(crate) first: usize,
    /// Words of a row.
    pub(crate) width: usize,
    pub(crate) rows: u32,
    /// The word with the mark.
    pub(crate) mark: usize,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Table {
    words: Words,
    extent: Extent,
    free: Mutex<Free>,
}

#[derive(Debug)]
struct Free {
    rows: BinaryHeap<Reverse<u32>>,
    used: u32,
}

impl Extent {
    pub(crate) const fn words(self) -> Range<usize> {
        self.first..self.first + self.width * self.rows as usize
    }

    pub(crate) const fn at(self, row: u32, word: usize) -> usize {
        self.first + self.width * row as usize + word
    }

    /// The rows that were ever used.
    pub(crate) fn used(self, words: Words) -> Range<u32> {
        0..u32::try_from(words.get(self.mark)).unwrap_or(u32::MAX).min(self.rows)
    }
}

impl Table {
    /// A table in which `counts` says which of the rows ever used are in use.
    pub(crate) fn open(words: Words, extent: Extent, counts: impl Fn(u32) -> bool) -> Self {
        let used = extent.used(words);
        let rows = used.clone().filter(|row| !counts(*row)).map(Reverse).collect();
        Self { words, extent, free: Mutex::new(Free { rows, used: used.end }) }
    }

    /// A row that does not count yet. `None` if all are in use.
    pub(crate) fn take(&self) -> Option<u32> {
        let mut free = self.free();
        if let Some(Reverse(row)) = free.rows.pop() {
            return Some(row);
        }
        let row = (free.used < self.extent.rows).then_some(free.used)?;
        free.used += 1;
        self.words.set(self.extent.mark, free.used.into());
        Some(row)
    }

    /// A row counts no more.
    pub(crate) fn give(&self, row: u32) {
        self.free().rows.push(Reverse(row));
    }

    pub(crate) const fn at(&self, row: u32, word: usize) -> usize {
        self.extent.at(row, word)
    }

    /// The rows that were ever used.
    pub(crate) fn used(&self) -> Range<u32> {
        self.extent.used(self.words)
    }

    /// How many rows count.
    pub(crate) fn count(&self) -> usize {
        let free = self.free();
        free.used as usize - free.rows.len()
    }

    fn free(&self) -> MutexGuard<'_, Free> {
        // Each change is one step.
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
