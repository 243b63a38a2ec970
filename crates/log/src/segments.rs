//! The segment table: the state of each segment, how many live blocks it has, and when it may be reused.
//!
//! A segment that reclaim has emptied waits until all four hold. Then it is free:
//! 1. Everything appended before it was emptied is durable: the copies of moved blocks, the entries for destaged ones.
//! 2. The checkpoint that counts starts after the segment's last entry, so no replay needs it. Otherwise, once the
//!    newer version in this segment is overwritten, an old version in another segment would come back.
//! 3. No checkpoint that is still being written began before it was emptied: such a checkpoint may point here.
//! 4. No read or write of it is under way.

use std::collections::VecDeque;

use headpond_base::{Generation, SegmentId, Sequence, Stream};
use headpond_format::{Addresses, Layout, Place, SegmentRow, SegmentState};

/// One segment.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// The segment's life.
    pub generation: Generation,
    /// The segment's state.
    pub state: SegmentState,
    /// The stream whose batches it holds.
    pub stream: Stream,
    /// Blocks in it that the map points to.
    pub live: u32,
    /// Dirty blocks among `live`.
    pub dirty: u32,
    /// Clean blocks among `live` that are worth keeping.
    pub kept: u32,
    /// Units of 512 bytes that `live` takes: eight for a block, its share for a block of a packed record, none if
    /// blank.
    pub live_units: u32,
    /// Units that `dirty` takes.
    pub dirty_units: u32,
    /// Units that `kept` takes.
    pub kept_units: u32,
    /// The last entry in it.
    pub last_sequence: Sequence,
    /// Writes and reads of it under way.
    pub under_way: u32,
}

impl Segment {
    /// A segment without known live blocks.
    #[must_use]
    pub const fn new(generation: Generation, state: SegmentState, stream: Stream) -> Self {
        Self {
            generation,
            state,
            stream,
            live: 0,
            dirty: 0,
            kept: 0,
            live_units: 0,
            dirty_units: 0,
            kept_units: 0,
            last_sequence: Sequence(0),
            under_way: 0,
        }
    }
}

/// All segments of a pool. Each lies in one place.
#[derive(Debug)]
pub struct Segments {
    addresses: Addresses,
    table: Vec<Segment>,
    free: VecDeque<SegmentId>,
    /// Emptied segments, each with the next sequence at that time.
    waiting: Vec<(SegmentId, Sequence)>,
}

impl Segments {
    pub(crate) fn new(addresses: Addresses, table: Vec<Segment>) -> Self {
        let free = (0_u32..)
            .zip(&table)
            .filter(|(_, segment)| segment.state == SegmentState::Free)
            .map(|(index, _)| SegmentId(index))
            .collect();
        Self { addresses, table, free, waiting: Vec::new() }
    }

    /// Where the segments lie.
    #[must_use]
    pub const fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// Where a segment lies. A free segment will lie there once it is opened.
    ///
    /// # Panics
    /// When the pool has no such segment.
    #[must_use]
    pub fn place(&self, id: SegmentId) -> Place {
        self.addresses.place(id)
    }

    /// A segment as a row of a checkpoint.
    ///
    /// # Panics
    /// When the pool has no such segment.
    #[must_use]
    pub fn row(&self, id: SegmentId) -> SegmentRow {
        let Segment { generation, state, stream, .. } = *self.get(id);
        let layout = (state != SegmentState::Free).then(|| Layout::Single(self.place(id)));
        SegmentRow { generation, state, stream, layout }
    }

    /// One segment.
    ///
    /// # Panics
    /// When the pool has no such segment.
    #[must_use]
    pub fn get(&self, id: SegmentId) -> &Segment {
        &self.table[id.0 as usize]
    }

    /// One segment, to be changed.
    ///
    /// # Panics
    /// When the pool has no such segment.
    pub fn get_mut(&mut self, id: SegmentId) -> &mut Segment {
        &mut self.table[id.0 as usize]
    }

