//! Renaming and removing, ordered with the log.
//!
//! Rename: the data of what is renamed is durable before the origin has the new name, so that
//! "write, rename over the old one" never ends with an empty file. Removing: that a file is
//! about to go is durable before it goes, so that after a crash its missing is no riddle.

use headpond_base::{Errno, ObjectId};

use crate::effect::{Effect, Outcome};
use crate::engine::Engine;
use crate::locks::OpId;
use crate::op::{Op, Stage, StepResult, Work};
use crate::purpose::Purpose;
use crate::request::{Namespace, Reply};

impl Engine {
    pub(crate) fn step_namespace(&mut self, id: OpId, op: &mut Op) -> StepResult {
        let Work::Namespace(change) = &op.work else { unreachable!("a directory change") };
        let change = change.clone();
        let going = match &change {
            Namespace::Rename { replaced, .. } => *replaced,
            Namespace::Unlink { object } => Some(*object),
        };
        let moved = if let Namespace::Rename { moved, .. } = &change { *moved } else { None };
        if op.stage == Stage::Begin {
            op.stage = Stage::Syncing;
            for object in moved.into_iter().chain(going) {
                // It waits for the log anyhow.
                self.doubt_status(object);
            }
            if let Some(object) = going {
                self.note_unlinked(object, true);
            }
            let wait = match &change {
                Namespace::Rename { .. } => true,
                Namespace::Unlink { object } => self.store.get(*object).is_some_and(|known| known.persisted),
            };
            // One that waits for nothing must not be woken: it would take that for the origin's answer.
            if wait && self.store.takes_writes() && !self.wait_durable(id) {
                return StepResult::Wait;
            }
        }
        if op.stage == Stage::Syncing {
            if going.is_some_and(|object| self.store.get(object).is_some_and(|known| known.persisted)) {
                // A pool that failed and is not disowned still names the file. Without it, its inode number could go to
                // another one, and the next start would take that for it.
                if let Some(errno) = self.origin_barred() {
                    for object in moved.into_iter().chain(going) {
                        self.status_changed(object, None);
                    }
                    if let Some(object) = going {
                        self.note_unlinked(object, false);
                    }
                    return StepResult::Finish(Reply::Failed(errno));
                }
                if !self.may_change_origin() {
                    self.pool_failed.wait(id);
                    return StepResult::Wait;
                }
            }
            op.stage = Stage::AtOrigin;
            let request = op.request;
            self.start(Purpose::Op(id), |ticket| Effect::OriginNamespace { ticket, request });
            return StepResult::Wait;
        }
        let outcome = op.outcome.take();
        let stamp = if let Some(Outcome::Stamp(stamp)) = outcome { Some(stamp) } else { None };
        if let Some(object) = moved {
            if let (Some(stamp), Some(known)) = (stamp, self.store.get_mut(object)) {
                known.has_status_of(stamp.ctime);
            }
            self.status_changed(object, stamp);
        }
        if let Some(object) = going {
            self.status_changed(object, None);
        }
        match outcome {
            Some(Outcome::Failed(errno)) => {
                // After an I/O error it may be gone all the same. If it is not, the next start finds it.
                if let Some(object) = going.filter(|_| errno != Errno::IO) {
                    self.note_unlinked(object, false);
                }
                return StepResult::Finish(Reply::Failed(errno));
            }
            Some(_) => {}
            None => return StepResult::Finish(Reply::Failed(Errno::IO)),
        }
        if let Namespace::Rename { moved, from, to, exchange, .. } = &change {
            self.renamed(*moved, from, to, *exchange);
        }
        if let Some(object) = going {
            if let Some(known) = self.store.get_mut(object) {
                known.name.note_removed();
            }
            self.retire(object);
        }
        StepResult::Finish(Reply::Done)
    }

    fn note_unlinked(&mut self, object: ObjectId, unlinked: bool) {
        let failed = !self.store.takes_writes();
        if let Some(known) = self.store.get_mut(object) {
            known.state.flags.unlinked = unlinked;
            if known.persisted && !failed {
                self.store.persist(object);
            }
        }
    }

    /// Moves the path hints along. They may be lost or wrong after a crash: then the origin is
    /// searched by inode number. A file takes its own with it; only a directory has others below.
    fn renamed(&mut self, moved: Option<ObjectId>, from: &[u8], to: &[u8], exchange: bool) {
        let failed = !self.store.takes_writes();
        if let Some(object) = moved {
            self.store.set_path(object, to);
            if self.store.get(object).is_some_and(|known| known.persisted) && !failed {
                self.store.persist(object);
            }
        } else if !exchange {
            self.store.rename(from, to);
        }
    }
}
