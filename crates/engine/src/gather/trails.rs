//! Misses that go forward through an object, step by step: what lies ahead of them will be asked for next.
//!
//! A database's redo log is the case that matters. Written round and round, it comes back to blocks that the pool had
//! no room to keep, and each of them that is written in part has to be read first, while a commit waits. Neighbours of
//! all the other misses say nothing about that (`neighbours.rs`), so a trail speaks for itself.
//!
//! A reader on a sure trail gets prefetch of what comes next: a window ahead at first, and twice as far each time it
//! still had to wait. Then no commit waits for the origin, however slow a busy origin is.
//!
//! Invariants:
//! - Misses at random places, of however many requests at once, make no trail worth mentioning: each step has to begin
//!   within [`REACH`] behind the one before.
//! - Requests at random places prefetch nothing, either: a trail goes forward by [`REACH`] at most.

use std::collections::VecDeque;

use headpond_base::{Block, ObjectId};

use crate::locks::Span;

/// As many are followed at once: the longest without a step is forgotten first.
const TRAILS: usize = 64;
/// A step begins so many blocks behind the one before at most: blocks that are written whole in between need no read.
const REACH: u64 = 32;
/// So many steps are no chance any more.
const SURE: u32 = 2;
/// So many windows at most are brought ahead.
const LEAD_MAX: u64 = 8;

struct Trail {
    object: ObjectId,
    /// The last request that followed it.
    last: Span,
    /// Behind what was brought for it, or behind its last step.
    end: Block,
    /// Blocks that are to be brought ahead of the last request.
    lead: u64,
    steps: u32,
}

impl Trail {
    const fn is_sure(&self) -> bool {
        self.steps >= SURE
    }

    /// Where it goes on: what was written whole was not brought.
    fn next(&self) -> Block {
        self.end.max(self.last.end)
    }

    /// Whether a miss is its next step: behind what was brought, or inside of it, should that not be there yet or be
    /// gone again.
    fn leads_to(&self, object: ObjectId, missed: Block) -> bool {
        let from = if self.is_sure() { self.last.first } else { self.end };
        self.object == object && from <= missed && missed < self.next().plus(REACH)
    }

    /// Whether a request for `span` goes on where the last one ended, or a little further. What ends inside a block
    /// goes on in it.
    fn is_followed_by(&self, object: ObjectId, span: Span) -> bool {
        let (from, end) = (self.last.end, span.end);
        self.object == object && from <= span.first.next() && span.first < from.plus(REACH) && from < end
    }
}

/// The trails of all objects. Owned by `Gather`.
#[derive(Default)]
pub(crate) struct Trails {
    /// The one with the latest step is the last.
    trails: VecDeque<Trail>,
    /// How many of them are sure: mostly none, and then a request that misses nothing costs nothing here.
    sure: usize,
}

impl Trails {
    /// A miss. Answers with whether it is a step of a trail that is sure.
    pub(crate) fn leads_to(&mut self, object: ObjectId, missed: Span) -> bool {
        let before = self.trails.iter().position(|trail| trail.leads_to(object, missed.first));
        let before = before.and_then(|index| self.take(index));
        if self.trails.len() == TRAILS {
            self.take(0);
        }
        let (steps, lead) = before.as_ref().map_or((0, 0), |trail| (trail.steps.saturating_add(1), trail.lead));
        let last = before.filter(Trail::is_sure).map_or(missed, |trail| trail.last);
        self.put(Trail { object, last, end: missed.end, lead, steps });
        steps >= SURE
    }

    /// With the last step came what lies ahead of it, up to `end`: the trail goes on behind it.
    pub(crate) fn brought(&mut self, end: Block) {
        if let Some(last) = self.trails.back_mut() {
            last.end = last.end.max(end);
        }
    }

    /// A request. Answers with whether it follows a trail that is sure.
    pub(crate) fn follows(&mut self, object: ObjectId, span: Span) -> bool {
        if self.sure == 0 {
            return false;
        }
        let followed = self.trails.iter_mut().find(|trail| trail.is_sure() && trail.is_followed_by(object, span));
        followed.map(|trail| trail.last = span).is_some()
    }

