//! A device whose syncs take much longer than those of all others is set aside: each mirrored sync waits for the slower
//! of two devices, so one that lags slows most of them down.
//!
//! ```text
//! in use ── a sync takes eight times as long as the next slowest's ──> set aside
//!   ^                                                                     │
//!   └── less than four times, or the list of members is to change ────────┘
//! ```
//!
//! Invariants:
//! - At most one is set aside, and only while what is left can do its work.
//! - What it has stays readable, and its checkpoints are written. So its syncs go on to be timed.
//! - It is asked for a segment once no other has one.

use headpond_base::{MemberId, Nanos};

use crate::member_times::MemberTime;

/// It lags if its syncs take so many times as long as those of any other.
const LAGS: u64 = 8;
/// It is taken back below so many times.
const KEEPS_UP: u64 = 4;
/// Nobody waits for a sync that is shorter than this.
const LAGS_FROM: Nanos = Nanos(5 * Nanos::MILLISECOND.0);

/// Which device is set aside.
#[derive(Clone, Copy, Default)]
pub(crate) struct Laggard {
    aside: Option<MemberId>,
}

impl Laggard {
    /// The one that is set aside.
    pub(crate) const fn aside(&self) -> Option<MemberId> {
        self.aside
    }

    /// Takes the one that is set aside back. Returns whether there was one.
    pub(crate) const fn take_back(&mut self) -> bool {
        self.aside.take().is_some()
    }

    /// Judges the devices in use by their syncs. Returns whether another one is set aside, or none any more; `can_spare`
    /// says which may be.
    pub(crate) fn judge(&mut self, times: &[MemberTime], can_spare: impl FnOnce(MemberId) -> bool) -> bool {
        let before = self.aside;
        if let Some(member) = self.aside {
            if is_times_slower(times, KEEPS_UP).is_none_or(|slow| slow != member) {
                self.aside = None;
            }
        } else {
            self.aside = laggard(times).filter(|slow| can_spare(*slow));
        }
        self.aside != before
    }
}

/// The device that lags, if there is one.
pub(crate) fn laggard(times: &[MemberTime]) -> Option<MemberId> {
    is_times_slower(times, LAGS)
}

/// The device whose syncs take at least so many times as long as those of each other.
fn is_times_slower(times: &[MemberTime], factor: u64) -> Option<MemberId> {
    let slowest = times.iter().max_by_key(|time| time.sync.mean)?;
    let others = times.iter().filter(|time| time.member != slowest.member);
    let next = others.map(|time| time.sync.mean).max()?;
    let is_known = times.iter().all(|time| time.sync.is_known());
    let lags = slowest.sync.mean >= LAGS_FROM && slowest.sync.mean.0 / factor >= next.0;
    (is_known && lags).then_some(slowest.member)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::member_times::Mean;

    fn times(millis: [u64; 3]) -> Vec<MemberTime> {
        let time = |(member, millis)| {
            let mean = Nanos(millis * Nanos::MILLISECOND.0);
            MemberTime::of_syncs(MemberId(member), Mean { mean, count: Mean::LEAST })
        };
        (0..).zip(millis).map(time).collect()
    }

    #[test]
    fn the_one_that_lags_is_set_aside_and_taken_back_once_it_keeps_up() {
        let mut laggard = Laggard::default();
        assert!(!laggard.judge(&times([1, 7, 1]), |_| true), "seven times is not eight");
        assert!(laggard.judge(&times([1, 8, 1]), |_| true));
        assert_eq!(laggard.aside(), Some(MemberId(1)));
        assert!(!laggard.judge(&times([1, 5, 1]), |_| true), "it does not go to and fro");
        assert!(laggard.judge(&times([1, 3, 1]), |_| true));
        assert_eq!(laggard.aside(), None);
    }

    #[test]
    fn none_is_set_aside_that_cannot_be_spared_is_quick_or_hardly_known() {
        let mut laggard = Laggard::default();
        assert!(!laggard.judge(&times([1, 9, 1]), |_| false));
        assert!(!laggard.judge(&times([0, 4, 0]), |_| true), "4 ms are no long wait");
        let mut hardly_known = times([1, 9, 1]);
        hardly_known[1].sync.count -= 1;
        assert!(!laggard.judge(&hardly_known, |_| true));
        assert!(!laggard.judge(&times([9, 9, 1]), |_| true), "two that are slow are not outliers");
        assert_eq!(laggard.aside(), None);
    }
}
