//! One block's slot, and its ten bytes.

use headpond_base::{Class, Location};
use headpond_format::BLOCK_UNITS;

use crate::packed::PackedPlace;

/// Bytes of a packed slot, in memory and in a checkpoint.
pub const SLOT_BYTES: usize = 10;

/// What the map knows of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slot {
    /// Where the block's bytes are, or the packed record that has them begins; [`Location::ZERO`] for a block of zeros.
    pub location: Location,
    /// The checksum that the bytes must have; in a packed record the [`PackedPlace`].
    pub checksum: u32,
    /// It is in a packed record.
    pub packed: bool,
    /// Newer than the origin.
    pub dirty: bool,
    /// Worth keeping: it moves on when its segment is reclaimed.
    pub kept: bool,
    /// Whose share of the pool it uses.
    pub class: Class,
}

impl Slot {
    /// Its place in a packed record, if it is in one.
    #[must_use]
    pub const fn in_record(&self) -> Option<PackedPlace> {
        if self.packed { Some(PackedPlace::from_word(self.checksum)) } else { None }
    }

    /// Whether `next` is of the block after this one in the same packed record.
    #[must_use]
    pub fn goes_on_in(&self, next: &Self) -> bool {
        let (Some(place), Some(after)) = (self.in_record(), next.in_record()) else { return false };
        self.location == next.location && after == place.next()
    }

    /// Whether both are the same bytes on flash.
    #[must_use]
    pub fn is_where(&self, other: &Self) -> bool {
        (self.location, self.checksum, self.packed) == (other.location, other.checksum, other.packed)
    }

    /// Units of 512 bytes of flash that it takes: none for zeros, its share of a packed record.
    #[must_use]
    pub fn units(&self) -> u32 {
        match self.in_record() {
            _ if self.location == Location::ZERO => 0,
            Some(place) => place.share(),
            None => BLOCK_UNITS,
        }
    }

    /// The units that have to be read for it, counted over all locations: the first, and the one behind the last.
    #[must_use]
    pub fn extent(&self) -> (u64, u64) {
        let start = u64::from(self.location.0) * u64::from(BLOCK_UNITS);
        match self.in_record() {
            Some(place) => {
                let start = start + u64::from(place.unit);
                (start, start + u64::from(place.units))
            }
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

/// A slot with its position in its chunk. Position in the low nine bits, flags above.
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
        bytes[2..6].copy_from_slice(&slot.location.0.to_le_bytes());
        bytes[6..].copy_from_slice(&slot.checksum.to_le_bytes());
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

    /// Whether it can be: a packed record has bounds.
    pub(crate) fn makes_sense(self) -> bool {
        self.slot().in_record().is_none_or(|place| place.makes_sense())
    }

    pub(crate) fn slot(self) -> Slot {
        let [_, _, a, b, c, d, e, f, g, h] = self.0;
        Slot {
            location: Location(u32::from_le_bytes([a, b, c, d])),
            checksum: u32::from_le_bytes([e, f, g, h]),
            dirty: self.dirty(),
            packed: self.word() & PACKED != 0,
            kept: self.word() & KEPT != 0,
            class: Class::from_bits((self.word() >> CLASS_AT) as u8),
        }
    }
}
