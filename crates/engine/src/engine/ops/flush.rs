//! Flush: what is dirty when it is asked goes to the origin; and its cancellation.

use headpond_base::Errno;

use crate::engine::Engine;
use crate::locks::OpId;
use crate::op::{Op, Stage, StepResult, Work};
use crate::request::{FlushId, Reply, RequestId};

impl Engine {
    pub(crate) fn step_flush(&mut self, id: OpId, op: &mut Op) -> StepResult {
        let Work::Flush { id: name, scope } = &op.work else { unreachable!("a flush") };
        if op.stage == Stage::Begin {
            op.stage = Stage::Applied;
            self.begin_flush(id, Some(*name), scope);
            return StepResult::Wait;
        }
        StepResult::Finish(op.error.map_or(Reply::Done, Reply::Failed))
    }

    pub(crate) fn cancel(&mut self, request: RequestId, id: FlushId) {
        let found = self.cancel_flush(id);
        self.answer(request, if found { Reply::Done } else { Reply::Failed(Errno::NOENT) });
    }
}
