//! The slot of one block, and its eleven bytes.

use headpond_base::{Class, Location};
use headpond_format::BLOCK_UNITS;

use crate::packed::{BLANK_WORD, PackedPlace, says_blank};

/// Bytes of a packed slot, in memory and in a checkpoint.
pub const SLOT_BYTES: usize = 11;

/// What the map knows of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slot {
    /// Where the block's bytes lie. In a packed record: where the record begins. In a blank record: the head of its
    /// batch.
    pub location: Location,
    /// The checksum that the bytes must have. In a packed record: the [`PackedPlace`].
    pub checksum: u32,
    /// The block is in a packed or a blank record.
    pub packed: bool,
    /// The block is newer than the origin.
    pub dirty: bool,
    /// Worth keeping: reclaim moves the block on.
    pub kept: bool,
    /// The class of the block.
    pub class: Class,
}

impl Slot {
    /// The slot of a block in a blank record. `batch` is the head of its batch.
    #[must_use]
    pub const fn blank(batch: Location, dirty: bool, kept: bool, class: Class) -> Self {
        Self { location: batch, checksum: BLANK_WORD, packed: true, dirty, kept, class }
    }

    /// Whether the block is in a blank record: zeros, with no payload.
    #[must_use]
    pub const fn is_blank(&self) -> bool {
        self.packed && says_blank(self.checksum)
    }

    /// The block's place in a packed record, if it is in one.
    #[must_use]
    pub const fn in_record(&self) -> Option<PackedPlace> {
        if self.packed && !self.is_blank() { Some(PackedPlace::from_word(self.checksum)) } else { None }
    }

    /// Whether `next` is the slot of the next block in the same packed record.
    #[must_use]
    pub fn goes_on_in(&self, next: &Self) -> bool {
        let (Some(place), Some(after)) = (self.in_record(), next.in_record()) else { return false };
        self.location == next.location && after == place.next()
    }

    /// Whether both slots name the same bytes on flash.
    #[must_use]
    pub fn is_where(&self, other: &Self) -> bool {
        (self.location, self.checksum, self.packed) == (other.location, other.checksum, other.packed)
    }

    /// Units of 512 bytes on flash that the block takes: none in a blank record, its share for a block of a packed
    /// record.
    #[must_use]
    pub fn units(&self) -> u32 {
        match self.in_record() {
            Some(place) => place.share(),
            None if self.is_blank() => 0,
            None => BLOCK_UNITS,
        }
    }

    /// The units that a read of the block needs, counted over all locations: the first, and the one behind the last.
    /// Empty for a blank record.
    #[must_use]
    pub fn extent(&self) -> (u64, u64) {
        let start = self.location.0 * u64::from(BLOCK_UNITS);
        match self.in_record() {
            Some(place) => {
                let start = start + u64::from(place.unit);
                (start, start + u64::from(place.units))
            }
            None if self.is_blank() => (start, start),
            None => (start, start + u64::from(BLOCK_UNITS)),
        }
    }
}

const POSITION: u16 = 0x01ff;
const DIRTY: u16 = 0x0200;
const KEPT: u16 = 0x0400;
/// The lowest of the class's four bits.
const CLASS_AT: u32 = 11;
const PACKED: u16 = 0x8000;

/// A slot with its position in its chunk: the low nine bits. Flags are above.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Packed([u8; SLOT_BYTES]);

impl Packed {
    pub(crate) fn new(position: u16, slot: Slot) -> Self {
        let flags = if slot.dirty { DIRTY } else { 0 }
            | if slot.kept { KEPT } else { 0 }
            | if slot.packed { PACKED } else { 0 }
            | u16::from(slot.class.number()) << CLASS_AT;
        let mut bytes = [0; SLOT_BYTES];
        bytes[..2].copy_from_slice(&(position | flags).to_le_bytes());
        bytes[2..7].copy_from_slice(&slot.location.bytes());
        bytes[7..].copy_from_slice(&slot.checksum.to_le_bytes());
        Self(bytes)
    }

    pub(crate) const fn from_bytes(bytes: [u8; SLOT_BYTES]) -> Self {
        Self(bytes)
    }

    pub(crate) const fn bytes(&self) -> &[u8; SLOT_BYTES] {
        &self.0
    }

    const fn word(self) -> u16 {
        u16::from_le_bytes([self.0[0], self.0[1]])
    }

    pub(crate) const fn position(self) -> u16 {
        self.word() & POSITION
    }

    pub(crate) const fn dirty(self) -> bool {
        self.word() & DIRTY != 0
    }

    /// Whether the slot makes sense: a packed record is within bounds, and a blank one has no other bits.
    pub(crate) fn makes_sense(self) -> bool {
        let slot = self.slot();
        let nothing_said = !slot.is_blank() || slot.checksum == BLANK_WORD;
        nothing_said && slot.in_record().is_none_or(|place| place.makes_sense())
    }

    pub(crate) fn slot(self) -> Slot {
        let [_, _, a, b, c, d, e, sum @ ..] = self.0;
        Slot {
            location: Location::from_bytes([a, b, c, d, e]),
            checksum: u32::from_le_bytes(sum),
            dirty: self.dirty(),
            packed: self.word() & PACKED != 0,
            kept: self.word() & KEPT != 0,
            class: Class::from_bits((self.word() >> CLASS_AT) as u8),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_of_a_blank_record_takes_and_reads_nothing_and_is_no_packed_one() {
        let slot = Slot::blank(Location(77), true, false, Class::EVERYBODY);
        assert!(slot.is_blank() && slot.in_record().is_none() && !slot.goes_on_in(&slot));
        assert_eq!((slot.units(), slot.extent()), (0, (77 * 8, 77 * 8)));
        let packed = Packed::new(5, slot);
        assert!(packed.makes_sense() && packed.slot() == slot);
    }

    #[test]
    fn a_blank_slot_that_says_more_makes_no_sense() {
        let slot = Slot::blank(Location(77), true, false, Class::EVERYBODY);
        for bit in (0..3).chain(10..32) {
            assert!(!Packed::new(5, Slot { checksum: slot.checksum | 1 << bit, ..slot }).makes_sense(), "bit {bit}");
        }
        // A block that is stored as it is may have any checksum.
        assert!(!Slot { packed: false, ..slot }.is_blank());
    }
}
