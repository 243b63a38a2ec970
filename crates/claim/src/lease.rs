//! How long this host may act as a pool's owner, by a lease that a registry grants.
//!
//! Invariants
//! - The lease stands for less time than the registry has granted, counted from the start of the request.
//! - An answer counts for the request that it answers, and for no later one.
//! - A lease that is lost stays lost.
//!
//! ```text
//!   None ── granted ──> Until(asked + granted − a fifth) ── time passes ──> over, until granted again
//!     └───────── lost ─────────> Lost <──────── lost ─────────┘
//! ```

use headpond_base::Nanos;

/// What is taken off a lease, as a part of it: clocks run at different rates, and between a look at the clock and the
/// system call that follows a thread may be stopped for a moment.
const MARGIN: u64 = 5;

/// How often a lease is renewed in its time.
const RENEWALS: u64 = 3;

/// The lease of an owner. Times come from a clock that also counts while the machine sleeps.
///
/// The owner makes one request at a time.
#[derive(Clone, Copy, Debug)]
pub struct OwnerLease {
    length: Nanos,
    until: Option<Nanos>,
    asked: Option<Nanos>,
    lost: bool,
}

impl OwnerLease {
    /// A lease that was not granted yet. It shall be of this length.
    #[must_use]
    pub const fn new(length: Nanos) -> Self {
        Self { length, until: None, asked: None, lost: false }
    }

    /// Notes that a request for it, or for more of it, begins.
    pub const fn asked(&mut self, now: Nanos) {
        self.asked = Some(now);
    }

    /// Notes that the request under way was granted, for this long.
    pub fn granted(&mut self, length: Nanos) {
        if let Some(asked) = self.asked.take() {
            let until = Nanos(asked.0.saturating_add(length.0 - length.0 / MARGIN));
            // An answer that comes late grants nothing that is over sooner than what is there.
            self.until = self.until.max(Some(until));
        }
    }

    /// Notes that the request under way has no answer. What was granted before stays.
    pub const fn unanswered(&mut self) {
        self.asked = None;
    }

    /// Notes that another has it.
    pub const fn lost(&mut self) {
        self.lost = true;
    }

    /// Whether another has it.
    #[must_use]
    pub const fn is_lost(&self) -> bool {
        self.lost
    }

    /// Until when this host may act as the owner. Zero if it may not.
    #[must_use]
    pub fn until(&self) -> Nanos {
        if self.lost { Nanos(0) } else { self.until.unwrap_or(Nanos(0)) }
    }

    /// Whether this host may act as the owner.
    #[must_use]
    pub fn stands(&self, now: Nanos) -> bool {
        now < self.until()
    }

    /// How long to wait until the next request, if the last one began at this time. A request that failed is repeated
    /// sooner.
    #[must_use]
    pub fn pause(&self, answered: bool, began: Nanos, now: Nanos) -> Nanos {
        let every = self.length.0 / if answered { RENEWALS } else { 4 * RENEWALS };
        Nanos(every.saturating_sub(now.since(began).0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_counts_from_the_start_of_the_request_less_a_fifth() {
        let mut lease = OwnerLease::new(Nanos(10));
        assert!(!lease.stands(Nanos(0)));
        lease.asked(Nanos(100));
        assert!(!lease.stands(Nanos(101)), "not granted yet");
        lease.granted(Nanos(10));
        assert!(lease.stands(Nanos(107)));
        assert!(!lease.stands(Nanos(108)), "also if the answer took seven of the ten");
    }

    #[test]
    fn what_fails_takes_nothing_away_and_gives_nothing() {
        let mut lease = OwnerLease::new(Nanos(10));
        lease.asked(Nanos(100));
        lease.granted(Nanos(10));
        lease.asked(Nanos(104));
        lease.unanswered();
        assert!(lease.stands(Nanos(107)) && !lease.stands(Nanos(108)));
        lease.granted(Nanos(10));
        assert!(!lease.stands(Nanos(108)), "an answer without a request");
        lease.asked(Nanos(120));
        lease.granted(Nanos(10));
        assert!(lease.stands(Nanos(127)), "it comes back");
    }

    #[test]
    fn requests_begin_at_even_distances_however_long_each_takes() {
        let lease = OwnerLease::new(Nanos(12));
        assert_eq!(lease.pause(true, Nanos(100), Nanos(101)), Nanos(3));
        assert_eq!(lease.pause(true, Nanos(100), Nanos(109)), Nanos(0));
        assert_eq!(lease.pause(false, Nanos(100), Nanos(100)), Nanos(1));
    }

    #[test]
    fn what_is_lost_stays_lost() {
        let mut lease = OwnerLease::new(Nanos(10));
        lease.asked(Nanos(100));
        lease.granted(Nanos(10));
        lease.lost();
        assert!(!lease.stands(Nanos(101)) && lease.is_lost());
        lease.asked(Nanos(101));
        lease.granted(Nanos(10));
        assert!(!lease.stands(Nanos(102)));
    }
}
