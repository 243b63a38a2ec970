//! What a test says when this machine cannot run it: the tests of all crates ask here.
//!
//! Invariant: no test is left out in silence, and where all must run (`HEADPOND_TEST_ALL`) what one lacks is a failure.

#![allow(dead_code)] // each crate takes what it needs

use std::fmt::Display;

/// Set where every test must run.
const ALL: &str = "HEADPOND_TEST_ALL";

/// Whether a test can run that finds this missing; if not, it says so, or fails where every test must run.
#[track_caller]
pub fn lacks_nothing(missing: Option<impl Display>) -> bool {
    let Some(missing) = missing else { return true };
    assert!(std::env::var_os(ALL).is_none(), "missing: {missing}");
    eprintln!("left out, for this machine lacks: {missing}");
    false
}

/// Whether the tests run as root; `what` says what one needs that for.
#[track_caller]
pub fn has_root(what: &str) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    // The effective user.
    let user = status.lines().find_map(|line| line.strip_prefix("Uid:")?.split_whitespace().nth(1));
    lacks_nothing((user != Some("0")).then(|| format!("root, {what}")))
}
