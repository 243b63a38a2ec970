//! A job: one round of destage of one object.
//!
//! In order: the log durably says that the origin's file is being changed; the file is cut to
//! where it counts; runs are read from flash and written; the file is made as long as it must
//! be, and gets its time; it is synced; only now the blocks count as clean, and the log gets the
//! stamp by which the file is known again. If the origin refuses a write, what it took goes on
//! to the sync all the same, and only the rest stays dirty. Outside of a job the stamp holds: a change by others
//! is seen at the next start.

use std::collections::VecDeque;

use headpond_base::{Block, Errno, Nanos, ObjectId, RangeSet, Sequence};
use headpond_format::Stamp;
use headpond_log::Mutation;
use headpond_map::Slot;

use super::group::Group;
use super::moves::Moves;
use super::run::{DirtyPart, Run, pieces};
use super::{Destaging, ROUND_BLOCKS};
use crate::effect::{Effect, Outcome};
use crate::origin_size::OriginSize;
use crate::purpose::{JobEffect, JobId, Purpose, Written};

/// A round begins no more writes once the origin refused so many: it may be gone, or full.
const REFUSALS_MAX: u32 = 8;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum JobStage {
    /// Waits until the log durably knows.
    Announced(Sequence),
    /// The file is cut here: all behind is nothing.
    Cutting(u64),
    /// A range that does not count is made zeros, where what lies behind it is promised space.
    Blanking {
        gives: bool,
    },
    Writing,
    Growing {
        size: u64,
        gives: bool,
    },
    /// Space that is kept for a hole is given back.
    Punching,
    /// The run past the end is given back.
    Trimming,
    Stamping,
    Syncing,
}

pub(super) struct Job {
    pub(super) object: ObjectId,
    stage: JobStage,
    pub(super) from: Block,
    /// About so many blocks: it ends with the first write that brings them. 0: none.
    aim: u64,
    /// A request waits for it: full depth.
    pub(super) urgent: bool,
    /// It has waited for what was written or moved while the log was told of it.
    waited: bool,
    pub(super) runs: Vec<Run>,
    /// Which runs go together.
    pub(super) groups: Vec<Group>,
    /// Groups not begun yet.
    waiting: VecDeque<usize>,
    /// Writes begun and not over, the reads for them included.
    pub(super) under_way: usize,
    /// Blocks of its runs that are being read from flash.
    pub(super) reading: usize,
    /// When its writes began.
    began: Nanos,
    /// Where the next job on the object goes on; `None` if this one came to the end.
    pub(super) next: Option<Block>,
    /// The same, but for blocks that changed while it lasted: those are left for the next way round.
    pub(super) forward: Option<Block>,
    /// Why it ends without having synced anything.
    pub(super) failed: Option<Errno>,
    /// Why the origin refused a write, and how many it refused. What it took is synced, and clean.
    refused: Option<Errno>,
    refusals: u32,
    /// From where the origin's file did not count when the job began to set that right, and up to where it has.
    blanked: Option<(u64, u64)>,
    /// What the origin said of the file once it was written.
    stamp: Option<Stamp>,
    /// The object's count of these when the stamp was asked for.
    status_moves: u64,
    /// Some of its dirty data could not be read back.
    pub(super) lost: bool,
    /// An origin effect of the stage is under way.
    busy: bool,
    /// Writes nothing: its dirty data stays, and only the stamp by which the file is known again
    /// is taken.
    only_stamp: bool,
    /// Blocks that it made clean, and extents of zeros.
    pub(super) cleaned: u64,
    pub(super) moves: Moves,
}

impl Job {
    /// The next job on the object goes on here at the latest.
    fn leave(&mut self, block: Block) {
        self.next = Some(self.next.map_or(block, |next| next.min(block)));
    }

    /// Leaves everything from this block on for the next round.
    fn stop_before(&mut self, block: Block) {
        self.leave(block);
        self.forward = Some(block);
    }

    /// Leaves a run that was picked for the next round.
    pub(super) fn leave_run(&mut self, run: usize) {
        self.runs[run].unreadable = true;
        self.leave(self.runs[run].first);
    }

    /// Begins no more of its writes: what waits is left for the next round.
    fn leave_waiting(&mut self) {
        let Some(first) = self.waiting.front() else { return };
        let rest = self.runs[self.groups[*first].runs.start].first;
        self.stop_before(rest);
        for group in std::mem::take(&mut self.waiting) {
            self.runs[self.groups[group].runs.clone()].iter_mut().for_each(|run| run.unreadable = true);
        }
    }

