//! How long requests took, in seconds.

use headpond_shard::Histogram;
use serde::{Deserialize, Serialize};

/// A distribution of times.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LatencyDistribution {
    /// How many there are.
    pub count: u64,
    /// Their sum.
    pub sum_seconds: f64,
    /// Half took no longer.
    pub p50_seconds: f64,
    /// 95 % took no longer.
    pub p95_seconds: f64,
    /// 99 % took no longer.
    pub p99_seconds: f64,
    /// 99.9 % took no longer.
    pub p999_seconds: f64,
    /// The longest.
    pub max_seconds: f64,
    /// The upper end of each bucket in nanoseconds, with its count. Empty buckets are left out. For
    /// programs that take differences.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub buckets: Vec<(u64, u64)>,
}

fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

impl From<&Histogram> for LatencyDistribution {
    fn from(histogram: &Histogram) -> Self {
        Self {
            max_seconds: seconds(histogram.summary().max),
            ..Self::of(histogram.buckets().collect(), histogram.sum())
        }
    }
}

impl LatencyDistribution {
    fn of(buckets: Vec<(u64, u64)>, sum_nanos: u64) -> Self {
        let count: u64 = buckets.iter().map(|(_, count)| count).sum();
        let per_mille = |share: u128| {
            let wanted = (u128::from(count) * share).div_ceil(1000).max(1);
            let mut seen = 0_u128;
            let found = buckets.iter().find(|(_, count)| {
                seen += u128::from(*count);
                seen >= wanted
            });
            found.map_or(0.0, |(highest, _)| seconds(*highest))
        };
        Self {
            count,
            sum_seconds: seconds(sum_nanos),
            p50_seconds: per_mille(500),
            p95_seconds: per_mille(950),
            p99_seconds: per_mille(990),
            p999_seconds: per_mille(999),
            max_seconds: buckets.last().map_or(0.0, |(highest, _)| seconds(*highest)),
            buckets,
        }
    }

    /// The times since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let before = |highest: u64| {
            let place = earlier.buckets.binary_search_by_key(&highest, |(highest, _)| *highest);
            place.map_or(0, |index| earlier.buckets[index].1)
        };
        let left = self.buckets.iter().map(|(highest, count)| (*highest, count.saturating_sub(before(*highest))));
        let sum = ((self.sum_seconds - earlier.sum_seconds).max(0.0) * 1e9) as u64;
        Self::of(left.filter(|(_, count)| *count > 0).collect(), sum)
    }

    /// How many took at most `seconds`.
    pub(super) fn at_most(&self, seconds: f64) -> u64 {
        let within = self.buckets.iter().take_while(|(highest, _)| *highest as f64 <= seconds * 1e9);
        within.map(|(_, count)| count).sum()
    }

    /// The numbers that are shown, by name.
    pub(crate) fn few(&self) -> [(&'static str, f64); 7] {
        [
            ("count", self.count as f64),
            ("mean_seconds", if self.count == 0 { 0.0 } else { self.sum_seconds / self.count as f64 }),
            ("p50_seconds", self.p50_seconds),
            ("p95_seconds", self.p95_seconds),
            ("p99_seconds", self.p99_seconds),
            ("p999_seconds", self.p999_seconds),
            ("max_seconds", self.max_seconds),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(times: impl IntoIterator<Item = u64>) -> Histogram {
        let mut histogram = Histogram::default();
        times.into_iter().for_each(|nanos| histogram.record(nanos));
        histogram
    }

    #[test]
    fn percentiles_are_the_histograms_own_and_differences_are_those_of_the_interval() {
        let mut both = histogram((1..=1000).map(|value| value * 1000));
        let earlier = LatencyDistribution::from(&both);
        let summary = both.summary();
        assert_eq!((earlier.count, earlier.p99_seconds), (1000, summary.p99 as f64 / 1e9));
        (0..100).for_each(|_| both.record(5_000_000));
        let interval = LatencyDistribution::from(&both).since(&earlier);
        assert_eq!(interval.count, 100);
        assert!((interval.p50_seconds / 0.005 - 1.0).abs() < 0.04, "{interval:?}");
        assert!((interval.sum_seconds - 0.5).abs() < 0.001, "{interval:?}");
        assert_eq!(earlier.since(&earlier), LatencyDistribution::default());
    }

    #[test]
    fn cumulative_counts_grow_to_all() {
        let latency = LatencyDistribution::from(&histogram([500, 20_000, 20_000, 3_000_000]));
        assert_eq!([1e-6, 1e-4, 1e-2].map(|bound| latency.at_most(bound)), [1, 3, 4]);
    }
}
