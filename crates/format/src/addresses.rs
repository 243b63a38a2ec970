//! Where each segment's bytes lie: the one table from a segment to its home, a slot of a member.
//!
//! Invariants:
//! - A segment's home, a slot of a member's number, never changes. No two segments have the same.
//! - A segment whose home a checkpoint does not name has one of the slots that are left, in order. So in a pool of one
//!   device each segment has the slot of its own number.
//! - The home of a segment may lie on a member that is gone. It is in the table all the same: a copy may have its
//!   bytes.

use headpond_base::{BLOCK_U64, Location, MemberId, SegmentId};

use crate::{Damage, Geometry, Layout, Member, MemberState, Members, Place};

const WHAT: &str = "table of segments";

/// A byte of one member.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Address {
    /// The member.
    pub member: MemberId,
    /// Bytes from the start of its device.
    pub offset: u64,
}

impl Address {
    /// The byte `bytes` further on, on the same member.
    #[must_use]
    pub const fn plus(self, bytes: u64) -> Self {
        Self { offset: self.offset + bytes, ..self }
    }
}

/// What the table knows of one member.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Slots {
    /// Where the first slot starts.
    start: u64,
    /// The segment at home in each slot.
    segments: Vec<Option<SegmentId>>,
}

/// The homes of the segments of one pool. The log owns it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Addresses {
    geometry: Geometry,
    homes: Vec<Place>,
    members: Vec<Slots>,
}

