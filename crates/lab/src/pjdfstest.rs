//! pjdfstest, the suite of POSIX file operations. It runs on a mount and on the origin's file system, and the results
//! are compared test by test.
//!
//! Invariant: a test that passes on the origin's file system counts as a failure of headpond if it fails on the
//! mount. If the suite itself skips it there, the report says so.

use crate::command;
use crate::failure::{Failure, Result};
use crate::programs::program;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// What the suite may expect of Linux, and two users that every Debian has.
const SETTINGS: &str = "\
[features]
posix_fallocate = {}
rename_ctime = {}
utime_now = {}
utimensat = {}
[settings]
naptime = 0.01
[dummy_auth]
entries = [[\"nobody\", \"nogroup\"], [\"daemon\", \"daemon\"]]
";

/// How one test ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    Passed,
    Skipped,
    Failed,
}

/// What the comparison showed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Compared {
    /// Tests that passed on the mount.
    pub passed: usize,
    /// Tests that were left out on both: no second file system, no remount, not root.
    pub skipped: usize,
    /// Tests that failed on the origin's own file system as well.
    pub failed_on_both: Vec<String>,
    /// Tests that the suite leaves out on the mount and not on the origin's file system.
    pub skipped_on_mount: Vec<String>,
    /// Tests that failed on the mount only.
    pub failed: Vec<String>,
}

/// How the tests of a run of the suite ended.
pub struct Outcomes(BTreeMap<String, Outcome>);

impl Outcomes {
    /// Runs the suite in a directory. Its settings go to the directory `run`.
    pub fn of(directory: &Path, run: &Path) -> Result<Self> {
        let settings = run.join("pjdfstest.toml");
        fs::write(&settings, SETTINGS).map_err(Failure::io(format!("writing {}", settings.display())))?;
        outcomes(&settings, directory).map(Self)
    }

    /// Compares a run on a mount with this one, on its origin's file system.
    pub fn compare(&self, mount: &Self) -> Result<Compared> {
        compared(&self.0, &mount.0)
    }
}

/// What this machine lacks.
#[must_use]
pub fn missing() -> Option<String> {
    command::run("looking", Command::new(program("pjdfstest")).arg("--version"))
        .err()
        .map(|_| "pjdfstest (cargo install pjdfstest --root target/tools)".to_owned())
}

fn outcomes(settings: &Path, directory: &Path) -> Result<BTreeMap<String, Outcome>> {
    let mut suite = Command::new(program("pjdfstest"));
    // The shorter the directory, the better: the path of a socket has room for 108 bytes only.
    suite.arg("--configuration-file").arg(settings).arg("--path").arg(directory);
    // The exit status says whether anything failed. The comparison below looks at the tests.
    let doing = "running pjdfstest";
    let output = command::detach(&mut suite).stdin(Stdio::null()).output();
    let output = output.map_err(|error| command::failed(doing, &suite, error, ""))?;
    let said = String::from_utf8_lossy(&output.stdout);
    let found = parse(&said);
    if summary_agrees(&said, found.len()) {
        return Ok(found);
    }
    let all = format!("{said}{}", String::from_utf8_lossy(&output.stderr));
    Err(command::failed(doing, &suite, format!("{}: its report is not as expected", output.status), &all))
}

/// Reads lines such as `chown::efault_path     ok`; what explains one of them is indented.
fn parse(said: &str) -> BTreeMap<String, Outcome> {
    let line = |line: &str| {
        let (name, outcome) = line.rsplit_once(char::is_whitespace)?;
        let outcome = match outcome {
            "ok" => Outcome::Passed,
            "skipped" => Outcome::Skipped,
            "FAILED" | "failed" | "error" => Outcome::Failed,
            _ => return None,
        };
        let named = name.contains("::") && !line.starts_with(char::is_whitespace);
        named.then(|| (name.trim_end().to_owned(), outcome))
    };
    said.lines().filter_map(line).collect()
}

/// Whether as many tests were read as the last line, `Summary: ..., 398 total`, says there were.
fn summary_agrees(said: &str, read: usize) -> bool {
    let summary = said.lines().rev().find_map(|line| line.strip_prefix("Summary: "));
    let total = summary.and_then(|summary| summary.rsplit(", ").next()?.strip_suffix(" total")?.parse().ok());
    total == Some(read)
}

fn compared(bare: &BTreeMap<String, Outcome>, through: &BTreeMap<String, Outcome>) -> Result<Compared> {
    if !bare.keys().eq(through.keys()) {
        return Err(Failure::Other("pjdfstest ran other tests on the mount than on its origin".to_owned()));
    }
    let mut found = Compared::default();
    for (name, outcome) in through {
        match (outcome, bare[name]) {
            (Outcome::Passed, _) => found.passed += 1,
            (Outcome::Skipped, Outcome::Skipped) => found.skipped += 1,
            (Outcome::Skipped, _) => found.skipped_on_mount.push(name.clone()),
            (Outcome::Failed, Outcome::Failed) => found.failed_on_both.push(name.clone()),
            (Outcome::Failed, _) => found.failed.push(name.clone()),
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BARE: &str = "\
open::a          ok
open::b     skipped
\tNo secondary file-system has been configured.
open::c          ok
open::d      FAILED

Summary: 1 failed, 1 skipped, 2 passed, 0 expected failures, 4 total
";

    #[test]
    fn a_test_that_only_the_origin_passes_is_a_failure() {
        let bare = parse(BARE);
        assert!(summary_agrees(BARE, bare.len()));
        let through = parse(&BARE.replace("open::c          ok", "open::c      FAILED"));
        let found = compared(&bare, &through).expect("the same tests");
        assert_eq!((found.passed, found.skipped), (1, 1));
        assert_eq!((found.failed, found.failed_on_both), (vec!["open::c".to_owned()], vec!["open::d".to_owned()]));
    }

    #[test]
    fn a_report_that_was_not_understood_is_no_success() {
        let unread = BARE.replace("open::d      FAILED", "open::d     exploded");
        assert!(!summary_agrees(&unread, parse(&unread).len()));
        assert!(compared(&parse(BARE), &parse(&unread)).is_err());
    }
}
