//! Blocks in memory, until they have shown that they are worth a write to flash: the window of `adaptive`, and, where
//! flash has no room to spare, what came along with a miss and nobody has asked for.
//!
//! For the window the policy says what comes here (`Admitted::Memory`), when it moves on to flash (`Host::fill`), and
//! when it goes (`Host::evicted`). What nobody has asked for goes first in, first out, and is not known to the policy;
//! the first who asks for it brings it in as a miss would, without a read of the origin.
//!
//! Invariants:
//! - Only bytes that the origin has, of blocks for which the map has no slot. So nothing here can hide anything newer,
//!   and a crash loses nothing.
//! - Whatever changes a block drops it here in the same step (`Engine::poison`).
//! - Every block here is known to the policy as one in memory, but for those that moved on in this cycle of the engine,
//!   and those that nobody has asked for.
//! - Memory for so many blocks as were ever here at once, which the policy and `unasked_most` of `Keep` bound; given
//!   back when none is left.

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasherDefault;

use headpond_base::{BLOCK, Block, BufMut, ObjectId};
use headpond_policy::Key;

use crate::key::{block_of, key_of};
use crate::locks::Span;
use crate::spread::Spread;

/// Blocks whose memory is taken at once.
const CHUNK: usize = 64;

/// A block's place in the window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct HeldBlock {
    place: u32,
    /// It is to be written to flash in this cycle.
    moves_on: bool,
    /// Its number, while nobody has asked for it.
    unasked: Option<u64>,
}

impl HeldBlock {
    /// Whether nobody has asked for it.
    pub(crate) const fn is_unasked(self) -> bool {
        self.unasked.is_some()
    }
}

/// The blocks, and their memory. Owned by the store.
#[derive(Default)]
pub(crate) struct MemoryWindow {
    held: HashMap<Key, HeldBlock, BuildHasherDefault<Spread>>,
    chunks: Vec<BufMut>,
    free: Vec<u32>,
    moved_on: Vec<Key>,
    /// What nobody asked for, oldest first, with its number; and what was, or has gone since.
    unasked: VecDeque<(Key, u64)>,
    /// How many nobody has asked for.
    unasked_len: usize,
    numbered: u64,
    /// Objects that have lost the last of their blocks here.
    emptied: Vec<ObjectId>,
}