impl Addresses {
    /// The table of a pool with these members and segments. A segment comes with its layout, if it has one; the first
    /// place of a layout is its home.
    ///
    /// # Errors
    /// [`Damage`] when a layout names a slot that does not exist, when two segments have one home, when a copy lies
    /// where no other segment has its home, when there are fewer slots than segments, and when a row has a segment
    /// elsewhere than in its home.
    pub fn new<'a>(
        geometry: Geometry,
        members: &Members,
        layouts: impl IntoIterator<Item = Option<&'a Layout>>,
    ) -> Result<Self, Damage> {
        let senseless = |why| Damage::Senseless(WHAT, why);
        let empty = |member: &Member| Slots { start: member.start, segments: vec![None; member.slots as usize] };
        let mut table: Vec<Slots> = members.iter().map(|(_, member)| empty(member)).collect();
        let (mut wanted, mut copies) = (Vec::with_capacity(geometry.segments as usize), Vec::new());
        let mut in_rows: Vec<(SegmentId, Place)> = Vec::new();
        for (segment, layout) in (0..).map(SegmentId).zip(layouts) {
            let home = match layout {
                None => None,
                Some(Layout::Single(home)) => Some(*home),
                Some(Layout::Mirror(places)) => {
                    copies.extend(&places[1..]);
                    places.first().copied()
                }
                Some(Layout::Parity(row)) => {
                    copies.push(row.parity);
                    in_rows.extend(&row.segments);
                    let own = row.segments.iter().find(|(id, _)| *id == segment);
                    Some(own.ok_or(senseless("a segment in a row without it"))?.1)
                }
            };
            if let Some(Place { member, slot }) = home {
                let slots = table.get_mut(usize::from(member.0));
                let slot = slots.and_then(|slots| slots.segments.get_mut(slot as usize));
                if slot.ok_or(senseless("a slot that there is not"))?.replace(segment).is_some() {
                    return Err(senseless("two segments in one slot"));
                }
            }
            wanted.push(home);
        }
        let is_gone = |member: &Member| member.state == MemberState::Gone;
        let present = members.iter().filter(|(_, member)| !is_gone(member)).map(|(id, _)| id);
        let mut left: Vec<Place> = Vec::new();
        for member in present {
            let slots = (0_u32..).zip(&table[usize::from(member.0)].segments);
            left.extend(slots.filter(|(_, segment)| segment.is_none()).map(|(slot, _)| Place { member, slot }));
        }
        let mut left = left.into_iter();
        let mut homes = Vec::with_capacity(wanted.len());
        for (segment, home) in (0..).map(SegmentId).zip(wanted) {
            let home = home.or_else(|| left.next()).ok_or(senseless("more segments than slots"))?;
            table[usize::from(home.member.0)].segments[home.slot as usize] = Some(segment);
            homes.push(home);
        }
        let table = Self { geometry, homes, members: table };
        if !copies.iter().all(|copy| table.at_home(*copy).is_some()) {
            return Err(senseless("a copy where no segment has its home"));
        }
        if !in_rows.iter().all(|(id, place)| table.homes.get(id.0 as usize) == Some(place)) {
            return Err(senseless("a row with a segment that is not at home"));
        }
        Ok(table)
    }

    /// The table of a pool whose segments have no layouts yet.
    ///
    /// # Errors
    /// [`Damage`] when there are fewer slots than segments.
    pub fn of_empty(geometry: Geometry, members: &Members) -> Result<Self, Damage> {
        Self::new(geometry, members, (0..geometry.segments).map(|_| None))
    }

    /// The pool has so many slots of a member, which may be new. Each new slot becomes the home of a new segment, in
    /// order. Returns how many segments there are now.
    ///
    /// # Panics
    /// When the member's number is neither known nor the next one.
    pub fn extend(&mut self, id: MemberId, member: &Member) -> u32 {
        let index = usize::from(id.0);
        if index == self.members.len() {
            self.members.push(Slots { start: member.start, segments: Vec::new() });
        }
        let slots = &mut self.members[index];
        // Another device may begin elsewhere. Nothing lies there yet.
        slots.start = member.start;
        for slot in slots.segments.len()..member.slots as usize {
            let segment = SegmentId(u32::try_from(self.homes.len()).expect("a location bounds it"));
            slots.segments.push(Some(segment));
            self.homes.push(Place { member: id, slot: u32::try_from(slot).expect("counted in 32 bits") });
        }
        self.geometry.segments = u32::try_from(self.homes.len()).expect("a location bounds it");
        self.geometry.segments
    }

    /// Whether the pool has had one member alone.
    #[must_use]
    pub const fn is_of_one_member(&self) -> bool {
        self.members.len() == 1
    }

    /// The home of a segment.
    ///
    /// # Panics
    /// When the pool has no such segment.
    #[must_use]
    pub fn home(&self, segment: SegmentId) -> Place {
        self.homes[segment.0 as usize]
    }

    /// The segment whose home a place is, if there is one.
    #[must_use]
    pub fn at_home(&self, place: Place) -> Option<SegmentId> {
        *self.members.get(usize::from(place.member.0))?.segments.get(place.slot as usize)?
    }

    /// The first byte of a segment's home, where its head is.
    ///
    /// # Panics
    /// When the pool has no such segment.
    #[must_use]
    pub fn of_segment(&self, segment: SegmentId) -> Address {
        let Place { member, slot } = self.home(segment);
        let before = u64::from(slot) * u64::from(self.geometry.segment_bytes);
        Address { member, offset: self.members[usize::from(member.0)].start + before }
    }

    /// The first byte of a block in its segment's home.
    ///
    /// # Panics
    /// When the location is in no segment.
    #[must_use]
    pub fn of(&self, location: Location) -> Address {
        let segment = self.geometry.segment_of(location);
        self.within(segment, location)
    }

    /// The first byte of a block in the home of `keeper`, which has a copy of the block's segment.
    ///
    /// # Panics
    /// When the pool has no segment `keeper`.
    #[must_use]
    pub fn within(&self, keeper: SegmentId, location: Location) -> Address {
        self.of_segment(keeper).plus(u64::from(self.geometry.block_in_segment(location)) * BLOCK_U64)
    }
}
#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Member, MemberName};

    const SEGMENT: u64 = 2 << 20;

    fn member(name: u8, slots: u32, start: u64) -> Member {
        let bytes = start + u64::from(slots) * SEGMENT;
        Member::in_use(MemberName([name; 16]), slots, bytes, start)
    }

    /// Five segments on a member of three slots and one of two, which begins elsewhere.
    fn two() -> (Geometry, Members) {
        let geometry = Geometry { segments: 5, ..Geometry::with_segment_bytes(64 << 20, SEGMENT) };
        let (members, _) = Members::first(member(1, 3, 4 << 20)).with(member(2, 2, 9 << 20)).unwrap();
        (geometry, members)
    }

    fn at(member: u16, offset: u64) -> Address {
        Address { member: MemberId(member), offset }
    }

    fn single(member: u16, slot: u32) -> Layout {
        Layout::Single(Place { member: MemberId(member), slot })
    }

    #[test]
    fn on_one_device_each_segment_has_the_slot_of_its_own_number() {
        let geometry = Geometry::with_segment_bytes(64 << 20, SEGMENT);
        let members = Members::first(geometry.member(MemberName([5; 16])));
        let laid: Vec<_> = (0..geometry.segments).map(|slot| single(0, slot)).collect();
        let some = laid.iter().enumerate().map(|(index, layout)| (index % 3 == 1).then_some(layout));
        let table = Addresses::of_empty(geometry, &members).unwrap();
        assert_eq!(Addresses::new(geometry, &members, some), Ok(table.clone()));
        let blocks = u64::from(geometry.segments * geometry.segment_blocks());
        for location in (0..blocks).step_by(97).map(Location) {
            assert_eq!(table.of(location), at(0, geometry.segments_start + location.0 * BLOCK_U64));
        }
    }

    #[test]
    fn segments_without_a_layout_share_the_slots_that_are_left_on_all_members() {
        let (geometry, members) = two();
        let table = Addresses::of_empty(geometry, &members).unwrap();
        let found: Vec<_> = (0..5).map(|segment| table.of_segment(SegmentId(segment))).collect();
        let mib = |mib: u64| mib << 20;
        assert_eq!(found, [at(0, mib(4)), at(0, mib(6)), at(0, mib(8)), at(1, mib(9)), at(1, mib(11))]);
        assert_eq!(table.at_home(Place { member: MemberId(1), slot: 1 }), Some(SegmentId(4)));
        // The second segment takes the place that the fourth would have had. The others close up.
        let (laid, none) = (single(1, 0), None);
        let table = Addresses::new(geometry, &members, [none, Some(&laid), none, none, none]).unwrap();
        let found: Vec<_> = (0..5).map(|segment| table.of_segment(SegmentId(segment))).collect();
        assert_eq!(found, [at(0, mib(4)), at(1, mib(9)), at(0, mib(6)), at(0, mib(8)), at(1, mib(11))]);
        let third_block = geometry.first_location(SegmentId(1)).plus(3);
        assert_eq!(table.of(third_block), at(1, mib(9) + 3 * BLOCK_U64));
    }

    #[test]
    fn only_what_has_its_home_on_a_member_that_is_gone_lies_there() {
        let (geometry, members) = two();
        let members = members.with_state(MemberId(0), MemberState::Gone);
        let two_left = Geometry { segments: 2, ..geometry };
        let table = Addresses::of_empty(two_left, &members).unwrap();
        assert_eq!(table.of_segment(SegmentId(0)), at(1, 9 << 20));
        assert!(matches!(Addresses::of_empty(geometry, &members), Err(Damage::Senseless(..))), "too few slots");
        let gone = single(0, 0);
        let table = Addresses::new(two_left, &members, [Some(&gone), None]).unwrap();
        assert_eq!([0, 1].map(|segment| table.of_segment(SegmentId(segment))), [at(0, 4 << 20), at(1, 9 << 20)]);
    }

    #[test]
    fn a_copy_lies_in_the_home_of_another_segment() {
        let (geometry, members) = two();
        let geometry = Geometry { segments: 2, ..geometry };
        let mirror = Layout::Mirror([0, 1].map(|member| Place { member: MemberId(member), slot: 1 }).to_vec());
        let lender = single(1, 1);
        let table = Addresses::new(geometry, &members, [Some(&mirror), Some(&lender)]).unwrap();
        let third_block = geometry.first_location(SegmentId(0)).plus(3);
        assert_eq!(table.of(third_block), at(0, (6 << 20) + 3 * BLOCK_U64));
        assert_eq!(table.within(SegmentId(1), third_block), at(1, (11 << 20) + 3 * BLOCK_U64));
        let elsewhere = single(1, 0);
        let refused = Addresses::new(geometry, &members, [Some(&mirror), Some(&elsewhere)]);
        assert!(matches!(refused, Err(Damage::Senseless(..))), "a copy in the home of no segment");
    }

    #[test]
    fn new_slots_are_the_homes_of_new_segments() {
        let (geometry, members) = two();
        let mut table = Addresses::of_empty(geometry, &members).unwrap();
        let before: Vec<_> = (0..5).map(|segment| table.home(SegmentId(segment))).collect();
        assert_eq!(table.extend(MemberId(0), &member(1, 4, 4 << 20)), 6);
        assert_eq!(table.extend(MemberId(2), &member(3, 2, 1 << 20)), 8);
        assert_eq!(before, (0..5).map(|segment| table.home(SegmentId(segment))).collect::<Vec<_>>());
        let found: Vec<_> = (5..8).map(|segment| table.of_segment(SegmentId(segment))).collect();
        assert_eq!(found, [at(0, 10 << 20), at(2, 1 << 20), at(2, 3 << 20)]);
    }

    #[test]
    fn layouts_that_cannot_all_be_true_are_refused() {
        let (geometry, members) = two();
        let refused = |layouts: [&Layout; 2]| Addresses::new(geometry, &members, layouts.map(Some)).unwrap_err();
        assert!(matches!(refused([&single(0, 1), &single(0, 1)]), Damage::Senseless(..)), "one slot twice");
        assert!(matches!(refused([&single(1, 2), &single(0, 1)]), Damage::Senseless(..)), "a slot too many");
        assert!(matches!(refused([&single(2, 0), &single(0, 1)]), Damage::Senseless(..)), "a member too many");
    }

    #[test]
    fn the_segments_of_a_row_lie_in_their_homes() {
        let (geometry, members) = two();
        let geometry = Geometry { segments: 2, ..geometry };
        let place = |member, slot| Place { member: MemberId(member), slot };
        let row = |id, at| Layout::Parity(Box::new(crate::ParityRow { segments: vec![(id, at)], parity: place(1, 1) }));
        let table = |first: &Layout, second: &Layout| Addresses::new(geometry, &members, [Some(first), Some(second)]);
        let good = row(SegmentId(0), place(0, 1));
        assert_eq!(table(&good, &single(1, 1)).unwrap().of_segment(SegmentId(0)), at(0, 6 << 20));
        assert!(table(&good, &single(1, 0)).is_err(), "a parity in the home of no segment");
        assert!(table(&row(SegmentId(1), place(0, 1)), &single(1, 1)).is_err(), "a row of others");
        let both = crate::ParityRow {
            segments: vec![(SegmentId(0), place(0, 1)), (SegmentId(1), place(1, 0))],
            parity: place(1, 1),
        };
        let both = Layout::Parity(Box::new(both));
        assert!(table(&both, &single(1, 1)).is_err(), "a segment that is elsewhere at home");
        assert!(table(&row(SegmentId(0), place(0, 9)), &single(1, 1)).is_err(), "a slot that there is not");
    }
}
