//! Destage: dirty data goes to the origin.
//!
//! Invariants:
//! - Only what is durable on flash is destaged, so the origin never has a later write of which
//!   an earlier one can still be lost (promise 2).
//! - Nothing counts as clean before the origin's sync has returned, and only if it has not
//!   changed since it was read.
//! - One job at a time works on an object, and none while a change goes there directly.
//!
//! It is an elevator: objects in order, blocks in order, neighbours merged. A governor sets the
//! pace: half a flush period for one way through all that is dirty, so that no block gets older
//! than a period; over the dirty threshold, and for a flush, as fast as the origin takes it.

mod flush;
mod governor;
mod job;
mod run;

use std::collections::{BTreeMap, BTreeSet};

use headpond_base::{Block, Errno, Nanos, ObjectId};

use crate::engine::Engine;
use crate::locks::OpId;
use crate::store::Store;
use flush::Flush;
pub use flush::FlushProgress;
use governor::Governor;
pub(crate) use governor::TICK;
pub(crate) use job::Pending;
use job::{Job, JobId};

/// Jobs at once while a flush runs or something waits: enough to keep an origin with several
/// spindles or a network busy.
const JOBS_MAX: usize = 4;

/// Blocks that one job handles before the origin is synced and they count as clean: 16 MiB.
const ROUND_BLOCKS: u64 = 4096;

/// An object's size and time are left for the origin until it was quiet for this long.
const QUIET: Nanos = Nanos::SECOND;

/// A failed destage is tried again after this.
const RETRY: Nanos = Nanos(5 * Nanos::SECOND.0);

/// What is going to the origin.
pub(crate) struct Destage {
    jobs: BTreeMap<JobId, Job>,
    next_job: u64,
    /// Objects that may have something for the origin.
    noted: BTreeSet<ObjectId>,
    /// Objects for which somebody waits.
    hurried: BTreeSet<ObjectId>,
    /// Where the elevator is.
    at: (ObjectId, Block),
    governor: Governor,
    flushes: Vec<Flush>,
    stop_waiter: Option<OpId>,
}

impl Destage {
    pub(crate) const fn new(now: Nanos) -> Self {
        Self {
            jobs: BTreeMap::new(),
            next_job: 0,
            noted: BTreeSet::new(),
            hurried: BTreeSet::new(),
            at: (ObjectId(0), Block(0)),
            governor: Governor::new(now),
            flushes: Vec::new(),
            stop_waiter: None,
        }
    }

    /// The objects that may have something for the origin.
    pub(crate) fn noted(&self) -> impl Iterator<Item = ObjectId> + '_ {
        self.noted.iter().copied()
    }

    /// This object may have something for the origin.
    pub(crate) fn note(&mut self, object: ObjectId) {
        self.noted.insert(object);
    }

    /// Somebody waits for this object to have nothing more for the origin.
    pub(crate) fn hurry(&mut self, object: ObjectId) {
        self.noted.insert(object);
        self.hurried.insert(object);
    }

    pub(crate) fn has_work(&self, store: &Store) -> bool {
        store.dirty_blocks > 0 || !self.noted.is_empty() || !self.jobs.is_empty() || !self.flushes.is_empty()
    }
}

impl Engine {
    /// Somebody asks: what the origin refused a moment ago is tried now, not after a while.
    pub(crate) fn try_failing_again(&mut self) {
        for known in self.store.objects.values_mut() {
            known.failing = None;
        }
    }

    /// Steps the request once nothing is under way any more.
    pub(crate) fn wait_quiet(&mut self, op: OpId) {
        self.destage.stop_waiter = Some(op);
    }

    /// Whether nothing is under way but requests.
    pub(crate) fn quiet(&self) -> bool {
        self.destage.jobs.is_empty()
            && self.burials == 0
            && self.fetches.is_empty()
            && self.reclaim.idle()
            && self.checkpoints.idle()
    }

    /// Starts what should go to the origin now.
    pub(crate) fn pump_destage(&mut self) {
        if self.stopping {
            // Changes on their way to the origin may still wait for dirty data to go first.
            self.start_hurried();
            self.stamp_before_stop();
            self.issue_runs();
            return;
        }
        if !self.accepting {
            return;
        }
        let period = self.config.flush_period;
        self.destage.governor.tick(self.now, self.store.dirty_blocks, period);
        self.finish_flushes();
        self.start_hurried();
        self.start_flushes();
        self.start_paced();
        self.issue_runs();
    }

