//! Blocks in several doubly linked lists, with an index by key. The exact policies are built on it.
//!
//! Invariants:
//! - A block is in exactly one list.
//! - Slots and links are numbers into arrays of fixed size: 17 bytes a block, and 4.6 in the index.

use crate::Key;
use crate::index::Index;

/// No slot.
const NIL: u32 = u32::MAX;

/// A list's number. Its policy gives it a meaning.
pub(crate) type ListId = u8;

/// Lists that a policy may have.
const LISTS: usize = 6;
/// A slot's state has the list in its low bits and the count above.
const LIST_BITS: u8 = 3;
/// A block's count of uses stops here.
pub(crate) const COUNT_MAX: u8 = 31;

#[derive(Clone, Copy)]
struct List {
    head: u32,
    tail: u32,
    len: usize,
}

pub(crate) struct Nodes {
    keys: Vec<u64>,
    /// Towards the head. In free slots: the next free one.
    newer: Vec<u32>,
    older: Vec<u32>,
    states: Vec<u8>,
    lists: [List; LISTS],
    free: u32,
    used: usize,
    index: Index,
}

impl Nodes {
    pub(crate) fn new(slots: usize) -> Self {
        assert!(slots > 0 && slots < NIL as usize, "a policy keeps between one block and 2^32 - 2");
        Self {
            keys: vec![0; slots],
            newer: vec![0; slots],
            older: vec![0; slots],
            states: vec![0; slots],
            lists: [List { head: NIL, tail: NIL, len: 0 }; LISTS],
            free: NIL,
            used: 0,
            index: Index::new(slots),
        }
    }

    pub(crate) fn memory(&self) -> usize {
        self.keys.len() * 17 + self.index.memory()
    }

    pub(crate) fn find(&self, key: Key) -> Option<u32> {
        self.index.find(key, |slot| Key(self.keys[slot as usize]))
    }

    pub(crate) fn key(&self, slot: u32) -> Key {
        Key(self.keys[slot as usize])
    }

    pub(crate) fn list(&self, slot: u32) -> ListId {
        self.states[slot as usize] & ((1 << LIST_BITS) - 1)
    }

    pub(crate) fn count(&self, slot: u32) -> u8 {
        self.states[slot as usize] >> LIST_BITS
    }

    pub(crate) fn set_count(&mut self, slot: u32, count: u8) {
        let state = &mut self.states[slot as usize];
        *state = *state & ((1 << LIST_BITS) - 1) | count.min(COUNT_MAX) << LIST_BITS;
    }

    pub(crate) const fn len(&self, list: ListId) -> usize {
        self.lists[list as usize].len
    }

    pub(crate) const fn is_full(&self) -> bool {
        self.free == NIL && self.used == self.keys.len()
    }

    /// The oldest block of a list.
    pub(crate) const fn tail(&self, list: ListId) -> Option<u32> {
        match self.lists[list as usize].tail {
            NIL => None,
            slot => Some(slot),
        }
    }

    /// Puts a block that is in no list at the head of one, with a count of zero.
    pub(crate) fn insert(&mut self, key: Key, list: ListId) -> u32 {
        let slot = if self.free == NIL {
            assert!(self.used < self.keys.len(), "a policy keeps no more than its capacity");
            self.used += 1;
            u32::try_from(self.used - 1).expect("slots are below 2^32")
        } else {
            let slot = self.free;
            self.free = self.newer[slot as usize];
            slot
        };
        self.keys[slot as usize] = key.0;
        self.states[slot as usize] = 0;
        let keys = &self.keys;
        self.index.set(key, slot, |slot| Key(keys[slot as usize]));
        self.link(slot, list);
        slot
    }

    /// Moves a block to a list's head.
    pub(crate) fn move_to(&mut self, slot: u32, list: ListId) {
        self.unlink(slot);
        self.link(slot, list);
    }

    /// Removes a block. Returns its key.
    pub(crate) fn remove(&mut self, slot: u32) -> Key {
        let key = self.key(slot);
        self.unlink(slot);
        let keys = &self.keys;
        self.index.remove(key, |slot| Key(keys[slot as usize]));
        self.newer[slot as usize] = self.free;
        self.free = slot;
        key
    }

    fn link(&mut self, slot: u32, list: ListId) {
        let at = slot as usize;
        self.states[at] = self.states[at] >> LIST_BITS << LIST_BITS | list;
        let ends = &mut self.lists[list as usize];
        self.newer[at] = NIL;
        self.older[at] = ends.head;
        match ends.head {
            NIL => ends.tail = slot,
            head => self.newer[head as usize] = slot,
        }
        ends.head = slot;
        ends.len += 1;
    }

    fn unlink(&mut self, slot: u32) {
        let (newer, older) = (self.newer[slot as usize], self.older[slot as usize]);
        let ends = &mut self.lists[self.states[slot as usize] as usize & ((1 << LIST_BITS) - 1)];
        match newer {
            NIL => ends.head = older,
            newer => self.older[newer as usize] = older,
        }
        match older {
            NIL => ends.tail = newer,
            older => self.newer[older as usize] = newer,
        }
        ends.len -= 1;
    }
}
