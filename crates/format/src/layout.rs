//! Where a segment's bytes lie, and what protects them.
//!
//! Invariants:
//! - Each segment has a layout of its own. A pool that gets another member moves nothing.
//! - A layout that decodes has each member once. Two copies on one device protect nothing, nor do two parts of a
//!   parity row.

use headpond_base::{MemberId, SegmentId};

use crate::{Damage, MEMBERS_MAX};

const WHAT: &str = "layout";

/// The most places of a segment, with those of its parity.
pub const PLACES_MAX: usize = 16;

/// A run of bytes on a member, as large as a segment.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Place {
    /// The member.
    pub member: MemberId,
    /// The number of the run, from 0.
    pub slot: u32,
}

/// Segments with a parity: their exclusive or. It gives back any one of them from the others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParityRow {
    /// Each segment and its place.
    pub segments: Vec<(SegmentId, Place)>,
    /// Where the parity lies.
    pub parity: Place,
}

/// Where one segment lies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Layout {
    /// Once.
    Single(Place),
    /// The same bytes several times: at home, then in each copy.
    Mirror(Vec<Place>),
    /// Once, in a row with a parity.
    Parity(Box<ParityRow>),
}

const SINGLE: u8 = 0;
const MIRROR: u8 = 1;
const PARITY: u8 = 2;

const PLACE_BYTES: usize = 6;

impl Layout {
    /// The most bytes that a layout takes.
    pub const BYTES_MAX: usize = 2 + PLACES_MAX * PLACE_BYTES + (PLACES_MAX - 1) * 4;

    /// All places, in order: the copies, or the row's segments and the parity.
    #[must_use]
    pub fn places(&self) -> Vec<Place> {
        match self {
            Self::Single(place) => vec![*place],
            Self::Mirror(places) => places.clone(),
            Self::Parity(row) => row.segments.iter().map(|(_, place)| *place).chain([row.parity]).collect(),
        }
    }

    /// Where the bytes of `segment` itself lie, one place for each copy. Empty if the row does not contain the
    /// segment.
    #[must_use]
    pub fn copies(&self, segment: SegmentId) -> Vec<Place> {
        match self {
            Self::Parity(row) => {
                row.segments.iter().filter(|(id, _)| *id == segment).map(|(_, place)| *place).collect()
            }
            Self::Single(_) | Self::Mirror(_) => self.places(),
        }
    }

