//! A bound on what reads may write to flash, in bytes a day. Passing time earns it.
//!
//! Invariant: over any span of time, the bytes spent are at most what the limit allows in it, plus [`SAVED`]. Dirty
//! data must be written, and does not go through this budget.

use headpond_base::Nanos;

/// The longest time for which earnings are saved. It bounds a burst after a quiet night.
const SAVED: Nanos = Nanos(3600 * Nanos::SECOND.0);
const DAY: u128 = 86_400 * Nanos::SECOND.0 as u128;

/// Bytes that reads may write to flash in a day.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FlashWriteLimit(pub u64);

impl FlashWriteLimit {
    /// The limit as warranties of drives state it: writes of the whole drive in a day, in hundredths.
    #[must_use]
    pub const fn drive_writes(drive_bytes: u64, hundredths: u64) -> Self {
        Self(drive_bytes / 100 * hundredths)
    }
}

/// The bytes that reads may write now.
#[derive(Clone, Debug)]
pub struct FlashBudget {
    limit: Option<FlashWriteLimit>,
    /// Bytes times the nanoseconds of a day, so that no fraction is lost between two ticks.
    saved: u128,
    last: Nanos,
}

impl FlashBudget {
    /// Without a limit everything may be written. With one, the budget starts with an hour's worth.
    #[must_use]
    pub fn new(limit: Option<FlashWriteLimit>, now: Nanos) -> Self {
        let mut budget = Self { limit, saved: 0, last: now };
        budget.saved = budget.saved_most();
        budget
    }

    /// Changes the limit. Cuts what is saved to the new one.
    pub fn set_limit(&mut self, limit: Option<FlashWriteLimit>) {
        self.limit = limit;
        self.saved = self.saved.min(self.saved_most());
    }

    fn saved_most(&self) -> u128 {
        self.limit.map_or(0, |limit| u128::from(limit.0) * u128::from(SAVED.0))
    }

    /// Adds what the time since the last tick earned.
    pub fn tick(&mut self, now: Nanos) {
        if let Some(limit) = self.limit {
            let earned = u128::from(now.since(self.last).0) * u128::from(limit.0);
            self.saved = (self.saved + earned).min(self.saved_most());
        }
        self.last = now;
    }

    /// Takes `bytes` from the budget. `false`, with nothing taken, if it has less.
    pub fn spend(&mut self, bytes: u64) -> bool {
        if self.limit.is_none() {
            return true;
        }
        let cost = u128::from(bytes) * DAY;
        let enough = cost <= self.saved;
        if enough {
            self.saved -= cost;
        }
        enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asks for a block every millisecond. Returns the bytes granted.
    fn greedy(budget: &mut FlashBudget, from: Nanos, seconds: u64) -> u64 {
        let block = headpond_base::BLOCK_U64;
        let grants = (1..=seconds * 1000).filter(|at| {
            budget.tick(Nanos(from.0 + at * Nanos::MILLISECOND.0));
            budget.spend(block)
        });
        grants.count() as u64 * block
    }

    #[test]
    fn a_limit_is_kept_to_the_byte_over_any_time() {
        let limit = FlashWriteLimit(10 << 30);
        let mut budget = FlashBudget::new(Some(limit), Nanos(0));
        let hour = limit.0 / 24;
        let first = greedy(&mut budget, Nanos(0), 3600);
        assert!(first <= 2 * hour && first > 2 * hour - 8192, "{first} of {}", 2 * hour);
        let second = greedy(&mut budget, Nanos(3600 * Nanos::SECOND.0), 1800);
        assert!(second <= hour / 2 + 4096 && second > hour / 2 - 8192, "{second} of {}", hour / 2);
    }

    #[test]
    fn without_a_limit_all_is_granted_and_a_limit_of_nothing_grants_nothing() {
        assert!(FlashBudget::new(None, Nanos(0)).spend(u64::MAX));
        let mut none = FlashBudget::new(Some(FlashWriteLimit(0)), Nanos(0));
        none.tick(Nanos(u64::MAX));
        assert!(!none.spend(1));
        assert_eq!(FlashWriteLimit::drive_writes(1000, 150), FlashWriteLimit(1500));
    }

    #[test]
    fn a_new_limit_holds_at_once() {
        let mut budget = FlashBudget::new(Some(FlashWriteLimit(24 << 30)), Nanos(0));
        budget.set_limit(Some(FlashWriteLimit(24 << 20)));
        assert!(!budget.spend(2 << 20), "an hour of the new limit is one MiB");
        assert!(budget.spend(1 << 20));
    }
}
