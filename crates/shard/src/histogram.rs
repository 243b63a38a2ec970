//! Latencies, counted in buckets that are at most 3 % wide.
//!
//! To record a value costs a handful of instructions and one cache line, without floating point or allocation. So
//! every request can be recorded.

use serde::{Deserialize, Serialize};

/// Buckets in a doubling: with 32, a bucket is at most 1/32 of its value wide.
const STEPS_LOG2: u32 = 5;
const STEPS: usize = 1 << STEPS_LOG2;

/// All values from 2^40 ns, 18 minutes, are in the last bucket.
const DOUBLINGS: usize = 40 - STEPS_LOG2 as usize;
const BUCKETS: usize = STEPS * (DOUBLINGS + 1);

/// How often each latency occurred.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Histogram {
    counts: Box<[u64; BUCKETS]>,
    total: u64,
    sum: u64,
    max: u64,
}

/// A histogram in a few numbers. Times are in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct HistogramSummary {
    /// The number of values.
    pub count: u64,
    /// The mean.
    pub mean: u64,
    /// Half took no longer.
    pub p50: u64,
    /// 95 % took no longer.
    pub p95: u64,
    /// 99 % took no longer.
    pub p99: u64,
    /// 99.9 % took no longer.
    pub p999: u64,
    /// The longest.
    pub max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: Box::new([0; BUCKETS]), total: 0, sum: 0, max: 0 }
    }
}

impl Histogram {
    /// Counts one value.
    pub fn record(&mut self, nanos: u64) {
        self.counts[bucket(nanos)] += 1;
        self.total += 1;
        self.sum = self.sum.saturating_add(nanos);
        self.max = self.max.max(nanos);
    }

    /// The number of values.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.total
    }

    /// The sum of all values, in nanoseconds.
    #[must_use]
    pub const fn sum(&self) -> u64 {
        self.sum
    }

    /// The buckets with values. Each with its longest time and its count.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let held = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        held.map(|(index, count)| (highest(index), *count))
    }

    /// The values since `earlier`, an older state of the same histogram. The longest is known only by its bucket.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut counts = self.counts.clone();
        counts.iter_mut().zip(earlier.counts.iter()).for_each(|(now, then)| *now -= (*then).min(*now));
        let last = counts.iter().rposition(|count| *count > 0);
        let max = last.map_or(0, |index| highest(index).min(self.max));
        Self { counts, total: self.total - earlier.total.min(self.total), sum: self.sum.wrapping_sub(earlier.sum), max }
    }

    /// Adds another histogram.
    pub fn merge(&mut self, other: &Self) {
        self.counts.iter_mut().zip(other.counts.iter()).for_each(|(mine, more)| *mine += more);
        self.total += other.total;
        self.sum = self.sum.saturating_add(other.sum);
        self.max = self.max.max(other.max);
    }

    /// The time that `share` of 1,000 values did not exceed. At most 3 % too long.
    #[must_use]
    pub fn per_mille(&self, share: u64) -> u64 {
        let wanted = (self.total * share).div_ceil(1000).max(1);
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return highest(index).min(self.max);
            }
        }
        0
    }

    /// The summary.
    #[must_use]
    pub fn summary(&self) -> HistogramSummary {
        HistogramSummary {
            count: self.total,
            mean: self.sum.checked_div(self.total).unwrap_or(0),
            p50: self.per_mille(500),
            p95: self.per_mille(950),
            p99: self.per_mille(990),
            p999: self.per_mille(999),
            max: self.max,
        }
    }
}

/// The bucket of a value: the value itself below [`STEPS`], then [`STEPS`] buckets a doubling.
const fn bucket(nanos: u64) -> usize {
    if nanos < STEPS as u64 {
        return nanos as usize;
    }
    let doubling = nanos.ilog2() - STEPS_LOG2;
    let step = (nanos >> doubling) as usize - STEPS;
    let index = (doubling as usize + 1) * STEPS + step;
    if index < BUCKETS { index } else { BUCKETS - 1 }
}

/// The highest value in a bucket.
const fn highest(index: usize) -> u64 {
    if index < STEPS {
        return index as u64;
    }
    let doubling = (index / STEPS - 1) as u32;
    (((index % STEPS + STEPS + 1) as u64) << doubling) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_in_a_bucket_at_most_3_percent_wide() {
        let mut value = 0u64;
        while value < 1 << 40 {
            let index = bucket(value);
            assert!(highest(index) >= value && (index == 0 || highest(index - 1) < value), "{value}");
            assert!((highest(index) - value) * 32 <= value.max(32), "{value}");
            value = value * 33 / 32 + 1;
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn percentiles_and_intervals_are_those_of_the_values() {
        let mut histogram = Histogram::default();
        (1..=1000u64).for_each(|value| histogram.record(value * 1000));
        let earlier = histogram.clone();
        let summary = histogram.summary();
        let near = |found: u64, expected: u64| found >= expected && (found - expected) * 32 <= expected;
        assert_eq!((summary.count, summary.mean, summary.max), (1000, 500_500, 1_000_000));
        assert!(near(summary.p50, 500_000) && near(summary.p95, 950_000) && near(summary.p99, 990_000), "{summary:?}");
        histogram.record(7);
        let interval = histogram.since(&earlier).summary();
        assert_eq!((interval.count, interval.mean, interval.p50, interval.max), (1, 7, 7, 7));
        let mut both = earlier.clone();
        both.merge(&histogram.since(&earlier));
        assert_eq!(both, histogram);
        assert_eq!(both.buckets().map(|(_, count)| count).sum::<u64>(), both.count());
        assert!(both.buckets().is_sorted() && both.buckets().next() == Some((7, 1)));
        assert_eq!(both.sum(), 500_500_007);
        assert_eq!(Histogram::default().summary(), HistogramSummary::default());
    }
}
