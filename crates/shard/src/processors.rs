//! Whether the shard has more than one processor, so that others can bring work while it looks for some.
//!
//! Invariants
//! - An answer is at most [`PERIOD`] old while the shard has work: the quota of its control group, and the processors
//!   that it may use, change while it runs.
//! - The clock is the caller's.

use std::time::{Duration, Instant};

/// How often the system is asked. It reads a file for each level of control groups, some 20 us in all.
const PERIOD: Duration = Duration::from_secs(5);

/// What the system said last.
pub(crate) struct Processors {
    several: bool,
    due: Instant,
}

impl Processors {
    /// Asks the system.
    pub(crate) fn at(now: Instant) -> Self {
        Self { several: are_several(), due: now + PERIOD }
    }

    /// Asks again, once that is due. Returns whether there are several.
    pub(crate) fn are_several(&mut self, now: Instant) -> bool {
        self.asks(now, are_several)
    }

    fn asks(&mut self, now: Instant, ask: impl FnOnce() -> bool) -> bool {
        if now >= self.due {
            *self = Self { several: ask(), due: now + PERIOD };
        }
        self.several
    }
}

/// By the affinity of the process and the quota of its control groups.
fn are_several() -> bool {
    std::thread::available_parallelism().is_ok_and(|count| count.get() > 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_that_changes_is_seen_within_the_period_and_asked_for_no_more_often() {
        let start = Instant::now();
        let mut processors = Processors { several: true, due: start + PERIOD };
        let soon = start + PERIOD / 2;
        assert!(processors.asks(soon, || panic!("it is not due")));
        assert!(!processors.asks(start + PERIOD, || false), "the quota is one processor now");
        assert!(!processors.asks(start + PERIOD + PERIOD / 2, || panic!("it is not due")));
        assert!(processors.asks(start + PERIOD * 3, || true));
    }
}
