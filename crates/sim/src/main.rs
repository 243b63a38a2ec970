//! `cargo xtask sim`: runs the simulator over a range of seeds, or one seed again.
//!
//! Exit status: 0 when every promise was kept, 1 when one was broken, 2 for wrong arguments.

use std::ops::Range;
use std::process::ExitCode;

use clap::Parser;
use headpond_base::CacheMode;
use headpond_engine::Mutation;
use headpond_sim::{
    Options, Planted, PlantedHosts, quiet_panics, run_caught, run_exhaustive, run_one_sequence, run_seeds, shrink,
};
use indicatif::{ProgressBar, ProgressStyle};

/// Run the real engine on simulated flash and origin, and check every promise.
#[derive(Parser)]
#[command(name = "headpond-sim", version)]
struct Arguments {
    /// Seeds to run: `A..B`, or one seed
    #[arg(long, default_value = "0..1000", value_parser = parse_range)]
    seeds: Range<u64>,
    /// Operations in each run
    #[arg(long, default_value_t = 500)]
    ops: u32,
    /// Operations to leave out: `3,10..20`
    #[arg(long, value_delimiter = ',', value_parser = parse_small_range)]
    skip: Vec<Range<u32>>,
    /// Inject crashes and no other faults
    #[arg(long)]
    no_faults: bool,
    /// In half of the runs, let the front door forget the objects that the engine releases, and rename them silently
    #[arg(long)]
    forgets: bool,
    /// One request at a time
    #[arg(long)]
    serial: bool,
    /// Read everything at every start. Without it: mostly what can have changed
    #[arg(long)]
    whole_looks: bool,
    /// Stay in this cache mode: write-back, write-through, write-around, pass-through
    #[arg(long)]
    mode: Option<CacheMode>,
    /// Plant a bug: skip-sync, accept-torn-batch, clean-before-origin-sync, forget-generation, replay-out-of-order,
    /// keep-memory-window, split-together, forget-chain, let-go-early, sync-one-segment, chain-by-segment,
    /// sync-one-device, clean-written-zeros, believe-volumes, publish-late, publish-in-part, free-slot-early,
    /// answer-uncovered
    #[arg(long, value_parser = parse_mutation)]
    mutation: Option<Mutation>,
    /// Check promise 3 alone, in write-back: writes of every size up to 1 MiB, and power cuts
    #[arg(long)]
    untorn: bool,
    /// Write this many host segments at once: 1 to 4. Without it: as each seed says
    #[arg(long)]
    host_segments: Option<usize>,
    /// Whether there is a volume among the files. Without it: as each seed says
    #[arg(long)]
    volumes: Option<bool>,
    /// Whether the pool has a second tail, in memory that outlives the daemon. Without it: as each seed says
    #[arg(long)]
    second_tail: Option<bool>,
    /// Run histories of names: the name layer and the engine over an origin with directories
    #[arg(long)]
    names: bool,
    /// Run histories of members: pools of up to five devices that are lost, come back, and are added and removed
    #[arg(long, conflicts_with_all = ["names", "uses", "untorn"])]
    members: bool,
    /// With --members: let some of them have copies only, as a peer has
    #[arg(long, requires = "members")]
    copies: bool,
    /// With --members: pools of three to five devices that make rows with a parity
    #[arg(long, requires = "members")]
    parity: bool,
    /// Let the operator's upkeep come in between: scrubs, and with --members devices that are taken offline
    #[arg(long, conflicts_with_all = ["names", "uses", "untorn"])]
    upkeep: bool,
    /// With --members: let a device that joins have the number of a member that is gone, if there is one, and ask members
    /// whether they are there
    #[arg(long, requires = "members")]
    reuse: bool,
    /// With each loss of the origin's power another kernel: one tells when files were born, and the next one does not
    #[arg(long, conflicts_with_all = ["names", "uses", "hosts", "untorn"])]
    kernels: bool,
    /// Run histories of ownership: two hosts, their pools, older images of these, and which host may change the origin
    #[arg(long, conflicts_with = "names")]
    uses: bool,
    /// Run histories of hosts: two to four that own one pool in turn, etcd, and a network between them
    #[arg(long, conflicts_with_all = ["names", "uses", "untorn", "members"])]
    hosts: bool,
    /// Plant a bug in a history of hosts: answers-before-record, lease-from-answer, number-not-kept, gap-accepted,
    /// takes-any-copy, destages-after-lease, fence-skipped, fences-itself, believes-answers-only, takes-part-of-copy,
    /// follows-again, tells-unsynced, answers-after-one, lets-go-early, leaves-before-record,
    /// begins-early
    #[arg(long, requires = "hosts", value_parser = parse_planted_hosts)]
    planted_hosts: Option<PlantedHosts>,
    /// Plant a bug in a history of names: directory-not-noted, unlink-untold, rename-untold, status-untold,
    /// close-forgotten, sync-skipped, forgotten-unsynced, links-believed, births-alike
    #[arg(long, requires = "names", value_parser = parse_planted)]
    planted: Option<Planted>,
    /// Run every sequence of up to four operations on four blocks, with a power cut after every device write
    #[arg(long)]
    exhaustive: bool,
    /// With --exhaustive: operations in the longest sequence
    #[arg(long, default_value_t = 4)]
    depth: u32,
    /// Print each event of one seed
    #[arg(long)]
    verbose: bool,
    /// Do not search for a smaller run that fails
    #[arg(long)]
    no_shrink: bool,
    /// Stop after this many failures
    #[arg(long, default_value_t = 1)]
    failures: usize,
    /// Threads. Without it: one for each core
    #[arg(long)]
    threads: Option<usize>,
}

