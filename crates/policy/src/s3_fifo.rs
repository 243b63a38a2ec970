//! S3-FIFO (Yang and others, SOSP 2023): three queues, and a hit only counts.
//!
//! A block comes into a small queue, a tenth of the room. At its end, a block used at least twice moves to the main
//! queue. Any other leaves, and only its name is remembered. A block that comes back while its name is remembered goes
//! to the main queue at once. Blocks of the main queue that were used since they last came by its end go round again,
//! up to three times.
//!
//! A scan uses each block once. It passes through the small queue and leaves the main one alone. 22 bytes a block, and
//! as much for each name; there are nine tenths as many names as blocks.

use crate::aside::{self, FIRST, HELD};
use crate::nodes::{ListId, Nodes};
use crate::{Admitted, Evicted, Host, Insertion, Key, Replacement};

const SMALL: ListId = 0;
const MAIN: ListId = 1;
/// Names only.
const GHOST: ListId = 2;

/// Uses in the small queue that make a block worth the main one.
const USES_FOR_MAIN: u8 = 2;
/// How often a block of the main queue may go round for earlier uses.
const ROUNDS_MAX: u8 = 3;

/// The policy S3-FIFO.
pub struct S3Fifo {
    nodes: Nodes,
    capacity: usize,
    main: usize,
    ghosts: usize,
}

impl S3Fifo {
    /// Keeps up to `capacity` blocks.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        let (small, ghosts) = (capacity / 10, capacity / 10 * 9 + capacity % 10 * 9 / 10);
        Self { nodes: Nodes::new(capacity + ghosts + 1), capacity, main: capacity - small.max(1), ghosts }
    }

    fn kept(&self, key: Key) -> Option<u32> {
        self.nodes.find(key).filter(|slot| self.nodes.list(*slot) != GHOST)
    }

    fn remember(&mut self, slot: u32) {
        self.nodes.move_to(slot, GHOST);
        if self.nodes.len(GHOST) > self.ghosts
            && let Some(oldest) = self.nodes.tail(GHOST)
        {
            self.nodes.remove(oldest);
        }
    }

    /// Evicts from the main queue, or puts one block aside.
    fn step_main(&mut self, host: &mut dyn Host) -> Option<Key> {
        while let Some(slot) = self.nodes.tail(MAIN) {
            let uses = self.nodes.count(slot);
            if uses > 0 {
                self.nodes.set_count(slot, uses.min(ROUNDS_MAX) - 1);
                self.nodes.move_to(slot, MAIN);
            } else if host.evictable(self.nodes.key(slot)) {
                return Some(self.nodes.remove(slot));
            } else {
                self.nodes.move_to(slot, HELD);
                return None;
            }
        }
        None
    }

    /// Evicts from the small queue, or puts one block aside, or moves all of it on.
    fn step_small(&mut self, host: &mut dyn Host) -> Option<Key> {
        while let Some(slot) = self.nodes.tail(SMALL) {
            let key = self.nodes.key(slot);
            if self.nodes.count(slot) >= USES_FOR_MAIN {
                self.nodes.set_count(slot, 0);
                self.nodes.move_to(slot, MAIN);
            } else if host.evictable(key) {
                self.remember(slot);
                return Some(key);
            } else {
                self.nodes.move_to(slot, HELD);
                return None;
            }
        }
        None
    }
}

impl Replacement for S3Fifo {
    fn capacity(&self) -> usize {
        self.capacity
    }

    fn len(&self) -> usize {
        [SMALL, MAIN, HELD, FIRST].into_iter().map(|list| self.nodes.len(list)).sum()
    }

    fn contains(&self, key: Key) -> bool {
        self.kept(key).is_some()
    }

    fn touch(&mut self, key: Key) -> bool {
        let Some(slot) = self.kept(key) else { return false };
        self.nodes.set_count(slot, self.nodes.count(slot).saturating_add(1));
        true
    }

    fn admit(&mut self, key: Key, insertion: Insertion, host: &mut dyn Host) -> Admitted {
        if insertion == Insertion::Read && !host.fill(key) {
            return Admitted::Refused;
        }
        let remembered = self.nodes.find(key);
        if let Some(slot) = remembered {
            self.nodes.remove(slot);
        }
        if self.len() >= self.capacity && self.evict(host).is_none() {
            return Admitted::Refused;
        }
        self.nodes.insert(key, if remembered.is_some() { MAIN } else { SMALL });
        Admitted::Flash
    }

    fn evict(&mut self, host: &mut dyn Host) -> Option<Key> {
        loop {
            let key = if self.nodes.tail(FIRST).is_some() {
                aside::oldest(&mut self.nodes, FIRST, host).map(|slot| self.nodes.remove(slot))
            } else if self.nodes.len(MAIN) > self.main || self.nodes.len(SMALL) == 0 {
                self.nodes.tail(MAIN)?;
                self.step_main(host)
            } else {
                self.step_small(host)
            };
            if let Some(key) = key {
                host.evicted(key);
                return Some(key);
            }
        }
    }

    fn release(&mut self, key: Key) {
        // Used while it was held: it is worth the main queue.
        match self.nodes.find(key).filter(|slot| self.nodes.list(*slot) == HELD) {
            Some(slot) if self.nodes.count(slot) > 0 => {
                self.nodes.set_count(slot, 0);
                self.nodes.move_to(slot, MAIN);
            }
            _ => aside::release(&mut self.nodes, key),
        }
    }

    fn forget(&mut self, key: Key) -> Option<Evicted> {
        let slot = self.kept(key)?;
        Some(Evicted { key: self.nodes.remove(slot), in_memory: false })
    }

    fn take(&mut self) -> Option<Evicted> {
        let slot = [FIRST, SMALL, HELD, MAIN].into_iter().find_map(|list| self.nodes.tail(list))?;
        Some(Evicted { key: self.nodes.remove(slot), in_memory: false })
    }

    fn memory(&self) -> usize {
        self.nodes.memory()
    }
}
