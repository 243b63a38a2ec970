//! Promise 1 on real software: what a database's clients saw committed is there after the daemon
//! was killed.
//!
//! `HEADPOND_KILL_ROUNDS` sets the number of kills, `HEADPOND_KILL_SEED` their moments.

use headpond_lab::kill::{self, Options};
use headpond_lab::ledger::Ledgers;
use headpond_lab::mariadb::{self, Server, Settings};
use headpond_lab::pond::Headpond;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

/// Set where every test must run: what a test lacks is a failure then.
const ALL: &str = "HEADPOND_TEST_ALL";

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().expect("a number"))
}

/// Builds the program of this very source tree, so that no older one is on trial.
fn headpond() -> Headpond {
    let built =
        Command::new(env!("CARGO")).args(["build", "-q", "--package", "headpond", "--bin", "headpond"]).status();
    assert!(built.expect("cargo runs").success(), "headpond does not build");
    let target: PathBuf = std::env::current_exe().expect("a test has a path");
    let profile = target.parent().and_then(|deps| deps.parent()).expect("target/PROFILE/deps/TEST");
    Headpond::at(profile.join("headpond"))
}

/// Whether this machine has what the tests below need.
fn can_run() -> bool {
    let Some(missing) = kill::missing() else { return true };
    assert!(std::env::var_os(ALL).is_none(), "missing: {missing}");
    eprintln!("left out, for this machine lacks: {missing}");
    false
}

fn scratch() -> TempDir {
    let directory = tempfile::Builder::new().prefix("headpond-kill-").tempdir_in("/var/tmp").expect("a directory");
    fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).expect("its owner may");
    directory
}

#[test]
fn every_committed_transaction_survives_kills_of_the_daemon() {
    if !can_run() {
        return;
    }
    let options = Options { rounds: number("HEADPOND_KILL_ROUNDS", 3) as u32, seed: number("HEADPOND_KILL_SEED", 1) };
    let directory = scratch();
    let mut rounds = 0;
    let outcome = kill::run(&headpond(), directory.path(), &options, |round| {
        rounds += 1;
        println!("round {rounds}: {round:?}");
    });
    if let Err(failure) = outcome {
        let kept = directory.keep();
        panic!(
            "round {}, HEADPOND_KILL_SEED={}: {failure}\neverything is kept in {}",
            rounds + 1,
            options.seed,
            kept.display()
        );
    }
    assert_eq!(rounds, options.rounds);
}

/// The check that the kill test relies on, tried on a database that really lost something.
#[test]
fn a_transaction_that_is_lost_or_half_there_is_found() {
    if !can_run() {
        return;
    }
    let directory = scratch();
    let (data, run) = (directory.path().join("mysql"), directory.path().join("run"));
    mariadb::install(&data).expect("a database");
    let settings = Settings { buffer_pool_mib: 16, redo_log_mib: 16, durable: true };
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
    let last = "(SELECT MAX(number) FROM (SELECT number FROM lab.journal WHERE client=1) AS j)";
    let half = format!("UPDATE lab.accounts SET balance = balance + 1 WHERE id = {last} % 200");
    server.sql(&half).expect("an account differs from the journal now");
    assert!(ledgers.verify(&server).expect_err("half").to_string().contains("in part"));
    server.sql("DELETE FROM lab.journal WHERE client=1 AND number=7").expect("a transaction is gone now");
    assert!(ledgers.verify(&server).expect_err("lost").to_string().ends_with("are lost: 7"));
}
