//! Changing an object: write, truncate, zero, allocate. This file has what they share and the
//! way through the log (write-back); `direct.rs` has the way to the origin (the other modes).
//!
//! Through the log a change is: alone with its blocks; room in the pool; space at the origin
//! (`reserve.rs`), so that "no space" is told now and not at the flush; the bytes around it where it starts or
//! ends inside a block; then one batch, whole or not at all.

use std::ops::Range;

use headpond_base::{BLOCK, BLOCK_U64, Block, Class, Errno, ObjectId, UnixNanos, blocks_for};
use headpond_format::Entry;
use headpond_log::DataRecord;

use super::together::{Pieces, partial, room, runs};
use crate::counted_space::Balance;
use crate::engine::Engine;
use crate::gathered::Gathered;
use crate::locks::{OpId, Span};
use crate::object_room;
use crate::op::{Change, Op, Stage, StepResult, Work};
use crate::request::Reply;
use crate::store::{Store, WRITE_RESERVE};

impl Change {
    /// The blocks that must not be touched by others meanwhile.
    pub(super) fn span(&self) -> Span {
        match self {
            Self::Write { offset, data, .. } => Span::of_bytes(*offset, data.len() as u64),
            Self::Together { pieces, .. } => {
                let (start, end) = hull(pieces);
                Span::of_bytes(start, end - start)
            }
            Self::Truncate { size, .. } => Span::from_byte(*size),
            // One that may make the object longer must not race with another that does.
            Self::Zero { offset, extend: true, .. } | Self::Allocate { offset, extend: true, .. } => {
                Span::from_byte(*offset)
            }
            Self::Zero { offset, len, .. } | Self::Allocate { offset, len, .. } => Span::of_bytes(*offset, *len),
        }
    }

    pub(super) const fn mtime(&self) -> UnixNanos {
        match self {
            Self::Write { mtime, .. }
            | Self::Together { mtime, .. }
            | Self::Truncate { mtime, .. }
            | Self::Zero { mtime, .. }
            | Self::Allocate { mtime, .. } => *mtime,
        }
    }

    /// The object's size after the change, when it is `size` before.
    pub(super) fn size_after(&self, size: u64) -> u64 {
        match self {
            Self::Write { offset, data, .. } => size.max(offset + data.len() as u64),
            Self::Together { pieces, .. } => size.max(hull(pieces).1),
            Self::Truncate { size, .. } => *size,
            Self::Zero { offset, len, extend, .. } | Self::Allocate { offset, len, extend, .. } => {
                if *extend {
                    size.max(offset + len)
                } else {
                    size
                }
            }
        }
    }

    pub(super) const fn durable(&self) -> bool {
        matches!(self, Self::Write { durable: true, .. } | Self::Together { durable: true, .. })
    }

    /// No byte from here on is changed.
    pub(crate) fn end(&self) -> u64 {
        match self {
            Self::Write { offset, data, .. } => offset.saturating_add(data.len() as u64),
            Self::Together { pieces, .. } => hull(pieces).1,
            Self::Truncate { size, .. } => *size,
            Self::Zero { offset, len, .. } | Self::Allocate { offset, len, .. } => offset.saturating_add(*len),
        }
    }

    /// Whether only the log can make it.
    pub(super) const fn needs_the_log(&self) -> bool {
        matches!(self, Self::Together { .. })
    }
}

impl Engine {
    pub(crate) fn step_change(&mut self, id: OpId, op: &mut Op) -> StepResult {
        let Work::Change(change) = &op.work else { unreachable!("a change") };
        let change = change.clone();
        if op.stage == Stage::Begin {
            op.stage = Stage::Locking;
            if !self.lock(id, op, change.span(), true) {
                return StepResult::Wait;
            }
        }
        if op.stage == Stage::Locking {
            if let Some(errno) = op.error.or_else(|| self.refused_for_space(op, &change)) {
                return StepResult::Finish(Reply::Failed(errno));
            }
            op.direct = self.goes_direct(op);
        }
        if op.direct {
            return self.step_direct(id, op, &change);
        }
        self.step_logged(id, op, &change)
    }

    /// Whether changes that begin now go to the origin directly: by the cache mode, or because
    /// the flash takes nothing more (promise 5).
    fn goes_direct(&self, op: &Op) -> bool {
        !self.config.behaviour_for(op.how).log_writes || !self.store.takes_writes() || self.only_origin_can_tell(op)
    }

