//! Which segments can be opened, on which members, and what the loss of some members leaves.
//!
//! Invariants:
//! - A set of slots for one segment is on as many members: one has its home, the others lend theirs.
//! - Members with copies only lend, and nothing else, until no other is left.

use std::cmp::Reverse;
use std::collections::VecDeque;

use headpond_base::{MemberId, SegmentId, Sequence, Stream};
use headpond_format::SegmentState;
use smallvec::SmallVec;

use super::{Segment, Segments};
use crate::lenders::{LENDERS_MAX, Lenders};

impl Segments {
    /// Segments that are in use, or can be: those at home on a member that takes new ones.
    #[must_use]
    pub const fn usable(&self) -> usize {
        self.usable
    }

    /// Sets of those for a segment with all its copies, each on a member of its own. With one copy these are pairs.
    #[must_use]
    pub const fn pairs(&self) -> usize {
        self.pairs
    }

    pub(super) fn count_usable(&mut self) {
        let is_usable = |id: SegmentId| {
            let home = self.addresses.home(id);
            home.slot < self.taken_slots(home.member) && !self.has_copies_only(home.member)
        };
        self.usable = self.iter().filter(|(id, _)| is_usable(*id)).count();
        self.pairs = self.pairs_of(|member| self.taken_slots(member) as usize);
    }

    /// Whether a member's slots are lent only.
    #[must_use]
    pub fn has_copies_only(&self, member: MemberId) -> bool {
        self.copies_only.get(usize::from(member.0)).is_some_and(|only| *only)
    }

    /// Those members, in use or not.
    pub(crate) fn members_with_copies_only(&self) -> impl Iterator<Item = MemberId> {
        (0..).map(MemberId).zip(&self.copies_only).filter(|(_, only)| **only).map(|(member, _)| member)
    }

    /// Whether second copies go to members that have nothing else.
    #[must_use]
    pub fn copies_apart(&self) -> bool {
        self.apart() > 0
    }

    /// On how many members with copies only a mirrored segment gets copies: on each that takes them, up to the most that
    /// it can have. So each of two other hosts has all.
    #[must_use]
    pub fn apart(&self) -> usize {
        self.members_apart().count().min(LENDERS_MAX)
    }

    /// The members with copies only that take new ones.
    pub(crate) fn members_apart(&self) -> impl Iterator<Item = MemberId> {
        let members = (0..).map(MemberId).zip(self.copies_only.iter().zip(&self.open_slots));
        members.filter(|(_, (only, slots))| **only && **slots > 0).map(|(member, _)| member)
    }

    /// How many segments with all their copies, each on another member, these counts of slots allow.
    fn pairs_of(&self, count: impl Fn(MemberId) -> usize) -> usize {
        let members = || (0..).map(MemberId).zip(&self.copies_only).map(|(member, only)| (*only, count(member)));
        let of = |apart: bool| members().filter(move |(only, _)| *only == apart).map(|(_, count)| count);
        match self.apart() {
            0 => sets_of(2, of(false)),
            apart => of(false).sum::<usize>().min(sets_of(apart, of(true))),
        }
    }

    /// Segments that could still be opened or full after the loss of any one member. Members with copies only count where
    /// no other is left. A member that is set aside counts: a loss takes it back.
    #[must_use]
    pub fn without_any_one(&self) -> usize {
        self.least_left(|member| self.open_slots[usize::from(member.0)] as usize)
    }

    /// Segments that can be opened now, of those; `soon`: with those that wait to be free.
    pub(crate) fn free_without_any_one(&self, soon: bool) -> usize {
        self.least_left(|member| {
            let closed = self.closed[usize::from(member.0)].len();
            let waits = |(id, _): &&(SegmentId, Sequence)| {
                self.addresses.home(*id).member == member && !self.is_kept_by_row(*id)
            };
            let waiting = if soon { self.waiting.iter().filter(waits).count() } else { 0 };
            self.free_on(member) + closed + waiting
        })
    }

