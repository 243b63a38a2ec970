//! What a larger cache would have kept: how soon evicted blocks are missed.
//!
//! A block that is missed after `n` others were evicted would still be there in a cache with `n` more places. That is
//! exact for LRU, and close for policies that keep what is used often. Only a sample of the blocks is remembered, by
//! their hashes, so the estimate costs a comparison for each eviction and each miss, and at most [`NAMES`] names.
//!
//! Counted so, a loop is missed as a whole until it fits. The default policy keeps a part of it, so that its curve has
//! no such cliffs: between two sizes it does at least as well as on the straight line (the convex hull, as in Talus:
//! Beckmann and Sanchez, HPCA 2015). [`Regrets::saved`] is that line.
//!
//! Invariant: it decides nothing.

use std::collections::{BTreeMap, VecDeque};

use crate::Key;

/// Names remembered at most. With so many the estimate of a share is within about two points.
const NAMES: usize = 8192;

/// Misses of evicted blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Regrets {
    /// How many blocks, by how many others had been evicted since: in eighths of the cache, up to two of it.
    pub missed: [u64; Self::PARTS],
    /// Blocks evicted since the cache has its present size. What went before that is forgotten.
    pub evicted: u64,
}

impl Regrets {
    /// Parts of [`Regrets::missed`].
    pub const PARTS: usize = 16;
    /// Parts for each size of the cache.
    const PER_CACHE: usize = 8;

    /// Misses that a cache larger by so many parts would have saved.
    ///
    /// # Panics
    /// With more than [`Regrets::PARTS`].
    #[must_use]
    pub fn saved(missed: &[u64; Self::PARTS], parts: usize) -> u64 {
        let mut sums = [0; Self::PARTS + 1];
        for (part, count) in missed.iter().enumerate() {
            sums[part + 1] = sums[part] + count;
        }
        let line = |from: usize, to: usize| match (to - from) as u64 {
            0 => sums[from],
            length => (sums[from] * (to - parts) as u64 + sums[to] * (parts - from) as u64) / length,
        };
        let lines = (0..=parts).flat_map(|from| (parts..sums.len()).map(move |to| (from, to)));
        lines.map(|(from, to)| line(from, to)).max().expect("a size is a line by itself")
    }
}

/// The sample.
pub struct Reach {
    /// Of so many powers of two keys, one is in the sample.
    thinned: u32,
    capacity: u64,
    /// Sampled keys by their hash, with the count of evictions at theirs.
    at: BTreeMap<u64, u64>,
    order: VecDeque<(u64, u64)>,
    regrets: Regrets,
}

