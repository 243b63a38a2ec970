//! Which pool belongs to an origin, and how long this host may change the origin: decisions only.
//!
//! Invariant: nothing here does I/O, reads a clock or blocks. Callers pass the time and what they found, so a test or
//! a simulator can put any event between any two others.

mod earlier;
mod lease;
mod owners;
pub mod ownership;
mod watch;

pub use earlier::EarlierClaims;
pub use lease::OwnerLease;
pub use owners::{HeirCopy, HeirVerdict, Node, OwnerRecord, OwnerVerdict, RecordSeen, judge_heir, judge_owner};
pub use watch::{Standing, Watch, Way};
