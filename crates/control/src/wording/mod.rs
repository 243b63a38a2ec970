//! How amounts, times and long lists read, the same in refusals, markers, status and settings.
//!
//! Keeps true: what is shown is for people, and nothing is decided by it. Uses nothing of this crate.

mod a_few;
mod amount;
pub(crate) mod clock;
mod size;

pub(crate) use a_few::AFew;
pub(crate) use amount::Amount;
pub use size::Size;
