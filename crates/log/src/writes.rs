//! The log's writes that are not completed, and the members with writes that no sync covers.
//!
//! Invariants:
//! - A write is completed once each of its places is.
//! - A sync that begins covers what was completed before. A member with a later write stays on the list for the next.

use std::collections::BTreeMap;

use headpond_base::{MemberId, SegmentId};
use headpond_format::Address;

use crate::start::WriteId;

/// A write that is not completed.
#[derive(Clone, Copy, Debug)]
struct UnderWay {
    segment: SegmentId,
    /// Places that have not completed it.
    left: usize,
}

/// Owned by the log.
#[derive(Debug)]
pub(crate) struct Writes {
    next: WriteId,
    under_way: BTreeMap<WriteId, UnderWay>,
    /// The members with writes that no sync covers, each with its last.
    unsynced: Vec<(MemberId, WriteId)>,
}

impl Writes {
    pub(crate) const fn new() -> Self {
        Self { next: WriteId(1), under_way: BTreeMap::new(), unsynced: Vec::new() }
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

    /// A write to these places begins. Without any it is as good as completed.
    pub(crate) fn begin(&mut self, segment: SegmentId, places: impl ExactSizeIterator<Item = Address>) -> WriteId {
        let id = self.next;
        self.next = WriteId(id.0 + 1);
        if places.len() > 0 {
            self.under_way.insert(id, UnderWay { segment, left: places.len() });
        }
        for at in places {
            self.unsynced.retain(|(member, _)| *member != at.member);
            self.unsynced.push((at.member, id));
        }
        id
    }

    /// A write is completed in one of its places; `hasty`, for a planted bug: in all. Returns its segment if it is now
    /// completed in all.
    ///
    /// # Panics
    /// When the write was not under way.
    pub(crate) fn completed_in_a_place(&mut self, id: WriteId, hasty: bool) -> Option<SegmentId> {
        if hasty && !self.under_way.contains_key(&id) {
            return None;
        }
        let write = self.under_way.get_mut(&id).expect("a write is completed once in each place");
        write.left -= 1;
        let UnderWay { segment, left } = *write;
        if left > 0 && !hasty {
            return None;
        }
        self.under_way.remove(&id);
        Some(segment)
    }

    /// Whether every write up to `last` is completed.
    pub(crate) fn are_completed(&self, last: WriteId) -> bool {
        self.under_way.first_key_value().is_none_or(|(first, _)| *first > last)
    }

    /// The segments of the writes up to `last` that are not completed.
    pub(crate) fn segments_until(&self, last: WriteId) -> impl Iterator<Item = SegmentId> {
        self.under_way.range(..=last).map(|(_, write)| write.segment)
    }

    /// A sync begins that covers the writes up to `last`, all of which are completed. Returns the members that have
    /// any.
    pub(crate) fn begin_sync(&mut self, last: WriteId) -> Vec<MemberId> {
        let members = self.unsynced.iter().map(|(member, _)| *member).collect();
        // What was written later may not be completed yet: the next sync covers it.
        self.unsynced.retain(|(_, written)| *written > last);
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
        let id = writes.begin(SegmentId(7), [at(0), at(1)].into_iter());
        assert_eq!(writes.completed_in_a_place(id, false), None);
        assert!(!writes.are_completed(id));
        assert_eq!(writes.completed_in_a_place(id, false), Some(SegmentId(7)));
        assert!(writes.are_completed(id) && writes.under_way() == 0);
        let nowhere = writes.begin(SegmentId(8), std::iter::empty());
        assert!(writes.are_completed(nowhere), "no place has to complete it");
    }

    #[test]
    fn a_member_that_was_written_to_meanwhile_is_synced_again() {
        let mut writes = Writes::new();
        let covered = writes.begin(SegmentId(1), [at(0), at(1)].into_iter());
        writes.begin(SegmentId(2), [at(1)].into_iter());
        assert_eq!(writes.begin_sync(covered), [MemberId(0), MemberId(1)]);
        assert_eq!(writes.begin_sync(writes.last()), [MemberId(1)]);
        assert_eq!(writes.begin_sync(writes.last()), []);
    }
}
