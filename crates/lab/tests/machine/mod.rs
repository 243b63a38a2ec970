//! What the tests on real software share: the program of this very source tree, what the machine lacks, and
//! places for what they make.

#![allow(dead_code)] // each test takes what it needs

use headpond_lab::pond::Headpond;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use tempfile::TempDir;

/// Set where every test must run: what a test lacks is a failure then.
const ALL: &str = "HEADPOND_TEST_ALL";

/// A number that whoever runs the test may set.
pub fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().expect("a number"))
}

/// Builds the program, once, so that no older one is on trial.
pub fn program() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let built =
            Command::new(env!("CARGO")).args(["build", "-q", "--package", "headpond", "--bin", "headpond"]).status();
        assert!(built.expect("cargo runs").success(), "headpond does not build");
        let test = std::env::current_exe().expect("a test has a path");
        test.parent().and_then(Path::parent).expect("target/PROFILE/deps/TEST").join("headpond")
    })
}

/// The same, to be mounted.
pub fn headpond() -> Headpond {
    Headpond::at(program().to_owned())
}

/// Whether a test can run that finds this missing; if not, it says so, or fails where every test must run.
pub fn lacks_nothing(missing: Option<impl std::fmt::Display>) -> bool {
    let Some(missing) = missing else { return true };
    assert!(std::env::var_os(ALL).is_none(), "missing: {missing}");
    eprintln!("left out, for this machine lacks: {missing}");
    false
}

/// A directory that a database server under an account of its own passes through.
pub fn scratch(prefix: &str) -> TempDir {
    let directory = tempfile::Builder::new().prefix(prefix).tempdir_in("/var/tmp").expect("a directory");
    fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).expect("its owner may");
    directory
}

/// One after the other: what is starved for time by its neighbours says nothing.
pub fn alone() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}
