//! Where each segment's bytes lie: the one table from a segment to a member and an offset.
//!
//! Invariants:
//! - Each segment has a slot of its own. The slot lies on a member that is not gone, within the member's bytes.
//! - A segment with a layout lies where the layout says. The bytes of the others do not count; they share the
//!   remaining slots, in order. So in a pool of one device each segment has the slot of its own number.
//! - The table does not change while the pool is in use.

use headpond_base::{BLOCK_U64, Location, MemberId, SegmentId};

use crate::{Damage, Geometry, Layout, MemberState, Members, Place};

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

/// Where each segment of one pool lies. Made once, when the pool is read. The log owns it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Addresses {
    geometry: Geometry,
    /// The place of each segment.
    places: Vec<Place>,
    /// Where the first slot of each member starts. Gone members have an entry too.
    starts: Vec<u64>,
    /// The members that hold a segment.
    members: Vec<MemberId>,
}

impl Addresses {
    /// The table of a pool with these members and segments. A segment in use comes with its layout.
    ///
    /// # Errors
    /// [`Damage`] when a layout names a slot that does not exist or that another segment has, when there are fewer
    /// slots than segments, and when a segment lies in more than one place: no headpond writes that yet.
    pub fn new<'a>(
        geometry: Geometry,
        members: &Members,
        layouts: impl IntoIterator<Item = Option<&'a Layout>>,
    ) -> Result<Self, Damage> {
        let senseless = |why| Damage::Senseless(WHAT, why);
        // Which slots of each member are taken.
        let mut taken: Vec<Vec<bool>> = members
            .iter()
            .map(|(_, member)| vec![false; if member.state == MemberState::Gone { 0 } else { member.slots as usize }])
            .collect();
        let mut wanted = Vec::with_capacity(geometry.segments as usize);
        for layout in layouts {
            let place = match layout {
                None => None,
                Some(Layout::Single(place)) => Some(*place),
                Some(_) => return Err(Damage::Unsupported(WHAT, "segments lie on several devices")),
            };
            if let Some(Place { member, slot }) = place {
                let slot = taken.get_mut(usize::from(member.0)).and_then(|slots| slots.get_mut(slot as usize));
                if std::mem::replace(slot.ok_or(senseless("a slot that there is not"))?, true) {
                    return Err(senseless("two segments in one slot"));
                }
            }
            wanted.push(place);
        }
        let mut free = (0..).map(MemberId).zip(&taken).flat_map(|(member, slots)| {
            let free = (0..).zip(slots).filter(|(_, taken)| !**taken);
            free.map(move |(slot, _)| Place { member, slot })
        });
        let places: Option<Vec<Place>> = wanted.into_iter().map(|place| place.or_else(|| free.next())).collect();
        let in_use = members.iter().filter(|(_, member)| member.state != MemberState::Gone);
        Ok(Self {
            geometry,
            places: places.ok_or(senseless("more segments than slots"))?,
            starts: members.iter().map(|(_, member)| member.start).collect(),
            members: in_use.map(|(id, _)| id).collect(),
        })
    }

    /// The table of a pool whose segments have no layouts yet.
    ///
    /// # Errors
    /// [`Damage`] when there are fewer slots than segments.
    pub fn of_empty(geometry: Geometry, members: &Members) -> Result<Self, Damage> {
        Self::new(geometry, members, (0..geometry.segments).map(|_| None))
    }

    /// The members that hold a segment, in the order of their numbers.
    #[must_use]
    pub fn members(&self) -> &[MemberId] {
        &self.members
    }

    /// Where a segment lies. A free segment will lie there once it is opened.
    ///
    /// # Panics
    /// When the pool has no such segment.
    #[must_use]
    pub fn place(&self, segment: SegmentId) -> Place {
        self.places[segment.0 as usize]
    }

    /// The first byte of a segment, where its head is.
    ///
    /// # Panics
    /// When the pool has no such segment.
    #[must_use]
    pub fn of_segment(&self, segment: SegmentId) -> Address {
        let Place { member, slot } = self.place(segment);
        let before = u64::from(slot) * u64::from(self.geometry.segment_bytes);
        Address { member, offset: self.starts[usize::from(member.0)] + before }
    }

    /// The first byte of a block.
    ///
    /// # Panics
    /// When the location is in no segment.
    #[must_use]
    pub fn of(&self, location: Location) -> Address {
        let block = self.geometry.block_in_segment(location);
        self.of_segment(self.geometry.segment_of(location)).plus(u64::from(block) * BLOCK_U64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Member, MemberName};

    const SEGMENT: u64 = 2 << 20;

    fn member(name: u8, slots: u32, start: u64) -> Member {
        let bytes = start + u64::from(slots) * SEGMENT;
        Member { name: MemberName([name; 16]), state: MemberState::InUse, slots, bytes, start }
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
        assert_eq!(table.members(), [MemberId(0), MemberId(1)]);
        // The second segment takes the place that the fourth would have had. The others close up.
        let (laid, none) = (single(1, 0), None);
        let table = Addresses::new(geometry, &members, [none, Some(&laid), none, none, none]).unwrap();
        let found: Vec<_> = (0..5).map(|segment| table.of_segment(SegmentId(segment))).collect();
        assert_eq!(found, [at(0, mib(4)), at(1, mib(9)), at(0, mib(6)), at(0, mib(8)), at(1, mib(11))]);
        let third_block = geometry.first_location(SegmentId(1)).plus(3);
        assert_eq!(table.of(third_block), at(1, mib(9) + 3 * BLOCK_U64));
    }

    #[test]
    fn no_segment_lies_on_a_member_that_is_gone() {
        let (geometry, members) = two();
        let members = members.with_state(MemberId(0), MemberState::Gone);
        let two_left = Geometry { segments: 2, ..geometry };
        let table = Addresses::of_empty(two_left, &members).unwrap();
        assert_eq!((table.members(), table.of_segment(SegmentId(0))), (&[MemberId(1)][..], at(1, 9 << 20)));
        assert!(matches!(Addresses::of_empty(geometry, &members), Err(Damage::Senseless(..))), "too few slots");
        let gone = single(0, 0);
        assert!(matches!(Addresses::new(two_left, &members, [Some(&gone), None]), Err(Damage::Senseless(..))));
    }

    #[test]
    fn layouts_that_cannot_all_be_true_are_refused() {
        let (geometry, members) = two();
        let refused = |layouts: [&Layout; 2]| Addresses::new(geometry, &members, layouts.map(Some)).unwrap_err();
        assert!(matches!(refused([&single(0, 1), &single(0, 1)]), Damage::Senseless(..)), "one slot twice");
        assert!(matches!(refused([&single(1, 2), &single(0, 1)]), Damage::Senseless(..)), "a slot too many");
        assert!(matches!(refused([&single(2, 0), &single(0, 1)]), Damage::Senseless(..)), "a member too many");
        let mirror = Layout::Mirror([0, 1].map(|member| Place { member: MemberId(member), slot: 0 }));
        assert!(matches!(refused([&mirror, &single(0, 1)]), Damage::Unsupported(..)));
    }
}
