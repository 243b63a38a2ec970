//! Histories of hosts that own one pool in turn, and tests of them: each bug that is planted there must be found, and no
//! history breaks a promise without one.

use std::ops::Range;

use headpond_sim::{Options, PlantedHosts, quiet_panics, run_seed, run_seeds};

/// These histories are enough to find any of the planted bugs.
const SEEDS: Range<u64> = 410_000_000..410_020_000;

/// The first seed for a bug: those before are known to miss it. To search through them all would take most of the test's
/// minutes.
const fn first_for(planted: PlantedHosts) -> u64 {
    match planted {
        PlantedHosts::GapAccepted => SEEDS.start + 6_600,
        PlantedHosts::LeaseFromAnswer | PlantedHosts::TellsUnsynced | PlantedHosts::LeavesDiffering => {
            SEEDS.start + 1_200
        }
        PlantedHosts::FollowsAgain => SEEDS.start + 400,
        _ => SEEDS.start,
    }
}

fn options(planted_hosts: Option<PlantedHosts>) -> Options {
    Options { hosts: true, planted_hosts, ..Options::default() }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

#[test]
fn each_bug_planted_between_hosts_is_found() {
    quiet_panics();
    for (name, planted) in PlantedHosts::ALL {
        let seeds = first_for(planted)..SEEDS.end;
        let findings = run_seeds(seeds, &options(Some(planted)), cores(), 1, &|_, _| {});
        assert!(!findings.failures.is_empty(), "{name} went unnoticed in {} histories", findings.seeds);
        for failure in findings.failures {
            let sound = run_seed(failure.seed, &options(None));
            assert!(sound.is_ok(), "without the planted bug, too: {failure}");
        }
    }
}

#[test]
fn histories_of_hosts_keep_every_promise() {
    quiet_panics();
    let findings = run_seeds(20_000..20_400, &options(None), cores(), usize::MAX, &|_, _| {});
    let told: Vec<String> = findings.failures.iter().map(ToString::to_string).collect();
    assert!(told.is_empty(), "{}", told.join("\n\n"));
    // Histories in which nothing happens would keep every promise, too.
    let total = findings.total;
    assert!(total.ops > 20_000 && total.destaged > 20_000 && total.crashes > 1000, "{total}");
    assert!(total.takeovers > 100 && total.recoveries > 500 && total.lists > 500, "{total}");
    assert!(total.drains > 20, "hardly any copy is let go: {total}");
    assert!(total.stops > 200, "in few histories somebody goes on at the end: {total}");
}

#[test]
fn the_same_seed_is_the_same_history_of_hosts() {
    for seed in [1, 7, 42] {
        let [first, second] = [(); 2].map(|()| run_seed(seed, &options(None)).map_err(|failure| failure.to_string()));
        assert_eq!(first, second);
        assert!(first.is_ok_and(|summary| summary.hash != 0));
    }
}
