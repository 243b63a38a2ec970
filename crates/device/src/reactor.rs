//! Drives the disks of a pool, and watches its owner's descriptors.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use headpond_base::{Errno, MemberId, Result};

use crate::{Completion, DiskOp, Flash, Waker};

/// The most descriptors of one reactor.
pub const WATCHES_MAX: usize = 64;

/// Names a watch on a descriptor. A reactor never reuses a name, so a late report for an ended watch never names
/// another.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WatchToken(pub(crate) u64);

/// Drives disks, and waits for them and for descriptors at once. One thread owns and drives it.
pub trait Reactor: Send {
    /// Usable bytes of a disk, a multiple of [`BLOCK`](headpond_base::BLOCK); zero if the reactor has no such disk.
    fn bytes(&self, disk: MemberId) -> u64;

    /// Drives one disk more, under a name that it has had for no other disk.
    ///
    /// # Errors
    /// [`Errno::EXIST`] if it has a disk of that name, [`Errno::OPNOTSUPP`] if its disks are no flash, and what the
    /// system says if it lacks threads. The flash is closed then.
    fn add(&mut self, _disk: MemberId, _flash: Flash) -> Result<()> {
        Err(Errno::OPNOTSUPP)
    }

    /// Lets a disk go. All its operations under way end with [`Errno::NXIO`], also those that the kernel never answers.
    /// The flash is closed once the kernel has let go of it, and stays locked until then. Does nothing if there is no
    /// such disk.
    fn remove(&mut self, disk: MemberId);

    /// Measures a disk whose file or device grew, and returns its size. From now on all of it can be used.
    ///
    /// # Errors
    /// [`Errno::NXIO`] if there is no such disk, and what the system says.
    fn measure(&mut self, disk: MemberId) -> Result<u64> {
        match self.bytes(disk) {
            0 => Err(Errno::NXIO),
            bytes => Ok(bytes),
        }
    }

    /// The backend, for people to read: `uring`, `psync`, `memory`.
    fn name(&self) -> &'static str;

    /// Takes an operation for a disk. It may start only with the next [`Reactor::wait`]. If the reactor has no such
    /// disk, the operation fails with [`Errno::NXIO`].
    fn submit(&mut self, disk: MemberId, op: DiskOp);

    /// Starts what was submitted, and appends what is done to `done`. If nothing is done, it waits for the first of:
    /// an operation done, a watched descriptor readable, a [`Waker::wake`] since the last return, `timeout` over. With
    /// a timeout of zero it never waits. It may return early with nothing done.
    ///
    /// # Errors
    /// Only when the reactor can no longer be driven. All operations under way are then lost, on every disk.
    fn wait(&mut self, done: &mut Vec<Completion>, timeout: Option<Duration>) -> io::Result<()>;

    /// If the disks have nothing to do but one submitted operation, and it costs less on this thread than by
    /// [`Reactor::wait`], carries it out and appends its end to `done`. For a sync that saves two hand-overs between
    /// threads. `writes`: a small write, too, which needs no other thread; that saves a sleep. The price: meanwhile this
    /// thread does nothing else. False, with nothing done, in every other case.
    fn carry_out_alone(&mut self, _writes: bool, _done: &mut Vec<Completion>) -> bool {
        false
    }

    /// With it another thread can end a wait.
    fn waker(&self) -> Waker;

    /// Watches a descriptor: from now on a wait also ends when the descriptor becomes readable, and
    /// [`Reactor::take_readable`] then returns its watch. It does so once for each change, so read until nothing is
    /// left. `None`, with the descriptor closed, if the reactor cannot watch or watches [`WATCHES_MAX`] already.
    fn watch(&mut self, _descriptor: OwnedFd) -> Option<WatchToken> {
        None
    }

    /// Ends a watch and closes its descriptor.
    fn unwatch(&mut self, _watch: WatchToken) {}

    /// A watch whose descriptor has become readable, or broken, since it was last returned. Each is returned once
    /// before any is returned again.
    fn take_readable(&mut self) -> Option<WatchToken> {
        None
    }
}

impl<R: Reactor + ?Sized> Reactor for Box<R> {
    fn bytes(&self, disk: MemberId) -> u64 {
        (**self).bytes(disk)
    }

    fn add(&mut self, disk: MemberId, flash: Flash) -> Result<()> {
        (**self).add(disk, flash)
    }

    fn remove(&mut self, disk: MemberId) {
        (**self).remove(disk);
    }

    fn measure(&mut self, disk: MemberId) -> Result<u64> {
        (**self).measure(disk)
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

    fn carry_out_alone(&mut self, writes: bool, done: &mut Vec<Completion>) -> bool {
        (**self).carry_out_alone(writes, done)
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

/// The end of an operation for a disk that does not exist.
pub(crate) fn no_such_disk(disk: MemberId, op: &DiskOp) -> Option<Completion> {
    op.failed(disk, Errno::NXIO)
}
