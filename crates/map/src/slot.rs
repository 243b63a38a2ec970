//! One block's slot, and its ten bytes.

use headpond_base::{Class, Location};

/// Bytes of a packed slot, in memory and in a checkpoint.
pub const SLOT_BYTES: usize = 10;

/// What the map knows of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slot {
    /// Where the block's bytes are; [`Location::ZERO`] for a block of zeros.
    pub location: Location,
    /// The checksum that the bytes must have.
    pub checksum: u32,
    /// Newer than the origin.
    pub dirty: bool,
    /// Worth keeping: it moves on when its segment is reclaimed.
    pub kept: bool,
    /// Whose share of the pool it uses.
    pub class: Class,
}

const POSITION: u16 = 0x01ff;
const DIRTY: u16 = 0x0200;
const KEPT: u16 = 0x0400;
/// The lowest of the class's four bits.
const CLASS_AT: u32 = 11;

/// A slot with its position in its chunk. Position in the low nine bits, flags above.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Packed([u8; SLOT_BYTES]);

impl Packed {
    pub(crate) fn new(position: u16, slot: Slot) -> Self {
        let flags = if slot.dirty { DIRTY } else { 0 }
            | if slot.kept { KEPT } else { 0 }
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

    pub(crate) fn slot(self) -> Slot {
        let [_, _, a, b, c, d, e, f, g, h] = self.0;
        Slot {
            location: Location(u32::from_le_bytes([a, b, c, d])),
            checksum: u32::from_le_bytes([e, f, g, h]),
            dirty: self.dirty(),
            kept: self.word() & KEPT != 0,
            class: Class::from_bits((self.word() >> CLASS_AT) as u8),
        }
    }
}
