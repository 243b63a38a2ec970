//! A run: neighbouring dirty blocks of one object that go to the origin in one write.

use headpond_base::{Block, Buf, Location};
use headpond_map::Slot;

/// The largest origin write, in blocks: 1 MiB.
pub(super) const RUN_BLOCKS_MAX: usize = 256;

/// Neighbouring dirty blocks, all data or all zeros.
pub(super) struct Run {
    pub(super) first: Block,
    /// As they were when the run was picked.
    pub(super) slots: Vec<Slot>,
    /// The blocks' bytes, as far as they are read.
    pub(super) bytes: Vec<Option<Buf>>,
    /// Flash reads under way.
    pub(super) reading: u32,
    /// Dirty data that cannot be read: the run must not be written.
    pub(super) unreadable: bool,
}

impl Run {
    fn new(first: Block, slot: Slot) -> Self {
        Self { first, slots: vec![slot], bytes: Vec::new(), reading: 0, unreadable: false }
    }

    pub(super) fn zeros(&self) -> bool {
        self.slots[0].location == Location::ZERO
    }

    fn takes(&self, block: Block, slot: Slot) -> bool {
        self.slots.len() < RUN_BLOCKS_MAX
            && block == self.first.plus(self.slots.len() as u64)
            && (slot.location == Location::ZERO) == self.zeros()
    }

    /// Adds a block to the last run, or starts a new one.
    pub(super) fn collect(runs: &mut Vec<Self>, block: Block, slot: Slot) {
        match runs.last_mut() {
            Some(last) if last.takes(block, slot) => last.slots.push(slot),
            _ => runs.push(Self::new(block, slot)),
        }
    }
}
