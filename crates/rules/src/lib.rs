//! Rules: who and what is cached. Ordered, and the first that matches a request decides.
//!
//! Pure: nothing here looks at a process, a file or a clock. The caller brings what it knows of them.
//!
//! Invariants
//! - What a rule is written as reads back as the same rule.
//! - What is not known of a request matches no condition on it: a rule on processes passes over the
//!   requests of nobody.
//! - A set of rules never changes: a change is another set. Its counters are all that moves.
//!
//! A request is decided in two steps, so that its cost does not grow with what it is about: which rules
//! its file and its process satisfy is found once for each of them, as a [`Mask`], and a request only meets
//! the two ([`RuleSet::decide`]).

mod action;
mod pattern;
mod rule;
mod set;
mod words;

pub use action::{Action, Quota};
pub use pattern::Pattern;
pub use rule::{Direction, ParseError, Pid, Process, Rule};
pub use set::{CLASSES_MAX, Mask, Matches, RULES_MAX, RuleSet, SetError};