    /// What is left of these counts, of all members that take new segments, without the one whose loss leaves least.
    fn least_left(&self, count: impl Fn(MemberId) -> usize) -> usize {
        let open = (0..).map(MemberId).zip(&self.open_slots).filter(|(_, slots)| **slots > 0);
        let members: SmallVec<[MemberId; 8]> = open.map(|(member, _)| member).collect();
        let without = |lost: MemberId| {
            let left = || members.iter().copied().filter(move |member| *member != lost);
            let only_copies = left().all(|member| self.has_copies_only(member));
            left().filter(|member| only_copies || !self.has_copies_only(*member)).map(&count).sum()
        };
        // All ordinary ones are lost with their host.
        let apart = members.iter().copied().filter(|member| self.has_copies_only(*member));
        let without_host = self.copies_apart().then(|| apart.map(&count).sum());
        members.iter().map(|member| without(*member)).chain(without_host).min().unwrap_or(0)
    }

    /// Whether a member takes new segments in so many slots at least, and so many of these are free.
    pub(crate) fn has_room_on(&self, member: MemberId, slots: usize, free: usize) -> bool {
        let index = usize::from(member.0);
        let takes = self.open_slots.get(index).is_some_and(|taken| *taken as usize >= slots);
        takes && self.free_on(member) + self.closed[index].len() >= free
    }

    /// Whether any segment can be opened.
    pub(crate) fn can_open(&self) -> bool {
        let any = |free: &[VecDeque<SegmentId>]| {
            free.iter().zip(&self.copies_only).any(|(free, only)| !*only && !free.is_empty())
        };
        any(&self.free) || any(&self.closed)
    }

    /// Whether a member takes new segments.
    pub(crate) fn takes_new(&self, member: MemberId) -> bool {
        self.open_slots.get(usize::from(member.0)).is_some_and(|slots| *slots > 0)
    }

    /// Whether a segment, or its row, has a place on a member that has fewer free ones than another of its kind: emptying
    /// it makes for pairs, or for what the loss of the other leaves.
    #[must_use]
    pub fn is_on_a_scarce_member(&self, id: SegmentId) -> bool {
        let is_scarce = |member: MemberId| {
            let only = self.has_copies_only(member);
            let alike = self.free.iter().zip(&self.copies_only).filter(|(_, other)| **other == only);
            alike.map(|(free, _)| free.len()).max().is_some_and(|most| self.free_on(member) < most)
        };
        let rest = self.row_without(id).into_iter().flatten();
        self.keepers(id).chain(rest).any(|keeper| is_scarce(self.addresses.home(keeper).member))
    }

    /// Whether second copies go to members of their own, and those have no more free slots than the others: then emptying
    /// a segment makes for a pair only if it has a place there.
    #[must_use]
    pub fn copies_are_scarce(&self) -> bool {
        self.copies_apart() && self.free_sets_apart() <= self.free()
    }

    /// For how many segments the members with copies only have free slots.
    fn free_sets_apart(&self) -> usize {
        sets_of(self.apart(), self.free_of_kind(true))
    }

