//! Where a block lies in a packed record. These four bytes are in the slot in place of a checksum.
//!
//! The whole checksum is in the record's head, bound to object, position and life. The slot has some of its bits, to
//! tell an intact record of the same place and life that is another one. No writer makes such a record.

use headpond_format::{PACKED_BLOCKS_MAX, packed_units_max};

/// Bits of the record's checksum that a slot has.
const CHECK_BITS: u32 = 14;

/// The word of a block in a blank record: a number of units that no packed record has, and no other bits.
pub(crate) const BLANK_WORD: u32 = 127 << 3;

/// Whether this is the word of a block in a blank record.
pub(crate) const fn says_blank(word: u32) -> bool {
    word & BLANK_WORD == BLANK_WORD
}

const _: () = assert!(packed_units_max(PACKED_BLOCKS_MAX) < 128);

/// A block's place in a packed record. The record begins in the block at the slot's location.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PackedPlace {
    /// The unit of that block with which the record begins, 0 to 7.
    pub unit: u8,
    /// Units of the record, 1 to 128.
    pub units: u8,
    /// Blocks of the record, 1 to 16.
    pub blocks: u8,
    /// Which of those blocks this is, from 0.
    pub index: u8,
    /// The lowest bits of the record's checksum.
    pub check: u16,
}

#[allow(clippy::cast_possible_truncation)] // each is masked to its bits
impl PackedPlace {
    /// The place of block `index` of a record.
    #[must_use]
    pub const fn new(unit: u8, units: u8, blocks: u8, index: u8, checksum: u32) -> Self {
        Self { unit, units, blocks, index, check: (checksum & ((1 << CHECK_BITS) - 1)) as u16 }
    }

    /// The word in the slot: unit (3 bits), units less one (7), blocks less one (4), index (4), and bits of the
    /// checksum.
    #[must_use]
    pub const fn word(self) -> u32 {
        self.unit as u32 & 7
            | (self.units.wrapping_sub(1) as u32 & 127) << 3
            | (self.blocks.wrapping_sub(1) as u32 & 15) << 10
            | (self.index as u32 & 15) << 14
            | (self.check as u32) << 18
    }

    pub(crate) const fn from_word(word: u32) -> Self {
        Self {
            unit: (word & 7) as u8,
            units: (word >> 3 & 127) as u8 + 1,
            blocks: (word >> 10 & 15) as u8 + 1,
            index: (word >> 14 & 15) as u8,
            check: (word >> 18) as u16,
        }
    }

    /// Whether a record's checksum has these bits.
    #[must_use]
    pub const fn agrees(self, checksum: u32) -> bool {
        checksum & ((1 << CHECK_BITS) - 1) == self.check as u32
    }

    /// The block's share of the record's units. The shares of all its blocks add up to its units.
    #[must_use]
    pub const fn share(self) -> u32 {
        let (units, blocks, index) = (self.units as u32, self.blocks as u32, self.index as u32);
        units * (index + 1) / blocks - units * index / blocks
    }

    /// The place of the block after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self { index: self.index + 1, ..self }
    }

    /// Whether the place makes sense: the block is in the record, and the record is no larger than its blocks.
    pub(crate) const fn makes_sense(self) -> bool {
        let blocks = self.blocks as usize;
        self.index < self.blocks && blocks <= PACKED_BLOCKS_MAX && self.units as usize <= packed_units_max(blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_survives_its_word_and_the_shares_are_the_record() {
        for blocks in 1..=PACKED_BLOCKS_MAX as u8 {
            for units in 1..=packed_units_max(blocks.into()) as u8 {
                let places = (0..blocks).map(|index| PackedPlace::new(units % 8, units, blocks, index, 0xdead_beef));
                let mut shares = 0;
                for place in places {
                    assert_eq!(PackedPlace::from_word(place.word()), place);
                    assert!(place.makes_sense() && place.agrees(0xdead_beef) && !place.agrees(0xdead_beee));
                    shares += place.share();
                }
                assert_eq!(shares, u32::from(units));
            }
        }
        assert!(!PackedPlace::new(0, 3, 2, 2, 0).makes_sense(), "a block that the record has not got");
        assert!(!PackedPlace::new(0, 8, 1, 0, 0).makes_sense(), "a record larger than what it holds");
    }
}
