//! Random histories of operations, faults and crashes: every one keeps every promise.
//!
//! A sample of each kind; `./test` runs 2,000 more, from where `crates/sim/seeds.txt` says. A seed that fails is
//! printed with the command that replays it; once repaired, its history is built by hand in
//! `crates/engine/tests/found_by_seeds.rs`, as a seed is another history after the next change of the simulator. Where
//! that cannot be done it joins that file.

use headpond_base::CacheMode;
use headpond_sim::{HistorySums, Options, quiet_panics, run_seed, run_seeds};

/// The seeds that once broke a promise, and must not again, and the range that `./test` runs.
const SEEDS: &str = include_str!("../seeds.txt");

/// A line of them: a seed, and the options of `cargo xtask sim` that matter to it.
fn regression(line: &str) -> Option<(u64, Options)> {
    let mut words = line.split_whitespace();
    let seed = words.next()?.parse().ok()?;
    // Those of before there could be several host segments are what they were with one, and the same of volumes, and of
    // a second tail.
    let mut options = Options {
        ops: 500,
        host_segments: Some(1),
        volumes: Some(false),
        second_tail: Some(false),
        ..Options::default()
    };
    while let Some(word) = words.next() {
        match word {
            "--no-faults" => options.no_faults = true,
            "--forgets" => options.forgets = true,
            "--whole-looks" => options.whole_looks = true,
            "--names" => options.names = true,
            "--members" => options.members = true,
            "--copies" => options.copies = true,
            "--parity" => options.parity = true,
            "--hosts" => options.hosts = true,
            // Newer than all that is said above: those draw it.
            "--upkeep" | "--reuse" | "--kernels" => {
                options.upkeep |= word == "--upkeep";
                options.reuse |= word == "--reuse";
                options.kernels |= word == "--kernels";
                (options.host_segments, options.volumes, options.second_tail) = (None, None, None);
            }
            "--volumes" => options.volumes = Some(words.next()?.parse().ok()?),
            "--second-tail" => options.second_tail = Some(words.next()?.parse().ok()?),
            "--host-segments" => options.host_segments = Some(words.next()?.parse().ok()?),
            "--mode" => options.mode = Some(words.next()?.parse::<CacheMode>().ok()?),
            _ => return None,
        }
    }
    Some((seed, options))
}

fn every_promise_is_kept(seeds: std::ops::Range<u64>, options: &Options) -> HistorySums {
    quiet_panics();
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let wanted = seeds.end - seeds.start;
    let findings = run_seeds(seeds, options, cores, usize::MAX, &|_, _| {});
    let told: Vec<String> = findings.failures.iter().map(ToString::to_string).collect();
    assert!(told.is_empty(), "{}", told.join("\n\n"));
    assert_eq!(findings.seeds, wanted);
    println!("{wanted} seeds: {}", findings.total);
    // Runs in which nothing happens would keep every promise, too.
    assert!(findings.total.crashes > wanted && findings.total.flushes > wanted, "{}", findings.total);
    assert!(findings.total.destaged > wanted && findings.total.reclaimed > wanted, "{}", findings.total);
    assert!(findings.total.conflicts > 0, "{}", findings.total);
    findings.total
}

#[test]
fn histories_in_write_back_with_power_cuts_keep_every_promise() {
    let options = Options { ops: 500, no_faults: true, mode: Some(CacheMode::WriteBack), ..Options::default() };
    every_promise_is_kept(0..300, &options);
}

#[test]
fn histories_with_several_host_segments_open_keep_every_promise() {
    let options = Options { ops: 500, no_faults: true, mode: Some(CacheMode::WriteBack), ..Options::default() };
    for host_segments in 2..=4 {
        let seeds = 1000 * host_segments as u64..1000 * host_segments as u64 + 80;
        let options = Options { host_segments: Some(host_segments), ..options.clone() };
        let total = every_promise_is_kept(seeds, &options);
        // A crash has to leave a batch without the one before it, or nothing is shown.
        assert!(total.gaps >= 5, "{total}");
    }
}

#[test]
fn histories_with_a_volume_among_the_files_keep_every_promise() {
    let options = Options { ops: 500, volumes: Some(true), ..Options::default() };
    every_promise_is_kept(5000..5100, &options);
    every_promise_is_kept(5100..5200, &Options { no_faults: true, mode: Some(CacheMode::WriteBack), ..options });
}

#[test]
fn histories_with_mode_switches_keep_every_promise() {
    every_promise_is_kept(0..250, &Options { ops: 500, no_faults: true, ..Options::default() });
}

#[test]
fn histories_with_failing_devices_keep_every_promise() {
    every_promise_is_kept(0..150, &Options { ops: 500, ..Options::default() });
}

#[test]
fn the_same_seed_is_the_same_history() {
    for seed in [1, 7, 42] {
        let options = Options { ops: 300, ..Options::default() };
        let first = run_seed(seed, &options).map_err(|failure| failure.to_string());
        let second = run_seed(seed, &options).map_err(|failure| failure.to_string());
        assert_eq!(first, second);
        assert!(first.is_err() || first.is_ok_and(|summary| summary.hash != 0));
    }
}

#[test]
fn what_once_broke_a_promise_stays_repaired() {
    quiet_panics();
    let lines = SEEDS.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    let lines: Vec<&str> = lines.filter(|line| !line.is_empty() && !line.starts_with("fresh")).collect();
    assert!(lines.len() >= 10, "regressions are gone: {lines:?}");
    let failed: Vec<String> = lines
        .iter()
        .filter_map(|line| match regression(line) {
            Some((seed, options)) => headpond_sim::run_caught(seed, &options).err().map(|failure| failure.to_string()),
            None => Some(format!("seeds.txt: '{line}' is no seed with options")),
        })
        .collect();
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}
