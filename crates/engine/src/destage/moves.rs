//! Blocks that reclaim took elsewhere on flash while a job was busy with them. What the origin was given is
//! still what they hold, so they are clean once it is synced: else a block whose turn comes while its segment is
//! emptied would stay dirty for another way round.
//!
//! Invariant: all slots that are remembered for a block held the same bytes. Whatever changes a block forgets them
//! in the same step (`Engine::poison`).

use std::collections::BTreeMap;

use headpond_base::{Block, ObjectId};
use headpond_map::Slot;

use super::Destage;
use crate::locks::Span;

/// The slots that each moved block had while a job lasted, in order. No more blocks than are moved in that time.
#[derive(Default)]
pub(super) struct Moves(BTreeMap<Block, Vec<Slot>>);

impl Moves {
    fn note(&mut self, block: Block, from: Slot, to: Slot) {
        let slots = self.0.entry(block).or_default();
        if !slots.last().is_some_and(|last| last.is_where(&from)) {
            *slots = vec![from];
        }
        slots.push(to);
    }

    fn forget(&mut self, span: Span) {
        self.0.retain(|block, _| !span.contains(*block));
    }

    /// Whether a block held the same bytes in both slots.
    pub(super) fn same(&self, block: Block, one: Slot, other: Slot) -> bool {
        let was_in = |slot| self.0.get(&block).is_some_and(|slots| slots.iter().any(|had| had.is_where(&slot)));
        one.is_where(&other) || was_in(one) && was_in(other)
    }
}

impl Destage {
    /// Reclaim has moved a dirty block.
    pub(crate) fn note_moved(&mut self, object: ObjectId, block: Block, from: Slot, to: Slot) {
        for job in self.jobs.values_mut().filter(|job| job.object == object) {
            job.moves.note(block, from, to);
        }
    }

    /// These blocks are being changed.
    pub(crate) fn forget_moves(&mut self, object: ObjectId, span: Span) {
        for job in self.jobs.values_mut().filter(|job| job.object == object) {
            job.moves.forget(span);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_base::Location;

    fn slot(at: u32) -> Slot {
        Slot {
            location: Location(at.into()),
            checksum: at.wrapping_mul(7),
            packed: false,
            dirty: true,
            kept: true,
            class: headpond_base::Class::EVERYBODY,
        }
    }

    #[test]
    fn moved_twice_it_is_the_same_and_once_changed_it_is_not() {
        let (block, mut moves) = (Block(5), Moves::default());
        moves.note(block, slot(1), slot(2));
        moves.note(block, slot(2), slot(3));
        assert!(moves.same(block, slot(1), slot(3)) && moves.same(block, slot(2), slot(3)));
        assert!(!moves.same(block, slot(1), slot(4)) && !moves.same(Block(6), slot(1), slot(3)));
        moves.forget(Span { first: Block(5), end: Block(6) });
        moves.note(block, slot(4), slot(5));
        assert!(!moves.same(block, slot(1), slot(5)) && moves.same(block, slot(4), slot(5)));
    }
}
