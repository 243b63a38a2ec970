//! Statistics of measurements, without a clock, a file or a thread: the same numbers give the same answer.
//!
//! Invariants:
//! - no value is left out as an outlier: users of storage want to know of a stall;
//! - no difference is claimed from one run against one run, and too few runs are reported as too few;
//! - all random draws come from a seed.
//!
//! Each rule is tested against a published example. The test names it.

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
