//! Changes of a file's status at the origin: mode, owner, attributes, links.
//!
//! They move the status change time, by which the next start after a crash tells changes by others of a file with dirty data.
//! So the engine is asked before, and told after: see [`Request::StatusBegins`].
//!
//! Invariants
//! - While the status of a file is changed nobody opens it in the engine: it would take the time before the change for the
//!   last.
//! - Each change that was begun is ended, whatever became of it.

use std::sync::Arc;

use headpond_base::{Errno as EngineErrno, ObjectId};
use headpond_engine::{Reply, Request};

use crate::caller::Rights;
use crate::front::{Front, Outcome, stamp, unexpected};
use crate::inodes::{Inode, Privileges};
use crate::known::Known;
use crate::pond::call_with;
use crate::privileges;
use crate::turns::Changing;

/// A change that the engine has allowed, until it is dropped.
#[must_use]
pub(crate) struct StatusChange<'a> {
    front: &'a Front,
    /// `None` where only the engine knows the file: then it is not told how it is left.
    inode: Option<&'a Inode>,
    object: Option<ObjectId>,
    _turn: Option<Changing<'a>>,
}

impl Front {
    /// To be held while the status of a file is changed.
    pub(crate) fn changing_status<'a>(&'a self, inode: &'a Inode) -> Outcome<StatusChange<'a>> {
        let turn = inode.managed.then(|| self.turns.change([Some(inode.key), None]));
        let change = self.changing_status_in_turn(inode.known().as_ref(), Some(inode))?;
        Ok(StatusChange { _turn: turn, ..change })
    }

    /// The same for one who has the turn at the file.
    pub(crate) fn changing_status_in_turn<'a>(
        &'a self,
        known: Option<&Arc<Known>>,
        inode: Option<&'a Inode>,
    ) -> Outcome<StatusChange<'a>> {
        let mut change = StatusChange { front: self, inode, object: None, _turn: None };
        if let Some(known) = known {
            let object = known.object();
            match call_with(&*self.pond, Request::StatusBegins { object }, |_| {}) {
                Reply::Done => change.object = Some(object),
                // It has let go of it, so nothing of it is dirty.
                Reply::Failed(EngineErrno::BADF) => {}
                other => return Err(unexpected(&other)),
            }
        }
        Ok(change)
    }

    /// Takes from a file what it may not keep when its content changes. May block.
    pub(crate) fn drop_privileges(&self, inode: &Inode, rights: impl FnOnce() -> Option<Rights>) -> Outcome<()> {
        if inode.privileges() == Privileges::None || !privileges::has_any(inode)? {
            return Ok(());
        }
        let change = self.changing_status(inode)?;
        let dropped = privileges::drop_before_change(inode, rights)?;
        drop(change);
        if dropped {
            self.changed_at_origin(inode);
        }
        Ok(())
    }
}

impl Drop for StatusChange<'_> {
    fn drop(&mut self) {
        let Some(object) = self.object else { return };
        let stamp = self.inode.and_then(|inode| inode.stat().ok()).as_ref().map(stamp);
        self.front.pond.submit(Request::StatusEnds { object, stamp }, Box::new(|_| {}));
    }
}
