//! Whether two sets of runs differ: the rank test of Mann, Whitney and Wilcoxon, two-sided.
//!
//! It assumes nothing about how the values are spread. A wild value weighs no more than its rank, so none is left out.
//! Equal values share their ranks.
//!
//! Up to [`EXACT_MAX`] values the probability is exact. It takes all ways to deal the given ranks, ties included, to
//! two sets of these sizes, and counts the share at least as far from the mean. For more values it is the normal
//! approximation, corrected for ties and for continuity.

/// The most values of both sets for an exact probability: 53 bits count C(50, 25) ways without rounding.
const EXACT_MAX: usize = 50;

/// How a probability was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    /// By counting all ways to deal the ranks.
    Exact,
    /// By the normal distribution.
    Normal,
}

/// The result of a test.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct MannWhitney {
    /// The number of pairs in which the value of the first set is larger. An equal pair counts one half.
    pub u: f64,
    /// The probability of a difference at least as large if the sets do not really differ.
    pub p: f64,
    /// How `p` was found.
    pub method: Method,
}

impl MannWhitney {
    /// Whether the difference counts as real: p below 5 %.
    #[must_use]
    pub fn significant(&self) -> bool {
        self.p < 0.05
    }
}

/// Compares two sets of values without NaN; `None` if either is empty.
#[must_use]
pub fn mann_whitney(first: &[f64], second: &[f64]) -> Option<MannWhitney> {
    if first.is_empty() || second.is_empty() {
        return None;
    }
    let ranks = Ranks::of(first, second);
    let (n, m) = (first.len(), second.len());
    let u = ranks.of_first as f64 / 2.0 - (n * (n + 1)) as f64 / 2.0;
    let (p, method) =
        if n + m <= EXACT_MAX { (ranks.exact(n), Method::Exact) } else { (ranks.normal(n, m, u), Method::Normal) };
    Some(MannWhitney { u, p: p.min(1.0), method })
}

/// The ranks of all values, doubled so that shared ones are whole numbers.
struct Ranks {
    all: Vec<usize>,
    of_first: usize,
    /// The sizes of the groups of equal values.
    ties: Vec<usize>,
}

impl Ranks {
    fn of(first: &[f64], second: &[f64]) -> Self {
        let mut values: Vec<(f64, bool)> = first.iter().map(|value| (*value, true)).collect();
        values.extend(second.iter().map(|value| (*value, false)));
        values.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut ranks = Self { all: Vec::with_capacity(values.len()), of_first: 0, ties: Vec::new() };
        for group in values.chunk_by(|a, b| a.0 == b.0) {
            let begin = ranks.all.len();
            // The mean of ranks begin + 1 ..= begin + len, doubled.
            let rank = 2 * begin + group.len() + 1;
            ranks.all.extend(group.iter().map(|_| rank));
            ranks.of_first += rank * group.iter().filter(|(_, is_first)| *is_first).count();
            ranks.ties.push(group.len());
        }
        ranks
    }

    /// Counts, rank by rank, how many ways the first set can be chosen with each size and sum.
    fn exact(&self, n: usize) -> f64 {
        let most: usize = self.all.iter().sum();
        let mut ways = vec![vec![0.0; most + 1]; n + 1];
        ways[0][0] = 1.0;
        for (seen, rank) in self.all.iter().enumerate() {
            for size in (1..=n.min(seen + 1)).rev() {
                for sum in (*rank..=most).rev() {
                    ways[size][sum] += ways[size - 1][sum - rank];
                }
            }
        }
        let mean = n * (self.all.len() + 1);
        let far = self.of_first.abs_diff(mean);
        let (mut all, mut as_far) = (0.0, 0.0);
        for (sum, count) in ways[n].iter().enumerate() {
            all += count;
            if sum.abs_diff(mean) >= far {
                as_far += count;
            }
        }
        as_far / all
    }

    fn normal(&self, n: usize, m: usize, u: f64) -> f64 {
        let (n, m, all) = (n as f64, m as f64, (n + m) as f64);
        let ties: f64 = self.ties.iter().map(|size| (*size as f64).powi(3) - *size as f64).sum();
        let deviation = (n * m / 12.0 * (all + 1.0 - ties / (all * (all - 1.0)))).sqrt();
        if deviation == 0.0 {
            return 1.0;
        }
        let distance = ((u - n * m / 2.0).abs() - 0.5).max(0.0);
        complement_of_error(distance / deviation / std::f64::consts::SQRT_2)
    }
}

