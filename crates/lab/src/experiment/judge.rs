//! What the runs of a session mean: a comparison of each side with its counterpart, point by point, and the limit of
//! each.
//!
//! Invariant: it claims "times" only if a test says that chance is an unlikely reason. Otherwise it says `~`, or that
//! there are too few runs.

use super::{Plan, Record, Settling};
use headpond_measure::{MannWhitney, RUNS_MIN, RatioInterval, Summary, mann_whitney, ratio_of_medians};

/// From here on the processors are taken for the limit.
pub(super) const PROCESSORS_FULL: f64 = 0.85;
/// From here on the device under the target is.
pub(super) const DEVICE_FULL: f64 = 0.90;

/// The runs of a side at a point.
#[derive(Clone, Debug)]
pub struct Cell {
    /// Which side.
    pub side: usize,
    /// Their throughputs, in the order in which they were run.
    pub values: Vec<f64>,
    /// What those are like.
    pub summary: Summary,
    /// The middle of their 99th percentiles in milliseconds.
    pub p99_ms: Option<f64>,
    /// The worst of their longest, in milliseconds.
    pub max_ms: Option<f64>,
    /// The middle of the coefficients of variation of their averages of 10 s; none where they are too short.
    pub variation: Option<f64>,
    /// The same of what was written to the origin.
    pub origin_variation: Option<f64>,
    /// The middle of the bytes that the device, or a mount's flash, got for each operation.
    pub written: Option<f64>,
    /// The middle of the shares of what reads found in the cache; none without one.
    pub found: Option<f64>,
    /// How many of them had settled, of how many that could be judged.
    pub steady: (usize, usize),
    /// How much of what counts was cold fill, warm and destage-bound, as shares; none without a cache.
    pub regimes: Option<[f64; 3]>,
    /// Where they settled, of runs that go on until they are steady.
    pub settled: Option<SettledRuns>,
    /// What limited them, in words.
    pub limit: String,
}

/// Where runs settled: the middle of what each came to.
#[derive(Clone, Copy, Debug)]
pub struct SettledRuns {
    /// Runs that did, of those that were judged.
    pub runs: (usize, usize),
    /// Seconds until then, of those that did.
    pub after: Option<f64>,
    /// Operations a second at first.
    pub first: f64,
    /// Operations a second from there on.
    pub mean: f64,
    /// The standard deviation of those seconds.
    pub deviation: f64,
}

/// A side against the first.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The point.
    pub point: usize,
    /// The side.
    pub side: usize,
    /// The side that it is compared with.
    pub against: usize,
    /// How many times the other's throughput it has.
    pub ratio: RatioInterval,
    /// How many times the other's 99th percentile.
    pub p99: Option<f64>,
    /// How many times the bytes that the other's device got for each operation.
    pub written: Option<f64>,
    /// Whether that may be chance.
    pub test: MannWhitney,
    /// Runs of the other side, and of this one.
    pub runs: (usize, usize),
}

impl Comparison {
    /// Whether there are enough runs on either side to tell.
    #[must_use]
    pub fn enough(&self) -> bool {
        self.runs.0.min(self.runs.1) >= RUNS_MIN
    }

    /// In words, behind a side's name.
    #[must_use]
    pub fn words(&self, base: &str) -> String {
        let ratio = short(self.ratio.ratio);
        let runs = format!("n = {} and {}", self.runs.0, self.runs.1);
        if !self.enough() {
            return format!(
                "{ratio} times {base} as measured, but too few runs to tell from chance ({runs}; {RUNS_MIN} are needed)"
            );
        }
        let interval = self
            .ratio
            .interval
            .map_or(String::new(), |(low, high)| format!("95 % interval {} to {}, ", short(low), short(high)));
        let detail = format!("{interval}{runs}, p = {}", short(self.test.p));
        if self.test.significant() {
            format!("{ratio} times {base} ({detail})")
        } else {
            format!("~ {base}: no difference that is not likely chance ({ratio} times; {detail})")
        }
    }
}

/// What a session means.
#[derive(Clone, Debug)]
pub struct SessionJudgement {
    /// By point: by side, where there are runs.
    pub cells: Vec<Vec<Cell>>,
    /// Every side against the one that it is compared with, where both have runs.
    pub comparisons: Vec<Comparison>,
}

