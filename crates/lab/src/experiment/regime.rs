//! What a cache did during a measurement: it filled with data that it lacked, served data that it had, or waited for
//! the origin to take dirty data.
//!
//! The figures of one regime say nothing about another, so each run says how much of it was in which. The mount's own
//! counters decide, in windows of five seconds:
//!
//! - **destage-bound**: more than one in a hundred of the load's operations waited for room or for destage;
//! - **cold fill**: otherwise, if the pool's content grew by more than a hundredth, and more than two in a hundred of
//!   the blocks read, if any, were misses; a log that grows beside reads that hit makes no difference;
//! - **warm**: otherwise.
//!
//! Invariant: every moment between the first and the last look at the counters is in exactly one stretch.

use super::Record;
use super::record::PondCounts;
use serde::Serialize;

/// Seconds of a window.
const WINDOW: f64 = 5.0;
/// More waits than this for each operation are no accident.
const WAITS_MAX: f64 = 0.01;
/// With more misses than this for each block read, the pool lacks the data.
const MISSES_MAX: f64 = 0.02;
/// With more growth than this in a window, as a share of the pool's data, the pool is filling.
const GROWTH_MAX: f64 = 0.01;

/// What a cache was doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub enum Regime {
    /// Taking in what it did not hold.
    ColdFill,
    /// Serving what it holds.
    Warm,
    /// Waiting for the origin to take what it has to give.
    DestageBound,
}

impl Regime {
    /// All of them, in the order in which a cache comes through them.
    pub const ALL: [Self; 3] = [Self::ColdFill, Self::Warm, Self::DestageBound];

    /// For people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ColdFill => "cold fill",
            Self::Warm => "warm",
            Self::DestageBound => "destage-bound",
        }
    }
}

/// A time in one regime, in seconds from the start of the load.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Stretch {
    /// Which.
    pub regime: Regime,
    /// From here.
    pub from: f64,
    /// To here.
    pub to: f64,
}

impl Record {
    /// The stretches of a run, in their order; none of a run without a cache.
    #[must_use]
    pub fn stretches(&self) -> Vec<Stretch> {
        let mut stretches: Vec<Stretch> = Vec::new();
        if self.pond.iter().all(|pond| pond.held_blocks == 0) {
            return stretches;
        }
        let mut begin = 0;
        for end in 1..self.pond.len() {
            let (from, to) = (&self.pond[begin], &self.pond[end]);
            if to.at - from.at < WINDOW && end + 1 < self.pond.len() {
                continue;
            }
            let regime = self.regime(from, to);
            match stretches.last_mut() {
                Some(last) if last.regime == regime => last.to = to.at,
                _ => stretches.push(Stretch { regime, from: from.at, to: to.at }),
            }
            begin = end;
        }
        stretches
    }

    fn regime(&self, from: &PondCounts, to: &PondCounts) -> Regime {
        let waits = to.stalls.saturating_sub(from.stalls) as f64;
        let (mut before, mut operations) = (0.0_f64, 0.0);
        for second in &self.seconds {
            let shared = second.at.min(to.at) - before.max(from.at);
            operations += second.throughput * shared.max(0.0);
            before = second.at;
        }
        let grown = to.held_blocks.saturating_sub(from.held_blocks) as f64;
        let grows = grown > from.held_blocks as f64 * GROWTH_MAX * ((to.at - from.at) / WINDOW);
        let gained = |counter: fn(&PondCounts) -> u64| counter(to).saturating_sub(counter(from)) as f64;
        let (hits, misses) = (gained(|pond| pond.hit_blocks), gained(|pond| pond.miss_blocks));
        let lacks = hits + misses == 0.0 || misses > (hits + misses) * MISSES_MAX;
        if waits > operations * WAITS_MAX {
            Regime::DestageBound
        } else if grows && lacks {
            Regime::ColdFill
        } else {
            Regime::Warm
        }
    }

    /// How much of the part that counts was in which regime, as shares; none of a run without a cache.
    #[must_use]
    pub fn regimes(&self) -> Option<[f64; 3]> {
        let stretches = self.stretches();
        let counted = |stretch: &Stretch| (stretch.to - stretch.from.max(self.warmup)).max(0.0);
        let all: f64 = stretches.iter().map(counted).sum();
        (all > 0.0).then(|| {
            Regime::ALL.map(|regime| {
                stretches.iter().filter(|stretch| stretch.regime == regime).map(counted).fold(0.0, |sum, of| sum + of)
                    / all
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::Second;
    use super::*;

    /// 20 s in which the pool fills, 20 s in which nothing changes, 20 s in which every tenth write waits.
    fn record() -> Record {
        let second = |at: u32| Second { at: f64::from(at), throughput: 100.0, p95_ms: None, p99_ms: None };
        let pond = |at: u32| PondCounts {
            at: f64::from(at),
            held_blocks: 1_000 + u64::from(at.min(20)) * 400,
            stalls: u64::from(at.saturating_sub(40)) * 10,
            ..PondCounts::default()
        };
        Record {
            warmup: 30.0,
            seconds: (1..=60).map(second).collect(),
            pond: (0..=60).map(pond).collect(),
            ..Record::blank()
        }
    }

    #[test]
    fn the_three_regimes_are_told_apart_by_the_counters() {
        let found: Vec<_> =
            record().stretches().iter().map(|stretch| (stretch.regime, stretch.from, stretch.to)).collect();
        let expected = [(Regime::ColdFill, 0.0, 20.0), (Regime::Warm, 20.0, 40.0), (Regime::DestageBound, 40.0, 60.0)];
        assert_eq!(found, expected);
        // Of the last 30 s, 10 are warm.
        let shares = record().regimes().unwrap().map(|share| (share * 30.0).round());
        assert_eq!(shares, [0.0, 10.0, 20.0]);
    }

    #[test]
    fn a_pool_that_grows_beside_reads_that_hit_is_warm() {
        let with = |misses: u64| {
            let mut reading = record();
            for pond in &mut reading.pond {
                (pond.hit_blocks, pond.miss_blocks) = (pond.held_blocks * 100, pond.held_blocks * misses);
            }
            reading.stretches()[0].regime
        };
        assert_eq!([with(1), with(5)], [Regime::Warm, Regime::ColdFill]);
    }

    #[test]
    fn a_wait_now_and_then_is_no_regime_and_neither_is_a_mount_without_a_cache() {
        let mut rare = record();
        rare.pond.iter_mut().for_each(|pond| pond.stalls /= 20);
        assert!(rare.stretches().iter().all(|stretch| stretch.regime != Regime::DestageBound));
        rare.pond.iter_mut().for_each(|pond| pond.held_blocks = 0);
        assert_eq!((rare.stretches(), rare.regimes()), (Vec::new(), None));
        assert_eq!(Record::blank().regimes(), None);
    }
}
