//! `cargo xtask fuzz`: runs the fuzzer as the tests are run, optimized and with overflow checks and debug
//! assertions on, which a release build would take out of the very code that is on trial.

use std::process::Command;

use crate::tree;

/// The fuzzer with these arguments.
pub fn command(arguments: &[String]) -> Command {
    let mut command = tree::cargo();
    command.args(["run", "-q", "--profile", "test", "--package", "headpond-fuzz", "--bin", "headpond-fuzz", "--"]);
    command.args(arguments);
    command
}
