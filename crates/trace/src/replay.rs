//! Replays a trace through a policy, and counts.
//!
//! It counts as the published tables do: every reference is looked up, and enters if it missed. Reads and writes
//! count the same. The first reference of a block is a miss.

use headpond_policy::{Adaptive, Admission, Cache, Host, Insertion, Key, Policy};

use crate::load::LoadedTrace;

/// The result of a replay.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ReplayOutcome {
    /// The policy.
    pub policy: Policy,
    /// The cache's size.
    pub size_blocks: usize,
    /// References of blocks.
    pub references: u64,
    /// References that missed.
    pub misses: u64,
    /// Blocks written to flash because of a miss. Every reference counts as a read here.
    pub fills: u64,
    /// All blocks written to flash: every written block, and those fills whose block was not on flash already because
    /// of a write.
    pub flash_writes: u64,
}

impl ReplayOutcome {
    /// Misses divided by references.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // far below 2^52
    pub fn miss_ratio(&self) -> f64 {
        self.misses as f64 / self.references.max(1) as f64
    }
}

/// The flash, as far as the counts need it.
struct Flash {
    fills: u64,
    read_fills: u64,
    /// Blocks that are on flash because of a write, and are still kept.
    written: Vec<u64>,
}

impl Flash {
    fn place(key: Key) -> (usize, u64) {
        ((key.0 / 64) as usize, 1 << (key.0 % 64))
    }
}

impl Host for Flash {
    fn evictable(&mut self, _: Key) -> bool {
        true
    }

    fn fill(&mut self, key: Key) -> bool {
        let (word, bit) = Self::place(key);
        self.fills += 1;
        self.read_fills += u64::from(self.written[word] & bit == 0);
        true
    }

    fn evicted(&mut self, key: Key) {
        let (word, bit) = Self::place(key);
        self.written[word] &= !bit;
    }
}

/// References between two reports of progress.
pub(crate) const CHUNK: usize = 1 << 16;

/// Replays a trace through a policy. `progress` gets the number of references done, now and then.
pub fn replay(
    load: &LoadedTrace,
    policy: Policy,
    admission: Admission,
    size_blocks: usize,
    progress: &mut dyn FnMut(u64),
) -> ReplayOutcome {
    let mut cache = Cache::new(policy, admission, size_blocks, Adaptive::memory_for(size_blocks));
    let mut flash = Flash { fills: 0, read_fills: 0, written: vec![0; load.footprint() / 64 + 1] };
    let (mut misses, mut writes) = (0, 0);
    let mut gone = load.gone().iter().peekable();
    for (number, chunk) in load.references().chunks(CHUNK).enumerate() {
        for (at, reference) in chunk.iter().enumerate() {
            while let Some((_, block)) = gone.next_if(|(before, _)| *before <= number * CHUNK + at) {
                let key = Key(u64::from(*block));
                cache.forget(key);
                flash.evicted(key);
            }
            let key = Key(u64::from(reference.block()));
            if reference.is_write() {
                writes += 1;
                let (word, bit) = Flash::place(key);
                flash.written[word] |= bit;
            }
            if !cache.touch(key, &mut flash) {
                misses += 1;
                cache.admit(key, Insertion::Read, &mut flash);
            }
        }
        progress(chunk.len() as u64);
    }
    let references = load.references().len() as u64;
    let Flash { fills, read_fills, .. } = flash;
    ReplayOutcome { policy, size_blocks, references, misses, fills, flash_writes: writes + read_fills }
}
