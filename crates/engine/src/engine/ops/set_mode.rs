//! Switching the cache mode while everything goes on.
//!
//! Leaving write-back takes two flushes: the first while writes still go to the log, so that
//! nobody waits; then the mode changes, and a second, short one for what came in meanwhile,
//! during which a write to an object that still has dirty data waits for that object.

use crate::engine::Engine;
use crate::locks::OpId;
use crate::modes::behaviour;
use crate::op::{Op, Stage, StepResult, Work};
use crate::request::{FlushScope, Reply};

impl Engine {
    pub(crate) fn step_set_mode(&mut self, id: OpId, op: &mut Op) -> StepResult {
        let Work::SetMode(mode) = op.work else { unreachable!("a mode switch") };
        if let Some(errno) = op.error {
            return StepResult::Finish(Reply::Failed(errno));
        }
        match op.stage {
            Stage::Begin if behaviour(mode).log_writes || !self.config.behaviour().log_writes => {
                self.config.mode = mode;
                StepResult::Finish(Reply::Done)
            }
            Stage::Begin => {
                op.stage = Stage::Gathering;
                self.begin_flush(id, None, &FlushScope::All);
                StepResult::Wait
            }
            Stage::Gathering => {
                self.config.mode = mode;
                op.stage = Stage::Applied;
                self.begin_flush(id, None, &FlushScope::All);
                StepResult::Wait
            }
            // What had begun before the switch may have ended after that flush had begun. A flush passes by what is
            // nobody's: it would end at once, again and again.
            _ if self.store.objects().values().any(|known| known.data_dirty() && !known.is_nobodys()) => {
                self.begin_flush(id, None, &FlushScope::All);
                StepResult::Wait
            }
            _ => StepResult::Finish(Reply::Done),
        }
    }
}
