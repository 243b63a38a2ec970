//! How amounts, times and long lists read: the same in refusals, markers, status and settings.
//!
//! Keeps true: this is text for people, and no decision depends on it. Uses nothing of this crate.

mod a_few;
pub(crate) mod clock;
mod columns;
mod how_many;
mod size;

pub(crate) use a_few::AFew;
pub(crate) use columns::in_columns;
pub use how_many::HowMany;
pub use size::Size;
