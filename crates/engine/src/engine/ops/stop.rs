//! The end of a pool's use: quiet, then one last checkpoint that is marked clean.

use headpond_base::Errno;

use crate::engine::Engine;
use crate::life::Life;
use crate::locks::OpId;
use crate::op::{Op, Stage, StepResult};
use crate::request::Reply;

impl Engine {
    /// Whether nothing is under way but requests.
    fn is_quiet(&self) -> bool {
        self.destage.is_idle()
            && !self.burials.are_under_way()
            && self.gather.fetches().none()
            && self.reclaim.idle()
            && self.scrub.is_idle()
            && self.rows.is_idle()
            && self.checkpoints.idle()
    }

    /// Steps the request to stop once it is the last, and nothing is under way.
    pub(crate) fn wake_stop(&mut self) {
        if self.life.is_ending() && self.requests.len() == 1 && self.destage.has_none_noted() && self.is_quiet() {
            self.requests.all_is_quiet();
        }
    }

    pub(crate) fn step_stop(&mut self, id: OpId, op: &mut Op) -> StepResult {
        if op.stage == Stage::Begin {
            // Stepped again once this is the only request left and nothing else is under way.
            op.stage = Stage::Locking;
            self.requests.wait_for_quiet(id);
            return StepResult::Wait;
        }
        if op.stage == Stage::Locking {
            op.stage = Stage::SyncingOrigin;
            op.left = self.store.objects().keys().copied().collect();
            // With the last checkpoint: whatever comes now is a change by others.
            for known in self.store.objects_mut() {
                known.state.flags.ctime_counts = known.status_known;
            }
            // The origin refused to say how it is left: a change by others would not be seen. Nor of a file that is
            // gone and still open: should the origin forget that in a power cut, it is back.
            let unknown = self.store.objects().values().find(|known| !known.trust.is_trusted() && !known.leaving());
            op.error = unknown.map(|known| known.job.failed().unwrap_or(Errno::IO));
            op.error = op.error.or(self.destage.untold_loss());
        } else if op.stage == Stage::SyncingOrigin
            && let Some(object) = op.left.pop()
        {
            // A name that cannot be synced now is still unanchored in the pool.
            op.error = op.error.or(self.origin_synced(op, object));
        }
        if op.stage == Stage::SyncingOrigin {
            while let Some(object) = op.left.last().copied() {
                if self.sync_origin(id, op, object) {
                    return StepResult::Wait;
                }
                op.left.pop();
            }
            op.stage = Stage::Syncing;
            if !self.store.takes_writes() {
                self.life.becomes(Life::Stopped);
                return StepResult::Finish(Reply::Failed(Errno::IO));
            }
            self.checkpoints.write_last(id);
            return StepResult::Wait;
        }
        self.life.becomes(Life::Stopped);
        StepResult::Finish(op.error.map_or(Reply::Done, Reply::Failed))
    }
}
