//! The places of a server's connections.
//!
//! Who has not said yet who it is gets one of a few places, for a few seconds; when they are all taken, the oldest gives
//! way. Who said hello has a place of its own kind. So strangers that say nothing keep no owner out.
//!
//! Invariant: connections, and threads for them, are bounded.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::channel::Socket;

/// The most connections that have not said hello.
pub(crate) const GUESTS_MAX: usize = 16;

/// The most that have.
pub(crate) const OWNERS_MAX: usize = 64;

/// The most threads: a connection that gave way needs a moment to end.
const THREADS_MAX: usize = OWNERS_MAX + 2 * GUESTS_MAX;

/// How long a connection may take to say hello, with all that TLS needs before it.
const HELLO: Duration = Duration::from_secs(5);

/// How long a newcomer waits for a thread to end.
const PATIENCE: Duration = Duration::from_secs(1);

/// All places.
#[derive(Default)]
pub(crate) struct Places {
    taken: Mutex<Taken>,
    freed: Condvar,
}

#[derive(Default)]
struct Taken {
    /// The oldest first.
    guests: VecDeque<(u64, Instant, Socket)>,
    owners: HashMap<u64, Socket>,
    threads: usize,
    next: u64,
    closed: bool,
}

/// The place of a connection, as long as it lives.
pub(crate) struct Place {
    places: Arc<Places>,
    id: u64,
}

impl Places {
    /// A place for a connection that has just come.
    pub(crate) fn arrive(self: &Arc<Self>, socket: &Socket) -> io::Result<Place> {
        let again = socket.try_clone()?;
        let mut taken = self.taken();
        while taken.guests.len() >= GUESTS_MAX
            && let Some((_, _, oldest)) = taken.guests.pop_front()
        {
            oldest.end();
        }
        let wait = |taken: &mut Taken| taken.threads >= THREADS_MAX;
        let waited = self.freed.wait_timeout_while(taken, PATIENCE, wait);
        let (mut taken, full) = waited.unwrap_or_else(PoisonError::into_inner);
        if full.timed_out() || taken.closed {
            return Err(io::Error::other("too many connections: one is refused"));
        }
        let id = taken.next;
        taken.next += 1;
        taken.threads += 1;
        taken.guests.push_back((id, Instant::now(), again));
        Ok(Place { places: self.clone(), id })
    }

    /// Ends the connections that take too long to say hello. Whether some are left that may.
    pub(crate) fn sweep(&self) -> bool {
        let mut taken = self.taken();
        while taken.guests.front().is_some_and(|(_, since, _)| since.elapsed() >= HELLO)
            && let Some((_, _, late)) = taken.guests.pop_front()
        {
            late.end();
        }
        !taken.guests.is_empty()
    }

    /// Ends all connections, and waits until their threads are done. None comes after that.
    pub(crate) fn close(&self) {
        let mut taken = self.taken();
        taken.closed = true;
        taken.guests.iter().map(|(_, _, socket)| socket).chain(taken.owners.values()).for_each(Socket::end);
        let done = self.freed.wait_while(taken, |taken| taken.threads > 0);
        drop(done.unwrap_or_else(PoisonError::into_inner));
    }

    /// Whether all connections end.
    pub(crate) fn is_closed(&self) -> bool {
        self.taken().closed
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        // Each change is one step.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// The connection has said hello. False if it gave way before, or there are too many owners.
    pub(crate) fn said_hello(&self) -> bool {
        let mut taken = self.places.taken();
        let Some(at) = taken.guests.iter().position(|(id, _, _)| *id == self.id) else { return false };
        if taken.closed || taken.owners.len() >= OWNERS_MAX {
            return false;
        }
        if let Some((id, _, socket)) = taken.guests.remove(at) {
            taken.owners.insert(id, socket);
        }
        true
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        taken.guests.retain(|(id, _, _)| *id != self.id);
        taken.owners.remove(&self.id);
        taken.threads -= 1;
        self.places.freed.notify_all();
    }
}
