//! Flash devices: disks, the reactor that drives them, and layers that can be put on any disk.
//!
//! | file | what it is |
//! | --- | --- |
//! | [`flash`](Flash) | a flash file or block device: opened, locked, created, read while starting |
//! | [`op`](Op) | what a disk is asked for, and how it ends |
//! | `disk` | a flash as a reactor has it: its name, its size, its trims |
//! | [`reactor`](Reactor) | drives the disks of a pool, and watches descriptors of its owner |
//! | `uring` | a reactor: one io_uring for all disks and descriptors; the fast way |
//! | `psync` | a reactor: a few threads with pread and pwrite for all disks, where io_uring is refused |
//! | `memory` | a reactor whose disks are memory, for tests |
//! | `faults` | a layer on one disk: unsynced writes are lost, chosen operations fail, all are slow |
//! | `fault_words` | such a layer's plan as it is written on a command line |
//!
//! # Contract of every disk
//! - Operations under way at the same time have no order among each other. A caller that wants
//!   one waits for the first to be done before it submits the second.
//! - A write that is done can be read, and is not durable. A sync makes all writes to the same disk durable that
//!   were done when it was submitted. It says nothing of other disks.
//! - Every operation but [`Op::Trim`] ends with exactly one [`Done`], also when the disk fails.
//! - Offsets, lengths and the memory of writes are multiples of [`BLOCK`](headpond_base::BLOCK); others are refused with
//!   [`Errno::INVAL`](headpond_base::Errno::INVAL), and so is what goes beyond the end. Nothing is copied to mend it:
//!   the price would be paid unseen on each request.
//! - Short reads and writes are continued inside. What cannot be completed is an error.
//! - The number of operations under way is the caller's to bound; a reactor keeps what exceeds its
//!   own depth in a queue.
//!
//! # Contract of every reactor
//! - A disk is named by the [`MemberId`](headpond_base::MemberId) that it was given with, in each operation and in its
//!   end. Tags need to differ on one disk only.
//! - Disks do not wait for each other: one that fails, or never answers, keeps no other from working.
//! - One wait is for all: whatever is done on any disk, whatever becomes readable, whoever wakes.
//! - Descriptors are told apart by their [`Watch`]. Those that are readable at once are told of in turn: none is
//!   told of twice before another is told of.
//! - A reactor that cannot watch says so when it is asked to: `psync` and `memory` watch nothing.
//!
//! What the split costs with one disk and one descriptor: looking at lists of one. There is no further system call,
//! hand-over or allocation.

mod disk;
mod fault_words;
mod faults;
mod flash;
mod flash_error;
mod memory;
mod op;
mod open;
mod psync;
mod reactor;
mod trim;
mod uring;
mod waker;

pub use faults::{Fault, FaultHandle, FaultPlan, Faults, OpKind, Withhold};
pub use flash::{Fill, Flash, FlashKind};
pub use flash_error::FlashError;
pub use memory::{Memory, MemoryImage};
pub use op::{Done, End, Op, Tag};
pub use open::{Backend, start_reactor};
pub use psync::Psync;
pub use reactor::{Reactor, WATCHES_MAX, Watch};
pub use trim::TrimPolicy;
pub use uring::Uring;
pub use waker::Waker;
