//! Destage, driven: the worker (`crate::destage`) is given what it needs. What the end of a job, or a refused sync,
//! means for others is seen to here.

use headpond_base::{Errno, ObjectId};

use crate::destage::{Destaging, FlushProgress};
use crate::effect::Outcome;
use crate::engine::Engine;
use crate::locks::OpId;
use crate::purpose::{JobEffect, JobId};
use crate::request::{FlushId, FlushScope};

impl Engine {
    fn destaging(&mut self) -> Destaging<'_> {
        let is_waited_for = self.waits_for_destage();
        Destaging {
            destage: &mut self.destage,
            store: &mut self.store,
            requests: &mut self.requests,
            outbox: &mut self.outbox,
            keep: &mut self.keep,
            origin_space: &mut self.origin_space,
            leaving: &mut self.leaving,
            fetches: self.gather.fetches(),
            pool_failed: &self.pool_failed,
            is_waited_for,
            is_one_device: self.membership.is_one(),
            config: &self.config,
            stats: &mut self.stats,
            life: self.life,
            now: self.now,
        }
    }

    /// Starts what should go to the origin now.
    pub(super) fn pump_destage(&mut self) {
        if self.life.is_ending() {
            self.destaging().begin_what_the_end_needs();
        } else if self.life.has_served() {
            self.destaging().set_pace();
            self.bury_again();
            self.destaging().begin_what_is_due();
        } else {
            return;
        }
        for job in self.destage.jobs() {
            self.move_job_on(job);
        }
    }

    fn move_job_on(&mut self, job: JobId) {
        if let Some(object) = self.destaging().step(job) {
            self.retire(object);
        }
    }

    /// An effect of a job is completed.
    pub(super) fn destage_answered(&mut self, effect: JobEffect, outcome: Outcome) {
        let job = effect.job();
        if let Some((object, errno)) = self.destaging().answered(effect, outcome) {
            self.origin_refused_sync(object, errno);
        }
        self.move_job_on(job);
    }

    /// A request asks: what the origin refused a moment ago is tried now, not after a while.
    pub(super) fn try_failing_again(&mut self) {
        if self.store.objects().failing() == 0 {
            return;
        }
        for known in self.store.objects_mut() {
            known.job.may_begin();
        }
    }

    /// Starts a flush of what is dirty now; the request is stepped when it is over.
    pub(super) fn begin_flush(&mut self, op: OpId, id: Option<FlushId>, scope: &FlushScope) {
        let refused: Vec<ObjectId> = self.burials.refused().filter(|object| scope.holds(*object)).collect();
        refused.into_iter().for_each(|object| self.retire(object));
        self.destaging().begin_flush(op, id, scope);
    }

    /// Ends the flushes of that name early, with an error for all that wait. `false` if there are none.
    pub(super) fn cancel_flush(&mut self, id: FlushId) -> bool {
        self.destaging().cancel_flushes_of(|flush| flush == Some(id), Errno::CANCELED)
    }

    /// The use of the pool ends: flushes end with an error, and what is dirty stays.
    pub(super) fn cancel_flushes(&mut self) {
        self.destaging().cancel_flushes_of(|_| true, Errno::SHUTDOWN);
    }

    /// The flushes under way, oldest first.
    #[must_use]
    pub fn flushes(&self) -> Vec<FlushProgress> {
        self.destage.flushes(self.now).collect()
    }
}
