//! Changing an object at the origin directly: write-through, write-around, pass-through, and single
//! requests that are treated so.
//!
//! Before the origin is touched, what the pool has of those blocks is durably dropped, and the
//! log durably knows that the origin's file is being changed: after a crash no stale block comes
//! back, and the changed time stamp is not taken for a change by others. A write that is to be durable by itself waits
//! for the changes in the log that come before it, so that no crash shows it without them (promise 2).

use headpond_base::{BLOCK_U64, Block, Class, Errno, ObjectId};

use crate::effect::Effect;
use crate::engine::Engine;
use crate::keep::Destination;
use crate::locks::{OpId, Span};
use crate::op::{Change, Op, Stage, StepResult};
use crate::purpose::Purpose;
use crate::request::Reply;
use crate::treatment::{Handling, Treatment};

impl Engine {
    /// Whether the origin may be changed directly: nothing is on its way there.
    pub(crate) fn direct_ready(&self, id: OpId, object: ObjectId) -> bool {
        if self.origin_barred().is_some() {
            return true;
        }
        self.may_change_origin()
            && self.store.get(object).is_none_or(|known| {
                !known.data_dirty() && !known.job.is_running() && !known.alternation.others_first(id, true)
            })
    }

    pub(super) fn step_direct(&mut self, id: OpId, op: &mut Op, change: &Change) -> StepResult {
        let object = op.object;
        if change.needs_the_log() {
            return StepResult::Finish(Reply::Failed(Errno::OPNOTSUPP));
        }
        if op.how.handling == Handling::Whole {
            // The origin could keep half of it.
            return StepResult::Finish(Reply::Failed(Errno::IO));
        }
        if op.stage == Stage::Locking {
            if let Some(errno) = self.origin_barred() {
                return StepResult::Finish(Reply::Failed(errno));
            }
            if !self.direct_ready(id, object) {
                self.wait_for_other_kind(id, object, true);
                return StepResult::Wait;
            }
            if !self.leaves_what_is_promised(object, change) {
                return self.wait_for_room(id, object);
            }
            // From here on no destage job starts on it: see `pump_destage`.
            let known = self.store.known(object);
            known.past.begins();
            known.alternation.over(id);
            op.stage = Stage::Dropping;
            self.poison(object, change.span());
            let stale = self.forget_stale(object, change.span());
            if (stale || self.comes_after_logged(change)) && !self.wait_durable(id) {
                return StepResult::Wait;
            }
        }
        if op.stage == Stage::Dropping {
            // The log may have failed while this waited for it. Then the note of that goes to the origin first.
            if let Some(errno) = self.origin_barred() {
                let known = self.store.known(object);
                known.past.ends();
                known.alternation.over(id);
                return StepResult::Finish(Reply::Failed(errno));
            }
            if !self.may_change_origin() {
                // From the start again: destage may have to set right before it what fails meanwhile.
                self.store.known(object).past.ends();
                op.stage = Stage::Locking;
                self.wait_for_other_kind(id, object, true);
                return StepResult::Wait;
            }
            if !self.leaves_what_is_promised(object, change) {
                // While this waited for the log something else was accepted.
                self.store.known(object).past.ends();
                op.stage = Stage::Locking;
                return self.wait_for_room(id, object);
            }
            self.store.known(object).alternation.over(id);
            op.stage = Stage::AtOrigin;
            if self.change_origin(id, object, change, op.how.user) {
                return StepResult::Wait;
            }
        }
        if op.stage == Stage::AtOrigin {
            if let Some(errno) = op.take_failure() {
                self.direct_failed(object);
                self.poison(object, change.span());
                return StepResult::Finish(Reply::Failed(errno));
            }
            op.stage = Stage::Resizing;
            // Not the origin's size: that is unknown while another change has failed.
            let size = self.store.known(object).state.size;
            let after = change.size_after(size);
            let grows = matches!(change, Change::Zero { .. } | Change::Allocate { .. });
            if grows && after > size {
                let known = self.store.known(object);
                if !known.origin_size.is_known() {
                    // Should it be longer, that gives back what is reserved behind.
                    known.space.cut(after);
                }
                self.start(Purpose::Op(id), |ticket| Effect::OriginResize { ticket, object, size: after });
                return StepResult::Wait;
            }
        }
        if op.stage == Stage::Resizing {
            if let Some(errno) = op.take_failure() {
                self.direct_failed(object);
                self.poison(object, change.span());
                return StepResult::Finish(Reply::Failed(errno));
            }
            self.store.known(object).past.ends();
            self.apply_direct(object, change, op.how);
            self.size_counts_here(object);
            op.stage = Stage::SyncingOrigin;
            if let Change::Write { durable: true, .. } = change {
                self.start(Purpose::Op(id), |ticket| Effect::OriginSync { ticket, object });
                return StepResult::Wait;
            }
        }
        if op.stage == Stage::SyncingOrigin && change.durable() {
            if let Some(errno) = op.take_failure() {
                self.origin_refused_sync(object, errno);
                return StepResult::Finish(Reply::Failed(errno));
            }
            // The origin may have told destage, and nobody else, that it has lost this write.
            if let Some(errno) = self.store.known(object).past.refused() {
                return StepResult::Finish(Reply::Failed(errno));
            }
        }
        if op.stage == Stage::SyncingOrigin {
            op.stage = Stage::Syncing;
            // What others were told is done in the meantime, through the log, comes before this one.
            if self.comes_after_logged(change) && !self.wait_durable(id) {
                return StepResult::Wait;
            }
        }
        self.count_change(change);
        if let Change::Write { data, .. } = change
            && matches!(op.how.handling, Handling::Bypass | Handling::ReadOnly)
        {
            self.stats.bypassed_writes += 1;
            self.stats.bypassed_write_bytes += data.len() as u64;
        }
        StepResult::Finish(Reply::Changed(self.store.known(object).attributes()))
    }

