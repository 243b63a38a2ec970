//! The first look at a request: what is at once answered, what is refused, what becomes work.

use headpond_base::{Errno, ObjectId, RECORD_BYTES_MAX, Sequence};
use headpond_format::{Stamp, Witness};
use headpond_log::Mutation;

use crate::config::Config;
use crate::effect::{Effect, Outcome};
use crate::engine::Engine;
use crate::engine::ops::together;
use crate::kind::to_be_files;
use crate::life::Life;
use crate::locks::OpId;
use crate::op::{Change, Op, Stage, StepResult, Work};
use crate::purpose::Purpose;
use crate::request::{OpenObject, Reply, Request, RequestId};
use crate::store::object::{OBJECT_BYTES_MAX, Object};
use crate::treatment::{Handling, Treatment};

impl Engine {
    /// Notes what an earlier life of the pool left to be destaged.
    pub(super) fn takes_up_what_is_dirty(&mut self) {
        let dirty = self.store.objects().iter().filter(|(_, object)| {
            // One at which a job was interrupted may lack nothing but the stamp by which it is known again.
            object.is_dirty() || object.data_dirty() || !object.trust.is_trusted()
        });
        let dirty: Vec<_> = dirty.map(|(id, _)| *id).collect();
        if self.store.sums().dirty_blocks() > 0 {
            self.origin_space.counted.have_earlier_ones();
        }
        for id in dirty {
            let known = self.store.known(id);
            known.owes_attributes();
            // Perhaps written directly, and not synced there: a flush must do that.
            if known.trust.is_changed_directly() {
                known.past.may_have_been_made();
            }
            // Recovery gives the shard the files of dirty objects before anything else.
            known.attached = true;
            known.was_left_dirty();
            self.destage.note(id);
        }
    }

