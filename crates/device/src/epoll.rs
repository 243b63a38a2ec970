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

use crate::watch_list::WatchList;
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
    list: WatchList,
    /// Given to the last watch. None is used again.
    last: u64,
}

impl Watches {
    /// Watches a waker that has an eventfd.
    pub(crate) fn of(waker: &Waker) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        if let Some(event) = waker.event() {
            epoll::add(&epoll, event, epoll::EventData::new_u64(WAKER), epoll::EventFlags::IN | epoll::EventFlags::ET)?;
        }
        Ok(Self { epoll, list: WatchList::default(), last: WAKER })
    }

    /// Nothing is watched but the waker.
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// There is a readable one that was not taken yet.
    pub(crate) fn has_readable(&self) -> bool {
        self.list.has_readable()
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
            self.list.became_readable(event.data.u64(), true);
        }
        Ok(())
    }

    /// As [`Reactor::watch`](crate::Reactor::watch).
    pub(crate) fn watch(&mut self, descriptor: OwnedFd) -> Option<WatchToken> {
        if self.list.is_full() {
            return None;
        }
        let (number, flags) = (self.last + 1, epoll::EventFlags::IN | epoll::EventFlags::ET);
        epoll::add(&self.epoll, &descriptor, epoll::EventData::new_u64(number), flags).ok()?;
        self.last = number;
        Some(self.list.add(descriptor, number, true))
    }

    /// As [`Reactor::unwatch`](crate::Reactor::unwatch).
    pub(crate) fn unwatch(&mut self, watch: WatchToken) {
        if let Some(watched) = self.list.remove(watch) {
            // It is there, so the kernel has no reason to refuse.
            let _ = epoll::delete(&self.epoll, &watched.descriptor);
        }
    }

    /// As [`Reactor::take_readable`](crate::Reactor::take_readable).
    pub(crate) fn take_readable(&mut self) -> Option<WatchToken> {
        self.list.take_readable()
    }
}
