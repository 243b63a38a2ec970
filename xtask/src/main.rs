//! `cargo xtask`: one short command for each habit, the same for people and for CI.
//!
//! Invariant: neither building nor using headpond needs this. It depends on one crate outside the standard library,
//! so that it starts soon on a fresh machine.

mod bench;
mod ci;
mod examples;
mod fuzz;
mod package;
mod pages;
mod report;
mod results;
mod seeds;
mod tidy;
mod tree;

use std::path::PathBuf;
use std::process::{Command, ExitCode};

const HELP: &str = "\
Development commands of headpond.

  cargo xtask ci [--no-sim]     format, lints, documents, tidiness, all tests, the simulator;
                                ends with `N passed, N failed`
  cargo xtask tidy              layers, file length, headers, links, names, leftovers, the index of results
  cargo xtask results [--stale] [--json]   published results, and how many commits changed since what they measure;
                                with --stale only those that are old
  cargo xtask sim [ARGUMENTS]   the simulator (`cargo xtask sim --help` lists its arguments)
  cargo xtask fuzz [ARGUMENTS]  damaged structures and pools against decoding, recovery, `headpond check`
  cargo xtask kill [ARGUMENTS]  databases under load while SIGKILL ends the daemon, again and again
  cargo xtask unseen [ARGUMENTS]  databases, fsx and pjdfstest go on while SIGKILL ends the process that serves
  cargo xtask pulls [ARGUMENTS] databases go on while devices of a pool are pulled and replaced
  cargo xtask hosts [ARGUMENTS] databases go on upon another host while hosts are killed, stopped and cut off; root
  cargo xtask bench [ARGUMENTS] headpond against the raw flash and nbdkit, as ratios
  cargo xtask soak --hours N    fsx, fio and SQLite on one mount, with mode switches, flushes, kills, remounts
  cargo xtask origins [ARGUMENTS]  every kind of origin: full disks, kills, conformance; quotas and NFS in a guest
  cargo xtask power-cuts [ARGUMENTS]  power cuts of a guest whose disks lose what was not flushed
  cargo xtask conformance       fsx for millions of operations, fio with verification, pjdfstest
  cargo xtask conformance --xfstests DIR [TEST]...   xfstests from your checkout
  cargo xtask pages             manual pages and completions for bash, zsh and fish, into target/pages
  cargo xtask package [--program FILE] [--out DIR]   a Debian package and an RPM, into target/package

`cargo xtask COMMAND --help` lists the arguments of sim and the commands below it.
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (command, rest) = match arguments.split_first() {
        Some((command, rest)) => (command.as_str(), rest),
        None => ("help", &[][..]),
    };
    match (command, rest) {
        ("ci", []) => ci::run(ci::Simulator::Run),
        ("ci", [flag]) if flag == "--no-sim" => ci::run(ci::Simulator::Skip),
        ("tidy", []) => run_tidy(),
        ("results", _) => match results::Wanted::from_arguments(rest) {
            Some(wanted) => show_results(wanted),
            None => unknown(&arguments),
        },
        ("sim", _) => run_sim(rest),
        ("fuzz", _) => run_cargo(fuzz::command(rest)),
        ("kill" | "unseen" | "pulls" | "hosts" | "soak" | "conformance" | "origins" | "power-cuts", _) => {
            run_lab(command, rest)
        }
        ("bench", _) => bench::run(rest),
        ("package", _) => told(command, package::run(rest)),
        ("pages", []) => told(command, pages::run()),
        ("help" | "--help" | "-h", _) => {
            print!("{HELP}");
            ExitCode::SUCCESS
        }
        _ => unknown(&arguments),
    }
}

fn unknown(arguments: &[String]) -> ExitCode {
    eprintln!("cargo xtask: unknown command: {}\n\n{HELP}", arguments.join(" "));
    ExitCode::from(2)
}

fn run_tidy() -> ExitCode {
    let found = tidy::check(&tree::root());
    for complaint in &found {
        println!("{complaint}");
    }
    if found.is_empty() {
        println!("tidy: nothing to complain about");
        ExitCode::SUCCESS
    } else {
        println!("tidy: {} complaint(s)", found.len());
        ExitCode::FAILURE
    }
}

fn show_results(wanted: results::Wanted) -> ExitCode {
    match results::list(&tree::root(), wanted) {
        Ok(list) => {
            print!("{list}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the simulator under a profile of its own, which takes longer to build than that of the tests, and less for each
/// history. Both are optimized, with overflow checks and debug assertions. A release build would remove these from the
/// very code under test.
fn run_sim(arguments: &[String]) -> ExitCode {
    let mut command = tree::cargo();
    command.args(["run", "-q", "--profile", "simulator", "--package", "headpond-sim", "--bin", "headpond-sim", "--"]);
    command.args(arguments);
    run_cargo(command)
}

/// Runs an experiment of the lab with release builds: users run these.
fn run_lab(experiment: &str, arguments: &[String]) -> ExitCode {
    let mut build = tree::cargo();
    build.args(["build", "-q", "--release", "--bin", "headpond", "--bin", "headpond-lab"]);
    if !build.status().is_ok_and(|status| status.success()) {
        eprintln!("cargo xtask {experiment}: headpond does not build");
        return ExitCode::FAILURE;
    }
    let mut run = tree::cargo();
    run.args(["run", "-q", "--release", "--bin", "headpond-lab", "--", experiment]).args(arguments);
    run_cargo(run)
}

/// Says what was made, or what failed.
fn told(command: &str, made: Result<PathBuf, String>) -> ExitCode {
    match made {
        Ok(path) => {
            println!("{}", path.display());
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("cargo xtask {command}: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run_cargo(mut command: Command) -> ExitCode {
    match command.status() {
        Ok(status) => ExitCode::from(u8::try_from(status.code().unwrap_or(1)).unwrap_or(1)),
        Err(error) => {
            eprintln!("cargo xtask: starting cargo: {error}");
            ExitCode::FAILURE
        }
    }
}
