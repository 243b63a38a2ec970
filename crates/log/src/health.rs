//! The state of each member, and whether the pool still takes writes.
//!
//! ```text
//!  Works ── a write or a sync failed ──> RefusesWrites ── its device is gone ──> Gone
//! ```
//!
//! Invariants:
//! - A state only gets worse while the pool is in use: what a member refused may be lost even if its next write
//!   succeeds.
//! - The pool takes writes while each host batch that is not durable has a member that works. The log has one order:
//!   once a batch is lost, no later one counts, on whichever member it lies.
//! - After a loss nothing more counts as durable until the list without the member does: see `hold`.

use headpond_base::{Errno, MemberId};

/// The state of a member.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum State {
    /// It refused nothing.
    Works,
    /// A write or a sync failed. What was durable before may still be readable.
    RefusesWrites,
    /// The system says that the device is gone.
    Gone,
}

/// The state of each member of one pool. The log owns it.
#[derive(Debug)]
pub(crate) struct Health {
    /// The members in use, in the order of their numbers.
    members: Vec<(MemberId, State)>,
    /// No member has a batch that counts. Kept because each request asks several times.
    failed: bool,
    /// How often a member that worked refused something.
    losses: u32,
}

impl Health {
    /// All members work.
    pub(crate) fn new(members: &[MemberId]) -> Self {
        Self { members: members.iter().map(|member| (*member, State::Works)).collect(), failed: false, losses: 0 }
    }

    /// Whether the pool takes writes. Once it does not, it takes none until the next start.
    pub(crate) const fn takes_writes(&self) -> bool {
        !self.failed
    }

    /// A host batch is lost.
    pub(crate) const fn fail(&mut self) {
        self.failed = true;
    }

    /// Whether a member refused nothing.
    pub(crate) fn works(&self, member: MemberId) -> bool {
        self.members.iter().any(|(id, state)| *id == member && *state == State::Works)
    }

    /// How many losses there were.
    pub(crate) const fn losses(&self) -> u32 {
        self.losses
    }

    /// The members that refused nothing.
    pub(crate) fn working(&self) -> Vec<MemberId> {
        self.members.iter().filter(|(_, state)| *state == State::Works).map(|(id, _)| *id).collect()
    }

    /// Whether a read of a member is worth a try. `false` for a member that the pool does not have.
    pub(crate) fn can_be_read(&self, member: MemberId) -> bool {
        self.members.iter().any(|(id, state)| *id == member && *state < State::Gone)
    }

    /// Another member, which works.
    pub(crate) fn add(&mut self, member: MemberId) {
        if !self.members.iter().any(|(id, _)| *id == member) {
            self.members.push((member, State::Works));
        }
    }

    /// A member is not one any more.
    pub(crate) fn remove(&mut self, member: MemberId) {
        self.members.retain(|(id, _)| *id != member);
    }

    /// Records that a member refused a write or a sync. Returns whether it worked until now.
    pub(crate) fn refused(&mut self, member: MemberId, errno: Errno) -> bool {
        let is_gone = matches!(errno, Errno::NODEV | Errno::NXIO);
        let now = if is_gone { State::Gone } else { State::RefusesWrites };
        let worked = self.works(member);
        self.losses += u32::from(worked);
        for (_, state) in self.members.iter_mut().filter(|(id, _)| *id == member) {
            *state = now.max(*state);
        }
        worked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: MemberId = MemberId(0);
    const OTHER: MemberId = MemberId(3);

    #[test]
    fn a_member_that_refused_something_works_no_more_and_may_be_read() {
        let mut health = Health::new(&[ONE, OTHER]);
        assert!(health.refused(OTHER, Errno::IO));
        assert!(!health.refused(OTHER, Errno::IO), "that is known");
        assert_eq!(health.working(), [ONE]);
        assert!(health.can_be_read(ONE) && health.can_be_read(OTHER), "what is durable there is not lost");
        assert!(health.takes_writes(), "that is for the log to say");
        health.fail();
        assert!(!health.takes_writes());
    }

    #[test]
    fn a_member_that_is_gone_is_not_read_and_no_later_error_brings_it_back() {
        for gone in [Errno::NODEV, Errno::NXIO] {
            let mut health = Health::new(&[ONE, OTHER]);
            health.refused(OTHER, Errno::IO);
            health.refused(OTHER, gone);
            health.refused(OTHER, Errno::IO);
            assert!(health.can_be_read(ONE) && !health.can_be_read(OTHER) && !health.works(OTHER));
        }
        assert!(!Health::new(&[ONE]).can_be_read(OTHER), "the pool does not have it");
    }
}
