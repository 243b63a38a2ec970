//! What happens when the flash takes nothing more (promise 5): the origin is used directly, and
//! whatever of the dirty data can still be read goes there.
//!
//! Invariant: the origin is not changed before it is durably said, beside its data, that the pool
//! no longer knows of changes. Otherwise the next start would put old dirty data over newer.

use headpond_base::Errno;

use crate::effect::Outcome;
use crate::locks::OpId;

/// Whether the origin's side knows that the pool has failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum State {
    /// It has not, or nobody was told yet.
    #[default]
    Untold,
    /// It is being written down.
    Telling,
    /// It is durable: the origin may be changed.
    Told,
    /// It could not be written down: the origin must not be changed.
    Unsaid(Errno),
}

/// Whether the origin's side knows that the pool has failed, and who waits for that. Owned by the engine.
#[derive(Default)]
pub(crate) struct PoolFailed {
    state: State,
    waiting: Vec<OpId>,
}

impl PoolFailed {
    /// Whether the origin's side is to be told now; it is being told from here on.
    pub(crate) fn begins_telling(&mut self) -> bool {
        let begins = self.state == State::Untold;
        if begins {
            self.state = State::Telling;
        }
        begins
    }

    /// A request waits for the answer.
    pub(crate) fn wait(&mut self, op: OpId) {
        self.waiting.push(op);
    }

    /// The origin's side has answered. Gives those who waited for that.
    pub(crate) fn answered(&mut self, outcome: &Outcome) -> Vec<OpId> {
        self.state = match outcome {
            Outcome::Failed(errno) => State::Unsaid(*errno),
            _ => State::Told,
        };
        std::mem::take(&mut self.waiting)
    }

    /// Whether the origin may be changed, once the flash has failed: it knows that it has.
    pub(crate) const fn is_told(&self) -> bool {
        matches!(self.state, State::Told)
    }

    /// Why the origin must not be changed, if that is for good.
    pub(crate) const fn bars_origin(&self) -> Option<Errno> {
        match self.state {
            State::Unsaid(errno) => Some(errno),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_told_once_and_those_who_wait_go_on_with_whatever_is_answered() {
        for (outcome, told) in [(Outcome::Done, true), (Outcome::Failed(Errno::IO), false)] {
            let mut failed = PoolFailed::default();
            assert!(failed.begins_telling() && !failed.begins_telling());
            failed.wait(OpId(1));
            assert!(!failed.is_told() && failed.bars_origin().is_none());
            assert_eq!(failed.answered(&outcome), [OpId(1)]);
            assert_eq!((failed.is_told(), failed.bars_origin().is_none()), (told, told));
            assert!(!failed.begins_telling());
        }
    }
}
