//! The pace of destage: credit grows steadily with the time and with what is dirty.

use headpond_base::Nanos;

use super::ROUND_BLOCKS;

/// How often the engine wants to be told the time while it has something to pace.
pub(crate) const TICK: Nanos = Nanos(50 * Nanos::MILLISECOND.0);

/// Blocks that may be destaged now. Integer arithmetic: the same on every machine and run.
pub(super) struct Governor {
    last: Nanos,
    /// Credit in blocks times nanoseconds of half a flush period.
    saved: u128,
    half_period: u128,
}

impl Governor {
    pub(super) const fn new(now: Nanos) -> Self {
        Self { last: now, saved: 0, half_period: 1 }
    }

    pub(super) fn tick(&mut self, now: Nanos, dirty: u64, period: Nanos) {
        self.half_period = u128::from((period.0 / 2).max(1));
        self.saved += u128::from(now.since(self.last).0) * u128::from(dirty);
        // No bursts after a pause: one round of saving is enough.
        self.saved = self.saved.min(u128::from(ROUND_BLOCKS) * self.half_period);
        self.last = now;
    }

    pub(super) fn credit(&self) -> u64 {
        u64::try_from(self.saved / self.half_period).unwrap_or(u64::MAX)
    }

    pub(super) fn spend(&mut self, blocks: u64) {
        self.saved = self.saved.saturating_sub(u128::from(blocks) * self.half_period);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_way_through_all_that_is_dirty_takes_half_a_period_in_equal_steps() {
        let period = Nanos(60 * Nanos::SECOND.0);
        let mut governor = Governor::new(Nanos(0));
        let mut steps = Vec::new();
        for second in 1..=30 {
            governor.tick(Nanos(second * Nanos::SECOND.0), 3000, period);
            steps.push(governor.credit());
            governor.spend(governor.credit());
        }
        assert_eq!(steps, [100; 30]);
    }
}
