//! Promise 3 on real servers that rely on it: MariaDB, which finds out by itself that writes are whole and writes each
//! page once, and PostgreSQL with `full_page_writes=off`, under load, with the daemon killed and the flash's unsynced
//! writes dropped or torn. The server starts, its checks pass, no committed transaction is missing.
//!
//! And the control that shows that these tests can fail: a recovery that accepts torn records breaks both.
//!
//! `HEADPOND_UNTORN_ROUNDS` sets the number of kills of each, `HEADPOND_TORN_ROUNDS` those of the control,
//! `HEADPOND_KILL_SEED` their moments.

mod machine;

use headpond_lab::database::{Database, Pages};
use headpond_lab::kill::{self, FlashAtKill, Options};
use headpond_lab::kind::Kind;
use headpond_lab::mariadb::{MariadbSettings, Server};
use headpond_lab::torn::{self, Breakage, Round};
use tempfile::TempDir;

/// Whether this machine has what a test with that database needs.
fn can_run(kind: Kind) -> bool {
    machine::lacks_nothing(kill::missing(kind))
}

fn scratch() -> TempDir {
    machine::scratch("headpond-untorn-")
}

fn options(kind: Kind, flash: FlashAtKill, rounds: u64) -> Options {
    let seed = machine::number("HEADPOND_KILL_SEED", 1);
    Options { kind, rounds: rounds as u32, seed, flash, slow_origin: false, short: true }
}

/// Rounds that all lose what was not synced. Returns what the server had written in all of them.
fn survives(kind: Kind) -> Pages {
    let options = options(kind, FlashAtKill::LosesUnsynced, machine::number("HEADPOND_UNTORN_ROUNDS", 18));
    let directory = scratch();
    let (mut survived, mut all) = (0, Pages::default());
    let outcome = kill::run(&machine::headpond(), directory.path(), &options, |round| {
        survived += 1;
        println!("round {survived}: {round:?}");
        let pages = round.pages.unwrap_or_default();
        all = Pages { written: all.written + pages.written, copies: all.copies + pages.copies };
    });
    if let Err(failure) = outcome {
        let kept = directory.keep();
        panic!("after round {survived}, seed {}: {failure}\neverything is kept in {}", options.seed, kept.display());
    }
    assert_eq!(survived, options.rounds);
    all
}

#[test]
fn mariadb_that_writes_each_page_once_survives_kills_and_torn_flash_writes() {
    if !can_run(Kind::MariadbWhole) {
        return;
    }
    let _beside = machine::side_by_side();
    let pages = survives(Kind::MariadbWhole);
    assert!(pages.written > 1000, "otherwise nothing could have been torn: {pages:?}");
    assert_eq!(pages.copies, 0, "pages written through the doublewrite: {pages:?}");
}

#[test]
fn postgresql_without_whole_pages_in_its_log_survives_kills_and_torn_flash_writes() {
    if !can_run(Kind::PostgresWhole) {
        return;
    }
    let _beside = machine::side_by_side();
    survives(Kind::PostgresWhole);
}

/// Elsewhere the same server, with the same marker, goes on with its doublewrite.
#[test]
fn where_nobody_promises_whole_writes_mariadb_goes_on_with_its_doublewrite() {
    if !can_run(Kind::MariadbWhole) {
        return;
    }
    let _beside = machine::side_by_side();
    let directory = scratch();
    let (data, run) = (directory.path().join("mysql"), directory.path().join("run"));
    headpond_lab::mariadb::install(&data).expect("a database");
    let server = Server::start_that_asks(&data, &run, &MariadbSettings::SMALL).expect("it starts");
    server.create_database().expect("a database for the load");
    Database::fill(&server).expect("tables");
    // A page that is new in its file needs no copy: these are there, and are written once more before that ends.
    let again = "UPDATE sbtest1 SET k = k + 1; FLUSH TABLES sbtest1 FOR EXPORT; UNLOCK TABLES";
    Database::sql(&server, again).expect("its pages are written");
    let pages = server.pages().expect("it counts").expect("it is on trial");
    assert!(pages.copies > 100 && pages.copies <= pages.written, "{pages:?}");
    server.stop().expect("it stops");
}

/// Kills of the control that its test is satisfied with.
const TORN_ROUNDS: u64 = 3;

/// Kills in the middle of a change of every page, with or without a recovery that takes torn records for whole.
fn torn(kind: Kind, accepts_torn: bool) -> Vec<Round> {
    let seed = machine::number("HEADPOND_KILL_SEED", 1);
    let rounds = machine::number("HEADPOND_TORN_ROUNDS", TORN_ROUNDS) as u32;
    let options = torn::Options { kind, rounds, seed, accepts_torn };
    let directory = scratch();
    let mut rounds = Vec::new();
    let outcome = torn::run(&machine::headpond(), directory.path(), &options, |round| {
        println!("{}, accepts torn: {accepts_torn}: {round:?}", kind.name());
        rounds.push(round.clone());
    });
    if let Err(failure) = outcome {
        let kept = directory.keep();
        panic!("after {} rounds, seed {seed}: {failure}\neverything is kept in {}", rounds.len(), kept.display());
    }
    rounds
}

/// With the recovery that users get nothing breaks, though records were torn; with the other one a page is found to be
/// broken.
fn torn_records_break_it_only_if_they_are_accepted(kind: Kind) -> Breakage {
    let sound = torn(kind, false);
    for round in &sound {
        assert!(round.damage.is_none(), "{round:?}");
        assert_eq!(round.pages.unwrap_or_default().copies, 0, "{round:?}");
    }
    assert!(sound.iter().any(|round| round.dropped_batches > 0), "nothing was torn: {sound:?}");
    let broken = torn(kind, true);
    let last = broken.last().and_then(|round| round.damage.clone());
    last.unwrap_or_else(|| panic!("nothing came of torn records: {broken:?}"))
}

#[test]
fn a_recovery_that_accepts_torn_records_breaks_mariadb_and_headponds_does_not() {
    if !can_run(Kind::MariadbWhole) {
        return;
    }
    let _beside = machine::side_by_side();
    let damage = torn_records_break_it_only_if_they_are_accepted(Kind::MariadbWhole);
    assert!(damage.page.is_some(), "the server tells of a damaged page: {damage:?}");
}

#[test]
fn a_recovery_that_accepts_torn_records_breaks_postgresql_and_headponds_does_not() {
    if !can_run(Kind::PostgresWhole) {
        return;
    }
    let _beside = machine::side_by_side();
    let damage = torn_records_break_it_only_if_they_are_accepted(Kind::PostgresWhole);
    assert!(damage.page.is_some(), "the server tells of a damaged page: {damage:?}");
}