    /// Files that lack only their time, or the origin's sync, get it before the pool is left;
    /// dirty data stays for the next use, but the file must be known again by then: also one at
    /// which a job of an earlier life was interrupted.
    fn stamp_before_stop(&mut self) {
        if self.ops.len() > 1 || self.checkpoints.starting() {
            return;
        }
        let noted: Vec<_> = self.destage.noted.iter().copied().collect();
        for object in noted {
            let Some(known) = self.store.get(object) else {
                self.destage.noted.remove(&object);
                continue;
            };
            let stays = known.data_dirty() && (!known.state.flags.destaging || self.store.log.failed());
            if !known.is_dirty() || known.failing.is_some() || known.leaving() || stays {
                self.destage.noted.remove(&object);
            } else if self.may_start(object) && known.data_dirty() {
                self.start_stamp(object);
            } else if self.may_start(object) {
                self.start_job(object, Block(0), ROUND_BLOCKS, true);
            }
        }
    }

    /// Steps the request to stop once it is the last, and nothing is under way.
    pub(crate) fn wake_stop(&mut self) {
        if self.stopping
            && self.ops.len() == 1
            && self.destage.noted.is_empty()
            && self.quiet()
            && let Some(op) = self.destage.stop_waiter.take()
        {
            self.ready.push_back(op);
        }
    }

    /// Whether a job on this object may start now.
    fn may_start(&self, object: ObjectId) -> bool {
        self.destage.jobs.len() < JOBS_MAX
            && self.may_change_origin()
            && self.store.get(object).is_some_and(|known| {
                let waits = known.failing.is_some_and(|(_, again)| again > self.now);
                (known.is_dirty() || known.origin_unsynced)
                    && !known.leaving()
                    && !known.in_job
                    && known.direct == 0
                    && !waits
            })
    }

    fn start_hurried(&mut self) {
        let hurried: Vec<_> = self.destage.hurried.iter().copied().collect();
        for object in hurried {
            // One whose turn has yet to come may still be kept waiting by what is written before it.
            let over = |known: &crate::object::Object| {
                !known.data_dirty() && !known.origin_unsynced && !known.turns.somebody_waits()
            };
            if self.store.get(object).is_none_or(over) {
                self.destage.hurried.remove(&object);
            } else if self.may_start(object) {
                self.start_job(object, Block(0), ROUND_BLOCKS, true);
            }
        }
    }

    fn start_paced(&mut self) {
        let over = self.over_threshold();
        if !self.destage.jobs.is_empty() && !over {
            return;
        }
        // Twice round at most: once from where the elevator is, once from the start.
        for _ in 0..=self.destage.noted.len() {
            let credit = if over { ROUND_BLOCKS } else { self.destage.governor.credit().min(ROUND_BLOCKS) };
            let (at, block) = self.destage.at;
            let next = self.destage.noted.range(at..).next().or_else(|| self.destage.noted.first()).copied();
            let Some(object) = next else { return };
            let from = if object == at { block } else { Block(0) };
            let Some(known) = self.store.get(object).filter(|known| known.is_dirty() && !known.leaving()) else {
                self.destage.noted.remove(&object);
                continue;
            };
            let quiet = known.opens == 0 || self.now.since(known.changed_at) >= QUIET;
            let worth = if known.data_dirty() { credit > 0 && (over || self.worth_a_job(credit)) } else { quiet };
            if worth && self.may_start(object) {
                let spent = credit.min(known.map.dirty());
                self.destage.governor.spend(spent);
                self.start_job(object, from, credit.max(1), false);
                if !over {
                    return;
                }
            }
            if known_data_waits(self.store.get(object)) && !over {
                // Saves up credit for this one instead of passing it over for ever.
                return;
            }
            self.destage.at = (object.next(), Block(0));
        }
    }

    /// Whether there is credit for a job that is worth its sync: a megabyte, or all there is.
    fn worth_a_job(&self, credit: u64) -> bool {
        credit >= self.store.dirty_blocks.min(256)
    }

    fn over_threshold(&self) -> bool {
        let most = self.store.log.geometry().data_blocks() * u64::from(self.config.dirty_threshold.clamp(1, 70)) / 100;
        self.store.dirty_blocks > most || self.store.log.failed() || self.short_of_segments() || self.short_of_objects()
    }

    /// A job ended, having come as far as `next`.
    fn job_ended(&mut self, id: JobId, job: &Job, failed: Option<Errno>) {
        let (object, next) = (job.object, job.next);
        self.count_for_flushes(id, object, job.from, next, job.cleaned, failed.is_some());
        self.destage.at = next.map_or((object.next(), Block(0)), |next| (object, next));
    }
}

fn known_data_waits(known: Option<&crate::object::Object>) -> bool {
    known.is_some_and(|known| known.data_dirty() && !known.in_job && known.failing.is_none() && known.direct == 0)
}
