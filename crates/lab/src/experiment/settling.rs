//! Where a run settles, if it is to go on until it is steady.
//!
//! Invariants:
//! - The length of the run is fixed beforehand. Its end decides where it settled, so that the even beginning of a
//!   cache with room, or of a fresh card, does not pass for the steady state.
//! - Rounds have equal length by the clock. A partial round at the end does not count.

use super::Record;
use super::record::{Second, Settling, Steadiness};
use headpond_measure::{ROUNDS, Summary, judge, settled_to_the_end};

/// What is found in the seconds of a run.
pub struct SettlingFound {
    /// Where it settled, and what it is like from there on.
    pub settling: Settling,
    /// What the rule says of its last five rounds.
    pub steadiness: Steadiness,
    /// From here on it counts.
    pub from: f64,
}

/// Looks for where a run settled. None if it has not five rounds in which something happened.
pub fn find(seconds: &[Second], round: u32) -> Option<SettlingFound> {
    let length = f64::from(round);
    // A second belongs to the round in which most of it lies: its end may be a little late.
    let number = |second: &Second| ((second.at - 0.5) / length) as usize;
    let count = (seconds.last()?.at + 0.5) as usize / round as usize;
    let of = |wanted: usize| {
        let values: Vec<f64> =
            seconds.iter().filter(|second| number(second) == wanted).map(|second| second.throughput).collect();
        Summary::of(&values).map_or(0.0, |summary| summary.mean)
    };
    let rounds: Vec<f64> = (0..count).map(of).collect();
    let last = judge(rounds.get(count.checked_sub(ROUNDS)?..)?)?;
    let settled = settled_to_the_end(&rounds);
    let first = settled.map_or(count - ROUNDS, |settled| settled.from);
    let from = first as f64 * length;
    let counted: Vec<f64> =
        seconds.iter().filter(|second| number(second) >= first).map(|second| second.throughput).collect();
    let summary = Summary::of(&counted)?;
    Some(SettlingFound {
        settling: Settling {
            round,
            after: settled.map(|_| from),
            first: rounds[0],
            mean: summary.mean,
            deviation: summary.deviation,
        },
        steadiness: Steadiness { steady: settled.is_some(), range: last.range, slope: last.slope },
        from,
    })
}

impl Record {
    /// Has the run count from where it settled, if that was looked for.
    pub(super) fn count_from(&mut self, found: Option<SettlingFound>) {
        if let Some(found) = found {
            self.warmup = found.from;
            (self.settling, self.steadiness) = (Some(found.settling), Some(found.steadiness));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(values: impl IntoIterator<Item = f64>) -> Vec<Second> {
        let second = |(index, throughput): (usize, f64)| Second {
            // fio's reports come a little late.
            at: index as f64 + 1.02,
            throughput,
            p95_ms: None,
            p99_ms: None,
        };
        values.into_iter().enumerate().map(second).collect()
    }

    /// 100 s with room, 60 s of decline, then 500 and 700 in turns.
    fn declining() -> Vec<f64> {
        let decline = (0..60).map(|second| 2000.0 - f64::from(second) * 24.0);
        [2000.0; 100].into_iter().chain(decline).chain((0..140).map(|second| [500.0, 700.0][second % 2])).collect()
    }

    #[test]
    fn a_run_counts_from_where_it_stays_even() {
        let found = find(&seconds(declining()), 10).unwrap();
        // A window with the last of the decline, 692 before rounds of 600, still falls by 12 %.
        assert_eq!((found.settling.after, found.from, found.settling.first), (Some(160.0), 160.0, 2000.0));
        assert!((found.settling.mean - 600.0).abs() < 1.0, "{:?}", found.settling);
        assert!((found.settling.deviation - 100.0).abs() < 5.0 && found.steadiness.steady, "{:?}", found.settling);
    }

    #[test]
    fn what_still_falls_at_the_end_is_not_steady_and_its_last_rounds_are_told() {
        let found = find(&seconds(declining().into_iter().take(160)), 10).unwrap();
        assert_eq!((found.settling.after, found.from), (None, 110.0));
        assert!(!found.steadiness.steady && found.steadiness.slope < -0.10, "{:?}", found.steadiness);
    }

    #[test]
    fn too_few_rounds_say_nothing_and_a_part_of_one_is_in_none() {
        assert!(find(&seconds([100.0; 49]), 10).is_none() && find(&[], 10).is_none());
        // Nine seconds more make no round, whatever they are like.
        let values = [100.0; 50].into_iter().chain([900.0; 9]);
        assert!(find(&seconds(values), 10).unwrap().steadiness.steady);
    }
}
