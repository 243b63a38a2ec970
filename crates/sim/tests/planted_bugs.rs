//! Tests of the tests: each planted bug must be found by the exhaustive cases, which are green
//! without it.
//!
//! Some must be found by the random ones: `ForgetGeneration` shows only where segments are used again, `ForgetChain`
//! where several writes are lost at once, `KeepMemoryWindow` where a block that was read is changed and its slot is
//! gone, `CleanWrittenZeros` where a write comes while a range is on its way to the origin.

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

/// Histories in write-back without other faults.
fn planted(mutation: Mutation) -> Options {
    Options { mutation: Some(mutation), no_faults: true, mode: Some(CacheMode::WriteBack), ..Options::default() }
}

/// Histories find it, each of which keeps every promise without it: see random_histories.rs.
fn is_found_by(planted: &Options) {
    quiet_panics();
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let findings = run_seeds(0..100, planted, cores, 1, &|_, _| {});
    assert!(!findings.failures.is_empty(), "went unnoticed in {} histories: {planted:?}", findings.seeds);
    let sound = Options { mutation: None, ..planted.clone() };
    for failure in findings.failures {
        assert!(run_seeds(failure.seed..failure.seed + 1, &sound, 1, 1, &|_, _| {}).failures.is_empty(), "{failure}");
    }
}

#[test]
fn segments_whose_lives_are_not_told_apart_are_found() {
    is_found_by(&planted(Mutation::ForgetGeneration));
}

#[test]
fn a_gap_in_the_order_of_changes_is_found() {
    // Histories with large writes, of which a power cut loses several at once.
    is_found_by(&Options { untorn: true, ..planted(Mutation::ForgetChain) });
}

#[test]
fn blocks_that_stay_in_memory_when_they_are_changed_are_found() {
    is_found_by(&planted(Mutation::KeepMemoryWindow));
    is_found_by(&Options { mode: Some(CacheMode::WriteAround), ..planted(Mutation::KeepMemoryWindow) });
}

#[test]
fn zeros_that_count_as_clean_with_what_was_written_into_them_are_found() {
    is_found_by(&planted(Mutation::CleanWrittenZeros));
}

/// Histories with several host segments open.
fn with_several_segments(mutation: Mutation) -> Options {
    Options { host_segments: Some(4), ..planted(mutation) }
}

#[test]
fn a_sync_that_waits_for_the_writes_of_one_segment_is_found() {
    is_found_by(&with_several_segments(Mutation::SyncOneSegment));
}

#[test]
fn a_recovery_that_follows_each_segment_by_itself_is_found() {
    is_found_by(&Options { untorn: true, ..with_several_segments(Mutation::ChainBySegment) });
}

#[test]
fn a_volume_whose_witness_is_not_compared_is_found() {
    is_found_by(&Options { volumes: Some(true), ..planted(Mutation::BelieveVolumes) });
}
