//! xfstests, the kernel's own tests of file systems, from a checkout that the user supplies: on a mount, and what fails
//! there once more on the bare file system of its origin.
//!
//! Invariants
//! - A test that fails on the mount counts against headpond, unless it fails on the bare file system too, or stands on
//!   the list of tests that are not expected to pass, with the reason.
//! - Everything runs in namespaces of its own for mounts and processes: their end takes down whatever the tests left.

use crate::command;
use crate::failure::{Failure, Result, check_interrupt};
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const BED: &str = include_str!("xfstests/bed.sh");
const STAND_IN: &str = include_str!("xfstests/stand-in.sh");
const EXPECTED: &str = include_str!("xfstests/expected");
/// Programs and users without which the suite tests little.
const PROGRAMS: [&str; 5] = ["unshare", "mkfs.ext4", "losetup", "xfs_io", "gawk"];
const USER: &str = "fsgqa";

/// What is run when nothing is named.
const QUICK: [&str; 2] = ["-g", "generic/quick"];

/// What a run of the suite found: names of tests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Ran {
    ran: Vec<String>,
    left_out: Vec<String>,
    failed: Vec<String>,
}

/// What both runs together mean.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct XfstestsReport {
    /// Tests that passed on the mount.
    pub passed: Vec<String>,
    /// Tests that the suite left out on the mount: they need what the mount or the machine has not got.
    pub left_out: Vec<String>,
    /// Tests that failed on the mount and on the bare file system.
    pub failed_on_both: Vec<String>,
    /// Tests that failed on the mount alone, as expected, with the reason.
    pub expected: Vec<(String, &'static str)>,
    /// Tests that failed on the mount alone, and should not have.
    pub failed: Vec<String>,
    /// Tests that passed on the mount though the list says otherwise.
    pub better: Vec<String>,
}

/// Runs these tests, the generic quick group if there are none, and passes on each line that the suite prints.
pub fn run(
    program: &Path,
    suite: &Path,
    directory: &Path,
    tests: &[String],
    each: impl Fn(&str),
) -> Result<XfstestsReport> {
    let absolute = |path: &Path| path.canonicalize().map_err(Failure::io(format!("looking for {}", path.display())));
    let bed = Bed { program: absolute(program)?, suite: absolute(suite)?, directory: absolute(directory)? };
    let quick = QUICK.map(str::to_owned);
    let mount = bed.check("mount", if tests.is_empty() { &quick } else { tests }, &each)?;
    let bare = if mount.failed.is_empty() {
        Ran::default()
    } else {
        each("\nWhat failed, once more on the bare file system:");
        bed.check("bare", &mount.failed, &each)?
    };
    Ok(judge(mount, &bare, &expected()))
}

/// What this machine or the checkout lacks.
#[must_use]
pub fn missing(suite: &Path) -> Option<String> {
    if !suite.join("check").exists() || !suite.join("ltp/fsstress").exists() {
        return Some(format!("a checkout of xfstests in {}, built with `make`", suite.display()));
    }
    if command::run("looking", Command::new("id").arg(USER)).is_err() {
        return Some(format!("the user {USER} (useradd -m {USER})"));
    }
    let mut lacking = command::absent(&PROGRAMS);
    if !rustix::process::geteuid().is_root() {
        lacking.push("root's rights".to_owned());
    }
    (!lacking.is_empty()).then(|| lacking.join(", "))
}

struct Bed {
    program: PathBuf,
    suite: PathBuf,
    directory: PathBuf,
}