    /// All segments, in order.
    pub fn iter(&self) -> impl Iterator<Item = (SegmentId, &Segment)> {
        (0_u32..).zip(&self.table).map(|(index, segment)| (SegmentId(index), segment))
    }

    /// How many segments there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether there are no segments. A formatted pool has some.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// How many segments can be opened now.
    #[must_use]
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// How many emptied segments wait for durability or a checkpoint.
    #[must_use]
    pub const fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// How many segments wait for a checkpoint that starts later than `replay_from`.
    #[must_use]
    pub fn wait_for_checkpoint(&self, replay_from: Sequence) -> usize {
        self.waiting.iter().filter(|(id, _)| self.get(*id).last_sequence >= replay_from).count()
    }

    pub(crate) fn take_free(&mut self) -> Option<SegmentId> {
        self.free.pop_front()
    }

    /// Marks a sealed segment as emptied. The map must not point to it any more.
    ///
    /// # Panics
    /// When the map still points to it, or the segment is not sealed.
    pub fn empty(&mut self, id: SegmentId, next_sequence: Sequence) {
        let segment = self.get_mut(id);
        assert_eq!(segment.state, SegmentState::Sealed, "only a full segment is emptied");
        assert_eq!((segment.live, segment.dirty), (0, 0), "segment {id} is still pointed to");
        segment.state = SegmentState::Free;
        self.waiting.push((id, next_sequence));
    }

    /// Frees the segments that may be reused by the rules in this file's head. Returns them.
    pub(crate) fn release(
        &mut self,
        durable: Sequence,
        replay_from: Sequence,
        checkpoint_begun: Option<Sequence>,
    ) -> Vec<SegmentId> {
        let table = &self.table;
        let (released, waiting) = self.waiting.iter().partition(|(id, emptied_at): &&(SegmentId, Sequence)| {
            let segment = &table[id.0 as usize];
            durable.next() >= *emptied_at
                && segment.last_sequence < replay_from
                && checkpoint_begun.is_none_or(|begun| *emptied_at <= begun)
                && segment.under_way == 0
        });
        self.waiting = waiting;
        let released: Vec<SegmentId> = Vec::into_iter(released).map(|(id, _)| id).collect();
        self.free.extend(&released);
        released
    }
}

#[cfg(test)]
mod tests {
    use headpond_format::{Geometry, MemberName, Members};

    use super::*;

    fn emptied(last: u64) -> Segments {
        let sealed = Segment::new(Generation(1), SegmentState::Sealed, Stream::Host);
        let geometry = Geometry::with_segment_bytes(64 << 20, 2 << 20);
        let members = Members::first(geometry.member(MemberName([5; 16])));
        let mut segments = Segments::new(Addresses::of_empty(geometry, &members).unwrap(), vec![sealed]);
        segments.get_mut(SegmentId(0)).last_sequence = Sequence(last);
        segments.empty(SegmentId(0), Sequence(10));
        segments
    }

    #[test]
    fn an_emptied_segment_is_reused_only_when_nothing_durable_needs_it() {
        let freed = |segments: &mut Segments, durable, replay_from, begun: Option<u64>| {
            segments.release(Sequence(durable), Sequence(replay_from), begun.map(Sequence)).len()
        };
        assert_eq!(freed(&mut emptied(5), 8, 7, None), 0, "what emptied it is not durable");
        assert_eq!(freed(&mut emptied(5), 9, 5, None), 0, "the checkpoint would replay it");
        assert_eq!(freed(&mut emptied(5), 9, 7, Some(9)), 0, "a checkpoint begun before may point to it");
        assert_eq!(freed(&mut emptied(5), 9, 7, Some(10)), 1);
        let mut being_read = emptied(5);
        being_read.get_mut(SegmentId(0)).under_way = 1;
        assert_eq!(freed(&mut being_read, 9, 7, None), 0, "a read is under way");
    }
}
