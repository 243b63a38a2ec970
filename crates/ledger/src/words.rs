//! The memory of a ledger: words, each of which changes in one step.
//!
//! Invariant: a store happens after all earlier ones of the same thread. So who reads the words after a crash sees the
//! stores up to some moment, and none after it.

use std::sync::atomic::{AtomicU64, Ordering};

/// Words that outlive the process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Words(&'static [AtomicU64]);

impl Words {
    pub(crate) const fn over(words: &'static [AtomicU64]) -> Self {
        Self(words)
    }

    pub(crate) const fn len(self) -> usize {
        self.0.len()
    }

    pub(crate) fn get(self, at: usize) -> u64 {
        self.0[at].load(Ordering::Acquire)
    }

    pub(crate) fn set(self, at: usize, value: u64) {
        if stores() {
            self.0[at].store(value, Ordering::Release);
        }
    }

    /// Adds, and returns what was there before.
    pub(crate) fn add(self, at: usize, more: u64) -> u64 {
        if stores() { self.0[at].fetch_add(more, Ordering::AcqRel) } else { self.get(at) }
    }

    /// Subtracts.
    pub(crate) fn take(self, at: usize, less: u64) {
        if stores() {
            self.0[at].fetch_sub(less, Ordering::AcqRel);
        }
    }

    /// Sets these bits. No store if they are set.
    pub(crate) fn mark(self, at: usize, bits: u64) {
        if self.get(at) & bits != bits && stores() {
            self.0[at].fetch_or(bits, Ordering::AcqRel);
        }
    }

    /// Clears these bits. No store if they are clear.
    pub(crate) fn unmark(self, at: usize, bits: u64) {
        if self.get(at) & bits != 0 && stores() {
            self.0[at].fetch_and(!bits, Ordering::AcqRel);
        }
    }
}

/// Whether the process still lives. Tests end it after any number of stores.
#[cfg(not(test))]
const fn stores() -> bool {
    true
}

#[cfg(test)]
pub(crate) use dying::{dies_after, stores};

#[cfg(test)]
mod dying {
    use std::cell::Cell;

    thread_local!(static LEFT: Cell<u64> = const { Cell::new(u64::MAX) });

    /// After so many stores this thread's stores go nowhere.
    pub(crate) fn dies_after(stores: u64) {
        LEFT.set(stores);
    }

    pub(crate) fn stores() -> bool {
        let left = LEFT.get();
        LEFT.set(left.saturating_sub(1));
        left > 0
    }
}
