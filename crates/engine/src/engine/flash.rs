//! Reads of flash that keep their segment from being filled again meanwhile.

use headpond_base::{BLOCK, Block, ObjectId};
use headpond_map::Slot;

use crate::effect::{Effect, Outcome};
use crate::engine::Engine;
use crate::purpose::Purpose;
use crate::store::{ReadBack, Stretch};

impl Engine {
    /// Starts to read blocks that lie behind each other.
    pub(crate) fn read_flash(&mut self, stretch: Stretch, pending: Purpose) {
        let segment = self.store.segment_of(stretch.from());
        self.store.log.segments_mut().get_mut(segment).under_way += 1;
        let offset = self.store.log.geometry().byte_of(stretch.from());
        let len = u32::try_from(stretch.blocks() * BLOCK).expect("a read is at most a segment");
        self.start(pending, |ticket| Effect::FlashRead { ticket, offset, len });
    }

    /// A read is over, with or without its bytes: what it brought.
    pub(crate) fn flash_was_read(
        &mut self,
        object: ObjectId,
        first: Block,
        slots: &[Slot],
        outcome: &Outcome,
    ) -> ReadBack {
        let segment = self.store.segment_of(slots[0].location);
        self.store.log.segments_mut().get_mut(segment).under_way -= 1;
        let bytes = if let Outcome::Bytes(bytes) = outcome { Some(bytes) } else { None };
        self.store.read_back(object, first, slots, bytes)
    }
}
