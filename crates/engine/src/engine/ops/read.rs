//! Reading: under a shared lock, each block from memory, from flash or from the origin.

use headpond_base::BLOCK_U64;

use crate::engine::Engine;
use crate::locks::{OpId, Span};
use crate::op::{Op, Stage, StepResult, Work};
use crate::request::{Reply, Served};
use crate::treatment::Handling;

impl Engine {
    pub(crate) fn step_read(&mut self, id: OpId, op: &mut Op) -> StepResult {
        let Work::Read { offset, len } = op.work else { unreachable!("a read") };
        if op.stage == Stage::Begin {
            op.stage = Stage::Locking;
            if !self.lock(id, op, Span::of_bytes(offset, len), false) {
                return StepResult::Wait;
            }
        }
        // The size counts that holds once nobody changes these blocks any more.
        let size = self.store.known(op.object).state.size;
        let len = len.min(size.saturating_sub(offset));
        if len == 0 {
            return self.read_done(op, Vec::new());
        }
        let span = Span::of_bytes(offset, len);
        if op.stage == Stage::Locking {
            op.stage = Stage::Gathering;
            // It may grow meanwhile; what was gathered is what is answered.
            op.work = Work::Read { offset, len };
            let on_a_trail = self.gather.follows_trail(op.object, span);
            self.gather(id, op, span, 0, span.blocks());
            if on_a_trail {
                self.gathering().bring_ahead(op, span);
            }
        }
        if op.parts > 0 {
            return StepResult::Wait;
        }
        if let Some(errno) = op.error {
            return StepResult::Finish(Reply::Failed(errno));
        }
        let skip = usize::try_from(offset % BLOCK_U64).expect("less than a block");
        let len = usize::try_from(len).expect("a read is at most 1 MiB");
        let pieces = std::mem::take(&mut op.gathered).into_bytes(skip, len);
        self.read_done(op, pieces)
    }

    fn read_done(&mut self, op: &Op, pieces: Vec<headpond_base::Buf>) -> StepResult {
        let bytes = pieces.iter().map(|piece| piece.len() as u64).sum::<u64>();
        self.stats.reads += 1;
        self.stats.read_bytes += bytes;
        let bypassed = op.how.handling == Handling::Bypass;
        if bypassed {
            self.stats.bypassed_reads += 1;
            self.stats.bypassed_read_bytes += bytes;
        }
        StepResult::Finish(Reply::Data(pieces, Served { bypassed, ..op.served }))
    }
}
