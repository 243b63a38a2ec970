//! Which member may be lost when, so that the pool has to hide it: at most one, until the pool says that all dirty data
//! has two copies again. A few histories lose more; then errors are excused.

use headpond_base::MemberId;
use headpond_engine::RequestId;
use headpond_format::MemberState;

use super::World;
use crate::under_test::ListChange;

/// The one device of a pool that mirrors whose reads fail and whose bits rot.
const FRAIL: usize = 0;

/// A member that was lost, and that the pool has not made up for yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loss {
    pub(crate) device: usize,
}

impl World {
    /// Whether any one member can be lost without any loss of data.
    pub(crate) fn is_covered(&self) -> bool {
        let Some(core) = &self.core else { return self.was_covered && self.lost.is_none() };
        let in_use = core.members().iter().filter(|member| member.state != MemberState::Gone).count();
        self.mirrors && self.lost.is_none() && in_use > 1 && core.exposed_blocks() == 0
    }

    /// Whether the loss of this member costs dirty data.
    fn would_cost(&self, device: usize) -> bool {
        let Some(core) = &self.core else { return true };
        let members = core.members();
        let of = |member: &MemberId| members.get(usize::from(member.0));
        self.flash.member_of(device).as_ref().and_then(of).is_none_or(|member| member.alone > 0)
    }

    /// A member is lost, unless this history must keep it. Returns whether it is.
    pub(crate) fn lose(&mut self, device: usize) -> bool {
        if !self.members_family || self.lost.is_some_and(|lost| lost.device == device) {
            return self.members_family;
        }
        // What has rotted on one is good on the others.
        let covered = self.is_covered() && (!self.rotten || device == FRAIL);
        if !covered {
            if self.uncovered_losses == 0 {
                return false;
            }
            self.uncovered_losses -= 1;
            let costs = self.would_cost(device);
            self.trace(|| format!("an uncovered loss, which costs dirty data: {costs}"));
            self.uncovered = true;
            self.injected.flash_write += 1;
        }
        if self.faults.flash_read > 0 {
            // The other copy may be the one that cannot be read just now.
            self.injected.flash_read += 1;
        }
        self.trace(|| format!("device {device} is lost"));
        self.lost = Some(Loss { device });
        true
    }

    /// Gives the engine a change of the list.
    pub(crate) fn submit_members(&mut self, id: RequestId, change: ListChange) -> Result<(), String> {
        let now = self.now;
        self.drive(|core| {
            core.advance(now);
            core.change_members(id, change);
        });
        self.pump()
    }

    /// A read of this member is about to fail. Of mirrored data only one copy may be hard to read.
    pub(crate) fn may_fail_a_read(&mut self, member: MemberId) -> bool {
        if self.mirrors && self.members_family {
            let frail = self.flash.device_of(member) == Ok(FRAIL);
            self.injected.flash_read += u64::from(frail && !self.is_covered());
            return frail;
        }
        self.injected.flash_read += 1;
        true
    }

    /// A write or a sync of this member is about to fail. In histories of members that is its loss.
    pub(crate) fn may_fail_a_write(&mut self, member: MemberId) -> Result<bool, String> {
        let device = self.flash.device_of(member)?;
        if self.members_family {
            return Ok(self.lose(device));
        }
        self.injected.flash_write += 1;
        Ok(true)
    }

    /// Bits rot, of dirty data too. Of mirrored data only one copy does.
    pub(crate) fn rot_anywhere(&mut self) {
        if self.mirrors && self.members_family {
            if !self.is_covered() || self.flash.member_of(FRAIL).is_none() {
                return;
            }
            if self.flash.all_mut()[FRAIL].flash.rot(false, &mut self.rng).is_some() {
                self.injected.hidden += 1;
                self.rotten = true;
            }
        } else if self.flash.rot(false, &mut self.rng).is_some() {
            self.injected.any_rot += 1;
        }
    }

    /// The pool says that it has made up for the last loss.
    pub(crate) fn notice_repair(&mut self) {
        let (Some(lost), Some(core)) = (self.lost, &self.core) else { return };
        let members = core.members();
        let state = self.flash.member_of(lost.device).and_then(|id| members.get(usize::from(id.0)));
        if state.is_none_or(|member| member.state == MemberState::Gone) && core.exposed_blocks() == 0 {
            self.trace(|| "the pool has made up for the loss".into());
            self.lost = None;
        }
    }
}
