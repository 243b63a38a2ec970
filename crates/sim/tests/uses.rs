//! Histories of uses, and tests of them: each bug that is planted there must be found, and no history breaks a promise
//! without one.

use headpond_sim::{Options, PlantedUse, quiet_panics, run_seeds};

fn options(planted_use: Option<PlantedUse>) -> Options {
    Options { uses: true, planted_use, ..Options::default() }
}

#[test]
fn each_bug_planted_in_the_uses_of_pools_is_found() {
    quiet_panics();
    for planted in PlantedUse::ALL {
        let findings = run_seeds(0..20_000, &options(Some(planted)), 1, 1, &|_, _| {});
        assert!(!findings.failures.is_empty(), "{planted:?} went unnoticed in {} histories", findings.seeds);
    }
}

#[test]
fn histories_of_uses_keep_every_promise() {
    quiet_panics();
    let findings = run_seeds(0..20_000, &options(None), 1, usize::MAX, &|_, _| {});
    let told: Vec<String> = findings.failures.iter().map(ToString::to_string).collect();
    assert!(told.is_empty(), "{}", told.join("\n\n"));
    let total = findings.total;
    let happens = [total.crashes, total.stops, total.recoveries, total.conflicts, total.flushes];
    assert!(happens.iter().all(|count| *count > 20_000), "little happens: {total}");
}
