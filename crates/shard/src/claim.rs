//! The gate that every change of the origin passes: may this process still change the origin?
//!
//! The mount takes the lock beside the origin once, but over a network a lock is a lease. A server that restarts loses
//! it, and a client that is silent for too long loses it, too. No one reports the loss, and another host may take the
//! origin over. So the gate looks at the claim again and again.
//!
//! Invariants
//! - A change of the origin begins at most [`Gate::INTERVAL`] after the start of a look that found the claim standing.
//!   The clock also counts while the machine sleeps. A process that was stopped finds its last look too old when it
//!   wakes.
//! - After an error of the origin, no change begins before a look that began later than the error.
//! - A lost claim stays lost for the life of the process.
//!
//! [`Watch`] decides by these; this file has the clock, the locks and the waiting.
//!
//! The gate is a check and not a fence. When another host takes over, it does not stop a change that has begun or lies
//! in the kernel's page cache, nor one that begins within the interval after that. Once a host is back from a cut-off,
//! its kernel sends what it has not sent.
//!
//! Price: each change of the origin reads a clock and takes a short lock. Each interval with changes has one look. A
//! hit costs nothing.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use headpond_base::{Errno, Result};
use headpond_claim::{Watch, Way};

use crate::term::{Term, TermState, boot_clock};

/// What a look at the claim found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LookResult {
    /// It stands.
    Ours,
    /// It is lost for good. The text says to whom, and what to do.
    Lost(String),
    /// The origin does not answer. No change may begin until it does.
    Unknown(Errno),
}

/// This process's claim on the origin, wherever it is written.
pub trait OriginClaim: Send + Sync + 'static {
    /// Looks whether the claim stands. Blocks for as long as the origin takes.
    fn look(&self) -> LookResult;
}

/// Lets changes of the origin through for as long as the claim stands.
pub struct Gate {
    claim: Arc<dyn OriginClaim>,
    /// Locked for a decision, never during a look.
    watch: Mutex<Watch>,
    one_looks: Mutex<()>,
    lost: OnceLock<String>,
    term: Arc<Term>,
}

/// How many looks in a row may hang, or be doubted, before a change is refused.
const LOOKS: u32 = 3;

impl Gate {
    /// The most age of a look. Leases of NFS servers are 90 s, or 10 s if an administrator is in a hurry. No other
    /// host gets the lock sooner after the server last heard from this host.
    pub const INTERVAL: Duration = Duration::from_secs(5);

    /// The error of a change after the claim is lost: the origin is then read-only.
    pub const BARRED: Errno = Errno::ROFS;

    /// A gate for a claim that was just made.
    #[must_use]
    pub fn new(claim: Arc<dyn OriginClaim>) -> Self {
        Self::with_interval(claim, Self::INTERVAL)
    }

    /// Like [`Gate::new`], with another interval.
    #[must_use]
    pub fn with_interval(claim: Arc<dyn OriginClaim>, interval: Duration) -> Self {
        let watch = Mutex::new(Watch::new(interval.into()));
        Self { claim, watch, one_looks: Mutex::new(()), lost: OnceLock::new(), term: Arc::default() }
    }

    /// The same gate, which also lets nothing through while this term does not stand.
    #[must_use]
    pub fn within(self, term: Arc<Term>) -> Self {
        Self { term, ..self }
    }

    /// Lets one change of the origin through. May block for a look.
    ///
    /// # Errors
    /// [`Gate::BARRED`] once the claim is lost; the origin's error if a look gets no answer.
    pub fn pass(&self) -> Result<()> {
        // Without an end: an error would reach programs, and the registry may be back in a moment.
        match self.term.wait() {
            TermState::Stands => {}
            TermState::Waits => return Err(Errno::AGAIN),
            // The look says why.
            TermState::Ended => self.doubt(),
        }
        if self.way() == Way::Pass {
            return Ok(());
        }
        let _one = self.one_looks.lock().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have looked meanwhile. A look that hung is too old when its answer comes, so look again.
        for _ in 0..LOOKS {
            match self.way() {
                Way::Pass => return Ok(()),
                Way::Barred => return Err(Self::BARRED),
                Way::Look => self.look()?,
            }
        }
        if self.way() == Way::Pass { Ok(()) } else { Err(Errno::AGAIN) }
    }

    /// Whether a change may begin now. Never blocks for a look: after [`Gate::pass`], for what was done since.
    pub(crate) fn is_open(&self) -> bool {
        self.way() == Way::Pass
    }

    /// Looks at the claim, unless a look is younger than the interval. For a thread that is otherwise idle: so a loss
    /// becomes known even without changes.
    pub fn keep_watch(&self) {
        let _ = self.pass();
    }

    /// Notes that the origin failed: it may no longer be ours.
    pub fn doubt(&self) {
        self.watch().doubt();
    }

    /// Whether the claim is lost.
    pub fn is_lost(&self) -> bool {
        self.watch().is_lost()
    }