    /// Makes a change at the origin wait until what is dirty has its space there.
    fn wait_for_room(&mut self, id: OpId, object: ObjectId) -> StepResult {
        self.store.known(object).alternation.over(id);
        if self.life.is_ending() {
            return StepResult::Finish(Reply::Failed(Errno::SHUTDOWN));
        }
        self.requests.wait_for_room(id);
        self.stats.stalls += 1;
        StepResult::Wait
    }

    /// A change at the origin failed, and may be there in part, or have made the file longer: destage sets that right.
    /// Until it has, the size that the object has here counts after a crash, and not the origin's.
    fn direct_failed(&mut self, object: ObjectId) {
        let known = self.store.known(object);
        known.past.ends();
        known.loses_origin_size();
        // A program that reads what is there of it, and syncs, counts on it.
        known.past.note_made();
        self.size_counts_here(object);
        self.destage.hurry(object);
    }

    /// After a failure the log gets the size, and again with each change that was under way meanwhile: from here on it
    /// is the log's size that counts after a crash. A file that the log does not name gets a name there, if there is
    /// room for one.
    pub(crate) fn size_counts_here(&mut self, object: ObjectId) {
        let known = self.store.known(object);
        if known.origin_size.is_known() {
            return;
        }
        // What the failed change left behind the end must not show once a change through the log makes the object
        // longer.
        known.state.origin_valid = known.state.origin_valid.min(known.state.size);
        // One whose last name is gone needs none.
        let may_name = known.persisted || !known.name.is_gone();
        if self.store.takes_writes() && may_name && self.make_room_for(object) {
            let known = self.store.known(object);
            known.trust.makes_own_size_count();
            known.owes_attributes();
            self.store.persist(object);
        }
    }

    /// Whether there are changes in the log that no crash may take back and leave this one.
    fn comes_after_logged(&self, change: &Change) -> bool {
        change.durable() && self.store.takes_writes() && self.store.log().has_unsynced_changes()
    }

    /// Drops what the pool has of these blocks; `true` if the log must become durable first. Mostly it need not: a
    /// writer past the pool pays for the flash once, and not with each write.
    fn forget_stale(&mut self, object: ObjectId, span: Span) -> bool {
        let log_works = self.store.takes_writes();
        let known = self.store.known(object);
        // After a failure the log's size counts on.
        let unflagged = known.trust.goes_direct(known.origin_size.is_known()) && known.persisted;
        let traces = known.traces;
        known.owes_attributes();
        known.status_moved();
        let ahead = known.dropped.goes_to(span);
        self.store.clear_range(object, span.first, span.end);
        if !log_works {
            return false;
        }
        if unflagged {
            self.store.persist(object);
        }
        let drops = traces && !self.store.known(object).dropped.has(span);
        if drops {
            let span = self.with_neighbours(object, span, ahead);
            self.store.clear_range(object, span.first, span.end);
            self.store.say_dropped(object, span);
            self.store.known(object).dropped.add(span);
        }
        let last = self.store.last_entry();
        let known = self.store.known(object);
        if unflagged || drops {
            known.dropped.said(last);
        }
        let (said_at, identity) = (known.dropped.said_at(), known.state.identity);
        said_at > self.store.log().durable() || self.store.may_come_back(identity)
    }

    /// These blocks, `ahead` more behind them, and all beyond of which the pool has nothing: to drop more costs
    /// nothing, and the next change need not wait for the flash. The front of the object, too, if the pool has nothing
    /// of that.
    fn with_neighbours(&self, object: ObjectId, span: Span, ahead: u64) -> Span {
        let Some(known) = self.store.get(object) else { return span };
        let from = Block(span.end.0.saturating_add(ahead));
        let end = known.map().range(from, Block(u64::MAX)).next().map_or(Block(u64::MAX), |(block, _)| block);
        let front_is_empty = known.map().range(Block(0), span.first).next().is_none();
        Span { first: if front_is_empty { Block(0) } else { span.first }, end }
    }