    /// How many segments are free on each of the members whose slots are lent only, or on each of the others.
    fn free_of_kind(&self, copies_only: bool) -> impl Iterator<Item = usize> + Clone + '_ {
        let alike = self.free.iter().zip(&self.copies_only).filter(move |(_, only)| **only == copies_only);
        alike.map(|(free, _)| free.len())
    }

    /// Whether emptying a segment makes for a pair that can be opened.
    #[must_use]
    pub fn makes_for_a_pair(&self, id: SegmentId) -> bool {
        if !self.copies_are_scarce() {
            return self.is_on_a_scarce_member(id);
        }
        // With two copies the member that has most free slots may have too many already.
        let (all, most): (usize, usize) = (self.free_of_kind(true).sum(), self.free_of_kind(true).max().unwrap_or(0));
        let is_too_many = |free: usize| self.apart() > 1 && free == most && most > all - most;
        let rest = self.row_without(id).into_iter().flatten();
        let helps =
            |slot: SegmentId| self.lies_apart(slot) && !is_too_many(self.free_on(self.addresses.home(slot).member));
        self.keepers(id).chain(rest).any(helps)
    }

    /// Whether a slot is on a member that has copies only.
    pub(crate) fn lies_apart(&self, slot: SegmentId) -> bool {
        self.has_copies_only(self.addresses.home(slot).member)
    }

    /// How many segments without a copy can be opened now.
    #[must_use]
    pub fn free(&self) -> usize {
        self.free_of_kind(false).sum()
    }

    /// How many segments of a member can be opened now.
    #[must_use]
    pub fn free_on(&self, member: MemberId) -> usize {
        self.free.get(usize::from(member.0)).map_or(0, VecDeque::len)
    }

    /// How many segments with a copy on another member can be opened now.
    #[must_use]
    pub fn free_pairs(&self) -> usize {
        self.pairs_of(|member| self.free_on(member))
    }

    /// Takes a free segment of the member that has most.
    pub(crate) fn take_free(&mut self) -> Option<SegmentId> {
        self.take_from(&[], |_| 0)
    }

    /// Takes a free segment of the member that has fewest in use, by this count; of those, the one that has most free.
    /// With copies apart a member that has no more than `least` is the last to be asked: the loss of another leaves these.
    pub(crate) fn take_free_beside(&mut self, least: usize, in_use: impl Fn(MemberId) -> usize) -> Option<SegmentId> {
        let apart = self.copies_apart();
        let scarce: SmallVec<[bool; 8]> = self.free.iter().map(|free| apart && free.len() <= least).collect();
        self.take_from(&[], |member| (scarce[usize::from(member.0)], in_use(member)))
    }

    /// Takes a free segment, and for each of its copies one of another member. `spread`: so that segments of the host
    /// stream are at home on all members alike, as rows want it. Where not all copies have a place, some may have.
    pub(crate) fn take_free_with_copies(&mut self, spread: bool) -> Option<(SegmentId, Lenders)> {
        let apart = self.apart();
        if apart == 0 && self.free_pairs() == 0 && !self.helps_out() {
            return None;
        }
        if apart > 0 && (self.free() == 0 || self.free_of_kind(true).max() == Some(0)) {
            return None;
        }
        let first = self.take_from(&[], |_| 0)?;
        let mut members = vec![self.addresses.home(first).member];
        let mut lenders = Vec::with_capacity(apart.max(1));
        for _ in 0..apart.max(1) {
            let Some(lender) = self.take_from(&members, |_| 0) else { break };
            members.push(self.addresses.home(lender).member);
            self.get_mut(lender).lent = true;
            lenders.push(lender);
        }
        assert!(!lenders.is_empty(), "a free segment without a copy, where there were pairs");
        if apart == 0 && spread && self.host_segments_at_home_with(lenders[0]) < self.host_segments_at_home_with(first)
        {
            self.get_mut(first).lent = true;
            self.get_mut(lenders[0]).lent = false;
            return Some((lenders[0], Lenders::from_iter([first])));
        }
        Some((first, lenders.into_iter().collect()))
    }

    /// Whether the member that is set aside has a free segment for a pair, while another has one.
    fn helps_out(&self) -> bool {
        let closed = self.aside.and_then(|member| self.closed.get(usize::from(member.0)));
        closed.is_some_and(|closed| !closed.is_empty()) && self.free() > 0 && !self.copies_apart()
    }

    /// How many segments of the host stream are at home on the same member as this one.
    fn host_segments_at_home_with(&self, id: SegmentId) -> usize {
        let member = self.addresses.home(id).member;
        let is_host = |segment: &Segment| segment.state != SegmentState::Free && segment.stream == Stream::Host;
        self.iter().filter(|(id, segment)| is_host(segment) && self.addresses.home(*id).member == member).count()
    }

    /// Takes a free segment of a member that is none of those: of a set for one segment the first has its home, and the
    /// others lend theirs.
    fn take_from<T: Ord>(&mut self, not: &[MemberId], in_use: impl Fn(MemberId) -> T) -> Option<SegmentId> {
        let lends_only = !not.is_empty() && self.copies_apart();
        let is_other =
            |index: usize| self.copies_only[index] == lends_only && !not.iter().any(|not| usize::from(not.0) == index);
        let others = (0..).map(MemberId).zip(&mut self.free);
        let others = others.filter(|(member, free)| is_other(usize::from(member.0)) && !free.is_empty());
        // Of members with as many, the one with the lowest number.
        let best = others.min_by_key(|(member, free)| (in_use(*member), Reverse(free.len())));
        let free = best.and_then(|(_, free)| free.pop_front());
        let mut closed = self.closed.iter_mut().enumerate().filter(|(index, _)| is_other(*index));
        free.or_else(|| closed.find_map(|(_, closed)| closed.pop_front()))
    }
}

