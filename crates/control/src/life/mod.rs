//! A pool from its opening to its end, and the mount that is its door.
//!
//! Keeps true: a start that is refused changes nothing, and an end leaves an origin that is complete, or a marker that
//! says what is missing. Uses everything else of this crate; nothing else uses it.

mod ending;
mod last_daemon;
mod pool;
mod running;

pub use ending::Ended;
pub use running::Running;
