//! The gate through which every change of the origin passes: whether this process may still make one.
//!
//! The lock beside the origin is taken once, and over a network a lock is a lease: a server that restarts, or a client that was
//! silent for too long, loses it without a word, and another host may take the origin over. So the claim is looked at again
//! while it is used.
//!
//! Invariants
//! - No change of the origin begins later than [`Gate::INTERVAL`] after the beginning of a look that found the claim standing.
//!   The clock goes on while the machine sleeps, and a process that was stopped finds on waking that its last look is old.
//! - After an error of the origin, no change begins before another look.
//! - A claim that was lost stays lost for the life of the process.
//!
//! It is a check and no fence. What remains open: a change that has begun, or lies in the kernel's page cache, when another
//! host takes over; and one that begins within the interval after that. The kernel of a host that was cut off sends what it
//! has not sent, once it can.
//!
//! Price: a read of a clock for each change of the origin, and a look for each interval in which there are any. No hit pays.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use headpond_base::{Errno, Result};
use rustix::time::{ClockId, clock_gettime};

/// What a look at the claim found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Standing {
    /// It stands.
    Ours,
    /// It is lost for good, in words: to whom, and what to do.
    Lost(String),
    /// The origin does not say. Nothing may be changed until it does.
    Unknown(Errno),
}

/// This process's claim on the origin, wherever that is written down.
pub trait Claim: Send + Sync + 'static {
    /// Looks how it stands. Blocks for as long as the origin takes.
    fn look(&self) -> Standing;
}

/// Lets changes of the origin through for as long as the claim stands.
pub struct Gate {
    claim: Arc<dyn Claim>,
    interval: Duration,
    /// When the last good look began, by [`clock`]; [`NEVER`] when there is a doubt.
    seen: AtomicU64,
    doubts: AtomicU64,
    /// Since when a look has been under way; [`NEVER`] when there is none.
    looking: AtomicU64,
    one_looks: Mutex<()>,
    is_lost: AtomicBool,
    lost: OnceLock<String>,
}

const NEVER: u64 = 0;

/// Looks that may hang one after the other before a change is refused.
const LOOKS: u32 = 3;

impl Gate {
    /// How old a look may be at most. Leases of NFS servers are 90 s, and 10 s where an administrator is in a hurry: nobody gets
    /// the lock earlier than that after this host was heard last.
    pub const INTERVAL: Duration = Duration::from_secs(5);

    /// What a change gets once the claim is lost: the origin is for reading only from then on.
    pub const BARRED: Errno = Errno::ROFS;

    /// A gate for a claim that was made a moment ago.
    #[must_use]
    pub fn new(claim: Arc<dyn Claim>) -> Self {
        Self::with_interval(claim, Self::INTERVAL)
    }

    /// The same with another interval.
    #[must_use]
    pub fn with_interval(claim: Arc<dyn Claim>, interval: Duration) -> Self {
        Self {
            claim,
            interval,
            seen: AtomicU64::new(NEVER),
            doubts: AtomicU64::new(0),
            looking: AtomicU64::new(NEVER),
            one_looks: Mutex::new(()),
            is_lost: AtomicBool::new(false),
            lost: OnceLock::new(),
        }
    }

    /// Lets one change of the origin through. May block for a look.
    ///
    /// # Errors
    /// [`Gate::BARRED`] once the claim is lost; the origin's where it does not say how the claim stands.
    pub fn pass(&self) -> Result<()> {
        if !self.is_lost() && self.is_fresh() {
            return Ok(());
        }
        let _one = self.one_looks.lock().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have looked meanwhile.
        if !self.is_lost() && self.is_fresh() { Ok(()) } else { self.look() }
    }

    /// Looks at the claim unless that was done within the interval: for a thread that has nothing else to do, so that a loss is
    /// known also where nothing is changed.
    pub fn keep_watch(&self) {
        let _ = self.pass();
    }

    /// The origin failed: perhaps because it is no longer ours.
    pub fn doubt(&self) {
        self.doubts.fetch_add(1, Ordering::SeqCst);
        self.seen.store(NEVER, Ordering::SeqCst);
    }

