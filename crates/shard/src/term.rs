//! Until when this host may act as the pool's owner. One thread keeps it up to date; the shard and the gate look.
//!
//! Invariants
//! - A look compares with a clock that also counts while the machine sleeps. So a process that was stopped finds, at its
//!   first look, that the time is over.
//! - A term that has ended stays so.
//!
//! Price: without a lease one load for each look. With one, a clock is read, too.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use headpond_base::Nanos;
use rustix::time::{ClockId, clock_gettime};

const FOREVER: u64 = u64::MAX;
const ENDED: u64 = 0;

/// How often who waits for a term looks.
pub(crate) const LOOK: Duration = Duration::from_millis(20);

/// Whether this host may act as the owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TermState {
    /// It may.
    #[default]
    Stands,
    /// Not now. It may again, once the lease is renewed.
    Waits,
    /// Another is the owner.
    Ended,
}

/// A time that is given bit by bit.
#[derive(Debug)]
pub struct Term {
    /// In [`boot_clock`]'s time; the two above for none of it.
    until: AtomicU64,
    /// The mount is about to end: nobody waits any more.
    leaving: AtomicBool,
}

impl Default for Term {
    fn default() -> Self {
        Self { until: AtomicU64::new(FOREVER), leaving: AtomicBool::new(false) }
    }
}

impl Term {
    /// It lasts until then, and no more for ever. Nothing if it has ended.
    pub fn lasts_until(&self, until: Nanos) {
        // Between the two ends.
        let until = until.0.clamp(ENDED + 1, FOREVER - 1);
        let _ = self.until.fetch_update(Ordering::AcqRel, Ordering::Acquire, |now| (now != ENDED).then_some(until));
    }

    /// Ends it for good.
    pub fn end(&self) {
        self.until.store(ENDED, Ordering::Release);
    }

    /// How it stands now.
    pub fn state(&self) -> TermState {
        match self.until.load(Ordering::Acquire) {
            FOREVER => TermState::Stands,
            ENDED => TermState::Ended,
            until if boot_clock().0 < until => TermState::Stands,
            _ => TermState::Waits,
        }
    }

    /// Whether it was given bit by bit, by a lease.
    pub fn is_leased(&self) -> bool {
        !matches!(self.until.load(Ordering::Acquire), FOREVER | ENDED)
    }

    /// From now on, or no longer, who waits for the term gives up: the mount is about to end.
    pub fn leaving(&self, leaves: bool) {
        self.leaving.store(leaves, Ordering::Release);
    }

    /// Waits until it stands or has ended, or the mount is about to end. How it stands then.
    pub fn wait(&self) -> TermState {
        loop {
            let state = self.state();
            if state != TermState::Waits || self.leaving.load(Ordering::Acquire) {
                return state;
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// A clock that also counts while the machine sleeps.
#[must_use]
pub fn boot_clock() -> Nanos {
    let now = clock_gettime(ClockId::Boottime);
    Nanos(now.tv_sec.unsigned_abs().saturating_mul(1_000_000_000).saturating_add(now.tv_nsec.unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_lasts_for_ever_until_somebody_says_how_long_and_never_comes_back() {
        let term = Term::default();
        assert_eq!(term.state(), TermState::Stands);
        term.lasts_until(Nanos(0));
        assert_eq!(term.state(), TermState::Waits);
        term.leaving(true);
        assert_eq!(term.wait(), TermState::Waits);
        term.lasts_until(Nanos(u64::MAX));
        assert_eq!(term.state(), TermState::Stands);
        term.end();
        term.lasts_until(Nanos(u64::MAX));
        assert_eq!(term.wait(), TermState::Ended);
    }
}
