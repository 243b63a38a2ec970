//! What is asked of a mount, as a trace.
//!
//! ```text
//! shard's thread ── Pusher ──> ring ── Puller ──> TraceEncoder ──> bytes ── TraceReader ──> requests
//! ```
//!
//! `docs/replay.md` draws the bytes. Invariants:
//! - The shard's thread never waits: a full ring drops a request and counts it.
//! - A trace has no names and no contents of files: an object is a number.
//! - A trace that was cut, or damaged from some place on, reads up to that place. Memory is bounded by a chunk,
//!   whatever the bytes say.

mod asked;
mod encoder;
mod layout;
mod reader;
mod ring;

pub use asked::{AskedKind, AskedRequest};
pub use encoder::TraceEncoder;
pub use layout::{CHUNK_HEAD_BYTES, TRACE_HEAD_BYTES, TRACE_MAGIC, TRACED_BYTES, TraceHead, WhyEnded};
pub use reader::{TraceEnd, TraceReader, TraceUnreadable};
pub use ring::{Pulled, Puller, Pusher, ring};
