//! The log on flash. Pure: it says what to write, and takes the results.
//!
//! Invariants:
//! - **One order.** Every entry has a sequence, and replay follows it. Batches of the host stream form one chain over
//!   all segments. If one is missing, replay sees the gap and takes nothing behind it.
//! - **Durable means durable.** The log syncs the members only when every write that the sync must cover has completed.
//!   The sync does not count for later writes.
//! - **No segment is reused while anything durable needs it.** First, the entries that emptied it are durable. Second,
//!   the checkpoint in force neither replays it nor points into it. Third, no checkpoint under way points into it, and
//!   no read or write of it is under way ([`Segments`]).
//! - Unsynced bytes stay in memory until they are durable, and reads find them there.

mod batches;
mod buffers;
mod checkpoint;
mod copies;
mod cover;
mod flash_read;
mod health;
mod lenders;
mod lives;
mod log;
mod muster;
mod mutation;
mod open;
mod open_segments;
mod record;
mod rows;
mod scan;
mod second_tail;
mod segments;
mod sides;
mod start;
mod sync_rhythm;
mod tail;
mod writes;

pub use batches::{Walk, read_footer, walk_segment};
pub use buffers::Buffers;
pub use checkpoint::{Checkpoint, FoundObject, read_checkpoint};
pub use flash_read::{FlashRead, ScanError};
pub use lenders::Lenders;
pub use lives::FoundRow;
pub use log::{Log, MemberSpeed};
pub use muster::{Device, Present, heal_superblock, newest_superblock};
pub use mutation::Mutation;
pub use open_segments::FillPolicy;
pub use record::{DataRecord, Placed, PlacedPacked};
pub use rows::{ChosenRow, ReadFrom};
pub use scan::{Scanned, scan, scan_members};
pub use second_tail::{LastAcknowledged, LeftBehind, LeftError, LeftWrite, SecondTail, TailSlots, left_by};
pub use segments::rows::RowId;
pub use segments::{Segment, Segments};
pub use sides::{CommitSide, Durability};
pub use start::{LogIo, LogStart, WriteId};
pub use tail::TailEntry;
