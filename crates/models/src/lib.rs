//! Devices as formulas, for machines without them: disks, volumes, flash cards.
//!
//! Invariants:
//! - nothing here does I/O, reads a clock or starts a thread. Time is what the model says, and the same seed gives the
//!   same time;
//! - every preset is tested against the published figures that it stands for. The test names them.
//!
//! `headpond mount --model-disk` really waits as long as [`DiskModel`] says; [`closed_loop`] and [`flash::Card`] only
//! count.

mod closed_loop;
mod disk;
mod elevator;
pub mod flash;

pub use closed_loop::{LoopOutcome, Order, RandomReads, closed_loop};
pub use disk::{DiskAccess, DiskModel, Head, Network, Spindle};
pub use elevator::Elevator;
