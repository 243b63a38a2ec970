//! Names of recently evicted blocks, and how often each was used. Two bytes a name.
//!
//! A name is thirteen bits of the key's hash, in one of many small FIFO queues of 32. The rest of the hash picks the
//! queue. Invariants:
//! - A remembered key is found until about as many others have come as there are places. Each small queue is exact,
//!   and all fill at the same pace but for chance. So a name's place in its queue tells how many came after it in all,
//!   within about a quarter.
//! - A key that is not remembered is found with a probability of at most 32 / 8192 = 0.4 %. Then one block is kept a
//!   little longer.

use crate::Key;
use crate::key::place;

/// Names in a small queue: 64 bytes, one cache line.
const NAMES: usize = 32;
const FREQUENCY_BITS: u32 = 3;

/// What is remembered of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Remembered {
    /// How often it was used recently, up to 7.
    pub(crate) frequency: u8,
    /// About how many keys came after it.
    pub(crate) since: usize,
}

pub(crate) struct Ghosts {
    /// Newest first; zero is a free place. The name is in the high bits, the frequency in the low ones.
    buckets: Vec<[u16; NAMES]>,
}

impl Ghosts {
    /// Remembers about `names` keys.
    pub(crate) fn new(names: usize) -> Self {
        Self { buckets: vec![[0; NAMES]; names.div_ceil(NAMES).max(1)] }
    }

    pub(crate) fn memory(&self) -> usize {
        self.buckets.len() * size_of::<[u16; NAMES]>()
    }

    pub(crate) fn buckets(&self) -> usize {
        self.buckets.len()
    }

    #[allow(clippy::cast_possible_truncation)] // thirteen bits
    fn locate(&self, key: Key) -> (usize, u16) {
        let hash = key.hash();
        let name = (hash & 0x1fff) as u16;
        (place(hash, self.buckets.len()), name.max(1) << FREQUENCY_BITS)
    }

    /// Remembers a key as the newest, with its frequency up to 7.
    pub(crate) fn insert(&mut self, key: Key, frequency: u8) {
        let (bucket, name) = self.locate(key);
        let names = &mut self.buckets[bucket];
        let end = names.iter().position(|other| *other == 0).unwrap_or(NAMES - 1);
        names.copy_within(0..end, 1);
        names[0] = name | u16::from(frequency.min((1 << FREQUENCY_BITS) - 1));
    }

    /// Forgets a key. Returns what was remembered of it.
    pub(crate) fn remove(&mut self, key: Key) -> Option<Remembered> {
        let (bucket, name) = self.locate(key);
        let names = &mut self.buckets[bucket];
        let at = names.iter().position(|other| other >> FREQUENCY_BITS << FREQUENCY_BITS == name)?;
        let found = names[at];
        names.copy_within(at + 1.., at);
        names[NAMES - 1] = 0;
        let frequency = u8::try_from(found & ((1 << FREQUENCY_BITS) - 1)).ok()?;
        Some(Remembered { frequency, since: at * self.buckets.len() })
    }

    /// Halves the frequencies of one small queue.
    pub(crate) fn age(&mut self, bucket: usize) {
        let low = (1 << FREQUENCY_BITS) - 1;
        for name in &mut self.buckets[bucket] {
            *name = *name & !low | (*name & low) >> 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_up_lately_is_remembered_with_its_frequency_and_only_once() {
        let mut ghosts = Ghosts::new(3200);
        for key in 0..1600 {
            ghosts.insert(Key(key), u8::try_from(key % 8).unwrap());
        }
        let frequency = |remembered: Remembered| u64::from(remembered.frequency);
        let known = (0..1600).filter(|key| ghosts.remove(Key(*key)).map(frequency) == Some(key % 8)).count();
        assert!(known > 1550, "{known} of 1600");
        let again = (0..1600).filter(|key| ghosts.remove(Key(*key)).is_some()).count();
        assert!(again < 40, "{again} found twice");
    }

    #[test]
    fn how_long_ago_a_key_was_given_up_is_known_roughly() {
        let mut ghosts = Ghosts::new(32_000);
        (0..20_000).for_each(|key| ghosts.insert(Key(key), 1));
        // Later keys first, so that no name moves up before it is asked for.
        for (first, given_up_since) in [(15_000_u64, 4500), (10_000, 8500), (5000, 12_500)] {
            let since = |key| ghosts.remove(Key(key)).map_or(0, |remembered| remembered.since);
            let mean = (first..first + 1000).map(since).sum::<usize>() / 1000;
            assert!(mean.abs_diff(given_up_since) < given_up_since / 4, "{mean} and not {given_up_since}");
        }
    }

    #[test]
    fn what_was_given_up_long_ago_is_forgotten() {
        let mut ghosts = Ghosts::new(1000);
        (0..1000).for_each(|key| ghosts.insert(Key(key), 1));
        (1000..4000).for_each(|key| ghosts.insert(Key(key), 1));
        let old = (0..1000).filter(|key| ghosts.remove(Key(*key)).is_some()).count();
        assert!(old < 30, "{old} of 1000 after three times as many others");
        let recent = (3500..4000).filter(|key| ghosts.remove(Key(*key)).is_some()).count();
        assert!(recent > 480, "{recent} of the last 500");
    }
}
