//! Whether each member is still there, though nothing is asked of it: one that vanished while the pool was idle would
//! show with the next write only, and the next one may vanish before that.
//!
//! Each period every member is asked for a block of its settings, which lie on flash as soon as the pool is in use, and
//! which the engine never writes. A read that fails proves nothing: a sector may be bad. A sync is asked for then, and
//! one that fails loses the member, as any sync does.
//!
//! Invariants:
//! - At most one question to a member is under way.
//! - A pool of one member asks nothing: there is nobody to go on with.

use headpond_base::{MemberId, Nanos};

/// When members are asked next, and who has not answered. Owned by the engine.
#[derive(Default)]
pub(crate) struct Probes {
    asked_at: Nanos,
    unanswered: Vec<MemberId>,
}

impl Probes {
    /// When the next questions are due. `None` while a member that owes an answer is all there is to wait for.
    pub(crate) fn due(&self, period: Nanos) -> Option<Nanos> {
        self.unanswered.is_empty().then(|| self.asked_at.plus(period))
    }

    /// These members are asked now.
    pub(crate) fn asks(&mut self, members: &[MemberId], now: Nanos) {
        self.asked_at = now;
        self.unanswered.extend(members);
    }

    /// A member has said all that it was asked for.
    pub(crate) fn answered(&mut self, member: MemberId) {
        self.unanswered.retain(|other| *other != member);
    }
}