/// Judges the runs that there are.
#[must_use]
pub fn judge(plan: &Plan, records: &[Record], seed: u64) -> SessionJudgement {
    let cells: Vec<Vec<Cell>> = (0..plan.points.len())
        .map(|point| (0..plan.sides.len()).filter_map(|side| cell(plan, records, point, side)).collect())
        .collect();
    let mut comparisons = Vec::new();
    for (point, row) in cells.iter().enumerate() {
        for cell in row {
            for base in row.iter().filter(|other| compared(plan, cell.side, other.side)) {
                if let (Some(ratio), Some(test)) =
                    (ratio_of_medians(&cell.values, &base.values, seed), mann_whitney(&cell.values, &base.values))
                {
                    let runs = (base.values.len(), cell.values.len());
                    let times =
                        |this: Option<f64>, other: Option<f64>| Some(this? / other.filter(|other| *other > 0.0)?);
                    let (p99, written) = (times(cell.p99_ms, base.p99_ms), times(cell.written, base.written));
                    let (side, against) = (cell.side, base.side);
                    comparisons.push(Comparison { point, side, against, ratio, p99, written, test, runs });
                }
            }
        }
    }
    SessionJudgement { cells, comparisons }
}

/// Whether a side is compared with another: with the one that it names, and with the first of all where that is another
/// target.
fn compared(plan: &Plan, side: usize, other: usize) -> bool {
    let elsewhere = plan.sides[0].target != plan.sides[side].target;
    side != other && (plan.sides[side].against == other || (other == 0 && elsewhere))
}

fn cell(plan: &Plan, records: &[Record], point: usize, side: usize) -> Option<Cell> {
    let of: Vec<&Record> = records.iter().filter(|record| record.point == point && record.side == side).collect();
    let values: Vec<f64> = of.iter().map(|record| record.figures.throughput).collect();
    let p99: Vec<f64> = of.iter().filter_map(|record| record.figures.p99_ms).collect();
    let max = of.iter().filter_map(|record| record.figures.max_ms).reduce(f64::max);
    let judged = of.iter().filter_map(|record| record.steadiness);
    let steady = judged.clone().filter(|found| found.steady).count();
    Some(Cell {
        side,
        summary: Summary::of(&values)?,
        values,
        p99_ms: headpond_measure::median(&p99),
        max_ms: max,
        variation: middle(&of, Record::variation),
        origin_variation: middle(&of, Record::origin_variation),
        written: middle(&of, Record::written_for_each),
        found: middle(&of, Record::share_found),
        steady: (steady, judged.count()),
        regimes: regimes(&of),
        settled: settled(&of),
        limit: limit(&of, plan.definition.write_limit),
    })
}

/// The mean shares of the runs.
fn regimes(records: &[&Record]) -> Option<[f64; 3]> {
    let shares: Vec<[f64; 3]> = records.iter().filter_map(|record| record.regimes()).collect();
    let count = shares.len() as f64;
    (!shares.is_empty()).then(|| [0, 1, 2].map(|one| shares.iter().map(|of| of[one]).sum::<f64>() / count))
}

fn settled(records: &[&Record]) -> Option<SettledRuns> {
    let of: Vec<Settling> = records.iter().filter_map(|record| record.settling).collect();
    let median = |value: fn(&Settling) -> f64| headpond_measure::median(&of.iter().map(value).collect::<Vec<_>>());
    let after: Vec<f64> = of.iter().filter_map(|one| one.after).collect();
    Some(SettledRuns {
        runs: (after.len(), of.len()),
        after: headpond_measure::median(&after),
        first: median(|one| one.first)?,
        mean: median(|one| one.mean)?,
        deviation: median(|one| one.deviation)?,
    })
}

/// The middle of what runs have.
fn middle(records: &[&Record], value: impl Fn(&Record) -> Option<f64>) -> Option<f64> {
    headpond_measure::median(&records.iter().filter_map(|record| value(record)).collect::<Vec<_>>())
}

