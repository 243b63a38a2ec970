//! Histories of names, and tests of them: each bug that is planted in the name layer's world must be found, and no
//! history breaks a promise without one.

use headpond_sim::{Options, Planted, quiet_panics, run_seed, run_seeds};

/// So many histories are enough to find any of the planted bugs.
const SEEDS: u64 = 4000;

fn options(planted: Option<Planted>) -> Options {
    Options { names: true, planted, ..Options::default() }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

fn is_found(planted: Planted) {
    quiet_panics();
    let findings = run_seeds(0..SEEDS, &options(Some(planted)), cores(), 1, &|_, _| {});
    assert!(!findings.failures.is_empty(), "{} went unnoticed in {} histories", planted.name(), findings.seeds);
    for failure in findings.failures {
        let sound = run_seed(failure.seed, &options(None));
        assert!(sound.is_ok(), "without the planted bug, too: {failure}");
    }
}

#[test]
fn each_bug_planted_in_the_world_of_the_name_layer_is_found() {
    Planted::ALL.into_iter().for_each(|(_, planted)| is_found(planted));
}

#[test]
fn histories_of_names_keep_every_promise() {
    quiet_panics();
    let findings = run_seeds(1000..1100, &options(None), cores(), usize::MAX, &|_, _| {});
    let told: Vec<String> = findings.failures.iter().map(ToString::to_string).collect();
    assert!(told.is_empty(), "{}", told.join("\n\n"));
    // Histories in which nothing happens would keep every promise, too.
    let total = findings.total;
    assert!(total.crashes > 200 && total.stops > 100 && total.at_risk > 200 && total.destaged > 1000, "{total}");
}

#[test]
fn the_same_seed_is_the_same_history_of_names() {
    for seed in [1, 7, 42] {
        let [first, second] = [(); 2].map(|()| run_seed(seed, &options(None)).map_err(|failure| failure.to_string()));
        assert_eq!(first, second);
        assert!(first.is_ok_and(|summary| summary.hash != 0));
    }
}
