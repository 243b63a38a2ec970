//! Random histories of operations, faults and crashes: every promise is kept in each of them.

use headpond_sim::{Options, quiet_panics, run_seed, run_seeds};

/// Seeds that once broke a promise, with the operations that were needed. They stay for ever.
const REGRESSIONS: &[(u64, u32)] = &[];

fn keeps_every_promise(seeds: std::ops::Range<u64>, options: &Options) {
    quiet_panics();
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let wanted = seeds.end - seeds.start;
    let findings = run_seeds(seeds, options, cores, 5, &|_, _| {});
    let told: Vec<String> = findings.failures.iter().map(ToString::to_string).collect();
    assert!(told.is_empty(), "{}", told.join("\n\n"));
    assert_eq!(findings.seeds, wanted);
    println!("{} seeds: {}", findings.seeds, findings.total);
    // Runs in which nothing happens would keep every promise, too.
    assert!(findings.total.crashes > wanted && findings.total.flushes > wanted, "{}", findings.total);
    assert!(findings.total.destaged > wanted && findings.total.reclaimed > wanted, "{}", findings.total);
    assert!(findings.total.conflicts > 0, "{}", findings.total);
}

#[test]
fn two_thousand_histories_of_five_hundred_operations_keep_every_promise() {
    keeps_every_promise(0..2000, &Options { ops: 500, ..Options::default() });
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
    let failed: Vec<String> = REGRESSIONS
        .iter()
        .filter_map(|(seed, ops)| headpond_sim::run_caught(*seed, &Options { ops: *ops, ..Options::default() }).err())
        .map(|failure| failure.to_string())
        .collect();
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}
