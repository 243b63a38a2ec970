//! A sync of the origin's file system that a take-over has put off, because programs wait for their answers meanwhile.
//!
//! ```text
//! [Due] --- begin, or the next flush ---> [UnderWay] --- the origin has synced ---> [Done]
//!   ^                                          |
//!   |                                          | it refused
//!   +--- the next flush hears of that --- [Failed]
//! ```
//!
//! Invariants
//! - Each flush, freeze and end that says "the origin has it" comes after the sync: the last worker may have changed
//!   files past the pool that no log names (`Recovered::goes_on` in the engine says what else it left, and who owes
//!   what).
//! - A refusal is told once: the kernel gives it once, and later syncs succeed.
//! - No request of a program waits for it.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use headpond_engine::Request;
use headpond_shard::Handle;

use super::OriginRoot;
use crate::process::log::log_line;

/// How often a wait looks whether it is wanted any more.
const LOOK: Duration = Duration::from_millis(50);

#[derive(Debug, Default)]
enum State {
    Due,
    UnderWay,
    Failed(String),
    #[default]
    Done,
}

/// Why a wait for the sync ended without it.
#[derive(Debug)]
pub(crate) enum Unsynced {
    /// Nobody waits any more.
    Interrupted,
    /// The origin's reason.
    Refused(String),
}

impl fmt::Display for Unsynced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interrupted => f.write_str("interrupted while the origin's file system was being synced"),
            Self::Refused(why) => write!(f, "cannot sync the origin's file system: {why}"),
        }
    }
}

/// The sync, for those who need it.
#[derive(Clone, Default)]
pub(crate) struct OwedSync(Option<Arc<Shared>>);

struct Shared {
    root: Arc<OriginRoot>,
    tell: Box<dyn Fn() + Send + Sync>,
    state: Mutex<State>,
    changed: Condvar,
}

impl OwedSync {
    /// One that is due. The engine hears when it is done.
    pub(crate) fn of(root: Arc<OriginRoot>, engine: Handle) -> Self {
        Self::telling(root, Box::new(move || engine.submit(Request::OriginSynced, Box::new(drop))))
    }

    fn telling(root: Arc<OriginRoot>, tell: Box<dyn Fn() + Send + Sync>) -> Self {
        Self(Some(Arc::new(Shared { root, tell, state: Mutex::new(State::Due), changed: Condvar::new() })))
    }

    /// Begins it on a thread of its own, if it is due.
    pub(crate) fn begin(&self) {
        let Some(shared) = &self.0 else { return };
        let mut state = shared.state();
        if !matches!(*state, State::Due) {
            return;
        }
        let synced = shared.clone();
        let sync = move || synced.end(synced.root.sync_file_system());
        *state = match std::thread::Builder::new().name("origin-sync".to_owned()).spawn(sync) {
            Ok(_) => State::UnderWay,
            Err(error) => State::Failed(error.to_string()),
        };
    }

    /// Whether somebody who needs it would wait, or hear of a refusal.
    pub(crate) fn is_open(&self) -> bool {
        self.0.as_ref().is_some_and(|shared| !matches!(*shared.state(), State::Done))
    }

    /// Waits until it is done, unless `is_interrupted` says that nobody waits any more.
    ///
    /// # Errors
    /// [`Unsynced`]. After a refusal the next call asks the origin again.
    pub(crate) fn settle(&self, mut is_interrupted: impl FnMut() -> bool) -> Result<(), Unsynced> {
        let Some(shared) = &self.0 else { return Ok(()) };
        loop {
            self.begin();
            let mut state = shared.state();
            match &mut *state {
                State::Done => return Ok(()),
                State::Failed(why) => {
                    let why = std::mem::take(why);
                    *state = State::Due;
                    return Err(Unsynced::Refused(why));
                }
                State::Due | State::UnderWay => {}
            }
            drop(shared.changed.wait_timeout(state, LOOK));
            if is_interrupted() {
                return Err(Unsynced::Interrupted);
            }
        }
    }
}

impl Shared {
    fn end(&self, result: std::io::Result<()>) {
        *self.state() = match result {
            Ok(()) => {
                (self.tell)();
                State::Done
            }
            Err(error) => {
                log_line(format_args!(
                    "{}: the origin's file system cannot be synced: {error}. What the last worker wrote there directly may be \
                     lost; the next flush says so, too",
                    self.root.path().display()
                ));
                State::Failed(error.to_string())
            }
        };
        self.changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is one assignment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owed() -> (tempfile::TempDir, OwedSync) {
        let dir = tempfile::tempdir().unwrap();
        let owed = OwedSync::telling(Arc::new(OriginRoot::open(dir.path()).unwrap()), Box::new(|| {}));
        (dir, owed)
    }

    #[test]
    fn whoever_needs_it_waits_for_it_and_it_is_done_once() {
        let (_dir, owed) = owed();
        assert!(owed.is_open());
        owed.settle(|| false).unwrap();
        assert!(!owed.is_open());
        owed.settle(|| panic!("it is done")).unwrap();
        OwedSync::default().settle(|| panic!("none is owed")).unwrap();
    }

    #[test]
    fn a_wait_can_be_interrupted_and_a_refusal_is_told_once_and_then_tried_again() {
        let (_dir, owed) = owed();
        let shared = owed.0.clone().unwrap();
        *shared.state() = State::UnderWay;
        assert!(matches!(owed.settle(|| true), Err(Unsynced::Interrupted)));
        shared.end(Err(std::io::Error::other("the disk is gone")));
        assert!(owed.is_open());
        let refused = owed.settle(|| false).unwrap_err().to_string();
        assert!(refused.contains("the disk is gone"), "{refused}");
        owed.settle(|| false).unwrap();
    }
}
