//! How another thread ends a reactor's wait. It costs no system call while the owner is awake.
//!
//! Invariant: a [`Waker::wake`] is never lost. One word says whether the owner is awake, asleep, or rung for. The
//! owner may only sleep from *awake*. A ring before that makes it *rung*, and the next wait does not sleep. A thread
//! puts its message in place before it rings, and the owner looks for messages after each wait. So it finds the
//! message.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};

const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;
const RUNG: u32 = 2;

/// Ends the wait of one reactor. Cheap to clone.
#[derive(Clone)]
pub struct Waker {
    shared: Arc<Shared>,
}

struct Shared {
    state: AtomicU32,
    bell: Bell,
}

/// What wakes the owner.
enum Bell {
    /// A descriptor that a ring can watch.
    Event(OwnedFd),
    /// A condition variable.
    Park(Mutex<()>, Condvar),
}

impl Waker {
    /// Makes the owner's wait return; if it does not wait, the next one. A system call only if the owner is asleep and
    /// has not been rung for.
    pub fn wake(&self) {
        if self.shared.state.swap(RUNG, Ordering::SeqCst) != ASLEEP {
            return;
        }
        match &self.shared.bell {
            Bell::Event(event) => {
                // Cannot fail: the counter would have to reach 2^64 - 1.
                let _ = rustix::io::write(event, &1u64.to_ne_bytes());
            }
            Bell::Park(lock, condvar) => {
                drop(lock.lock().unwrap_or_else(PoisonError::into_inner));
                condvar.notify_one();
            }
        }
    }

    /// A waker whose owner sleeps in [`Waker::park`].
    pub(crate) fn parking() -> Self {
        Self::with(Bell::Park(Mutex::new(()), Condvar::new()))
    }

    /// A waker whose owner watches an eventfd.
    pub(crate) fn eventful() -> io::Result<Self> {
        Ok(Self::with(Bell::Event(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)))
    }

    fn with(bell: Bell) -> Self {
        Self { shared: Arc::new(Shared { state: AtomicU32::new(AWAKE), bell }) }
    }

    /// The eventfd to watch. Never read: it only counts up, and each step is an edge.
    pub(crate) fn event(&self) -> Option<BorrowedFd<'_>> {
        use std::os::fd::AsFd;
        match &self.shared.bell {
            Bell::Event(event) => Some(event.as_fd()),
            Bell::Park(..) => None,
        }
    }

    /// For the owner: true if it may sleep now. False if there was a ring; then the ring is cleared.
    pub(crate) fn doze(&self) -> bool {
        let dozing = self.shared.state.compare_exchange(AWAKE, ASLEEP, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        if !dozing {
            self.rise();
        }
        dozing
    }

    /// For the owner: it is awake again, and earlier rings are cleared.
    pub(crate) fn rise(&self) {
        self.shared.state.swap(AWAKE, Ordering::SeqCst);
    }

    /// For the owner, after [`Waker::doze`] returned true: sleeps until a ring or the timeout.
    pub(crate) fn park(&self, timeout: Option<Duration>) {
        let Bell::Park(lock, condvar) = &self.shared.bell else { return };
        let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
        while self.shared.state.load(Ordering::SeqCst) == ASLEEP {
            let Some(until) = until else {
                guard = condvar.wait(guard).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            guard = condvar.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl std::fmt::Debug for Waker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Waker")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_before_the_nap_prevents_it() {
        let waker = Waker::parking();
        waker.wake();
        assert!(!waker.doze());
        assert!(waker.doze());
        waker.rise();
    }

    #[test]
    fn a_ring_from_another_thread_ends_the_nap() {
        let waker = Waker::parking();
        assert!(waker.doze());
        let other = waker.clone();
        let thread = std::thread::spawn(move || other.wake());
        waker.park(None);
        waker.rise();
        thread.join().unwrap();
    }
}
