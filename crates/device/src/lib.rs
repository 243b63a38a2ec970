//! Flash devices: disks, the reactor that drives them, and layers that can be put on any disk.
//!
//! | file | what it is |
//! | --- | --- |
//! | [`flash`](Flash) | a flash file or block device: opened, locked, created, read while starting |
//! | [`op`](DiskOp) | what a disk is asked for, and how it ends |
//! | `watch_list` | the descriptors that an owner watches, and which are readable |
//! | `epoll` | waits for descriptors where there is no ring |
//! | `disk` | a flash as a reactor has it: its name, its size, its trims |
//! | [`reactor`](Reactor) | drives the disks of a pool, and watches descriptors of its owner |
//! | `uring` | a reactor: one io_uring for all disks and descriptors; the fast way |
//! | `psync` | a reactor: a few threads with pread and pwrite for all disks, where io_uring is refused |
//! | [`far_disk`](FarDisk) | a disk that lies elsewhere |
//! | `far` | such disks beside those of a reactor |
//! | `memory` | a reactor whose disks are memory, for tests |
//! | `faults` | a layer on one disk: unsynced writes are lost, chosen operations fail, all are slow |
//! | `fault_words` | a fault plan in words, for a command line |
//!
//! # Contract of every disk
//! - Operations under way at the same time have no order. A caller that needs one waits for the
//!   first to end before it submits the second.
//! - A completed write is readable, but not durable. A sync makes durable what its disk had completed when the sync
//!   was submitted. It does not cover other disks.
//! - Every operation but [`DiskOp::Trim`] ends with exactly one [`Completion`], also when the disk fails.
//! - Offsets, lengths and the memory of writes are multiples of [`BLOCK`](headpond_base::BLOCK). The disk refuses
//!   others with [`Errno::INVAL`](headpond_base::Errno::INVAL), and operations beyond its end, too. It does not copy to
//!   align: that would be a hidden cost of each request.
//! - A disk continues short reads and writes by itself. If it cannot, the operation fails.
//! - The caller bounds the number of operations under way; a reactor queues what exceeds its depth.
//!
//! # Contract of every reactor
//! - Each operation, and its end, names its disk by [`MemberId`](headpond_base::MemberId). Tags need to differ on one
//!   disk only.
//! - Disks do not wait for each other: a disk that fails, or never answers, stops no other.
//! - One wait covers everything: an operation that ends on any disk, a descriptor that becomes readable, a wake-up.
//! - A [`WatchToken`] names a descriptor. Readable descriptors are reported in rotation: the reactor reports none twice
//!   before it has reported the others.
//! - A reactor that cannot watch refuses to: `memory` watches nothing.
//!
//! Price with one disk and one descriptor: lists with one entry. There is no further system call, hand-over or
//! allocation.

mod disk;
mod epoll;
mod far;
mod far_disk;
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
mod watch_list;

pub use far_disk::{FarDisk, FarEnd};
pub use faults::{Fault, FaultHandle, FaultPlan, Faults, OpKind, Withhold};
pub use flash::{Fill, Flash, FlashKind};
pub use flash_error::FlashError;
pub use memory::{MemoryDisks, MemoryImage};
pub use op::{Completion, DiskOp, End, Tag};
pub use open::{Backend, probe_uring, start_reactor};
pub use psync::Psync;
pub use reactor::{Reactor, WATCHES_MAX, WatchToken};
pub use trim::{TrimPolicy, discard_now};
pub use uring::Uring;
pub use waker::Waker;
