//! How long a miss may wait before destage stands back for it.
//!
//! An origin with one arm serves who is next on its way, and writes that come in ascending order are next for as long
//! as they keep coming: a read behind the arm waited for 1.8 s on a modelled disk. So once a miss has waited for
//! several times as long as misses do, no further write begins until it is answered. What is under way then is little
//! (`DEPTH_MAX`, or what goes beside misses).
//!
//! Invariant: where all misses take equally long, however long that is, destage never stands back.

use headpond_base::Nanos;

/// A miss that took no longer never has destage stand back.
const LEAST: Nanos = Nanos(100 * Nanos::MILLISECOND.0);
/// So many times as long as misses take is too long.
const TIMES: f64 = 4.0;
/// The mean is over about so many.
const OVER: f64 = 16.0;

/// What misses take. Owned by destage.
#[derive(Default)]
pub(crate) struct Patience {
    /// In nanoseconds.
    mean: f64,
}

impl Patience {
    /// A miss is answered. One that took longer than it may counts as if it had not.
    pub(crate) fn took(&mut self, took: Nanos) {
        let took = (took.0 as f64).min(self.most());
        self.mean += (took - self.mean) / OVER;
    }

    /// Whether a miss that has waited for so long has waited too long.
    pub(super) fn is_over(&self, waited: Nanos) -> bool {
        waited.0 as f64 > self.most()
    }

    fn most(&self) -> f64 {
        (self.mean * TIMES).max(LEAST.0 as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = Nanos::MILLISECOND.0;

    #[test]
    fn what_misses_take_on_an_origin_that_is_slow_for_all_is_not_too_long() {
        let mut patience = Patience::default();
        assert!(patience.is_over(Nanos(101 * MS)) && !patience.is_over(Nanos(99 * MS)));
        for _ in 0..200 {
            patience.took(Nanos(2000 * MS));
        }
        assert!(!patience.is_over(Nanos(6000 * MS)) && patience.is_over(Nanos(9000 * MS)));
    }

    #[test]
    fn one_that_is_passed_over_does_not_have_the_next_wait_as_long() {
        let mut patience = Patience::default();
        for number in 0..200 {
            patience.took(Nanos(if number % 8 == 0 { 1800 } else { 20 } * MS));
        }
        assert!(patience.is_over(Nanos(200 * MS)), "{}", patience.mean);
    }
}
