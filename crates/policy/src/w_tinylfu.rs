//! W-TinyLFU (Einziger, Friedman and Manes, 2017) with a window of a tenth.
//!
//! A block comes into the window, in order of use. When it falls out, it is compared with the block that the rest
//! would lose next, and the one with more uses stays. The rest is two lists: blocks on probation, and blocks that were
//! used again.
//!
//! The window is a tenth and not the usual hundredth: on cloud block traces a hundredth falls far behind first in,
//! first out for one trace in ten. 26 bytes a block with the sketch.

use crate::aside::{self, FIRST, HELD};
use crate::nodes::{ListId, Nodes};
use crate::sketch::Sketch;
use crate::{Admitted, Evicted, Host, Insertion, Key, Replacement};

const WINDOW: ListId = 0;
const PROBATION: ListId = 1;
const PROTECTED: ListId = 2;

/// The policy W-TinyLFU with a window of a tenth.
pub struct WTinyLfu {
    nodes: Nodes,
    sketch: Sketch,
    capacity: usize,
    window: usize,
    protected: usize,
}

impl WTinyLfu {
    /// Keeps up to `capacity` blocks.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        let window = (capacity / 10).max(1);
        let protected = (capacity - window) / 5 * 4;
        Self { nodes: Nodes::new(capacity), sketch: Sketch::new(capacity), capacity, window, protected }
    }

    /// The block that would go: the one that falls out of the window, or the next one of the rest. The winner moves
    /// where it belongs.
    fn loser(&mut self) -> Option<u32> {
        let candidate = self.nodes.tail(WINDOW).filter(|_| self.nodes.len(WINDOW) >= self.window);
        let next = self.nodes.tail(PROBATION).or_else(|| self.nodes.tail(PROTECTED));
        let (Some(candidate), Some(next)) = (candidate, next) else {
            return candidate.or(next).or_else(|| self.nodes.tail(WINDOW));
        };
        let count = |slot| self.sketch.count(self.nodes.key(slot));
        if count(candidate) <= count(next) {
            return Some(candidate);
        }
        self.nodes.move_to(candidate, PROBATION);
        Some(next)
    }
}

impl Replacement for WTinyLfu {
    fn capacity(&self) -> usize {
        self.capacity
    }

    fn len(&self) -> usize {
        [WINDOW, PROBATION, PROTECTED, HELD, FIRST].into_iter().map(|list| self.nodes.len(list)).sum()
    }

    fn contains(&self, key: Key) -> bool {
        self.nodes.find(key).is_some()
    }

    fn touch(&mut self, key: Key) -> bool {
        self.sketch.add(key);
        let Some(slot) = self.nodes.find(key) else { return false };
        match self.nodes.list(slot) {
            WINDOW => self.nodes.move_to(slot, WINDOW),
            HELD => {}
            _ => {
                self.nodes.move_to(slot, PROTECTED);
                if self.nodes.len(PROTECTED) > self.protected
                    && let Some(oldest) = self.nodes.tail(PROTECTED)
                {
                    self.nodes.move_to(oldest, PROBATION);
                }
            }
        }
        true
    }

    fn admit(&mut self, key: Key, insertion: Insertion, host: &mut dyn Host) -> Admitted {
        if insertion == Insertion::Read && !host.fill(key) || self.nodes.is_full() && self.evict(host).is_none() {
            return Admitted::Refused;
        }
        self.nodes.insert(key, WINDOW);
        if self.nodes.len(WINDOW) > self.window
            && let Some(oldest) = self.nodes.tail(WINDOW)
        {
            self.nodes.move_to(oldest, PROBATION);
        }
        Admitted::Flash
    }

    fn evict(&mut self, host: &mut dyn Host) -> Option<Key> {
        loop {
            let slot = match self.nodes.tail(FIRST) {
                Some(slot) => slot,
                None => self.loser()?,
            };
            if host.evictable(self.nodes.key(slot)) {
                let key = self.nodes.remove(slot);
                host.evicted(key);
                return Some(key);
            }
            self.nodes.move_to(slot, HELD);
        }
    }

    fn release(&mut self, key: Key) {
        aside::release(&mut self.nodes, key);
    }

    fn forget(&mut self, key: Key) -> Option<Evicted> {
        let slot = self.nodes.find(key)?;
        Some(Evicted { key: self.nodes.remove(slot), in_memory: false })
    }

    fn take(&mut self) -> Option<Evicted> {
        let slot = [FIRST, HELD, PROBATION, WINDOW, PROTECTED].into_iter().find_map(|list| self.nodes.tail(list))?;
        Some(Evicted { key: self.nodes.remove(slot), in_memory: false })
    }

    fn memory(&self) -> usize {
        self.nodes.memory() + self.sketch.memory()
    }
}
