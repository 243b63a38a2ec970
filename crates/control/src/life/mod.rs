//! A pool from its opening to its end, and the mount that is its door.
//!
//! Keeps true: a refused start changes nothing, and an end leaves a complete origin, or a marker that says what is
//! missing. Uses everything else of this crate; nothing else uses it.

mod beat;
mod ending;
mod holding;
mod last_daemon;
mod pool;
mod running;
mod succession;

pub use ending::Ended;
pub use holding::hold_mount;
pub use running::Running;
pub use succession::{Succession, shared_layout};