    /// Appends protection (1), number of places (1), member (2) and slot (4) of each place, and for a row its segments
    /// (4 each).
    ///
    /// # Panics
    /// When a row has more than [`PLACES_MAX`] places.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let places = self.places();
        assert!(places.len() <= PLACES_MAX, "a row of more segments than a layout has room for");
        let protection = match self {
            Self::Single(_) => SINGLE,
            Self::Mirror(_) => MIRROR,
            Self::Parity(_) => PARITY,
        };
        out.extend_from_slice(&[protection, places.len() as u8]);
        for place in places {
            out.extend_from_slice(&place.member.0.to_le_bytes());
            out.extend_from_slice(&place.slot.to_le_bytes());
        }
        if let Self::Parity(row) = self {
            row.segments.iter().for_each(|(id, _)| out.extend_from_slice(&id.0.to_le_bytes()));
        }
    }

    /// Reads the layout at the start of `bytes`. Returns it with the bytes behind it; `None` if it has no places.
    ///
    /// # Errors
    /// [`Damage`] when it makes no sense.
    pub fn decode(bytes: &[u8]) -> Result<(Option<Self>, &[u8]), Damage> {
        let senseless = |why| Damage::Senseless(WHAT, why);
        let ([protection, count], mut rest) = bytes.split_first_chunk().ok_or(Damage::Short(WHAT))?;
        let mut places = Vec::with_capacity(usize::from(*count));
        for _ in 0..*count {
            let ([a, b, slot @ ..], after) = rest.split_first_chunk::<PLACE_BYTES>().ok_or(Damage::Short(WHAT))?;
            places.push(Place { member: MemberId(u16::from_le_bytes([*a, *b])), slot: u32::from_le_bytes(*slot) });
            rest = after;
        }
        let mut members: Vec<_> = places.iter().map(|place| place.member).collect();
        members.sort_unstable();
        members.dedup();
        if members.len() < places.len() {
            return Err(senseless("two places on one member"));
        }
        if members.last().is_some_and(|last| usize::from(last.0) >= MEMBERS_MAX) {
            return Err(senseless("a place on a member that there cannot be"));
        }
        let layout = match (*protection, &places[..]) {
            (SINGLE, []) => None,
            (SINGLE, [place]) => Some(Self::Single(*place)),
            (MIRROR, [_, _] | [_, _, _]) => Some(Self::Mirror(places)),
            (PARITY, [data @ .., parity]) if !data.is_empty() && places.len() <= PLACES_MAX => {
                let mut segments = Vec::with_capacity(data.len());
                for place in data {
                    let (id, after) = rest.split_first_chunk().ok_or(Damage::Short(WHAT))?;
                    segments.push((SegmentId(u32::from_le_bytes(*id)), *place));
                    rest = after;
                }
                Some(Self::Parity(Box::new(ParityRow { segments, parity: *parity })))
            }
            _ => return Err(senseless("a number of places that its protection does not have")),
        };
        Ok((layout, rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(member: u16, slot: u32) -> Place {
        Place { member: MemberId(member), slot }
    }

    fn row(data: u16) -> Layout {
        let segments = (0..data).map(|at| (SegmentId(u32::from(at) + 70), place(at, 1000 + u32::from(at)))).collect();
        Layout::Parity(Box::new(ParityRow { segments, parity: place(data, 5) }))
    }

    fn mirror(members: &[u16]) -> Layout {
        Layout::Mirror(members.iter().map(|member| place(*member, 9)).collect())
    }

    #[test]
    fn each_kind_reads_back_and_leaves_what_follows() {
        let all = [Layout::Single(place(3, 4)), mirror(&[0, 1]), mirror(&[2, 0, 1]), row(1), row(15)];
        for layout in all {
            let mut bytes = Vec::new();
            layout.encode(&mut bytes);
            assert!(bytes.len() <= Layout::BYTES_MAX);
            bytes.extend_from_slice(b"rest");
            assert_eq!(Layout::decode(&bytes), Ok((Some(layout), &b"rest"[..])));
        }
        assert_eq!(Layout::decode(&[0, 0, 7]), Ok((None, &[7][..])));
    }

    #[test]
    fn a_segment_of_a_row_lies_in_one_place_and_a_mirrored_one_in_each() {
        assert_eq!(row(4).copies(SegmentId(72)), [place(2, 1002)]);
        assert_eq!(row(4).copies(SegmentId(5)), []);
        assert_eq!(mirror(&[0, 1]).copies(SegmentId(5)), [place(0, 9), place(1, 9)]);
        assert_eq!(mirror(&[0, 2, 1]).copies(SegmentId(5)).len(), 3);
    }

    #[test]
    fn what_no_pool_has_is_refused() {
        let mut twice = Vec::new();
        Layout::Mirror(vec![place(1, 1), place(1, 2)]).encode(&mut twice);
        assert!(matches!(Layout::decode(&twice), Err(Damage::Senseless(..))), "both copies on one device");
        let mut nowhere = Vec::new();
        Layout::Single(place(32, 1)).encode(&mut nowhere);
        assert!(matches!(Layout::decode(&nowhere), Err(Damage::Senseless(..))), "no such member");
        let mut four = Vec::new();
        mirror(&[0, 1, 2, 3]).encode(&mut four);
        assert!(matches!(Layout::decode(&four), Err(Damage::Senseless(..))), "more copies than headpond makes");
        for bytes in [&[1, 0][..], &[1, 1, 0, 0, 0, 0, 0, 0], &[2, 1, 0, 0, 0, 0, 0, 0], &[3, 0]] {
            assert!(matches!(Layout::decode(bytes), Err(Damage::Senseless(..))), "{bytes:?}");
        }
        for bytes in [&[][..], &[0], &[0, 1, 0, 0, 0, 0, 0]] {
            assert!(matches!(Layout::decode(bytes), Err(Damage::Short(_))), "{bytes:?}");
        }
    }
}
