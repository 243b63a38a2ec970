//! Tests of the tests: each planted bug must be found by the exhaustive cases, which are green
//! without it.
//!
//! `ForgetGeneration` is not among them: the checksum in the map is that of the newest bytes, so
//! bytes of a segment's earlier life fail it whatever the generation. That bug has to be planted
//! in the scan of the tail before it can be shown to be found.

use headpond_engine::Mutation;
use headpond_sim::{mutation_name, quiet_panics, run_exhaustive};

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
