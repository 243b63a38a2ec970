//! Prefetch: what comes along with a miss, and what comes ahead of a reader that goes forward.
//!
//! Invariants:
//! - Nothing is brought that the pool could not take, nor while only what comes back is let in, or flash writes are
//!   limited.
//! - What another read brings already is not read twice.
//! - No request waits for what comes ahead of it.

use headpond_base::{BLOCK_U64, Block, ObjectId};
use headpond_policy::Admission;

use crate::gather::{Gathering, neighbours};
use crate::locks::Span;
use crate::op::Op;
use crate::store::ADMIT_RESERVE;

/// What is brought ahead on one trail has this part at most of the memory for what nobody has asked for.
const TRAIL_SHARE: u64 = 4;

impl Gathering<'_> {
    /// What a miss should bring: itself with what lies ahead, if it was led to by a trail (`trails.rs`), or around it
    /// (`neighbours.rs`); and the blocks of the neighbourhood, 1 if it is none.
    pub(super) fn brings(&mut self, object: ObjectId, span: Span, led: bool) -> (Span, u64) {
        if !self.may_bring(object) {
            return (span, 1);
        }
        let (most, cost) = (self.fetch_most(), self.outbox.origin_costs().reads());
        let ahead = neighbours::cheap(cost, most);
        if led && ahead > 1 {
            return (self.window(object, span, span.first, ahead), 1);
        }
        let room = self.keep.has_spare_room(self.store) || self.memory_has_room(most);
        let window = self.gather.neighbours.wanted(cost, most, room);
        if window == 1 {
            return (span, 1);
        }
        let wide = self.window(object, span, Block(span.first.0 / window * window), window);
        (wide, if wide == span { 1 } else { window })
    }

    /// Blocks that a read of the origin has at most.
    pub(super) fn fetch_most(&self) -> u64 {
        u64::from(self.config.fetch_bytes) / BLOCK_U64
    }

    /// Whether what nobody asked for yet may come along.
    fn may_bring(&self, object: ObjectId) -> bool {
        let able = self.store.log().free_segments() > ADMIT_RESERVE && self.store.get(object).is_some();
        // Who lets in only what comes back wants nothing that nobody asked for; nor does who has so much to write and
        // no more.
        let sparing = self.config.admission == Admission::Returning || self.config.flash_write_limit.is_some();
        able && self.config.behaviour().admit_reads && !sparing
    }

    /// A request that followed a trail has what is there of its blocks: what comes next is brought before it is asked
    /// for.
    pub(crate) fn bring_ahead(&mut self, op: &Op, span: Span) {
        let object = op.object;
        let window = neighbours::cheap(self.outbox.origin_costs().reads(), self.fetch_most());
        if window == 1 || !self.config.behaviour_for(op.how).admit_reads || self.ending || !self.may_bring(object) {
            return;
        }
        let most = (self.keep.unasked_most() as u64 / TRAIL_SHARE).max(window);
        let mut waits = op.served.miss_blocks > 0;
        while let Some(from) = self.gather.trails.lacks(object, span, window, most, std::mem::take(&mut waits)) {
            let Some(known) = self.store.get(object) else { return };
            let is_there = |block: &Block| {
                known.has(*block)
                    || self.store.is_in_memory(object, *block)
                    || self.gather.fetches.bring(object, *block)
            };
            let first = (0..window).map(|index| from.plus(index)).find(|block| !is_there(block));
            let Some(first) = first.filter(|block| block.byte() < known.origin_end()) else {
                self.gather.trails.goes_on(object, from, from.plus(window));
                continue;
            };
            let wide = self.window(object, Span { first, end: first.next() }, first, window);
            self.start_fetch(object, wide, Vec::new(), 1, Some(op.how.class));
            self.gather.trails.goes_on(object, from, wide.end);
        }
    }

    /// Whether a neighbourhood of so many blocks can wait in memory, beside those on their way, with nothing going for
    /// it.
    fn memory_has_room(&self, blocks: u64) -> bool {
        let coming = self.gather.fetches.neighbourhoods();
        self.store.window().unasked() as u64 + coming + blocks <= self.keep.unasked_most() as u64
    }

    /// The blocks to read for a miss of `span`: `blocks` of them from `from` on, as far as nobody else is reading them.
    fn window(&self, object: ObjectId, span: Span, from: Block, blocks: u64) -> Span {
        let Some(known) = self.store.get(object) else { return span };
        let end_of_origin = Block(headpond_base::blocks_for(known.origin_end()));
        let end = Block(from.0 + (span.end.0 - from.0).next_multiple_of(blocks)).min(end_of_origin).max(span.end);
        // What others are reading already is not read twice.
        let Span { first, end } = self.gather.fetches.cut(object, span, Span { first: from, end });
        let most = u64::from(self.store.log().geometry().record_blocks_max());
        Span { first: first.max(Block(span.end.0.saturating_sub(most))), end: end.min(first.plus(most)).max(span.end) }
    }
}