    pub(crate) fn begin(&mut self, id: RequestId, request: Request) {
        if self.life.is_ending() {
            return self.answer(id, Reply::Failed(Errno::SHUTDOWN));
        }
        let is_volume = |object: ObjectId| self.store.get(object).is_some_and(|known| !known.is_file());
        if to_be_files(&request).into_iter().flatten().any(is_volume) {
            return self.answer(id, Reply::Failed(Errno::OPNOTSUPP));
        }
        let usual = Treatment::default();
        match request {
            Request::Open(found) => self.open(id, &found),
            Request::Close { object } => self.close(id, object),
            Request::Restamp { object, stamp, seen } => self.restamp(id, object, stamp, seen),
            Request::StatusBegins { object } => self.status_begins(id, object),
            Request::StatusEnds { object, stamp } => self.status_ends(id, object, stamp),
            Request::SetMtime { object, mtime, ctime } => {
                let now = self.now;
                let Some(known) = self.store.get_mut(object) else {
                    return self.answer(id, Reply::Failed(Errno::BADF));
                };
                known.touch(mtime, ctime, now);
                let (attributes, persisted) = (known.attributes(), known.persisted);
                if persisted && self.store.takes_writes() {
                    self.store.persist(object);
                }
                self.destage.note(object);
                self.answer(id, Reply::Changed(attributes));
            }
            Request::Read { object, offset, len, how } => {
                let how = self.treat_read(object, offset, u64::from(len), how);
                self.on_object(id, object, Work::Read { offset, len: u64::from(len) }, how)
            }
            Request::Write { object, offset, data, mtime, durable, how } => {
                let end = offset.saturating_add(data.len() as u64);
                let fits = u64::from(self.store.log().geometry().record_blocks_max());
                if data.is_empty()
                    || data.len() > RECORD_BYTES_MAX
                    || crate::locks::Span::of_bytes(offset, data.len() as u64).blocks() > fits
                {
                    return self.answer(id, Reply::Failed(Errno::INVAL));
                }
                let how = self.treat_write(object, offset, data.len() as u64, durable, how);
                self.change(id, object, end, Change::Write { offset, data, mtime, durable }, how);
            }
            Request::WriteTogether { object, pieces, mtime, durable, how } => {
                if !together::are_apart(&pieces) {
                    return self.answer(id, Reply::Failed(Errno::INVAL));
                }
                let (entry_bytes, blocks) = together::room(&together::runs(&pieces));
                let most = u64::from(self.store.log().geometry().record_blocks_max());
                if entry_bytes > headpond_format::BATCH_ENTRY_BYTES || blocks > most {
                    return self.answer(id, Reply::Failed(Errno::FBIG));
                }
                let end = pieces.last().map_or(0, |(offset, data)| offset.saturating_add(data.len() as u64));
                let change = Change::Together { pieces: pieces.into(), mtime, durable };
                self.change(id, object, end, change, how);
            }
            Request::Truncate { object, size, mtime } => {
                self.change(id, object, size, Change::Truncate { size, mtime }, usual)
            }
            Request::Zero { object, offset, len, extend, mtime } => {
                self.change(id, object, offset.saturating_add(len), Change::Zero { offset, len, extend, mtime }, usual);
            }
            Request::Allocate { object, offset, len, extend, mtime, user } => {
                let change = Change::Allocate { offset, len, extend, mtime };
                self.change(id, object, offset.saturating_add(len), change, Treatment { user, ..usual });
            }
            Request::Sync { object, copies } => {
                self.sequential.synced(object);
                self.on_object(id, object, Work::Sync, Treatment { copies, ..usual });
            }
            Request::SyncAll => self.start_op(id, ObjectId(0), Work::SyncAll, usual),
            Request::Seek { object, offset, data } => self.on_object(id, object, Work::Seek { offset, data }, usual),
            Request::Namespace(change) => self.start_op(id, ObjectId(0), Work::Namespace(change), usual),
            Request::Flush { id: name, scope } => {
                self.start_op(id, ObjectId(0), Work::Flush { id: name, scope }, usual)
            }
            Request::CancelFlush(name) => self.cancel(id, name),
            Request::SetMode(mode) => self.start_op(id, ObjectId(0), Work::SetMode(mode), usual),
            Request::Configure(config) => {
                self.keeping().configure(&config);
                self.sequential.set_cutoff(config.sequential_cutoff);
                self.config = Config { mode: self.config.mode, mutation: self.config.mutation, ..*config };
                self.checkpoints.settle_packing(&mut self.store, &self.config);
                self.checkpoints.settle_redundancy(&mut self.store, &self.config);
                self.answer(id, Reply::Done);
            }
            Request::ChangeMembers(change) => self.change_members(id, change),
            Request::CancelMembersChange => self.cancel_members_change(id),
            Request::Scrub => self.begin_scrub(id),
            Request::CancelScrub => self.cancel_scrub(id),
            Request::Stop => {
                self.life.becomes(Life::Stopping);
                self.requests.fail_for_room(Errno::SHUTDOWN);
                self.try_failing_again();
                self.cancel_flushes();
                self.start_op(id, ObjectId(0), Work::Stop, usual);
            }
        }
    }

    /// How a read is treated: it bypasses the pool if it belongs to a long sequential run. What is pinned has its place
    /// in the pool, however it is read.
    fn treat_read(&mut self, object: ObjectId, offset: u64, len: u64, how: Treatment) -> Treatment {
        let bypasses = self.sequential.has_read(object, offset, len, how) && !self.keep.is_pinned(how.class);
        if bypasses { Treatment { handling: Handling::Bypass, ..how } } else { how }
    }

    /// How a write is treated, by the same rule.
    fn treat_write(&mut self, object: ObjectId, offset: u64, len: u64, durable: bool, how: Treatment) -> Treatment {
        if !self.sequential.has_write(object, offset, len, how)
            || durable
            || !self.store.takes_writes()
            || self.keep.is_pinned(how.class)
        {
            return how;
        }
        if self.config.behaviour_for(how).log_writes {
            let Some(known) = self.store.get_mut(object) else { return how };
            if !self.sequential.may_switch(known, self.now) {
                return how;
            }
        }
        self.sequential.note_bypassed_write();
        Treatment { handling: Handling::Bypass, ..how }
    }

