//! How old the oldest dirty data is, without a time for each block.
//!
//! Dirty data lies in segments, and a segment is filled within a short time: so each remembers when
//! the first data in it was written. What reclaim moves takes its age along, as a range of places that
//! has a time of its own.
//!
//! Keeps true: no dirty data on flash is older than what is said here since this start, and what is said
//! is older than the oldest by no more than the time in which a segment was filled. Blocks of zeros, which
//! take no place, are not counted.
//!
//! Places are counted in units of 512 bytes, as in [`Slot::extent`]: packed records begin and end within blocks. Blank
//! ones have none: where one is moved to, all of the segment that was not moved there counts as being as old.

use headpond_base::{Nanos, SegmentId};
use headpond_map::Slot;

/// The most ranges of a segment with an age of their own; more become one with their neighbour.
const RANGES_MAX: usize = 512;

/// Dirty data that was moved here.
#[derive(Clone, Copy)]
struct Moved {
    from: u64,
    to: u64,
    since: Nanos,
    /// Blocks of it that are still dirty.
    dirty: u32,
}

#[derive(Clone, Default)]
struct Ages {
    /// When the first data in it was written.
    since: Nanos,
    /// In the order of their places.
    moved: Vec<Moved>,
}

impl Ages {
    /// The range that a block's place is in.
    fn range_of(&self, slot: Slot) -> Option<usize> {
        if slot.is_blank() {
            return None;
        }
        let (at, _) = slot.extent();
        let index = self.moved.partition_point(|moved| moved.from <= at).checked_sub(1)?;
        (at < self.moved[index].to).then_some(index)
    }
}

/// When the oldest dirty data of each segment was written. Owned by the store.
#[derive(Default)]
pub(crate) struct DirtyAges {
    segments: Vec<Ages>,
    now: Nanos,
}

impl DirtyAges {
    /// For a pool of so many segments.
    pub(crate) fn new(segments: usize) -> Self {
        Self { segments: vec![Ages::default(); segments], now: Nanos(0) }
    }

    /// The pool has so many segments by now.
    pub(crate) fn extend(&mut self, segments: usize) {
        self.segments.resize(segments, Ages::default());
    }

    /// The engine starts: what is dirty counts as written now.
    pub(crate) fn start(&mut self, now: Nanos) {
        self.now = now;
        self.segments.iter_mut().for_each(|ages| ages.since = now);
    }

    /// Tells the time.
    pub(crate) const fn advance(&mut self, now: Nanos) {
        self.now = now;
    }

    /// The segment gets its first dirty block.
    pub(crate) fn begins(&mut self, segment: SegmentId) {
        let ages = &mut self.segments[segment.0 as usize];
        ages.since = self.now;
        ages.moved.clear();
    }

    /// When what is in this place was written.
    pub(crate) fn since(&self, segment: SegmentId, slot: Slot) -> Nanos {
        let ages = &self.segments[segment.0 as usize];
        ages.range_of(slot).map_or(ages.since, |index| ages.moved[index].since)
    }

    /// A dirty block that was just appended here was written earlier.
    pub(crate) fn moved_here(&mut self, segment: SegmentId, slot: Slot, since: Nanos) {
        let ages = &mut self.segments[segment.0 as usize];
        if slot.is_blank() {
            ages.since = ages.since.min(since);
            return;
        }
        let (from, to) = slot.extent();
        let moved = &mut ages.moved;
        let full = moved.len() >= RANGES_MAX;
        match moved.last_mut() {
            // Blocks of a packed record lie in one place.
            Some(last) if last.from <= from && to <= last.to => {
                (last.dirty, last.since) = (last.dirty + 1, last.since.min(since));
            }
            Some(last) if full || last.to == from && since.0.abs_diff(last.since.0) < Nanos::SECOND.0 => {
                (last.to, last.dirty, last.since) = (to, last.dirty + 1, last.since.min(since));
            }
            _ => moved.push(Moved { from, to, since, dirty: 1 }),
        }
    }

    /// A block is dirty no more.
    pub(crate) fn over(&mut self, segment: SegmentId, slot: Slot) {
        let ages = &mut self.segments[segment.0 as usize];
        if let Some(index) = ages.range_of(slot) {
            ages.moved[index].dirty = ages.moved[index].dirty.saturating_sub(1);
        }
    }

