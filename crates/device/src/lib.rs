//! Flash devices: one trait, a file for each way to carry out its operations, and layers that
//! can be put on any of them.
//!
//! | file | what it is |
//! | --- | --- |
//! | [`flash`](Flash) | a flash file or block device: opened, locked, created, read while starting |
//! | `uring` | operations through one io_uring: the fast way |
//! | `psync` | operations by a few threads with pread and pwrite: where io_uring is refused |
//! | `memory` | a device that is memory, for tests |
//! | `faults` | a layer: unsynced writes are lost, chosen operations fail, all are slow |
//! | `fault_words` | such a layer's plan as it is written on a command line |
//!
//! # Contract of every device
//! - Operations under way at the same time have no order among each other. A caller that wants
//!   one waits for the first to be done before it submits the second.
//! - A write that is done can be read, and is not durable. A sync makes all writes durable that
//!   were done when it was submitted.
//! - Every operation but [`Op::Trim`] ends with exactly one [`Done`], also when the device fails.
//! - Offsets, lengths and the memory of writes are multiples of [`BLOCK`]; others are refused with
//!   [`Errno::INVAL`], and so is what goes beyond the end. Nothing is copied to mend it: the price
//!   would be paid unseen on each request.
//! - Short reads and writes are continued inside. What cannot be completed is an error.
//! - The number of operations under way is the caller's to bound; a device keeps what exceeds its
//!   own depth in a queue.

mod fault_words;
mod faults;
mod flash;
mod flash_error;
mod memory;
mod open;
mod psync;
mod trim;
mod uring;
mod waker;

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use headpond_base::{BLOCK, BLOCK_U64, Buf, Errno, Result};

pub use faults::{Fault, FaultHandle, FaultPlan, Faults, OpKind, Withhold};
pub use flash::{Fill, Flash, FlashKind};
pub use flash_error::FlashError;
pub use memory::{Memory, MemoryImage};
pub use open::{Backend, open_flash, start_device};
pub use psync::Psync;
pub use trim::TrimPolicy;
pub use uring::Uring;
pub use waker::Waker;

/// Names an operation until it is done. Chosen by the caller, unique among those under way.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Tag(pub u64);

/// Something to be done by a device. Offsets are bytes from the device's start.
#[derive(Clone, Debug)]
pub enum Op {
    /// Read exactly `len` bytes.
    Read {
        /// Names it.
        tag: Tag,
        /// Where, a multiple of the block.
        offset: u64,
        /// How many bytes, a multiple of the block.
        len: usize,
    },
    /// Write all of `data`.
    Write {
        /// Names it.
        tag: Tag,
        /// Where, a multiple of the block.
        offset: u64,
        /// What: a multiple of the block, and block-aligned in memory.
        data: Buf,
    },
    /// Make every write that is done by now durable.
    Sync {
        /// Names it.
        tag: Tag,
    },
    /// These bytes are not needed any more. A hint, never answered; the device may drop it. A write to the
    /// same bytes that is submitted later is safe from it. None may be under way.
    Trim {
        /// Where, a multiple of the block.
        offset: u64,
        /// How many bytes, a multiple of the block.
        len: u64,
    },
}

/// The end of an operation.
#[derive(Clone, Debug)]
pub enum Done {
    /// Of [`Op::Read`]: all bytes asked for, or an error.
    Read {
        /// Which operation.
        tag: Tag,
        /// The bytes.
        result: Result<Buf>,
    },
    /// Of [`Op::Write`]. After an error the bytes on the device are unknown.
    Write {
        /// Which operation.
        tag: Tag,
        /// Whether all of it was written.
        result: Result<()>,
    },
    /// Of [`Op::Sync`]. After an error nothing can be said of any write since the last good sync,
    /// and a later sync that succeeds does not change that.
    Sync {
        /// Which operation.
        tag: Tag,
        /// Whether it is durable.
        result: Result<()>,
    },
}

