//! What was done for requests that may not have been answered. Each entry is overwritten by a much later one.
//!
//! ```text
//!   counted    request | node           a lookup of the node was counted for the request
//!   exchange   request | inode | birth  the request moves this file, and a look at the origin alone does not tell
//!                                       whether it has
//! ```
//!
//! A request's number has bit 63 clear here, however often it was sent. The kernel gives none twice to a mount.

use std::collections::BTreeMap;

use crate::MountLedger;
use crate::layout::{AT_NEXT_COUNTED, AT_NEXT_EXCHANGE, COUNTED, EXCHANGES};

/// A file that a request moves: its key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExchangeRow {
    /// Its number at the origin.
    pub inode: u64,
    /// Its birth time at the origin, or 0.
    pub birth: i64,
}

impl MountLedger {
    /// A lookup of this node was just counted for a request. Call it before the answer.
    pub fn note_counted(&self, unique: u64, node: u64) {
        let at = self.layout.counted + 2 * next(self.words.add(AT_NEXT_COUNTED, 1), COUNTED);
        self.words.set(at, 0);
        self.words.set(at + 1, node);
        self.words.set(at, unique);
    }

    /// The nodes of which lookups were counted, by request.
    #[must_use]
    pub fn counted(&self) -> BTreeMap<u64, u64> {
        let at = |entry| self.layout.counted + 2 * entry;
        let all = (0..COUNTED).map(|entry| (self.words.get(at(entry)), self.words.get(at(entry) + 1)));
        all.filter(|(unique, _)| *unique != 0).collect()
    }

    /// A request is about to move this file. Call it before the move.
    pub fn note_exchange(&self, unique: u64, moved: ExchangeRow) {
        let at = self.layout.exchanges + 4 * next(self.words.add(AT_NEXT_EXCHANGE, 1), EXCHANGES);
        self.words.set(at, 0);
        self.words.set(at + 1, moved.inode);
        self.words.set(at + 2, moved.birth.cast_unsigned());
        self.words.set(at, unique);
    }

    /// What requests were about to move, by request.
    #[must_use]
    pub fn exchanges(&self) -> BTreeMap<u64, ExchangeRow> {
        let of = |entry| {
            let get = |word| self.words.get(self.layout.exchanges + 4 * entry + word);
            (get(0), ExchangeRow { inode: get(1), birth: get(2).cast_signed() })
        };
        (0..EXCHANGES).map(of).filter(|(unique, _)| *unique != 0).collect()
    }
}

fn next(count: u64, entries: usize) -> usize {
    usize::try_from(count % entries as u64).unwrap_or(0)
}
