//! The loss of a device under databases: one of two, or of three with parity, is pulled, replaced and made up for, again
//! and again, and now and then the process that serves is killed meanwhile. No client meets an error, and nothing that it
//! was told is missing.
//!
//! `HEADPOND_PULLS` sets the number of pulls under each, `HEADPOND_PULLS_SEED` their moments.

mod machine;

use headpond_lab::kind::Kind;
use headpond_lab::pulls::{self, Options};
use headpond_lab::unseen::Work;

/// Without a number in the environment there are so many pulls.
fn nothing_is_seen(kind: Kind, parity: bool, pulls: u64) {
    if !machine::lacks_nothing(Work::Database(kind).missing()) {
        return;
    }
    let _beside = machine::side_by_side();
    let pulls = machine::number("HEADPOND_PULLS", pulls) as u32;
    let options = Options { kind, pulls, parity, seed: machine::number("HEADPOND_PULLS_SEED", 1) };
    let directory = machine::scratch("headpond-pulls-");
    match pulls::run(&machine::headpond(), directory.path(), &options) {
        Ok(pulled) => {
            println!("{}: {pulled}", kind.name());
            assert_eq!((pulled.pulls, pulled.kills), (pulls, u64::from(pulls / 3)));
        }
        Err(failure) => panic!(
            "HEADPOND_PULLS_SEED={}: {failure}\neverything is kept in {}",
            options.seed,
            directory.keep().display()
        ),
    }
}

#[test]
fn mariadb_sees_nothing_of_devices_that_are_pulled() {
    nothing_is_seen(Kind::Mariadb, false, 4);
}

#[test]
fn mariadb_sees_nothing_of_devices_with_rows_that_are_pulled() {
    nothing_is_seen(Kind::Mariadb, true, 3);
}

#[test]
fn postgresql_sees_nothing_of_devices_that_are_pulled() {
    nothing_is_seen(Kind::Postgres, false, 4);
}

#[test]
fn sqlite_sees_nothing_of_devices_that_are_pulled() {
    nothing_is_seen(Kind::SqliteWal, false, 4);
}
