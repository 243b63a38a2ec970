//! A shard: one thread that owns an engine and the reactor of its pool's disks, and carries out the engine's effects;
//! a few threads for the origin's blocking calls; and the handle for the doors.
//!
//! ```text
//!  front doors ── Handle ──> mailbox ──┐            ┌──> disks (one reactor)
//!                                      ├──> shard ──┤
//!  origin threads ── results ──────────┘  (engine)  └──> origin lanes (threads)
//! ```
//!
//! What single ownership buys: one thing happens at a time, so the engine needs no lock and its order is a fact. What
//! it costs: all work on the shard's thread delays everything else, so nothing there may block. Replies run there and
//! must be short.
//!
//! If a door's requests come from a descriptor, the shard's own thread can serve it. It then waits for the door
//! together with the flash: see [`Door`](headpond_door::Door). That spares the hand-over through the mailbox.
//!
//! `ARCHITECTURE.md` says what a request costs, and `docs/benchmarks.md` what that adds up to.

mod alone;
mod beneath;
mod birth;
mod btrfs_quota;
mod claim;
mod clock;
mod core;
mod crowd;
mod descriptors;
mod directories;
mod doors;
mod file_origin;
mod file_space;
mod flash_reader;
mod handle;
mod histogram;
mod hold;
mod lanes;
mod limits;
mod listeners;
mod looking;
mod mailbox;
mod on_behalf;
mod operation;
mod origin;
mod processors;
mod recorder;
mod refused;
mod removed;
mod requests;
mod stats;
mod term;
mod turn;
mod write_out;

pub use beneath::{Mounts, open_beneath, path_of, reopen};
pub use birth::birth_times_last;
pub use claim::{Gate, LookResult, OriginClaim};
pub use clock::now;
pub use core::Core;
pub use descriptors::{Budget, LeavingDescriptor};
pub use directories::Syncs;
pub use file_origin::FileOrigin;
pub use file_space::SpaceKind;
pub use flash_reader::FlashReader;
pub use handle::{Handle, Shard, StopError};
pub use histogram::{Histogram, HistogramSummary};
pub use hold::Hold;
pub use limits::Limits;
pub use on_behalf::as_user;
pub use operation::Operation;
pub use origin::{Origin, Remains, Reopen};
pub use recorder::Recorder;
pub use removed::RemovedFile;
pub use stats::{DoorStats, Latencies, ShardStats};
pub use term::{Term, TermState, boot_clock};
