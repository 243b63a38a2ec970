//! Waits for descriptors and for the waker without a ring: an epoll, where io_uring is refused.
//!
//! Invariants:
//! - The kernel reports each change of a descriptor once (edges), so one that is not read until empty does not keep the
//!   owner awake.
//! - A watch that ended is taken out of the epoll before its descriptor is closed: its duplicates may stay open.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{Timespec, epoll};

use crate::reactor::WATCHES_MAX;
use crate::{Waker, WatchToken};

/// Names the waker's eventfd among events. The others are watches.
const WAKER: u64 = 0;

/// The longest wait of one call, which counts in milliseconds. The owner may wake up early.
const WAIT_MAX: Duration = Duration::from_secs(3600);

/// Events of one call. The next call brings the others.
const EVENTS: usize = 16;

/// What the owner of a reactor watches.
pub(crate) struct Watches {
    epoll: OwnedFd,
    watched: Vec<Watched>,
    /// Given to the last watch. None is used again.
    last: u64,
    /// How many are readable.
    readable: usize,
    /// Where the next search for a readable one begins.
    look_from: usize,
}

struct Watched {
    descriptor: OwnedFd,
    number: u64,
    readable: bool,
}

impl Watches {
    /// Watches a waker that has an eventfd.
    pub(crate) fn of(waker: &Waker) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        if let Some(event) = waker.event() {
            epoll::add(&epoll, event, epoll::EventData::new_u64(WAKER), epoll::EventFlags::IN | epoll::EventFlags::ET)?;
        }
        Ok(Self { epoll, watched: Vec::new(), last: WAKER, readable: 0, look_from: 0 })
    }

    /// Nothing is watched but the waker.
    pub(crate) fn is_empty(&self) -> bool {
        self.watched.is_empty()
    }

    /// There is a readable one that was not taken yet.
    pub(crate) fn has_readable(&self) -> bool {
        self.readable > 0
    }

    /// Waits until the waker rings, a descriptor becomes readable, or the time is over.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let timeout = timeout.map(|timeout| timeout.min(WAIT_MAX));
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let mut room = [MaybeUninit::uninit(); EVENTS];
        let events = match epoll::wait(&self.epoll, &mut room, timeout.as_ref()) {
            Ok((events, _)) => events,
            // A signal. The owner looks again.
            Err(rustix::io::Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        for event in events {
            let number = event.data.u64();
            if let Some(watched) = self.watched.iter_mut().find(|watched| watched.number == number) {
                self.readable += usize::from(!std::mem::replace(&mut watched.readable, true));
            }
        }
        Ok(())
    }

    /// As [`Reactor::watch`](crate::Reactor::watch).
    pub(crate) fn watch(&mut self, descriptor: OwnedFd) -> Option<WatchToken> {
        if self.watched.len() >= WATCHES_MAX {
            return None;
        }
        let (number, flags) = (self.last + 1, epoll::EventFlags::IN | epoll::EventFlags::ET);
        epoll::add(&self.epoll, &descriptor, epoll::EventData::new_u64(number), flags).ok()?;
        self.last = number;
        // Reported as readable: data may have come before the watch.
        self.watched.push(Watched { descriptor, number, readable: true });
        self.readable += 1;
        Some(WatchToken(number))
    }

    /// As [`Reactor::unwatch`](crate::Reactor::unwatch).
    pub(crate) fn unwatch(&mut self, watch: WatchToken) {
        let Some(place) = self.watched.iter().position(|watched| watched.number == watch.0) else { return };
        let watched = self.watched.swap_remove(place);
        self.readable -= usize::from(watched.readable);
        // It is there, so the kernel has no reason to refuse.
        let _ = epoll::delete(&self.epoll, &watched.descriptor);
    }

    /// As [`Reactor::take_readable`](crate::Reactor::take_readable).
    pub(crate) fn take_readable(&mut self) -> Option<WatchToken> {
        if self.readable == 0 {
            return None;
        }
        let count = self.watched.len();
        let place = (0..count).map(|step| (self.look_from + step) % count).find(|at| self.watched[*at].readable)?;
        self.watched[place].readable = false;
        self.readable -= 1;
        self.look_from = place + 1;
        Some(WatchToken(self.watched[place].number))
    }
}
