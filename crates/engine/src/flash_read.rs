//! Reads of data blocks from flash: by requests, by destage, by reclaim.
//!
//! Invariant: while a read is under way its segment says so, and is not filled again. Each
//! [`Engine::read_flash`] is met by one [`Engine::flash_was_read`].

use headpond_base::{BLOCK, Location};
use headpond_map::Slot;

use crate::effect::Effect;
use crate::engine::{Engine, Pending};
use crate::store::Store;

impl Store {
    /// Whether `next` lies on flash where the block after `blocks` ones from `first` on lies, so that one read
    /// takes them all.
    pub(crate) fn lies_behind(&self, first: Slot, blocks: usize, next: Slot) -> bool {
        next.location.0 == first.location.0 + blocks as u32
            && self.segment_of(next.location) == self.segment_of(first.location)
    }
}

impl Engine {
    /// Starts to read `blocks` blocks from `at` on, all of one segment.
    pub(crate) fn read_flash(&mut self, at: Location, blocks: usize, pending: Pending) {
        let segment = self.store.segment_of(at);
        self.store.log.segments_mut().get_mut(segment).under_way += 1;
        let offset = self.store.log.geometry().byte_of(at);
        let len = u32::try_from(blocks * BLOCK).expect("a read is at most a segment");
        self.start(pending, |ticket| Effect::FlashRead { ticket, offset, len });
    }

    /// A read that began at `at` is over, with or without its bytes.
    pub(crate) fn flash_was_read(&mut self, at: Location) {
        let segment = self.store.segment_of(at);
        self.store.log.segments_mut().get_mut(segment).under_way -= 1;
    }
}
