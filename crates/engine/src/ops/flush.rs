//! Flush: everything that is dirty when it is asked goes to the origin.

use crate::engine::Engine;
use crate::locks::OpId;
use crate::op::{Op, Progress, Stage};
use crate::request::Reply;

impl Engine {
    pub(crate) fn step_flush(&mut self, id: OpId, op: &mut Op) -> Progress {
        if op.stage == Stage::Begin {
            op.stage = Stage::Applied;
            self.begin_flush(id);
            return Progress::Wait;
        }
        Progress::Finish(op.error.map_or(Reply::Done, Reply::Failed))
    }
}
