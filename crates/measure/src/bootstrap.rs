//! How many times larger one set of runs is than another, and how sure that is.
//!
//! The ratio of the medians, with an interval that holds the true ratio in about 95 of 100 experiments: the percentile
//! bootstrap (Efron and Tibshirani, "An Introduction to the Bootstrap", chapter 13). Each set is drawn again from
//! itself, with replacement.

use crate::{Random, median};

/// How many sets are drawn. With 10,000 the ends of the interval vary by well under a percent of its width.
const DRAWS: usize = 10_000;
/// The share left out at either end.
const TAIL: f64 = 0.025;
/// Runs on a side that an interval needs. With fewer there is only a ratio: an interval would claim too much.
pub const RUNS_MIN: usize = 4;

/// A ratio with its interval.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RatioInterval {
    /// The median of `other` over the median of `base`.
    pub ratio: f64,
    /// The ends of the interval; `None` with fewer than [`RUNS_MIN`] runs on a side.
    pub interval: Option<(f64, f64)>,
}

/// The median of `other` over the median of `base`. `None` if a set is empty or holds a value that is not above zero.
#[must_use]
pub fn ratio_of_medians(other: &[f64], base: &[f64], seed: u64) -> Option<RatioInterval> {
    ratio_by(DRAWS, other, base, seed)
}

fn ratio_by(draws: usize, other: &[f64], base: &[f64], seed: u64) -> Option<RatioInterval> {
    if other.iter().chain(base).any(|value| value.is_nan() || *value <= 0.0) {
        return None;
    }
    let ratio = median(other)? / median(base)?;
    if other.len().min(base.len()) < RUNS_MIN {
        return Some(RatioInterval { ratio, interval: None });
    }
    let mut random = Random::new(seed);
    let mut ratios = Vec::with_capacity(draws);
    for _ in 0..draws {
        ratios.push(median(&drawn(other, &mut random))? / median(&drawn(base, &mut random))?);
    }
    ratios.sort_by(f64::total_cmp);
    let tail = (draws as f64 * TAIL) as usize;
    Some(RatioInterval { ratio, interval: Some((ratios[tail], ratios[draws - 1 - tail])) })
}

/// Draws as many values again, each from all of them.
fn drawn(values: &[f64], random: &mut Random) -> Vec<f64> {
    values.iter().map(|_| values[random.below(values.len())]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Summary;

    /// Efron and Tibshirani (1993), table 2.2: days that treated mice survived. With infinitely many draws the
    /// standard error is 23.36 for the mean and 37.83 for the median.
    #[test]
    fn drawing_again_gives_the_published_standard_errors() {
        let treated = [94.0, 197.0, 16.0, 38.0, 99.0, 141.0, 23.0];
        let mut random = Random::new(1);
        let (mut means, mut medians) = (Vec::new(), Vec::new());
        for _ in 0..40_000 {
            let drawn = drawn(&treated, &mut random);
            means.push(Summary::of(&drawn).unwrap().mean);
            medians.push(median(&drawn).unwrap());
        }
        let error = |values: &[f64]| Summary::of(values).unwrap().deviation;
        assert!((error(&means) / 23.36 - 1.0).abs() < 0.02, "{}", error(&means));
        assert!((error(&medians) / 37.83 - 1.0).abs() < 0.02, "{}", error(&medians));
    }

    #[test]
    fn the_interval_holds_the_truth_about_as_often_as_it_says() {
        let mut random = Random::new(7);
        for (runs, least) in [(4, 0.89), (5, 0.92), (10, 0.92), (20, 0.92)] {
            let mut held = 0;
            for experiment in 0..150 {
                // Skewed, like latencies and noisy machines. In truth one side is three times the other.
                let mut side = |scale: f64| -> Vec<f64> {
                    (0..runs).map(|_| scale * (1.0 - 0.2 * (1.0 - random.share()).ln())).collect()
                };
                let (base, other) = (side(100.0), side(300.0));
                let (low, high) = ratio_by(500, &other, &base, experiment).unwrap().interval.unwrap();
                held += u32::from(low <= 3.0 && 3.0 <= high);
            }
            assert!(f64::from(held) / 150.0 >= least, "{runs} runs: {held} of 150");
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_interval_and_few_runs_give_none() {
        let (base, other) = ([10.0, 11.0, 9.0, 10.5], [20.0, 21.0, 22.0, 19.0]);
        let found = ratio_of_medians(&other, &base, 3).unwrap();
        assert_eq!(Some(found), ratio_of_medians(&other, &base, 3));
        assert_eq!(found.ratio, 2.0);
        let (low, high) = found.interval.unwrap();
        assert!(1.7 < low && low < 2.0 && 2.0 < high && high < 2.45, "{low} to {high}");
        assert_eq!(ratio_of_medians(&other[..3], &base, 3).unwrap().interval, None);
        assert_eq!(ratio_of_medians(&other, &[0.0, 1.0], 3), None);
        assert_eq!(ratio_of_medians(&[], &base, 3), None);
    }
}
