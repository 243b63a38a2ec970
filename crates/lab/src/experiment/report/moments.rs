//! The runs of a point over time, at common moments, so that there is a median of each.
//!
//! Invariants:
//! - All runs of a point have the same moments. A moment is so many seconds, and is named by its end.
//! - A rate is the mean of its moment, a latency the worst second in it: a stall does not vanish in a long moment.

use super::super::{Record, Second, System};
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
    /// Of what the runs have at a moment: the median, or the mean of shares that have to add up.
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
/// Reads a second that the cache answered, as it counts them.
pub const FROM_FLASH: Series = Series {
    name: "reads_from_flash",
    of: |moments, record| moments.gained(&looks(record, |found, _| found)),
    middle: headpond_measure::median,
};
/// Reads a second that the origin answered.
pub const FROM_ORIGIN: Series = Series {
    name: "reads_from_origin",
    of: |moments, record| moments.gained(&looks(record, |_, missed| missed)),
    middle: headpond_measure::median,
};
/// Both.
pub const READS: Series = Series {
    name: "reads",
    of: |moments, record| moments.gained(&looks(record, |found, missed| found + missed)),
    middle: headpond_measure::median,
};
/// The share of the reads that the cache answered.
pub const FOUND: Series = Series {
    name: "reads_found",
    of: |moments, record| {
        let pairs = (FROM_FLASH.of)(moments, record).into_iter().zip((READS.of)(moments, record));
        pairs.map(|(found, reads)| Some(found? / reads.filter(|reads| *reads > 0.0)?)).collect()
    },
    middle: headpond_measure::median,
};
/// The share of the processors' time in programs.
pub const USER: Series = Series {
    name: "processors_user",
    of: |moments, record| moments.of_system(record, |system| system.user),
    middle: mean,
};
/// In the kernel.
pub const SYSTEM: Series = Series {
    name: "processors_system",
    of: |moments, record| moments.of_system(record, |system| system.system),
    middle: mean,
};
/// Waiting for I/O.
pub const WAITING: Series = Series {
    name: "processors_waiting",
    of: |moments, record| moments.of_system(record, |system| system.waiting),
    middle: mean,
};
const ALL: [Series; 9] = [THROUGHPUT, P95, FROM_FLASH, FROM_ORIGIN, READS, FOUND, USER, SYSTEM, WAITING];

/// What a cache's counters of reads stood at, by when; nothing of a run in which they stood still.
fn looks(record: &Record, value: fn(u64, u64) -> u64) -> Vec<(f64, f64)> {
    let pond = record.pond.iter().map(|pond| (pond.at, pond.hit_blocks, pond.miss_blocks));
    let reads = record.reads.iter().map(|reads| (reads.at, reads.found, reads.missed));
    let all: Vec<_> = if record.pond.is_empty() { reads.collect() } else { pond.collect() };
    let still = all.first().map(|first| (first.1, first.2)) == all.last().map(|last| (last.1, last.2));
    let looks = all.iter().filter(|_| !still);
    looks.map(|(at, found, missed)| (*at, value(*found, *missed) as f64)).collect()
}

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

    fn of_system(&self, record: &Record, value: fn(&System) -> f64) -> Values {
        self.joined(record.system.iter().map(|system| (system.at, value(system))), mean)
    }

    /// What a counter gained in each second of a moment. Between two looks it grows evenly.
    fn gained(&self, looks: &[(f64, f64)]) -> Values {
        let [first, .., last] = looks else { return vec![None; self.count] };
        let level = |at: f64| {
            let after = looks.partition_point(|look| look.0 < at).clamp(1, looks.len() - 1);
            let (from, to) = (looks[after - 1], looks[after]);
            let share = if to.0 > from.0 { (at - from.0) / (to.0 - from.0) } else { 1.0 };
            from.1 + share * (to.1 - from.1)
        };
        let of = |index: usize| {
            let (from, to) = ((self.at(index) - self.step).max(first.0), self.at(index).min(last.0));
            // Of less than half a moment it would be chance.
            (to - from >= self.step / 2.0).then(|| ((level(to) - level(from)) / (to - from)).max(0.0))
        };
        (0..self.count).map(of).collect()
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
    use super::super::super::{CacheReads, PondCounts};
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
    fn counters_are_read_between_looks_and_the_shares_add_up() {
        let pond =
            |at: f64, hit_blocks, miss_blocks| PondCounts { at, hit_blocks, miss_blocks, ..PondCounts::default() };
        // Looks come late, and one is missing.
        let looks = vec![pond(0.2, 7, 100), pond(1.5, 7, 230), pond(3.5, 207, 430), pond(4.1, 207, 430)];
        let run = Record { pond: looks, ..run(4, 0.0, 1.0) };
        let moments = Moments::of([&run].into_iter());
        let of =
            |series: Series| (series.of)(&moments, &run).iter().map(|value| value.map(f64::round)).collect::<Vec<_>>();
        assert_eq!(of(FROM_FLASH), [Some(0.0), Some(50.0), Some(100.0), Some(50.0)]);
        assert_eq!(of(FROM_ORIGIN), [Some(100.0), Some(100.0), Some(100.0), Some(50.0)]);
        assert_eq!(of(READS), [Some(100.0), Some(150.0), Some(200.0), Some(100.0)]);
        let found = figures(std::slice::from_ref(&run), 0, 0)["reads_found"].clone();
        let found: Vec<f64> =
            found.as_array().unwrap().iter().map(|share| (share.as_f64().unwrap() * 100.0).round()).collect();
        assert_eq!(found, [0.0, 33.0, 50.0, 50.0]);
        // A moment that the last look hardly reaches has none, and a guest's cache counts as well.
        let told = |at, found| CacheReads { at, found, missed: 0 };
        let guest = Record { pond: Vec::new(), reads: vec![told(0.0, 5), told(2.2, 27)], ..run };
        assert_eq!(moments.gained(&looks_of(&guest)), [Some(10.0), Some(10.0), None, None]);
    }

    fn looks_of(record: &Record) -> Vec<(f64, f64)> {
        looks(record, |found, _| found)
    }

    #[test]
    fn a_cache_without_reads_has_no_series_of_them() {
        let still = PondCounts { hit_blocks: 9, ..PondCounts::default() };
        let written = Record { pond: vec![still.clone(), PondCounts { at: 2.0, ..still }], ..run(2, 0.0, 1.0) };
        let figures = figures(&[written], 0, 0);
        assert!(figures["throughput"].is_array() && figures["reads"].is_null(), "{figures}");
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
