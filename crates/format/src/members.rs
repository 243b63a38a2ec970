//! The members of a pool: its devices. The superblock of each device lists them all.
//!
//! Invariants:
//! - Numbers go up from 0. One of a member that is gone may be given again: see `with_number`. So a device is told by
//!   its name, and a number means one device at a time.
//! - The list with the largest generation counts, among intact superblocks.
//! - Where a member has copies only, another one that is in use has not: else nothing could be opened.

use headpond_base::{BLOCK_U64, MemberId};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::Damage;
use crate::number::counted_from_one;

/// The most numbers that a pool gives: one superblock lists them all.
pub const MEMBERS_MAX: usize = 32;

const WHAT: &str = "list of members";

/// The random name of a device. It is drawn when the device becomes a member.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct MemberName(pub [u8; 16]);

/// What a member is to the pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum MemberState {
    /// It holds segments, and takes new ones.
    InUse = 1,
    /// It holds segments until they are moved, and takes no new ones.
    Emptied = 2,
    /// It holds nothing that counts, and never will.
    Gone = 3,
}

/// One device of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Member {
    /// The name that the device itself carries.
    pub name: MemberName,
    /// Its state in the pool.
    pub state: MemberState,
    /// How many runs of a segment's size it has, or has had: each is the home of a segment for good.
    pub slots: u32,
    /// How many of them, from the first, lie on the device. What lay behind them was given back.
    pub used: u32,
    /// Bytes of the device that the pool uses.
    pub bytes: u64,
    /// The first byte of its first slot.
    pub start: u64,
    /// Its slots are lent, as homes of second copies. No segment is opened in one.
    pub copies_only: bool,
    /// It is gone, not in order, and no device has come in its place. For people.
    pub missed: bool,
}

impl Member {
    /// A member that is new in a pool: in use, with all its slots.
    #[must_use]
    pub const fn in_use(name: MemberName, slots: u32, bytes: u64, start: u64) -> Self {
        Self { name, state: MemberState::InUse, slots, used: slots, bytes, start, copies_only: false, missed: false }
    }

    /// Whether it is there for copies only.
    #[must_use]
    pub fn keeps_copies(&self) -> bool {
        self.copies_only && self.state != MemberState::Gone
    }

    /// In how many of its slots, from the first, segments can be opened while it is in use.
    #[must_use]
    pub const fn openable(&self) -> u32 {
        if self.copies_only { 0 } else { self.used }
    }
}

/// All members that a pool has had.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Members {
    generation: u64,
    rows: Vec<Member>,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RawMember {
    name: [u8; 16],
    state: u8,
    flags: u8,
    reserved: [u8; 2],
    slots: U32,
    bytes: U64,
    start: U64,
    /// Slots that were given back.
    given_back: U32,
    more: [u8; 20],
}

const _: () = assert!(size_of::<RawMember>() == 64);

impl Members {
    /// The first list of a pool, with one device.
    #[must_use]
    pub fn first(member: Member) -> Self {
        Self { generation: 1, rows: vec![member] }
    }

    /// The generation of the list. It starts at 1 and grows by one with each change; the largest counts.
    #[must_use]
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// One member; `None` if the number was never given.
    #[must_use]
    pub fn get(&self, id: MemberId) -> Option<&Member> {
        self.rows.get(usize::from(id.0))
    }

    /// Whether only members with copies are among these, and an ordinary one is not. Each segment has its home on an
    /// ordinary member, and each batch goes to the home of its segment: so nothing is on those alone.
    #[must_use]
    pub fn have_homes_without(&self, missing: &[MemberId]) -> bool {
        let mut ordinary = self.iter().filter(|(_, row)| row.state != MemberState::Gone && !row.copies_only).peekable();
        ordinary.peek().is_some() && ordinary.all(|(id, _)| !missing.contains(&id))
    }

