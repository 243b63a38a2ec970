//! Gathering, driven: the part (`crate::gather`) is given what it needs. Objects of which nothing is left are let go of
//! here.

use headpond_base::ObjectId;

use crate::effect::Outcome;
use crate::engine::Engine;
use crate::fetches::FetchId;
use crate::gather::Gathering;
use crate::locks::{OpId, Span};
use crate::op::Op;
use crate::purpose::GatherRead;

impl Engine {
    pub(super) fn gathering(&mut self) -> Gathering<'_> {
        Gathering {
            gather: &mut self.gather,
            store: &mut self.store,
            requests: &mut self.requests,
            outbox: &mut self.outbox,
            keep: &mut self.keep,
            room: &mut self.object_room,
            destage: &mut self.destage,
            reclaim: &mut self.reclaim,
            config: &self.config,
            stats: &mut self.stats,
            ending: self.life.is_ending(),
            now: self.now,
        }
    }

    /// Starts gathering `span` as the request's blocks from `out_at` on, of `total`.
    pub(super) fn gather(&mut self, id: OpId, op: &mut Op, span: Span, out_at: u64, total: u64) {
        self.gathering().gather(id, op, span, out_at, total);
        self.retire_unnamed();
    }

    /// A read from flash, or of a hit from the origin, came back.
    pub(super) fn gathered(&mut self, read: GatherRead, outcome: Outcome) {
        self.gathering().gathered(read, outcome);
        self.retire_unnamed();
    }

    /// A read of the origin came back.
    pub(super) fn fetched(&mut self, id: FetchId, outcome: Outcome) {
        let unasked = self.gathering().fetched(id, outcome);
        self.retire_unnamed();
        if let Some(object) = unasked {
            self.retire(object);
        }
    }

    /// Writes what the policy let move on from memory, and retires objects of which nothing is left.
    pub(super) fn write_what_moved_on(&mut self) {
        self.gathering().write_what_moved_on();
        self.retire_unnamed();
        for object in self.store.take_emptied() {
            self.retire(object);
        }
    }

    /// Whatever is being read of these blocks is old from now on.
    pub(crate) fn poison(&mut self, object: ObjectId, span: Span) {
        self.destage.forget_moves(object, span);
        if !headpond_log::Mutation::KeepMemoryWindow.is_planted(self.config.mutation) {
            self.store.drop_from_memory(object, span);
        }
        self.gather.poison(object, span);
    }

    /// Makes sure that the log may name this object; `false` if it cannot now.
    pub(super) fn make_room_for(&mut self, object: ObjectId) -> bool {
        let may = self.object_room.make_for(object, &mut self.store, &mut self.stats);
        self.retire_unnamed();
        may
    }

    /// Objects that the log does not name any more are let go of, if nothing uses them.
    fn retire_unnamed(&mut self) {
        while let Some(object) = self.object_room.take_unnamed() {
            self.retire(object);
        }
    }
}
