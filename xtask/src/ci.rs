//! Everything that must hold before a change goes in. The cheapest failures come first.
//!
//! Invariant: every step runs even if an earlier one failed, so that one run says everything. The last line is `N
//! passed, N failed`.

use crate::report::Report;
use crate::seeds::FAMILIES;
use crate::{examples, results, tidy, tree};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// Whether the checks include the long run of the simulator.
#[derive(PartialEq, Eq)]
pub enum Simulator {
    /// The number of seeds that a change must survive.
    Run,
    /// Only the tests of the simulator itself, for a quick look.
    Skip,
}

/// Runs all checks.
pub fn run(simulator: Simulator) -> ExitCode {
    let mut report = Report::default();
    step(&mut report, "format", cargo(&["fmt", "--all", "--", "--check"]));
    check_tidy(&mut report);
    show_stale_results(&mut report);
    step(&mut report, "lints", cargo(&["clippy", "-q", "--workspace", "--all-targets", "--", "-D", "warnings"]));
    let no_lab = ["clippy", "-q", "-p", "headpond", "--no-default-features", "--", "-D", "warnings"];
    step(&mut report, "lints without the lab", cargo(&no_lab));
    let mut documents = cargo(&["doc", "-q", "--workspace", "--no-deps"]);
    documents.env("RUSTDOCFLAGS", "-D warnings");
    step(&mut report, "documents", documents);
    tests(&mut report, &simulator);
    println!("\n{report}");
    if report.ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn cargo(arguments: &[&str]) -> Command {
    let mut command = tree::cargo();
    command.args(arguments);
    command
}

fn heading(name: &str) {
    println!("\n=== {name}");
}

fn step(report: &mut Report, name: &str, mut command: Command) {
    heading(name);
    let start = Instant::now();
    let ok = command.stdin(Stdio::null()).status().is_ok_and(|status| status.success());
    report.step(name, ok, start.elapsed());
}

/// Runs the seeds of `crates/sim/seeds.txt`. For a longer range: `cargo xtask sim --seeds FROM..TO`.
fn simulate(report: &mut Report) {
    for family in &FAMILIES {
        match family.range(&tree::root()) {
            Ok(range) => {
                let mut command = built_simulator();
                command.args(["--seeds", &range]).args(family.options);
                step(report, family.name, command);
            }
            Err(why) => {
                heading(family.name);
                println!("{why}");
                report.step(family.name, false, Duration::ZERO);
            }
        }
    }
}

/// The simulator as the tests were built with it. By itself it would be built once more: what is built along with the
/// lab has other features of the libraries below.
fn built_simulator() -> Command {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| tree::root().join("target"), PathBuf::from);
    let mut command = Command::new(target.join("debug/headpond-sim"));
    command.current_dir(tree::root());
    command
}

fn check_tidy(report: &mut Report) {
    heading("tidy");
    let start = Instant::now();
    let found = tidy::check(&tree::root());
    found.iter().for_each(|complaint| println!("{complaint}"));
    report.step("tidy", found.is_empty(), start.elapsed());
}

/// Shows which published results are old. That is no failure: they are made anew on a machine alone, and not for each
/// change. What fails is an index that does not fit the tree.
fn show_stale_results(report: &mut Report) {
    heading("results that are old");
    let start = Instant::now();
    let list = results::list(&tree::root(), results::Wanted { stale_only: true, json: false });
    println!("{}", list.as_ref().unwrap_or_else(|why| why).trim_end());
    report.step("results", list.is_ok(), start.elapsed());
}

/// Runs all tests, in two lanes beside each other: those of the lab mostly wait, for disks, databases and time; the others,
/// and the simulator, compute. The lab's output comes at its end. Cargo builds everything first, as tests of one crate start
/// the program of another.
///
/// Tests are chosen by their names within the whole workspace. With some crates alone, cargo would build the libraries
/// below with other features, once more.
fn tests(report: &mut Report, simulator: &Simulator) {
    heading("tests");
    step(report, "tests are built", cargo(&["test", "-q", "--workspace", "--no-run"]));
    let (lab, others) = integration_tests();
    let lane = |targets: &[&str], names: &[String]| {
        let mut command = cargo(&["test", "--workspace", "--no-fail-fast"]);
        command.args(targets).args(names.iter().flat_map(|name| ["--test", name]));
        command
    };
    let slow = lane(&[], &lab);
    let slow = std::thread::spawn(move || run_tests(slow, |_| ()));
    let quick = run_tests(lane(&["--lib", "--bins"], &others), |line| println!("{line}"));
    quick.tell(report, "tests");
    // To find out that there are none takes cargo minutes.
    if examples::are_there(&tree::root()) {
        run_tests(cargo(&["test", "--workspace", "--doc"]), |line| println!("{line}")).tell(report, "examples");
    }
    if *simulator == Simulator::Run {
        simulate(report);
    }
    heading("tests of the lab");
    let slow = slow.join().unwrap_or_default();
    println!("{}", slow.output);
    slow.tell(report, "tests of the lab");
}

/// The names of the integration tests: of the lab, and of all others. A name that both have is run with the lab's.
fn integration_tests() -> (Vec<String>, Vec<String>) {
    let of = |krate: &Path| -> BTreeSet<String> {
        let entries = std::fs::read_dir(krate.join("tests")).into_iter().flatten().flatten();
        let name = |path: PathBuf| {
            let is_test = path.extension().is_some_and(|end| end == "rs") || path.join("main.rs").is_file();
            path.file_stem().filter(|_| is_test).map(|name| name.to_string_lossy().into_owned())
        };
        entries.filter_map(|entry| name(entry.path())).collect()
    };
    let crates = tree::root().join("crates");
    let lab = of(&crates.join("lab"));
    let all = std::fs::read_dir(&crates).into_iter().flatten().flatten().flat_map(|krate| of(&krate.path()));
    let others: BTreeSet<String> = all.filter(|name| !lab.contains(name)).collect();
    (lab.into_iter().collect(), others.into_iter().collect())
}

/// What a run of tests came to.
#[derive(Default)]
struct Ran {
    output: String,
    ok: bool,
    took: Duration,
}

impl Ran {
    fn tell(&self, report: &mut Report, name: &str) {
        report.tests(name, &self.output, self.ok, self.took);
    }
}

fn run_tests(mut command: Command, each: impl Fn(&str)) -> Ran {
    let start = Instant::now();
    let mut ran = Ran::default();
    match command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn() {
        Ok(mut child) => {
            let lines = child.stdout.take().map(|pipe| BufReader::new(pipe).lines());
            for line in lines.into_iter().flatten().map_while(Result::ok) {
                each(&line);
                ran.output.push_str(&line);
                ran.output.push('\n');
            }
            ran.ok = child.wait().is_ok_and(|status| status.success());
        }
        Err(error) => println!("starting cargo: {error}"),
    }
    ran.took = start.elapsed();
    ran
}
