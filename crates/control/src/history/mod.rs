//! What a mount was like in the last week: rows of numbers and events, in memory and in the pool.
//!
//! The pool has 256 KiB for it (`format/history.rs`). A thread looks at the counters every 10 seconds, and writes the
//! two or three blocks that changed once a minute. Invariants:
//! - Nothing here is on the path of a request, and nothing waits for a disk but that thread and the mount's end.
//! - A write is not synced: it costs the flash no flush of its cache. A crash loses the last minute or two.
//! - Trouble with the area never refuses a start or ends a mount: the history is then in memory only.
//!
//! Uses `devices`, `process` and `wording`.

mod event;
mod look;
mod recorder;

pub(crate) use event::EventKind;
pub(crate) use look::{COLUMNS, Look};
pub(crate) use recorder::{History, KeptWhere, Pace};
