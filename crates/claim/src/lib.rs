//! Whose an origin and a pool are, and whether a host may still change the origin that it uses: decisions only.
//!
//! Invariant: nothing here does I/O, reads a clock or blocks. Callers say what time it is and what they found, so that a
//! test or a simulator can put any event between any two others.

pub mod ownership;
mod watch;

pub use watch::{Standing, Watch, Way};
