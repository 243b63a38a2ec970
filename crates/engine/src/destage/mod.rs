//! Destage: dirty data goes to the origin.
//!
//! Invariants:
//! - Only what is durable on flash is destaged, so the origin never has a later write of which
//!   an earlier one can still be lost (promise 2).
//! - Nothing counts as clean before the origin's sync has returned, and only if it has not
//!   changed since it was read.
//! - One job at a time works on an object, and none while a change goes there directly.
//!
//! It is an elevator: objects in order, blocks in order, neighbours merged, and over gaps where that is
//! cheaper (`gap.rs`). A governor sets the pace (`governor.rs`); a flush, and what waits for an object, are
//! served as fast as the origin takes it. The origin is shared with misses, which come first.
//!
//! [`Destage`] is its state, which nobody else reaches; [`Destaging`] is that with what of the engine it is given.

mod flush;
mod gap;
mod governor;
mod group;
mod job;
mod moves;
mod overdue;
mod patience;
mod reading;
mod run;

use std::collections::{BTreeMap, BTreeSet};

use headpond_base::{Block, Errno, Nanos, ObjectId};

use crate::config::Config;
use crate::fetches::Fetches;
use crate::keep::{Keep, Keeping};
use crate::leaving::LeavingObjects;
use crate::life::Life;
use crate::losses::Losses;
use crate::origin_space::OriginSpace;
use crate::outbox::Outbox;
use crate::pool_failed::PoolFailed;
use crate::purpose::JobId;
use crate::requests::Requests;
use crate::stats::Stats;
use crate::store::Store;
use flush::Flush;
pub use flush::FlushProgress;
pub(crate) use governor::TICK;
use governor::{Governor, Situation};
use job::Job;
use patience::Patience;

/// Jobs at once while a flush runs or something waits: enough to keep an origin with several
/// spindles or a network busy.
const JOBS_MAX: usize = 4;

/// Blocks that one job handles at most before the origin is synced and they count as clean: 16 MiB.
const ROUND_BLOCKS: u64 = 4096;

/// The writes of a round take about so long together.
const ROUND: Nanos = Nanos::SECOND;

/// The same when writes wait for room, or soon will.
const ROUND_NEAR: Nanos = Nanos(100 * Nanos::MILLISECOND.0);

/// Writes at once: at least, and at most, and as many between as take the origin so long.
const DEPTH_MIN: usize = 4;
const DEPTH_MAX: usize = 16;
const AHEAD: Nanos = Nanos(20 * Nanos::MILLISECOND.0);

/// An object's size and time, if it lacks nothing else, are left for the origin until it was quiet for this long.
const QUIET: Nanos = Nanos::SECOND;

/// Objects that destage looks at in one go for one to begin with: requests wait meanwhile.
const LOOKS: usize = 256;

/// A failed destage is tried again after this.
const RETRY: Nanos = Nanos(5 * Nanos::SECOND.0);

/// The same where a flush or a request waits for it: a server that has just come back may need a moment.
const RETRY_WAITED: Nanos = Nanos(2 * Nanos::SECOND.0);

/// What is going to the origin.
pub(crate) struct Destage {
    jobs: BTreeMap<JobId, Job>,
    next_job: u64,
    /// Objects that may have something for the origin.
    noted: BTreeSet<ObjectId>,
    /// Objects for which a request waits.
    hurried: BTreeSet<ObjectId>,
    /// Where the elevator is.
    at: (ObjectId, Block),
    /// For which block it last turned back on this way.
    turned_back: Option<(ObjectId, Block)>,
    governor: Governor,
    /// What misses take, so that none waits for long behind what goes to the origin.
    patience: Patience,
    flushes: Vec<Flush>,
    /// Objects that changed since flushes were last looked at, while there are any.
    changed: Vec<ObjectId>,
    /// What the origin lost, and no flush has told.
    losses: Losses,
}

impl Destage {
    pub(crate) fn new(now: Nanos) -> Self {
        Self {
            jobs: BTreeMap::new(),
            next_job: 0,
            noted: BTreeSet::new(),
            hurried: BTreeSet::new(),
            at: (ObjectId(0), Block(0)),
            turned_back: None,
            governor: Governor::new(now),
            patience: Patience::default(),
            flushes: Vec::new(),
            changed: Vec::new(),
            losses: Losses::default(),
        }
    }