    /// All members, gone ones included, in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (MemberId, &Member)> {
        (0..).map(MemberId).zip(&self.rows)
    }

    /// How many numbers were given.
    #[must_use]
    pub const fn given(&self) -> usize {
        self.rows.len()
    }

    /// Bytes of all devices that are not gone.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let there = self.rows.iter().filter(|member| member.state != MemberState::Gone);
        there.map(|member| member.bytes).fold(0, u64::saturating_add)
    }

    /// How many devices the pool needs to be whole.
    #[must_use]
    pub fn needed(&self) -> usize {
        self.rows.iter().filter(|member| member.state != MemberState::Gone).count()
    }

    /// The list with one device more, and that device's number. `None` once all numbers are given.
    #[must_use]
    pub fn with(&self, member: Member) -> Option<(Self, MemberId)> {
        let id = MemberId(u16::try_from(self.rows.len()).ok().filter(|next| usize::from(*next) < MEMBERS_MAX)?);
        let mut rows = self.rows.clone();
        rows.push(member);
        Some((Self { generation: self.generation + 1, rows }, id))
    }

    /// The list with one device more, under this number: the next one, or that of a member that is gone. The device has
    /// the slots of that one, and more if it is larger: slots that it lacks count as given back. `None` if the number is
    /// neither. Nothing may lie in those slots, and no head of this pool.
    #[must_use]
    pub fn with_number(&self, id: MemberId, member: Member) -> Option<Self> {
        let (mut rows, place) = (self.rows.clone(), usize::from(id.0));
        match rows.get(place) {
            Some(Member { state: MemberState::Gone, slots, .. }) => {
                rows[place] = Member { slots: member.slots.max(*slots), ..member };
            }
            None if place == rows.len() && place < MEMBERS_MAX => rows.push(member),
            _ => return None,
        }
        Some(Self { generation: self.generation + 1, rows })
    }

    /// The list with so many slots in use on one member, of a device of so many bytes.
    ///
    /// # Panics
    /// When the pool never had this member.
    #[must_use]
    pub fn with_room(&self, id: MemberId, used: u32, bytes: u64) -> Self {
        let mut rows = self.rows.clone();
        let row = &mut rows[usize::from(id.0)];
        (row.slots, row.used, row.bytes) = (row.slots.max(used), used, bytes);
        Self { generation: self.generation + 1, rows }
    }

    /// The list with another state of one member. If only members with copies are left in use, they become ordinary: the
    /// pool goes on upon its copies.
    ///
    /// # Panics
    /// When the pool never had this member.
    #[must_use]
    pub fn with_state(&self, id: MemberId, state: MemberState) -> Self {
        let mut rows = self.rows.clone();
        rows[usize::from(id.0)].state = state;
        if !has_ordinary(&rows) {
            rows.iter_mut().for_each(|row| row.copies_only = false);
        }
        Self { generation: self.generation + 1, rows }
    }

    /// The list after a member was lost, or taken out as it was. One that was to go anyway is not missed.
    ///
    /// # Panics
    /// When the pool never had this member.
    #[must_use]
    pub fn without(&self, id: MemberId) -> Self {
        let was_to_stay = self.rows[usize::from(id.0)].state == MemberState::InUse;
        let mut list = self.with_state(id, MemberState::Gone);
        list.rows[usize::from(id.0)].missed |= was_to_stay;
        list
    }

    /// The list in which these of the members have copies only, and no others.
    #[must_use]
    pub fn with_copies_only(mut self, copies_only: impl Fn(MemberId) -> bool) -> Self {
        for (id, row) in (0..).map(MemberId).zip(&mut self.rows) {
            row.copies_only = copies_only(id);
        }
        self
    }

    /// The list in which nobody misses this member: another has come in its place, or none is wanted.
    #[must_use]
    pub fn forgiving(mut self, id: MemberId) -> Self {
        if let Some(row) = self.rows.get_mut(usize::from(id.0)) {
            row.missed = false;
        }
        self.generation += 1;
        self
    }

    pub(crate) fn raw(&self) -> [RawMember; MEMBERS_MAX] {
        let mut raw: [RawMember; MEMBERS_MAX] = FromZeros::new_zeroed();
        for (raw, member) in raw.iter_mut().zip(&self.rows) {
            raw.name = member.name.0;
            raw.state = member.state as u8;
            let flag = |is: bool, flag: u8| if is { flag } else { 0 };
            raw.flags = flag(member.copies_only, COPIES_ONLY) | flag(member.missed, MISSED);
            raw.slots = member.slots.into();
            raw.bytes = member.bytes.into();
            raw.start = member.start.into();
            raw.given_back = (member.slots - member.used).into();
        }
        raw
    }

    pub(crate) fn from_raw(
        generation: u64,
        given: u16,
        raw: &[RawMember; MEMBERS_MAX],
        segment_bytes: u32,
    ) -> Result<Self, Damage> {
        let senseless = |why| Damage::Senseless(WHAT, why);
        let raw = raw.get(..usize::from(given)).filter(|rows| !rows.is_empty());
        let raw = raw.ok_or(senseless("no members, or more than there can be"))?;
        let mut rows = Vec::with_capacity(raw.len());
        for raw in raw {
            let state = match raw.state {
                1 => MemberState::InUse,
                2 => MemberState::Emptied,
                3 => MemberState::Gone,
                _ => return Err(senseless("unknown state of a member")),
            };
            let (slots, bytes, start) = (raw.slots.get(), raw.bytes.get(), raw.start.get());
            let used = slots.checked_sub(raw.given_back.get()).ok_or(senseless("more given back than there was"))?;
            let taken = u64::from(used) * u64::from(segment_bytes);
            let fits =
                used > 0 && start.is_multiple_of(BLOCK_U64) && start.checked_add(taken).is_some_and(|end| end <= bytes);
            if !fits {
                return Err(senseless("segments that do not fit their device"));
            }
            if rows.iter().any(|other: &Member| other.name.0 == raw.name) {
                return Err(senseless("one device twice"));
            }
            let copies_only = raw.flags & COPIES_ONLY != 0;
            let missed = raw.flags & MISSED != 0 && state == MemberState::Gone;
            let name = MemberName(raw.name);
            rows.push(Member { name, state, slots, used, bytes, start, copies_only, missed });
        }
        if rows.iter().any(|row| row.copies_only) && !has_ordinary(&rows) {
            return Err(senseless("copies, and nothing that they are copies of"));
        }
        Ok(Self { generation: counted_from_one(WHAT, generation)?, rows })
    }
}

