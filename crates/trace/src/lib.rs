//! Traces of block requests: reading them, and replaying policies over them.
//!
//! Invariant: the policies are those of `headpond-policy`, called as an engine calls them. Only the blocks are made
//! up. It reads nothing but the trace.

mod chart;
mod curve;
mod destage;
mod formats;
mod load;
mod replay;
mod request;
mod sizes;
mod unpack;

pub use chart::{Curve, chart};
pub use curve::{FirstReads, ReplayedPool, SizePoint, first_reads, knee, size_point};
pub use destage::{ReplayedDestage, destage};
pub use formats::Format;
pub use load::{LoadOptions, LoadedTrace, Reference, read_requests};
pub use replay::{ReplayOutcome, replay};
pub use request::{Extent, TraceError, TraceFacts, TracedRequest, Unit};
pub use sizes::CacheSize;
