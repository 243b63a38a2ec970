//! Promise 11: what was acknowledged outlives the daemon, synced or not, while the memory of its second tail stays.
//!
//! The daemon dies between effects and between any two stores, also while its successor does again what was left. And
//! the tests of the test: a log that publishes late or in part or frees a slot early is found, and so is an engine that
//! answers what no slot has.

use headpond_base::CacheMode;
use headpond_engine::Mutation;
use headpond_sim::{HistorySums, Options, quiet_panics, run_seeds};

/// Histories in write-back without other faults.
fn options() -> Options {
    Options { no_faults: true, mode: Some(CacheMode::WriteBack), second_tail: Some(true), ..Options::default() }
}

/// Histories of large writes, and of several writes as one.
fn untorn() -> Options {
    Options { ops: 120, no_faults: true, untorn: true, second_tail: Some(true), ..Options::default() }
}

fn run(seeds: std::ops::Range<u64>, options: &Options, most_failures: usize) -> (HistorySums, Vec<String>) {
    quiet_panics();
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let findings = run_seeds(seeds, options, cores, most_failures, &|_, _| {});
    println!("{} seeds: {}", findings.seeds, findings.total);
    (findings.total, findings.failures.iter().map(ToString::to_string).collect())
}

#[test]
fn every_change_that_was_acknowledged_outlives_the_daemon() {
    let (total, failures) = run(0..150, &options(), usize::MAX);
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    // Runs in which memory has nothing that flash has not would show nothing.
    assert!(total.takeovers > 150, "{total}");
}

#[test]
fn large_writes_and_several_as_one_outlive_it_whole() {
    let (total, failures) = run(0..40, &untorn(), usize::MAX);
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    assert!(total.takeovers > 40, "{total}");
}

fn is_found(mutation: Mutation, options: Options) {
    let (total, failures) = run(0..150, &Options { mutation: Some(mutation), ..options }, 1);
    assert!(!failures.is_empty(), "went unnoticed: {total}");
}

#[test]
fn a_log_that_publishes_after_the_answer_is_found() {
    is_found(Mutation::PublishLate, options());
}

#[test]
fn a_log_that_publishes_a_part_of_several_writes_that_are_one_is_found() {
    is_found(Mutation::PublishInPart, untorn());
}

#[test]
fn a_slot_that_is_freed_before_its_batch_is_written_is_found() {
    is_found(Mutation::FreeSlotEarly, options());
}

#[test]
fn an_answer_that_does_not_wait_for_a_batch_without_a_slot_is_found() {
    is_found(Mutation::AnswerUncovered, untorn());
}
