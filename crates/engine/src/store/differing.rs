//! Segments whose copies differ: a crash left a batch on some of the members that were to have it.
//!
//! Invariant: with all members here, one of them has each dirty block. With one missing, that has to be looked at.

use headpond_base::{BLOCK, Block, Buf};
use headpond_format::Address;
use headpond_log::ReadFrom;

use crate::store::Store;
use crate::store::flash_read::blocks_of;

impl Store {
    /// How many dirty blocks of such segments no member here has as they were written. Reads each of them.
    pub(crate) fn lacking_blocks(&self, mut read: impl FnMut(Address, usize) -> Option<Buf>) -> u64 {
        let segments = self.log.segments();
        if !segments.iter().any(|(_, segment)| segment.copies_differ) {
            return 0;
        }
        let mut lacking = 0;
        for (object, known) in self.objects.iter() {
            for (block, slot) in known.map().range(Block(0), Block(u64::MAX)) {
                let differs = || segments.get(self.segment_of(slot.location)).copies_differ;
                if !slot.dirty || slot.is_blank() || !differs() {
                    continue;
                }
                let len = blocks_of(&[slot]) * BLOCK;
                let mut has = |attempt| match self.log.place_to_read(slot.location, attempt) {
                    Some(ReadFrom::Place(at)) => {
                        self.read_back(*object, block, &[slot], read(at, len).as_ref()).good == [true]
                    }
                    // What a row gives back is compared with the checksum when it is read.
                    Some(ReadFrom::Row(_)) => true,
                    None => false,
                };
                lacking += u64::from(!(0..=self.log.last_attempt(slot.location)).any(&mut has));
            }
        }
        lacking
    }
}
