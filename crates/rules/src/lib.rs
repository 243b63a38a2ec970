//! Rules: which requests are cached, and how. They are ordered, and the first that matches a request decides.
//!
//! Pure: nothing here examines a process, a file or a clock. The caller brings what it knows of them.
//!
//! Invariants
//! - A rule that is written and parsed again is the same rule.
//! - A condition on something unknown never matches: a rule on processes skips a request without a known process.
//! - A set of rules never changes: a change makes another set. Only its counters move.
//!
//! A request is decided in two steps, so its cost does not grow with the number of files and processes. The rules that
//! a file or a process satisfies are found once for each, as a [`Mask`]. A request only combines two masks
//! ([`RuleSet::decide`]).

mod action;
mod pattern;
mod rule;
mod set;
mod words;

pub use action::{Action, Quota};
pub use pattern::Pattern;
pub use rule::{Direction, ParseError, Pid, Process, Rule};
pub use set::{CLASSES_MAX, Mask, Matches, RULES_MAX, RuleSet, SetError};
