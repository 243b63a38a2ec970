//! A flash card with a page-mapped translation layer: why random writes get slower as it fills.
//!
//! A flash page is written once, and flash is erased by the block. So a card writes every page to a fresh place and
//! keeps a map ([`Translation`]). Before it erases a block, it copies the valid pages away. The fuller the card, the
//! more it copies. The copies are the write amplification. Together with the rate of the flash they make the rate that
//! a user sees ([`Card`]).
//!
//! The model has only the over-provisioning, the two rates of a card and the greedy choice of the block to clean.
//! [`amplification`] is the published formula for the same, to check the simulation.

mod card;
mod formula;
mod translation;

pub use card::{Card, Measured, Model, Published};
pub use formula::amplification;
pub use translation::{Cost, Translation};