/// How many sets of one slot, or of two on different members, these counts of slots allow.
fn sets_of(size: usize, counts: impl Iterator<Item = usize> + Clone) -> usize {
    let all: usize = counts.clone().sum();
    if size < 2 { all } else { (all / 2).min(all - counts.max().unwrap_or(0)) }
}

#[cfg(test)]
mod tests {
    use headpond_base::Generation;
    use headpond_format::{Addresses, Geometry, Member, MemberName, Members};

    use super::*;

    #[test]
    fn members_with_copies_only_lend_their_slots_and_nothing_else_until_no_other_is_left() {
        let geometry = Geometry::with_segment_bytes(64 << 20, 2 << 20);
        let own = geometry.member(MemberName([5; 16]));
        let copies = Member { name: MemberName([6; 16]), copies_only: true, ..own };
        let (list, copy) = Members::first(own).with(copies).unwrap();
        let geometry = Geometry { segments: 2 * own.slots, ..geometry };
        let addresses = Addresses::of_empty(geometry, &list).unwrap();
        let free = Segment::new(Generation(0), SegmentState::Free, Stream::Host);
        let table = vec![free; geometry.segments as usize];
        let slots = own.slots as usize;
        let all = [(MemberId(0), own.slots), (copy, own.slots)];
        let mut segments = Segments::new(addresses, table, Vec::new(), &all, &[copy]);
        assert_eq!(
            (segments.usable(), segments.pairs(), segments.free(), segments.free_pairs()),
            (slots, slots, slots, slots)
        );
        let at = |segments: &Segments, id: SegmentId| segments.addresses().home(id).member;
        let (first, lenders) = segments.take_free_with_copies(false).unwrap();
        let second: Vec<_> = lenders.iter().collect();
        assert_eq!((at(&segments, first), second.len(), at(&segments, second[0])), (MemberId(0), 1, copy));
        while let Some(alone) = segments.take_free() {
            assert_eq!(at(&segments, alone), MemberId(0));
        }
        assert_eq!(
            (segments.free(), segments.take_free_with_copies(false)),
            (0, None),
            "there is room for copies alone"
        );
        segments.lose(MemberId(0));
        assert_eq!((segments.usable(), segments.pairs()), (slots, 0));
        assert_eq!(segments.take_free().map(|id| at(&segments, id)), Some(copy));
    }

    #[test]
    fn each_of_two_members_with_copies_only_has_a_copy_while_it_has_room() {
        let geometry = Geometry::with_segment_bytes(64 << 20, 2 << 20);
        let own = geometry.member(MemberName([5; 16]));
        let copies = |name: u8, slots: u32| Member {
            copies_only: true,
            slots,
            used: slots,
            ..geometry.member(MemberName([name; 16]))
        };
        let few = own.slots / 2;
        let (list, large) = Members::first(own).with(copies(6, own.slots)).unwrap();
        let (list, small) = list.with(copies(7, few)).unwrap();
        let geometry = Geometry { segments: 2 * own.slots + few, ..geometry };
        let addresses = Addresses::of_empty(geometry, &list).unwrap();
        let table = vec![Segment::new(Generation(0), SegmentState::Free, Stream::Host); geometry.segments as usize];
        let all = [(MemberId(0), own.slots), (large, own.slots), (small, few)];
        let mut segments = Segments::new(addresses, table, Vec::new(), &all, &[large, small]);
        assert_eq!((segments.pairs(), segments.free_pairs()), (few as usize, few as usize));
        let members = |segments: &Segments, lenders: Lenders| -> Vec<MemberId> {
            let mut members: Vec<_> = lenders.iter().map(|id| segments.addresses().home(id).member).collect();
            members.sort();
            members
        };
        for _ in 0..few {
            let (_, lenders) = segments.take_free_with_copies(false).unwrap();
            assert_eq!(members(&segments, lenders), [large, small]);
        }
        assert_eq!(segments.free_pairs(), 0);
        let (_, lenders) = segments.take_free_with_copies(false).unwrap();
        assert_eq!(members(&segments, lenders), [large], "one copy is better than none");
        segments.lose(small);
        assert_eq!(segments.free_pairs(), (own.slots - few) as usize - 1, "the other one is enough");
    }

