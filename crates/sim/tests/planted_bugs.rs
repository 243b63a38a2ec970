//! Tests of the tests: each planted bug must be found, soon.

use headpond_engine::Mutation;
use headpond_sim::{Options, mutation_name, quiet_panics, run_exhaustive, run_seeds};

/// Seeds within which each planted bug must show itself.
const SEEDS: u64 = 100;

fn is_found(mutation: Mutation) {
    quiet_panics();
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    // All sequences of two operations take less than a second, and most bugs show there.
    if let Err(found) = run_exhaustive(2, Some(mutation), cores, &|_, _| {}) {
        return println!("{}: {found}", mutation_name(mutation));
    }
    let options = Options { mutation: Some(mutation), ..Options::default() };
    let findings = run_seeds(0..SEEDS, &options, cores, 1, &|_, _| {});
    let found = findings.failures.first();
    println!("{} after {} seeds: {found:?}", mutation_name(mutation), findings.seeds);
    assert!(found.is_some(), "{} went unnoticed in {SEEDS} seeds", mutation_name(mutation));
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
fn a_forgotten_generation_is_found() {
    is_found(Mutation::ForgetGeneration);
}

#[test]
fn a_replay_out_of_order_is_found() {
    is_found(Mutation::ReplayOutOfOrder);
}
