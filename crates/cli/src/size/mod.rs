//! `headpond size`: how much flash should you buy? A trace says it exactly; a running mount, from what its policy
//! remembers of evicted blocks.
//!
//! Invariant: where the answer is not in what was seen, the command says so, and names no size.

mod answer;
mod mount;
mod trace;

use std::path::PathBuf;

use clap::Args;
use headpond_control::Refusal;

use crate::output::{print, print_json};
use crate::traces::ReadingArgs;

/// The arguments of `headpond size`.
#[derive(Args, Debug)]
#[command(after_long_help = "Examples:
  headpond record /var/lib/mysql --to day.trace --for 24h --max-size 20G
  headpond size day.trace                      the share of reads that a pool of each size would find
  headpond size day.trace --worth 5%           a larger pool, if it still saves a twentieth of the misses
  headpond size /var/lib/mysql                 without a trace: what a larger pool would gain now
  headpond size w1.vscsi                       a trace of another tool (see headpond replay --help)
  headpond size day.trace --json | jq '.knee.pool_bytes'

docs/operations.md says how to read the answer, docs/replay.md how it is found.")]
pub struct SizeArgs {
    /// A trace, or a mount
    #[arg(value_name = "FILE|MOUNTPOINT")]
    pub from: PathBuf,
    /// A pool of twice the size is worth it if it saves at least this share of the misses
    #[arg(long, value_name = "SHARE", default_value = "10%", value_parser = share)]
    pub worth: f64,
    /// How to read a trace
    #[command(flatten)]
    pub reading: ReadingArgs,
    /// Look at every block of a large trace, and not at a sample. It takes longer, and more memory
    #[arg(long)]
    pub exact: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Show no progress bar
    #[arg(long, short)]
    pub quiet: bool,
}

/// A share such as 10%, of 1.
fn share(text: &str) -> Result<f64, String> {
    let percent = text.strip_suffix('%').unwrap_or(text).trim().parse::<f64>().ok();
    let wrong = "expected a share of 1% to 90%, such as 10%";
    percent
        .filter(|percent| (1.0..=90.0).contains(percent))
        .map(|percent| percent / 100.0)
        .ok_or_else(|| wrong.to_owned())
}

/// `headpond size`.
pub fn run(args: &SizeArgs) -> Result<(), Refusal> {
    let answer = if args.from.is_dir() { mount::answer(args)? } else { trace::answer(args)? };
    if args.json { print_json(&answer) } else { print(&answer.to_string()) }
}
