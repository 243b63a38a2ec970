//! How often keys were used recently, in four bytes for each block of the cache: a count-min sketch of four-bit
//! counters (Cormode and Muthukrishnan, 2005). It ages like TinyLFU.
//!
//! Invariants:
//! - It never returns less than the true count since the last ageing, up to 15.
//! - Ageing halves all counts. It is spread over all additions, so none takes longer in a larger cache.

use crate::Key;
use crate::key::place;

/// Counters in a word.
const IN_WORD: u64 = 16;
/// Counters of a key. The least of them is its count.
const ROWS: u32 = 4;
const COUNT_MAX: u64 = 15;

pub(crate) struct Sketch {
    words: Vec<u64>,
    /// Every count is halved once in this many additions.
    period: usize,
    owed: usize,
    hand: usize,
}

impl Sketch {
    pub(crate) fn new(blocks: usize) -> Self {
        let words = vec![0; (blocks / 2).max(8)];
        Self { words, period: blocks.saturating_mul(5).max(1), owed: 0, hand: 0 }
    }

    pub(crate) fn memory(&self) -> usize {
        self.words.len() * size_of::<u64>()
    }

    /// The word and the shift of a key's counter in a row.
    fn counter(&self, hash: u64, row: u32) -> (usize, u64) {
        let hash = hash.rotate_left(row * 13).wrapping_mul(0x9e37_79b9_7f4a_7c15 | u64::from(row) << 1);
        (place(hash, self.words.len()), (hash & (IN_WORD - 1)) * 4)
    }

    pub(crate) fn add(&mut self, key: Key) {
        let (hash, count) = (key.hash(), u64::from(self.count(key)));
        if count < COUNT_MAX {
            for row in 0..ROWS {
                let (word, shift) = self.counter(hash, row);
                // Only the least counters grow: larger ones already count other blocks.
                if self.words[word] >> shift & COUNT_MAX == count {
                    self.words[word] += 1 << shift;
                }
            }
        }
        self.owed += self.words.len();
        while self.owed >= self.period {
            self.owed -= self.period;
            self.words[self.hand] = self.words[self.hand] >> 1 & 0x7777_7777_7777_7777;
            self.hand = if self.hand + 1 == self.words.len() { 0 } else { self.hand + 1 };
        }
    }

    pub(crate) fn count(&self, key: Key) -> u8 {
        let hash = key.hash();
        let counts = (0..ROWS).map(|row| {
            let (word, shift) = self.counter(hash, row);
            self.words[word] >> shift & COUNT_MAX
        });
        u8::try_from(counts.min().unwrap_or(0)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_never_too_low_and_halves_with_time() {
        let mut sketch = Sketch::new(1000);
        for key in 0..200 {
            (0..key % 8).for_each(|_| sketch.add(Key(key)));
        }
        // Seven hundred additions have aged a seventh of the words at most once.
        let low = (0..200).filter(|key| u64::from(sketch.count(Key(*key))) < key % 8).count();
        assert!(low < 80, "{low} of 200 counts are below the truth");
        (0..10).for_each(|_| sketch.add(Key(7777)));
        assert!(sketch.count(Key(7777)) >= 9);
        (0..20_000).for_each(|key| sketch.add(Key(1_000_000 + key % 3)));
        assert!(sketch.count(Key(7777)) <= 2, "{}", sketch.count(Key(7777)));
    }
}
