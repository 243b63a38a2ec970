//! Experiments as files: what is run on which storage, measured, judged and drawn.
//!
//! A [`Definition`] says what to do, [`Target`]s say on what, a [`Plan`] puts both in an order that is fair, the
//! runner carries it out, and [`judge`](judge::judge) and the report say what it means.
//!
//! Invariants:
//! - one thing differs between two sides that are compared; they take turns (A B B A) within one session;
//! - the warm-up of every run is thrown away, and shown; it is decided by the clock before the run, and where a run
//!   goes on until it is steady, by a rule;
//! - only what the lab made itself is written or removed, unless a place was named with `--destroy`;
//! - a run that ended is on disk before the next begins, so an interrupted session goes on where it was.

pub mod commands;
mod counters;
mod definition;
mod evenness;
mod extrapolation;
mod fio_load;
pub mod judge;
mod limited;
mod oltp_load;
mod open_loop;
mod pgbench_load;
mod place;
mod plan;
mod processors;
mod record;
mod regime;
pub mod report;
mod results;
mod runner;
mod sense;
mod server;
mod settling;
mod side;
mod target;
mod tpcc_load;

pub use definition::{Case, Definition, Dirty, Load, Quick, Variant, Vary, shipped, shipped_text};
pub use plan::{Plan, Point, Visit};
pub use record::{Figures, PondCounts, Record, Second, Settling, Steadiness, System, Transactions};
pub use regime::{Regime, Stretch};
pub use results::Results;
pub use sense::doubts;
pub use server::Software;
pub use target::{Kind, Target};
