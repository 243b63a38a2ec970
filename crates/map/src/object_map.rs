//! The map of one object: its chunks, in order of their blocks.

use std::collections::BTreeMap;

use headpond_base::Block;

use crate::chunk::{CHUNK_BLOCKS, Chunk};
use crate::slot::Slot;

/// All slots of one object.
#[derive(Default)]
pub struct ObjectMap {
    chunks: BTreeMap<u64, Chunk>,
    blocks: u64,
    dirty: u64,
    memory: usize,
}

/// The chunk of a block, and the block's position in it.
#[allow(clippy::cast_possible_truncation)] // the remainder is below 512
const fn place(block: Block) -> (u64, u16) {
    (block.0 / CHUNK_BLOCKS, (block.0 % CHUNK_BLOCKS) as u16)
}

const fn block_at(chunk: u64, position: u16) -> Block {
    Block(chunk * CHUNK_BLOCKS + position as u64)
}

impl ObjectMap {
    /// How many blocks have a slot.
    #[must_use]
    pub const fn blocks(&self) -> u64 {
        self.blocks
    }

    /// How many blocks are dirty.
    #[must_use]
    pub const fn dirty(&self) -> u64 {
        self.dirty
    }

    /// A block's slot.
    #[must_use]
    pub fn get(&self, block: Block) -> Option<Slot> {
        let (chunk, position) = place(block);
        self.chunks.get(&chunk)?.get(position)
    }

    /// Gives a block a slot. Returns the one it had.
    pub fn insert(&mut self, block: Block, slot: Slot) -> Option<Slot> {
        let (chunk, position) = place(block);
        let mut made = false;
        let chunk = self.chunks.entry(chunk).or_insert_with(|| {
            made = true;
            Chunk::default()
        });
        let before = if made { 0 } else { cost(chunk) };
        let old = chunk.insert(position, slot);
        self.memory = self.memory + cost(chunk) - before;
        self.blocks += u64::from(old.is_none());
        self.dirty += u64::from(slot.dirty);
        self.dirty -= u64::from(old.is_some_and(|old| old.dirty));
        old
    }

    /// Removes a block's slot. Returns it.
    pub fn remove(&mut self, block: Block) -> Option<Slot> {
        let (number, position) = place(block);
        let chunk = self.chunks.get_mut(&number)?;
        let before = cost(chunk);
        let old = chunk.remove(position)?;
        let after = if chunk.len() == 0 { 0 } else { cost(chunk) };
        if chunk.len() == 0 {
            self.chunks.remove(&number);
        }
        self.memory = self.memory + after - before;
        self.blocks -= 1;
        self.dirty -= u64::from(old.dirty);
        Some(old)
    }

    /// The slots of the blocks from `first` up to but not including `end`, in order.
    pub fn range(&self, first: Block, end: Block) -> impl Iterator<Item = (Block, Slot)> {
        let (first_chunk, position) = place(first);
        self.chunks
            .range(first_chunk..)
            .flat_map(move |(number, chunk)| {
                let from = if *number == first_chunk { position } else { 0 };
                chunk.from(from).map(move |(position, slot)| (block_at(*number, position), slot))
            })
            .take_while(move |(block, _)| *block < end)
    }

    /// The dirty slots from `first` on, in order. Skips chunks without dirty slots.
    pub fn dirty_from(&self, first: Block) -> impl Iterator<Item = (Block, Slot)> {
        let (first_chunk, position) = place(first);
        self.chunks.range(first_chunk..).filter(|(_, chunk)| chunk.dirty() > 0).flat_map(move |(number, chunk)| {
            let from = if *number == first_chunk { position } else { 0 };
            let dirty = chunk.from(from).filter(|(_, slot)| slot.dirty);
            dirty.map(move |(position, slot)| (block_at(*number, position), slot))
        })
    }

    /// Appends the first chunk with number `from` or more to `out`, as number (u32), count (u16) and packed slots.
    /// Returns its number, or `None` if there is no such chunk.
    ///
    /// # Panics
    /// When the object is larger than 2^53 bytes. The doors allow none.
    pub fn encode_chunk(&self, from: u64, out: &mut Vec<u8>) -> Option<u64> {
        self.encode_some(from, out, |_| true)
    }

    /// Like [`ObjectMap::encode_chunk`], with only the slots that `wanted` takes. Appends nothing for a chunk without
    /// such slots.
    ///
    /// # Panics
    /// See [`ObjectMap::encode_chunk`].
    pub fn encode_some(&self, from: u64, out: &mut Vec<u8>, wanted: impl FnMut(&Slot) -> bool) -> Option<u64> {
        let (number, chunk) = self.chunks.range(from..).next()?;
        let start = out.len();
        out.extend_from_slice(&u32::try_from(*number).expect("objects are below 2^53 bytes").to_le_bytes());
        out.extend_from_slice(&[0; 2]);
        let count = u16::try_from(chunk.encode(out, wanted)).expect("a chunk has 512 slots at most");
        out[start + 4..start + 6].copy_from_slice(&count.to_le_bytes());
        if count == 0 {
            out.truncate(start);
        }
        Some(*number)
    }

