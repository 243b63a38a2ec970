//! Latencies by the million: a histogram that keeps three digits from a nanosecond to an hour.
//!
//! Invariants:
//! - every percentile is within 0.1 % of the true one, and so is the largest value;
//! - histograms of parts add up to the histogram of the whole; averages of percentiles do not.

use hdrhistogram::Histogram;
use headpond_base::Nanos;

/// Decimal digits kept of each value.
const DIGITS: u8 = 3;
/// An hour, in nanoseconds. Longer values count as an hour.
const MOST: u64 = 3_600_000_000_000;

/// Latencies.
#[derive(Clone, Debug)]
pub struct Latency(Histogram<u64>);

impl Default for Latency {
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(1, MOST, DIGITS);
        // The only errors are about the bounds, and it accepts these constants.
        #[allow(clippy::expect_used)]
        Self(histogram.expect("one nanosecond to an hour in three digits can be held"))
    }
}

impl Latency {
    /// Counts one latency.
    pub fn record(&mut self, took: Nanos) {
        self.record_many(took, 1);
    }

    /// Counts `count` latencies of `took`.
    pub fn record_many(&mut self, took: Nanos, count: u64) {
        self.0.saturating_record_n(took.0.clamp(1, MOST), count);
    }

    /// Counts a latency of a client that should have asked every `interval`, but waited for each answer. Also counts
    /// the requests that it did not make during a long answer.
    ///
    /// This corrects a closed loop afterwards. An open loop ([`crate::Schedule`]) needs no correction.
    pub fn record_omitted(&mut self, took: Nanos, interval: Nanos) {
        self.record(took);
        if interval.0 > 0 {
            let mut missed = took.0.saturating_sub(interval.0);
            while missed >= interval.0 {
                self.record(Nanos(missed));
                missed -= interval.0;
            }
        }
    }

    /// Adds another histogram.
    pub fn add(&mut self, other: &Self) {
        // Both have the same bounds, so the values of one fit into the other.
        #[allow(clippy::expect_used)]
        self.0.add(&other.0).expect("histograms of equal bounds add up");
    }

    /// How many values were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The time that a `share` of the values, from 0 to 1, did not exceed. `None` without values.
    #[must_use]
    pub fn percentile(&self, share: f64) -> Option<Nanos> {
        (self.count() > 0).then(|| Nanos(self.0.value_at_quantile(share)))
    }

    /// The longest; `None` without values.
    #[must_use]
    pub fn longest(&self) -> Option<Nanos> {
        (self.count() > 0).then(|| Nanos(self.0.max()))
    }

    /// The mean in nanoseconds; `None` without values.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        (self.count() > 0).then(|| self.0.mean())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;

    const MS: u64 = 1_000_000;
    const SECOND: u64 = 1000 * MS;

    fn near(found: Nanos, expected: u64) -> bool {
        (found.0 as f64 / expected as f64 - 1.0).abs() <= 0.001
    }

    #[test]
    fn percentiles_are_those_of_the_sorted_values_within_a_thousandth() {
        let mut random = Random::new(11);
        let mut values: Vec<u64> = (0..50_000).map(|_| (10f64.powf(3.0 + 6.0 * random.share())) as u64).collect();
        let mut latency = Latency::default();
        values.iter().for_each(|value| latency.record(Nanos(*value)));
        values.sort_unstable();
        for share in [0.5, 0.95, 0.99, 0.999, 1.0] {
            let exact = values[((share * 50_000.0) as usize).max(1) - 1];
            let found = latency.percentile(share).unwrap();
            assert!(near(found, exact), "{share}: {found:?} for {exact}");
        }
        assert!(near(latency.longest().unwrap(), *values.last().unwrap()));
    }

    /// The example in the tests and talks of HdrHistogram's author (HistogramDataAccessTest): 100 s of answers
    /// in 1 ms, one every 10 ms, then one that takes 100 s.
    #[test]
    fn a_stall_counts_for_all_that_would_have_waited_in_it() {
        let (mut raw, mut mended) = (Latency::default(), Latency::default());
        for took in std::iter::repeat_n(MS, 10_000).chain([100 * SECOND]) {
            raw.record(Nanos(took));
            mended.record_omitted(Nanos(took), Nanos(10 * MS));
        }
        let at = |latency: &Latency, percent: f64| latency.percentile(percent / 100.0).unwrap();
        assert!(near(at(&raw, 30.0), MS) && near(at(&raw, 99.99), MS) && near(at(&raw, 99.999), 100 * SECOND));
        assert_eq!((raw.count(), mended.count()), (10_001, 20_000));
        for (percent, seconds) in [(75.0, 50), (90.0, 80), (99.0, 98), (100.0, 100)] {
            assert!(near(at(&mended, percent), seconds * SECOND), "{percent}");
        }
        assert!(near(at(&mended, 30.0), MS) && near(at(&mended, 50.0), MS));
    }

    #[test]
    fn parts_add_up_to_the_whole_and_an_hour_is_the_limit() {
        let (mut all, mut parts) = (Latency::default(), [Latency::default(), Latency::default()]);
        for value in 1..2_000 {
            all.record(Nanos(value * 977));
            parts[(value % 2) as usize].record(Nanos(value * 977));
        }
        let [mut sum, other] = parts;
        sum.add(&other);
        assert_eq!((sum.count(), sum.percentile(0.99)), (all.count(), all.percentile(0.99)));
        sum.record(Nanos(u64::MAX));
        assert!(near(sum.longest().unwrap(), MOST));
        assert_eq!((Latency::default().percentile(0.5), Latency::default().mean()), (None, None));
    }
}
