//! What other people's tests of file systems say of a mount: the short form of `cargo xtask conformance`.
//!
//! `HEADPOND_FSX_OPERATIONS` sets how much fsx does, `HEADPOND_CONFORMANCE_SEED` what is random.

use headpond_lab::conformance::{self, Options};
use headpond_lab::pond::Headpond;
use std::path::PathBuf;
use std::process::Command;

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
fn fsx_fio_and_pjdfstest_find_nothing_that_the_origin_does_not_have() {
    if let Some(missing) = conformance::missing() {
        assert!(std::env::var_os(ALL).is_none(), "missing: {missing}");
        eprintln!("left out, for this machine lacks: {missing}");
        return;
    }
    let options = Options {
        fsx_operations: number("HEADPOND_FSX_OPERATIONS", 40_000),
        fio_files: 1,
        seed: number("HEADPOND_CONFORMANCE_SEED", 1),
    };
    let directory = tempfile::Builder::new().prefix("headpond-").tempdir_in("/var/tmp").expect("a directory");
    match conformance::run(&headpond(), directory.path(), &options, |line| println!("{line}")) {
        Ok(report) => {
            assert_eq!(report.fsx_operations, options.fsx_operations);
            let modes: Vec<_> = report.posix.iter().map(|(mode, _)| *mode).collect();
            assert_eq!(modes, ["write-back", "write-through", "write-around", "pass-through"]);
            assert!(report.posix.iter().all(|(_, compared)| compared.passed > 100), "{report:?}");
        }
        Err(failure) => panic!(
            "HEADPOND_CONFORMANCE_SEED={}: {failure}\neverything is kept in {}",
            options.seed,
            directory.keep().display()
        ),
    }
}
