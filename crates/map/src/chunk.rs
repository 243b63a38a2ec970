//! The packed slots of 512 neighbouring blocks, sorted by position.

use crate::slot::{Packed, SLOT_BYTES, Slot};

/// Blocks of one chunk. A position takes nine bits, which leaves seven for flags. An insertion into a full chunk moves
/// at most five kilobytes, in a tenth of a microsecond.
pub const CHUNK_BLOCKS: u64 = 512;

/// A chunk in a map is never empty.
#[derive(Default, Clone)]
pub(crate) struct Chunk {
    slots: Vec<Packed>,
    dirty: u16,
}

impl Chunk {
    /// Where a position is, or would be. Each slot has a position of its own. So a slot's index is at most its
    /// position, and at least its position less the gaps. In a full chunk that leaves one place; in others the search
    /// touches no more memory than needed. (A search over all five kilobytes misses the processor's cache at nearly
    /// each step.)
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
                    // Grows by a twelfth, not to the double, and not beyond a full chunk: every user pays for slack.
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

    /// Appends the wanted slots. Returns how many.
    pub(crate) fn encode(&self, out: &mut Vec<u8>, mut wanted: impl FnMut(&Slot) -> bool) -> usize {
        let start = out.len();
        for packed in self.slots.iter().filter(|packed| wanted(&packed.slot())) {
            out.extend_from_slice(packed.bytes());
        }
        (out.len() - start) / SLOT_BYTES
    }

    /// Decodes packed slots; `None` unless they are sorted, without repetition, and make sense.
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
