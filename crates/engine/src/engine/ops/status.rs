//! Changes of a file's status at the origin by the front door: mode, owner, links, attributes. `status.rs` has the
//! rule.

use std::collections::VecDeque;

use headpond_base::{Errno, Nanos, ObjectId};
use headpond_format::{Stamp, Witness};

use crate::engine::Engine;
use crate::locks::OpId;
use crate::op::{Op, Stage, StepResult, Work};
use crate::request::{Reply, RequestId};
use crate::treatment::Treatment;

/// So long after the last change the log gets the status change time: a program that sets a mode often sets an owner,
/// too.
const QUIET: Nanos = Nanos::SECOND;

/// Objects of which the log is to be told, by the time of a change of their status. Owned by the engine.
#[derive(Default)]
pub(crate) struct SettlingStatus(VecDeque<(Nanos, ObjectId)>);

impl Engine {
    pub(crate) fn status_begins(&mut self, id: RequestId, object: ObjectId) {
        if self.store.get(object).is_none() {
            return self.answer(id, Reply::Failed(Errno::BADF));
        }
        if self.doubt_status(object) {
            self.start_op(id, object, Work::Status, Treatment::default());
        } else {
            self.answer(id, Reply::Done);
        }
    }

    pub(crate) fn step_status(&mut self, id: OpId, op: &mut Op) -> StepResult {
        if op.stage == Stage::Begin {
            op.stage = Stage::Syncing;
            if self.store.takes_writes() && !self.wait_durable(id) {
                return StepResult::Wait;
            }
        }
        StepResult::Finish(Reply::Done)
    }

    /// A change of status begins; whether it must wait for the log.
    pub(super) fn doubt_status(&mut self, object: ObjectId) -> bool {
        let (durable, failed) = (self.store.log().durable(), !self.store.takes_writes());
        let Some(known) = self.store.get_mut(object) else { return false };
        known.status_moved();
        known.status.begins();
        if failed || !known.persisted || !known.is_dirty() {
            // Nothing is compared. Whatever makes it dirty tells the log first.
            return false;
        }
        if known.state.flags.ctime_bounds {
            self.store.persist(object);
        }
        self.store.known(object).status.doubted_at().is_some_and(|at| at > durable)
    }

    pub(crate) fn status_ends(&mut self, id: RequestId, object: ObjectId, stamp: Option<Stamp>) {
        self.status_changed(object, stamp);
        self.answer(id, Reply::Done);
    }

    /// A change of status is over, and the origin's file looks like this.
    pub(super) fn status_changed(&mut self, object: ObjectId, stamp: Option<Stamp>) {
        let failed = !self.store.takes_writes();
        let Some(known) = self.store.get_mut(object) else { return };
        known.status_moved();
        known.status.ends(stamp.is_some());
        // Before the log gets anything else of it.
        known.status.note_restless(self.now);
        if let Some(stamp) = stamp {
            let settled = !known.is_dirty() && known.trust.is_trusted();
            if settled && known.state.witness.shows_the_same(Witness::File(stamp)) {
                known.state.witness = Witness::File(stamp);
                if known.persisted && !failed {
                    self.store.persist(object);
                }
            } else {
                known.was_seen(stamp);
            }
        }
        self.settling.0.push_back((self.now, object));
    }

    /// The log gets the status change time once nothing has moved it for a while.
    pub(crate) fn status_settles_later(&mut self, object: ObjectId) {
        if let Some(known) = self.store.get_mut(object) {
            known.status.note_restless(self.now);
            self.settling.0.push_back((self.now, object));
        }
    }

    /// Appends the times of quiet objects to the log. A clean object follows once it is dirty.
    pub(crate) fn settle_status(&mut self) {
        while let Some((since, object)) = self.settling.0.front().copied()
            && (self.life.is_ending() || self.now.since(since) >= QUIET)
        {
            self.settling.0.pop_front();
            let failed = !self.store.takes_writes();
            let Some(known) = self.store.get_mut(object) else { continue };
            let quiet = known.status.quiets_down(since);
            if quiet && known.persisted && known.data_dirty() && !known.status_is_said() && !failed {
                self.store.persist(object);
            }
        }
    }
}