    /// This object may have something for the origin.
    pub(crate) fn note(&mut self, object: ObjectId) {
        self.noted.insert(object);
    }

    /// Those that may have something for the origin.
    pub(crate) fn noted(&self) -> impl Iterator<Item = ObjectId> + '_ {
        self.noted.iter().copied()
    }

    /// A request waits for this object to have nothing more for the origin.
    pub(crate) fn hurry(&mut self, object: ObjectId) {
        self.noted.insert(object);
        self.hurried.insert(object);
    }

    /// The origin lost some of this object: all flushes that wait for it tell, or the next one.
    pub(crate) fn has_lost(&mut self, object: ObjectId, errno: Errno) {
        let told = self.flushes.iter_mut().filter_map(|flush| flush.tells(object, errno).then_some(())).count();
        if told == 0 {
            self.losses.add(object, errno);
        }
    }

    /// Jobs on this object count as failed. Answers whether there are any.
    pub(crate) fn fail_jobs(&mut self, object: ObjectId, errno: Errno) -> bool {
        let mut any = false;
        for job in self.jobs.values_mut().filter(|job| job.object == object) {
            job.failed.get_or_insert(errno);
            any = true;
        }
        any
    }

    /// A miss was answered after so long.
    pub(crate) fn miss_took(&mut self, took: Nanos) {
        self.patience.took(took);
    }

    /// Whether the origin lost some of this object, and no flush has told.
    pub(crate) fn has_untold_loss(&self, object: ObjectId) -> bool {
        self.losses.has(object)
    }

    /// Any loss that no flush has told.
    pub(crate) fn untold_loss(&self) -> Option<Errno> {
        self.losses.first()
    }

    /// What the origin lost of this object was told, or concerns nobody any more.
    pub(crate) fn loss_is_over(&mut self, object: ObjectId) {
        self.losses.forget(object);
    }

    /// The jobs under way.
    pub(crate) fn jobs(&self) -> Vec<JobId> {
        self.jobs.keys().copied().collect()
    }

    /// Whether no job is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Whether no object may have something for the origin.
    pub(crate) fn has_none_noted(&self) -> bool {
        self.noted.is_empty()
    }

    /// When what the origin failed to do for an object is tried again.
    pub(crate) fn retry_after(&self, object: ObjectId, life: Life) -> Nanos {
        if self.waited_for(object, life) { RETRY_WAITED } else { RETRY }
    }

    /// Whether a request waits for what a job on this object does.
    fn waited_for(&self, object: ObjectId, life: Life) -> bool {
        life.is_ending() || self.hurried.contains(&object) || self.flushes.iter().any(|flush| flush.wants(object))
    }

    pub(crate) fn has_work(&self, store: &Store) -> bool {
        store.sums().dirty_blocks() > 0 || !self.noted.is_empty() || !self.jobs.is_empty() || !self.flushes.is_empty()
    }
}

/// What destage is given of the engine, and its own state.
pub(crate) struct Destaging<'a> {
    pub(crate) destage: &'a mut Destage,
    pub(crate) store: &'a mut Store,
    /// Those that wait for a flush, for changes of the other kind or for room.
    pub(crate) requests: &'a mut Requests,
    pub(crate) outbox: &'a mut Outbox,
    /// Learns what is clean.
    pub(crate) keep: &'a mut Keep,
    pub(crate) origin_space: &'a mut OriginSpace,
    pub(crate) leaving: &'a mut LeavingObjects,
    /// The misses, which come first.
    pub(crate) fetches: &'a Fetches,
    pub(crate) pool_failed: &'a PoolFailed,
    /// Whether a write waits for the room that destage makes.
    pub(crate) is_waited_for: bool,
    /// Whether the pool is to be one device, and is.
    pub(crate) is_one_device: bool,
    pub(crate) config: &'a Config,
    pub(crate) stats: &'a mut Stats,
    pub(crate) life: Life,
    pub(crate) now: Nanos,
}

