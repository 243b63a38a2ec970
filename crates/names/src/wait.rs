//! Waiting for another operation's result; and, for threads, waiting for an operation.
//!
//! Invariants
//! - Each change of the state wakes all waiters, and each looks again.
//! - The lock is held during a look, and never during a wait.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

/// A state that operations wait for.
#[derive(Debug, Default)]
pub(crate) struct Watched<S> {
    now: Mutex<Now<S>>,
}

#[derive(Debug, Default)]
struct Now<S> {
    state: S,
    waiting: Vec<Waker>,
}

impl<S> Watched<S> {
    /// Looks at the state.
    pub(crate) fn see<R>(&self, see: impl FnOnce(&S) -> R) -> R {
        see(&self.locked().state)
    }

    /// Changes the state, and wakes the waiters.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut S) -> R) -> R {
        let mut now = self.locked();
        let result = change(&mut now.state);
        let waiting = std::mem::take(&mut now.waiting);
        // Not with the lock held: a woken waiter looks.
        drop(now);
        waiting.into_iter().for_each(Waker::wake);
        result
    }

    /// Waits until `ready` finds what it looks for. `ready` may change the state then, which wakes no waiter.
    pub(crate) async fn until<R>(&self, mut ready: impl FnMut(&mut S) -> Option<R>) -> R {
        poll_fn(|context| {
            let mut now = self.locked();
            if let Some(result) = ready(&mut now.state) {
                return Poll::Ready(result);
            }
            if !now.waiting.iter().any(|waker| waker.will_wake(context.waker())) {
                now.waiting.push(context.waker().clone());
            }
            Poll::Pending
        })
        .await
    }

    fn locked(&self) -> MutexGuard<'_, Now<S>> {
        // Each change ends before anything can panic.
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes a thread.
struct OfThread(Thread);

impl Wake for OfThread {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

thread_local! {
    static WAKER: Waker = Waker::from(Arc::new(OfThread(thread::current())));
}

/// Drives an operation to its end. The thread sleeps while the operation waits.
pub fn block_on<F: Future>(operation: F) -> F::Output {
    let mut operation = pin!(operation);
    let waker = WAKER.with(Waker::clone);
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(result) = operation.as_mut().poll(&mut context) {
            return result;
        }
        // If it was woken meanwhile, it does not sleep.
        thread::park();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_thread_sleeps_until_what_it_waits_for_is_so() {
        let number = Watched::<u32>::default();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| block_on(number.until(|number| (*number == 2).then_some("two"))));
            for _ in 0..2 {
                thread::sleep(Duration::from_millis(5));
                assert!(!waiting.is_finished());
                number.change(|number| *number += 1);
            }
            assert_eq!(waiting.join().unwrap(), "two");
        });
    }

    #[test]
    fn who_is_polled_often_waits_once() {
        let number = Watched::<u32>::default();
        let mut waiting = pin!(number.until(|number| (*number == 1).then_some(())));
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..10 {
            assert!(waiting.as_mut().poll(&mut context).is_pending());
        }
        assert_eq!(number.locked().waiting.len(), 1);
    }
}
