//! The segment table: the state of each segment, how many live blocks it has, and when it may be reused.
//!
//! A segment that reclaim has emptied waits until all four hold. Then it is free:
//! 1. Everything appended before it was emptied is durable: the copies of moved blocks, the entries for destaged ones.
//! 2. The checkpoint that counts starts after the segment's last entry, so no replay needs it. Otherwise, once the
//!    newer version in this segment is overwritten, an old version in another segment would come back.
//! 3. No checkpoint that is still being written began before it was emptied: such a checkpoint may point here.
//! 4. No read or write of it is under way.
//!
//! One that is in a row waits for the row's end, too: see `rows`.
//!
//! A mirrored segment has the homes of others for its copies. Those are *lent*: they are free, and cannot be opened.

mod room;
pub(crate) mod rows;

use std::collections::VecDeque;

use headpond_base::{Generation, Location, MemberId, SegmentId, Sequence, Stream};
use headpond_format::{Address, Addresses, Layout, Member, Place, SegmentRow, SegmentState};

use self::rows::{RowId, Rows};
use crate::lenders::Lenders;
use crate::lives::FoundRow;

/// One segment.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// The segment's life.
    pub generation: Generation,
    /// The segment's state.
    pub state: SegmentState,
    /// The stream whose batches it holds.
    pub stream: Stream,
    /// Blocks in it that the map points to.
    pub live: u32,
    /// Dirty blocks among `live`.
    pub dirty: u32,
    /// Clean blocks among `live` that are worth keeping.
    pub kept: u32,
    /// Units of 512 bytes that `live` takes: eight for a block, its share for a block of a packed record, none if
    /// blank.
    pub live_units: u32,
    /// Units that `dirty` takes.
    pub dirty_units: u32,
    /// Units that `kept` takes.
    pub kept_units: u32,
    /// The last entry in it.
    pub last_sequence: Sequence,
    /// Writes and reads of it under way.
    pub under_way: u32,
    /// Its bytes are in its home.
    pub home: bool,
    /// Its bytes are in the homes of these segments, too.
    pub lenders: Lenders,
    /// Some bytes may be in some of its places only.
    pub copies_differ: bool,
    /// Until the entries before this one are durable, a start may find blocks dirty here that are not any more.
    pub dirty_until: Sequence,
    /// It is free, and its home has the copy of another, or a parity.
    pub lent: bool,
    /// The row that it is in.
    pub row: Option<RowId>,
}

impl Segment {
    /// A segment without known live blocks.
    #[must_use]
    pub const fn new(generation: Generation, state: SegmentState, stream: Stream) -> Self {
        Self {
            generation,
            state,
            stream,
            live: 0,
            dirty: 0,
            kept: 0,
            live_units: 0,
            dirty_units: 0,
            kept_units: 0,
            last_sequence: Sequence(0),
            under_way: 0,
            home: !matches!(state, SegmentState::Free),
            lenders: Lenders::NONE,
            copies_differ: false,
            dirty_until: Sequence(0),
            lent: false,
            row: None,
        }
    }
}

/// All segments of a pool.
#[derive(Debug)]
pub struct Segments {
    addresses: Addresses,
    table: Vec<Segment>,
    /// Segments that can be opened, by the member where they are at home.
    free: Vec<VecDeque<SegmentId>>,
    /// Free ones in slots that are to be emptied. They are opened only where there is no other, and emptied once more.
    closed: Vec<VecDeque<SegmentId>>,
    /// In how many slots each member takes new segments, from the first.
    open_slots: Vec<u32>,
    /// How many slots each member has, from the first: those behind were given back.
    used_slots: Vec<u32>,
    /// A member that takes new segments only where no other has one free.
    aside: Option<MemberId>,
    /// The members whose slots are lent only.
    copies_only: Vec<bool>,
    /// Segments at home in the open ones of the others.
    usable: usize,
    pairs: usize,
    /// Emptied segments, each with the next sequence at that time.
    waiting: Vec<(SegmentId, Sequence)>,
    rows: Rows,
}