/// In the flags of a row.
const COPIES_ONLY: u8 = 1;
const MISSED: u8 = 2;

/// Whether segments can be opened on a member in use.
fn has_ordinary(rows: &[Member]) -> bool {
    rows.iter().any(|row| row.state == MemberState::InUse && !row.copies_only)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: u8) -> Member {
        Member::in_use(MemberName([name; 16]), 100, 1 << 30, 1 << 20)
    }

    fn copies(name: u8) -> Member {
        Member { copies_only: true, ..member(name) }
    }

    fn read(members: &Members) -> Result<Members, Damage> {
        let given = u16::try_from(members.given()).unwrap();
        Members::from_raw(members.generation(), given, &members.raw(), 2 << 20)
    }

    #[test]
    fn a_list_reads_back_and_its_generation_goes_up_with_each_change() {
        let first = Members::first(member(1));
        let (two, id) = first.with(member(2)).unwrap();
        let emptied = two.with_state(MemberId(0), MemberState::Emptied);
        let gone = emptied.with_state(MemberId(0), MemberState::Gone);
        assert_eq!(id, MemberId(1));
        assert_eq!([&first, &two, &emptied, &gone].map(Members::generation), [1, 2, 3, 4]);
        assert_eq!([&first, &two, &emptied, &gone].map(Members::needed), [1, 2, 2, 1]);
        for list in [&first, &two, &emptied, &gone] {
            assert_eq!(read(list).as_ref(), Ok(list));
        }
    }

    #[test]
    fn members_with_copies_become_ordinary_once_no_other_is_in_use() {
        let (list, copy) = Members::first(member(1)).with(copies(2)).unwrap();
        let (list, _) = list.with(member(3)).unwrap();
        assert_eq!(read(&list).as_ref(), Ok(&list));
        let one_left = list.with_state(MemberId(0), MemberState::Gone);
        assert_eq!(one_left.get(copy).map(|row| row.copies_only), Some(true));
        let alone = one_left.with_state(MemberId(2), MemberState::Gone);
        assert_eq!(alone.get(copy), Some(&member(2)));
        assert_eq!(read(&alone).as_ref(), Ok(&alone));
        let copy_lost = list.with_state(copy, MemberState::Gone);
        assert_eq!(read(&copy_lost), Ok(copy_lost.clone()));
    }

    #[test]
    fn homes_are_there_without_members_with_copies_and_not_without_an_ordinary_one() {
        let (list, second) = Members::first(member(1)).with(member(2)).unwrap();
        let (list, copy) = list.with(copies(3)).unwrap();
        let (list, other) = list.with(copies(4)).unwrap();
        assert!(list.have_homes_without(&[]) && list.have_homes_without(&[copy, other]));
        assert!(!list.have_homes_without(&[copy, second]) && !list.have_homes_without(&[MemberId(0)]));
        let emptied = list.with_state(second, MemberState::Emptied);
        assert!(!emptied.have_homes_without(&[second]), "it still has something");
        assert!(list.without(second).have_homes_without(&[copy]), "one that is gone does not count");
        let alone = list.without(second).without(MemberId(0));
        assert!(!alone.have_homes_without(&[copy]), "both are ordinary from then on");
    }

    #[test]
    fn a_member_that_was_lost_is_missed_until_another_comes_and_one_that_was_to_go_is_not() {
        let (list, second) = Members::first(member(1)).with(member(2)).unwrap();
        let lost = list.without(second);
        assert_eq!((lost.get(second).map(|row| row.missed), lost.generation()), (Some(true), 3));
        assert_eq!(read(&lost).as_ref(), Ok(&lost));
        let (made_up, _) = lost.with(member(3)).unwrap();
        assert_eq!(made_up.get(second).map(|row| row.missed), Some(true), "nobody said for whom it comes");
        let made_up = made_up.forgiving(second);
        assert_eq!(made_up.get(second).map(|row| row.missed), Some(false));
        assert_eq!(read(&made_up), Ok(made_up));
        let was_to_go = list.with_state(second, MemberState::Emptied).without(second);
        assert_eq!(was_to_go.get(second).map(|row| (row.state, row.missed)), Some((MemberState::Gone, false)));
    }

    #[test]
    fn a_number_of_a_member_that_is_gone_is_given_again_with_its_slots() {
        let (list, second) = Members::first(member(1)).with(member(2)).unwrap();
        let smaller = Member::in_use(MemberName([3; 16]), 70, 1 << 30, 2 << 20);
        assert_eq!(list.with_number(second, smaller), None, "it is in use");
        assert_eq!(list.with_number(MemberId(3), smaller), None, "one number is left out");
        assert_eq!(list.with_number(MemberId(2), smaller), list.with(smaller).map(|(list, _)| list));
        let again = list.without(second).with_number(second, smaller).unwrap();
        let row = again.get(second).copied().unwrap();
        assert_eq!((row.name, row.slots, row.used, row.missed), (MemberName([3; 16]), 100, 70, false));
        assert_eq!(read(&again).as_ref(), Ok(&again));
        let larger = Member::in_use(MemberName([4; 16]), 130, 1 << 30, 1 << 20);
        let again = again.with_state(second, MemberState::Gone).with_number(second, larger).unwrap();
        assert_eq!(again.get(second).map(|row| (row.slots, row.used)), Some((130, 130)));
    }

    #[test]
    fn numbers_go_up_and_no_pool_has_more_than_a_superblock_lists() {
        let mut list = Members::first(member(0));
        for name in 1..MEMBERS_MAX as u8 {
            let (longer, id) = list.with(member(name)).unwrap();
            assert_eq!(id, MemberId(name.into()));
            list = longer.with_state(id, MemberState::Gone);
        }
        assert_eq!(read(&list), Ok(list.clone()));
        assert_eq!(list.with(member(99)), None, "the number of a member that is gone is given by name only");
    }

    #[test]
    fn lists_that_no_headpond_writes_are_refused() {
        let refused = |members: &Members| matches!(read(members), Err(Damage::Senseless(..)));
        assert!(refused(&Members { generation: 0, rows: vec![member(1)] }), "no generation");
        assert!(refused(&Members { generation: 1, rows: Vec::new() }), "no member");
        assert!(refused(&Members::first(copies(1))), "a copy of nothing");
        assert!(refused(&Members { generation: 1, rows: vec![member(1), member(1)] }), "one device twice");
        assert!(refused(&Members::first(Member { slots: 0, used: 0, ..member(1) })), "no room");
        assert!(refused(&Members::first(Member { slots: 1000, used: 1000, ..member(1) })), "more than the device has");
        assert!(refused(&Members::first(Member { start: !4095, ..member(1) })), "an overflow");
        assert!(refused(&Members::first(Member { start: 5, ..member(1) })), "in the middle of a block");
    }
}
