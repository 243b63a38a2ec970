//! Histories of members: pools of up to five devices that are lost, come back, and are added and removed.
//!
//! A sample; `./test` runs 2,400 more, from where `crates/sim/seeds.txt` says. And bugs that are planted in what only such
//! pools do: each must be found.

use std::ops::Range;

use headpond_engine::Mutation;
use headpond_sim::{Options, mutation_name, quiet_panics, run_caught, run_seed, run_seeds};

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Histories without other faults.
fn planted(mutation: Option<Mutation>) -> Options {
    Options { members: true, no_faults: true, mutation, ..Options::default() }
}

/// A history finds it that keeps every promise without it.
fn is_found(mutation: Mutation) {
    is_found_in(mutation, planted(None));
}

/// The same among histories of pools that make rows with a parity.
fn is_found_in_rows(mutation: Mutation) {
    is_found_in(mutation, Options { parity: true, ..planted(None) });
}

fn is_found_in(mutation: Mutation, sound: Options) {
    is_found_among(0..1200, mutation, sound);
}

fn is_found_among(mut seeds: Range<u64>, mutation: Mutation, sound: Options) {
    quiet_panics();
    let bug = Options { mutation: Some(mutation), ..sound.clone() };
    let finds = |seed: u64| run_caught(seed, &bug).is_err() && run_caught(seed, &sound).is_ok();
    let all = seeds.end - seeds.start;
    assert!(seeds.any(finds), "{} went unnoticed in {all} histories", mutation_name(mutation));
}

#[test]
fn a_sync_that_is_answered_by_the_first_of_several_members_is_found() {
    is_found(Mutation::SyncOneDevice);
}

#[test]
fn a_sync_that_is_answered_after_one_of_two_copies_is_found() {
    is_found(Mutation::OneCopySync);
}

#[test]
fn an_old_member_that_is_believed_is_found() {
    is_found(Mutation::BelieveOldMember);
}

#[test]
fn copies_made_anew_without_what_was_written_meanwhile_are_found() {
    is_found(Mutation::RebuildSkips);
}

#[test]
fn a_pool_that_goes_on_after_a_loss_without_telling_is_found() {
    is_found(Mutation::LossUntold);
}

#[test]
fn syncs_of_what_has_fewer_copies_than_a_superblock_says_are_found() {
    // One history in thousands shows it: a crash between the first such sync and the next superblock.
    is_found_among(2300..3500, Mutation::CopiesUntold, Options { upkeep: true, ..planted(None) });
}

#[test]
fn a_sync_that_waits_for_no_peer_is_found() {
    is_found_in(Mutation::HereForAll, Options { copies: true, ..planted(None) });
}

#[test]
fn a_start_without_members_that_may_have_more_is_found() {
    is_found_in(Mutation::StartWithFewer, Options { copies: true, ..planted(None) });
}

#[test]
fn a_segment_of_a_row_that_is_filled_again_while_others_need_the_parity_is_found() {
    is_found_in_rows(Mutation::RowOpenedAgain);
}

#[test]
fn copies_that_are_given_up_before_a_checkpoint_names_their_row_are_found() {
    is_found_in_rows(Mutation::CopiesGoEarly);
}

#[test]
fn a_row_that_lost_a_place_and_counts_as_whole_is_found() {
    is_found_in_rows(Mutation::RebuildSkipsRows);
}

#[test]
fn histories_of_rows_keep_every_promise() {
    quiet_panics();
    let options = Options { members: true, parity: true, upkeep: true, ..Options::default() };
    let findings = run_seeds(2100..2250, &options, cores(), usize::MAX, &|_, _| {});
    let told: Vec<String> = findings.failures.iter().map(ToString::to_string).collect();
    assert!(told.is_empty(), "{}", told.join("\n\n"));
    let total = findings.total;
    assert!(total.rows > 50 && total.row_reads > 50 && total.losses > 100 && total.repairs > 50, "{total}");
}

#[test]
fn histories_of_members_keep_every_promise() {
    quiet_panics();
    let options = Options { members: true, ..Options::default() };
    let findings = run_seeds(2100..2250, &options, cores(), usize::MAX, &|_, _| {});
    let told: Vec<String> = findings.failures.iter().map(ToString::to_string).collect();
    assert!(told.is_empty(), "{}", told.join("\n\n"));
    // Histories in which nothing happens would keep every promise, too.
    let total = findings.total;
    assert!(total.crashes > 500 && total.losses > 100 && total.repairs > 50 && total.lists > 200, "{total}");
}

#[test]
fn the_same_seed_is_the_same_history_of_members() {
    let options = Options { members: true, ..Options::default() };
    for seed in [1, 7, 42] {
        let [first, second] = [(); 2].map(|()| run_seed(seed, &options).map_err(|failure| failure.to_string()));
        assert_eq!(first, second);
        assert!(first.is_ok_and(|summary| summary.hash != 0));
    }
}