    /// The origin refused a run. It stays dirty; the rest of the round goes on, so that one bad place holds up nothing
    /// else.
    fn write_refused(&mut self, run: usize, errno: Errno) {
        self.refused.get_or_insert(errno);
        self.refusals += 1;
        self.leave_run(run);
        if self.refusals == REFUSALS_MAX {
            self.leave_waiting();
        }
    }

    /// Whether anything that it wrote can count as clean.
    fn has_written(&self) -> bool {
        self.runs.iter().any(|run| !run.unreadable)
    }

    /// Why it did not bring all that it was to bring.
    pub(super) fn error(&self) -> Option<Errno> {
        self.failed.or(self.refused)
    }

    /// A group goes on with only these of its blocks.
    fn pick_anew(&mut self, index: usize, blocks: &[(Block, Slot)]) {
        let group = &mut self.groups[index];
        self.runs[group.runs.clone()].iter_mut().for_each(|run| run.unreadable = true);
        let first = self.runs.len();
        self.runs.extend(Run::of_data(blocks).into_iter().map(|run| Run { group: index, ..run }));
        // What was planned as one write without gaps is not worth reading what lies in those that came.
        group.apart |= group.alone();
        group.runs = first..self.runs.len();
    }
}

impl Destaging<'_> {
    pub(super) fn start_job(&mut self, object: ObjectId, from: Block, aim: u64, urgent: bool) {
        self.begin_job(object, from, aim, urgent, false);
    }

    /// A job that writes nothing and ends with a stamp: the pool is left with dirty data of a
    /// file at which an earlier job was interrupted, and a change by others must be seen later.
    pub(super) fn start_stamp(&mut self, object: ObjectId) {
        self.begin_job(object, Block(0), 0, true, true);
    }

    fn begin_job(&mut self, object: ObjectId, from: Block, aim: u64, urgent: bool, only_stamp: bool) {
        let id = JobId(self.destage.next_job);
        self.destage.next_job += 1;
        let failed = !self.store.takes_writes();
        let known = self.store.known(object);
        known.job.begins();
        known.status_known = false;
        if known.trust.begin_change() && known.persisted && !failed {
            self.store.persist(object);
        }
        let stage = JobStage::Announced(self.store.want_changes_durable());
        let job = Job {
            object,
            stage,
            from,
            aim,
            urgent,
            waited: false,
            runs: Vec::new(),
            groups: Vec::new(),
            waiting: VecDeque::new(),
            under_way: 0,
            reading: 0,
            began: self.now,
            next: None,
            forward: None,
            failed: None,
            refused: None,
            refusals: 0,
            blanked: None,
            stamp: None,
            status_moves: 0,
            lost: false,
            busy: false,
            only_stamp,
            cleaned: 0,
            moves: Moves::default(),
        };
        self.destage.jobs.insert(id, job);
        let over = self.step(id);
        assert!(over.is_none(), "a job that may start has something to wait for");
    }

    /// Moves a job on, if there is such a one. Gives the object of one that is over.
    pub(crate) fn step(&mut self, id: JobId) -> Option<ObjectId> {
        let mut job = self.destage.jobs.remove(&id)?;
        if self.run_job(id, &mut job) {
            self.destage.jobs.insert(id, job);
            return None;
        }
        self.end_job(id, &job);
        Some(job.object)
    }

    /// Moves a job on; `false` when it is over.
    fn run_job(&mut self, id: JobId, job: &mut Job) -> bool {
        loop {
            if job.busy {
                return true;
            }
            if !self.may_change_origin() {
                // Goes on once it is said that the pool has failed. If it cannot be, nothing goes to the origin any
                // more.
                let Some(errno) = self.origin_barred() else { return true };
                job.failed = job.failed.or(Some(errno));
            }
            if job.failed.is_some() && job.under_way == 0 {
                return false;
            }
            match job.stage {
                JobStage::Announced(sequence) => {
                    if self.store.log().durable() < sequence && self.store.takes_writes() {
                        return true;
                    }
                    if job.only_stamp {
                        self.stamp(id, job);
                        continue;
                    }
                    if !self.shape_is_durable(job.object) {
                        return true;
                    }
                    self.cut_or_pick(id, job);
                }
                JobStage::Cutting(_) | JobStage::Blanking { .. } => {
                    if !self.shape_is_durable(job.object) {
                        return true;
                    }
                    self.cut_or_pick(id, job);
                }
                JobStage::Writing => {
                    self.issue(id, job);
                    if job.under_way > 0 {
                        return true;
                    }
                    if job.refused.is_some() && !job.has_written() {
                        return false;
                    }
                    if job.waiting.is_empty() {
                        if !self.shape_is_durable(job.object) {
                            return true;
                        }
                        self.grow_or_stamp(id, job);
                    } else {
                        return true;
                    }
                }
                JobStage::Growing { .. } | JobStage::Punching => {
                    if !self.shape_is_durable(job.object) {
                        return true;
                    }
                    self.give_back_or_stamp(id, job);
                }
                JobStage::Trimming => self.stamp(id, job),
                JobStage::Stamping => self.sync(id, job),
                JobStage::Syncing if job.only_stamp => {
                    self.note_stamp(job);
                    return false;
                }
                JobStage::Syncing => {
                    self.count_clean(job);
                    return false;
                }
            }
        }
    }

    /// Whether the object's size and zeros are durable as they are now. The origin must not
    /// show what a crash may still take back (promise 2).
    fn shape_is_durable(&mut self, object: ObjectId) -> bool {
        let shaped_at = self.store.known(object).shaped_at;
        let durable = self.store.log().durable() >= shaped_at || !self.store.takes_writes();
        if !durable {
            self.store.want_sync();
        }
        durable
    }

    fn origin_step(&mut self, id: JobId, job: &mut Job, effect: impl FnOnce(crate::Ticket) -> Effect) {
        job.busy = true;
        let resizes = matches!(job.stage, JobStage::Cutting(_) | JobStage::Growing { .. } | JobStage::Trimming);
        if resizes {
            self.store.known(job.object).job.resizes();
        }
        self.outbox.start(Purpose::Destage(JobEffect::Step(id)), effect);
    }

    /// Makes nothing of what the origin has where its file does not count, then goes on to the writes.
    ///
    /// If nothing behind is promised space, the file is cut there. Else it is made zeros between what is dirty, which
    /// goes over it: cutting would give back what other files may take before it is asked for again.
    fn cut_or_pick(&mut self, id: JobId, job: &mut Job) {
        let object = job.object;
        let known = self.store.known(object);
        let (valid, size) = (known.state.origin_valid, known.state.size);
        let blanked = job.blanked.filter(|(from, _)| *from <= valid).map(|(_, to)| to);
        if valid >= known.origin_size.most() {
            return self.pick(job);
        }
        let behind = Block(headpond_base::blocks_for(valid)).byte();
        let promised = known.space.next(behind, true) < size || known.first_data(behind, size).is_some();
        if !promised && blanked.is_none() {
            job.stage = JobStage::Cutting(valid);
            known.space.begin_giving(behind, u64::MAX);
            self.origin_step(id, job, |ticket| Effect::OriginResize { ticket, object, size: valid });
            return;
        }
        let end = size.min(known.origin_size.most());
        if let Some((from, to)) = known.next_blank(blanked.unwrap_or(valid), end) {
            job.blanked = Some((valid, to));
            let keep_space = known.space.is_reserved(from, to);
            if !keep_space {
                known.space.begin_giving(from, to);
            }
            job.stage = JobStage::Blanking { gives: !keep_space };
            let len = to - from;
            self.origin_step(id, job, |ticket| Effect::OriginZero { ticket, object, offset: from, len, keep_space });
        } else if known.origin_size.most() > size {
            job.blanked = Some((valid, end));
            job.stage = JobStage::Cutting(size);
            known.space.begin_giving(Block(headpond_base::blocks_for(size)).byte(), u64::MAX);
            self.origin_step(id, job, |ticket| Effect::OriginResize { ticket, object, size });
        } else {
            self.pick(job);
        }
    }

    /// Takes dirty durable blocks and zeros in order, neighbours together. A paced job waits once for those that are
    /// not durable yet: one that reclaim has just moved may be old, and would wait for another way through all.
    ///
    /// It looks at more than it is to bring: a round that ended after so many blocks would cut in two what goes to the
    /// origin in one write.
    fn pick(&mut self, job: &mut Job) {
        let known = self.store.known(job.object);
        let [aim, most] = [job.aim, ROUND_BLOCKS].map(|blocks| usize::try_from(blocks).unwrap_or(usize::MAX));
        let dirty = DirtyPart::of(known, job.from, most.saturating_add(1));
        // Zeros are: the object's shape is.
        let durable = |dirty: &DirtyPart| {
            dirty.slot.is_none_or(|slot| self.store.log().is_durable(slot.location)) || !self.store.takes_writes()
        };
        if !job.urgent && !job.waited && !dirty.iter().take(aim).all(durable) {
            job.waited = true;
            job.stage = JobStage::Announced(self.store.want_changes_durable());
            return;
        }
        let mut picked = Vec::new();
        for (number, dirty) in dirty.into_iter().enumerate() {
            // Those that are left count, too: else a round with one of them would look like the object's last.
            if number == most {
                job.stop_before(dirty.first);
                break;
            }
            if durable(&dirty) {
                picked.push(dirty);
            } else {
                // Written since; the next round begins with it.
                job.leave(dirty.first);
            }
        }
        job.runs = Run::collect(&picked);
        self.group_runs(job);
        job.began = self.now;
        job.stage = JobStage::Writing;
    }

    /// Decides which runs go together; those for which the round has no time are left for the next.
    fn group_runs(&mut self, job: &mut Job) {
        let mut time = self.round_time().0;
        let (mut taken, mut blocks) = (0, 0);
        for joined in self.plan(job.object, &job.runs) {
            if taken > 0 && (joined.cost.0 > time || blocks >= job.aim) {
                break;
            }
            time = time.saturating_sub(joined.cost.0);
            let runs = taken..taken + joined.runs;
            blocks += job.runs[runs.clone()].iter().map(Run::weight).sum::<u64>();
            job.runs[runs.clone()].iter_mut().for_each(|run| run.group = job.groups.len());
            job.groups.push(Group::of(runs));
            taken += joined.runs;
        }
        if let Some(rest) = job.runs.get(taken) {
            let rest = rest.first;
            job.stop_before(rest);
            job.runs.truncate(taken);
        }
        job.waiting = (0..job.groups.len()).collect();
    }

    fn issue(&mut self, id: JobId, job: &mut Job) {
        let waited_for = job.urgent || self.destage.waited_for(job.object, self.life);
        let fast = waited_for || !self.destage.governor.rate().is_finite();
        let depth = self.depth(fast);
        self.cut_short(job, waited_for);
        while job.may_begin(depth) && (waited_for || self.destage.governor.grants()) {
            let Some(index) = job.waiting.pop_front() else { break };
            self.leave_changed(job, index);
            let group = &job.groups[index];
            let runs = group.runs.clone();
            let left = job.runs[runs.clone()].iter().filter(|run| !run.unreadable);
            let blocks: u64 = left.map(Run::weight).sum();
            if blocks == 0 {
                continue;
            }
            if !waited_for {
                self.destage.governor.spend(blocks);
            }
            job.under_way += 1;
            if group.alone() && job.runs[runs.start].zeros() {
                self.write_run(id, job, runs.start);
                continue;
            }
            for run in runs.clone().filter(|run| !job.runs[*run].unreadable).collect::<Vec<_>>() {
                self.read_run(id, job, run);
            }
            if !job.groups[index].alone() && !job.groups[index].apart {
                self.fill_gaps(id, job, index);
            }
            self.group_step(id, job, index);
        }
    }

    /// Leaves what is not begun for the next round, if a write waits for the room that this one makes and it
    /// has taken long enough, or if there is no reason to destage any more.
    fn cut_short(&self, job: &mut Job, waited_for: bool) {
        let long = self.now.since(job.began) >= super::ROUND_NEAR && self.is_waited_for;
        let idle = !waited_for && self.destage.governor.rate() == 0.0;
        if long || idle {
            job.leave_waiting();
        }
    }

    /// Takes the blocks of a group as they are now. One that was written since, and is not durable yet, or is
    /// not dirty any more, or has become zeros, is left for the next round: its place on flash may be
    /// another's by now. Its neighbours go all the same, or what lies beside a block that is written all the time would
    /// grow old. One that was only moved holds what was durable when it was picked, and still is in its old place until
    /// it is in the new one. A range of zeros goes whole or not at all: it must not take the space of what was written
    /// into it since.
    fn leave_changed(&self, job: &mut Job, index: usize) {
        let Some(known) = self.store.get(job.object) else { return };
        let (mut stay, mut changed) = (Vec::new(), false);
        for number in job.groups[index].runs.clone() {
            let run = &mut job.runs[number];
            if run.zeros() {
                if !known.zeros().has_all(run.first, run.end()) {
                    job.leave_run(number);
                }
                continue;
            }
            let picked = |block: Block| usize::try_from(block.0 - run.first.0).ok().and_then(|at| run.slots.get(at));
            let as_before = |(block, slot): &(Block, Slot)| {
                let durable = !self.store.takes_writes()
                    || self.store.log().is_durable(slot.location)
                    || picked(*block).is_some_and(|picked| job.moves.same(*block, *picked, *slot));
                slot.dirty && durable
            };
            let now: Vec<_> = known.map().range(run.first, run.end()).filter(as_before).collect();
            if now.len() == run.slots.len() {
                run.slots = now.iter().map(|(_, slot)| *slot).collect();
            } else {
                changed = true;
                job.leave_run(number);
            }
            stay.extend(now);
        }
        if changed && !stay.is_empty() {
            job.pick_anew(index, &stay);
        }
    }

    /// Writes a run whose bytes are all there.
    pub(super) fn write_run(&mut self, id: JobId, job: &mut Job, index: usize) {
        let object = job.object;
        let known = self.store.known(object);
        let (size, origin_size) = (known.state.size, known.origin_size.most());
        let run = &mut job.runs[index];
        let start = run.first.byte();
        let end = run.end().byte().min(size);
        let zero_end = end.min(origin_size);
        if run.unreadable || start >= end || run.zeros() && start >= zero_end {
            job.under_way -= 1;
            return;
        }
        if run.zeros() {
            // What an application asked for since keeps its space.
            let keep_space = known.space.is_reserved(start, zero_end);
            if !keep_space {
                known.space.begin_giving(start, zero_end);
            }
            let effect = JobEffect::Zero { job: id, run: index, gives: !keep_space };
            let len = zero_end - start;
            self.outbox.start(Purpose::Destage(effect), |ticket| Effect::OriginZero {
                ticket,
                object,
                offset: start,
                len,
                keep_space,
            });
            return;
        }
        let data =
            pieces(std::mem::take(&mut run.bytes), usize::try_from(end - start).expect("a run is at most 1 MiB"));
        let effect = JobEffect::Write { job: id, end, what: Written::Run(index) };
        self.outbox.start(Purpose::Destage(effect), |ticket| Effect::OriginWrite {
            ticket,
            object,
            offset: start,
            data,
            user: 0,
            written_out: true,
        });
    }

    fn grow_or_stamp(&mut self, id: JobId, job: &mut Job) {
        let object = job.object;
        let known = self.store.known(object);
        let size = known.state.size;
        if known.job.cut().is_none() && known.origin_size != OriginSize::Known(size) {
            // Of a file that has this size already, or a larger one, that gives back what is reserved behind it.
            let gives = known.origin_size.most() > size;
            if gives {
                known.space.begin_giving_tail(size);
            }
            job.stage = JobStage::Growing { size, gives };
            self.origin_step(id, job, |ticket| Effect::OriginResize { ticket, object, size });
        } else {
            self.give_back_or_stamp(id, job);
        }
    }

    /// Gives back what is kept for holes: behind the end that the origin's file had no range of zeros went there. And
    /// the run past the end, unless the file grows just now: cutting a file to the size that it has does that.
    fn give_back_or_stamp(&mut self, id: JobId, job: &mut Job) {
        let object = job.object;
        let waited_for = job.urgent || self.destage.waited_for(object, self.life);
        let now = self.now;
        let known = self.store.known(object);
        let size = known.state.size;
        if let Some((from, to)) = known.next_idle() {
            job.stage = JobStage::Punching;
            known.space.begin_giving(from, to);
            let len = to - from;
            let effect = |ticket| Effect::OriginZero { ticket, object, offset: from, len, keep_space: false };
            self.origin_step(id, job, effect);
            return;
        }
        let grows = now.since(known.changed_at) < super::QUIET && known.opens > 0 && !waited_for;
        if known.job.cut().is_none()
            && known.origin_size == OriginSize::Known(size)
            && !grows
            && known.space.has_tail(size)
        {
            job.stage = JobStage::Trimming;
            known.space.begin_giving_tail(size);
            self.origin_step(id, job, |ticket| Effect::OriginResize { ticket, object, size });
        } else {
            self.stamp(id, job);
        }
    }

    fn stamp(&mut self, id: JobId, job: &mut Job) {
        let object = job.object;
        let known = self.store.known(object);
        if !known.is_file() {
            return self.sync(id, job);
        }
        job.stage = JobStage::Stamping;
        known.changed_in_stamp = false;
        known.trust.gets_stamp();
        known.status_known = false;
        job.status_moves = known.status_moves;
        let mtime = known.state.mtime;
        self.origin_step(id, job, |ticket| Effect::OriginStamp { ticket, object, mtime });
    }

    fn sync(&mut self, id: JobId, job: &mut Job) {
        job.stage = JobStage::Syncing;
        if Mutation::CleanBeforeOriginSync.is_planted(self.config.mutation) {
            return;
        }
        let object = job.object;
        self.origin_step(id, job, |ticket| Effect::OriginSync { ticket, object });
    }

    /// The file is durable as the stamp says, whatever of it is dirty.
    fn note_stamp(&mut self, job: &Job) {
        let log_works = self.store.takes_writes();
        let known = self.store.known(job.object);
        known.name_is_durable();
        // From here on the stamp tells a change by others, also of a file that a direct change had failed on.
        known.state.flags.attributes_dirty = known.changed_in_stamp;
        known.origin_is_left();
        if let Some(stamp) = job.stamp {
            known.left_with(stamp, job.status_moves);
            // It was unknown if a write there had failed; nothing else has changed it since the stamp.
            known.origin_size = OriginSize::Known(stamp.size);
        }
        known.job.note_synced();
        self.origin_space.note_synced(self.store, job.object);
        let known = self.store.known(job.object);
        if log_works && known.persisted {
            self.store.persist(job.object);
        }
    }

    /// What was written and has not changed since is clean from now on.
    fn count_clean(&mut self, job: &mut Job) {
        let object = job.object;
        let log_works = self.store.takes_writes();
        let known = self.store.known(object);
        let cut = known.job.cut();
        let valid = cut.unwrap_or(u64::MAX);
        known.job.may_begin();
        known.name_is_durable();
        // A file with a run past the end comes again when it is quiet.
        known.state.flags.attributes_dirty = known.changed_in_stamp || known.space.has_tail(known.state.size);
        known.origin_is_left();
        known.state.origin_valid = valid;
        if let Some(stamp) = job.stamp {
            known.left_with(stamp, job.status_moves);
        }
        known.job.note_synced();
        self.origin_space.note_synced(self.store, object);
        let known = self.store.known(object);
        // A crash in the midst of the marks leaves an object that seems dirty, and clean ones' status is changed
        // unsaid.
        known.status.note_cleaning(true);
        // Before the marks: what they say is clean lies where the origin's file counts.
        if log_works && known.persisted {
            self.store.persist(object);
        }
        let mut clean = RangeSet::default();
        for run in job.runs.drain(..).filter(|run| !run.unreadable) {
            if run.zeros() {
                let before = self.store.known(object).zeros().extents();
                let end = run.end().min(Block::holding(valid));
                for (first, end) in self.store.mark_zeros_clean(object, run.first, end) {
                    clean.add(first.0, end.0);
                }
                if Mutation::CleanWrittenZeros.is_planted(self.config.mutation) {
                    let written: Vec<_> = self.store.known(object).map().range(run.first, end).collect();
                    written.into_iter().for_each(|(block, _)| self.store.mark_clean(object, block));
                    clean.add(run.first.0, end.0);
                }
                // A part of an extent is none.
                job.cleaned += before.saturating_sub(self.store.known(object).zeros().extents());
            }
            for (index, slot) in (0..).zip(&run.slots) {
                let block = run.first.plus(index);
                let present = self.store.get(object).and_then(|known| known.map().get(block));
                let same = present.is_some_and(|present| present.dirty && job.moves.same(block, *slot, present));
                if same && block.plus(1).byte() <= valid {
                    self.store.mark_clean(object, block);
                    self.keeping().note_clean(object, block);
                    clean.add(block.0, block.0 + 1);
                    job.cleaned += 1;
                }
            }
        }
        self.stats.destaged_blocks += job.cleaned;
        self.origin_space.counted.spend(job.cleaned);
        if !log_works {
            self.store.known(object).status.note_cleaning(false);
            return;
        }
        for (first, end) in clean.beyond(0) {
            self.store.say_clean(object, Block(first), end - first);
        }
        let known = self.store.known(object);
        known.status.note_cleaning(false);
        if known.data_dirty() && known.bounds_status() {
            self.store.persist(object);
        }
    }

    fn end_job(&mut self, id: JobId, job: &Job) {
        let now = self.now;
        let again = now.plus(self.destage.retry_after(job.object, self.life));
        let last = self.store.last_entry();
        let known = self.store.known(job.object);
        self.leaving.stays(known.job.ended_at(), job.object);
        known.job.ends(last);
        let failed = job.error().or(job.lost.then_some(Errno::IO));
        known.space.destaged(failed);
        if let Some(errno) = failed {
            known.job.fails(errno, again);
            // A size or a time that it gave the file may look right and not be synced.
            known.owes_attributes();
            self.stats.origin_errors += 1;
            self.requests.refused_again(job.object, errno);
        }
        self.origin_space.counted.destaged(failed);
        self.job_ended(id, job, failed);
    }

    /// An effect of a job is completed; the job is to be stepped. Gives the object whose file the origin has refused to
    /// sync.
    pub(crate) fn answered(&mut self, effect: JobEffect, outcome: Outcome) -> Option<(ObjectId, Errno)> {
        let id = effect.job();
        let mut job = self.destage.jobs.remove(&id)?;
        let mut refused = None;
        match effect {
            JobEffect::Read { reading, .. } => self.run_read(id, &mut job, reading, outcome),
            JobEffect::Fill { filling, .. } => self.gap_read(id, &mut job, filling, outcome),
            JobEffect::Write { what: Written::Group(group), .. } if matches!(outcome, Outcome::Failed(_)) => {
                // Perhaps for what lies between: a write that would have gone well must not fail for that.
                self.stats.origin_errors += 1;
                self.store.known(job.object).loses_origin_size();
                self.write_apart(id, &mut job, group);
            }
            JobEffect::Write { end, what, .. } => {
                job.under_way -= 1;
                let known = self.store.known(job.object);
                match (what, outcome) {
                    (Written::Run(run), Outcome::Failed(errno)) => {
                        known.loses_origin_size();
                        job.write_refused(run, errno);
                    }
                    _ => known.origin_size.reaches(end),
                }
            }
            JobEffect::Zero { run, gives, .. } => {
                job.under_way -= 1;
                if let Outcome::Failed(errno) = outcome {
                    job.write_refused(run, errno);
                }
                if gives {
                    self.origin_space.given(self.store, job.object);
                }
            }
            JobEffect::Step(_) => refused = self.stage_done(&mut job, outcome),
        }
        let object = job.object;
        self.destage.jobs.insert(id, job);
        refused.map(|errno| (object, errno))
    }

    /// What a stage waited for is over. Gives why the origin refused to sync the file, if it did.
    fn stage_done(&mut self, job: &mut Job, outcome: Outcome) -> Option<Errno> {
        job.busy = false;
        if matches!(
            job.stage,
            JobStage::Cutting(_)
                | JobStage::Punching
                | JobStage::Trimming
                | JobStage::Blanking { gives: true }
                | JobStage::Growing { gives: true, .. }
        ) {
            self.origin_space.given(self.store, job.object);
        }
        let known = self.store.known(job.object);
        match (job.stage, outcome) {
            (stage, Outcome::Failed(errno)) => {
                job.failed = Some(errno);
                if matches!(
                    stage,
                    JobStage::Cutting(_) | JobStage::Growing { .. } | JobStage::Trimming | JobStage::Syncing
                ) {
                    // It may be done all the same; or, if it was not synced, what it was before may be back.
                    known.loses_origin_size();
                }
                return (stage == JobStage::Syncing).then_some(errno);
            }
            (JobStage::Cutting(size) | JobStage::Growing { size, .. }, _) => {
                known.origin_size = OriginSize::Known(size);
            }
            (JobStage::Stamping, Outcome::Stamp(stamp)) => job.stamp = Some(stamp),
            _ => {}
        }
        None
    }
}
