//! Traces of block requests: reading them, and replaying policies over them.
//!
//! Invariant: the policies are those of `headpond-policy`, called as an engine calls them; only the
//! blocks are made up. Nothing but the trace is read.

mod chart;
mod destage;
mod formats;
mod load;
mod replay;
mod request;
mod sizes;
mod unpack;

pub use chart::{Curve, chart};
pub use destage::{Destage, destage};
pub use formats::Format;
pub use load::{Load, Options, Reference, read_requests};
pub use replay::{Outcome, replay};
pub use request::{Extent, Request, TraceError, Unit};
pub use sizes::CacheSize;
