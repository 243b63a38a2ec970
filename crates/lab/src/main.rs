//! `headpond-lab`: runs an experiment and leaves its result.

mod bench;

use clap::{Args, Parser, Subcommand};
use headpond_lab::failure::{Failure, Result, catch_interrupts, check_interrupt};
use headpond_lab::hosts::{self, Event, HostsTold};
use headpond_lab::kill::FlashAtKill;
use headpond_lab::kind::Kind;
use headpond_lab::loop_device::LoopDevice;
use headpond_lab::origins::TriedOrigin;
use headpond_lab::pond::Headpond;
use headpond_lab::power_cuts::{self, inside, ledger::Ledger, power::Which};
use headpond_lab::throttled::{Throttle, ThrottledDisk};
use headpond_lab::unseen::{self, Pace, Work};
use headpond_lab::{conformance, kill, origins, pulls, soak, xfstests};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Experiments on headpond with real databases.
#[derive(Parser)]
#[command(name = "headpond-lab", version)]
struct Arguments {
    #[command(subcommand)]
    experiment: Experiment,
}

#[derive(Subcommand)]
enum Experiment {
    /// Kill the daemon under databases at work, again and again.
    Kill(Kill),
    /// Kill the process that serves, again and again, while databases, fsx and pjdfstest go on without an error.
    Unseen(Unseen),
    /// Pull a device of a pool of two, and replace it, again and again, while databases go on without an error.
    Pulls(Pulls),
    /// Kill, stop and cut off hosts, again and again: the other host takes the database over, and nothing is lost.
    Hosts(Hosts),
    /// Run fsx, fio, pjdfstest or xfstests on a mount.
    Conformance(Conformance),
    /// Run fsx, fio and SQLite on one mount for hours, with mode switches, flushes, kills and remounts.
    Soak(Soak),
    /// Try every kind of origin: full disks, kills, conformance, shared blocks, quotas, and NFS that goes away.
    Origins(Origins),
    /// Compare headpond with the raw flash file and with nbdkit.
    ///
    /// You need fio and nbdkit (Debian packages of these names), FUSE, and about 20 GB in the directory. Each round of
    /// each benchmark takes a few times `--seconds`. Compare ratios, and look at all rounds: if they differ much, the
    /// machine was busy.
    Bench(bench::Arguments),
    /// Make a disk that is as slow as a cheap volume, and keep it until Ctrl-C.
    Disk(Disk),
    /// Cut the power of a guest whose disks lose what was not flushed, again and again.
    PowerCuts(PowerCuts),
    /// In the guest of `power-cuts`: the writers.
    #[command(hide = true)]
    PowerCutsWork(Inside),
    /// In the guest of `power-cuts`: the check.
    #[command(hide = true)]
    PowerCutsVerify(Inside),
}

#[derive(Args)]
struct Disk {
    /// How slow: volume-200, volume-3000, burst, far, or iops=N,mib=N,burst=N,burst-seconds=N,latency=MS.
    throttle: Throttle,
    /// How much it holds, in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 4096)]
    size: u64,
    /// Where to make the scratch directory, with the disk's image and its mount.
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    scratch: PathBuf,
}

