//! Statistics of measurements, without a clock, a file or a thread: the same numbers give the same answer.
//!
//! Invariants:
//! - no value is left out as an outlier: a stall is what a user of storage wants to hear about;
//! - a difference is never claimed from one run against one run, and what is too few to tell says so;
//! - whatever is drawn at random comes from a seed.
//!
//! Each rule is tested against a published example, named where it is tested.

mod bootstrap;
mod latency;
mod open_loop;
mod random;
mod rank;
mod steady;
mod summary;

pub use bootstrap::{RUNS_MIN, RatioInterval, ratio_of_medians};
pub use latency::Latency;
pub use open_loop::Schedule;
pub use random::Random;
pub use rank::{MannWhitney, Method, mann_whitney};
pub use steady::{Judgement, ROUNDS, Settled, judge, settled, settled_to_the_end};
pub use summary::{Summary, median};
