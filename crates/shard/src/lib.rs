//! A shard: one thread that owns an engine and a flash device, and carries out what the engine
//! asks for; a few threads for the origin's blocking calls; and the handle for the front doors.
//!
//! ```text
//!  front doors ── Handle ──> mailbox ──┐            ┌──> flash device (one io_uring)
//!                                      ├──> shard ──┤
//!  origin threads ── results ──────────┘  (engine)  └──> origin lanes (threads)
//! ```
//!
//! What single ownership buys: one thing happens at a time, so there is no lock around the engine
//! and its order is a fact. What it costs: whatever runs on the shard's thread delays everything
//! else, so nothing there may block. Replies run there and must be short.
//!
//! # The cost of a 4 KiB read that hits
//! Counted from [`Handle::submit`] to the reply, for one request alone; what is shared when more
//! are under way is marked.
//!
//! | what | how many |
//! | --- | --- |
//! | system calls | 1 `io_uring_enter` that submits and waits (shared), 1 eventfd write if the shard sleeps (shared) |
//! | wake-ups | 2: the shard for the request, and for the flash (both shared); the reply runs on the shard |
//! | copies | none: the buffer that the flash wrote is the one in the reply |
//! | locks | 1 on the sender; of the shard, 3 in each turn, never waited for (shared) |
//! | allocations | the caller's closure; the buffer and its count, in the device; the engine's own. Slots, queues and vectors here are reused |
//!
//! With many under way one turn serves several: at depth 32 there is about one turn, and so one system call,
//! for every two answers. `examples/read_hits.rs` measures it against the bare device.

mod clock;
mod core;
mod disk;
mod elevator;
mod file_origin;
mod flash_reader;
mod handle;
mod histogram;
mod lanes;
mod layout;
mod limits;
mod mailbox;
mod model_disk;
mod origin;
mod requests;
mod stats;
mod turn;

pub use clock::now;
pub use core::Core;
pub use disk::{Access, DiskModel, Head, Network, Spindle};
pub use elevator::Elevator;
pub use file_origin::FileOrigin;
pub use flash_reader::FlashReader;
pub use handle::{Handle, Operation, Shard, StopError};
pub use histogram::{Histogram, Summary};
pub use limits::Limits;
pub use model_disk::{DiskCounts, ModelDisk};
pub use origin::{Origin, Remains};
pub use stats::{Latencies, ShardStats};
