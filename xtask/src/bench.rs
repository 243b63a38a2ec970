//! The benchmarks, with release builds: users run these.

use crate::{run_cargo, tree};
use std::process::ExitCode;

/// Builds the program and the benchmark, and runs it.
pub fn run(arguments: &[String]) -> ExitCode {
    let mut build = tree::cargo();
    build.args(["build", "-q", "--release", "--bin", "headpond", "--bin", "headpond-lab"]);
    if !build.status().is_ok_and(|status| status.success()) {
        eprintln!("cargo xtask bench: headpond does not build");
        return ExitCode::FAILURE;
    }
    let mut run = tree::cargo();
    run.args(["run", "-q", "--release", "--bin", "headpond-lab", "--", "bench"]).args(arguments);
    run_cargo(run)
}
