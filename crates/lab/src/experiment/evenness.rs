//! How even a rate is over time: averages of 10 s, and how much they differ.
//!
//! Invariant: the clock cuts windows from the end of the warm-up on, whole ones only. So two runs of one plan are cut
//! in the same way. An interval that spans a cut is divided by time.

use super::Record;
use headpond_measure::Summary;

/// The length of a window in seconds: that of the published figures.
const WINDOW: f64 = crate::statistics::WINDOW_SECONDS as f64;
/// Fewer windows say nothing of how they differ.
const WINDOWS_MIN: usize = 3;
/// A window may end so much after the last report: the last second is reported a little early.
const LATE_MAX: f64 = 0.5;

/// Averages over the windows of what was counted in all at some moments, both ascending, from `begin` on.
fn averages(counted: &[(f64, f64)], begin: f64) -> Vec<f64> {
    let Some(last) = counted.last().map(|last| last.0) else { return Vec::new() };
    let mut averages = Vec::new();
    let mut from = begin;
    while from + WINDOW <= last + LATE_MAX {
        averages.push((at(counted, from + WINDOW) - at(counted, from)) / WINDOW);
        from += WINDOW;
    }
    averages
}

/// What was counted by a moment, on a straight line between the two that are known.
fn at(counted: &[(f64, f64)], moment: f64) -> f64 {
    let after = counted.partition_point(|(at, _)| *at <= moment);
    let before = after.checked_sub(1).and_then(|index| counted.get(index));
    match (before, counted.get(after)) {
        (Some((from, less)), Some((to, more))) => less + (more - less) * (moment - from) / (to - from),
        (Some((_, known)), None) | (None, Some((_, known))) => *known,
        (None, None) => 0.0,
    }
}

fn variation(averages: &[f64]) -> Option<f64> {
    (averages.len() >= WINDOWS_MIN).then(|| Summary::of(averages)?.variation()).flatten()
}

impl Record {
    /// By how much the averages of 10 s of the throughput differ: their coefficient of variation.
    #[must_use]
    pub fn variation(&self) -> Option<f64> {
        let (mut before, mut sum) = (0.0, 0.0);
        let mut counted = vec![(0.0, 0.0)];
        for second in &self.seconds {
            sum += second.throughput * (second.at - before);
            before = second.at;
            counted.push((second.at, sum));
        }
        variation(&averages(&counted, self.warmup))
    }

    /// The same of the bytes that the mount wrote to the origin; none where it wrote nothing.
    #[must_use]
    pub fn origin_variation(&self) -> Option<f64> {
        let counted: Vec<(f64, f64)> = self.pond.iter().map(|pond| (pond.at, pond.origin_write_bytes as f64)).collect();
        variation(&averages(&counted, self.warmup))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{PondCounts, Second};
    use super::*;

    fn record(warmup: f64, throughputs: &[f64]) -> Record {
        let second = |(index, throughput): (usize, &f64)| Second {
            at: index as f64 + 1.0,
            throughput: *throughput,
            p95_ms: None,
            p99_ms: None,
        };
        Record { warmup, seconds: throughputs.iter().enumerate().map(second).collect(), ..Record::blank() }
    }

    #[test]
    fn windows_are_whole_and_begin_after_the_warm_up() {
        // 5 s of warm-up, windows of 90, 100 and 110 on average, and a rest that makes no window.
        let mut seconds = vec![5_000.0; 5];
        for mean in [90.0, 100.0, 110.0] {
            seconds.extend([mean - 30.0, mean + 30.0].repeat(5));
        }
        seconds.extend([7_000.0; 9]);
        let found = record(5.0, &seconds).variation().unwrap();
        assert!((found - 0.1).abs() < 1e-12, "deviation 10 of 100: {found}");
    }

    #[test]
    fn two_windows_say_nothing() {
        assert_eq!(record(0.0, &[100.0; 29]).variation(), None);
        assert_eq!(record(0.0, &[100.0; 30]).variation(), Some(0.0));
        assert_eq!(record(0.0, &[0.0; 30]).variation(), None, "nothing was done");
    }

    #[test]
    fn samples_between_the_cuts_are_shared_out_by_time() {
        // A constant rate that is looked at now and then is even.
        let mut even = record(4.0, &[]);
        even.pond = [0.1, 3.3, 9.0, 21.5, 40.2]
            .map(|at| PondCounts { at, origin_write_bytes: (at * 1e6) as u64, ..PondCounts::default() })
            .to_vec();
        let found = even.origin_variation().unwrap();
        assert!(found < 1e-4, "{found}");
        even.pond[3].origin_write_bytes *= 2;
        assert!(even.origin_variation().unwrap() > 0.5);
    }
}