impl Bed {
    fn check(&self, kind: &str, tests: &[String], each: impl Fn(&str)) -> Result<Ran> {
        let script = self.directory.join("bed.sh");
        fs::write(&script, BED).map_err(Failure::io(format!("writing {}", script.display())))?;
        let mut run = Command::new("unshare");
        run.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "bash"]).arg(script).args(tests);
        run.env("KIND", kind).env("SUITE", &self.suite).env("BED", &self.directory);
        run.env("HEADPOND", &self.program).env("STAND_IN", STAND_IN);
        // Its exit status says whether a test failed, which the last lines say by name.
        let doing = "running xfstests";
        let started = command::detach(&mut run).stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut process = started.map_err(|error| command::failed(doing, &run, error, ""))?;
        let mut said = String::new();
        let outcome = process.stdout.take().map_or(Ok(()), |output| {
            BufReader::new(output).split(b'\n').map_while(std::result::Result::ok).try_for_each(|line| {
                let line = String::from_utf8_lossy(&line);
                each(&line);
                said.push_str(&line);
                said.push('\n');
                check_interrupt()
            })
        });
        if outcome.is_err() {
            // With it goes everything in its namespaces.
            let _ = process.kill();
        }
        let status = process.wait().map_err(|error| command::failed(doing, &run, error, ""))?;
        outcome?;
        parse(&said).ok_or_else(|| command::failed(doing, &run, format!("{status}: it did not say what it ran"), &said))
    }
}

/// Reads the last lines of `check`. None unless they are there.
fn parse(said: &str) -> Option<Ran> {
    let names = |prefix: &str| {
        let line = said.lines().rev().find_map(|line| line.strip_prefix(prefix));
        line.map(|names| names.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    };
    let ended = said.lines().any(|line| line.starts_with("Passed all ") || line.starts_with("Failed "));
    let ran = names("Ran:").filter(|_| ended)?;
    Some(Ran { ran, left_out: names("Not run:").unwrap_or_default(), failed: names("Failures:").unwrap_or_default() })
}

/// The list of tests that are not expected to pass: a name and a reason in each line.
fn expected() -> BTreeMap<&'static str, &'static str> {
    let lines = EXPECTED.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    lines.filter_map(|line| line.split_once(' ')).map(|(name, reason)| (name, reason.trim())).collect()
}

fn judge(mount: Ran, bare: &Ran, expected: &BTreeMap<&'static str, &'static str>) -> XfstestsReport {
    let mut report = XfstestsReport { left_out: mount.left_out, ..XfstestsReport::default() };
    for name in mount.ran {
        let listed = expected.get(name.as_str());
        match (mount.failed.contains(&name), bare.failed.contains(&name), listed) {
            _ if report.left_out.contains(&name) => {}
            (false, _, None) => report.passed.push(name),
            (false, _, Some(_)) => {
                report.better.push(name.clone());
                report.passed.push(name);
            }
            (true, _, Some(reason)) => report.expected.push((name, reason)),
            (true, true, None) => report.failed_on_both.push(name),
            (true, false, None) => report.failed.push(name),
        }
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "\
generic/001         12s
generic/002         [not run] no shutdown
generic/003        - output mismatch (see generic/003.out.bad)
    ...
Ran: generic/001 generic/002 generic/003 generic/004 generic/005
Not run: generic/002
Failures: generic/003 generic/004 generic/005
Failed 3 of 4 tests
";

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_fails_on_the_mount_alone_and_is_not_listed_counts() {
        let bare = "Ran: generic/003 generic/004 generic/005\nFailures: generic/004\nFailed 1 of 3 tests\n";
        let listed = BTreeMap::from([("generic/001", "long mended"), ("generic/003", "by design")]);
        let report = judge(parse(SAID).unwrap(), &parse(bare).unwrap(), &listed);
        let wanted = XfstestsReport {
            passed: names(&["generic/001"]),
            left_out: names(&["generic/002"]),
            failed_on_both: names(&["generic/004"]),
            expected: vec![("generic/003".to_owned(), "by design")],
            failed: names(&["generic/005"]),
            better: names(&["generic/001"]),
        };
        assert_eq!(report, wanted);
    }

    #[test]
    fn a_run_that_was_cut_short_is_no_success() {
        let cut = SAID.split_inclusive('\n').take(5).collect::<String>();
        assert_eq!((parse(&cut), parse("")), (None, None));
    }

    #[test]
    fn each_test_of_the_list_has_a_reason() {
        let lines = EXPECTED.lines().filter(|line| line.starts_with("generic/")).count();
        assert_eq!(expected().values().filter(|reason| reason.len() > 20).count(), lines);
    }
}
