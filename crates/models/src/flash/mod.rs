//! A flash card with a page-mapped translation layer: why random writes get slower as it fills.
//!
//! Flash pages are written once and erased by the block. So a card writes every page to a fresh place and keeps a
//! map ([`Translation`]); a block is erased once what is still valid in it has been copied away, and the fuller the
//! card, the more there is to copy. The copying is the write amplification, and with the rate of the flash itself
//! it makes the rate that a user sees ([`Card`]).
//!
//! Nothing but the over-provisioning, the two rates of a card and the greedy choice of the block to clean goes into
//! it. [`amplification`] is the published formula for the same, to hold the simulation against.

mod card;
mod formula;
mod translation;

pub use card::{Card, Measured, Model};
pub use formula::amplification;
pub use translation::{Cost, Translation};
