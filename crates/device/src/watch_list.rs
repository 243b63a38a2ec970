//! The descriptors that the owner of a reactor watches, and which of them are readable.
//!
//! Invariant: readable ones are reported in rotation, none twice before the others.

use std::os::fd::OwnedFd;

use crate::WatchToken;
use crate::reactor::WATCHES_MAX;

/// A watched descriptor.
pub(crate) struct WatchedDescriptor {
    pub(crate) descriptor: OwnedFd,
    pub(crate) number: u64,
    /// The kernel tells when it becomes readable.
    pub(crate) armed: bool,
    readable: bool,
}

/// All of them.
#[derive(Default)]
pub(crate) struct WatchList {
    watched: Vec<WatchedDescriptor>,
    /// How many are readable.
    readable: usize,
    /// Where the next search for a readable one begins.
    look_from: usize,
}

impl WatchList {
    pub(crate) fn is_empty(&self) -> bool {
        self.watched.is_empty()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.watched.len() >= WATCHES_MAX
    }

    /// There is a readable one that was not taken yet.
    pub(crate) fn has_readable(&self) -> bool {
        self.readable > 0
    }

    /// Adds one by a number that no other has. It counts as readable: data may have come before the watch.
    pub(crate) fn add(&mut self, descriptor: OwnedFd, number: u64, armed: bool) -> WatchToken {
        self.watched.push(WatchedDescriptor { descriptor, number, armed, readable: true });
        self.readable += 1;
        WatchToken(number)
    }

    /// Takes one out, if it is there.
    pub(crate) fn remove(&mut self, watch: WatchToken) -> Option<WatchedDescriptor> {
        let place = self.watched.iter().position(|watched| watched.number == watch.0)?;
        let watched = self.watched.swap_remove(place);
        self.readable -= usize::from(watched.readable);
        Some(watched)
    }

    /// One that the kernel does not watch, which counts as watched by it from now on.
    pub(crate) fn arm_next(&mut self) -> Option<&WatchedDescriptor> {
        let watched = self.watched.iter_mut().find(|watched| !watched.armed)?;
        watched.armed = true;
        Some(watched)
    }

    /// The kernel says that one is readable, and whether it goes on watching.
    pub(crate) fn became_readable(&mut self, number: u64, armed: bool) {
        if let Some(watched) = self.watched.iter_mut().find(|watched| watched.number == number) {
            watched.armed = armed;
            self.readable += usize::from(!std::mem::replace(&mut watched.readable, true));
        }
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
