//! Tests of the tests: each planted bug must be found by the exhaustive cases, which are green
//! without it.
//!
//! Two must be found by the random ones, because they take longer histories than those: `ForgetGeneration` shows
//! only where segments are used again, `KeepMemoryWindow` where a block that was read is changed and its slot is gone.

use headpond_base::CacheMode;
use headpond_engine::Mutation;
use headpond_sim::{Options, mutation_name, quiet_panics, run_exhaustive, run_seeds};

/// All sequences of up to this many operations.
const DEPTH: u32 = 3;

fn is_found(mutation: Mutation) {
    quiet_panics();
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let found = run_exhaustive(DEPTH, Some(mutation), cores, &|_, _| {}).err();
    assert!(found.is_some(), "{} went unnoticed", mutation_name(mutation));
}

#[test]
fn a_skipped_sync_is_found() {
    is_found(Mutation::SkipSync);
}

#[test]
fn an_accepted_torn_batch_is_found() {
    is_found(Mutation::AcceptTornBatch);
}

#[test]
fn blocks_counted_clean_before_the_origins_sync_are_found() {
    is_found(Mutation::CleanBeforeOriginSync);
}

#[test]
fn a_replay_out_of_order_is_found() {
    is_found(Mutation::ReplayOutOfOrder);
}

/// Histories in this mode find it, each of which keeps every promise without it: see random_histories.rs.
fn histories_find(mutation: Mutation, mode: Option<CacheMode>) {
    quiet_panics();
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let planted = Options { mutation: Some(mutation), no_faults: true, mode, ..Options::default() };
    let findings = run_seeds(0..40, &planted, cores, 1, &|_, _| {});
    assert!(!findings.failures.is_empty(), "went unnoticed in {} histories", findings.seeds);
    let sound = Options { mutation: None, ..planted };
    for failure in findings.failures {
        assert!(run_seeds(failure.seed..failure.seed + 1, &sound, 1, 1, &|_, _| {}).failures.is_empty(), "{failure}");
    }
}

#[test]
fn segments_whose_lives_are_not_told_apart_are_found() {
    histories_find(Mutation::ForgetGeneration, Some(CacheMode::WriteBack));
}

#[test]
fn blocks_that_stay_in_memory_when_they_are_changed_are_found() {
    histories_find(Mutation::KeepMemoryWindow, Some(CacheMode::WriteBack));
    histories_find(Mutation::KeepMemoryWindow, Some(CacheMode::WriteAround));
}
