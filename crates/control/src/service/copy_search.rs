//! When another copy is looked for: one try at a time, further and further apart. The start of a mount is one, too: a
//! second connection to a peer would end the first, and the copy would be made anew.

use std::time::{Duration, Instant};

/// Between a loss and the first try, and between two tries at most.
const PAUSE_LEAST: Duration = Duration::from_millis(500);
const PAUSE_MOST: Duration = Duration::from_secs(30);

/// The look for another copy. The first try after a loss is due at once.
#[derive(Default)]
pub(crate) struct CopySearch {
    next: Option<Instant>,
    pause: Duration,
    under_way: bool,
    /// That none can be had was said.
    told: bool,
}

impl CopySearch {
    /// The start of a mount tries, and not only when it is due. False while another try is under way.
    pub(super) const fn begins_with_mount(&mut self) -> bool {
        !std::mem::replace(&mut self.under_way, true)
    }

    /// Whether a try is due. It is under way from here on.
    pub(super) fn begins(&mut self, now: Instant) -> bool {
        let begins = !self.under_way && self.next.is_none_or(|next| next <= now);
        self.under_way |= begins;
        begins
    }

    /// A try has failed. Whether that is to be said.
    pub(super) fn failed(&mut self, now: Instant) -> bool {
        self.under_way = false;
        self.pause = (self.pause * 2).clamp(PAUSE_LEAST, PAUSE_MOST);
        self.next = Some(now + self.pause);
        !std::mem::replace(&mut self.told, true)
    }

    /// The try has made a copy.
    pub(super) fn found(&mut self) {
        *self = Self::default();
    }

    /// There is a copy, or none is wanted. A try that is under way goes on.
    pub(super) fn over(&mut self) {
        if !self.under_way {
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn while_a_mount_starts_with_a_try_there_is_no_other_and_its_failure_counts() {
        let (mut search, now) = (CopySearch::default(), Instant::now());
        assert!(search.begins_with_mount());
        assert!(!search.begins(now), "as a status may ask for while the first copy is made");
        search.over();
        assert!(!search.begins(now), "nor once its member is in the list");
        assert!(search.failed(now), "said by the start");
        assert!(!search.begins(now) && search.begins(now + PAUSE_LEAST));
        assert!(!search.begins_with_mount(), "one at a time");
        search.found();
        assert!(search.begins_with_mount());
        search.found();
        assert!(search.begins(now), "a loss later is looked after at once");
    }

    #[test]
    fn tries_come_further_and_further_apart_and_one_failure_is_told() {
        let (mut search, now) = (CopySearch::default(), Instant::now());
        assert!(search.begins(now), "the first one at once");
        assert!(!search.begins(now), "one at a time");
        assert!(search.failed(now));
        assert!(!search.begins(now) && search.begins(now + PAUSE_LEAST));
        assert!(!search.failed(now));
        assert!(!search.begins(now + PAUSE_LEAST) && search.begins(now + 2 * PAUSE_LEAST));
        assert!((0..20).all(|_| !search.failed(now)));
        assert!(search.begins(now + PAUSE_MOST));
        search.over();
        assert!(!search.begins(now), "what is under way goes on");
        search.failed(now);
        search.over();
        assert!(search.begins(now));
    }
}