    fn on_object(&mut self, id: RequestId, object: ObjectId, work: Work, how: Treatment) {
        let refusal = self.store.get(object).map_or(Some(Errno::BADF), |known| known.refuses(&work));
        if let Some(errno) = refusal {
            return self.answer(id, Reply::Failed(errno));
        }
        if work.is_treated() {
            self.store.pack_as(object, how.compression);
        }
        self.start_op(id, object, work, how);
    }

    fn change(&mut self, id: RequestId, object: ObjectId, end: u64, change: Change, how: Treatment) {
        if end > OBJECT_BYTES_MAX {
            self.answer(id, Reply::Failed(Errno::FBIG));
        } else {
            self.on_object(id, object, Work::Change(change), how);
        }
    }

    pub(crate) fn step_op(&mut self, id: OpId, op: &mut Op) -> StepResult {
        match &op.work {
            Work::Open { allocated } => {
                let allocated = *allocated;
                self.step_open(id, op, allocated)
            }
            Work::Read { .. } => self.step_read(id, op),
            Work::Change(_) => self.step_change(id, op),
            Work::Sync => self.step_sync(id, op),
            Work::SyncAll => self.step_sync_all(id, op),
            Work::Seek { .. } => self.step_seek(id, op),
            Work::Namespace(_) => self.step_namespace(id, op),
            Work::Status => self.step_status(id, op),
            Work::Flush { .. } => self.step_flush(id, op),
            Work::SetMode(_) => self.step_set_mode(id, op),
            Work::Stop => self.step_stop(id, op),
        }
    }

    fn open(&mut self, id: RequestId, found: &OpenObject) {
        let object = match self.object_for(found) {
            Ok(object) => object,
            Err(errno) => return self.answer(id, Reply::Failed(errno)),
        };
        let known = self.store.known(object);
        // Without a birth time a file is known by its inode number alone. If it is new, that may have been another's a
        // moment ago: after a crash before the log's word of that one is durable it would be taken for it.
        let new = found.identity().lacks_birth() && !known.persisted;
        if new && self.store.identities().nameless_forgotten() > self.store.log().durable() {
            return self.start_op(id, object, Work::Open { allocated: found.allocated() }, Treatment::default());
        }
        let reply = self.opened(object, found.allocated());
        self.answer(id, reply);
    }

    fn step_open(&mut self, id: OpId, op: &mut Op, allocated: u64) -> StepResult {
        if op.stage == Stage::Begin {
            op.stage = Stage::Syncing;
            if !self.wait_durable(id) {
                return StepResult::Wait;
            }
        }
        StepResult::Finish(self.opened(op.object, allocated))
    }

    fn opened(&mut self, object: ObjectId, allocated: u64) -> Reply {
        let known = self.store.known(object);
        known.opens += 1;
        // Of an attached one destage may have given back since what was found when the open was asked for.
        if !std::mem::replace(&mut known.attached, true) {
            known.space.found((0, allocated));
        }
        Reply::Opened { object, attributes: known.attributes() }
    }

