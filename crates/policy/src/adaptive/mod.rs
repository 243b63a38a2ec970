//! The default policy: it tries several settings on a sample of the load, and uses the best.
//!
//! No fixed policy is best for all loads: loops want frequency, moving hot spots want recency, and most loads want
//! something in between. All of these are settings of one structure (`core.rs`), so a change costs nothing and drops
//! nothing. Shadows (`shadows.rs`) say which setting is best now.
//!
//! It takes less than 18 bytes a block, its names included, and up to 510 KiB for the shadows.

mod core;
mod shadows;
mod tuning;

use headpond_base::BLOCK;

use self::core::AdaptiveCore;
use self::shadows::Shadows;
use self::tuning::TUNINGS;
use crate::{Admitted, Evicted, Host, Insertion, Key, Replacement};

/// The share of blocks that may be only in memory, until they prove worth a flash write: a tenth, like the window.
const MEMORY_SHARE: usize = 10;
/// The most such blocks: 64 MiB.
const MEMORY_MAX: usize = (64 << 20) / BLOCK;

/// The default policy.
pub struct Adaptive {
    core: AdaptiveCore,
    shadows: Shadows,
}

impl Adaptive {
    /// How many of `capacity` blocks should be only in memory.
    #[must_use]
    pub fn memory_for(capacity: usize) -> usize {
        (capacity / MEMORY_SHARE).min(MEMORY_MAX)
    }

    /// Keeps up to `capacity` blocks. The newest `memory` of them may be only in memory.
    #[must_use]
    pub fn new(capacity: usize, memory: usize) -> Self {
        Self { core: AdaptiveCore::new(capacity, memory, TUNINGS[0]), shadows: Shadows::new(capacity, memory) }
    }
}

impl Replacement for Adaptive {
    fn capacity(&self) -> usize {
        self.core.capacity()
    }

    fn len(&self) -> usize {
        self.core.len()
    }

    fn contains(&self, key: Key) -> bool {
        self.core.contains(key)
    }

    fn touch(&mut self, key: Key) -> bool {
        if let Some(tuning) = self.shadows.touch(key) {
            self.core.tune(tuning);
        }
        self.core.touch(key)
    }

    fn admit(&mut self, key: Key, insertion: Insertion, host: &mut dyn Host) -> Admitted {
        self.core.admit(key, insertion, host)
    }

    fn wrote(&mut self, key: Key) {
        self.core.wrote(key);
    }

    fn evict(&mut self, host: &mut dyn Host) -> Option<Key> {
        self.core.evict(host)
    }

    fn release(&mut self, key: Key) {
        self.core.release(key);
    }

    fn forget(&mut self, key: Key) -> Option<Evicted> {
        self.core.forget(key)
    }

    fn take(&mut self) -> Option<Evicted> {
        self.core.take()
    }

    fn memory(&self) -> usize {
        self.core.memory() + self.shadows.memory()
    }
}
