//! How close headpond comes to the raw flash below it.
//!
//! Every figure is a ratio of two rates measured in turns in the same run, a count, or a time that was asked for. The
//! median of several rounds counts, and all rounds are kept. `docs/benchmarks.md` says what the figures mean, and
//! what they were.

mod backend;
mod copies;
mod counting;
mod devices;
mod engine;
mod fio;
mod fuse_alone;
mod lives;
mod nbdkit;
mod packed;
mod plan;
mod pond;
mod reads;
mod recording;
mod side;
mod table;
mod turns;
mod works;

use std::path::PathBuf;

use clap::Args;
use headpond_lab::pond::Headpond;
use serde_json::json;

use plan::Plan;
use works::WORKS;

/// The result of a benchmark. Errors are for the person who runs it.
type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Where and how long.
#[derive(Args)]
pub struct Arguments {
    /// A directory on the flash to be measured; all but the raw file is taken away again
    #[arg(long, default_value = "target/bench")]
    directory: PathBuf,
    /// A directory for the origins [default: beside the flash]
    #[arg(long)]
    origin: Option<PathBuf>,
    /// How often each work is done, in turns with what it is compared with
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// How long each run of fio takes
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Only these: engine, reads, writes, appends, appends-confined, appends-device, copies, lives, packed, counting,
    /// recording, steady, restart
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// How much is cached for the restart
    #[arg(long, default_value = "8g")]
    restart_size: String,
    /// How large a pool that is in
    #[arg(long, default_value = "12g")]
    restart_pool: String,
    /// Where the results go, for programs
    #[arg(long, default_value = "target/bench/results.json")]
    json: PathBuf,
}

/// Does the works, prints a table of the medians, and writes all figures down.
///
/// # Errors
/// Those of the works that failed, after the others are done.
pub fn run(arguments: &Arguments) -> Outcome<()> {
    if let Some(unknown) = arguments.only.iter().find(|name| !WORKS.iter().any(|(known, ..)| known == name)) {
        let known: Vec<&str> = WORKS.iter().map(|(name, ..)| *name).collect();
        return Err(format!("no such work: '{unknown}'; there are {}", known.join(", ")).into());
    }
    std::fs::create_dir_all(&arguments.directory)?;
    let directory = arguments.directory.canonicalize()?;
    let origin = arguments.origin.clone().unwrap_or_else(|| directory.join("origin"));
    std::fs::create_dir_all(&origin)?;
    let plan = Plan {
        origin: origin.canonicalize()?,
        directory,
        rounds: arguments.rounds.max(1),
        seconds: arguments.seconds.max(1),
        restart_size: arguments.restart_size.clone(),
        restart_pool: arguments.restart_pool.clone(),
    };
    let headpond = Headpond::beside_this_program()?.version()?;
    let before = works::machine();
    let mut lines = Vec::new();
    let mut failed = Vec::new();
    for (name, what, work) in WORKS {
        if !arguments.only.is_empty() && !arguments.only.iter().any(|only| only == name) {
            continue;
        }
        eprintln!("{name}: {what}");
        match work(&plan) {
            Ok(found) => lines.extend(found),
            // The others are worth having all the same.
            Err(error) => failed.push(format!("{name}: {error}")),
        }
        plan.clear(name)?;
    }
    print!("{}", table::markdown(&lines));
    let lines: Vec<_> = lines.iter().map(table::Line::json).collect();
    let results = json!({
        "headpond": headpond, "machine": before, "load_after": works::machine()["load"],
        "rounds": plan.rounds, "seconds": plan.seconds, "results": lines, "failed": failed,
    });
    std::fs::write(&arguments.json, serde_json::to_string_pretty(&results)? + "\n")?;
    println!("\nAll figures: {}", arguments.json.display());
    if failed.is_empty() { Ok(()) } else { Err(failed.join("; ").into()) }
}
