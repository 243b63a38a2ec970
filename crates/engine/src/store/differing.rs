//! Segments whose copies differ: a crash left a batch on some of the members that were to have it.
//!
//! Invariant: with all members here, one of them has each dirty block. With one missing, that has to be looked at.

use headpond_base::{BLOCK, Block, Buf, ObjectId};
use headpond_format::Address;
use headpond_log::ReadFrom;
use headpond_map::Slot;

use crate::store::Store;
use crate::store::flash_read::blocks_of;

impl Store {
    /// How many dirty blocks of such segments no member here has as they were written. Reads each of them.
    pub(crate) fn lacking_blocks(&self, mut read: impl FnMut(Address, usize) -> Option<Buf>) -> u64 {
        let lacks = |(object, block, slot): &(ObjectId, Block, Slot)| {
            let len = blocks_of(&[*slot]) * BLOCK;
            let mut has = |attempt| match self.log.place_to_read(slot.location, attempt) {
                Some(ReadFrom::Place(at)) => {
                    self.read_back(*object, *block, &[*slot], read(at, len).as_ref()).good == [true]
                }
                // What a row gives back is compared with the checksum when it is read.
                Some(ReadFrom::Row(_)) => true,
                None => false,
            };
            !(0..=self.log.last_attempt(slot.location)).any(&mut has)
        };
        self.differing_blocks().filter(lacks).count() as u64
    }

    /// The dirty blocks that have bytes in such segments, of each object in order. A walk over the maps of all that is
    /// dirty, if there is such a segment.
    pub(crate) fn differing_blocks(&self) -> impl Iterator<Item = (ObjectId, Block, Slot)> {
        let segments = self.log.segments();
        let are_there = segments.iter().any(|(_, segment)| segment.copies_differ && segment.dirty > 0);
        let objects = self.objects.iter().filter(move |(_, known)| are_there && known.dirty_blocks() > 0);
        let blocks = objects.flat_map(|(object, known)| {
            known.map().range(Block(0), Block(u64::MAX)).map(|(block, slot)| (*object, block, slot))
        });
        let differs = |slot: &Slot| segments.get(self.segment_of(slot.location)).copies_differ;
        blocks.filter(move |(_, _, slot)| slot.dirty && !slot.is_blank() && differs(slot))
    }
}