    /// How many chunks have a slot.
    #[must_use]
    pub fn chunks(&self) -> u64 {
        self.chunks.len() as u64
    }

    /// Decodes a chunk's packed slots from a checkpoint. Returns `false`, and changes nothing, if they make no sense
    /// or the map has this chunk already.
    pub fn decode_chunk(&mut self, number: u32, bytes: &[u8]) -> bool {
        let number = u64::from(number);
        let Some(chunk) = Chunk::decode(bytes).filter(|_| !self.chunks.contains_key(&number)) else {
            return false;
        };
        self.blocks += chunk.len() as u64;
        self.dirty += u64::from(chunk.dirty());
        self.memory += cost(&chunk);
        self.chunks.insert(number, chunk);
        true
    }

    /// Bytes of memory that the map takes, without the allocator's overhead. Kept and not counted: a query must not
    /// hold up requests in proportion to the cache's size.
    #[must_use]
    pub const fn memory(&self) -> usize {
        self.memory
    }
}

/// Bytes of memory that a chunk takes.
fn cost(chunk: &Chunk) -> usize {
    // A B-tree node has room for 11 entries and is two thirds full on average.
    chunk.memory() + 12
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_base::{Class, Location};
    use proptest::prelude::*;

    /// The oracle: an array with an element for each block.
    const SPAN: u64 = 3 * CHUNK_BLOCKS;

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u64, u32, bool),
        Remove(u64),
        Reload,
    }

    fn any_step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => (0..SPAN, any::<u32>(), any::<bool>()).prop_map(|(block, at, dirty)| Step::Insert(block, at, dirty)),
            3 => (0..SPAN).prop_map(Step::Remove),
            1 => Just(Step::Reload),
        ]
    }

    fn reloaded(map: &ObjectMap) -> ObjectMap {
        let (mut bytes, mut next, mut copy) = (Vec::new(), 0, ObjectMap::default());
        while let Some(number) = map.encode_chunk(next, &mut bytes) {
            assert!(copy.decode_chunk(u32::try_from(number).unwrap(), &bytes[6..]));
            bytes.clear();
            next = number + 1;
        }
        copy
    }

    proptest! {
        #[test]
        fn the_map_agrees_with_an_array(steps in proptest::collection::vec(any_step(), 0..400), from in 0..SPAN, len in 0..SPAN) {
            let mut map = ObjectMap::default();
            let mut array: Vec<Option<Slot>> = vec![None; SPAN as usize];
            for step in steps {
                match step {
                    Step::Insert(block, at, dirty) => {
                        let slot = Slot { location: Location(at.into()), checksum: at ^ 7, packed: false, dirty, kept: at % 3 == 0, class: Class::from_bits(at as u8) };
                        prop_assert_eq!(map.insert(Block(block), slot), array[block as usize].replace(slot));
                    }
                    Step::Remove(block) => prop_assert_eq!(map.remove(Block(block)), array[block as usize].take()),
                    Step::Reload => map = reloaded(&map),
                }
            }
            let expected = |keep: &dyn Fn(&Slot) -> bool, from: u64, end: u64| -> Vec<_> {
                (from..end.min(SPAN)).filter_map(|block| array[block as usize].filter(|slot| keep(slot)).map(|slot| (Block(block), slot))).collect()
            };
            prop_assert_eq!(map.memory(), map.chunks.values().map(cost).sum::<usize>());
            prop_assert_eq!(map.blocks() as usize, array.iter().flatten().count());
            prop_assert_eq!(map.dirty() as usize, array.iter().flatten().filter(|slot| slot.dirty).count());
            prop_assert_eq!(map.range(Block(from), Block(from + len)).collect::<Vec<_>>(), expected(&|_| true, from, from + len));
            prop_assert_eq!(map.dirty_from(Block(from)).collect::<Vec<_>>(), expected(&|slot| slot.dirty, from, SPAN));
        }
    }

    #[test]
    fn random_blocks_cost_at_most_twelve_bytes_each() {
        let (mut map, mut state) = (ObjectMap::default(), 1_u64);
        for written in 1..=5_000_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let slot = Slot {
                location: Location(7),
                checksum: 0,
                packed: false,
                dirty: true,
                kept: false,
                class: Class::EVERYBODY,
            };
            map.insert(Block((state >> 33) % 1_000_000), slot);
            // From a fifth of the blocks up to nearly all.
            if written % 250_000 == 0 {
                let each = map.memory() as f64 / map.blocks() as f64;
                assert!(each <= 12.0, "{each} bytes a block after {written} writes");
            }
        }
    }
}
