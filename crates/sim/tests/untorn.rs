//! Promise 3: every write request of up to a mebibyte is old or new as a whole after any crash, and so are several
//! writes that were asked for as one.
//!
//! Aligned and not, overlapping, larger than what is left of a segment; with device writes dropped, reordered, and torn
//! at 512 bytes. And the test of the test: recovery that takes torn batches is found by it, and so is an engine that
//! makes several batches of what was asked for as one.

use headpond_engine::Mutation;
use headpond_sim::{Options, quiet_panics, run_seeds};

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

#[test]
fn every_write_of_up_to_a_mebibyte_is_old_or_new_as_a_whole_after_any_crash() {
    quiet_panics();
    let options = Options { ops: 120, no_faults: true, untorn: true, ..Options::default() };
    let findings = run_seeds(0..40, &options, cores(), usize::MAX, &|_, _| {});
    let told: Vec<String> = findings.failures.iter().map(ToString::to_string).collect();
    assert!(told.is_empty(), "{}", told.join("\n\n"));
    println!("{} seeds: {}", findings.seeds, findings.total);
    // Runs in which nothing can be torn, or everything fits its segment, would show nothing.
    let total = findings.total;
    assert!(total.crashes > 600 && total.at_risk > 2 * total.crashes, "{total}");
    assert!(total.segments > 800, "{total}");
}

#[test]
fn so_it_is_with_several_host_segments_open() {
    quiet_panics();
    for host_segments in 2..=4 {
        let host_segments = Some(host_segments);
        let options = Options { ops: 120, no_faults: true, untorn: true, host_segments, ..Options::default() };
        let findings = run_seeds(100..115, &options, cores(), usize::MAX, &|_, _| {});
        let told: Vec<String> = findings.failures.iter().map(ToString::to_string).collect();
        assert!(told.is_empty(), "{}", told.join("\n\n"));
        // A crash has to leave a batch without the one before it, or nothing is shown.
        assert!(findings.total.gaps > 5, "{}", findings.total);
    }
}

/// Runs until the planted bug shows.
fn is_found(mutation: Mutation) {
    quiet_panics();
    let options = Options { ops: 120, no_faults: true, untorn: true, mutation: Some(mutation), ..Options::default() };
    let findings = run_seeds(0..100, &options, cores(), 1, &|_, _| {});
    assert!(!findings.failures.is_empty(), "went unnoticed in {} histories", findings.seeds);
}

#[test]
fn recovery_that_takes_torn_batches_is_found_by_it() {
    is_found(Mutation::AcceptTornBatch);
}

#[test]
fn writes_that_are_one_and_are_split_are_found_by_it() {
    is_found(Mutation::SplitTogether);
}