    /// The age of the oldest in segments with so many dirty blocks.
    pub(crate) fn oldest(&self, segments: impl Iterator<Item = (SegmentId, u32)>) -> Nanos {
        let since = segments.filter(|(_, dirty)| *dirty > 0).map(|(segment, dirty)| {
            let ages = &self.segments[segment.0 as usize];
            let moved = ages.moved.iter().filter(|moved| moved.dirty > 0);
            let oldest = moved.clone().map(|moved| moved.since).min();
            let others = dirty > moved.map(|moved| moved.dirty).sum();
            if others { oldest.map_or(ages.since, |oldest| oldest.min(ages.since)) } else { oldest.unwrap_or(self.now) }
        });
        since.min().map_or(Nanos(0), |since| self.now.since(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_base::{Class, Location};
    use headpond_map::PackedPlace;

    fn at(location: u64) -> Slot {
        let (location, class) = (Location(location), Class::EVERYBODY);
        Slot { location, checksum: 0, packed: false, dirty: true, kept: true, class }
    }

    fn packed_at(location: u64, unit: u8) -> Slot {
        Slot { checksum: PackedPlace::new(unit, 3, 4, 0, 0).word(), packed: true, ..at(location) }
    }

    #[test]
    fn data_that_moves_keeps_its_age_and_new_data_beside_it_has_its_own() {
        let mut ages = DirtyAges::new(3);
        let [old, new, other] = [0, 1, 2].map(SegmentId);
        ages.advance(Nanos(10));
        ages.begins(old);
        ages.advance(Nanos(50));
        ages.begins(new);
        ages.moved_here(new, at(100), ages.since(old, at(7)));
        ages.advance(Nanos(60));
        assert_eq!(ages.oldest([(new, 2)].into_iter()), Nanos(50), "what was moved");
        ages.begins(other);
        ages.moved_here(other, at(200), ages.since(new, at(101)));
        assert_eq!(ages.oldest([(other, 1)].into_iter()), Nanos(10), "what was new there moved on");
        ages.over(new, at(100));
        assert_eq!(ages.oldest([(new, 1)].into_iter()), Nanos(10), "what was moved is clean");
        assert_eq!(ages.oldest([(old, 0)].into_iter()), Nanos(0), "nothing is dirty");
    }

    #[test]
    fn zeros_that_move_keep_their_age_though_they_have_no_place() {
        let mut ages = DirtyAges::new(1);
        let (segment, blank) = (SegmentId(0), Slot::blank(Location(99), true, true, Class::EVERYBODY));
        ages.advance(Nanos(50));
        ages.begins(segment);
        ages.moved_here(segment, at(99), Nanos(20));
        ages.moved_here(segment, blank, Nanos(10));
        ages.advance(Nanos(60));
        assert_eq!((ages.since(segment, blank), ages.since(segment, at(99))), (Nanos(10), Nanos(20)));
        ages.over(segment, at(99));
        assert_eq!(ages.oldest([(segment, 1)].into_iter()), Nanos(50), "the zeros are dirty still");
        ages.over(segment, blank);
        assert_eq!(ages.oldest([(segment, 0)].into_iter()), Nanos(0));
    }

    #[test]
    fn new_data_in_the_same_block_as_what_was_moved_is_not_taken_for_it() {
        let mut ages = DirtyAges::new(1);
        let segment = SegmentId(0);
        ages.advance(Nanos(50));
        ages.begins(segment);
        ages.moved_here(segment, packed_at(100, 0), Nanos(10));
        ages.advance(Nanos(60));
        assert_eq!(ages.since(segment, packed_at(100, 3)), Nanos(50), "the record behind it is new");
        ages.over(segment, packed_at(100, 3));
        assert_eq!(ages.oldest([(segment, 1)].into_iter()), Nanos(50), "the new one is clean, the moved one is not");
        ages.over(segment, packed_at(100, 0));
        assert_eq!(ages.oldest([(segment, 1)].into_iter()), Nanos(10));
    }
}