impl MemoryWindow {
    /// How many blocks are here.
    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }

    /// How many are here that nobody has asked for.
    pub(crate) const fn unasked(&self) -> usize {
        self.unasked_len
    }

    /// Where a block is, if it is here.
    pub(crate) fn find(&self, object: ObjectId, block: Block) -> Option<HeldBlock> {
        if self.held.is_empty() {
            return None;
        }
        self.held.get(&key_of(object, block)?).copied()
    }

    /// A block's bytes.
    pub(crate) fn bytes(&self, held: HeldBlock) -> &[u8] {
        let (chunk, from) = place_of(held.place);
        &self.chunks[chunk][from..from + BLOCK]
    }

    /// The policy lets a block move on to flash. Nothing happens if it is not here: then it comes there straight away.
    pub(crate) fn moves_on(&mut self, key: Key) {
        if let Some(held) = self.held.get_mut(&key) {
            held.moves_on = true;
            self.moved_on.push(key);
        }
    }

    /// A block does not move on after all.
    pub(crate) fn stays(&mut self, key: Key) {
        if let Some(held) = self.held.get_mut(&key) {
            held.moves_on = false;
        }
    }

    /// A request has asked for a block.
    pub(crate) fn was_asked_for(&mut self, key: Key) {
        if let Some(held) = self.held.get_mut(&key) {
            self.unasked_len -= usize::from(held.unasked.take().is_some());
        }
    }

    /// The oldest that nobody has asked for, if they are more than so many.
    pub(crate) fn too_many_unasked(&mut self, most: usize) -> Option<Key> {
        while let Some((key, number)) = self.unasked.front().copied() {
            if self.held.get(&key).is_none_or(|held| held.unasked != Some(number)) {
                self.unasked.pop_front();
                continue;
            }
            return (self.unasked_len > most).then_some(key);
        }
        None
    }

    /// Takes a block in, whose last bytes are zeros if `bytes` are fewer; `false` if it was here.
    pub(crate) fn insert(&mut self, key: Key, bytes: &[u8], asked: bool) -> bool {
        self.was_asked_for(key);
        let known = self.held.get(&key).map(|held| held.place);
        let place = known.or_else(|| self.free.pop()).unwrap_or_else(|| self.more());
        let (chunk, from) = place_of(place);
        let memory = &mut self.chunks[chunk][from..from + BLOCK];
        memory[..bytes.len()].copy_from_slice(bytes);
        memory[bytes.len()..].fill(0);
        let unasked = (!asked).then(|| self.number(key));
        self.held.insert(key, HeldBlock { place, moves_on: false, unasked });
        known.is_none()
    }

    /// Puts a block behind all others that nobody asked for.
    fn number(&mut self, key: Key) -> u64 {
        if self.unasked.len() >= 2 * self.unasked_len + CHUNK {
            // Half of the list is of blocks that are none any more.
            let held = &self.held;
            self.unasked.retain(|(key, number)| held.get(key).is_some_and(|held| held.unasked == Some(*number)));
        }
        self.numbered += 1;
        self.unasked_len += 1;
        self.unasked.push_back((key, self.numbered));
        self.numbered
    }

    /// Memory for more; answers with one place of it, and the others are free.
    fn more(&mut self) -> u32 {
        let first = self.chunks.len() * CHUNK;
        self.chunks.push(BufMut::unwritten(CHUNK * BLOCK));
        let places = first..first + CHUNK;
        self.free.extend(places.skip(1).rev().map(|place| u32::try_from(place).expect("the window is small")));
        u32::try_from(first).expect("the window is small")
    }

    pub(crate) fn remove(&mut self, key: Key) -> bool {
        self.was_asked_for(key);
        let Some(held) = self.held.remove(&key) else { return false };
        self.free.push(held.place);
        if self.held.is_empty() {
            self.chunks = Vec::new();
            self.free = Vec::new();
            self.unasked = VecDeque::new();
        }
        true
    }

    /// The blocks of an object in `span` that are here.
    pub(crate) fn within(&self, object: ObjectId, span: Span) -> Vec<Key> {
        if self.held.is_empty() {
            return Vec::new();
        }
        if span.blocks() <= self.held.len() as u64 {
            let keys = (span.first.0..span.end.0).filter_map(|block| key_of(object, Block(block)));
            return keys.filter(|key| self.held.contains_key(key)).collect();
        }
        let inside = |key: &Key| {
            let (of, block) = block_of(*key);
            of == object && span.contains(block)
        };
        let mut keys: Vec<Key> = self.held.keys().copied().filter(inside).collect();
        keys.sort_unstable();
        keys
    }

    /// Blocks that the policy let move on since the last call, in order, as far as they are still here.
    pub(crate) fn take_moved_on(&mut self) -> Vec<Key> {
        let mut keys = std::mem::take(&mut self.moved_on);
        keys.retain(|key| self.held.get(key).is_some_and(|held| held.moves_on));
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// The last block of an object has gone.
    pub(crate) fn note_empty_of(&mut self, object: ObjectId) {
        self.emptied.push(object);
    }

    /// Objects of which the last block has gone since the last call.
    pub(crate) fn take_emptied(&mut self) -> Vec<ObjectId> {
        std::mem::take(&mut self.emptied)
    }

    /// The bytes of a block that is here.
    pub(crate) fn bytes_of(&self, key: Key) -> &[u8] {
        self.bytes(self.held[&key])
    }
}

const fn place_of(place: u32) -> (usize, usize) {
    (place as usize / CHUNK, place as usize % CHUNK * BLOCK)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(block: u64) -> Key {
        key_of(ObjectId(1), Block(block)).expect("a small one")
    }

    #[test]
    fn what_nobody_asks_for_goes_first_in_first_out_and_what_was_asked_for_stays() {
        let mut window = MemoryWindow::default();
        (0..10).for_each(|block| assert!(window.insert(key(block), &[1], false)));
        assert_eq!(window.too_many_unasked(10), None);
        window.was_asked_for(key(0));
        assert_eq!(window.too_many_unasked(9), None);
        assert_eq!(window.too_many_unasked(8), Some(key(1)), "the oldest of those that nobody asked for");
        window.remove(key(1));
        // Again, and now as the newest.
        window.insert(key(2), &[2], false);
        assert_eq!(window.too_many_unasked(7), Some(key(3)));
        assert!(window.held.contains_key(&key(0)));
    }

    #[test]
    fn the_list_of_what_nobody_asked_for_is_no_longer_than_twice_what_there_is_of_it() {
        let mut window = MemoryWindow::default();
        window.insert(key(0), &[1], false);
        for block in 1..10_000 {
            window.insert(key(block), &[1], false);
            window.was_asked_for(key(block));
            assert!(window.unasked.len() <= 2 + CHUNK + 1, "{}", window.unasked.len());
        }
        (0..10_000).for_each(|block| assert!(window.remove(key(block))));
        assert_eq!((window.unasked_len, window.unasked.len(), window.chunks.len()), (0, 0, 0));
    }
}
