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

pub(crate) mod rows;

use std::cmp::Reverse;
use std::collections::VecDeque;

use headpond_base::{Generation, Location, MemberId, SegmentId, Sequence, Stream};
use headpond_format::{Address, Addresses, Layout, Member, Place, SegmentRow, SegmentState};
use smallvec::SmallVec;

use self::rows::{RowId, Rows};
use crate::lenders::{LENDERS_MAX, Lenders};
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
    /// Some bytes may be in one of the two places only.
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
        let members = take_new.iter().map(|(member, _)| usize::from(member.0) + 1).max().unwrap_or(0);
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

    fn count_usable(&mut self) {
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

    /// Whether second copies go to members that have nothing else.
    pub(crate) fn copies_apart(&self) -> bool {
        self.apart() > 0
    }

    /// On how many members with copies only a mirrored segment gets copies: on each that takes them, up to the most that
    /// it can have. So each of two other hosts has all.
    pub(crate) fn apart(&self) -> usize {
        let takes = |(only, slots): &(&bool, &u32)| **only && **slots > 0;
        let members = self.copies_only.iter().zip(&self.open_slots).filter(takes).count();
        members.min(LENDERS_MAX)
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

    /// Takes a free segment of the member that has most.
    pub(crate) fn take_free(&mut self) -> Option<SegmentId> {
        self.take_from(&[], |_| 0)
    }

    /// Takes a free segment of the member that has fewest in use, by this count; of those, the one that has most free.
    pub(crate) fn take_free_beside(&mut self, in_use: impl Fn(MemberId) -> usize) -> Option<SegmentId> {
        self.take_from(&[], in_use)
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
    fn take_from(&mut self, not: &[MemberId], in_use: impl Fn(MemberId) -> usize) -> Option<SegmentId> {
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

/// How many sets of one slot, or of two on different members, these counts of slots allow.
fn sets_of(size: usize, counts: impl Iterator<Item = usize> + Clone) -> usize {
    let all: usize = counts.clone().sum();
    if size < 2 { all } else { (all / 2).min(all - counts.max().unwrap_or(0)) }
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
