//! Renames under way. A lookup that does not find its file waits for these before it reports the file as missing.
//!
//! Invariant: a lookup waits only for the renames that began before it.

use std::collections::BTreeSet;

use crate::wait::Watched;

/// The renames under way of a mount.
#[derive(Debug, Default)]
pub(crate) struct DirectoryMoves {
    state: Watched<State>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    under_way: BTreeSet<u64>,
}

/// A rename, until it is dropped. Its holder must not ask for a path: that may wait for this rename.
#[must_use]
pub(crate) struct Move<'a> {
    moves: &'a DirectoryMoves,
    number: u64,
}

impl DirectoryMoves {
    /// Begins a rename.
    pub(crate) fn begin(&self) -> Move<'_> {
        let number = self.state.change(|state| {
            let number = state.next;
            state.next += 1;
            state.under_way.insert(number);
            number
        });
        Move { moves: self, number }
    }

    /// Waits until the renames that have begun end.
    pub(crate) async fn ended(&self) {
        let before = self.state.see(|state| state.next);
        let over = |state: &mut State| state.under_way.first().is_none_or(|first| *first >= before).then_some(());
        self.state.until(over).await;
    }
}

impl Drop for Move<'_> {
    fn drop(&mut self) {
        self.moves.state.change(|state| state.under_way.remove(&self.number));
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    #[test]
    fn who_waits_waits_for_those_that_have_begun_and_for_no_others() {
        let moves = DirectoryMoves::default();
        let [first, second] = [(); 2].map(|()| moves.begin());
        let mut waiting = pin!(moves.ended());
        let mut context = Context::from_waker(Waker::noop());
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        let later = moves.begin();
        drop(second);
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        drop(first);
        assert!(waiting.as_mut().poll(&mut context).is_ready());
        drop(later);
    }
}