impl Segments {
    pub(crate) fn new(
        addresses: Addresses,
        table: Vec<Segment>,
        rows: Vec<FoundRow>,
        take_new: &[(MemberId, u32)],
        copies_only: &[MemberId],
    ) -> Self {
        let known = take_new.iter().map(|(member, _)| member).chain(copies_only);
        let members = known.map(|member| usize::from(member.0) + 1).max().unwrap_or(0);
        let mut open_slots = vec![0; members];
        take_new.iter().for_each(|(member, slots)| open_slots[usize::from(member.0)] = *slots);
        let free = vec![VecDeque::new(); members];
        let closed = free.clone();
        let used_slots = open_slots.clone();
        let copies_only = (0..).map(MemberId).take(members).map(|member| copies_only.contains(&member)).collect();
        let mut segments = Self {
            addresses,
            table,
            free,
            closed,
            open_slots,
            used_slots,
            aside: None,
            copies_only,
            usable: 0,
            pairs: 0,
            waiting: Vec::new(),
            rows: Rows::default(),
        };
        segments.count_usable();
        for FoundRow { segments: of_row, parity } in rows {
            segments.adopt_row(of_row, parity);
        }
        for index in 0..segments.table.len() {
            let id = SegmentId(u32::try_from(index).expect("counted in 32 bits"));
            let segment = segments.get(id);
            for lender in segment.lenders.iter() {
                let (home, copy) = (segments.addresses.home(id), segments.addresses.home(lender));
                assert_ne!(home.member, copy.member, "two places of segment {id}, found at a start, on one member");
            }
            if segment.state == SegmentState::Free && !segment.lent && segment.row.is_none() {
                segments.make_free(id);
            }
        }
        segments
    }

    /// A segment can be opened from now on, unless its member takes none at all.
    fn make_free(&mut self, id: SegmentId) {
        let home = self.addresses.home(id);
        let member = usize::from(home.member.0);
        match self.taken_slots(home.member) {
            slots if home.slot < slots => self.free[member].push_back(id),
            _ if self.used_slots.get(member).is_some_and(|used| home.slot < *used) => {
                self.closed[member].push_back(id);
            }
            _ => {}
        }
    }

    /// Whether a member takes new segments where this one is at home.
    pub(crate) fn is_open_slot(&self, id: SegmentId) -> bool {
        let home = self.addresses.home(id);
        self.open_slots.get(usize::from(home.member.0)).is_some_and(|slots| home.slot < *slots)
    }

    /// In how many slots of a member a segment is opened that could be opened elsewhere as well.
    fn taken_slots(&self, member: MemberId) -> u32 {
        if self.aside == Some(member) { 0 } else { self.open_slots.get(usize::from(member.0)).copied().unwrap_or(0) }
    }

    /// New segments are opened on all members but this one, as long as others have some.
    pub(crate) fn set_aside(&mut self, member: Option<MemberId>) {
        let before = std::mem::replace(&mut self.aside, member);
        for changed in before.into_iter().chain(member) {
            self.admit(changed, self.open_slots[usize::from(changed.0)]);
        }
    }

    /// Whether this member takes new segments only where no other has one free.
    pub(crate) fn is_aside(&self, member: MemberId) -> bool {
        self.aside == Some(member)
    }

    /// The homes of the segments.
    #[must_use]
    pub const fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// A segment as a row of a checkpoint.
    ///
    /// # Panics
    /// When the pool has no such segment.
    #[must_use]
    pub fn row(&self, id: SegmentId) -> SegmentRow {
        let Segment { generation, state, stream, copies_differ, .. } = *self.get(id);
        // In a pool of one device a free segment's home follows from its number.
        let known = state == SegmentState::Free && self.addresses.is_of_one_member();
        let layout = (!known).then(|| self.layout(id));
        let copies_differ = match &layout {
            Some(Layout::Mirror(_)) => copies_differ,
            // One that is damaged spoils what the row gives back of the others, even when it is emptied.
            Some(Layout::Parity(_)) => self.row_differs(id),
            _ => false,
        };
        SegmentRow { generation, state, stream, layout, copies_differ }
    }

    /// Where a segment lies; of a free one, its home.
    pub(crate) fn layout(&self, id: SegmentId) -> Layout {
        let home = self.addresses.home(id);
        if self.get(id).state == SegmentState::Sealed
            && let Some(layout) = self.row_layout(id)
        {
            return layout;
        }
        let lenders = self.get(id).lenders;
        if lenders.are_none() || self.get(id).state == SegmentState::Free {
            return Layout::Single(home);
        }
        let places: Vec<_> = std::iter::once(home).chain(lenders.iter().map(|id| self.addresses.home(id))).collect();
        let is_elsewhere = |copy: &Place| places.iter().filter(|place| place.member == copy.member).count() == 1;
        assert!(places.iter().all(is_elsewhere), "two places of segment {id} on one member");
        Layout::Mirror(places)
    }

    /// The segments in whose homes the bytes of a segment are: its own, and those that lend theirs.
    pub fn keepers(&self, id: SegmentId) -> impl Iterator<Item = SegmentId> + use<> {
        let Segment { home, lenders, .. } = *self.get(id);
        home.then_some(id).into_iter().chain(lenders.iter())
    }

