//! All promises at once on real software, for a minute: the short form of `cargo xtask soak`.
//!
//! `HEADPOND_SOAK_SECONDS` sets how long, `HEADPOND_SOAK_SEED` what the operator does.

use headpond_lab::pond::Headpond;
use headpond_lab::soak::{self, Options};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

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

#[test]
fn a_minute_of_everything_breaks_no_promise() {
    if let Some(missing) = soak::missing() {
        assert!(std::env::var_os(ALL).is_none(), "missing: {missing}");
        eprintln!("left out, for this machine lacks: {missing}");
        return;
    }
    let options = Options {
        duration: Duration::from_secs(number("HEADPOND_SOAK_SECONDS", 45)),
        leg_max: Duration::from_secs(8),
        seed: number("HEADPOND_SOAK_SEED", 1),
    };
    let directory = tempfile::Builder::new().prefix("headpond-soak-").tempdir_in("/var/tmp").expect("a directory");
    match soak::run(&headpond(), directory.path(), &options, |sum| println!("{sum}")) {
        Ok(sum) => {
            assert!(sum.tried_everything(), "not everything was tried: {sum}");
        }
        Err(failure) => panic!(
            "HEADPOND_SOAK_SEED={}: {failure}\neverything is kept in {}",
            options.seed,
            directory.keep().display()
        ),
    }
}
