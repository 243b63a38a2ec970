//! Whether a run has settled, by a rule and not by eye.
//!
//! The rule comes from SNIA's Solid State Storage Performance Test Specification ("steady state"). It looks at a
//! window of five rounds. All values must lie within a range of 20 % of their average. The straight line fitted by
//! least squares must rise or fall by at most 10 % of the average from the first round to the last.

/// Rounds of a window.
pub const ROUNDS: usize = 5;
/// The largest range within a window, as a share of its average.
const RANGE_MAX: f64 = 0.20;
/// The most that the fitted line may rise or fall in a window, as a share of the average.
const SLOPE_MAX: f64 = 0.10;

/// A window, judged.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Judgement {
    /// The average of the rounds.
    pub average: f64,
    /// The largest value less the smallest, as a share of the average.
    pub range: f64,
    /// The rise of the fitted line from the first round to the last, as a share of the average. Negative if it falls.
    pub slope: f64,
}

impl Judgement {
    /// Whether the window is steady.
    #[must_use]
    pub fn steady(&self) -> bool {
        self.range <= RANGE_MAX && self.slope.abs() <= SLOPE_MAX
    }
}

/// Where a run has settled.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Settled {
    /// The first round of the window.
    pub from: usize,
    /// The window, judged.
    pub window: Judgement,
}

/// Judges a window. `None` if it does not have [`ROUNDS`] rounds, or if nothing happened in them.
#[must_use]
pub fn judge(window: &[f64]) -> Option<Judgement> {
    if window.len() != ROUNDS {
        return None;
    }
    let average = window.iter().sum::<f64>() / ROUNDS as f64;
    if average.is_nan() || average <= 0.0 {
        return None;
    }
    let least = window.iter().copied().fold(f64::INFINITY, f64::min);
    let most = window.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    // Least squares with the rounds at -2, -1, 0, 1, 2: their squares sum up to 10.
    let per_round = (-2..=2).map(f64::from).zip(window).map(|(at, value)| at * value).sum::<f64>() / 10.0;
    let slope = per_round * (ROUNDS - 1) as f64 / average;
    Some(Judgement { average, range: (most - least) / average, slope })
}

/// The first steady window; `None` if no window is steady.
#[must_use]
pub fn settled(rounds: &[f64]) -> Option<Settled> {
    rounds.windows(ROUNDS).enumerate().find_map(|(from, window)| {
        let window = judge(window)?;
        window.steady().then_some(Settled { from, window })
    })
}

/// The first window of the last stretch in which every window is steady, up to the end. `None` if the last window is
/// not steady, or if there is none.
///
/// A cache or a fresh card is often even for a while before it declines, so the first steady window says nothing of
/// later ones. Judge a run of fixed length from its end.
#[must_use]
pub fn settled_to_the_end(rounds: &[f64]) -> Option<Settled> {
    let windows = rounds.windows(ROUNDS).enumerate().rev().map_while(|(from, window)| {
        let window = judge(window)?;
        window.steady().then_some(Settled { from, window })
    });
    windows.last()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_and_slope_are_those_that_one_finds_by_hand() {
        // y = 100 + 3x at x = 0..4: the line is the data; range 12 and slope 12 of an average of 106.
        let judgement = judge(&[100.0, 103.0, 106.0, 109.0, 112.0]).unwrap();
        assert!((judgement.range - 12.0 / 106.0).abs() < 1e-12 && (judgement.slope - 12.0 / 106.0).abs() < 1e-12);
        // The range alone would pass; the slope does not.
        assert!(!judgement.steady());
        // The same values up and down: almost no slope.
        assert!(judge(&[106.0, 112.0, 100.0, 109.0, 103.0]).unwrap().steady());
    }

    #[test]
    fn the_limits_are_part_of_what_is_steady() {
        // Range exactly 20 % of 100, no slope.
        assert!(judge(&[100.0, 90.0, 100.0, 110.0, 100.0].map(f64::from)).unwrap().range <= 0.20);
        assert!(judge(&[90.0, 110.0, 100.0, 110.0, 90.0]).unwrap().steady());
        assert!(!judge(&[89.0, 110.0, 102.0, 110.0, 89.0]).unwrap().steady());
        // A slope of exactly 10 %.
        assert!(judge(&[95.0, 97.5, 100.0, 102.5, 105.0]).unwrap().steady());
        assert!(!judge(&[94.9, 97.45, 100.0, 102.55, 105.1]).unwrap().steady());
    }

    #[test]
    fn a_card_that_declines_and_then_settles_is_steady_from_where_it_settles() {
        let rounds = [1000.0, 900.0, 800.0, 700.0, 620.0, 600.0, 590.0, 600.0, 605.0, 598.0];
        let settled = settled(&rounds).unwrap();
        assert_eq!(settled.from, 4);
        assert!((settled.window.average - 603.0).abs() < 1e-9);
        assert_eq!(super::settled(&rounds[..7]), None);
    }

    #[test]
    fn an_even_beginning_is_not_taken_for_the_end() {
        // Five even rounds while there is room, then the decline, then the final level.
        let rounds = [1000.0, 990.0, 1000.0, 1010.0, 1000.0, 800.0, 650.0, 600.0, 590.0, 600.0, 605.0, 598.0, 601.0];
        assert_eq!(settled(&rounds).unwrap().from, 0);
        let found = settled_to_the_end(&rounds).unwrap();
        assert_eq!(found.from, 6, "the window that begins with 650 is steady by the rule, the one before it is not");
        assert_eq!(settled_to_the_end(&rounds[..8]), None, "it still falls");
        // Steady from the first round on.
        assert_eq!(settled_to_the_end(&[5.0; 9]).unwrap().from, 0);
    }

    #[test]
    fn what_stands_still_or_is_too_short_is_not_called_steady() {
        assert_eq!((judge(&[0.0; 5]), judge(&[1.0; 4]), settled(&[])), (None, None, None));
    }
}