    fn step_logged(&mut self, id: OpId, op: &mut Op, change: &Change) -> StepResult {
        if op.stage == Stage::Asking {
            if let Some(errno) = op.take_failure() {
                if self.make_room(id, op, errno) {
                    return StepResult::Wait;
                }
                return StepResult::Finish(Reply::Failed(errno));
            }
            op.allocated = true;
            op.stage = Stage::Locking;
            return self.step_change(id, op);
        }
        if op.stage == Stage::MakingRoom {
            // Whatever came of it, the origin is asked once more; unless the end has come.
            op.error = op.error.filter(|_| self.life.is_ending());
            op.stage = Stage::Locking;
            return self.step_change(id, op);
        }
        if op.stage == Stage::Locking {
            if !self.may_go_on(id, op, change) {
                return StepResult::Wait;
            }
            if !self.has_space(op, change) {
                if self.may_reserve(id, op) {
                    op.stage = Stage::Asking;
                    self.ask_for_space(id, op, change);
                }
                return StepResult::Wait;
            }
            self.reserve_over(op);
            op.stage = Stage::Gathering;
            self.gather_edges(id, op, change);
        }
        if op.stage == Stage::Gathering {
            if op.parts > 0 {
                return StepResult::Wait;
            }
            if let Some(errno) = op.error {
                return StepResult::Finish(Reply::Failed(errno));
            }
            if let Some(errno) = self.refused_for_space(op, change) {
                return StepResult::Finish(Reply::Failed(errno));
            }
            if self.goes_direct(op) {
                // The mode changed meanwhile, or the flash failed. A caller that hears now that this is done must find
                // it at the origin.
                op.direct = true;
                op.stage = Stage::Locking;
                op.gathered = Gathered::default();
                op.edges.clear();
                return self.step_direct(id, op, change);
            }
            if !self.may_go_on(id, op, change) {
                return StepResult::Wait;
            }
            if !self.has_space(op, change) {
                // Destage began to give it back meanwhile.
                op.gathered = Gathered::default();
                op.stage = Stage::Locking;
                return self.step_change(id, op);
            }
            self.apply(id, op, change);
            op.stage = Stage::Applied;
        }
        if change.durable() && op.stage == Stage::Applied {
            op.stage = Stage::Syncing;
            if !self.wait_durable_in(op.how.durability(), id) && self.store.takes_writes() {
                return StepResult::Wait;
            }
        }
        if op.stage == Stage::Syncing {
            // A log that fails wakes all requests that wait for it. What was durable by then is.
            if !self.store.takes_writes() && !self.wait_durable_in(op.how.durability(), id) {
                return StepResult::Finish(Reply::Failed(Errno::IO));
            }
            op.stage = Stage::Securing;
        }
        if matches!(op.stage, Stage::Securing | Stage::Secured) {
            if !self.is_secured(id, op) {
                return StepResult::Wait;
            }
            op.stage = Stage::SyncingOrigin;
            // Data that is durable is lost with a name that is not: the first such write does for the name what the
            // first sync does. The kernel sends no sync after a write that says by itself that it is to be durable.
            if self.has_new_name(op.object) && self.sync_origin(id, op, op.object) {
                return StepResult::Wait;
            }
        }
        if op.stage == Stage::SyncingOrigin
            && let Some(errno) = self.origin_synced(op, op.object)
        {
            return StepResult::Finish(Reply::Failed(errno));
        }
        self.count_change(change);
        StepResult::Finish(Reply::Changed(self.store.known(op.object).attributes()))
    }

    pub(super) fn count_change(&mut self, change: &Change) {
        match change {
            Change::Write { data, .. } => {
                self.stats.writes += 1;
                self.stats.write_bytes += data.len() as u64;
            }
            Change::Together { pieces, .. } => {
                self.stats.writes += 1;
                self.stats.write_bytes += pieces.iter().map(|(_, data)| data.len() as u64).sum::<u64>();
            }
            _ => {}
        }
    }

    /// Whether a change through the log gets further now; if not it waits, and is stepped again.
    fn may_go_on(&mut self, id: OpId, op: &mut Op, change: &Change) -> bool {
        if !self.may_log(id, op.object) {
            self.wait_for_other_kind(id, op.object, false);
        } else if self.may_take(op.object, change) {
            if self.origin_space.counted.counts() && self.takes_space(op.object) {
                self.origin_space.want_look(op.object);
            }
            return true;
        } else if self.life.is_ending() {
            // Nobody makes room any more.
            op.error = Some(Errno::SHUTDOWN);
            self.requests.wake(id);
        } else {
            self.requests.wait_for_room(id);
        }
        self.stats.stalls += 1;
        false
    }

