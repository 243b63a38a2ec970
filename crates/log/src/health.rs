//! The state of each member, and whether the pool still takes writes.
//!
//! ```text
//!  Works ── a write or a sync failed ──> RefusesWrites ── its device is gone ──> Gone
//! ```
//!
//! Invariants:
//! - A state only gets worse while the pool is in use: what a member refused may be lost even if its next write
//!   succeeds.
//! - The pool takes writes only while all its members do. No segment is protected yet, and the log has one order: once
//!   a batch is lost, no later one counts, on whichever member it lies. With mirrors or parity, a pool could take
//!   writes as long as each segment has a member that works.

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
    /// Whether all members work. Kept because each request asks several times.
    all_work: bool,
}

impl Health {
    /// All members work.
    pub(crate) fn new(members: &[MemberId]) -> Self {
        Self { members: members.iter().map(|member| (*member, State::Works)).collect(), all_work: true }
    }

    /// Whether the pool takes writes. Once it does not, it takes none until the next start.
    pub(crate) const fn takes_writes(&self) -> bool {
        self.all_work
    }

    /// Whether a read of a member is worth a try. `false` for a member that the pool does not have.
    pub(crate) fn can_be_read(&self, member: MemberId) -> bool {
        self.members.iter().any(|(id, state)| *id == member && *state < State::Gone)
    }

    /// Records that a member refused a write or a sync.
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