    /// Whether the claim is lost.
    pub fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Acquire)
    }

    /// To whom the claim was lost, and what to do.
    pub fn lost(&self) -> Option<&str> {
        self.lost.get().map(String::as_str)
    }

    /// For how long the origin has left a look without an answer, if one is under way.
    pub fn silent_for(&self) -> Option<Duration> {
        let since = self.looking.load(Ordering::Acquire);
        (since != NEVER).then(|| Duration::from_nanos(clock().saturating_sub(since)))
    }

    fn is_fresh(&self) -> bool {
        let seen = self.seen.load(Ordering::SeqCst);
        seen != NEVER && Duration::from_nanos(clock().saturating_sub(seen)) < self.interval
    }

    /// By one thread at a time. A look that hung is old when it is answered, and is made again.
    fn look(&self) -> Result<()> {
        for _ in 0..LOOKS {
            if self.is_lost() {
                return Err(Self::BARRED);
            }
            if self.look_once()? {
                return Ok(());
            }
        }
        Err(Errno::AGAIN)
    }

    /// Whether the claim was found standing, a moment ago.
    fn look_once(&self) -> Result<bool> {
        let (began, doubts) = (clock(), self.doubts.load(Ordering::SeqCst));
        self.looking.store(began, Ordering::Release);
        let standing = self.claim.look();
        self.looking.store(NEVER, Ordering::Release);
        match standing {
            Standing::Ours => {
                // A doubt that came meanwhile may be of something that the look has not seen.
                if self.doubts.load(Ordering::SeqCst) == doubts {
                    self.seen.store(began, Ordering::SeqCst);
                }
                Ok(Duration::from_nanos(clock().saturating_sub(began)) < self.interval)
            }
            Standing::Lost(how) => {
                let _ = self.lost.set(how);
                self.is_lost.store(true, Ordering::Release);
                Err(Self::BARRED)
            }
            Standing::Unknown(errno) => Err(errno),
        }
    }
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gate").field("lost", &self.lost).finish_non_exhaustive()
    }
}

/// Nanoseconds of a clock that goes on while the machine sleeps; never [`NEVER`].
fn clock() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let nanos = now.tv_sec.unsigned_abs().saturating_mul(1_000_000_000).saturating_add(now.tv_nsec.unsigned_abs());
    nanos.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Says what it was told to say, and counts.
    struct Said {
        standing: Mutex<Standing>,
        looks: AtomicU64,
    }

    impl Claim for Said {
        fn look(&self) -> Standing {
            self.looks.fetch_add(1, Ordering::SeqCst);
            self.standing.lock().unwrap().clone()
        }
    }

    fn gate(interval: Duration) -> (Gate, Arc<Said>) {
        let said = Arc::new(Said { standing: Mutex::new(Standing::Ours), looks: AtomicU64::new(0) });
        (Gate::with_interval(said.clone(), interval), said)
    }

    fn say(said: &Said, standing: Standing) {
        *said.standing.lock().unwrap() = standing;
    }

    fn looks(said: &Said) -> u64 {
        said.looks.load(Ordering::SeqCst)
    }

    const LONG: Duration = Duration::from_secs(3600);

    #[test]
    fn one_look_is_good_for_all_changes_of_an_interval() {
        let (gate, said) = gate(LONG);
        for _ in 0..10 {
            assert_eq!(gate.pass(), Ok(()));
        }
        assert_eq!(looks(&said), 1);
    }

    #[test]
    fn a_look_that_is_too_old_is_none() {
        let (gate, said) = gate(Duration::from_nanos(1));
        // Each look is older than the interval before it is over: nothing passes on it.
        assert_eq!(gate.pass(), Err(Errno::AGAIN));
        say(&said, Standing::Lost("to db2".to_owned()));
        assert_eq!(gate.pass(), Err(Gate::BARRED));
    }

    #[test]
    fn after_an_error_of_the_origin_the_claim_is_looked_at_again() {
        let (gate, said) = gate(LONG);
        assert_eq!(gate.pass(), Ok(()));
        gate.doubt();
        say(&said, Standing::Unknown(Errno::IO));
        assert_eq!(gate.pass(), Err(Errno::IO), "who does not know does not write");
        assert_eq!(gate.pass(), Err(Errno::IO));
        say(&said, Standing::Ours);
        assert_eq!(gate.pass(), Ok(()));
        assert_eq!(looks(&said), 4);
    }

    #[test]
    fn what_is_lost_stays_lost_and_says_to_whom() {
        let (gate, said) = gate(LONG);
        assert_eq!((gate.pass(), gate.lost()), (Ok(()), None));
        say(&said, Standing::Lost("to db2".to_owned()));
        assert_eq!(gate.pass(), Ok(()), "within the interval it is not seen: a check is no fence");
        gate.doubt();
        assert_eq!(gate.pass(), Err(Gate::BARRED));
        say(&said, Standing::Ours);
        gate.doubt();
        assert_eq!((gate.pass(), gate.lost()), (Err(Gate::BARRED), Some("to db2")));
        assert_eq!(looks(&said), 2);
    }
}