    /// Makes a change wait until those of the other kind, which it must not mix with, are over.
    pub(super) fn wait_for_other_kind(&mut self, id: OpId, object: ObjectId, direct: bool) {
        let known = self.store.known(object);
        known.alternation.wait(id, direct);
        if direct || known.past.needs_sync() {
            self.destage.hurry(object);
        }
        self.requests.wait_for_other_kind(id);
    }

    /// Whether the object may be changed through the log. One that goes to the origin directly takes the size
    /// from there when it is done. And from the first logged change on it is the log that counts after a
    /// crash: what went directly before must be the origin's for good.
    fn may_log(&self, id: OpId, object: ObjectId) -> bool {
        !self.store.takes_writes()
            || self.store.get(object).is_none_or(|known| {
                !known.past.is_under_way() && !known.past.needs_sync() && !known.alternation.others_first(id, false)
            })
    }

    /// Whether a change that waits for those of the other kind may go on now.
    pub(crate) fn may_change_now(&self, id: OpId) -> bool {
        let Some(op) = self.requests.get(id) else { return true };
        let direct = if op.stage == Stage::Locking { self.goes_direct(op) } else { op.direct };
        if direct { self.direct_ready(id, op.object) } else { self.may_log(id, op.object) }
    }

    /// Whether a stalled request would get further now, if only to wait for changes of the other kind.
    pub(crate) fn may_proceed(&self, id: OpId) -> bool {
        let Some(op) = self.requests.get(id) else { return true };
        let Work::Change(change) = &op.work else { return true };
        if self.goes_direct(op) || op.direct {
            return self.leaves_what_is_promised(op.object, change);
        }
        !self.may_log(id, op.object) || self.may_take(op.object, change) || self.refused_for_space(op, change).is_some()
    }

    /// Whether the pool has room for a change, free segments, bounded memory, bounded dirt, and the origin as far as it
    /// is counted.
    fn may_take(&self, object: ObjectId, change: &Change) -> bool {
        let log = self.store.log();
        !log.takes_writes()
            || !self.checkpoints.hold_changes() && log.has_cover() && self.destage_left_room(object, change)
    }

    /// What of this destage sees to: it makes dirty data clean, and has the log synced for that.
    fn destage_left_room(&self, object: ObjectId, change: &Change) -> bool {
        object_room::may_name(&self.store, object)
            && self.store.log().unsynced_bytes() < self.store.unsynced_bytes_max()
            && self.has_room_for_dirt(object, change)
            && self.balance(object, change) == Balance::Enough
    }

    /// Whether the first request that waits for room waits for destage. Else it waits for a checkpoint, or for the log's
    /// writes, and the origin has nothing to do with it.
    pub(crate) fn waits_for_destage(&self) -> bool {
        let first = self.requests.first_for_room().and_then(|id| self.requests.get(id));
        first.is_some_and(|op| match &op.work {
            Work::Change(change) if !op.direct && !self.goes_direct(op) => !self.destage_left_room(op.object, change),
            _ => true,
        })
    }

    /// Whether the pool has room for dirty data of a change, and no more is dirty after it than may be.
    pub(super) fn has_room_for_dirt(&self, object: ObjectId, change: &Change) -> bool {
        self.store.log().free_segments() > WRITE_RESERVE
            && (self.dirty_after(object, change) <= self.dirty_blocks_max() || self.store.sums().dirty_blocks() == 0)
    }

    /// Blocks that are dirty after a change, at most: an extent of zeros counts as one.
    pub(super) fn dirty_after(&self, object: ObjectId, change: &Change) -> u64 {
        let (blocks, places) = match change {
            Change::Truncate { .. } | Change::Allocate { .. } => (1, 0),
            Change::Write { .. } => (change.span().blocks(), 1),
            Change::Together { pieces, .. } => {
                let runs = runs(pieces);
                (room(&runs).1, runs.len() as u64)
            }
            // The extent, and a block at each end.
            Change::Zero { .. } => (3, 0),
        };
        let dirty = self.store.sums().dirty_blocks() + blocks;
        let Some(known) = self.store.get(object) else { return dirty };
        let covered = match change {
            Change::Write { .. } if blocks > 1 => {
                let span = change.span();
                known.map().range(span.first, span.end).filter(|(_, slot)| slot.dirty).count() as u64
            }
            _ => 0,
        };
        // What is written in the midst of zeros leaves some on either side.
        let cut = if known.zeros().is_empty() { 0 } else { places };
        dirty + cut - covered
    }

