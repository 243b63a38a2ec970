//! The origin, and headpond's own directory in it, both by descriptor.
//!
//! Keeps true: no name leads out of the origin, whatever its owner plants there. Uses `refusal`.

mod beside;
mod root;

pub(crate) use beside::{ATTEMPTS, BesideDir, next_of, peek};
pub use root::OriginRoot;
pub(crate) use root::{identity, look_at};
