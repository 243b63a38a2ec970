//! Averages over time, and how steady they are.

/// How long one average is.
pub const WINDOW_SECONDS: usize = 10;

/// The averages of each full window of [`WINDOW_SECONDS`] values, one value for each second.
#[must_use]
pub fn windows(seconds: &[f64]) -> Vec<f64> {
    seconds.chunks_exact(WINDOW_SECONDS).map(mean).collect()
}

/// The mean; zero of nothing.
#[must_use]
pub fn mean(values: &[f64]) -> f64 {
    if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / values.len() as f64 }
}

/// How far the farthest value lies from the mean, as a share of the mean.
///
/// The largest deviation rather than the standard one: a single stall must show.
#[must_use]
pub fn spread(values: &[f64]) -> f64 {
    let mean = mean(values);
    if mean == 0.0 {
        return 0.0;
    }
    values.iter().map(|value| (value - mean).abs() / mean).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_that_is_not_full_does_not_count() {
        let seconds: Vec<f64> = (0..25).map(f64::from).collect();
        assert_eq!(windows(&seconds), [4.5, 14.5]);
    }

    #[test]
    fn one_stall_among_steady_windows_is_the_spread() {
        let spread = spread(&[100.0, 100.0, 100.0, 60.0]);
        assert!((spread - 1.0 / 3.0).abs() < 1e-9, "{spread}");
        assert_eq!(super::spread(&[]), 0.0);
    }
}
