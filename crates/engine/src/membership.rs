//! Changes of the list of members, one at a time.
//!
//! ```text
//!  Settled ── a member is lost, or a change is asked for ──> Listing ── a checkpoint with the list counts ──> Telling
//!     ^                                                          ^                                              │
//!     │                                                          └── another member was lost meanwhile ─────────┤
//!     └───────────────────────── the origin's side has the list's generation ───────────────────────────────────┘
//! ```
//!
//! Invariants:
//! - A list is acted on once it is durable on each member that it has, and its generation beside the origin. So no
//!   start believes a member that is not on it, alone or with others.
//! - Until then a lost member holds up every answer that something is durable, and a new one gets no segment.

use headpond_base::{MemberId, Nanos};
use headpond_format::{MemberState, Members};

use crate::request::{MembersChange, RequestId};

/// The origin's side is told again after this, if it could not write down what it was told. Syncs wait meanwhile.
const TELL_AGAIN: Nanos = Nanos(Nanos::SECOND.0 / 2);

/// How far a change of the list is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// The list that is wanted counts.
    Settled,
    /// It is to be in the next checkpoint.
    Listing,
    /// The origin's side is being told of it.
    Telling,
}

/// The list of members that is wanted. Owned by the engine.
pub(crate) struct Membership {
    wanted: Members,
    stage: Stage,
    /// A member of it is being emptied.
    empties: bool,
    /// A member that had copies only is lost. Until another list counts, which misses none.
    misses_copy: bool,
    is_one: bool,
    /// When the origin's side is told again, after a failure.
    tell_again_at: Option<Nanos>,
    /// Who asked for a change, and for which. Answered when it is done.
    asked: Option<(RequestId, MembersChange)>,
    /// It waits for the list that is being written, of a lost member.
    waits: bool,
    /// Whether the next member has a number was not looked at since the list changed.
    numbers_changed: bool,
}

impl Membership {
    /// The list that counts, without those members that are not here.
    pub(crate) fn new(list: &Members, missing: &[MemberId]) -> Self {
        let wanted = missing.iter().fold(list.clone(), |list, member| list.without(*member));
        // What a start found may not be durable yet, and the origin's side may not know it: it is told of what is.
        let stage = if list.given() == 1 { Stage::Settled } else { Stage::Listing };
        let (empties, misses_copy, is_one) = (has_emptied(&wanted), misses_copy(&wanted), is_one(&wanted));
        Self {
            wanted,
            stage,
            empties,
            misses_copy,
            is_one,
            tell_again_at: None,
            asked: None,
            waits: false,
            numbers_changed: true,
        }
    }

    /// Whether the list has changed since the last call, and counts.
    pub(crate) fn take_numbers_changed(&mut self) -> bool {
        self.is_settled() && std::mem::take(&mut self.numbers_changed)
    }

    /// The list that is wanted.
    pub(crate) const fn wanted(&self) -> &Members {
        &self.wanted
    }

    /// Whether there is nothing to be done, or a step is under way.
    pub(crate) fn is_idle(&self) -> bool {
        !self.is_settled() || self.asked().is_none() && !self.empties
    }

    /// Whether slots are to be emptied: of a member that is to go, or that is to be smaller.
    pub(crate) fn empties(&self) -> bool {
        self.empties || matches!(self.asked(), Some(MembersChange::Shrink { .. }))
    }

    /// A list counts that misses no copy, and what it has in use takes copies: none is missed any more.
    pub(crate) fn copies_are_made(&mut self) {
        self.misses_copy = misses_copy(&self.wanted);
    }

    /// Whether the pool misses a copy that it had on another host. It may have another one.
    pub(crate) const fn misses_copy(&self) -> bool {
        self.misses_copy
    }

    /// Whether the pool is to be one device, and whole: others that it had were removed in order, or are being emptied for
    /// that, and none is missed. Then its dirty data is to have no second copy.
    pub(crate) const fn is_one(&self) -> bool {
        self.is_one
    }

    /// Whether all that is wanted counts.
    pub(crate) fn is_settled(&self) -> bool {
        self.stage == Stage::Settled
    }

    /// A member is lost. Which of the others have copies only is the log's word: it needs a place for what comes next, and
    /// one that joins is none yet.
    pub(crate) fn lose(&mut self, member: MemberId, copies_only: impl Fn(MemberId) -> bool) {
        if self.wanted.get(member).is_some_and(|row| row.state != MemberState::Gone) {
            self.want(self.wanted.without(member).with_copies_only(copies_only));
        }
    }

