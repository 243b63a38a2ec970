//! What a larger cache would have kept: how soon evicted blocks are missed.
//!
//! A block that is missed after `n` others were evicted would still be there in a cache with `n` more places. That is
//! exact for LRU, and close for policies that keep what is used often. Only a sample of the blocks is remembered, by
//! their hashes, so the estimate costs a comparison for each eviction and each miss, and at most [`NAMES`] names.
//!
//! Invariant: it decides nothing.

use std::collections::{BTreeMap, VecDeque};

use crate::Key;

/// Names remembered at most. With so many the estimate of a share is within about two points.
const NAMES: usize = 8192;

/// Misses of evicted blocks, as blocks: those that a cache larger by a quarter, by a half, or twice as large would have
/// had. Each count has the one before in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Regrets {
    /// With a quarter more.
    pub quarter: u64,
    /// With a half more.
    pub half: u64,
    /// With as much again.
    pub double: u64,
}

/// The sample.
pub struct Reach {
    /// Of so many powers of two keys, one is in the sample.
    thinned: u32,
    capacity: u64,
    /// Evictions so far, of all keys.
    evicted: u64,
    /// Sampled keys by their hash, with the count of evictions at theirs.
    at: BTreeMap<u64, u64>,
    order: VecDeque<(u64, u64)>,
    regrets: Regrets,
}

impl Reach {
    /// For a cache of `capacity` blocks.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        let thinned = (capacity / NAMES).checked_ilog2().map_or(0, |log| log + 1);
        let (at, order) = (BTreeMap::new(), VecDeque::new());
        Self { thinned, capacity: capacity.max(1) as u64, evicted: 0, at, order, regrets: Regrets::default() }
    }

    /// The cache keeps so many blocks from now on.
    pub fn resize(&mut self, capacity: usize) {
        *self = Self { regrets: self.regrets, ..Self::new(capacity) };
    }

    /// The misses so far.
    #[must_use]
    pub const fn regrets(&self) -> Regrets {
        self.regrets
    }

    /// Bytes of memory that it takes at most.
    #[must_use]
    pub fn memory(&self) -> usize {
        let names = usize::try_from(self.capacity).unwrap_or(NAMES).min(NAMES);
        names * (size_of::<(u64, u64)>() * 4)
    }

    fn sampled(&self, key: Key) -> Option<u64> {
        // Not the bits by which tables find their places.
        let hash = key.hash().rotate_left(16);
        (hash & ((1 << self.thinned) - 1) == 0).then_some(hash)
    }

    /// A block was evicted.
    pub fn evicted(&mut self, key: Key) {
        self.evicted += 1;
        let Some(hash) = self.sampled(key) else { return };
        self.at.insert(hash, self.evicted);
        self.order.push_back((hash, self.evicted));
        // The oldest go, and those that nobody will ask for: beyond one more cache.
        while let Some(&(oldest, at)) = self.order.front()
            && (self.order.len() > NAMES || self.evicted - at > self.capacity)
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
        let (since, blocks) = (self.evicted - at, 1 << self.thinned);
        let Regrets { quarter, half, double } = &mut self.regrets;
        for (count, within) in [(quarter, self.capacity / 4), (half, self.capacity / 2), (double, self.capacity)] {
            *count += if since <= within { blocks } else { 0 };
        }
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
            let share = |blocks: u64| blocks as f64 / misses as f64;
            assert_eq!(regrets.quarter, 0, "{capacity}: a quarter more is too little");
            assert!((0.9..1.1).contains(&share(regrets.half)), "{capacity}: {regrets:?} of {misses}");
            assert_eq!(regrets.half, regrets.double);
            let (regrets, _) = looped(capacity, capacity as u64 * 22 / 10, 3);
            assert_eq!(regrets, Regrets::default(), "{capacity}: twice the size is too little");
        }
    }

    #[test]
    fn names_are_bounded_and_a_block_counts_once() {
        let mut reach = Reach::new(10 * NAMES);
        (0..40 * NAMES as u64).for_each(|key| reach.evicted(Key(key)));
        assert!(reach.order.len() <= NAMES && reach.at.len() <= NAMES, "{}", reach.order.len());
        let newest = (0..).map(|back| Key(40 * NAMES as u64 - 1 - back)).find(|key| reach.sampled(*key).is_some());
        reach.missed(newest.unwrap());
        let once = reach.regrets();
        assert!(once.quarter > 0);
        reach.missed(newest.unwrap());
        assert_eq!(reach.regrets(), once);
    }
}
