//! `cargo xtask fuzz`: fuzzes one target or all, or runs a saved input again.
//!
//! Exit status: 0 when nothing failed, 1 when something did, 2 for wrong arguments.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use headpond_fuzz::{Campaign, Input, PlantedBug, Target, fuzz, quiet_panics, replay};

/// Damages what headpond reads from flash. headpond must never panic, must report the damage, and must serve no wrong
/// data.
#[derive(Parser)]
#[command(name = "headpond-fuzz", version)]
struct Arguments {
    /// Seconds for each target
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Fuzz only this target: superblock, settings, segment, batch, record, checkpoint, trace,
    /// image, members, rows
    #[arg(long)]
    target: Option<Target>,
    /// The seed of the inputs
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run a saved input again
    #[arg(long, value_name = "FILE")]
    replay: Option<PathBuf>,
    /// Where to save failing inputs
    #[arg(long, value_name = "DIRECTORY", default_value = "target/fuzz")]
    failures: PathBuf,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(path) = &arguments.replay {
        return again(path);
    }
    quiet_panics();
    let targets = arguments.target.map_or(Target::ALL.to_vec(), |target| vec![target]);
    let mut ok = true;
    for target in targets {
        let outcome = fuzz(&Campaign {
            target,
            seed: arguments.seed,
            inputs: u64::MAX,
            time: Duration::from_secs(arguments.seconds),
            failures: arguments.failures.clone(),
            planted: PlantedBug::None,
        });
        println!("{outcome}");
        ok &= outcome.failure.is_none();
    }
    if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn again(path: &PathBuf) -> ExitCode {
    let read = std::fs::read_to_string(path).map_err(|error| error.to_string());
    let input: Input = match read.and_then(|text| text.parse()) {
        Ok(input) => input,
        Err(error) => {
            eprintln!("headpond-fuzz: {}: {error}", path.display());
            return ExitCode::from(2);
        }
    };
    match replay(&input) {
        Ok(told) => {
            println!("passed: {told}");
            ExitCode::SUCCESS
        }
        Err(what) => {
            println!("{what}");
            ExitCode::FAILURE
        }
    }
}
