//! Promises 1 to 3 on real software: what a database's clients saw committed is there after the daemon
//! was killed, and after its flash lost what was not synced; the database's own checks pass.
//!
//! `HEADPOND_KILL_ROUNDS` sets the number of kills of each database, `HEADPOND_KILL_SEED` their moments.

mod machine;

use headpond_lab::database::Database;
use headpond_lab::kill::{self, FlashAtKill, Options};
use headpond_lab::kind::Kind;
use headpond_lab::ledger::Ledgers;
use headpond_lab::mariadb::{self, MariadbSettings, Server};
use tempfile::TempDir;

/// Whether this machine has what a test with that database needs.
fn can_run(kind: Kind) -> bool {
    machine::lacks_nothing(kill::missing(kind))
}

fn scratch() -> TempDir {
    machine::scratch("headpond-kill-")
}

/// Rounds with one database; in every other one, from the first on, the flash loses what was not synced.
fn survives(kind: Kind, rounds: u64) {
    if !can_run(kind) {
        return;
    }
    let _beside = machine::side_by_side();
    let options = Options {
        kind,
        rounds: machine::number("HEADPOND_KILL_ROUNDS", rounds) as u32,
        seed: machine::number("HEADPOND_KILL_SEED", 1),
        flash: FlashAtKill::EveryOtherLoses,
        slow_origin: false,
        short: false,
    };
    let directory = scratch();
    let mut survived = 0;
    let outcome = kill::run(&machine::headpond(), directory.path(), &options, |round| {
        survived += 1;
        println!("round {survived}: {round:?}");
    });
    if let Err(failure) = outcome {
        let kept = directory.keep();
        panic!(
            "after round {survived}, HEADPOND_KILL_SEED={}: {failure}\neverything is kept in {}",
            options.seed,
            kept.display()
        );
    }
    assert_eq!(survived, options.rounds);
}

// The rounds are odd numbers, so that more than half of all lose what was not synced: 13 of 22.

#[test]
fn every_transaction_committed_in_mariadb_survives_kills_of_the_daemon() {
    survives(Kind::Mariadb, 5);
}

#[test]
fn every_transaction_committed_in_postgresql_survives_kills_of_the_daemon() {
    survives(Kind::Postgres, 5);
}

#[test]
fn every_transaction_committed_in_sqlite_with_a_log_survives_kills_of_the_daemon() {
    survives(Kind::SqliteWal, 5);
}

#[test]
fn every_transaction_committed_in_sqlite_with_a_journal_survives_kills_of_the_daemon() {
    survives(Kind::SqliteRollback, 7);
}

/// The control: on a flash that acknowledges syncs and does nothing, the loss must be found. The mount after the kill
/// finds it first: the pool lacks the claim that the origin waits for. Should it have that, the ledgers must show it.
#[test]
fn on_flash_that_lies_about_its_syncs_the_loss_is_found() {
    for kind in [Kind::SqliteWal, Kind::SqliteRollback] {
        if !can_run(kind) {
            return;
        }
        let _beside = machine::side_by_side();
        let options = Options { kind, rounds: 3, seed: 1, flash: FlashAtKill::Lies, slow_origin: false, short: false };
        let directory = scratch();
        let failure =
            kill::run(&machine::headpond(), directory.path(), &options, |_| {}).expect_err("commits were lost");
        let said = failure.to_string();
        let found = ["older image of the pool", "committed transactions are lost"];
        assert!(found.iter().any(|found| said.contains(found)), "{said}");
    }
}

/// The check that the kill test relies on, tried on a database that really lost something.
#[test]
fn a_transaction_that_is_lost_or_half_there_is_found() {
    if !can_run(Kind::Mariadb) {
        return;
    }
    let _beside = machine::side_by_side();
    let directory = scratch();
    let (data, run) = (directory.path().join("mysql"), directory.path().join("run"));
    mariadb::install(&data).expect("a database");
    let settings = MariadbSettings { buffer_pool_mib: 16, redo_log_mib: 16, durable: true, more: Vec::new() };
    let server = Server::start(&data, &run, &settings).expect("it starts");
    server.create_database().expect("a database for the load");
    let ledgers = Ledgers::new(directory.path().to_path_buf(), 2);
    ledgers.create_tables(&server).expect("tables");

    let clients = ledgers.start(&server).expect("clients");
    clients.wait_for(20).expect("commits");
    server.kill();
    let committed = clients.join().expect("ledgers are kept");

    let server = Server::start(&data, &run, &settings).expect("it recovers");
    let found = ledgers.verify(&server).expect("nothing is lost by a kill of the server alone");
    assert_eq!(found.promised as u64, committed);
    // One of the two may have had hardly a turn.
    let busier = "SELECT client FROM journal GROUP BY client ORDER BY COUNT(*) DESC LIMIT 1";
    let busier = Database::sql(&server, busier).expect("the busier client");
    let busier = busier.trim();
    server.sql("UPDATE lab.accounts SET balance = balance + 1 WHERE id = 7").expect("it differs from the journal now");
    assert!(ledgers.verify(&server).expect_err("half").to_string().contains("in part"));
    let delete = format!("DELETE FROM lab.journal WHERE client={busier} AND number=5");
    server.sql(&delete).expect("a transaction is gone now");
    let lost = ledgers.verify(&server).expect_err("lost").to_string();
    assert!(lost.starts_with(&format!("client {busier}")) && lost.ends_with("are lost: 5"), "{lost}");
}
