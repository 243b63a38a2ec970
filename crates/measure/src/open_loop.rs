//! When requests are due, whatever happened to earlier ones: an open loop.
//!
//! A client that waits for each answer before it asks again spares a server that stalls. It then reports one slow
//! answer where users would see thousands ("coordinated omission"). Here each request is due at a moment that is fixed
//! before the run. Its latency counts from there, even if it was sent late.

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
    /// How many requests came. Moments are multiples of the interval: sums would drift.
    Even(u64),
    /// The moment of the last request.
    Random(Random, f64),
}

impl Schedule {
    /// `rate` requests a second at even distances. The rate must be above zero.
    #[must_use]
    pub fn even(rate: f64) -> Self {
        assert!(rate > 0.0, "a rate of {rate} a second is no schedule");
        Self { interval: 1e9 / rate, arrivals: Arrivals::Even(0) }
    }

    /// `rate` requests a second on average, each independent of the others, as with many users (a Poisson process).
    /// The rate must be above zero.
    #[must_use]
    pub fn random(rate: f64, seed: u64) -> Self {
        Self { arrivals: Arrivals::Random(Random::new(seed), 0.0), ..Self::even(rate) }
    }

    /// The latency of a request from when it was due to its answer.
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

    /// The example of [`Latency::record_omitted`] as an open loop: a server answers in 1 ms for 100 s, then stands
    /// still for 100 s.
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
        // In a Poisson process the gaps vary as much as they are long.
        assert!((summary.variation().unwrap() - 1.0).abs() < 0.02, "{summary:?}");
        assert_eq!(Schedule::random(5.0, 2).nth(9), Schedule::random(5.0, 2).nth(9));
    }
}
