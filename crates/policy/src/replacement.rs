//! What every policy can do, and what it asks of the owner of the blocks.
//!
//! The order of calls, for each block that a request touches:
//! 1. [`Replacement::touch`]. `true`: it is kept, and now counts as used once more.
//! 2. If not: the owner gets it from the origin, or has it because it was written, and calls
//!    [`Replacement::admit`], which first makes room through [`Host::evicted`].
//!
//! Invariants, for every policy:
//! - Never more than `capacity` blocks are kept.
//! - Only a block for which [`Host::evictable`] just said `true` is evicted. One that may not go
//!   is put aside and not asked for again before [`Replacement::release`]; so a pool full of
//!   dirty blocks costs one question for each, not one for each eviction.
//! - A clean block is written to flash only if [`Host::fill`] said `true` for it.
//! - Memory is taken when a policy is made, by its capacity, and never grows.

use crate::Key;

/// Why a block comes in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Insertion {
    /// Read from the origin: keeping it costs a flash write.
    Read,
    /// It is on flash whatever the policy thinks of it: written by the application, or kept by
    /// another policy before.
    OnFlash,
}

/// Where an admitted block is to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Admitted {
    /// On flash.
    Flash,
    /// In memory for now: it has yet to show that it is worth a flash write.
    Memory,
    /// Nowhere: not wanted, or nothing may go to make room for it.
    Refused,
}

/// A block that a policy gave up because it was told to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Evicted {
    /// The block.
    pub key: Key,
    /// Whether it is only in memory.
    pub in_memory: bool,
}

/// The owner of the blocks.
pub trait Host {
    /// Whether this block may be dropped: it is clean, not pinned, and nobody is busy with it.
    fn evictable(&mut self, key: Key) -> bool;

    /// A clean block is about to be written to flash. `false` if it must not be, for want of
    /// budget or room; then it is dropped, and no call of [`Host::evicted`] follows.
    fn fill(&mut self, key: Key) -> bool;

    /// This block is not kept any more.
    fn evicted(&mut self, key: Key);
}

/// A replacement policy.
pub trait Replacement {
    /// How many blocks it keeps at most.
    fn capacity(&self) -> usize;

    /// How many it keeps, those included that are put aside because they may not go.
    fn len(&self) -> usize;

    /// Whether it keeps none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether this block is kept. Changes nothing.
    fn contains(&self, key: Key) -> bool;

    /// The block is used. `false` if it is not kept.
    fn touch(&mut self, key: Key) -> bool;

    /// The block comes in, after a [`Replacement::touch`] that said `false`.
    fn admit(&mut self, key: Key, insertion: Insertion, host: &mut dyn Host) -> Admitted;

    /// A kept block was overwritten, so it is on flash now if it was only in memory.
    fn wrote(&mut self, key: Key) {
        let _ = key;
    }

    /// Evicts one block. `None` if there is none that may go.
    fn evict(&mut self, host: &mut dyn Host) -> Option<Key>;

    /// A block that could not be evicted now can: it became clean, or was unpinned. Harmless for
    /// any other.
    fn release(&mut self, key: Key);

    /// The block is gone: its file was removed or cut, or it was lost. `None` if it was not kept.
    fn forget(&mut self, key: Key) -> Option<Evicted>;

    /// Gives up one block, roughly the one that would go first, whether or not it may go: its
    /// next owner is another policy.
    fn take(&mut self) -> Option<Evicted>;

    /// Bytes of memory that the policy takes at its capacity.
    fn memory(&self) -> usize;
}
