//! What drives the disks of a pool and watches its owner's descriptors.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use headpond_base::{Errno, MemberId};

use crate::{Completion, DiskOp, Waker};

/// The most descriptors that one reactor watches.
pub const WATCHES_MAX: usize = 64;

/// Names a watch on a descriptor. A reactor never reuses a name, so a late report for an ended watch cannot
/// pass for another's.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WatchToken(pub(crate) u64);

/// Drives disks, and waits for them and for descriptors at once. Owned and driven by one thread.
pub trait Reactor: Send {
    /// Usable size of a disk in bytes, a multiple of [`BLOCK`](headpond_base::BLOCK); zero of one that this does not have.
    fn bytes(&self, disk: MemberId) -> u64;

    /// What carries the operations out, for people to read: `uring`, `psync`, `memory`.
    fn name(&self) -> &'static str;

    /// Takes an operation for a disk. It may start only with the next [`Reactor::wait`]. One for a disk that
    /// this does not have fails with [`Errno::NXIO`].
    fn submit(&mut self, disk: MemberId, op: DiskOp);

    /// Starts what was submitted, and appends what is done to `done`. If nothing is, waits for
    /// the first of: something done, a watched descriptor readable, a [`Waker::wake`] since the last return,
    /// `timeout` over. With a timeout of zero it never waits. It may return early with nothing done.
    ///
    /// # Errors
    /// Only when the reactor as such can no longer be driven. What is under way, on any disk, is then lost.
    fn wait(&mut self, done: &mut Vec<Completion>, timeout: Option<Duration>) -> io::Result<()>;

    /// Makes another thread able to end a wait.
    fn waker(&self) -> Waker;

    /// From now on a wait also ends when this descriptor becomes readable, as
    /// [`Reactor::take_readable`] then says; told at each change, so whoever reads it reads until there
    /// is nothing left. `None`, and it is not kept, where there is no means to wait for one, or with
    /// [`WATCHES_MAX`] of them.
    fn watch(&mut self, _descriptor: OwnedFd) -> Option<WatchToken> {
        None
    }

    /// Ends a watch and closes the descriptor that it was on.
    fn unwatch(&mut self, _watch: WatchToken) {}

    /// A watch whose descriptor has become readable, or broken, since this was last said of it. Each is said once
    /// before any is said again.
    fn take_readable(&mut self) -> Option<WatchToken> {
        None
    }
}

impl<R: Reactor + ?Sized> Reactor for Box<R> {
    fn bytes(&self, disk: MemberId) -> u64 {
        (**self).bytes(disk)
    }

    fn name(&self) -> &'static str {
        (**self).name()
    }

    fn submit(&mut self, disk: MemberId, op: DiskOp) {
        (**self).submit(disk, op);
    }

    fn wait(&mut self, done: &mut Vec<Completion>, timeout: Option<Duration>) -> io::Result<()> {
        (**self).wait(done, timeout)
    }

    fn waker(&self) -> Waker {
        (**self).waker()
    }

    fn watch(&mut self, descriptor: OwnedFd) -> Option<WatchToken> {
        (**self).watch(descriptor)
    }

    fn unwatch(&mut self, watch: WatchToken) {
        (**self).unwatch(watch);
    }

    fn take_readable(&mut self) -> Option<WatchToken> {
        (**self).take_readable()
    }
}

/// How an operation for a disk that there is not ends.
pub(crate) fn no_such_disk(disk: MemberId, op: &DiskOp) -> Option<Completion> {
    op.failed(disk, Errno::NXIO)
}