    /// The object of what was found: the known one, if it is the same and still as it was left.
    fn object_for(&mut self, found: &OpenObject) -> Result<ObjectId, Errno> {
        let (identity, witness) = (found.identity(), found.witness());
        if let Some(id) = self.store.identities().of(identity) {
            let known = self.store.known(id);
            if known.state.identity == identity && !found.is_created() {
                if !known.is_dirty() && witness.ctime() > known.state.witness.ctime() {
                    // Moved by others, perhaps: it is no mark to know the file again by before the next stamp.
                    known.status.note_lost();
                    known.status_known = false;
                    if !known.is_in_use() && known.trust.is_trusted() {
                        known.has_status_of(witness.ctime());
                    }
                }
                let changed = !known.state.witness.shows_the_same(witness);
                if !known.is_in_use() && !known.is_dirty() && known.trust.is_trusted() && changed {
                    // Written behind the mount's back while nobody had it open here: promise 6.
                    known.follow_origin(witness);
                    known.space.forget();
                    self.drop_clean(id);
                } else if changed && !known.is_file() {
                    // Nobody but others can have done that, and what is dirty or in use here would go over it.
                    return Err(Errno::STALE);
                }
                if !found.path().is_empty() {
                    self.store.set_path(id, found.path());
                }
                return Ok(id);
            }
            // The inode number was given to a new file: the old one is gone from the origin.
            self.store.note_inode_reused(identity);
            if self.is_used(id) {
                self.store.known(id).name.note_removed();
            } else {
                self.forget(id);
            }
        }
        let id = self.store.draw_object();
        let mut object = Object::new(found);
        if !found.is_created() {
            object.state.made_at = self.store.identities().made_at(identity, witness.ctime()).unwrap_or_default();
        }
        self.store.adopt(id, object);
        if found.is_created() {
            // Who makes a file mostly sets its mode and times next.
            self.status_settles_later(id);
        }
        Ok(id)
    }

    /// Drops all clean data of an object that nobody uses.
    fn drop_clean(&mut self, id: ObjectId) {
        let all = crate::locks::Span::from_byte(0);
        self.store.clear_range(id, all.first, all.end);
        // What is being brought was the origin's before.
        self.poison(id, all);
        if self.store.known(id).persisted && self.store.takes_writes() {
            self.store.say_dropped(id, all);
            self.store.persist(id);
        }
    }

    fn close(&mut self, id: RequestId, object: ObjectId) {
        let Some(known) = self.store.get_mut(object).filter(|known| known.opens > 0) else {
            return self.answer(id, Reply::Failed(Errno::BADF));
        };
        known.opens -= 1;
        if known.opens == 0 {
            known.past.note_closed();
        }
        self.answer(id, Reply::Done);
        self.retire(object);
    }

    fn restamp(&mut self, id: RequestId, object: ObjectId, stamp: Stamp, seen: bool) {
        if let Some(known) = self.store.get_mut(object) {
            known.status_moved();
            if seen {
                known.has_status_of(stamp.ctime);
            }
        }
        if let Some(known) = self.store.get_mut(object)
            && !known.is_dirty()
            && known.trust.is_trusted()
            && known.state.witness.shows_the_same(Witness::File(stamp))
        {
            known.state.witness = Witness::File(stamp);
            known.status.note_seen();
            if known.persisted && self.store.takes_writes() {
                self.store.persist(object);
            }
        } else if !seen {
            self.was_opened_meanwhile(object, stamp);
        }
        let known = self.store.get(object);
        self.answer(id, known.map_or(Reply::Done, |known| Reply::Changed(known.attributes())));
    }

    /// A file that is opened just now looks like this by now, and not as the open said. Who looked may have seen it
    /// while destage changed it, which is over.
    fn was_opened_meanwhile(&mut self, object: ObjectId, stamp: Stamp) {
        let Some(known) = self.store.get_mut(object) else { return };
        let alone = known.opens == 1 && known.active == 0 && known.locks.idle();
        if alone && !known.is_dirty() && known.trust.is_trusted() && stamp.ctime > known.state.witness.ctime() {
            known.follow_origin(Witness::File(stamp));
            known.space.forget();
            self.drop_clean(object);
        }
    }

    /// Whether something needs a known object: an open file, a request, destage, or a read that no request waits for.
    fn is_used(&self, id: ObjectId) -> bool {
        self.store.get(id).is_some_and(Object::is_in_use) || self.gather.fetches().bring_unasked(id)
    }

