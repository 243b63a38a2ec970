//! What the tests on real software share: the program of this very source tree, what the machine lacks, and
//! places for what they make.

#![allow(dead_code)] // each test takes what it needs

#[path = "../../../base/tests/lacking/mod.rs"]
mod lacking;

use headpond_lab::pond::Headpond;
pub use lacking::lacks_nothing;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use tempfile::TempDir;

/// A number that the environment may set.
pub fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().expect("a number"))
}

/// Builds the program, once, so that no older one is on trial: as the tests of the workspace have it, since only so has it
/// the bugs that tests plant, and all tests run one and the same program. It is built along with a test of its package;
/// after `cargo test --workspace` nothing is left to do.
pub fn program() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let mut build = Command::new(env!("CARGO"));
        build.args(["test", "-q", "--workspace", "--no-run", "--test", "version"]);
        // What cargo tells this test of its own package would have it build again what looks at that, such as ring.
        let of_this_test = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
        for (name, _) in std::env::vars().filter(|(name, _)| of_this_test(name)) {
            build.env_remove(name);
        }
        let built = build.status();
        assert!(built.expect("cargo runs").success(), "headpond does not build");
        let test = std::env::current_exe().expect("a test has a path");
        test.parent().and_then(Path::parent).expect("target/PROFILE/deps/TEST").join("headpond")
    })
}

/// The same, to be mounted.
pub fn headpond() -> Headpond {
    Headpond::at(program().to_owned())
}

/// A directory that a database server under an account of its own passes through.
pub fn scratch(prefix: &str) -> TempDir {
    let directory = tempfile::Builder::new().prefix(prefix).tempdir_in("/var/tmp").expect("a directory");
    fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).expect("its owner may");
    directory
}

/// How many tests are under way that may have a neighbour, and the waits for their end.
static SIDE_BY_SIDE: (Mutex<u32>, Condvar) = (Mutex::new(0), Condvar::new());
/// So many at a time: each has a load, a mount and mostly a database.
const SIDE_BY_SIDE_MAX: u32 = 2;

/// A test that may have a neighbour.
pub struct SideBySide(());

/// Two at a time: for those that mostly wait for a modelled disk, and of which nothing that is asserted depends on how
/// fast they are.
pub fn side_by_side() -> SideBySide {
    let (running, ended) = &SIDE_BY_SIDE;
    let running = running.lock().unwrap_or_else(PoisonError::into_inner);
    let running = ended.wait_while(running, |running| *running >= SIDE_BY_SIDE_MAX);
    *running.unwrap_or_else(PoisonError::into_inner) += 1;
    SideBySide(())
}

impl Drop for SideBySide {
    fn drop(&mut self) {
        let (running, ended) = &SIDE_BY_SIDE;
        *running.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        ended.notify_one();
    }
}

/// One after the other: what is starved for time by its neighbours says nothing.
pub fn alone() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}
