//! The log's writes that are not completed, and the members with writes that no sync covers.
//!
//! Invariants:
//! - A write is completed once each of its places is.
//! - A sync that begins covers what its members had completed before. A member with a later write stays on the list for
//!   the next.

use std::collections::BTreeMap;

use headpond_base::{MemberId, SegmentId};
use headpond_format::Address;
use smallvec::SmallVec;

use crate::start::WriteId;

/// A write that is not completed.
#[derive(Clone, Debug)]
struct UnderWay {
    segment: SegmentId,
    /// The members whose places have not completed it.
    left: SmallVec<[MemberId; 2]>,
    bytes: u64,
    /// The members of all its places.
    members: SmallVec<[MemberId; 2]>,
}

/// Owned by the log.
#[derive(Debug)]
pub(crate) struct Writes {
    next: WriteId,
    under_way: BTreeMap<WriteId, UnderWay>,
    /// What each member has to write, once it had something.
    queued: Vec<(MemberId, u64)>,
    /// The members with writes that no sync covers, each with its last.
    unsynced: Vec<(MemberId, WriteId)>,
}

impl Writes {
    pub(crate) const fn new() -> Self {
        Self { next: WriteId(1), under_way: BTreeMap::new(), queued: Vec::new(), unsynced: Vec::new() }
    }

    /// The name of the next write.
    pub(crate) const fn next(&self) -> WriteId {
        self.next
    }

    /// The name of the last write.
    pub(crate) const fn last(&self) -> WriteId {
        WriteId(self.next.0 - 1)
    }

    /// How many are not completed.
    pub(crate) fn under_way(&self) -> usize {
        self.under_way.len()
    }

    /// Whether a write of this segment is not completed.
    pub(crate) fn any_of(&self, segment: SegmentId) -> bool {
        self.under_way.values().any(|write| write.segment == segment)
    }

    /// The bytes of the writes to this member that are not completed in all their places.
    pub(crate) fn queued(&self, member: MemberId) -> u64 {
        self.queued.iter().find(|(id, _)| *id == member).map_or(0, |(_, bytes)| *bytes)
    }

    fn queue(&mut self, member: MemberId, bytes: u64) {
        match self.queued.iter_mut().find(|(id, _)| *id == member) {
            Some((_, queued)) => *queued += bytes,
            None => self.queued.push((member, bytes)),
        }
    }

    /// A write of `bytes` to each of these places begins. Without any it is as good as completed.
    pub(crate) fn begin(&mut self, segment: SegmentId, bytes: u64, places: &[Address]) -> WriteId {
        let id = self.next;
        self.next = WriteId(id.0 + 1);
        if !places.is_empty() {
            let members: SmallVec<[MemberId; 2]> = places.iter().map(|at| at.member).collect();
            self.under_way.insert(id, UnderWay { segment, left: members.clone(), bytes, members });
        }
        for at in places {
            self.queue(at.member, bytes);
            self.unsynced.retain(|(member, _)| *member != at.member);
            self.unsynced.push((at.member, id));
        }
        id
    }

    /// A write is completed in its place on this member; `hasty`, for a planted bug: in all. Returns its segment if it is
    /// now completed in all.
    ///
    /// # Panics
    /// When the write was not under way there.
    pub(crate) fn completed_on(&mut self, member: MemberId, id: WriteId, hasty: bool) -> Option<SegmentId> {
        if hasty && !self.under_way.contains_key(&id) {
            return None;
        }
        let write = self.under_way.get_mut(&id).expect("a write is completed once in each place");
        let place =
            write.left.iter().position(|left| *left == member).expect("a write is completed once in each place");
        write.left.swap_remove(place);
        if !write.left.is_empty() && !hasty {
            return None;
        }
        let UnderWay { segment, bytes, members, .. } = self.under_way.remove(&id)?;
        for (_, queued) in self.queued.iter_mut().filter(|(member, _)| members.contains(member)) {
            *queued -= bytes;
        }
        Some(segment)
    }

    /// Whether these members have completed every write up to `last`.
    pub(crate) fn are_completed(&self, last: WriteId, by: impl Fn(MemberId) -> bool) -> bool {
        self.under_way.range(..=last).all(|(_, write)| !write.left.iter().any(|member| by(*member)))
    }

    /// The segments of the writes up to `last` that are not completed.
    pub(crate) fn segments_until(&self, last: WriteId) -> impl Iterator<Item = SegmentId> {
        self.under_way.range(..=last).map(|(_, write)| write.segment)
    }

    /// A sync of these members begins, which covers the writes up to `last`: they have completed all of those. Returns the
    /// members that have any.
    pub(crate) fn begin_sync(&mut self, last: WriteId, of: impl Fn(MemberId) -> bool) -> Vec<MemberId> {
        let members = self.unsynced.iter().map(|(member, _)| *member).filter(|member| of(*member)).collect();
        // What was written later may not be completed yet: the next sync covers it.
        self.unsynced.retain(|(member, written)| *written > last || !of(*member));
        members
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(member: u16) -> Address {
        Address { member: MemberId(member), offset: 0 }
    }

    #[test]
    fn a_write_is_completed_once_each_of_its_places_is() {
        let mut writes = Writes::new();
        let id = writes.begin(SegmentId(7), 10, &[at(0), at(1)]);
        assert_eq!(writes.completed_on(MemberId(1), id, false), None);
        assert!(writes.are_completed(id, |member| member == MemberId(1)));
        assert!(!writes.are_completed(id, |_| true));
        assert_eq!(writes.completed_on(MemberId(0), id, false), Some(SegmentId(7)));
        assert!(writes.are_completed(id, |_| true) && writes.under_way() == 0);
        let nowhere = writes.begin(SegmentId(8), 10, &[]);
        assert!(writes.are_completed(nowhere, |_| true), "no place has to complete it");
    }

    #[test]
    fn what_is_queued_at_a_member_ends_with_the_last_place_of_its_write() {
        let mut writes = Writes::new();
        let both = writes.begin(SegmentId(7), 10, &[at(0), at(1)]);
        let one = writes.begin(SegmentId(7), 5, &[at(1)]);
        assert_eq!([0, 1, 2].map(|member| writes.queued(MemberId(member))), [10, 15, 0]);
        writes.completed_on(MemberId(1), one, false);
        writes.completed_on(MemberId(0), both, false);
        assert_eq!([0, 1].map(|member| writes.queued(MemberId(member))), [10, 10]);
        writes.completed_on(MemberId(1), both, false);
        assert_eq!([0, 1].map(|member| writes.queued(MemberId(member))), [0, 0]);
    }

    #[test]
    fn a_member_that_was_written_to_meanwhile_is_synced_again() {
        let mut writes = Writes::new();
        let covered = writes.begin(SegmentId(1), 10, &[at(0), at(1)]);
        writes.begin(SegmentId(2), 10, &[at(1)]);
        assert_eq!(writes.begin_sync(covered, |_| true), [MemberId(0), MemberId(1)]);
        assert_eq!(writes.begin_sync(writes.last(), |_| true), [MemberId(1)]);
        assert_eq!(writes.begin_sync(writes.last(), |_| true), []);
    }
}