    /// More than this must not be dirty.
    pub(crate) fn dirty_blocks_max(&self) -> u64 {
        self.keep.dirty_blocks_max(&self.store, &self.config)
    }

    /// Gathers the blocks that the change covers only in part.
    fn gather_edges(&mut self, id: OpId, op: &mut Op, change: &Change) {
        op.edges = self.edges(op.object, change);
        let edges = op.edges.clone();
        let on_a_trail = matches!(change, Change::Write { .. }) && self.gather.follows_trail(op.object, change.span());
        let total = edges.len() as u64;
        for (index, block) in (0..).zip(edges) {
            self.gather(id, op, Span { first: block, end: block.plus(1) }, index, total);
        }
        if on_a_trail {
            self.gathering().bring_ahead(op, change.span());
        }
    }

    /// The blocks of which a change needs the present bytes: of each place at most the first and the last.
    fn edges(&self, object: ObjectId, change: &Change) -> Vec<Block> {
        let Some(known) = self.store.get(object) else { return Vec::new() };
        let size = known.state.size;
        match change {
            Change::Write { offset, data, .. } => partial_blocks(*offset, offset + data.len() as u64, size),
            Change::Together { pieces, .. } => partial(pieces, size),
            Change::Zero { offset, len, .. } => {
                let end = (offset + len).min(size);
                if *offset < end { partial_blocks(*offset, end, size) } else { Vec::new() }
            }
            Change::Truncate { size: to, .. } => {
                let block = Block::holding(*to);
                let cut = *to < size && to % BLOCK_U64 != 0;
                let dirty = known.map().get(block).is_some_and(|slot| slot.dirty);
                if cut && dirty { vec![block] } else { Vec::new() }
            }
            Change::Allocate { .. } => Vec::new(),
        }
    }

    /// Puts the change into the log and the map, in one batch.
    fn apply(&mut self, id: OpId, op: &mut Op, change: &Change) {
        let named = self.make_room_for(op.object);
        debug_assert!(named, "it waited until there is room");
        let edges = std::mem::take(&mut op.edges);
        let gathered = std::mem::take(&mut op.gathered);
        let edge = |block: Block| {
            let index = edges.iter().position(|edge| *edge == block)?;
            Some(gathered.block(index))
        };
        let object = op.object;
        self.store.introduce(object);
        if self.store.known(object).trust.log_counts_again() {
            // What went to the origin before this may have changed the size, and from here on the log's counts.
            self.store.persist(object);
        }
        self.store.known(object).dropped.clear();
        let size = self.store.known(object).state.size;
        let size_after = change.size_after(size);
        let mtime = self.store.known(object).time_said(change.mtime());
        let grown = self.store.known(object).growth_said(size_after, mtime);
        match change {
            Change::Write { offset, data, .. } => {
                let span = change.span();
                let blocks = u32::try_from(span.blocks()).expect("a record is bounded");
                let skip = usize::try_from(offset % BLOCK_U64).expect("less than a block");
                let before = self.keep.classes_before(&self.store, object, span.first, span.blocks());
                let record = DataRecord {
                    class: self.keeping().class_of_record(&before, op.how.class),
                    whole: skip == 0 && data.len().is_multiple_of(BLOCK),
                    ..Store::dirty_record(object, span.first, blocks, grown)
                };
                self.store.append_data(record, true, Class::EVERYBODY, |payload| {
                    let last = payload.len() - BLOCK;
                    if let Some(bytes) = edge(span.first) {
                        payload[..BLOCK].copy_from_slice(bytes);
                    }
                    if let Some(bytes) = edge(span.first.plus(span.blocks() - 1)) {
                        payload[last..].copy_from_slice(bytes);
                    }
                    payload[skip..skip + data.len()].copy_from_slice(data);
                });
                self.poison(object, span);
                self.keeping().note_written(object, (span.first, span.blocks()), &before, op.how.class);
            }
            Change::Together { pieces, .. } => self.apply_together(op, pieces, grown, edge),
            Change::Truncate { size: to, .. } => {
                self.apply_truncate(object, size, *to, mtime, edge(Block::holding(*to)))
            }
            Change::Zero { offset, len, extend, .. } => {
                let end = (offset + len).min(size);
                if *offset < end {
                    let edges: Vec<_> = edges.iter().filter_map(|block| Some((*block, edge(*block)?))).collect();
                    self.apply_zero(object, *offset..end, mtime, &edges);
                }
                if *extend && size_after > size {
                    self.store.say_size(object, offset + len, mtime);
                }
            }
            Change::Allocate { offset, len, .. } => {
                if size_after != size {
                    self.store.say_size(object, size_after, mtime);
                }
                self.store.known(object).space.keep_to(offset + len);
            }
        }
        let now = self.now;
        let last = self.store.last_entry();
        let known = self.store.known(object);
        if size_after != size || matches!(change, Change::Truncate { .. } | Change::Zero { .. }) {
            known.shaped_at = last;
        }
        known.state.size = size_after;
        known.alternation.over(id);
        known.touch(mtime, mtime, now);
        self.destage.note(object);
    }

