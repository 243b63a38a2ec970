//! Requests that change names, attributes or space at the origin, and files that lie past the pool, while the origin
//! stands still: they wait at the door, and take no thread.
//!
//! Invariants
//! - Each such request is counted from when the door lets it in until its answer is on its way. So when none is under
//!   way, none changes the origin.
//! - Those that waited go on in the order in which they came.
//!
//! Changes of data are the shard's to hold ([`headpond_shard::Hold`]).

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What the door does with a request that waited.
pub(crate) type Going = Box<dyn FnOnce() + Send>;

/// Shared by the mount and the daemon's control part.
#[derive(Default)]
pub struct Standstill {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    holds: bool,
    /// The numbers of the requests under way.
    under_way: HashSet<u64>,
    waiting: Vec<(u64, Going)>,
}

impl Standstill {
    /// From now on changes wait.
    pub fn begin(&self) {
        self.state().holds = true;
    }

    /// Whether no change is under way.
    pub fn is_quiet(&self) -> bool {
        self.state().under_way.is_empty()
    }

    /// Lets everything go on. May block for as long as the mount's threads are busy.
    pub fn end(&self) {
        let mut state = self.state();
        state.holds = false;
        let waiting = std::mem::take(&mut state.waiting);
        state.under_way.extend(waiting.iter().map(|(unique, _)| unique));
        drop(state);
        for (_, go) in waiting {
            go();
        }
    }

    /// Whether a change may begin now. If so, it is under way until [`Standstill::ended`]. If not, what `later` makes
    /// of it begins it at the end of the standstill.
    pub(crate) fn lets_in(&self, unique: u64, later: impl FnOnce() -> Going) -> bool {
        let mut state = self.state();
        if state.holds {
            state.waiting.push((unique, later()));
        } else {
            state.under_way.insert(unique);
        }
        !state.holds
    }

    /// The answer to a request is on its way. Does nothing for a request that is no change.
    pub(crate) fn ended(&self, unique: u64) {
        self.state().under_way.remove(&unique);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is complete in itself: a panic elsewhere leaves nothing half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn what_was_let_in_is_waited_for_and_what_comes_later_waits_for_the_end() {
        let standstill = Standstill::default();
        let (done, order) = channel();
        let comes = |number: u64| {
            let done = done.clone();
            standstill.lets_in(number, || Box::new(move || done.send(number).unwrap()))
        };
        assert!(comes(1));
        standstill.begin();
        assert!(!standstill.is_quiet());
        assert!(!comes(2) && !comes(3));
        standstill.ended(1);
        standstill.ended(99);
        assert!(standstill.is_quiet());
        assert_eq!(order.try_iter().count(), 0);
        standstill.end();
        assert_eq!(order.try_iter().collect::<Vec<_>>(), [2, 3]);
        assert!(!standstill.is_quiet(), "they are under way now");
    }
}
