//! The examination of a pool that is not in use: `headpond check`.
//!
//! Invariants:
//! - It only reads: there is nothing here that could write.
//! - The verdict on the whole is recovery's own, so that what is called sound mounts, and what a mount
//!   would refuse is called refused. What is examined beyond that says where damage is and what it costs.
//! - It ends, never panics and takes bounded memory, whatever the bytes: the map's own, and a few MiB.

mod areas;
mod blocks;
mod examine;
mod report;
mod segments;
mod settings;
mod superblocks;

pub use examine::examine;
pub use headpond_engine::RecoverError;
pub use report::{
    Area, Blocks, Conclusion, DirtyObject, Finding, Findings, Pool, Progress, Report, SegmentCounts, Severity,
    SlotReport,
};
