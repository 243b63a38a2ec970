//! Who owns an origin's newest data: the marker beside the origin and its lock, the notes next to it, and whether a
//! pool and an origin belong together.
//!
//! Keeps true: what lies beside the origin is durable before it can matter, and goes only when the origin has
//! everything. `headpond_claim` makes the decisions; here is what they need, and their words. Uses `origin`,
//! `refusal` and `wording`.

mod durable;
mod judgement;
mod lease;
mod marker;
mod obsolete;
mod standing;

pub(crate) use durable::{DurableLog, DurableNote, FILE as DURABLE_FILE, keep_up};
pub(crate) use judgement::{Allowed, AwaitedNote, Image, Ownership, PoolHeld, earlier_claims, judge};
pub(crate) use lease::LockKeeper;
pub(crate) use marker::SharedMarker;
#[cfg(test)]
pub(crate) use marker::tests as marker_tests;
pub use marker::{
    Claim, ClaimWatch, MARKER_NAME, MARKER_VERSION, Marker, MarkerHold, MarkerMember, MarkerStanding, MarkerState,
};
pub(crate) use obsolete::{Failure, ObsoleteNote};
pub(crate) use standing::{MountClaim, keep_watch};