    /// Lets go of what nobody needs: a file that is gone, or one that is closed and clean.
    pub(crate) fn retire(&mut self, id: ObjectId) {
        let Some(object) = self.store.get(id) else { return };
        // What is being buried is let go of once the origin has answered.
        if self.is_used(id) || !object.locks.idle() || object.name.is_being_buried() {
            return;
        }
        if object.name.is_gone()
            && object.attached
            && object.persisted
            && object.is_dirty()
            && self.store.takes_writes()
        {
            return self.bury(id);
        }
        if !object.name.is_gone() && (object.is_dirty() || object.past.needs_sync()) {
            return;
        }
        if !object.name.is_gone() && object.attached && object.job.ended_at() > self.settled() {
            return self.leaving.waits(object.job.ended_at(), id);
        }
        let nothing_known = object.map().blocks() == 0 && object.in_memory == 0 && !self.destage.has_untold_loss(id);
        if object.name.is_gone() || nothing_known {
            self.forget(id);
        } else if object.attached {
            self.store.known(id).attached = false;
            self.emit(Effect::OriginRelease { object: id });
        }
    }

    /// A file with dirty data is gone at the origin. Should the origin forget that in a power cut,
    /// the file would be back, and want its data: so the data goes only once that is durable.
    fn bury(&mut self, id: ObjectId) {
        let known = self.store.known(id);
        if known.name.begins_burial() {
            self.burials.begin(id);
            self.start(Purpose::Bury(id), |ticket| Effect::OriginSync { ticket, object: id });
        }
    }

    /// The origin answered. If it could not, it is asked again.
    pub(crate) fn buried(&mut self, id: ObjectId, outcome: &Outcome) {
        let failed = if let Outcome::Failed(errno) = outcome { Some(*errno) } else { None };
        if let Some(known) = self.store.get_mut(id) {
            known.name.ends_burial(failed);
        }
        self.burials.end(id, failed.map(|_| self.now.plus(self.destage.retry_after(id, self.life))));
        if failed.is_some() {
            self.stats.origin_errors += 1;
            self.destage.burial_failed(id);
        } else if self
            .store
            .get(id)
            .is_some_and(|known| known.opens == 0 && known.active == 0 && !known.job.is_running())
        {
            self.forget(id);
        }
    }

    /// Asks the origin again for what it could not do, and whose time has come.
    pub(crate) fn bury_again(&mut self) {
        while let Some(id) = self.burials.next_due(self.now) {
            self.retire(id);
        }
    }

    fn forget(&mut self, id: ObjectId) {
        let failed = !self.store.takes_writes();
        let named = self.store.known(id).persisted;
        if failed {
            // Nothing can be appended. Once the origin's side knows that, the pool is not trusted at the next start.
            self.store.unpersist(id);
        }
        let known = self.store.known(id);
        let (attached, gone, nameless) = (known.attached, known.name.is_gone(), known.state.identity.lacks_birth());
        let cleaned_at = known.job.ended_at();
        self.leaving.stays(cleaned_at, id);
        self.origin_space.counted.passed(known.past.give_up());
        self.destage.loss_is_over(id);
        self.store.forget(id);
        if attached && gone && nameless && named {
            // Its inode number goes to another file as soon as this one is closed, and nothing tells the two apart
            // but the log's word that it is forgotten.
            self.store.want_sync();
            let said = if failed { Sequence(u64::MAX) } else { self.store.identities().nameless_forgotten() };
            self.leaving.waits(said, id);
        } else if attached {
            self.emit(Effect::OriginRelease { object: id });
        }
    }

    /// Up to here the log's word counts after a crash. Once the origin's side knows that it has failed, nothing of it
    /// does. If that could not be written down, what the log still names is not let go of: else its inode number went
    /// to a new file.
    fn settled(&self) -> Sequence {
        if self.pool_failed.is_told() || Mutation::LetGoEarly.is_planted(self.config.mutation) {
            Sequence(u64::MAX)
        } else {
            self.store.log().durable()
        }
    }

    /// Lets go of what waited for the log, unless it is needed again.
    pub(crate) fn let_go_of_settled(&mut self) {
        while let Some(object) = self.leaving.next(self.settled()) {
            if self.store.get(object).is_some() {
                self.retire(object);
            } else {
                self.emit(Effect::OriginRelease { object });
            }
        }
    }
}