    /// The places of a block of a segment, one for each copy.
    pub fn places(&self, id: SegmentId, location: Location) -> impl Iterator<Item = Address> + use<'_> {
        self.keepers(id).map(move |keeper| self.addresses.within(keeper, location))
    }

    /// A member takes no new segments any more.
    pub(crate) fn take_none_on(&mut self, member: MemberId) {
        if usize::from(member.0) < self.open_slots.len() {
            self.used_slots[usize::from(member.0)] = 0;
            self.admit(member, 0);
        }
    }

    /// A member has so many slots left: those behind are given back, and empty.
    pub(crate) fn give_back(&mut self, member: MemberId, used: u32) {
        let index = usize::from(member.0);
        self.used_slots[index] = used;
        self.closed[index].retain(|id| self.addresses.home(*id).slot < used);
    }

    /// New slots of a member, which may be new: each is the home of a new segment, which is free once the member is
    /// admitted.
    pub(crate) fn extend(&mut self, id: MemberId, member: &Member) {
        let index = usize::from(id.0);
        if index >= self.open_slots.len() {
            self.open_slots.resize(index + 1, 0);
            self.free.resize(index + 1, VecDeque::new());
            self.closed.resize(index + 1, VecDeque::new());
            self.used_slots.resize(index + 1, 0);
            self.copies_only.resize(index + 1, false);
        }
        self.copies_only[index] = member.copies_only;
        self.used_slots[index] = member.used;
        let segments = self.addresses.extend(id, member);
        self.table.resize(segments as usize, Segment::new(Generation(0), SegmentState::Free, Stream::Host));
    }

    /// A member takes new segments in its first `slots` slots: all that are free and at home there.
    pub(crate) fn admit(&mut self, member: MemberId, slots: u32) {
        let index = usize::from(member.0);
        self.open_slots[index] = slots;
        let is_free = |(id, segment): &(SegmentId, &Segment)| {
            let waits = || self.waiting.iter().any(|(waiting, _)| waiting == id);
            let home = self.addresses.home(*id);
            let is_here = home.member == member && home.slot < self.used_slots[index];
            is_here && segment.state == SegmentState::Free && !segment.lent && !waits()
        };
        let free = self.iter().filter(is_free).map(|(id, _)| id);
        let taken = self.taken_slots(member);
        (self.free[index], self.closed[index]) = free.partition(|id| self.addresses.home(*id).slot < taken);
        self.count_usable();
    }

    /// Whether the slots of a member from `first` on hold no segment that is in use, nor one that waits to be free.
    pub(crate) fn hold_nothing(&self, member: MemberId, first: u32) -> bool {
        let is_there = |id: SegmentId| {
            let home = self.addresses.home(id);
            home.member == member && home.slot >= first
        };
        !self
            .iter()
            .any(|(id, segment)| is_there(id) && (segment.home || segment.lent || segment.state != SegmentState::Free))
    }

    /// Whether nothing is in the slots of a member, waits for them, or may still come there. It takes no new segments.
    pub(crate) fn is_spare(&self, member: MemberId) -> bool {
        let is_there = |id: SegmentId| self.addresses.home(id).member == member;
        let is_held = |(id, segment): (SegmentId, &Segment)| {
            is_there(id) && (segment.row.is_some() || segment.under_way > 0 || !segment.lenders.are_none())
        };
        !self.takes_new(member)
            && self.hold_nothing(member, 0)
            && !self.iter().any(is_held)
            && !self.waiting.iter().any(|(id, _)| is_there(*id))
    }

    /// A member is lost. If only members with copies are left, they take segments like any other from now on: the list
    /// of members says the same (`Members::with_state`).
    pub(crate) fn lose(&mut self, member: MemberId) {
        self.take_none_on(member);
        let is_ordinary = |(only, slots): (&bool, &u32)| !only && *slots > 0;
        if !self.copies_only.iter().zip(&self.open_slots).any(is_ordinary) {
            self.copies_only.fill(false);
            self.count_usable();
        }
    }

    /// One segment.
    ///
    /// # Panics
    /// When the pool has no such segment.
    #[must_use]
    pub fn get(&self, id: SegmentId) -> &Segment {
        &self.table[id.0 as usize]
    }

    /// One segment, to be changed.
    ///
    /// # Panics
    /// When the pool has no such segment.
    pub fn get_mut(&mut self, id: SegmentId) -> &mut Segment {
        &mut self.table[id.0 as usize]
    }

    /// All segments, in order.
    pub fn iter(&self) -> impl Iterator<Item = (SegmentId, &Segment)> {
        (0_u32..).zip(&self.table).map(|(index, segment)| (SegmentId(index), segment))
    }

    /// How many segments there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether there are no segments. A formatted pool has some.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// How many emptied segments wait for durability or a checkpoint. One that is in a row waits for more, unless the
    /// row ends.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.iter().filter(|(id, _)| !self.is_kept_by_row(*id)).count()
    }

    /// How many segments wait for a checkpoint that starts later than `replay_from`, but for those whose row ends with it:
    /// see [`Segments::rows_for_checkpoint`].
    #[must_use]
    pub fn wait_for_checkpoint(&self, replay_from: Sequence) -> usize {
        let waits = |id: SegmentId| self.get(id).last_sequence >= replay_from && !self.is_kept_by_row(id);
        self.waiting.iter().filter(|(id, _)| waits(*id)).count()
    }

    /// Marks a sealed segment as emptied. The map must not point to it any more.
    ///
    /// # Panics
    /// When the map still points to it, or the segment is not sealed.
    pub fn empty(&mut self, id: SegmentId, next_sequence: Sequence) {
        let segment = self.get_mut(id);
        assert_eq!(segment.state, SegmentState::Sealed, "only a full segment is emptied");
        assert_eq!((segment.live, segment.dirty), (0, 0), "segment {id} is still pointed to");
        segment.state = SegmentState::Free;
        self.waiting.push((id, next_sequence));
    }

    /// Frees the segments that may be reused by the rules in this file's head. Returns them, with those that lent their
    /// homes.
    pub(crate) fn release(
        &mut self,
        durable: Sequence,
        replay_from: Sequence,
        checkpoint_begun: Option<Sequence>,
    ) -> Vec<SegmentId> {
        let (released, waiting) = self.waiting.iter().partition(|(id, emptied_at): &&(SegmentId, Sequence)| {
            let segment = self.get(*id);
            durable.next() >= *emptied_at
                && segment.last_sequence < replay_from
                && checkpoint_begun.is_none_or(|begun| *emptied_at <= begun)
                && segment.under_way == 0
                && !self.is_held_by_row(*id)
        });
        self.waiting = waiting;
        let emptied: Vec<SegmentId> = Vec::into_iter(released).map(|(id, _)| id).collect();
        let mut released = Vec::with_capacity(emptied.len());
        for id in emptied {
            let segment = self.get_mut(id);
            segment.home = false;
            segment.copies_differ = false;
            let lenders = std::mem::take(&mut segment.lenders);
            self.make_free(id);
            released.push(id);
            for lender in lenders.iter() {
                self.get_mut(lender).lent = false;
                self.make_free(lender);
                released.push(lender);
            }
        }
        released
    }
}

