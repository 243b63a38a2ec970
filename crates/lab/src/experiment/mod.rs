//! Experiments as files: what runs on which storage, and how it is measured, judged and drawn.
//!
//! A [`Definition`] says what to do, [`Target`]s say on what, and a [`Plan`] puts both in a fair order. The runner
//! carries the plan out. [`judge`](judge::judge) and the report say what the result means.
//!
//! Invariants:
//! - Two compared sides differ in one thing. They take turns (A B B A) within one session.
//! - The warm-up of every run is dropped, and shown. The clock decides its length before the run, or a rule if the
//!   run goes on until it is steady.
//! - The lab writes and removes only what it made itself, unless a place was named with `--destroy`.
//! - A run is on disk before the next begins, so an interrupted session continues where it was.

mod cards;
pub mod commands;
mod counters;
mod definition;
mod evenness;
mod extrapolation;
mod fio_load;
mod guest_run;
pub mod judge;
mod oltp_load;
mod open_loop;
mod pgbench_load;
mod plan;
pub mod processors;
mod record;
mod regime;
pub mod report;
mod results;
mod runner;
mod sense;
mod server;
mod settling;
mod side;
mod study;
mod target;
mod tpcc_load;

pub use definition::{Case, Definition, Dirty, Load, Quick, StudyScale, Variant, Vary, shipped, shipped_text};
pub use plan::{Plan, Point, Visit};
pub use record::{CacheReads, Figures, PondCounts, Record, Second, Settling, Steadiness, System, Transactions};
pub use regime::{Regime, Stretch};
pub use results::Results;
pub use sense::doubts;
pub use server::Software;
pub use target::{GuestTarget, Kind, Target};