    fn apply_truncate(&mut self, object: ObjectId, size: u64, to: u64, mtime: UnixNanos, tail: Option<&[u8]>) {
        let block = Block::holding(to);
        let kept = usize::try_from(to % BLOCK_U64).expect("less than a block");
        self.store.keep_together(Entry::data_len(1) + 2 * Entry::data_len(0), 1);
        if to < size && kept > 0 {
            if let Some(bytes) = tail {
                let class = self.store.class_of(object, block);
                let record = DataRecord { class, ..Store::dirty_record(object, block, 1, None) };
                self.store.append_data(record, true, class, |payload| payload[..kept].copy_from_slice(&bytes[..kept]));
            } else if self.store.known(object).map().get(block).is_some_and(|slot| !slot.dirty) {
                // The origin has this block, and will be cut there.
                let span = Span { first: block, end: block.plus(1) };
                self.store.say_dropped(object, span);
                self.store.clear_slot(object, block);
            }
        }
        self.store.say_size(object, to, mtime);
        self.poison(object, Span::from_byte(to));
        self.store.clear_range(object, Block(blocks_for(to)), Block(u64::MAX));
        let known = self.store.known(object);
        if to < size {
            known.state.origin_valid = known.state.origin_valid.min(to);
            known.space.cut(to);
            known.job.was_cut(to);
        }
    }

    /// Makes `range` zeros, which ends at the object's end or before; `edges` are the present
    /// bytes of the blocks that it covers only in part.
    fn apply_zero(&mut self, object: ObjectId, range: Range<u64>, mtime: UnixNanos, edges: &[(Block, &[u8])]) {
        let (offset, end) = (range.start, range.end);
        let size = self.store.known(object).state.size;
        self.store.keep_together(2 * Entry::data_len(1) + 2 * Entry::data_len(0), 2);
        for (block, bytes) in edges {
            let from = usize::try_from(offset.saturating_sub(block.byte()).min(BLOCK_U64)).expect("within a block");
            let to = usize::try_from((end - block.byte()).min(BLOCK_U64)).expect("within a block");
            let zeros = bytes[..from].iter().chain(&bytes[to..]).all(|byte| *byte == 0);
            if zeros {
                // Perhaps of a hole, for which the origin has no space.
                self.store.make_zeros(object, *block, 1, mtime);
                continue;
            }
            let class = self.store.class_of(object, *block);
            let record = DataRecord { class, ..Store::dirty_record(object, *block, 1, None) };
            self.store.append_data(record, true, class, |payload| {
                payload.copy_from_slice(bytes);
                payload[from..to].fill(0);
            });
        }
        let first = Block(blocks_for(offset));
        // The last block is whole if the range goes to the object's end: to where it was when the
        // edges were gathered. Behind that are zeros, though the object may have grown since.
        let tail = Block::holding(end);
        let whole = end == size || edges.iter().all(|(block, _)| *block != tail);
        let last = if whole { Block(blocks_for(end)) } else { tail };
        if first < last {
            // Destage will give that space back: a write there asks for it again.
            self.store.known(object).space.give(first.byte(), last.byte());
            self.store.make_zeros(object, first, last.0 - first.0, mtime);
        }
        self.poison(object, Span::of_bytes(offset, end - offset));
    }
}

/// The first and the last block of `start..end`, if the range covers them only in part and they
/// hold bytes of the object outside of it.
fn partial_blocks(start: u64, end: u64, size: u64) -> Vec<Block> {
    let mut partial = Vec::with_capacity(2);
    let first = Block::holding(start);
    if !start.is_multiple_of(BLOCK_U64) && first.byte() < size {
        partial.push(first);
    }
    let last = Block::holding(end);
    if !end.is_multiple_of(BLOCK_U64) && end < size && partial.last() != Some(&last) {
        partial.push(last);
    }
    partial
}

/// From the first byte of the first piece to the end of the last.
fn hull(pieces: &Pieces) -> (u64, u64) {
    let start = pieces.first().map_or(0, |(offset, _)| *offset);
    (start, pieces.last().map_or(start, |(offset, data)| offset + data.len() as u64))
}