impl Destaging<'_> {
    const fn keeping(&mut self) -> Keeping<'_> {
        Keeping { keep: self.keep, store: self.store, stats: self.stats }
    }

    /// Whether the origin may be changed: the flash works, or it is known that it does not.
    fn may_change_origin(&self) -> bool {
        self.store.takes_writes() || self.pool_failed.is_told()
    }

    /// Why the origin must not be changed, if that is for good.
    const fn origin_barred(&self) -> Option<Errno> {
        self.pool_failed.bars_origin()
    }

    /// Sets the pace, as things stand now.
    pub(crate) fn set_pace(&mut self) {
        let situation = self.situation();
        self.destage.governor.tick(self.now, situation);
    }

    /// Begins what should go to the origin now. All jobs are to be stepped after it.
    pub(crate) fn begin_what_is_due(&mut self) {
        self.finish_flushes();
        self.start_hurried();
        self.start_flushes();
        self.start_paced();
    }

    /// Begins what must still go to the origin at the end. Changes on their way there may wait for dirty data to go
    /// first.
    pub(crate) fn begin_what_the_end_needs(&mut self) {
        self.start_hurried();
        self.stamp_before_stop();
    }

    /// Files that lack only their time, or the origin's sync, get it before the pool is left;
    /// dirty data stays for the next use, but the file must be known again by then: also one at
    /// which a job of an earlier life was interrupted.
    fn stamp_before_stop(&mut self) {
        if self.requests.len() > 1 {
            return;
        }
        let noted: Vec<_> = self.destage.noted.iter().copied().collect();
        for object in noted {
            let Some(known) = self.store.get(object) else {
                self.destage.noted.remove(&object);
                continue;
            };
            // One whose status change time the stamp does not have gets another: it tells a change by others later.
            let as_left = known.is_as_left();
            let stays = known.data_dirty() && (as_left || !self.store.takes_writes());
            let barred = self.origin_barred().is_some();
            if !known.is_dirty() || known.job.failed().is_some() || known.leaving() || stays || barred {
                self.destage.noted.remove(&object);
            } else if self.may_start(object) && known.data_dirty() {
                self.start_stamp(object);
            } else if self.may_start(object) {
                self.start_job(object, Block(0), ROUND_BLOCKS, true);
            }
        }
    }

    /// Whether a job on this object may start now.
    fn may_start(&self, object: ObjectId) -> bool {
        !self.config.destage_held
            && self.destage.jobs.len() < JOBS_MAX
            && self.may_change_origin()
            && self.store.get(object).is_some_and(|known| {
                let waits = known.job.waits(self.now);
                (known.is_dirty() || known.past.needs_sync())
                    && !known.leaving()
                    && !known.job.is_running()
                    && !known.past.is_under_way()
                    && !waits
            })
    }

    fn start_hurried(&mut self) {
        // A request that waits for changes of the other kind may wait for the origin's sync, with nothing dirty that
        // would bring it.
        for op in self.requests.for_other_kind() {
            if let Some(op) = self.requests.get(op) {
                self.destage.hurry(op.object);
            }
        }
        let hurried: Vec<_> = self.destage.hurried.iter().copied().collect();
        for object in hurried {
            // A waiting change may still be held up by what is written before it.
            let over = |known: &crate::store::object::Object| {
                !known.data_dirty() && !known.past.needs_sync() && !known.alternation.are_waited_for()
            };
            if self.store.get(object).is_none_or(over) {
                self.destage.hurried.remove(&object);
            } else if self.may_start(object) {
                self.start_job(object, Block(0), ROUND_BLOCKS, true);
            }
        }
    }

    fn start_paced(&mut self) {
        let rate = self.destage.governor.rate();
        let full = !rate.is_finite();
        let jobs_most = if full { JOBS_MAX } else { 1 };
        // Twice round at most: once from where the elevator is, once from the start. Of very many with nothing to do
        // now it looks at some, and goes on from there the next time.
        for _ in 0..=self.destage.noted.len().min(LOOKS) {
            if self.destage.jobs.len() >= jobs_most {
                return;
            }
            let (at, block) = self.destage.at;
            let mut next = self.destage.noted.range(at..).next().copied();
            if next.is_none() {
                self.destage.governor.way_begins(self.now, self.store.sums().dirty_blocks(), self.config.period());
                self.destage.turned_back = None;
                next = self.destage.noted.first().copied();
            }
            let Some(object) = next else { return };
            let from = if object == at { block } else { Block(0) };
            // One that a job works on may look clean before the origin's sync: a flush must know of it.
            let worth = |known: &&crate::store::object::Object| {
                (known.is_dirty() || known.job.is_running()) && !known.leaving()
            };
            let Some(known) = self.store.get(object).filter(worth) else {
                self.destage.noted.remove(&object);
                continue;
            };
            let quiet = known.opens == 0 || self.now.since(known.changed_at) >= QUIET;
            let granted = self.destage.governor.grants_a_job(self.store.sums().dirty_blocks());
            // The pace is one of blocks, and stands still when there are none: a size alone goes as a time does.
            let worth = known.data_dirty() && granted || known.dirty_blocks() == 0 && quiet;
            if worth && self.may_start(object) {
                // About a second's worth; at full speed the job's time bounds it.
                let aim = if full { ROUND_BLOCKS } else { (rate as u64).clamp(256, ROUND_BLOCKS) };
                self.start_job(object, from, aim, false);
            } else if known_data_waits(self.store.get(object)) && !full && rate > 0.0 {
                // Saves up for this one instead of passing it over for ever.
                return;
            }
            self.destage.at = (object.next(), Block(0));
        }
    }

    /// What the pace depends on now.
    fn situation(&self) -> Situation {
        let config = self.config;
        let quiet = self.destage.governor.quiet_for(self.now).min(self.outbox.origin_costs().idle_for(self.now));
        let idle = config.idle_flush.is_some_and(|idle| quiet >= idle);
        Situation {
            dirty: self.store.sums().dirty_blocks(),
            dirtied: self.store.sums().dirtied_blocks(),
            period: config.period(),
            threshold: self.dirty_threshold(),
            limit: config.destage_rate,
            // With one copy where two should be, the origin is the second.
            drain: idle || !self.is_one_device && self.store.log().lacks_members() || self.is_waited_for,
            emergency: !self.store.takes_writes()
                || self.store.is_short_of_segments()
                || self.store.is_short_of_objects(),
        }
    }

    /// Blocks that may be dirty before destage runs as fast as the origin takes it.
    fn dirty_threshold(&self) -> Option<u64> {
        let percent = u64::from(self.config.dirty_threshold);
        let share = self.store.dirty_room() * percent.min(70) / 100;
        (percent > 0).then(|| share.min(self.keep.dirty_blocks_max(self.store, self.config)))
    }

    /// Origin writes of one job at once. Foreground misses come first: while there are any, few, and none while one
    /// waits too long. Otherwise as many as keep the origin busy without a miss having to wait long behind them.
    fn depth(&self, fast: bool) -> usize {
        let oldest = self.fetches.oldest_miss().map(|since| self.now.since(since));
        if oldest.is_some_and(|waited| self.destage.patience.is_over(waited)) {
            return 0;
        }
        let each = self.outbox.origin_costs().writes().each.0.max(1);
        let enough = usize::try_from(AHEAD.0 / each).unwrap_or(DEPTH_MAX).clamp(DEPTH_MIN, DEPTH_MAX);
        match (fast, self.fetches.none()) {
            (true, true) => enough,
            (true, false) => enough / 2,
            (false, true) => DEPTH_MIN,
            (false, false) => self.destage.governor.beside_misses(),
        }
    }

    /// How long the writes of a round may take together. Room that a write may be waiting for comes at its end.
    fn round_time(&self) -> Nanos {
        let near = self.store.sums().dirty_blocks() * 10 >= self.keep.dirty_blocks_max(self.store, self.config) * 8;
        if near { ROUND_NEAR } else { ROUND }
    }

    /// A job ended, having come as far as `next`.
    fn job_ended(&mut self, id: JobId, job: &Job, failed: Option<Errno>) {
        let object = job.object;
        self.count_for_flushes(id, job, failed.is_some());
        let back = if failed.is_some() { None } else { self.turns_back(job) };
        self.destage.at = back.or(job.forward).map_or((object.next(), Block(0)), |next| (object, next));
    }
}

fn known_data_waits(known: Option<&crate::store::object::Object>) -> bool {
    known.is_some_and(|known| {
        known.data_dirty() && !known.job.is_running() && known.job.failed().is_none() && !known.past.is_under_way()
    })
}
