//! Misses that go forward through an object, step by step: what lies ahead of them will be asked for next.
//!
//! A database's redo log is the case that matters. Written round and round, it comes back to blocks that the pool had no room
//! to keep, and each of them that is written in part has to be read first, while a commit waits. Neighbours of all the other
//! misses say nothing about that (`neighbours.rs`), so a trail speaks for itself.
//!
//! Invariant: misses at random places, of however many requests at once, make no trail worth mentioning: each step has to begin
//! within [`REACH`] behind the one before.

use std::collections::VecDeque;

use headpond_base::{Block, ObjectId};

use crate::locks::Span;

/// As many are followed at once: the longest without a step is forgotten first.
const TRAILS: usize = 64;
/// A step begins so many blocks behind the one before at most: blocks that are written whole in between need no read.
const REACH: u64 = 32;
/// So many steps are no chance any more.
const SURE: u32 = 2;

struct Trail {
    object: ObjectId,
    /// Behind its last step, or behind what was brought for it.
    end: Block,
    steps: u32,
}

/// The trails of all objects. Owned by the engine.
#[derive(Default)]
pub(crate) struct Trails(VecDeque<Trail>);

impl Trails {
    /// A miss. Answers with whether it is a step of a trail.
    pub(crate) fn leads_to(&mut self, object: ObjectId, missed: Span) -> bool {
        let reaches =
            |trail: &Trail| trail.object == object && trail.end <= missed.first && missed.first < trail.end.plus(REACH);
        let before = self.0.iter().position(reaches).and_then(|index| self.0.remove(index));
        let steps = before.map_or(0, |trail| trail.steps.saturating_add(1));
        if self.0.len() == TRAILS {
            self.0.pop_front();
        }
        self.0.push_back(Trail { object, end: missed.end, steps });
        steps >= SURE
    }

    /// What lies ahead of the last step was brought up to `end`: the trail goes on behind it.
    pub(crate) fn brought(&mut self, end: Block) {
        if let Some(last) = self.0.back_mut() {
            last.end = last.end.max(end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OBJECT: ObjectId = ObjectId(1);

    fn at(block: u64) -> Span {
        Span { first: Block(block), end: Block(block + 1) }
    }

    #[test]
    fn the_third_miss_of_a_row_is_a_step_and_so_is_the_first_behind_what_was_brought() {
        let mut trails = Trails::default();
        let steps: Vec<_> = [10, 11, 15].map(|block| trails.leads_to(OBJECT, at(block))).into();
        assert_eq!(steps, [false, false, true]);
        trails.brought(Block(140));
        assert!(trails.leads_to(OBJECT, at(141)));
        assert!(!trails.leads_to(ObjectId(2), at(142)), "another object");
    }

    #[test]
    fn misses_that_go_back_or_far_ahead_are_no_steps() {
        let mut trails = Trails::default();
        let back = (0..20).rev().any(|block| trails.leads_to(OBJECT, at(block)));
        let far = (1..20).any(|step| trails.leads_to(OBJECT, at(step * 100)));
        assert!(!back && !far);
    }

    #[test]
    fn trails_between_many_other_misses_are_followed_and_forgotten_in_the_end() {
        let mut trails = Trails::default();
        let far = |number: u64| at(1_000_000 + number * 1000);
        let mut step = |block: u64, others: u64| {
            (0..others).for_each(|number| assert!(!trails.leads_to(OBJECT, far(number + block * 100))));
            trails.leads_to(OBJECT, at(block))
        };
        assert!(!step(1, 0) && !step(2, 50));
        assert!(step(3, 50));
        assert!(!step(4, TRAILS as u64));
    }
}