#[cfg(test)]
mod tests {
    use headpond_format::{Geometry, MemberName, Members};

    use super::*;

    fn emptied(last: u64) -> Segments {
        let sealed = Segment::new(Generation(1), SegmentState::Sealed, Stream::Host);
        let geometry = Geometry::with_segment_bytes(64 << 20, 2 << 20);
        let members = Members::first(geometry.member(MemberName([5; 16])));
        let mut segments = Segments::new(
            Addresses::of_empty(geometry, &members).unwrap(),
            vec![sealed],
            Vec::new(),
            &[(MemberId(0), 1)],
            &[],
        );
        segments.get_mut(SegmentId(0)).last_sequence = Sequence(last);
        segments.empty(SegmentId(0), Sequence(10));
        segments
    }

    #[test]
    fn an_emptied_segment_is_reused_only_when_nothing_durable_needs_it() {
        let freed = |segments: &mut Segments, durable, replay_from, begun: Option<u64>| {
            segments.release(Sequence(durable), Sequence(replay_from), begun.map(Sequence)).len()
        };
        assert_eq!(freed(&mut emptied(5), 8, 7, None), 0, "what emptied it is not durable");
        assert_eq!(freed(&mut emptied(5), 9, 5, None), 0, "the checkpoint would replay it");
        assert_eq!(freed(&mut emptied(5), 9, 7, Some(9)), 0, "a checkpoint begun before may point to it");
        assert_eq!(freed(&mut emptied(5), 9, 7, Some(10)), 1);
        let mut being_read = emptied(5);
        being_read.get_mut(SegmentId(0)).under_way = 1;
        assert_eq!(freed(&mut being_read, 9, 7, None), 0, "a read is under way");
    }
}
