//! Origins of every kind, the short form of `cargo xtask origins`: full disks, and blocks that others share, on file
//! systems of their own; quotas in a guest.

mod machine;

use headpond_lab::kind::Kind;
use headpond_lab::origins::{self, Options, TriedOrigin};

/// Asks these cases of an origin: each passes, and has something to tell.
fn passes(origin: TriedOrigin, cases: &[&str]) {
    let databases = vec![Kind::SqliteRollback];
    let cases: Vec<String> = cases.iter().map(ToString::to_string).collect();
    if !machine::lacks_nothing(origin.missing(&cases, &databases)) {
        return;
    }
    let _beside = machine::side_by_side();
    let options =
        Options { origins: vec![origin], cases: cases.clone(), kills: 2, databases, fsx_operations: 0, seed: 1 };
    let directory = machine::scratch("headpond-origins-");
    let rows = origins::run(&machine::headpond(), directory.path(), &options, |line| println!("{line}"));
    let rows = rows.expect("they are asked");
    let asked: Vec<_> = rows.iter().map(|row| row.case.as_str()).collect();
    assert_eq!(asked, cases);
    if let Some(wrong) = rows.iter().find_map(|row| row.found.as_ref().err()) {
        panic!("{wrong}\neverything is kept in {}", directory.keep().display());
    }
}

#[test]
fn a_full_ext4_is_told_at_the_write_and_what_was_taken_is_there() {
    passes(TriedOrigin::Ext4, &["full"]);
}

#[test]
fn a_full_ext4_without_extents_is_told_at_the_write_and_what_was_taken_is_there() {
    passes(TriedOrigin::Ext4NoExtents, &["full"]);
}

#[test]
fn a_full_btrfs_is_told_at_the_write_and_what_was_taken_is_there() {
    passes(TriedOrigin::Btrfs, &["full"]);
}

#[test]
fn a_full_tmpfs_is_told_at_the_write_and_what_was_taken_is_there() {
    passes(TriedOrigin::Tmpfs, &["full"]);
}

#[test]
fn a_full_xfs_is_told_at_the_write_and_what_was_taken_is_there() {
    passes(TriedOrigin::Xfs, &["full"]);
}

#[test]
fn quotas_hold_for_who_writes_and_are_told_at_the_write() {
    passes(TriedOrigin::Ext4Quota, &["blocks", "groups", "files"]);
}
