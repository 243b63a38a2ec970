//! A few numbers described: mean, spread, median.

/// A description of some values. All of them count.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Summary {
    /// The number of values.
    pub count: usize,
    /// The mean.
    pub mean: f64,
    /// The standard deviation of a sample (divided by n - 1); zero for a single value.
    pub deviation: f64,
    /// The smallest.
    pub least: f64,
    /// The middle value, or the mean of the two middle ones.
    pub median: f64,
    /// The largest.
    pub most: f64,
}

impl Summary {
    /// Describes values without NaN. `None` without values.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        let (first, count) = (*values.first()?, values.len());
        // Uses differences from one of the values, so that large numbers with small differences stay exact.
        let shift = values.iter().map(|value| value - first).sum::<f64>() / count as f64;
        let mean = first + shift;
        let squares: f64 = values.iter().map(|value| (value - first - shift).powi(2)).sum();
        let deviation = if count > 1 { (squares / (count - 1) as f64).sqrt() } else { 0.0 };
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Some(Self { count, mean, deviation, least, median: median(values)?, most })
    }

    /// The coefficient of variation: the standard deviation as a share of the mean. `None` if the mean is zero.
    #[must_use]
    pub fn variation(&self) -> Option<f64> {
        (self.mean != 0.0).then(|| self.deviation / self.mean.abs())
    }
}

/// The middle value, or the mean of the two middle ones. `None` without values.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    Some(if sorted.len() % 2 == 1 { upper } else { f64::midpoint(sorted[middle - 1], upper) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Michelson's 100 measurements of the speed of light, 1879, in km/s above 299,000.
    const MICHELSON: [u16; 100] = [
        850, 740, 900, 1070, 930, 850, 950, 980, 980, 880, 1000, 980, 930, 650, 760, 810, 1000, 1000, 960, 960, 960,
        940, 960, 940, 880, 800, 850, 880, 900, 840, 830, 790, 810, 880, 880, 830, 800, 790, 760, 800, 880, 880, 880,
        860, 720, 720, 620, 860, 970, 950, 880, 910, 850, 870, 840, 840, 850, 840, 840, 840, 890, 810, 810, 820, 800,
        770, 760, 740, 750, 760, 910, 920, 890, 860, 880, 720, 840, 850, 850, 780, 890, 840, 780, 810, 760, 810, 790,
        810, 820, 850, 870, 870, 810, 740, 810, 940, 950, 800, 810, 870,
    ];

    /// NIST's Statistical Reference Datasets, "Michelso": certified mean 299.8524, deviation 0.0790105478190518.
    #[test]
    fn mean_and_deviation_are_those_that_nist_certifies() {
        let values: Vec<f64> = MICHELSON.iter().map(|value| 299.0 + f64::from(*value) / 1000.0).collect();
        let summary = Summary::of(&values).unwrap();
        assert!((summary.mean - 299.8524).abs() < 1e-12, "{summary:?}");
        assert!((summary.deviation - 0.079_010_547_819_051_8).abs() < 1e-12, "{summary:?}");
        assert_eq!((summary.count, summary.least, summary.most), (100, 299.62, 300.07));
    }

    /// NIST's "NumAcc4", made to break sums of squares: certified mean 10000000.2, deviation 0.1.
    #[test]
    fn small_differences_of_large_numbers_are_not_lost() {
        let pairs = (0..500).flat_map(|_| [10_000_000.1, 10_000_000.3]);
        let values: Vec<f64> = std::iter::once(10_000_000.2).chain(pairs).collect();
        let summary = Summary::of(&values).unwrap();
        assert!((summary.mean - 10_000_000.2).abs() < 1e-7, "{summary:?}");
        assert!((summary.deviation - 0.1).abs() < 1e-8, "{summary:?}");
        assert!((summary.variation().unwrap() - 1e-8).abs() < 1e-14);
    }

    #[test]
    fn the_median_of_an_even_number_lies_between_the_middle_two() {
        assert_eq!(
            (median(&[3.0, 1.0, 2.0]), median(&[4.0, 1.0, 3.0, 2.0]), median(&[])),
            (Some(2.0), Some(2.5), None)
        );
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[5.0]).map(|summary| (summary.deviation, summary.median)), Some((0.0, 5.0)));
    }
}
