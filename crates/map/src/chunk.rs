//! The slots of 512 neighbouring blocks, sorted by position, packed.

use crate::slot::{Packed, SLOT_BYTES, Slot};

/// Blocks that one chunk covers. Nine bits of position leave seven for flags; and an insertion
/// into a full chunk moves five kilobytes at most, a tenth of a microsecond.
pub const CHUNK_BLOCKS: u64 = 512;

/// Never empty while it is in a map.
#[derive(Default, Clone)]
pub(crate) struct Chunk {
    slots: Vec<Packed>,
    dirty: u16,
}

impl Chunk {
    /// Where a position is, or would be. Every slot is for a position of its own, so one can be no
    /// further on than its position, and no further back than the gaps before it allow: in a full chunk
    /// that is one place, and in none is more memory touched than has to be. (A search over all of five
    /// kilobytes misses the processor's cache at nearly each step.)
    fn find(&self, position: u16) -> Result<usize, usize> {
        let (len, at) = (self.slots.len(), usize::from(position));
        let gaps = CHUNK_BLOCKS as usize - len;
        let end = len.min(at + 1);
        let start = at.saturating_sub(gaps).min(end);
        let found = self.slots[start..end].binary_search_by_key(&position, |packed| packed.position());
        found.map(|index| start + index).map_err(|index| start + index)
    }

    pub(crate) const fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) const fn dirty(&self) -> u16 {
        self.dirty
    }

    pub(crate) fn get(&self, position: u16) -> Option<Slot> {
        self.find(position).ok().map(|index| self.slots[index].slot())
    }

    pub(crate) fn insert(&mut self, position: u16, slot: Slot) -> Option<Slot> {
        self.dirty += u16::from(slot.dirty);
        match self.find(position) {
            Ok(index) => {
                let old = std::mem::replace(&mut self.slots[index], Packed::new(position, slot)).slot();
                self.dirty -= u16::from(old.dirty);
                Some(old)
            }
            Err(index) => {
                if self.slots.len() == self.slots.capacity() {
                    // A twelfth, not double, and no more than there can be: slack is memory that every user pays for.
                    let room = CHUNK_BLOCKS as usize - self.slots.len();
                    self.slots.reserve_exact((self.slots.len() / 12 + 2).min(room));
                }
                self.slots.insert(index, Packed::new(position, slot));
                None
            }
        }
    }

    pub(crate) fn remove(&mut self, position: u16) -> Option<Slot> {
        let old = self.slots.remove(self.find(position).ok()?).slot();
        self.dirty -= u16::from(old.dirty);
        if self.slots.capacity() > self.slots.len() * 2 + 8 {
            self.slots.shrink_to(self.slots.len() + self.slots.len() / 12);
        }
        Some(old)
    }

    /// Slots from `position` on, in order.
    pub(crate) fn from(&self, position: u16) -> impl Iterator<Item = (u16, Slot)> {
        let start = self.find(position).unwrap_or_else(|index| index);
        self.slots[start..].iter().map(|packed| (packed.position(), packed.slot()))
    }

    /// Appends the slots that are wanted; answers with how many.
    pub(crate) fn encode(&self, out: &mut Vec<u8>, mut wanted: impl FnMut(&Slot) -> bool) -> usize {
        let start = out.len();
        for packed in self.slots.iter().filter(|packed| wanted(&packed.slot())) {
            out.extend_from_slice(packed.bytes());
        }
        (out.len() - start) / SLOT_BYTES
    }

    /// Takes packed slots; `None` unless they are sorted, without repetition, and can be.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (slots, rest) = bytes.as_chunks::<SLOT_BYTES>();
        let slots: Vec<_> = slots.iter().map(|bytes| Packed::from_bytes(*bytes)).collect();
        let sorted = slots.is_sorted_by(|one, next| one.position() < next.position());
        let sorted = sorted && slots.iter().all(|packed| packed.makes_sense());
        let dirty = slots.iter().filter(|packed| packed.dirty()).count();
        (rest.is_empty() && sorted && !slots.is_empty())
            .then(|| Self { dirty: u16::try_from(dirty).unwrap_or(u16::MAX), slots })
    }

    pub(crate) fn memory(&self) -> usize {
        size_of::<Self>() + self.slots.capacity() * SLOT_BYTES
    }
}
