//! The runs of a point over time, at common moments, so that there is a median of each.
//!
//! Invariants:
//! - All runs of a point have the same moments. A moment is so many seconds, and is named by its end.
//! - A rate is the mean of its moment, a latency the worst second in it: a stall does not vanish in a long moment.

use super::super::{Record, Second};
use serde_json::{Map, Value, json};

/// A picture has no more moments than this: about one for every second unit of its width.
const MOMENTS_MAX: f64 = 400.0;
/// How many seconds a moment may have.
const STEPS: [f64; 11] = [1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0];

/// A value for each moment that has one.
pub type Values = Vec<Option<f64>>;

/// The moments of a point.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Moments {
    step: f64,
    count: usize,
}

/// Something that runs have over time.
pub struct Series {
    /// Its name in `figures.json`.
    pub name: &'static str,
    /// Of one run.
    pub of: fn(&Moments, &Record) -> Values,
    /// Of what the runs have at a moment.
    middle: fn(&[f64]) -> Option<f64>,
}

pub const THROUGHPUT: Series = Series {
    name: "throughput",
    of: |moments, record| moments.of_seconds(record, |second| Some(second.throughput), mean),
    middle: headpond_measure::median,
};
pub const P95: Series = Series {
    name: "p95_ms",
    of: |moments, record| moments.of_seconds(record, |second| second.p95_ms, worst),
    middle: headpond_measure::median,
};
const ALL: [Series; 2] = [THROUGHPUT, P95];

/// What `figures.json` says of a side's runs at a point; nothing of what no run has.
pub fn figures(records: &[Record], point: usize, side: usize) -> Value {
    let moments = Moments::of(records.iter().filter(|record| record.point == point));
    let runs: Vec<&Record> = records.iter().filter(|record| record.point == point && record.side == side).collect();
    let mut found = Map::new();
    found.insert("step_s".to_owned(), json!(moments.step));
    for series in ALL {
        let of: Vec<Values> = runs.iter().map(|record| (series.of)(&moments, record)).collect();
        let at = |index: usize| (series.middle)(&of.iter().filter_map(|values| values[index]).collect::<Vec<_>>());
        let middles: Values = (0..moments.count).map(at).collect();
        if middles.iter().any(Option::is_some) {
            found.insert(series.name.to_owned(), json!(middles));
        }
    }
    Value::Object(found)
}

impl Moments {
    /// Of these runs.
    pub fn of<'a>(records: impl Iterator<Item = &'a Record>) -> Self {
        let end = records.filter_map(|record| record.seconds.last()).map(|second| second.at).fold(0.0, f64::max);
        let step = STEPS.into_iter().find(|step| end / step <= MOMENTS_MAX).unwrap_or(end / MOMENTS_MAX);
        Self { step, count: ((end - 0.5) / step).ceil() as usize }
    }

    /// Seconds of a moment.
    pub fn step(&self) -> f64 {
        self.step
    }

    /// Where a moment ends, in seconds from the start of the load.
    pub fn at(&self, index: usize) -> f64 {
        (index + 1) as f64 * self.step
    }

    /// The moments that have a value, and those.
    pub fn points(&self, values: &[Option<f64>]) -> Vec<(f64, f64)> {
        values.iter().enumerate().filter_map(|(index, value)| Some((self.at(index), (*value)?))).collect()
    }

    fn of_seconds(
        &self,
        record: &Record,
        value: fn(&Second) -> Option<f64>,
        join: fn(&[f64]) -> Option<f64>,
    ) -> Values {
        self.joined(record.seconds.iter().filter_map(|second| Some((second.at, value(second)?))), join)
    }

    /// Seconds, by when they ended, brought together in moments. A clock may be half a second late.
    fn joined(&self, seconds: impl Iterator<Item = (f64, f64)>, join: fn(&[f64]) -> Option<f64>) -> Values {
        let mut parts = vec![Vec::new(); self.count];
        for (at, value) in seconds {
            let index = ((at - 0.5) / self.step).ceil().max(1.0) as usize - 1;
            if let Some(part) = parts.get_mut(index) {
                part.push(value);
            }
        }
        parts.iter().map(|part| join(part)).collect()
    }
}

fn mean(values: &[f64]) -> Option<f64> {
    headpond_measure::Summary::of(values).map(|summary| summary.mean)
}

fn worst(values: &[f64]) -> Option<f64> {
    values.iter().copied().reduce(f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run whose clock is late by some milliseconds, and whose `n`-th second does `n` times that much.
    fn run(seconds: u32, late: f64, each: f64) -> Record {
        let second = |number: u32| Second {
            at: f64::from(number) + late,
            throughput: f64::from(number) * each,
            p95_ms: Some(f64::from(number)),
            p99_ms: None,
        };
        Record { seconds: (1..=seconds).map(second).collect(), ..Record::blank() }
    }

    #[test]
    fn a_moment_has_the_median_of_the_runs_whose_clocks_differ() {
        let records = [run(3, 0.0, 10.0), run(3, 0.3, 30.0), run(2, -0.3, 20.0)];
        let figures = figures(&records, 0, 0);
        assert_eq!(figures, json!({"step_s": 1.0, "throughput": [20.0, 40.0, 60.0], "p95_ms": [1.0, 2.0, 3.0]}));
    }

    #[test]
    fn hours_have_longer_moments_with_the_mean_of_a_rate_and_the_worst_of_a_latency() {
        let long = run(3600, 0.0, 1.0);
        let moments = Moments::of([&long].into_iter());
        assert_eq!(moments, Moments { step: 10.0, count: 360 });
        assert_eq!((THROUGHPUT.of)(&moments, &long)[1], Some(15.5));
        assert_eq!((P95.of)(&moments, &long)[1], Some(20.0));
        assert_eq!(moments.at(359), 3600.0);
        assert_eq!(Moments::of([&Record::blank()].into_iter()).count, 0);
    }

    #[test]
    fn no_length_has_more_moments_than_fit() {
        for seconds in [1, 399, 401, 5_000, 86_400, 3_000_000] {
            let of = Moments::of(
                [&Record {
                    seconds: vec![run(1, f64::from(seconds) - 1.0, 1.0).seconds[0].clone()],
                    ..Record::blank()
                }]
                .into_iter(),
            );
            assert!(of.count >= 1 && of.count as f64 <= MOMENTS_MAX, "{seconds}: {of:?}");
        }
    }
}
