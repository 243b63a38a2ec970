//! Where synced data is while the pool misses its copy on another host: what is durable here is not enough then, unless
//! the settings say that it is.

use std::collections::BTreeSet;

use headpond_base::CopyLoss;

use crate::engine::Engine;
use crate::locks::OpId;
use crate::op::{Op, Stage, Work};
use crate::request::FlushScope;

impl Engine {
    /// Whether a request whose data is durable here may be answered. If not it waits, and is stepped again. It comes here
    /// in the stage [`Stage::Securing`].
    ///
    /// An origin that fails does not fail the sync: with copy and origin lost, the flash here is what is left.
    pub(super) fn is_secured(&mut self, id: OpId, op: &mut Op) -> bool {
        if op.stage == Stage::Secured || !self.misses_copies(op.how.copies) {
            return true;
        }
        // Who reads what was written may have it.
        self.unlock(id, op);
        match self.config.copy_loss {
            CopyLoss::GoOn => true,
            // The origin stands still, for a snapshot.
            CopyLoss::WriteThrough if self.config.destage_held => true,
            CopyLoss::WriteThrough => {
                op.stage = Stage::Secured;
                let scope = match op.work {
                    Work::SyncAll => FlushScope::All,
                    _ => FlushScope::Objects(BTreeSet::from([op.object])),
                };
                self.begin_flush(id, None, &scope);
                false
            }
            CopyLoss::Freeze => {
                self.requests.wait_for_copy(id, op.how.copies);
                false
            }
        }
    }

    /// Whether what is written now gets on fewer other hosts than so many, and this pool is still one that serves. `None`:
    /// it had a copy there, and gets none.
    fn misses_copies(&self, wanted: Option<u8>) -> bool {
        let apart = || self.store.log().segments().apart();
        let misses = match wanted {
            None => self.membership.misses_copy() && apart() == 0,
            Some(wanted) => apart() < usize::from(wanted),
        };
        misses && self.store.takes_writes() && !self.life.is_ending()
    }

    /// Lets those go on that wait for a copy, once there is one or they need none any more.
    pub(crate) fn wake_secured(&mut self) {
        if self.membership.misses_copy() && self.membership.is_settled() && !self.membership.is_busy() {
            self.membership.copies_are_made();
        }
        for wanted in self.requests.copies_waited_for() {
            if self.config.copy_loss != CopyLoss::Freeze || !self.misses_copies(wanted) {
                self.requests.copies_are_there(wanted);
            }
        }
    }
}
