//! What every policy can do, and what it asks of the owner of the blocks.
//!
//! The order of calls, for each block that a request touches:
//! 1. [`Replacement::touch`]. `true`: the block is kept, and one more use is counted.
//! 2. If not: the owner gets the block from the origin, or has it from a write, and calls [`Replacement::admit`]. That
//!    first makes room through [`Host::evicted`].
//!
//! Invariants, for every policy:
//! - Never more than `capacity` blocks are kept.
//! - A block is evicted only directly after [`Host::evictable`] returned `true` for it. A block that may not go is put
//!   aside, and not asked for again before [`Replacement::release`]. So a pool full of dirty blocks costs one question
//!   for each block, not one for each eviction.
//! - A clean block is written to flash only if [`Host::fill`] returned `true` for it.
//! - A policy takes its memory when it is made, by its capacity, and never grows.

use crate::Key;

/// Why a block comes in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Insertion {
    /// Read from the origin: it costs a flash write to keep it.
    Read,
    /// On flash whatever the policy decides: the application wrote it, or another policy kept it before.
    OnFlash,
}

/// Where an admitted block belongs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Admitted {
    /// On flash.
    Flash,
    /// In memory for now: it has not yet proved worth a flash write.
    Memory,
    /// Nowhere: the policy does not want it, or no block may go for it.
    Refused,
}

/// A block that a policy gave up on request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Evicted {
    /// The block.
    pub key: Key,
    /// Whether it is only in memory.
    pub in_memory: bool,
}

/// The owner of the blocks.
pub trait Host {
    /// Whether this block may be dropped: it is clean, not pinned and not in use.
    fn evictable(&mut self, key: Key) -> bool;

    /// Asks to write a clean block to flash. `false` if budget or room is lacking. Then the block is dropped, without
    /// a call of [`Host::evicted`].
    fn fill(&mut self, key: Key) -> bool;

    /// This block is no longer kept.
    fn evicted(&mut self, key: Key);
}

/// A replacement policy.
pub trait Replacement {
    /// The most blocks it keeps.
    fn capacity(&self) -> usize;

    /// How many blocks it keeps, including those put aside.
    fn len(&self) -> usize;

    /// Whether it keeps no blocks.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether this block is kept. Counts no use.
    fn contains(&self, key: Key) -> bool;

    /// Counts a use of the block. `false` if it is not kept.
    fn touch(&mut self, key: Key) -> bool;

    /// Lets the block in, after [`Replacement::touch`] returned `false`.
    fn admit(&mut self, key: Key, insertion: Insertion, host: &mut dyn Host) -> Admitted;

    /// Notes that a kept block was overwritten. If it was only in memory, it is on flash now.
    fn wrote(&mut self, key: Key) {
        let _ = key;
    }

    /// Evicts one block. `None` if none may go.
    fn evict(&mut self, host: &mut dyn Host) -> Option<Key>;

    /// Notes that a block can be evicted now: it became clean, or was unpinned. Harmless for any other block.
    fn release(&mut self, key: Key);

    /// Forgets a block that is gone: its file was removed or cut, or it was lost. `None` if it was not kept.
    fn forget(&mut self, key: Key) -> Option<Evicted>;

    /// Gives up one block, roughly the next to go, even if it may not go: another policy takes it.
    fn take(&mut self) -> Option<Evicted>;

    /// Bytes of memory that the policy takes at its capacity.
    fn memory(&self) -> usize;
}
