//! From keys to slots: an open-addressed table of slot numbers.
//!
//! Invariants:
//! - It holds slot numbers, not keys. The slots have the keys, so an entry takes four bytes.
//! - It is made for a number of slots and never grows. At most seven eighths are in use, so a search is short. At the
//!   worst fill, linear probing looks at 4.5 entries on average for a hit and at 32 for a miss, side by side.

use crate::Key;
use crate::key::place;

/// A free entry. Stored numbers are one larger than slot numbers. So fresh memory from the system is an empty table,
/// and is not touched before use.
const FREE: u32 = 0;

pub(crate) struct Index {
    entries: Vec<u32>,
}

impl Index {
    /// A table for up to `slots` keys.
    pub(crate) fn new(slots: usize) -> Self {
        Self { entries: vec![FREE; slots + slots / 7 + 8] }
    }

    pub(crate) fn memory(&self) -> usize {
        self.entries.len() * size_of::<u32>()
    }

    fn home(&self, key: Key) -> usize {
        place(key.hash(), self.entries.len())
    }

    const fn after(&self, at: usize) -> usize {
        if at + 1 == self.entries.len() { 0 } else { at + 1 }
    }

    /// Where the key's entry is, or would be.
    fn search(&self, key: Key, key_of: impl Fn(u32) -> Key) -> usize {
        let mut at = self.home(key);
        while self.entries[at] != FREE && key_of(self.entries[at] - 1) != key {
            at = self.after(at);
        }
        at
    }

    pub(crate) fn find(&self, key: Key, key_of: impl Fn(u32) -> Key) -> Option<u32> {
        self.entries[self.search(key, key_of)].checked_sub(1)
    }

    /// Points a key to a slot. The key may be in the table already.
    pub(crate) fn set(&mut self, key: Key, slot: u32, key_of: impl Fn(u32) -> Key) {
        let at = self.search(key, key_of);
        self.entries[at] = slot + 1;
    }

    /// Removes a key. `key_of` must still know the keys of all slots.
    pub(crate) fn remove(&mut self, key: Key, key_of: impl Fn(u32) -> Key) {
        let mut hole = self.search(key, &key_of);
        if self.entries[hole] == FREE {
            return;
        }
        // Entries that were pushed past the hole move into it, so every search still ends right.
        let mut at = self.after(hole);
        while self.entries[at] != FREE {
            let home = self.home(key_of(self.entries[at] - 1));
            let stays = if hole < at { hole < home && home <= at } else { hole < home || home <= at };
            if !stays {
                self.entries[hole] = self.entries[at];
                hole = at;
            }
            at = self.after(at);
        }
        self.entries[hole] = FREE;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        #[test]
        fn it_finds_what_a_map_finds(steps in proptest::collection::vec((0..40_u64, any::<bool>()), 0..300)) {
            // Few keys and a small table: long runs of neighbours, and wrapping round its end.
            let (mut index, mut map, mut keys) = (Index::new(40), HashMap::new(), Vec::new());
            for (number, insert) in steps {
                let key = Key(number);
                if insert {
                    keys.push(key);
                    let slot = u32::try_from(keys.len() - 1).unwrap();
                    index.set(key, slot, |slot| keys[slot as usize]);
                    map.insert(key, slot);
                } else {
                    index.remove(key, |slot| keys[slot as usize]);
                    map.remove(&key);
                }
                for number in 0..40 {
                    prop_assert_eq!(index.find(Key(number), |slot| keys[slot as usize]), map.get(&Key(number)).copied());
                }
            }
        }
    }
}
