//! When requests are due whatever became of those before: an open loop.
//!
//! A client that asks again only when it was answered goes easy on a server that stalls, and then reports one
//! slow answer where its users saw thousands ("coordinated omission"). Here each request has a moment at which it
//! is due, fixed before anything runs, and its latency counts from there, also if it was sent late.

use crate::Random;
use headpond_base::Nanos;

/// The moments at which requests are due, from the start of the run, without end.
#[derive(Clone, Debug)]
pub struct Schedule {
    interval: f64,
    arrivals: Arrivals,
}

#[derive(Clone, Debug)]
enum Arrivals {
    /// So many have come. Moments are multiples of the interval, not sums: those would drift.
    Even(u64),
    /// The moment of the last one.
    Random(Random, f64),
}

impl Schedule {
    /// So many a second, evenly. The rate is above zero.
    #[must_use]
    pub fn even(rate: f64) -> Self {
        assert!(rate > 0.0, "a rate of {rate} a second is no schedule");
        Self { interval: 1e9 / rate, arrivals: Arrivals::Even(0) }
    }

    /// So many a second on average, each independent of the others, as many users are (a Poisson process).
    #[must_use]
    pub fn random(rate: f64, seed: u64) -> Self {
        Self { arrivals: Arrivals::Random(Random::new(seed), 0.0), ..Self::even(rate) }
    }

    /// The latency of a request that was due at one moment and answered at another.
    #[must_use]
    pub fn latency(due: Nanos, answered: Nanos) -> Nanos {
        answered.since(due)
    }
}

impl Iterator for Schedule {
    type Item = Nanos;

    fn next(&mut self) -> Option<Nanos> {
        let due = match &mut self.arrivals {
            Arrivals::Even(count) => {
                *count += 1;
                (*count - 1) as f64 * self.interval
            }
            Arrivals::Random(random, last) => {
                // The share is below 1, so its complement has a logarithm.
                *last -= self.interval * (1.0 - random.share()).ln();
                *last
            }
        };
        Some(Nanos(due as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Latency, Summary};

    const MS: u64 = 1_000_000;
    const SECOND: u64 = 1000 * MS;

    /// The example of [`Latency::record_omitted`], lived through: a server that answers in 1 ms for 100 s, and
    /// then stands still for 100 s.
    #[test]
    fn a_stall_is_seen_by_all_that_were_due_in_it() {
        let mut latency = Latency::default();
        for due in Schedule::even(100.0).take_while(|due| due.0 < 200 * SECOND) {
            let answered = if due.0 < 100 * SECOND { due.0 + MS } else { (due.0 + MS).max(200 * SECOND) };
            latency.record(Schedule::latency(due, Nanos(answered)));
        }
        assert_eq!(latency.count(), 20_000);
        for (percent, expected) in [(50.0, MS), (75.0, 50 * SECOND), (90.0, 80 * SECOND), (99.0, 98 * SECOND)] {
            let found = latency.percentile(percent / 100.0).unwrap();
            assert!((found.0 as f64 / expected as f64 - 1.0).abs() < 0.002, "{percent} %: {found:?}");
        }
    }

    #[test]
    fn an_even_schedule_does_not_drift() {
        assert_eq!(Schedule::even(3.0).nth(3_000_000), Some(Nanos(1_000_000 * SECOND)));
    }

    #[test]
    fn random_arrivals_keep_their_rate_and_are_as_uneven_as_chance() {
        let due: Vec<f64> = Schedule::random(1000.0, 9).take(50_001).map(|due| due.0 as f64).collect();
        let gaps: Vec<f64> = due.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let summary = Summary::of(&gaps).unwrap();
        assert!((summary.mean / 1e6 - 1.0).abs() < 0.02, "{summary:?}");
        // Of a Poisson process the gaps vary as much as they are long.
        assert!((summary.variation().unwrap() - 1.0).abs() < 0.02, "{summary:?}");
        assert_eq!(Schedule::random(5.0, 2).nth(9), Schedule::random(5.0, 2).nth(9));
    }
}