    /// Who took the claim, and what to do.
    pub fn lost(&self) -> Option<&str> {
        self.lost.get().map(String::as_str)
    }

    /// How long the origin has left a look without an answer, if one is under way.
    pub fn silent_for(&self) -> Option<Duration> {
        self.watch().silent_for(boot_clock()).map(|silent| Duration::from_nanos(silent.0))
    }

    fn watch(&self) -> MutexGuard<'_, Watch> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How a change that begins now goes on.
    fn way(&self) -> Way {
        // Read the clock under the lock: the wait for the lock makes no look younger.
        let watch = self.watch();
        match watch.may_change(boot_clock()) {
            // A look took longer than the term.
            Way::Pass if self.term.state() != TermState::Stands => Way::Look,
            way => way,
        }
    }

    /// Looks. One thread at a time.
    ///
    /// # Errors
    /// [`Gate::BARRED`] if the claim is lost; the origin's error if it does not answer.
    fn look(&self) -> Result<()> {
        self.watch().look_begun(boot_clock());
        let (standing, result) = match self.claim.look() {
            LookResult::Ours => (headpond_claim::Standing::Ours, Ok(())),
            LookResult::Lost(how) => {
                // Before the watch knows: a thread that finds the claim lost then also finds the text.
                let _ = self.lost.set(how);
                (headpond_claim::Standing::Lost, Err(Self::BARRED))
            }
            LookResult::Unknown(errno) => (headpond_claim::Standing::Unknown, Err(errno)),
        };
        self.watch().looked(standing);
        result
    }
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gate").field("lost", &self.lost).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// Returns the standing that a test sets, and counts looks.
    struct Said {
        standing: Mutex<LookResult>,
        looks: AtomicU64,
    }

    impl OriginClaim for Said {
        fn look(&self) -> LookResult {
            self.looks.fetch_add(1, Ordering::SeqCst);
            self.standing.lock().unwrap().clone()
        }
    }

    fn gate(interval: Duration) -> (Gate, Arc<Said>) {
        let said = Arc::new(Said { standing: Mutex::new(LookResult::Ours), looks: AtomicU64::new(0) });
        (Gate::with_interval(said.clone(), interval), said)
    }

    fn say(said: &Said, standing: LookResult) {
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
        // Each look is older than the interval before it ends, so no change may pass.
        assert_eq!(gate.pass(), Err(Errno::AGAIN));
        say(&said, LookResult::Lost("to db2".to_owned()));
        assert_eq!(gate.pass(), Err(Gate::BARRED));
    }

    #[test]
    fn after_an_error_of_the_origin_the_claim_is_looked_at_again() {
        let (gate, said) = gate(LONG);
        assert_eq!(gate.pass(), Ok(()));
        gate.doubt();
        say(&said, LookResult::Unknown(Errno::IO));
        assert_eq!(gate.pass(), Err(Errno::IO), "who does not know does not write");
        assert_eq!(gate.pass(), Err(Errno::IO));
        say(&said, LookResult::Ours);
        assert_eq!(gate.pass(), Ok(()));
        assert_eq!(looks(&said), 4);
    }

    #[test]
    fn what_is_lost_stays_lost_and_says_to_whom() {
        let (gate, said) = gate(LONG);
        assert_eq!((gate.pass(), gate.lost()), (Ok(()), None));
        say(&said, LookResult::Lost("to db2".to_owned()));
        assert_eq!(gate.pass(), Ok(()), "within the interval it is not seen: a check is no fence");
        gate.doubt();
        assert_eq!(gate.pass(), Err(Gate::BARRED));
        say(&said, LookResult::Ours);
        gate.doubt();
        assert_eq!((gate.pass(), gate.lost()), (Err(Gate::BARRED), Some("to db2")));
        assert_eq!(looks(&said), 2);
    }

    /// A claim that stands. During the first look the origin fails another thread.
    #[derive(Default)]
    struct FailsMeanwhile {
        gate: OnceLock<std::sync::Weak<Gate>>,
        looks: AtomicU64,
    }

    impl OriginClaim for FailsMeanwhile {
        fn look(&self) -> LookResult {
            if self.looks.fetch_add(1, Ordering::SeqCst) == 0 {
                self.gate.get().and_then(std::sync::Weak::upgrade).expect("the gate is there").doubt();
            }
            LookResult::Ours
        }
    }

    #[test]
    fn a_doubt_during_a_look_holds_back_the_change_that_waits_for_that_look() {
        let claim = Arc::new(FailsMeanwhile::default());
        let gate = Arc::new(Gate::with_interval(claim.clone(), LONG));
        claim.gate.set(Arc::downgrade(&gate)).expect("it is set once");
        assert_eq!(gate.pass(), Ok(()));
        assert_eq!(claim.looks.load(Ordering::SeqCst), 2, "the first look may not have seen what the doubt is of");
    }
}