    /// Starts the change at the origin; `false` if there is nothing to do there.
    fn change_origin(&mut self, id: OpId, object: ObjectId, change: &Change, user: u32) -> bool {
        let size = self.store.known(object).state.size;
        match change {
            Change::Write { offset, data, .. } => {
                let blocks = change.span().blocks();
                let known = self.store.known(object);
                known.past.writes(blocks);
                known.space.passed_by(*offset, offset + data.len() as u64);
                self.origin_space.counted.pass(blocks);
                let (offset, data) = (*offset, vec![data.clone()]);
                let written_out = false;
                self.start(Purpose::Op(id), |ticket| Effect::OriginWrite {
                    ticket,
                    object,
                    offset,
                    data,
                    user,
                    written_out,
                });
            }
            Change::Together { .. } => unreachable!("only the log makes several writes as one"),
            Change::Truncate { size, .. } => {
                let size = *size;
                self.store.known(object).space.cut(size);
                self.start(Purpose::Op(id), |ticket| Effect::OriginResize { ticket, object, size });
            }
            Change::Zero { offset, len, .. } => {
                let (offset, len) = (*offset, (*len).min(size.saturating_sub(*offset)));
                if len == 0 {
                    return false;
                }
                self.store.known(object).space.was_punched(offset, offset + len);
                let effect = |ticket| Effect::OriginZero { ticket, object, offset, len, keep_space: false };
                self.start(Purpose::Op(id), effect);
            }
            Change::Allocate { offset, len, .. } => {
                let ranges = vec![(*offset, offset + len)];
                let space = &mut self.store.known(object).space;
                space.keep_to(offset + len);
                space.passed_by(*offset, offset + len);
                let effect = |ticket| Effect::OriginReserve { ticket, object, ranges, user, insists: true };
                self.start(Purpose::Op(id), effect);
            }
        }
        true
    }

    fn apply_direct(&mut self, object: ObjectId, change: &Change, how: Treatment) {
        let now = self.now;
        self.forget_end(object, change);
        let known = self.store.known(object);
        let size = change.size_after(known.state.size);
        known.origin_size.changed_to(size);
        let grows = size > known.state.size;
        known.state.size = size;
        known.state.origin_valid = u64::MAX;
        if grows && matches!(change, Change::Write { .. }) && known.space.grew_past_the_log() {
            // Destage comes to it for the run's sake.
            known.owes_attributes();
        }
        known.past.note_made();
        known.touch(change.mtime(), change.mtime(), now);
        self.destage.note(object);
        self.poison(object, change.span());
        if self.config.behaviour_for(how).keep_writes
            && let Change::Write { offset, data, .. } = change
        {
            self.keep_written(object, *offset, data, how.class);
        }
    }

    /// A change makes the object longer after another one had failed, and what the origin has of that shows from here
    /// on. A block in which the object ended may have been read in between, as zeros behind the end: it goes, and no
    /// crash brings it back beside the new size.
    fn forget_end(&mut self, object: ObjectId, change: &Change) {
        let known = self.store.known(object);
        let size = known.state.size;
        let within = !size.is_multiple_of(BLOCK_U64);
        if known.origin_size.is_known() || !within || change.size_after(size) <= size {
            return;
        }
        let said = known.traces;
        let first = Block::holding(size);
        let span = Span { first, end: first.plus(1) };
        self.poison(object, span);
        self.store.clear_range(object, span.first, span.end);
        if said && self.store.takes_writes() {
            self.store.say_dropped(object, span);
        }
    }

    /// Lets the whole blocks of what was written to the origin into the pool.
    fn keep_written(&mut self, object: ObjectId, offset: u64, data: &headpond_base::Buf, by: Class) {
        let size = self.store.known(object).state.size;
        let end = offset + data.len() as u64;
        let first = Block(headpond_base::blocks_for(offset));
        // A last block that ends with the object is whole, too: behind it are zeros.
        let last = if end == size { Block(headpond_base::blocks_for(end)) } else { Block::holding(end) };
        let room = self.store.has_room_for_clean();
        // A sync that the origin refused while this went there may have taken it along.
        let lost = self.store.known(object).past.refused().is_some();
        if first >= last || !room || lost || !self.make_room_for(object) {
            return;
        }
        let skip = usize::try_from(first.byte() - offset).expect("less than a block");
        let data = &data[skip..];
        let places: Vec<Destination> = (first.0..last.0)
            .zip(data.chunks(headpond_base::BLOCK))
            .map(|(block, bytes)| {
                self.keeping().touched(object, Block(block));
                self.keeping().place(object, Block(block), by, true, bytes)
            })
            .collect();
        let len = places.len() * headpond_base::BLOCK;
        self.gathering().let_in(object, first, &places, &data[..data.len().min(len)]);
    }
}