/// Where a pool's bytes are kept. Owned and driven by one thread.
pub trait Device: Send {
    /// Usable size in bytes, a multiple of [`BLOCK`].
    fn bytes(&self) -> u64;

    /// What carries the operations out, for people to read: `uring`, `psync`, `memory`.
    fn name(&self) -> &'static str;

    /// Takes an operation. It may start only with the next [`Device::wait`].
    fn submit(&mut self, op: Op);

    /// Starts what was submitted, and appends what is done to `done`. If nothing is, waits for
    /// the first of: something done, a [`Waker::wake`] since the last return, `timeout` over.
    /// With a timeout of zero it never waits. It may return early with nothing done.
    ///
    /// # Errors
    /// Only when the device as such can no longer be driven. What is under way is then lost.
    fn wait(&mut self, done: &mut Vec<Done>, timeout: Option<Duration>) -> io::Result<()>;

    /// Makes another thread able to end a wait.
    fn waker(&self) -> Waker;

    /// From now on a wait also ends when this descriptor becomes readable, as
    /// [`Device::take_readable`] then says; told at each change, so whoever reads it reads until there
    /// is nothing left. One descriptor at a time. False where the device has no means to wait for
    /// one: then it is not kept.
    fn watch(&mut self, _descriptor: OwnedFd) -> bool {
        false
    }

    /// Ends the watch and closes the descriptor that it was on.
    fn unwatch(&mut self) {}

    /// Whether the watched descriptor has become readable, or broken, since this was last asked.
    fn take_readable(&mut self) -> bool {
        false
    }
}

impl<D: Device + ?Sized> Device for Box<D> {
    fn bytes(&self) -> u64 {
        (**self).bytes()
    }

    fn name(&self) -> &'static str {
        (**self).name()
    }

    fn submit(&mut self, op: Op) {
        (**self).submit(op);
    }

    fn wait(&mut self, done: &mut Vec<Done>, timeout: Option<Duration>) -> io::Result<()> {
        (**self).wait(done, timeout)
    }

    fn waker(&self) -> Waker {
        (**self).waker()
    }

    fn watch(&mut self, descriptor: OwnedFd) -> bool {
        (**self).watch(descriptor)
    }

    fn unwatch(&mut self) {
        (**self).unwatch();
    }

    fn take_readable(&mut self) -> bool {
        (**self).take_readable()
    }
}

impl Op {
    /// Whether a device of `bytes` may carry this out: aligned, not empty, and inside.
    ///
    /// # Errors
    /// [`Errno::INVAL`] otherwise.
    pub fn check(&self, bytes: u64) -> Result<()> {
        let (offset, len, aligned_memory) = match self {
            Self::Read { offset, len, .. } => (*offset, *len as u64, true),
            Self::Write { offset, data, .. } => {
                (*offset, data.len() as u64, (data.as_ptr() as usize).is_multiple_of(BLOCK))
            }
            Self::Trim { offset, len } => (*offset, *len, true),
            Self::Sync { .. } => return Ok(()),
        };
        let aligned = offset.is_multiple_of(BLOCK_U64) && len.is_multiple_of(BLOCK_U64) && aligned_memory;
        let inside = len > 0 && offset.checked_add(len).is_some_and(|end| end <= bytes);
        if aligned && inside { Ok(()) } else { Err(Errno::INVAL) }
    }

    /// The end of this operation with an error; none for a trim, which has no end.
    #[must_use]
    pub fn failed(&self, errno: Errno) -> Option<Done> {
        match *self {
            Self::Read { tag, .. } => Some(Done::Read { tag, result: Err(errno) }),
            Self::Write { tag, .. } => Some(Done::Write { tag, result: Err(errno) }),
            Self::Sync { tag } => Some(Done::Sync { tag, result: Err(errno) }),
            Self::Trim { .. } => None,
        }
    }
}

impl Done {
    /// Which operation ended.
    #[must_use]
    pub const fn tag(&self) -> Tag {
        match self {
            Self::Read { tag, .. } | Self::Write { tag, .. } | Self::Sync { tag, .. } => *tag,
        }
    }
}
