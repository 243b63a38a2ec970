//! The memory of a ledger: words, each of which changes in one step.
//!
//! Invariant: a store happens after all earlier ones of the same thread. So who reads the words after a crash sees the
//! stores up to some moment, and none after it.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Words that outlive the process.
#[derive(Clone, Copy)]
pub(crate) struct Words {
    words: &'static [AtomicU64],
    #[cfg(any(test, feature = "mortal"))]
    lives: Option<Lives>,
}

/// Asked before each store: whether the process still lives. Tests end it after any number of stores.
#[cfg(any(test, feature = "mortal"))]
pub type Lives = &'static (dyn Fn() -> bool + Sync);

impl Words {
    pub(crate) const fn over(words: &'static [AtomicU64]) -> Self {
        Self {
            words,
            #[cfg(any(test, feature = "mortal"))]
            lives: None,
        }
    }

    #[cfg(any(test, feature = "mortal"))]
    pub(crate) const fn while_it_lives(self, lives: Lives) -> Self {
        Self { words: self.words, lives: Some(lives) }
    }

    #[cfg(any(test, feature = "mortal"))]
    fn stores(self) -> bool {
        self.lives.is_none_or(|lives| lives())
    }

    #[cfg(not(any(test, feature = "mortal")))]
    const fn stores(self) -> bool {
        true
    }

    pub(crate) const fn len(self) -> usize {
        self.words.len()
    }

    pub(crate) fn get(self, at: usize) -> u64 {
        self.words[at].load(Ordering::Acquire)
    }

    pub(crate) fn set(self, at: usize, value: u64) {
        if self.stores() {
            self.words[at].store(value, Ordering::Release);
        }
    }

    /// Adds, and returns what was there before.
    pub(crate) fn add(self, at: usize, more: u64) -> u64 {
        if self.stores() { self.words[at].fetch_add(more, Ordering::AcqRel) } else { self.get(at) }
    }

    /// Subtracts.
    pub(crate) fn take(self, at: usize, less: u64) {
        if self.stores() {
            self.words[at].fetch_sub(less, Ordering::AcqRel);
        }
    }

    /// Sets these bits. No store if they are set.
    pub(crate) fn mark(self, at: usize, bits: u64) {
        if self.get(at) & bits != bits && self.stores() {
            self.words[at].fetch_or(bits, Ordering::AcqRel);
        }
    }

    /// Clears these bits. No store if they are clear.
    pub(crate) fn unmark(self, at: usize, bits: u64) {
        if self.get(at) & bits != 0 && self.stores() {
            self.words[at].fetch_and(!bits, Ordering::AcqRel);
        }
    }
}

impl fmt::Debug for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Words({})", self.words.len())
    }
}
