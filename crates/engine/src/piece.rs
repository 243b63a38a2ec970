//! Neighbouring blocks of an object in a segment that is being emptied.

use headpond_base::{Block, Location, ObjectId, RECORD_BLOCKS_MAX};
use headpond_map::Slot;

/// Neighbouring blocks of an object that a segment holds, or held, in one record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) object: ObjectId,
    pub(crate) first: Block,
    /// Where the first is, or the packed record begins that has them, or the batch of the blank one.
    pub(crate) at: Location,
    pub(crate) form: Form,
    pub(crate) count: u32,
}

/// How a piece is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    Plain,
    /// The unit of the block with which the packed record begins, and which of its blocks the first is.
    Packed(u8, u8),
    Blank,
}

impl Piece {
    /// Whether a block's slot points to this piece's block number `index`.
    pub(crate) fn holds(&self, index: u32, slot: Slot) -> bool {
        match (self.form, slot.in_record()) {
            (Form::Plain, None) => !slot.packed && slot.location == self.at.plus(index),
            (Form::Packed(unit, from), Some(place)) => {
                slot.location == self.at && place.unit == unit && u32::from(place.index) == u32::from(from) + index
            }
            (Form::Blank, None) => slot.is_blank() && slot.location == self.at,
            _ => false,
        }
    }

    /// Whether both are neighbours in one blank record.
    pub(crate) fn goes_on_in(&self, next: &Self) -> bool {
        (self.object, self.at, self.form, Form::Blank) == (next.object, next.at, next.form, self.form)
            && self.first.plus(u64::from(self.count)) == next.first
            && (self.count as usize) < RECORD_BLOCKS_MAX
    }

    /// `count` of its blocks, from number `index` on.
    pub(crate) fn part(self, index: u32, count: u32) -> Self {
        let first = self.first.plus(u64::from(index));
        match self.form {
            Form::Plain => Self { first, at: self.at.plus(index), count, ..self },
            Form::Packed(unit, from) => {
                let from = u8::try_from(u32::from(from) + index).expect("a packed record is bounded");
                Self { first, form: Form::Packed(unit, from), count, ..self }
            }
            Form::Blank => Self { first, count, ..self },
        }
    }
}
