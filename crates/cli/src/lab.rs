//! `headpond lab`: experiments on storage, with and without headpond.

use std::process::ExitCode;

use headpond_lab::experiment::commands::{LabArgs, run};
use headpond_lab::failure::Failure;

/// Runs the command to its end.
pub fn lab(args: &LabArgs) -> ExitCode {
    match run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Interrupted) => {
            eprintln!("headpond: interrupted; loads stopped, mounts taken down, scratch directories removed");
            ExitCode::from(130)
        }
        Err(failure) => {
            eprintln!("headpond: {failure}");
            ExitCode::FAILURE
        }
    }
}
