//! The log on flash. Pure: it says what to write and is told what came of it.
//!
//! Invariants:
//! - **One order.** Every entry has a sequence; replay is by sequence. Entries of the host stream
//!   form a chain of batches, so that a missing one is seen and nothing behind it counts.
//! - **Durable means durable.** A sync is asked of the device only once every write it is to
//!   cover has completed, and counts for nothing that was written later.
//! - **No segment is reused while anything durable needs it**: not before the entries that
//!   emptied it are durable, not while the checkpoint that counts would replay it or points into
//!   it, not while a read of it is under way ([`Segments`]).
//! - Unsynced bytes stay in memory until they are durable, and are read from there.

mod batches;
mod buffers;
mod checkpoint;
mod flash_read;
mod log;
mod mutation;
mod open;
mod scan;
mod segments;
mod tail;

pub use batches::{Walk, read_footer, walk_segment};
pub use buffers::Buffers;
pub use checkpoint::{Checkpoint, read_checkpoint};
pub use flash_read::{FlashRead, ScanError};
pub use log::{DataRecord, Log, LogIo, LogStart, Placed, PlacedPacked, WriteId};
pub use mutation::Mutation;
pub use scan::{Scanned, scan};
pub use segments::{Segment, Segments};
pub use tail::TailEntry;
