//! How each member of a pool is, and what the pool can still do with that.
//!
//! ```text
//!  Works ── a write or a sync failed ──> RefusesWrites ── its device is gone ──> Gone
//! ```
//!
//! Invariants:
//! - A state gets only worse while the pool is in use: what was refused may be lost though the next write succeeds.
//! - The pool takes writes only while each of its members does. No segment is protected yet, and the log is one order:
//!   after the first batch that is lost none counts, on whichever member it lies.

use headpond_base::{Errno, MemberId};

/// How a member is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum State {
    /// Nothing was refused.
    Works,
    /// A write or a sync failed. What was durable before may still be read.
    RefusesWrites,
    /// The system says that the device is not there any more.
    Gone,
}

/// The state of each member of one pool. Owned by its log.
#[derive(Debug)]
pub(crate) struct Health {
    /// Those in use, in the order of their numbers.
    members: Vec<(MemberId, State)>,
    /// Whether all of them work: asked several times for each request.
    all_work: bool,
}

impl Health {
    /// Of members that have refused nothing yet.
    pub(crate) fn new(members: &[MemberId]) -> Self {
        Self { members: members.iter().map(|member| (*member, State::Works)).collect(), all_work: true }
    }

    /// Whether the pool takes writes. If not, it does not as long as it is in use.
    pub(crate) const fn takes_writes(&self) -> bool {
        self.all_work
    }

    /// Whether it is worth a try to read a member. No, of one that the pool does not have.
    pub(crate) fn can_be_read(&self, member: MemberId) -> bool {
        self.members.iter().any(|(id, state)| *id == member && *state < State::Gone)
    }

    /// A member has refused a write or a sync.
    pub(crate) fn refused(&mut self, member: MemberId, errno: Errno) {
        let is_gone = matches!(errno, Errno::NODEV | Errno::NXIO);
        let now = if is_gone { State::Gone } else { State::RefusesWrites };
        for (_, state) in self.members.iter_mut().filter(|(id, _)| *id == member) {
            *state = now.max(*state);
        }
        self.all_work = self.members.iter().all(|(_, state)| *state == State::Works);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: MemberId = MemberId(0);
    const OTHER: MemberId = MemberId(3);

    #[test]
    fn a_pool_takes_writes_only_while_all_its_members_do() {
        let mut health = Health::new(&[ONE, OTHER]);
        assert!(health.takes_writes());
        health.refused(OTHER, Errno::IO);
        assert!(!health.takes_writes());
        assert!(health.can_be_read(ONE) && health.can_be_read(OTHER), "what is durable there is not lost");
    }

    #[test]
    fn a_member_that_is_gone_is_not_read_and_no_later_error_brings_it_back() {
        for gone in [Errno::NODEV, Errno::NXIO] {
            let mut health = Health::new(&[ONE, OTHER]);
            health.refused(OTHER, Errno::IO);
            health.refused(OTHER, gone);
            health.refused(OTHER, Errno::IO);
            assert!(health.can_be_read(ONE) && !health.can_be_read(OTHER) && !health.takes_writes());
        }
        assert!(!Health::new(&[ONE]).can_be_read(OTHER), "the pool does not have it");
    }
}