    #[test]
    fn segments_that_are_free_on_one_member_alone_are_none_after_its_loss() {
        let geometry = Geometry::with_segment_bytes(64 << 20, 2 << 20);
        let own = geometry.member(MemberName([5; 16]));
        let (list, other) = Members::first(own).with(Member { name: MemberName([6; 16]), ..own }).unwrap();
        let copies = Member { name: MemberName([7; 16]), copies_only: true, ..own };
        let (list, copy) = list.with(copies).unwrap();
        let geometry = Geometry { segments: 3 * own.slots, ..geometry };
        let addresses = Addresses::of_empty(geometry, &list).unwrap();
        let mut table = vec![Segment::new(Generation(0), SegmentState::Free, Stream::Host); geometry.segments as usize];
        for index in (0..geometry.segments).filter(|id| addresses.home(SegmentId(*id)).member == other) {
            table[index as usize] = Segment::new(Generation(1), SegmentState::Sealed, Stream::Host);
        }
        let all = [(MemberId(0), own.slots), (other, own.slots), (copy, own.slots)];
        let mut segments = Segments::new(addresses, table, Vec::new(), &all, &[copy]);
        assert!(segments.free_pairs() > 0, "there is room for more");
        let full = segments.iter().find(|(_, segment)| segment.state == SegmentState::Sealed).unwrap().0;
        assert!(segments.is_on_a_scarce_member(full));
        assert!(!segments.makes_for_a_pair(full), "what is scarce are slots for copies, and it has none of them");
        assert_eq!((segments.free_without_any_one(false), segments.free_without_any_one(true)), (0, 0));
        segments.empty(full, Sequence(1));
        assert_eq!((segments.free_without_any_one(false), segments.free_without_any_one(true)), (0, 1));
        segments.lose(MemberId(0));
        assert!(!segments.can_open());
    }

    #[test]
    fn of_members_beside_one_with_copies_only_the_one_with_few_free_is_asked_last() {
        let geometry = Geometry::with_segment_bytes(64 << 20, 2 << 20);
        let own = geometry.member(MemberName([5; 16]));
        let few = Member { name: MemberName([6; 16]), slots: 2, used: 2, ..own };
        let copies = Member { name: MemberName([7; 16]), copies_only: true, ..own };
        let (list, scarce) = Members::first(own).with(few).unwrap();
        let (list, copy) = list.with(copies).unwrap();
        let geometry = Geometry { segments: 2 * own.slots + 2, ..geometry };
        let addresses = Addresses::of_empty(geometry, &list).unwrap();
        let table = vec![Segment::new(Generation(0), SegmentState::Free, Stream::Host); geometry.segments as usize];
        let taken = |all: &[(MemberId, u32)], apart: &[MemberId]| {
            let mut segments = Segments::new(addresses.clone(), table.clone(), Vec::new(), all, apart);
            let id = segments.take_free_beside(2, |member| usize::from(member == MemberId(0))).unwrap();
            segments.addresses().home(id).member
        };
        let all = [(MemberId(0), own.slots), (scarce, 2), (copy, own.slots)];
        assert_eq!(taken(&all, &[copy]), MemberId(0), "the loss of it leaves two");
        assert_eq!(taken(&all[..2], &[]), scarce, "without copies apart the one with fewer in use");
    }

    #[test]
    fn a_member_that_is_set_aside_is_room_for_the_loss_of_another() {
        let geometry = Geometry::with_segment_bytes(64 << 20, 2 << 20);
        let own = geometry.member(MemberName([5; 16]));
        let (list, other) = Members::first(own).with(Member { name: MemberName([6; 16]), ..own }).unwrap();
        let geometry = Geometry { segments: 2 * own.slots, ..geometry };
        let addresses = Addresses::of_empty(geometry, &list).unwrap();
        let table = vec![Segment::new(Generation(0), SegmentState::Free, Stream::Host); geometry.segments as usize];
        let mut segments =
            Segments::new(addresses, table, Vec::new(), &[(MemberId(0), own.slots), (other, own.slots)], &[]);
        let slots = own.slots as usize;
        segments.set_aside(Some(other));
        assert_eq!((segments.usable(), segments.without_any_one()), (slots, slots));
        segments.set_aside(None);
        segments.lose(MemberId(0));
        assert_eq!(segments.usable(), slots);
    }
}
