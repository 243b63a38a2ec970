//! The examination of a pool that is not in use: `headpond check`.
//!
//! Invariants:
//! - It only reads: no code here can write.
//! - The verdict is recovery's own. So a pool called sound mounts, and a pool that a mount would refuse is called
//!   refused. The rest of the examination says where damage is and what it costs.
//! - Whatever the bytes, it ends, never panics, and takes bounded memory: that of the map, and a few MiB.

mod areas;
mod blocks;
mod examine;
mod report;
mod segments;
mod settings;
mod superblocks;
mod whole;

pub use examine::{examine, examine_members};
pub use headpond_engine::{Device, RecoverError};
pub use report::{
    Area, Blocks, Conclusion, DirtyObject, Finding, Findings, Pool, Progress, Report, SegmentCounts, Severity,
    SlotReport,
};
