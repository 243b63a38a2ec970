//! Write amplification as a formula: greedy cleaning under uniform random writes.

/// Steps of Newton's method. Each doubles the right digits; the first has one.
const STEPS: u32 = 40;

/// How many pages a card writes for each page that it is given, in the limit of large blocks. `fill` (0 to 1) of its
/// exported space holds valid data, and it has `spare` times its exported space on top:
///
/// ```text
/// alpha = (1 + spare) / fill
/// amplification = alpha / (alpha + W0(-alpha e^-alpha))      W0: the principal branch of Lambert's W
/// ```
///
/// (P. Desnoyers, "Analytic Models of SSD Write Performance", ACM Transactions on Storage 10(2), 2014.) Infinite
/// without spare space.
#[must_use]
pub fn amplification(spare: f64, fill: f64) -> f64 {
    if fill <= 0.0 {
        return 1.0;
    }
    let alpha = (1.0 + spare) / fill;
    if alpha <= 1.0 {
        return f64::INFINITY;
    }
    alpha / (alpha + lambert(-alpha * (-alpha).exp()))
}

/// The principal branch of Lambert's W for -1/e <= x <= 0: the w >= -1 with w e^w = x.
fn lambert(x: f64) -> f64 {
    let mut w = -1.0 + (2.0 * (1.0 + std::f64::consts::E * x)).max(0.0).sqrt();
    for _ in 0..STEPS {
        let slope = w.exp() * (1.0 + w);
        if slope.abs() < f64::MIN_POSITIVE {
            break;
        }
        w -= (w * w.exp() - x) / slope;
    }
    w
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lambert_is_the_inverse_that_it_should_be() {
        for x in [-0.36, -0.3, -0.2, -0.1, -0.01, 0.0] {
            let w = lambert(x);
            assert!((w * w.exp() - x).abs() < 1e-12 && w >= -1.0, "{x}: {w}");
        }
    }

    #[test]
    fn the_inverse_of_the_formula_gives_the_over_provisioning_back() {
        // alpha = -A ln(1 - 1/A).
        for (spare, fill) in [(0.07, 1.0), (0.28, 1.0), (0.30, 0.6), (1.0, 0.9)] {
            let a = amplification(spare, fill);
            let alpha = -a * (1.0 - 1.0 / a).ln();
            assert!((alpha / ((1.0 + spare) / fill) - 1.0).abs() < 1e-9, "{spare} {fill}: {a}");
        }
        // Published for 28 % of over-provisioning under uniform writes.
        assert!((amplification(0.28, 1.0) - 2.48).abs() < 0.02, "{}", amplification(0.28, 1.0));
        assert_eq!((amplification(0.0, 1.0), amplification(0.3, 0.0)), (f64::INFINITY, 1.0));
    }
}
