//! Blocks that a round passed over though they are old, because they changed place or were not durable just then: the
//! elevator turns back for them, as by its next way round they could be older than `flush-period` allows.
//!
//! Invariant: it turns back at most once for a block in each way through all that is dirty, so a way ends.

use headpond_base::{Block, Nanos};
use headpond_map::Slot;

use super::Destaging;
use super::job::Job;

/// Old is what is older than this part of the period. What is younger has time for a whole way.
const OLD: u64 = 4;

impl Destaging<'_> {
    /// The first block that a paced job should have written and did not, if it is old and nobody has turned back for
    /// it.
    pub(super) fn turns_back(&mut self, job: &Job) -> Option<Block> {
        if job.urgent || !self.store.takes_writes() {
            return None;
        }
        let old = Nanos(self.config.period()?.0 / OLD);
        let from = match self.destage.turned_back {
            Some((object, block)) if object == job.object => job.from.max(block.next()),
            _ => job.from,
        };
        let end = job.forward.unwrap_or(Block(u64::MAX));
        let mut passed = self.store.get(job.object)?.map().dirty_from(from).take_while(|(block, _)| *block < end);
        let overdue = |slot: Slot| self.now.since(self.store.dirty_since(slot)) >= old;
        let (block, _) = passed.find(|(_, slot)| overdue(*slot))?;
        self.destage.turned_back = Some((job.object, block));
        Some(block)
    }
}
