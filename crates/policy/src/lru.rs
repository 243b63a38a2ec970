//! The least recently used block goes first. Adapts at once to present use, and forgets everything in one scan. 22
//! bytes a block.

use crate::aside::{self, FIRST, HELD};
use crate::nodes::{ListId, Nodes};
use crate::{Admitted, Evicted, Host, Insertion, Key, Replacement};

const ORDER: ListId = 0;

/// The policy LRU.
pub struct Lru {
    nodes: Nodes,
    capacity: usize,
}

impl Lru {
    /// Keeps up to `capacity` blocks.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self { nodes: Nodes::new(capacity), capacity }
    }
}

impl Replacement for Lru {
    fn capacity(&self) -> usize {
        self.capacity
    }

    fn len(&self) -> usize {
        self.nodes.len(ORDER) + self.nodes.len(HELD) + self.nodes.len(FIRST)
    }

    fn contains(&self, key: Key) -> bool {
        self.nodes.find(key).is_some()
    }

    fn touch(&mut self, key: Key) -> bool {
        let found = self.nodes.find(key);
        if let Some(slot) = found {
            self.nodes.move_to(slot, ORDER);
        }
        found.is_some()
    }

    fn admit(&mut self, key: Key, insertion: Insertion, host: &mut dyn Host) -> Admitted {
        if insertion == Insertion::Read && !host.fill(key) || self.nodes.is_full() && self.evict(host).is_none() {
            return Admitted::Refused;
        }
        self.nodes.insert(key, ORDER);
        Admitted::Flash
    }

    fn evict(&mut self, host: &mut dyn Host) -> Option<Key> {
        let key = aside::oldest(&mut self.nodes, ORDER, host).map(|slot| self.nodes.remove(slot))?;
        host.evicted(key);
        Some(key)
    }

    fn release(&mut self, key: Key) {
        aside::release(&mut self.nodes, key);
    }

    fn forget(&mut self, key: Key) -> Option<Evicted> {
        let slot = self.nodes.find(key)?;
        Some(Evicted { key: self.nodes.remove(slot), in_memory: false })
    }

    fn take(&mut self) -> Option<Evicted> {
        let slot = [FIRST, HELD, ORDER].into_iter().find_map(|list| self.nodes.tail(list))?;
        Some(Evicted { key: self.nodes.remove(slot), in_memory: false })
    }

    fn memory(&self) -> usize {
        self.nodes.memory()
    }
}
