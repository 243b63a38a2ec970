//! Sync: what was acknowledged becomes durable. In write-back that is one flash sync for all requests that wait (group
//! commit). The origin is synced only for a file that got writes past the pool, or whose name is new. A write that is
//! to be durable by itself (`O_DSYNC`) syncs the origin for a new name, too.

use headpond_base::{Errno, ObjectId};

use crate::effect::Effect;
use crate::engine::Engine;
use crate::locks::OpId;
use crate::op::{Op, Stage, StepResult};
use crate::purpose::Purpose;
use crate::request::Reply;
use crate::store::object::Object;

impl Engine {
    pub(crate) fn step_sync(&mut self, id: OpId, op: &mut Op) -> StepResult {
        if op.stage == Stage::Begin {
            op.stage = Stage::Syncing;
            if self.store.get(op.object).is_some_and(failed_unsaid) {
                self.size_counts_here(op.object);
            }
            if !self.wait_durable_in(op.how.durability(), id) {
                return StepResult::Wait;
            }
        }
        if op.stage == Stage::Syncing {
            if let Some(errno) = self.unsafe_data(op.object) {
                return StepResult::Finish(Reply::Failed(errno));
            }
            op.stage = Stage::Securing;
        }
        if matches!(op.stage, Stage::Securing | Stage::Secured) {
            if !self.is_secured(id, op) {
                return StepResult::Wait;
            }
            op.stage = Stage::SyncingOrigin;
            if self.sync_origin(id, op, op.object) {
                return StepResult::Wait;
            }
        }
        if let Some(errno) = self.origin_synced(op, op.object) {
            return StepResult::Finish(Reply::Failed(errno));
        }
        // Every program that had the file open when the origin lost some of it has closed it since.
        self.destage.loss_is_over(op.object);
        self.stats.syncs += 1;
        StepResult::Finish(Reply::Done)
    }

    pub(crate) fn step_sync_all(&mut self, id: OpId, op: &mut Op) -> StepResult {
        if op.stage == Stage::Begin {
            op.stage = Stage::Syncing;
            op.left = self.hold_for_sync();
            self.say_failures();
            if !self.wait_durable(id) {
                return StepResult::Wait;
            }
        }
        if op.stage == Stage::Syncing {
            op.stage = Stage::Securing;
        }
        if matches!(op.stage, Stage::Securing | Stage::Secured) {
            if !self.is_secured(id, op) {
                return StepResult::Wait;
            }
            op.stage = Stage::SyncingOrigin;
            let lost = self.store.objects().keys().find_map(|object| self.unsafe_data(*object));
            if let Some(errno) = lost {
                return self.sync_all_failed(op, errno);
            }
        } else if let Some(object) = op.left.pop() {
            let failed = self.origin_synced(op, object);
            self.let_go(object);
            if let Some(errno) = failed {
                return self.sync_all_failed(op, errno);
            }
        }
        while let Some(object) = op.left.last().copied() {
            if self.sync_origin(id, op, object) {
                return StepResult::Wait;
            }
            op.left.pop();
            self.let_go(object);
        }
        self.stats.syncs += 1;
        StepResult::Finish(Reply::Done)
    }

    /// Tells the log of failed changes for which it had no room.
    fn say_failures(&mut self) {
        let unsaid = self.store.objects().iter().filter(|(_, known)| failed_unsaid(known));
        let unsaid: Vec<ObjectId> = unsaid.map(|(object, _)| *object).collect();
        unsaid.into_iter().for_each(|object| self.size_counts_here(object));
    }

    /// What the origin has to sync, kept until it has: a new file without data is forgotten when it is closed, and its
    /// name would be with it.
    fn hold_for_sync(&mut self) -> Vec<ObjectId> {
        let unsynced = |known: &Object| known.past.needs_sync() || known.state.flags.unanchored && known.attached;
        let held = self.store.objects().iter().filter(|(_, known)| unsynced(known));
        let held: Vec<ObjectId> = held.map(|(object, _)| *object).collect();
        for object in &held {
            self.store.known(*object).active += 1;
        }
        held
    }

    fn let_go(&mut self, object: ObjectId) {
        if let Some(known) = self.store.get_mut(object) {
            known.active -= 1;
        }
        self.retire(object);
    }

    fn sync_all_failed(&mut self, op: &mut Op, errno: Errno) -> StepResult {
        for object in std::mem::take(&mut op.left) {
            self.let_go(object);
        }
        StepResult::Finish(Reply::Failed(errno))
    }

    /// Promise 8: after a failure of the flash, a sync fails as long as the object's data is
    /// neither durable there nor at the origin; after a failed sync of what went to the origin directly, while
    /// anybody has the file open who could have written it. Kernels forget what they could not write, and say so once
    /// only, perhaps to destage. And after a change that failed at the origin, while the log has no room to say which
    /// size counts: a crash would show what is there of it.
    fn unsafe_data(&self, object: ObjectId) -> Option<Errno> {
        let known = self.store.get(object)?;
        if let Some(errno) = known.past.refused().filter(|_| known.opens > 0) {
            return Some(errno);
        }
        (!self.store.takes_writes() && known.data_dirty() || failed_unsaid(known)).then_some(Errno::IO)
    }

    /// Whether a power cut of the origin may take the file's name with it, and the origin can be asked to keep it.
    pub(super) fn has_new_name(&self, object: ObjectId) -> bool {
        self.store.get(object).is_some_and(|known| known.state.flags.unanchored && known.attached)
    }

    /// Asks the origin to sync a file, if there is a reason.
    pub(super) fn sync_origin(&mut self, id: OpId, op: &mut Op, object: ObjectId) -> bool {
        let new_name = self.has_new_name(object);
        let Some(known) = self.store.get_mut(object) else { return false };
        if !known.past.needs_sync() && !new_name {
            return false;
        }
        op.seen_changes = known.past.made();
        // Kept from being released meanwhile.
        known.active += 1;
        self.start(Purpose::Op(id), |ticket| Effect::OriginSync { ticket, object });
        true
    }

    /// Notes what a sync of the origin came to, if there was one.
    pub(super) fn origin_synced(&mut self, op: &mut Op, object: ObjectId) -> Option<Errno> {
        let outcome = op.outcome.take()?;
        let known = self.store.get_mut(object)?;
        known.active -= 1;
        if let crate::Outcome::Failed(errno) = outcome {
            self.origin_refused_sync(object, errno);
            return Some(errno);
        }
        let failed_for_another = known.past.refused();
        // What was changed since the sync was asked for is not covered by it.
        if known.past.made() == op.seen_changes {
            self.origin_space.note_synced(&mut self.store, object);
        }
        let known = self.store.known(object);
        if known.name_is_durable() && known.persisted && self.store.takes_writes() {
            self.store.persist(object);
        }
        self.retire(object);
        failed_for_another
    }
}

/// Whether a change failed at the origin, and the log knows nothing of the file.
const fn failed_unsaid(known: &Object) -> bool {
    !known.origin_size.is_known() && !known.persisted && !known.name.is_gone()
}
