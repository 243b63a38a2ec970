//! `headpond-replayed`: a recorded load through the whole engine, in virtual time.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use headpond_base::BLOCK_U64;
use headpond_engine::{Config, Policy};
use headpond_models::{DiskModel, Network};
use headpond_sim::{DestageArguments, Hardware, Replayed, replay_through_engine};
use headpond_trace::{CacheSize, Format, LoadOptions, LoadedTrace, TraceError, Unit, read_requests};

/// Replays a trace through the real engine, on modelled flash and a modelled origin. For each policy it prints the
/// misses, the writes to flash, and the writes to the origin. `headpond replay` is far faster, and runs the policies
/// alone.
#[derive(Parser)]
struct Arguments {
    /// The trace. The end of its name says its format
    trace: PathBuf,
    /// Addresses are page numbers, or keys
    #[arg(long)]
    pages: bool,
    /// Addresses are sectors of 512 bytes
    #[arg(long, conflicts_with = "pages")]
    sectors: bool,
    /// Leave writes out
    #[arg(long)]
    reads_only: bool,
    /// The pool: a share of the footprint, blocks, or bytes
    #[arg(long, default_value = "10%")]
    size: CacheSize,
    /// The policies
    #[arg(long, value_delimiter = ',', default_value = "lru,adaptive")]
    policies: Vec<Policy>,
    /// What a miss fetches, in KiB
    #[arg(long, default_value_t = 512)]
    fetch: u32,
    /// No sequential run bypasses the cache
    #[arg(long)]
    no_cutoff: bool,
    #[command(flatten)]
    destage: DestageArguments,
    /// The origin: a modelled volume (volume-200, cloud, ssd-mirror, flash-card)
    #[arg(long, default_value = "volume-200")]
    origin: DiskModel,
    /// Replay only this many requests of the trace
    #[arg(long)]
    first: Option<usize>,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("headpond-replayed: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn std::error::Error>> {
    let format = Format::of_name(&arguments.trace)
        .ok_or_else(|| format!("{}: its name says no format", arguments.trace.display()))?;
    let unit = match (arguments.pages, arguments.sectors) {
        (true, _) => Some(Unit::Page),
        (_, true) => Some(Unit::Sector),
        _ => None,
    };
    let DiskModel::Network(origin) = arguments.origin else {
        return Err(format!("{} has an arm; choose a volume", arguments.origin).into());
    };
    let options = LoadOptions { format, unit, reads_only: arguments.reads_only, sample: 0 };
    let mut requests = read_requests(&arguments.trace, options)?;
    requests.truncate(arguments.first.unwrap_or(usize::MAX));
    let blocks = arguments.size.blocks(footprint(arguments, options)?);
    let pool = blocks as u64 * BLOCK_U64;
    let hardware = Hardware { pool, flash: Network::FLASH_CARD, origin };
    println!("{} requests, a pool of {blocks} blocks", requests.len());
    println!(
        "{:>10} {:>8} {:>10} {:>10} {:>11} {:>13} {:>13} {:>8} {:>9} {:>8} {:>8} {:>9}",
        "policy",
        "misses",
        "filled",
        "moved",
        "flash MB",
        "trace writes",
        "origin writes",
        "fewer",
        "streamed",
        "joined",
        "rounds",
        "destaged"
    );
    for policy in &arguments.policies {
        let mut config = Config { policy: *policy, fetch_bytes: arguments.fetch << 10, ..arguments.destage.config() };
        if arguments.no_cutoff {
            config.sequential_cutoff = None;
        }
        print(*policy, &replay_through_engine(&requests, hardware, config));
    }
    Ok(())
}

fn footprint(arguments: &Arguments, options: LoadOptions) -> Result<usize, TraceError> {
    Ok(LoadedTrace::read(&arguments.trace, options)?.footprint())
}

fn print(policy: Policy, done: &Replayed) {
    println!(
        "{policy:>10} {:>8.4} {:>10} {:>10} {:>11} {:>13} {:>13} {:>7.2}x {:>9} {:>8} {:>8} {:>9}",
        done.miss_ratio(),
        done.stats.admitted_blocks,
        done.stats.moved_blocks,
        done.stats.flash_write_bytes / 1_000_000,
        done.trace_writes,
        done.stats.origin_writes,
        done.fewer_writes(),
        done.stats.bypassed_writes,
        done.stats.joined_writes,
        done.stats.origin_syncs,
        done.stats.destaged_blocks,
    );
}
