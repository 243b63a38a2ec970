//! `cargo xtask fuzz`: runs the fuzzer as tests run, optimized and with overflow checks and debug assertions. A
//! release build would remove these from the very code under test.

use std::process::Command;

use crate::tree;

/// The command of the fuzzer with these arguments.
pub fn command(arguments: &[String]) -> Command {
    let mut command = tree::cargo();
    command.args(["run", "-q", "--profile", "test", "--package", "headpond-fuzz", "--bin", "headpond-fuzz", "--"]);
    command.args(arguments);
    command
}