/// erfc(x) for x >= 0, to a relative error of 1.2e-7 (Numerical Recipes, 2nd edition, section 6.2).
fn complement_of_error(x: f64) -> f64 {
    const TERMS: [f64; 10] = [
        -1.265_512_23,
        1.000_023_68,
        0.374_091_96,
        0.096_784_18,
        -0.186_288_06,
        0.278_868_07,
        -1.135_203_98,
        1.488_515_87,
        -0.822_152_23,
        0.170_872_77,
    ];
    let t = 1.0 / (1.0 + 0.5 * x);
    let polynomial = TERMS.iter().rev().fold(0.0, |sum, term| sum * t + term);
    t * (-x * x + polynomial).exp()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;

    fn near(found: f64, expected: f64, share: f64) {
        assert!((found / expected - 1.0).abs() < share, "{found} for {expected}");
    }

    /// Hollander and Wolfe (1973), p. 69: permeability of the human chorioamnion at term and between 12 and 26
    /// weeks. R's manual of `wilcox.test` gives W = 35 and p = 0.1272 for one side.
    #[test]
    fn a_small_sample_without_ties_gives_the_published_exact_p() {
        let term = [0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46];
        let early = [1.15, 0.88, 0.90, 0.74, 1.21];
        let result = mann_whitney(&term, &early).unwrap();
        assert_eq!((result.u, result.method), (35.0, Method::Exact));
        near(result.p, 2.0 * 0.1272, 0.001);
        assert!(!result.significant());
    }

    /// The example in SciPy's manual of `mannwhitneyu` (ages at a diagnosis of diabetes): U = 17, exact p = 1/9,
    /// and by the normal approximation 0.11134688653314041.
    #[test]
    fn the_example_of_scipy_gives_its_exact_and_its_approximate_p() {
        let (males, females) = ([19.0, 22.0, 16.0, 29.0, 24.0], [20.0, 11.0, 17.0, 12.0]);
        let result = mann_whitney(&males, &females).unwrap();
        assert_eq!(result.u, 17.0);
        near(result.p, 1.0 / 9.0, 1e-12);
        near(Ranks::of(&males, &females).normal(5, 4, 17.0), 0.111_346_886_533_140_41, 1e-6);
    }

    /// Ozone in New York in May and August 1973 (Chambers and others, 1983), with ties. R's manual of
    /// `wilcox.test`: W = 127.5, p = 0.0001208, by the normal approximation with both corrections.
    #[test]
    fn many_values_with_ties_give_the_published_approximate_p() {
        let may = [
            41.0, 36.0, 12.0, 18.0, 28.0, 23.0, 19.0, 8.0, 7.0, 16.0, 11.0, 14.0, 18.0, 14.0, 34.0, 6.0, 30.0, 11.0,
            1.0, 11.0, 4.0, 32.0, 23.0, 45.0, 115.0, 37.0,
        ];
        let august = [
            39.0, 9.0, 16.0, 78.0, 35.0, 66.0, 122.0, 89.0, 110.0, 44.0, 28.0, 65.0, 22.0, 59.0, 23.0, 31.0, 44.0,
            21.0, 9.0, 45.0, 168.0, 73.0, 76.0, 118.0, 84.0, 85.0,
        ];
        let result = mann_whitney(&may, &august).unwrap();
        assert_eq!((result.u, result.method), (127.5, Method::Normal));
        near(result.p, 0.000_120_8, 0.001);
        assert!(result.significant());
    }

    /// Every way to choose `n` of the values, one by one.
    fn by_trying_all(first: &[f64], second: &[f64]) -> f64 {
        let all: Vec<f64> = first.iter().chain(second).copied().collect();
        let u = |in_first: &dyn Fn(usize) -> bool| {
            let mut sum = 0.0;
            for (i, a) in all.iter().enumerate().filter(|(i, _)| in_first(*i)) {
                for (_, b) in all.iter().enumerate().filter(|(j, _)| *j != i && !in_first(*j)) {
                    sum += if a > b {
                        1.0
                    } else if a == b {
                        0.5
                    } else {
                        0.0
                    };
                }
            }
            sum
        };
        let mean = (first.len() * second.len()) as f64 / 2.0;
        let seen = (u(&|i| i < first.len()) - mean).abs();
        let (mut ways, mut as_far) = (0, 0);
        for set in 0u32..1 << all.len() {
            if set.count_ones() as usize == first.len() {
                ways += 1;
                as_far += u32::from((u(&|i| set & (1 << i) != 0) - mean).abs() >= seen);
            }
        }
        f64::from(as_far) / f64::from(ways)
    }

    #[test]
    fn exact_means_all_ways_counted_with_ties_too() {
        let mut random = Random::new(5);
        for _ in 0..60 {
            let (n, m, kinds) = (1 + random.below(5), 1 + random.below(5), 2 + random.below(9));
            let mut draw = |count: usize| (0..count).map(|_| random.below(kinds) as f64).collect::<Vec<_>>();
            let (first, second) = (draw(n), draw(m));
            let result = mann_whitney(&first, &second).unwrap();
            near(result.p, by_trying_all(&first, &second), 1e-9);
            let other = mann_whitney(&second, &first).unwrap();
            assert_eq!((result.u + other.u, other.p), ((n * m) as f64, result.p));
        }
    }

    #[test]
    fn three_against_three_can_never_be_significant_and_four_against_four_can() {
        let p = |n: usize| {
            let low: Vec<f64> = (0..n).map(|value| value as f64).collect();
            let high: Vec<f64> = low.iter().map(|value| value + 100.0).collect();
            mann_whitney(&low, &high).unwrap()
        };
        near(p(3).p, 0.1, 1e-12);
        near(p(4).p, 2.0 / 70.0, 1e-12);
        assert!(!p(3).significant() && p(4).significant());
        assert_eq!(mann_whitney(&[], &[1.0]), None);
        assert_eq!(mann_whitney(&[1.0; 40], &[1.0; 40]).map(|result| result.p), Some(1.0));
    }
}
