//! The loss of a device under databases: one of two is pulled, replaced and made up for, again and again, and now and then
//! the process that serves is killed meanwhile. No client meets an error, and nothing that it was told is missing.
//!
//! `HEADPOND_PULLS` sets the number of pulls under each, `HEADPOND_PULLS_SEED` their moments.

mod machine;

use headpond_lab::kind::Kind;
use headpond_lab::pulls::{self, Options};
use headpond_lab::unseen::Work;

fn nothing_is_seen(kind: Kind) {
    if !machine::lacks_nothing(Work::Database(kind).missing()) {
        return;
    }
    let _beside = machine::side_by_side();
    let pulls = machine::number("HEADPOND_PULLS", 4) as u32;
    let options = Options { kind, pulls, seed: machine::number("HEADPOND_PULLS_SEED", 1) };
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
    nothing_is_seen(Kind::Mariadb);
}

#[test]
fn postgresql_sees_nothing_of_devices_that_are_pulled() {
    nothing_is_seen(Kind::Postgres);
}

#[test]
fn sqlite_sees_nothing_of_devices_that_are_pulled() {
    nothing_is_seen(Kind::SqliteWal);
}