fn parse_range(text: &str) -> Result<Range<u64>, String> {
    let number = |text: &str| text.trim().parse::<u64>().map_err(|_| format!("'{text}' is no number"));
    match text.split_once("..") {
        Some((from, to)) => Ok(number(from)?..number(to)?),
        None => number(text).map(|seed| seed..seed + 1),
    }
}

fn parse_small_range(text: &str) -> Result<Range<u32>, String> {
    let range = parse_range(text)?;
    let small = |number| u32::try_from(number).map_err(|_| format!("{number} is too large"));
    Ok(small(range.start)?..small(range.end)?)
}

fn parse_mutation(text: &str) -> Result<Mutation, String> {
    let names = Mutation::ALL.map(|(name, _)| name).join(", ");
    let found = Mutation::ALL.into_iter().find(|(name, _)| *name == text);
    found.map(|(_, mutation)| mutation).ok_or_else(|| format!("one of {names}"))
}

fn parse_planted(text: &str) -> Result<Planted, String> {
    let names = Planted::ALL.map(|(name, _)| name).join(", ");
    let found = Planted::ALL.into_iter().find(|(name, _)| *name == text);
    found.map(|(_, planted)| planted).ok_or_else(|| format!("one of {names}"))
}

fn parse_planted_hosts(text: &str) -> Result<PlantedHosts, String> {
    let names = PlantedHosts::ALL.map(|(name, _)| name).join(", ");
    let found = PlantedHosts::ALL.into_iter().find(|(name, _)| *name == text);
    found.map(|(_, planted)| planted).ok_or_else(|| format!("one of {names}"))
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let threads = arguments.threads.unwrap_or(cores);
    if !arguments.verbose {
        quiet_panics();
    }
    if arguments.exhaustive {
        return exhaustive(&arguments, threads);
    }
    let options = Options {
        ops: arguments.ops,
        skip: arguments.skip.clone(),
        mutation: arguments.mutation,
        verbose: arguments.verbose,
        no_faults: arguments.no_faults,
        forgets: arguments.forgets,
        serial: arguments.serial,
        whole_looks: arguments.whole_looks,
        mode: arguments.mode,
        untorn: arguments.untorn,
        host_segments: arguments.host_segments,
        volumes: arguments.volumes,
        second_tail: arguments.second_tail,
        names: arguments.names,
        members: arguments.members,
        copies: arguments.copies,
        parity: arguments.parity,
        upkeep: arguments.upkeep,
        reuse: arguments.reuse,
        kernels: arguments.kernels,
        uses: arguments.uses,
        planted: arguments.planted,
        hosts: arguments.hosts,
        planted_hosts: arguments.planted_hosts,
        ..Options::default()
    };
    if arguments.verbose {
        return match run_caught(arguments.seeds.start, &options) {
            Ok(summary) => {
                println!("seed {}: every promise kept. {summary:?}", arguments.seeds.start);
                ExitCode::SUCCESS
            }
            Err(failure) => {
                println!("{failure}");
                ExitCode::FAILURE
            }
        };
    }
    let bar = bar(arguments.seeds.end.saturating_sub(arguments.seeds.start));
    let findings = run_seeds(arguments.seeds.clone(), &options, threads, arguments.failures, &|done, failure| {
        if let Some(failure) = failure {
            bar.suspend(|| println!("{failure}\n"));
        }
        bar.set_position(done);
    });
    bar.finish_and_clear();
    println!("{} seeds, {} failed: {}", findings.seeds, findings.failures.len(), findings.total);
    if let Some(first) = findings.failures.first()
        && !arguments.no_shrink
    {
        println!("\nlooking for a smaller run ...");
        println!("\nsmaller: {}", shrink(first.clone()));
    }
    if findings.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn exhaustive(arguments: &Arguments, threads: usize) -> ExitCode {
    let bar = bar(0);
    let result = if arguments.verbose {
        run_one_sequence(arguments.seeds.start, arguments.mutation)
    } else {
        run_exhaustive(arguments.depth, arguments.mutation, threads, &|done, all| {
            bar.set_length(all);
            bar.set_position(done);
        })
    };
    bar.finish_and_clear();
    match result {
        Ok(cases) => {
            println!("{cases}: every promise kept");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            println!("{failure}");
            ExitCode::FAILURE
        }
    }
}

fn bar(length: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} {elapsed} (left {eta}) {msg}");
    ProgressBar::new(length).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
