//! How old the oldest dirty data is, without a time for each block.
//!
//! Dirty data lies in segments, and a segment is filled within a short time: so each remembers when
//! the oldest data in it was written. Data that reclaim moves takes its age along.
//!
//! Keeps true: no dirty data on flash is older than what is said here since this start, and what is said
//! is older than the oldest by no more than the time in which its segment was filled. Blocks of zeros, which
//! take no place, are not counted.

use headpond_base::{Nanos, SegmentId};

/// When the oldest dirty data of each segment was written. Owned by the store.
#[derive(Default)]
pub(crate) struct DirtyAges {
    since: Vec<Nanos>,
    now: Nanos,
}

impl DirtyAges {
    /// For a pool of so many segments.
    pub(crate) fn new(segments: usize) -> Self {
        Self { since: vec![Nanos(0); segments], now: Nanos(0) }
    }

    /// The engine starts: what is dirty counts as written now.
    pub(crate) fn start(&mut self, now: Nanos) {
        self.now = now;
        self.since.fill(now);
    }

    /// Tells the time.
    pub(crate) const fn advance(&mut self, now: Nanos) {
        self.now = now;
    }

    /// The segment gets its first dirty block.
    pub(crate) fn begins(&mut self, segment: SegmentId) {
        self.since[segment.0 as usize] = self.now;
    }

    /// Dirty data moves on from one segment to another.
    pub(crate) fn moves(&mut self, from: SegmentId, to: SegmentId) {
        let since = self.since[from.0 as usize];
        let there = &mut self.since[to.0 as usize];
        *there = since.min(*there);
    }

    /// The age of the oldest in any of these segments.
    pub(crate) fn oldest(&self, segments: impl Iterator<Item = SegmentId>) -> Nanos {
        let since = segments.map(|segment| self.since[segment.0 as usize]).min();
        since.map_or(Nanos(0), |since| self.now.since(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_that_moves_keeps_its_age_and_new_data_begins_anew() {
        let mut ages = DirtyAges::new(3);
        let all = || (0..3).map(SegmentId);
        ages.advance(Nanos(10));
        ages.begins(SegmentId(0));
        ages.advance(Nanos(50));
        ages.begins(SegmentId(1));
        ages.moves(SegmentId(0), SegmentId(1));
        ages.advance(Nanos(60));
        ages.begins(SegmentId(0));
        assert_eq!(ages.oldest([SegmentId(1)].into_iter()), Nanos(50));
        assert_eq!(ages.oldest([SegmentId(0)].into_iter()), Nanos(0));
        assert_eq!(ages.oldest(all()), Nanos(60), "one that never began is as old as the start");
        assert_eq!(ages.oldest(std::iter::empty()), Nanos(0), "nothing is dirty");
    }
}