    /// Another list is wanted from now on.
    pub(crate) fn want(&mut self, list: Members) {
        self.empties = has_emptied(&list);
        self.misses_copy |= misses_copy(&list);
        self.is_one = is_one(&list);
        self.numbers_changed = true;
        self.wanted = list;
        self.stage = Stage::Listing;
    }

    /// A checkpoint with this list counts here. If it is the one that is wanted: the generation that the origin's side
    /// is to be told now. It is being told from here on.
    pub(crate) fn counts(&mut self, list: &Members) -> Option<u64> {
        if self.stage != Stage::Listing || *list != self.wanted {
            return None;
        }
        self.stage = Stage::Telling;
        Some(list.generation())
    }

    /// The origin's side has answered. Returns whether the list that is wanted counts.
    pub(crate) fn told(&mut self, generation: u64, failed: bool, now: Nanos) -> bool {
        if self.stage == Stage::Telling && self.wanted.generation() == generation {
            if failed {
                self.tell_again_at = Some(now.plus(TELL_AGAIN));
            } else {
                self.stage = Stage::Settled;
            }
        }
        self.is_settled()
    }

    /// Whether the origin's side could not write down what it was told, and is to be told again.
    pub(crate) const fn is_to_tell_again(&self) -> bool {
        self.tell_again_at.is_some()
    }

    /// The generation that the origin's side is to be told again now. It is being told from here on.
    pub(crate) fn tell_again(&mut self, now: Nanos) -> Option<u64> {
        self.tell_again_at.take_if(|at| *at <= now)?;
        (self.stage == Stage::Telling).then(|| self.wanted.generation())
    }

    /// A request asks for a change, which has begun, or `waits` for the list that is being written.
    ///
    /// # Panics
    /// When another is under way.
    pub(crate) fn ask(&mut self, request: RequestId, change: MembersChange, waits: bool) {
        assert!(self.asked.is_none(), "one change of the members at a time");
        (self.asked, self.waits) = (Some((request, change)), waits);
    }

    /// The change that waits, if it may begin. It is to be asked for anew.
    pub(crate) fn take_ready(&mut self) -> Option<(RequestId, MembersChange)> {
        if self.waits && self.is_settled() { self.asked.take() } else { None }
    }

    /// Whether a change is under way, or waits.
    pub(crate) const fn is_busy(&self) -> bool {
        self.asked.is_some()
    }

    /// Whether a change waits.
    pub(crate) const fn waits(&self) -> bool {
        self.waits && self.asked.is_some()
    }

    /// The change that was asked for, and has begun.
    pub(crate) fn asked(&self) -> Option<MembersChange> {
        self.asked.filter(|_| !self.waits).map(|(_, change)| change)
    }

    /// The change is done, or cannot be: who asked for it.
    pub(crate) fn take_asked(&mut self) -> Option<RequestId> {
        self.asked.take().map(|(request, _)| request)
    }
}

fn is_one(list: &Members) -> bool {
    let in_use = list.iter().filter(|(_, member)| member.state == MemberState::InUse);
    in_use.count() < 2 && !list.iter().any(|(_, member)| member.missed)
}

fn misses_copy(list: &Members) -> bool {
    list.iter().any(|(_, member)| member.copies_only && member.missed)
}

fn has_emptied(list: &Members) -> bool {
    list.iter().any(|(_, member)| member.state == MemberState::Emptied)
}

#[cfg(test)]
mod tests {
    use headpond_format::{Geometry, Member, MemberName};

    use super::*;

    #[test]
    fn a_lost_copy_is_missed_until_the_list_with_another_one_counts() {
        let own = Geometry::with_segment_bytes(64 << 20, 2 << 20).member(MemberName([1; 16]));
        let copies = |name: u8| Member { name: MemberName([name; 16]), copies_only: true, ..own };
        let (list, first) = Members::first(own).with(copies(2)).unwrap();
        let mut membership = Membership::new(&list, &[]);
        let settle = |membership: &mut Membership| {
            let wanted = membership.wanted().clone();
            let generation = membership.counts(&wanted).unwrap();
            membership.told(generation, false, Nanos(1))
        };
        assert!(settle(&mut membership) && !membership.misses_copy());
        membership.lose(first, |member| member == first);
        assert!(membership.misses_copy(), "at once: what is written now has no copy");
        let (longer, _) = membership.wanted().with(copies(3)).unwrap();
        membership.want(longer.forgiving(first));
        assert!(membership.misses_copy(), "the next one is only wanted");
        assert!(settle(&mut membership));
        membership.copies_are_made();
        assert!(!membership.misses_copy());
    }
}