/// The resources that were used up, by the machine's counters.
fn limit(records: &[&Record], write_limit: Option<u32>) -> String {
    let mean = |value: &dyn Fn(&Record) -> Option<f64>| {
        let values: Vec<f64> = records.iter().filter_map(|record| value(record)).collect();
        Summary::of(&values).map(|summary| summary.mean)
    };
    let processors = mean(&|record| record.machine(|system| Some(system.user + system.system)));
    let device = mean(&|record| record.machine(|system| system.device_busy));
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    let written = mean(&|record| Some(record.written_for_each()? * record.figures.throughput));
    if let Some((written, limit)) = written.zip(write_limit) {
        let share = written / (f64::from(limit) * 1e6);
        if share >= DEVICE_FULL {
            return format!("what the flash takes ({} of {limit} MB/s)", percent(share));
        }
    }
    match (processors, device) {
        (Some(share), _) if share >= PROCESSORS_FULL => format!("the processors ({} used)", percent(share)),
        (_, Some(busy)) if busy >= DEVICE_FULL => format!("the device ({} busy)", percent(busy)),
        (Some(share), Some(busy)) => format!(
            "neither processors ({}) nor device ({} busy): waiting for answers, or for a modelled disk",
            percent(share),
            percent(busy)
        ),
        (Some(share), None) => format!("not the processors ({})", percent(share)),
        _ => "not known".to_owned(),
    }
}

/// A number with as many digits as mean something.
#[must_use]
pub fn short(number: f64) -> String {
    match number.abs() {
        0.0 => "0".to_owned(),
        100.0.. => format!("{number:.0}"),
        10.0.. => format!("{number:.1}"),
        0.1.. => format!("{number:.2}"),
        _ => format!("{number:.4}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Definition, Figures, Target};
    use super::*;

    fn record(side: usize, repetition: u32, throughput: f64) -> Record {
        let figures = Figures { throughput, p99_ms: Some(5.0), ..Figures::default() };
        Record { side, repetition, figures, ..Record::blank() }
    }

    fn judged(sides: [&[f64]; 2]) -> String {
        let targets = ["a=/a", "b=/b"].map(|text| Target::parse(text).unwrap());
        let plan = Plan::of(Definition::find("profiles").unwrap(), targets.into()).unwrap();
        let values = sides.iter().enumerate().flat_map(|(side, values)| values.iter().map(move |value| (side, *value)));
        let records: Vec<Record> = values.map(|(side, value)| record(side, 1, value)).collect();
        let judgement = judge(&plan, &records, 1);
        judgement.comparisons.first().map_or_else(String::new, |found| found.words("a"))
    }

    #[test]
    fn a_clear_difference_is_claimed_with_its_interval() {
        let words = judged([&[100.0, 104.0, 98.0, 101.0], &[300.0, 310.0, 305.0, 298.0]]);
        assert!(
            words.starts_with("3.01 times a (95 % interval 2.") && words.contains("n = 4 and 4, p = 0.0286"),
            "{words}"
        );
    }

    #[test]
    fn what_may_be_chance_is_no_difference() {
        let words = judged([&[100.0, 104.0, 98.0, 101.0], &[101.0, 99.0, 103.0, 105.0]]);
        assert!(words.starts_with("~ a"), "{words}");
    }

    #[test]
    fn one_run_against_one_claims_nothing() {
        let words = judged([&[100.0], &[900.0]]);
        assert!(words.contains("too few runs") && words.contains("9.00 times"), "{words}");
        assert_eq!(judged([&[], &[900.0]]), "");
    }

    #[test]
    fn the_limit_is_what_the_counters_say() {
        let with = |user: f64, busy: f64| {
            let mut record = record(0, 1, 1.0);
            record.system.push(super::super::System { at: 1.0, user, device_busy: Some(busy), ..Default::default() });
            limit(&[&record], None)
        };
        assert!(with(0.95, 0.95).starts_with("the processors"));
        assert!(with(0.30, 0.95).starts_with("the device (95 %"));
        assert!(with(0.30, 0.10).starts_with("neither"));
        assert_eq!(limit(&[&record(0, 1, 1.0)], None), "not known");
        let mut slow = record(0, 1, 100.0);
        let system =
            super::super::System { at: 1.0, device_written: 4.9e7, device_busy: Some(0.1), ..Default::default() };
        slow.system.push(system);
        assert_eq!(slow.written_for_each(), Some(4.9e5));
        assert!(limit(&[&slow], Some(50)).starts_with("what the flash takes (98 % of 50"));
        assert!(limit(&[&slow], Some(100)).starts_with("neither"));
    }
}