    /// What to prefetch for the reader on a trail after its request for `span`: `window` blocks at once and `most` in
    /// all; `None` if enough was. `waits` says that this request has to wait for the origin.
    pub(crate) fn lacks(&mut self, object: ObjectId, span: Span, window: u64, most: u64, waits: bool) -> Option<Block> {
        let last = |trail: &&mut Trail| trail.is_sure() && trail.object == object && trail.last == span;
        let trail = self.trails.iter_mut().find(last)?;
        let lead = trail.lead.max(window);
        trail.lead = if waits { lead * 2 } else { lead }.min(window * LEAD_MAX).min(most);
        (trail.next() < trail.last.end.plus(trail.lead)).then(|| trail.next())
    }

    /// What should be brought from `from` on is there, or is on its way, up to `end`.
    pub(crate) fn goes_on(&mut self, object: ObjectId, from: Block, end: Block) {
        let went = |trail: &Trail| trail.is_sure() && trail.object == object && trail.next() == from;
        if let Some(trail) = self.trails.iter().position(went).and_then(|index| self.take(index)) {
            self.put(Trail { end, ..trail });
        }
    }

    fn put(&mut self, trail: Trail) {
        self.sure += usize::from(trail.is_sure());
        self.trails.push_back(trail);
    }

    fn take(&mut self, index: usize) -> Option<Trail> {
        let trail = self.trails.remove(index)?;
        self.sure -= usize::from(trail.is_sure());
        Some(trail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OBJECT: ObjectId = ObjectId(1);

    const fn span(first: u64, end: u64) -> Span {
        Span { first: Block(first), end: Block(end) }
    }

    const fn at(block: u64) -> Span {
        span(block, block + 1)
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

    /// A trail that is sure, with what lies ahead brought up to block 130.
    fn sure() -> Trails {
        let mut trails = Trails::default();
        for block in 0..3 {
            assert!(!trails.follows(OBJECT, at(block)));
            assert_eq!(trails.leads_to(OBJECT, at(block)), block == 2);
        }
        trails.brought(Block(130));
        trails
    }

    /// A request that goes on, and what is brought for it, in windows of 128 blocks.
    fn go_on(trails: &mut Trails, span: Span, waits: bool) -> Vec<u64> {
        assert!(trails.follows(OBJECT, span), "{span:?}");
        let mut came = Vec::new();
        while let Some(from) = trails.lacks(OBJECT, span, 128, 1000, waits && came.is_empty()) {
            trails.goes_on(OBJECT, from, from.plus(128));
            came.push(from.0);
        }
        came
    }

    #[test]
    fn who_goes_on_through_what_was_brought_has_a_window_more_ahead_at_all_times() {
        let mut trails = sure();
        let mut came = Vec::new();
        for block in (3..600).step_by(2) {
            came.extend(go_on(&mut trails, at(block), false).into_iter().map(|from| (block, from)));
            // As appends do: each goes on in the block in which the last one ended.
            came.extend(go_on(&mut trails, span(block, block + 2), false).into_iter().map(|from| (block + 1, from)));
        }
        assert_eq!(came, [(3, 130), (130, 258), (258, 386), (386, 514), (514, 642)]);
        assert!(trails.leads_to(OBJECT, at(610)), "what was brought had gone again");
    }

    #[test]
    fn who_had_to_wait_has_twice_as_much_brought_ahead_up_to_a_bound() {
        let mut trails = sure();
        assert_eq!(go_on(&mut trails, at(3), true), [130, 258]);
        assert_eq!(go_on(&mut trails, at(4), true), [386, 514]);
        for block in 5..20 {
            go_on(&mut trails, at(block), true);
        }
        assert_eq!(go_on(&mut trails, at(20), true), []);
        let behind = trails.trails.back().map(|trail| trail.next().0 - 21);
        assert!(behind.is_some_and(|blocks| (1000..1128).contains(&blocks)), "{behind:?}");
    }

    #[test]
    fn what_is_written_whole_on_the_way_is_not_brought() {
        let mut trails = sure();
        let whole: Vec<_> =
            (0..10).flat_map(|step| go_on(&mut trails, span(3 + step * 40, 43 + step * 40), false)).collect();
        assert_eq!(whole, [130, 258, 386, 514]);
        let mut trails = sure();
        assert_eq!(go_on(&mut trails, span(3, 400), false), [400]);
    }

    #[test]
    fn who_reads_here_and_there_in_what_was_brought_follows_nothing() {
        let mut trails = sure();
        assert_eq!(go_on(&mut trails, at(3), false), [130]);
        for block in [131, 140, 250, 60, 1, 300, 200] {
            assert!(!trails.follows(OBJECT, at(block)), "{block}");
        }
        assert!(!trails.follows(ObjectId(2), at(4)), "another object");
    }
}
