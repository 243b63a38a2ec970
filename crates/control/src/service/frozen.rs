//! The standstill of a mount's origin, if there is one: whose it is, until when, and how far it is.
//!
//! Invariant: a standstill that has ended changes nothing any more. Each of its steps takes place under the lock, and
//! so does its end.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::origin::OriginRoot;
use crate::ownership::DurableNote;

/// The most seconds of a standstill: a client that hangs must not stop the applications for ever.
const SECONDS_MAX: u64 = 24 * 3600;

/// The standstill of a mount, if there is one.
#[derive(Clone, Default)]
pub(crate) struct Freeze {
    state: Arc<Mutex<State>>,
    parts: Option<(Arc<OriginRoot>, Arc<DurableNote>)>,
}

#[derive(Default)]
struct State {
    /// Counts the standstills, and so names them.
    last: u64,
    now: Option<Now>,
}

struct Now {
    number: u64,
    until: Instant,
    how_far: HowFar,
}

/// How far a standstill is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum HowFar {
    /// The origin gets the last changes.
    Begun,
    /// Destage is held.
    Held,
    /// The client knows that the origin stands still.
    Stands,
}

impl Freeze {
    /// Of this origin, with this note beside it.
    pub(crate) fn of(root: Arc<OriginRoot>, note: Arc<DurableNote>) -> Self {
        Self { parts: Some((root, note)), ..Self::default() }
    }

    /// Begins a standstill. Returns its number and its end, or `None` if there is one.
    pub(super) fn begin(&self, seconds: u64) -> Option<(u64, Instant)> {
        let mut state = self.state();
        if state.now.is_some() {
            return None;
        }
        state.last += 1;
        let (number, until) = (state.last, Instant::now() + Duration::from_secs(seconds.min(SECONDS_MAX)));
        state.now = Some(Now { number, until, how_far: HowFar::Begun });
        Some((number, until))
    }

    /// Takes a step of a standstill, and comes so far by it. False if that standstill has ended.
    pub(super) fn step(&self, number: u64, how_far: HowFar, step: impl FnOnce()) -> bool {
        let mut state = self.state();
        let Some(now) = state.now.as_mut().filter(|now| now.number == number) else { return false };
        now.how_far = now.how_far.max(how_far);
        step();
        true
    }

    /// Ends the standstill of this number, or any. `thaw` undoes what its steps did. False if there is none.
    pub(super) fn end(&self, number: Option<u64>, thaw: impl FnOnce()) -> bool {
        let mut state = self.state();
        let ends = state.now.take_if(|now| number.is_none_or(|number| number == now.number)).is_some();
        if ends {
            thaw();
        }
        ends
    }

    /// Leaves the note beside the origin as it is from now on, or no longer.
    pub(super) fn hold_note(&self, holds: bool) {
        if let Some((_, note)) = &self.parts {
            note.hold(holds);
        }
    }

    /// The origin.
    pub(super) fn root(&self) -> Option<Arc<OriginRoot>> {
        self.parts.as_ref().map(|(root, _)| root.clone())
    }

    /// Tells `tell` whether destage must stand still. That does not change meanwhile.
    pub(super) fn with_destage_held(&self, tell: impl FnOnce(bool)) {
        let state = self.state();
        tell(state.now.as_ref().is_some_and(|now| now.how_far >= HowFar::Held));
    }

    /// The seconds until the origin thaws at the latest, rounded up, if it stands still.
    pub(super) fn seconds_left(&self) -> Option<u64> {
        let state = self.state();
        let now = state.now.as_ref().filter(|now| now.how_far == HowFar::Stands)?;
        Some(now.until.saturating_duration_since(Instant::now()).as_secs() + 1)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standstill_that_has_ended_takes_no_step_and_ends_no_other() {
        let freeze = Freeze::default();
        let (first, _) = freeze.begin(60).unwrap();
        assert!(freeze.begin(60).is_none());
        assert!(freeze.step(first, HowFar::Stands, || {}) && freeze.seconds_left().is_some());
        assert!(freeze.end(None, || {}));
        let (second, _) = freeze.begin(60).unwrap();
        assert!(!freeze.step(first, HowFar::Held, || panic!("it has ended")));
        assert!(!freeze.end(Some(first), || panic!("it is another's")));
        freeze.with_destage_held(|held| assert!(!held));
        assert!(freeze.step(second, HowFar::Held, || {}) && freeze.seconds_left().is_none());
        freeze.with_destage_held(|held| assert!(held));
        assert!(freeze.end(Some(second), || {}) && !freeze.end(None, || {}));
    }
}
