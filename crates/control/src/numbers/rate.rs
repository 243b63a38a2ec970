//! The present rate of a counter, from looks at it now and then.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The time over which the rate is taken.
const WINDOW: Duration = Duration::from_secs(10);

/// The counter's values in the last [`WINDOW`].
#[derive(Debug, Default)]
pub(crate) struct Rate {
    seen: VecDeque<(Instant, u64)>,
}

impl Rate {
    /// Notes the counter's value. The number of looks within the window bounds the memory.
    pub(crate) fn look(&mut self, now: Instant, counter: u64) {
        self.seen.push_back((now, counter));
        // One look before the window stays, so that the looks cover all of it.
        while self.seen.get(1).is_some_and(|(at, _)| now.duration_since(*at) >= WINDOW) {
            self.seen.pop_front();
        }
    }

    /// The growth a second.
    pub(crate) fn per_second(&self) -> f64 {
        let (Some((from, before)), Some((to, after))) = (self.seen.front(), self.seen.back()) else { return 0.0 };
        let seconds = to.duration_since(*from).as_secs_f64();
        if seconds > 0.0 { after.saturating_sub(*before) as f64 / seconds } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_that_of_the_last_seconds_and_takes_bounded_room() {
        let start = Instant::now();
        let mut rate = Rate::default();
        assert_eq!(rate.per_second(), 0.0);
        // 100 a second for a minute, then nothing.
        for quarter in 0..=240_u32 {
            rate.look(start + quarter * Duration::from_millis(250), u64::from(quarter) * 25);
        }
        assert!((rate.per_second() - 100.0).abs() < 0.01, "{}", rate.per_second());
        for quarter in 241..=300_u32 {
            rate.look(start + quarter * Duration::from_millis(250), 240 * 25);
        }
        assert_eq!(rate.per_second(), 0.0);
        assert!(rate.seen.len() <= 42, "{}", rate.seen.len());
    }
}
