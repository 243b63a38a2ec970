//! Changes of a file's mode, owner or attributes, which the mount makes at the origin itself. The name layer learns
//! when one begins and when it ends.

use std::sync::Arc;

use headpond_names::block_on;

use crate::caller::Rights;
use crate::front::Front;
use crate::outcome::ReplyOutcome;
use crate::outcome::outcome;
use crate::pond::Engine;
use crate::privileges;
use crate::tree::{Inode, OriginTree};

/// A change that the engine has allowed. It lasts until this is dropped.
#[must_use]
pub(crate) struct StatusChange<'a>(Option<headpond_names::StatusChange<'a, OriginTree, Engine>>);

impl Front {
    /// Begins a change of a file's status. Hold the result until the change is made.
    pub(crate) fn changing_status(&self, inode: &Arc<Inode>) -> ReplyOutcome<StatusChange<'_>> {
        let change = outcome(block_on(self.names.change_status(inode)))?;
        Ok(StatusChange(Some(change)))
    }

    /// Notes that a file's status was changed at the origin alone.
    pub(crate) fn changed_at_origin(&self, inode: &Inode) {
        block_on(self.names.changed_at_origin(inode));
    }

    /// Takes set-id bits and capabilities from a file whose content changes. May block.
    pub(crate) fn drop_privileges(
        &self,
        inode: &Arc<Inode>,
        rights: impl FnOnce() -> Option<Rights>,
    ) -> ReplyOutcome<()> {
        if inode.beside.privileges.is_none() || !privileges::has_any(inode)? {
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
        if let Some(change) = self.0.take() {
            block_on(change.end());
        }
    }
}