/// Makes the disk, says where it is, and takes it away at the end.
fn run_disk(arguments: &Disk) -> Result<()> {
    let disk = ThrottledDisk::make(&arguments.scratch, arguments.size, &arguments.throttle)?;
    disk.begin();
    println!("{}: {}", disk.path().display(), arguments.throttle);
    println!("{} is its block device. Ctrl-C takes it away.", disk.device().display());
    while check_interrupt().is_ok() {
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

#[derive(Args)]
struct PowerCuts {
    /// How many power cuts. At each, a disk has something to lose.
    #[arg(long, value_name = "N", default_value_t = 200)]
    cuts: u32,
    /// The seed of the moments, the losses and the writers' work. It does not fix how requests interleave.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// A control: this disk acknowledges flushes and does nothing. The run fails if it finds nothing wrong.
    #[arg(long, value_enum, value_name = "DISK")]
    lies: Option<Which>,
    /// Where to make the scratch directory. It stays if something is wrong.
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    scratch: PathBuf,
}

/// What the programs in the guest are given.
#[derive(Args)]
struct Inside {
    /// The mount, or the origin.
    root: PathBuf,
    /// What that is, in a word.
    #[arg(default_value = "mount")]
    name: String,
    #[arg(long)]
    ledger: PathBuf,
    #[arg(long)]
    seed: u64,
    #[arg(long, default_value_t = 0)]
    load: u64,
}

/// Cuts the power, a line for each cut, and a table at the end.
fn run_power_cuts(arguments: &PowerCuts) -> Result<()> {
    let headpond = Headpond::beside_this_program()?.program().to_owned();
    if let Some(missing) = power_cuts::missing() {
        return Err(Failure::Other(format!("for power cuts this machine lacks: {missing}")));
    }
    let lab = std::env::current_exe().map_err(Failure::io("looking for the running program"))?;
    let directory = scratch("headpond-power-cuts-", &arguments.scratch)?;
    let options = power_cuts::Options { cuts: arguments.cuts, seed: arguments.seed, lies: arguments.lies };
    let mut number = 0;
    println!("{}", power_cuts::Round::HEADINGS);
    let outcome = power_cuts::run(&power_cuts::Programs { headpond, lab }, directory.path(), &options, |round| {
        number += 1;
        println!("{number:>4} {round}");
    });
    let kept = |directory: TempDir| println!("the scratch directory stays: {}", directory.keep().display());
    let report = match outcome {
        Ok(report) => report,
        Err(failure) => {
            kept(directory);
            return Err(failure);
        }
    };
    println!("\npower cuts, seed {}: {report}", arguments.seed);
    match (&report.wrong, arguments.lies) {
        (Some(_), Some(_)) => Ok(()),
        (None, None) => Ok(()),
        (None, Some(lies)) => {
            Err(Failure::Other(format!("the {} lied about its flushes, and nothing was wrong", lies.name())))
        }
        (Some(wrong), None) => {
            kept(directory);
            Err(Failure::Other(wrong.clone()))
        }
    }
}

#[derive(Args)]
struct Kill {
    /// The database. Without it: all, one after the other.
    #[arg(long, value_enum, value_name = "KIND")]
    database: Option<Kind>,
    /// What happens to the flash at a kill.
    #[arg(long, value_enum, default_value_t = FlashAtKill::EveryOtherLoses, value_name = "BEHAVIOUR")]
    flash: FlashAtKill,
    /// Make the origin as slow as a hard disk, so that more is dirty at a kill and destage is half-way.
    #[arg(long)]
    slow_origin: bool,
    /// How many kills of each database.
    #[arg(long, value_name = "N", default_value_t = 10)]
    rounds: u32,
    /// The seed of the kills' moments and of the losses.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Where to make the scratch directory. It stays if something is wrong.
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    scratch: PathBuf,
}

#[derive(Args)]
struct Unseen {
    /// What works on the mount: a database as for `kill`, fsx, or pjdfstest. You can repeat this option. Without it:
    /// all, one after the other.
    #[arg(long, value_name = "KIND")]
    kind: Vec<Work>,
    /// How many kills under each.
    #[arg(long, value_name = "N", default_value_t = 40)]
    kills: u32,
    /// When the process is killed.
    #[arg(long, value_enum, default_value_t = Pace::Seldom, value_name = "PACE")]
    pace: Pace,
    /// Measure instead how long a synced write waits for a take-over, with a pool that has a map of so many GiB. The
    /// files are sparse: it takes 1 % of that on disk. Only root can.
    #[arg(long, value_name = "GIB", conflicts_with_all = ["kind", "pace", "seed"])]
    map: Option<u64>,
    /// Kill and upgrade nothing, in the same time: how long the load waits by itself.
    #[arg(long, conflicts_with = "map")]
    spare: bool,
    /// The seed of the kills' moments.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Where to make the scratch directory. It stays if something is wrong.
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    scratch: PathBuf,
}

/// Kills workers, a line for each kind of work.
fn run_unseen(arguments: &Unseen) -> Result<()> {
    let headpond = Headpond::beside_this_program()?;
    if let Some(gib) = arguments.map {
        if let Some(missing) = LoopDevice::missing() {
            return Err(Failure::Other(format!("to make a pool without its data: {missing}")));
        }
        let directory = scratch("headpond-unseen-", &arguments.scratch)?;
        println!("{}", unseen::measure_stalls(&headpond, directory.path(), gib, arguments.kills)?);
        return Ok(());
    }
    let kinds = if arguments.kind.is_empty() { Work::all() } else { arguments.kind.clone() };
    for work in kinds {
        if let Some(missing) = work.missing() {
            return Err(Failure::Other(format!("to try {}, this machine lacks: {missing}", work.name())));
        }
        let Unseen { kills, pace, seed, spare: spares, .. } = *arguments;
        let options = unseen::Options { work, kills, pace, seed, spares };
        let run = |directory: &Path| unseen::run(&headpond, directory, &options);
        println!("{}: {}", work.name(), in_scratch("headpond-unseen-", &arguments.scratch, run)?);
    }
    Ok(())
}

#[derive(Args)]
struct Pulls {
    /// The database, as for `kill`. You can repeat this option. Without it: MariaDB, PostgreSQL and SQLite.
    #[arg(long, value_name = "KIND")]
    kind: Vec<Kind>,
    /// How many devices of one pool are pulled under each. Past 30, the pool gives the numbers of lost ones again
    #[arg(long, value_name = "N", default_value_t = 34)]
    pulls: u32,
    /// Pools of three devices with `--redundancy parity`, each pulled once rows are made and count. Without it: of two
    /// that mirror.
    #[arg(long)]
    parity: bool,
    /// The seed of the moments.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Where to make the scratch directory. It stays if something is wrong.
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    scratch: PathBuf,
}

/// Pulls devices, a line for each database.
fn run_pulls(arguments: &Pulls) -> Result<()> {
    let headpond = Headpond::beside_this_program()?;
    let kinds = match &arguments.kind[..] {
        [] => vec![Kind::Mariadb, Kind::Postgres, Kind::SqliteWal],
        kinds => kinds.to_vec(),
    };
    for kind in kinds {
        if let Some(missing) = Work::Database(kind).missing() {
            return Err(Failure::Other(format!("to try {}, this machine lacks: {missing}", kind.name())));
        }
        let options = pulls::Options { kind, pulls: arguments.pulls, parity: arguments.parity, seed: arguments.seed };
        let run = |directory: &Path| pulls::run(&headpond, directory, &options);
        println!("{}: {}", kind.name(), in_scratch("headpond-pulls-", &arguments.scratch, run)?);
    }
    Ok(())
}

#[derive(Args)]
struct Hosts {
    /// The database: mariadb or postgres. You can repeat this option. Without it: both, with half of the rounds each.
    #[arg(long, value_name = "KIND")]
    kind: Vec<Kind>,
    /// How many rounds. In 14 of them each event comes once.
    #[arg(long, value_name = "N", default_value_t = 200)]
    rounds: u32,
    /// What happens in each round, instead of what the seed draws. You can repeat this option.
    #[arg(long, value_name = "EVENT")]
    event: Vec<Event>,
    /// The seed of the events and of their moments.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Where to make the scratch directory. It stays if something is wrong.
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    scratch: PathBuf,
}

/// Lets hosts die, a line for each round, and a table at the end.
fn run_hosts(arguments: &Hosts) -> Result<()> {
    let headpond = Headpond::beside_this_program()?;
    let kinds = if arguments.kind.is_empty() { vec![Kind::Mariadb, Kind::Postgres] } else { arguments.kind.clone() };
    for kind in &kinds {
        if let Some(missing) = hosts::missing(*kind) {
            return Err(Failure::Other(format!(
                "for hosts that die with {}, this machine lacks: {missing}",
                kind.name()
            )));
        }
    }
    let rounds = arguments.rounds as usize;
    let events = match &arguments.event[..] {
        [] => hosts::drawn(rounds, arguments.seed),
        events => events.iter().copied().cycle().take(rounds).collect(),
    };
    let mut told = HostsTold::default();
    for (number, kind) in kinds.iter().enumerate() {
        let events: Vec<_> = events.iter().skip(number).step_by(kinds.len()).copied().collect();
        let (rounds, mut round) = (events.len(), 0);
        let options = hosts::Options { kind: *kind, events, seed: arguments.seed };
        let run = |directory: &Path| {
            hosts::run(&headpond, directory, &options, |seen| {
                round += 1;
                println!("{}, {round}/{rounds}: {seen}", kind.name());
                told.add(seen);
            })
        };
        in_scratch("headpond-hosts-", &arguments.scratch, run)?;
    }
    println!("\nhosts that die, seed {}\n{told}", arguments.seed);
    Ok(())
}

#[derive(Args)]
struct Conformance {
    /// Operations of fsx in all modes together.
    #[arg(long, value_name = "N", default_value_t = 10_000_000)]
    fsx_operations: u64,
    /// Files that fio writes in each mode.
    #[arg(long, value_name = "N", default_value_t = 12)]
    fio_files: u32,
    /// Run xfstests instead, on a write-back mount over ext4. Give its checkout, built with `make`.
    #[arg(long, value_name = "DIR")]
    xfstests: Option<PathBuf>,
    /// Tests for xfstests' `check`, such as `generic/001`. Without it: the generic quick group.
    #[arg(value_name = "TEST", requires = "xfstests", allow_hyphen_values = true, trailing_var_arg = true)]
    tests: Vec<String>,
    /// The seed of everything random.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Where to make the scratch directory. It stays if something is wrong.
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    scratch: PathBuf,
}

/// Runs the conformance tests, a line for each step.
fn run_conformance(arguments: &Conformance) -> Result<()> {
    let headpond = Headpond::beside_this_program()?;
    if let Some(suite) = &arguments.xfstests {
        return run_xfstests(headpond.program(), suite, arguments);
    }
    if let Some(missing) = conformance::missing() {
        return Err(Failure::Other(format!("for the conformance tests this machine lacks: {missing}")));
    }
    let options = conformance::Options {
        fsx_operations: arguments.fsx_operations,
        fio_files: arguments.fio_files,
        seed: arguments.seed,
    };
    let run = |directory: &Path| conformance::run(&headpond, directory, &options, |line| println!("{line}"));
    let report = in_scratch("headpond-", &arguments.scratch, run)?;
    println!(
        "\nconformance, seed {}: {} fsx operations in {} runs, {} files of fio verified on the mount and at the \
         origin, pjdfstest in {} modes without a failure that the origin's file system does not have",
        arguments.seed,
        report.fsx_operations,
        report.fsx_runs,
        report.fio_files,
        report.posix.len()
    );
    Ok(())
}

/// Runs xfstests, with its own lines, and says what they mean.
fn run_xfstests(headpond: &Path, suite: &Path, arguments: &Conformance) -> Result<()> {
    if let Some(missing) = xfstests::missing(suite) {
        return Err(Failure::Other(format!("for xfstests this machine lacks: {missing}")));
    }
    let directory = scratch("headpond-xfstests-", &arguments.scratch)?;
    let report = xfstests::run(headpond, suite, directory.path(), &arguments.tests, |line| println!("{line}"))?;
    println!("\nxfstests on a mount: {} passed, {} do not apply", report.passed.len(), report.left_out.len());
    for name in &report.failed_on_both {
        println!("  {name} failed on the bare file system, too");
    }
    for (name, reason) in &report.expected {
        println!("  {name} failed as expected: {reason}");
    }
    for name in &report.better {
        println!("  {name} passed: take it off the list of what is not expected to");
    }
    if report.failed.is_empty() {
        return Ok(());
    }
    println!("the scratch directory stays: {}", directory.keep().display());
    Err(Failure::Other(format!("xfstests that failed on the mount alone: {}", report.failed.join(", "))))
}

#[derive(Args)]
struct Soak {
    /// Hours to run.
    #[arg(long, value_name = "N", default_value_t = 1.0)]
    hours: f64,
    /// The longest time from a mount to its end, in seconds.
    #[arg(long, value_name = "N", default_value_t = 40)]
    leg: u64,
    /// The seed of what the operator does, and when.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Where to make the scratch directory. It stays if something is wrong.
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    scratch: PathBuf,
}

#[derive(Args)]
struct Origins {
    /// The kind of origin. You can repeat this option. Without it: all kinds.
    #[arg(long, value_enum, value_name = "KIND")]
    origin: Vec<TriedOrigin>,
    /// The case. You can repeat this option. Without it: all cases of the origin.
    #[arg(long, value_name = "NAME")]
    case: Vec<String>,
    /// How many kills of each database, and of a writer that rarely syncs.
    #[arg(long, value_name = "N", default_value_t = 5)]
    kills: u32,
    /// Operations of fsx in all modes together.
    #[arg(long, value_name = "N", default_value_t = 40_000)]
    fsx_operations: u64,
    /// The seed of everything random.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Where to make the scratch directory. It stays if something is wrong.
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    scratch: PathBuf,
}

/// Tries origins, a line for each step and a table at the end.
fn run_origins(arguments: &Origins) -> Result<()> {
    let headpond = Headpond::beside_this_program()?;
    let databases = vec![Kind::Mariadb, Kind::SqliteRollback];
    let asked = if arguments.origin.is_empty() { &TriedOrigin::ALL[..] } else { &arguments.origin };
    for origin in asked {
        if let Some(missing) = origin.missing(&arguments.case, &databases) {
            return Err(Failure::Other(format!("to try {origin}, this machine lacks: {missing}")));
        }
    }
    let options = origins::Options {
        origins: arguments.origin.clone(),
        cases: arguments.case.clone(),
        kills: arguments.kills,
        databases,
        fsx_operations: arguments.fsx_operations,
        seed: arguments.seed,
    };
    let directory = scratch("headpond-origins-", &arguments.scratch)?;
    let rows = origins::run(&headpond, directory.path(), &options, |line| println!("{line}"))?;
    println!("\n{}", origins::table(&rows));
    let failed = rows.iter().filter(|row| row.found.is_err()).count();
    if failed == 0 {
        return Ok(());
    }
    println!("the scratch directory stays: {}", directory.keep().display());
    Err(Failure::Other(format!("{failed} of {} cases failed", rows.len())))
}

/// Runs the soak, a line for each leg.
fn run_soak(arguments: &Soak) -> Result<()> {
    let headpond = Headpond::beside_this_program()?;
    if let Some(missing) = soak::missing() {
        return Err(Failure::Other(format!("for a soak this machine lacks: {missing}")));
    }
    let duration = Duration::try_from_secs_f64(arguments.hours * 3600.0)
        .map_err(|error| Failure::Other(format!("--hours {}: {error}", arguments.hours)))?;
    let options = soak::Options { duration, leg_max: Duration::from_secs(arguments.leg), seed: arguments.seed };
    let directory = scratch("headpond-soak-", &arguments.scratch)?;
    let start = Instant::now();
    let outcome = soak::run(&headpond, directory.path(), &options, |sum| {
        println!("{:.2} h: {sum}", start.elapsed().as_secs_f64() / 3600.0);
    });
    match outcome {
        Ok(sum) => {
            let hours = start.elapsed().as_secs_f64() / 3600.0;
            println!("\nsoak of {hours:.2} h, seed {}: {sum}. Nothing was wrong.", arguments.seed);
            Ok(())
        }
        Err(failure) => {
            println!("the scratch directory stays: {}", directory.keep().display());
            Err(failure)
        }
    }
}

/// Runs something in a scratch directory, which stays if that fails.
fn in_scratch<T>(prefix: &str, parent: &Path, run: impl FnOnce(&Path) -> Result<T>) -> Result<T> {
    let directory = scratch(prefix, parent)?;
    run(directory.path()).inspect_err(|_| println!("the scratch directory stays: {}", directory.keep().display()))
}

fn scratch(prefix: &str, parent: &Path) -> Result<TempDir> {
    let directory = tempfile::Builder::new().prefix(prefix).tempdir_in(parent);
    directory.map_err(Failure::io(format!("making a directory in {}", parent.display())))
}

/// Runs the kill test, a line for each round.
fn run_kill(arguments: &Kill) -> Result<()> {
    let headpond = Headpond::beside_this_program()?;
    let kinds = arguments.database.map_or(Kind::ALL.to_vec(), |kind| vec![kind]);
    for kind in kinds {
        if let Some(missing) = kill::missing(kind) {
            return Err(Failure::Other(format!("to try {}, this machine lacks: {missing}", kind.name())));
        }
        let options = kill::Options {
            kind,
            rounds: arguments.rounds,
            seed: arguments.seed,
            flash: arguments.flash,
            slow_origin: arguments.slow_origin,
            short: false,
        };
        kill_one(&headpond, &options, &arguments.scratch)?;
    }
    Ok(())
}

fn kill_one(headpond: &Headpond, options: &kill::Options, scratch: &Path) -> Result<()> {
    let directory = self::scratch("headpond-kill-", scratch)?;
    let mut number = 0;
    let outcome = kill::run(headpond, directory.path(), options, |round| {
        number += 1;
        println!(
            "{}, kill {number}/{}, {:.1} s into the load{}{}: {} commits in this round, {} in all rounds, none lost; \
             {} tables and indexes whole",
            options.kind.name(),
            options.rounds,
            round.killed_after.as_secs_f64(),
            if round.fault.is_some() { ", unsynced writes lost" } else { "" },
            ["", ", and once while it started again", ", and twice while it started again"]
                [round.killed_starting.min(2) as usize],
            round.committed,
            round.found.promised,
            round.checked
        );
    });
    outcome.inspect_err(|_| println!("the scratch directory stays: {}", directory.keep().display()))
}

fn main() -> ExitCode {
    let experiment = Arguments::parse().experiment;
    let outcome = catch_interrupts().and_then(|()| match &experiment {
        Experiment::Kill(options) => run_kill(options),
        Experiment::Unseen(options) => run_unseen(options),
        Experiment::Pulls(options) => run_pulls(options),
        Experiment::Hosts(options) => run_hosts(options),
        Experiment::Conformance(options) => run_conformance(options),
        Experiment::Soak(options) => run_soak(options),
        Experiment::Bench(options) => bench::run(options).map_err(|error| Failure::Other(error.to_string())),
        Experiment::Origins(options) => run_origins(options),
        Experiment::Disk(options) => run_disk(options),
        Experiment::PowerCuts(options) => run_power_cuts(options),
        Experiment::PowerCutsWork(Inside { root, ledger, seed, load, .. }) => {
            Ledger::read(ledger).and_then(|ledger| inside::work(root, &ledger, *seed, *load))
        }
        Experiment::PowerCutsVerify(Inside { root, name, ledger, seed, .. }) => {
            Ledger::read(ledger).and_then(|ledger| inside::verify(root, name, &ledger, *seed))
        }
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Interrupted) => {
            eprintln!("\nInterrupted: servers stopped, mounts taken down.");
            ExitCode::from(130)
        }
        Err(failure) => {
            eprintln!("\nIt failed. {failure}");
            ExitCode::FAILURE
        }
    }
}
