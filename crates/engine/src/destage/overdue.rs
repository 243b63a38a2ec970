//! Blocks that a round passed over though they are old, because they changed place or were not durable just then: the
//! elevator turns back for them, as by its next way round they could be older than `flush-period` allows.
//!
//! Invariant: it turns back at most once for a block in each way through all that is dirty, so a way ends.

use headpond_base::{Block, Location, Nanos, ObjectId};
use headpond_map::Slot;

use super::job::Job;
use crate::config::Config;
use crate::engine::Engine;

/// Old is what is older than this part of the period. What is younger has time for a whole way.
const OLD: u64 = 4;

/// Up to where the elevator has turned back in this way.
pub(super) struct TurnedBack(Option<(ObjectId, Block)>);

impl TurnedBack {
    pub(super) const fn new() -> Self {
        Self(None)
    }

    /// A way begins.
    pub(super) const fn way_begins(&mut self) {
        self.0 = None;
    }
}

impl Engine {
    /// The first block that a paced job should have written and did not, if it is old and nobody has turned back for it.
    pub(super) fn turns_back(&mut self, job: &Job) -> Option<Block> {
        if job.urgent || self.config.flush_period == Config::OFF || self.store.log.failed() {
            return None;
        }
        let old = Nanos(self.config.flush_period.0 / OLD);
        let from = match self.destage.turned_back.0 {
            Some((object, block)) if object == job.object => job.from.max(block.next()),
            _ => job.from,
        };
        let end = job.forward.unwrap_or(Block(u64::MAX));
        let passed = self.store.get(job.object)?.map.dirty_from(from).take_while(|(block, _)| *block < end);
        let overdue =
            |slot: Slot| slot.location != Location::ZERO && self.now.since(self.store.dirty_since(slot)) >= old;
        let block = passed.into_iter().find_map(|(block, slot)| overdue(slot).then_some(block))?;
        self.destage.turned_back.0 = Some((job.object, block));
        Some(block)
    }
}
