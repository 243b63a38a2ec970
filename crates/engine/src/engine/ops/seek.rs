//! Finding data and holes. Where the origin has the whole truth, it is asked; otherwise all of
//! the object counts as data, which every user of SEEK_HOLE must expect.

use headpond_base::Errno;

use crate::effect::{Effect, Outcome};
use crate::engine::Engine;
use crate::locks::{OpId, Span};
use crate::op::{Op, Stage, StepResult, Work};
use crate::purpose::Purpose;
use crate::request::Reply;

impl Engine {
    pub(crate) fn step_seek(&mut self, id: OpId, op: &mut Op) -> StepResult {
        let Work::Seek { offset, data } = op.work else { unreachable!("a seek") };
        let object = op.object;
        if op.stage == Stage::Begin {
            op.stage = Stage::Locking;
            if !self.lock(id, op, Span::from_byte(0), false) {
                return StepResult::Wait;
            }
        }
        let known = self.store.known(object);
        let size = known.state.size;
        if op.stage == Stage::Locking {
            op.stage = Stage::AtOrigin;
            if offset >= size {
                return StepResult::Finish(Reply::Failed(Errno::NXIO));
            }
            if known.data_dirty() {
                return StepResult::Finish(Reply::Offset(if data { offset } else { size }));
            }
            self.start(Purpose::Op(id), |ticket| Effect::OriginSeek { ticket, object, offset, data });
            return StepResult::Wait;
        }
        StepResult::Finish(match op.outcome.take() {
            Some(Outcome::Offset(found)) => Reply::Offset(found.min(size)),
            Some(Outcome::Failed(errno)) => Reply::Failed(errno),
            _ => Reply::Failed(Errno::IO),
        })
    }
}