impl Reach {
    /// For a cache of `capacity` blocks.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        // As many blocks as twice the cache's are of interest.
        let thinned = (capacity * 2 / NAMES).checked_ilog2().map_or(0, |log| log + 1);
        let (at, order) = (BTreeMap::new(), VecDeque::new());
        Self { thinned, capacity: capacity.max(1) as u64, at, order, regrets: Regrets::default() }
    }

    /// The cache keeps so many blocks from now on.
    pub fn resize(&mut self, capacity: usize) {
        *self = Self { regrets: Regrets { evicted: 0, ..self.regrets }, ..Self::new(capacity) };
    }

    /// The misses so far.
    #[must_use]
    pub const fn regrets(&self) -> Regrets {
        self.regrets
    }

    /// Bytes of memory that it takes at most.
    #[must_use]
    pub fn memory(&self) -> usize {
        let names = usize::try_from(self.capacity * 2).unwrap_or(NAMES).min(NAMES);
        names * (size_of::<(u64, u64)>() * 4)
    }

    fn sampled(&self, key: Key) -> Option<u64> {
        // Not the bits by which tables find their places.
        let hash = key.hash().rotate_left(16);
        (hash & ((1 << self.thinned) - 1) == 0).then_some(hash)
    }

    /// A block was evicted.
    pub fn evicted(&mut self, key: Key) {
        self.regrets.evicted += 1;
        let evicted = self.regrets.evicted;
        let Some(hash) = self.sampled(key) else { return };
        self.at.insert(hash, evicted);
        self.order.push_back((hash, evicted));
        // The oldest go, and those whose misses count for no size.
        while let Some(&(oldest, at)) = self.order.front()
            && (self.order.len() > NAMES || self.part(evicted - at).is_none())
        {
            self.order.pop_front();
            if self.at.get(&oldest) == Some(&at) {
                self.at.remove(&oldest);
            }
        }
    }

    /// A block is missed: it has to come from the origin.
    pub fn missed(&mut self, key: Key) {
        let Some(at) = self.sampled(key).and_then(|hash| self.at.remove(&hash)) else { return };
        if let Some(part) = self.part(self.regrets.evicted - at) {
            self.regrets.missed[part] += 1 << self.thinned;
        }
    }

    /// The part of [`Regrets::missed`] for a block that has left before so many others.
    fn part(&self, since: u64) -> Option<usize> {
        let part = since.saturating_sub(1) * Regrets::PER_CACHE as u64 / self.capacity;
        usize::try_from(part).ok().filter(|part| *part < Regrets::PARTS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A loop over so many keys through an LRU of `capacity`: each key is missed when `keys - capacity` more have left.
    fn looped(capacity: usize, keys: u64, rounds: u64) -> (Regrets, u64) {
        let mut reach = Reach::new(capacity);
        let (mut kept, mut misses) = (VecDeque::new(), 0);
        for round in 0..rounds {
            for key in (0..keys).map(Key) {
                // In a loop larger than the cache, each block has left before it comes again.
                misses += u64::from(round > 0);
                reach.missed(key);
                kept.push_back(key);
                if kept.len() > capacity {
                    reach.evicted(kept.pop_front().unwrap());
                }
            }
        }
        (reach.regrets(), misses)
    }

    #[test]
    fn a_loop_is_saved_by_a_cache_that_holds_it_and_by_none_that_is_smaller() {
        for capacity in [1000, 100_000] {
            let (regrets, misses) = looped(capacity, capacity as u64 * 14 / 10, 6);
            let share = |blocks: &[u64]| blocks.iter().sum::<u64>() as f64 / misses as f64;
            assert_eq!(regrets.missed[..2], [0; 2], "{capacity}: a quarter more is too little");
            assert!((0.9..1.1).contains(&share(&regrets.missed[..4])), "{capacity}: {regrets:?} of {misses}");
            assert_eq!(regrets.missed[4..], [0; 12]);
            let (regrets, _) = looped(capacity, capacity as u64 * 32 / 10, 3);
            assert_eq!(regrets.missed, [0; 16], "{capacity}: three times the size is too little");
        }
    }

    #[test]
    fn a_loop_is_kept_in_part_and_what_comes_back_soon_is_kept_first() {
        let counted = |first: &[u64]| {
            let mut missed = [0; Regrets::PARTS];
            missed[..first.len()].copy_from_slice(first);
            [0, 1, 2, 4, 8].map(|parts| Regrets::saved(&missed, parts))
        };
        assert_eq!(counted(&[0, 0, 0, 0, 0, 0, 0, 80]), [0, 10, 20, 40, 80]);
        assert_eq!(counted(&[40, 20, 10, 5]), [0, 40, 60, 75, 75]);
    }

    #[test]
    fn names_are_bounded_and_a_block_counts_once() {
        let mut reach = Reach::new(10 * NAMES);
        (0..40 * NAMES as u64).for_each(|key| reach.evicted(Key(key)));
        assert!(reach.order.len() <= NAMES && reach.at.len() <= NAMES, "{}", reach.order.len());
        let newest = (0..).map(|back| Key(40 * NAMES as u64 - 1 - back)).find(|key| reach.sampled(*key).is_some());
        reach.missed(newest.unwrap());
        let once = reach.regrets();
        assert!(once.missed[0] > 0);
        reach.missed(newest.unwrap());
        assert_eq!(reach.regrets(), once);
    }
}
