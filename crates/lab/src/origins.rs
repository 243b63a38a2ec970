//! Origins of every kind: headpond in front of each common file system, and in front of one that goes away, forgets
//! or is taken over.
//!
//! A case is a question, and an origin is where it is asked. File systems of this machine's kernel lie on images, and
//! their cases run here (`host.rs`, and a file for each question). Others run in a guest. Each of those has a script
//! with a function for each case, which prints `CASE name: what was found`, or ends the script.
//!
//! Invariant: a failed case hides no other. All cases run, the table has a row for each, and then the run fails.

mod full;
mod host;
mod kills;
mod sharing;

use crate::command::lacking;
use crate::conformance;
use crate::failure::{Failure, Result, check_interrupt};
use crate::guest::Guest;
use crate::kill;
use crate::kind::Kind;
use crate::pond::Headpond;
use host::FileSystem;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// An origin to try.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum TriedOrigin {
    /// Space is reserved before it is written.
    Ext4,
    /// As in file systems that came from ext3: no space can be reserved, it is counted.
    Ext4NoExtents,
    /// Space is reserved, and counted, as files may share blocks.
    Xfs,
    /// Nothing is written in place: space is counted.
    Btrfs,
    /// In memory.
    Tmpfs,
    /// Users with quotas, and blocks kept for root; in a guest, as few hosts have quotas.
    Ext4Quota,
    /// The kernel's NFS server and client, 4.2, over loopback, in a guest.
    Nfs,
}

/// How long one case of a guest may take at most.
const CASE_MAX: Duration = Duration::from_secs(180);
/// What each file system of this machine is asked.
const COMMON: [&str; 3] = ["full", "kill", "conformance"];

/// The amount of work, and its place.
#[derive(Clone, Debug)]
pub struct Options {
    /// The origins; all of them if there is none.
    pub origins: Vec<TriedOrigin>,
    /// The cases; all of them if there is none.
    pub cases: Vec<String>,
    /// Kills of each database and of the writer that hardly ever syncs.
    pub kills: u32,
    /// The databases that are killed.
    pub databases: Vec<Kind>,
    /// Operations of fsx over all modes.
    pub fsx_operations: u64,
    /// Decides all that is random.
    pub seed: u64,
}

/// What became of one case on one origin.
#[derive(Clone, Debug)]
pub struct Row {
    /// Where it was asked.
    pub origin: TriedOrigin,
    /// Its name.
    pub case: String,
    /// What was counted or found, or what was wrong.
    pub found: std::result::Result<String, String>,
}

impl TriedOrigin {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Ext4, Self::Ext4NoExtents, Self::Xfs, Self::Btrfs, Self::Tmpfs, Self::Ext4Quota, Self::Nfs];

    /// As on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Ext4NoExtents => "ext4-no-extents",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
            Self::Tmpfs => "tmpfs",
            Self::Ext4Quota => "ext4-quota",
            Self::Nfs => "nfs",
        }
    }

    /// All cases, in the order in which they are tried.
    #[must_use]
    pub const fn cases(self) -> &'static [&'static str] {
        match self {
            Self::Ext4 | Self::Ext4NoExtents | Self::Tmpfs => &COMMON,
            Self::Xfs => &[COMMON[0], COMMON[1], COMMON[2], "reflink"],
            Self::Btrfs => &[COMMON[0], COMMON[1], COMMON[2], "snapshot", "reflink"],
            Self::Ext4Quota => &["blocks", "groups", "files", "root"],
            Self::Nfs => {
                &["grace", "away", "back", "forgotten", "taken", "kills", "space", "removal", "reuse", "others"]
            }
        }
    }

    /// The script for a guest and the modules that it needs; none where no guest does.
    const fn guest(self) -> Option<(&'static str, &'static [&'static str])> {
        match self {
            Self::Nfs => Some((include_str!("origins/nfs.sh"), &["fuse", "nfsd", "nfsv4", "nfs"])),
            Self::Ext4Quota => Some((include_str!("origins/quota.sh"), &["fuse", "quota_v2"])),
            Self::Ext4 | Self::Ext4NoExtents | Self::Xfs | Self::Btrfs | Self::Tmpfs => None,
        }
    }

    /// What this machine lacks to ask these cases, if anything.
    #[must_use]
    pub fn missing(self, cases: &[String], databases: &[Kind]) -> Option<String> {
        match self {
            Self::Nfs => Guest::missing(&["mkfs.ext4", "rpc.nfsd", "rpc.mountd", "exportfs", "mount.nfs4", "python3"]),
            Self::Ext4Quota => Guest::missing(&["mkfs.ext4", "setquota", "setpriv"]),
            Self::Ext4 | Self::Ext4NoExtents | Self::Xfs | Self::Btrfs | Self::Tmpfs => {
                let asked = |case: &str| cases.is_empty() || cases.iter().any(|name| name == case);
                let mut missing = FileSystem::missing(self);
                if asked("conformance") {
                    missing.extend(conformance::missing());
                }
                if asked("kill") {
                    missing.extend(databases.iter().filter_map(|kind| kill::missing(*kind)));
                }
                missing.extend(lacking(&["fusermount3"]));
                missing.dedup();
                (!missing.is_empty()).then(|| missing.join(", "))
            }
        }
    }
}

impl fmt::Display for TriedOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Asks each case of each origin, and tells `each` what became of it, and a line about each step before.
pub fn run(headpond: &Headpond, directory: &Path, options: &Options, mut said: impl FnMut(&str)) -> Result<Vec<Row>> {
    let origins = if options.origins.is_empty() { TriedOrigin::ALL.to_vec() } else { options.origins.clone() };
    let mut asked = Vec::new();
    for origin in origins {
        let known = origin.cases().iter().map(ToString::to_string);
        asked.extend(
            known.filter(|case| options.cases.is_empty() || options.cases.contains(case)).map(|case| (origin, case)),
        );
    }
    if let Some(nowhere) = options.cases.iter().find(|name| !asked.iter().any(|(_, case)| case == *name)) {
        return Err(Failure::Other(format!("no origin that is asked has a case {nowhere}")));
    }
    let mut rows = Vec::new();
    for (origin, case) in asked {
        check_interrupt()?;
        let place = crate::pond::directory_in(directory, &format!("{origin}-{case}"))?;
        let found = one(headpond, &place, origin, &case, options, &mut said);
        if found.is_ok() {
            remove(&place)?;
        }
        if matches!(found, Err(Failure::Interrupted)) {
            return Err(Failure::Interrupted);
        }
        let row = Row { origin, case, found: found.map_err(|failure| failure.to_string()) };
        said(&format!("{}, {}: {}", row.origin, row.case, row.outcome()));
        rows.push(row);
    }
    Ok(rows)
}

fn one(
    headpond: &Headpond,
    place: &Path,
    origin: TriedOrigin,
    case: &str,
    options: &Options,
    mut said: impl FnMut(&str),
) -> Result<String> {
    if let Some((script, modules)) = origin.guest() {
        return in_guest(headpond, place, script, modules, case);
    }
    match case {
        "full" => full::run(headpond, place, origin, said),
        "kill" => kills::run(headpond, place, origin, options),
        "reflink" => sharing::run(headpond, place, origin, sharing::By::Reflink, said),
        "snapshot" => sharing::run(headpond, place, origin, sharing::By::Snapshot, said),
        _ => {
            let fs = FileSystem::make(origin, place, host::ROOMY_MIB)?;
            let much =
                conformance::Options { fsx_operations: options.fsx_operations, fio_files: 1, seed: options.seed };
            let report = conformance::run_on(headpond, fs.path(), place, &much, |line| said(line))?;
            let passed: Vec<_> = report.posix.iter().map(|(_, compared)| compared.passed.to_string()).collect();
            Ok(format!(
                "{} operations of fsx, {} files of fio, tests of pjdfstest by mode: {}",
                report.fsx_operations,
                report.fio_files,
                passed.join(", ")
            ))
        }
    }
}

fn in_guest(
    headpond: &Headpond,
    place: &Path,
    script: &str,
    modules: &'static [&'static str],
    case: &str,
) -> Result<String> {
    let guest = Guest {
        directory: place.to_owned(),
        modules,
        disk: Some(Guest::empty_disk(place, 512 << 20)?),
        sockets: Vec::new(),
        script: script.to_owned(),
        environment: vec![("CASE", case.to_owned()), ("HEADPOND", absolute(headpond.program())?.display().to_string())],
        limit: CASE_MAX,
    };
    let mut found = None;
    let begins = format!("CASE {case}: ");
    guest.run(|line| {
        if let Some(told) = line.strip_prefix(&begins) {
            found = Some(told.to_owned());
        }
    })?;
    found.ok_or_else(|| Failure::Other(format!("case {case} said nothing")))
}

impl Row {
    fn outcome(&self) -> String {
        match &self.found {
            Ok(found) => format!("passed: {found}"),
            Err(wrong) => format!("FAILED: {wrong}"),
        }
    }
}

/// The rows as a table.
#[must_use]
pub fn table(rows: &[Row]) -> String {
    let width = rows.iter().map(|row| row.case.len()).max().unwrap_or(0).max(4);
    let mut table = format!("{:<16} {:<width$} {:<7} what was counted\n", "origin", "case", "result");
    for row in rows {
        let (result, found) = match &row.found {
            Ok(found) => ("passed", found.as_str()),
            Err(wrong) => ("FAILED", wrong.lines().next().unwrap_or_default()),
        };
        table += &format!("{:<16} {:<width$} {result:<7} {found}\n", row.origin, row.case);
    }
    table
}

/// Images and pools of what passed go at once: all of them would fill the disk.
fn remove(place: &Path) -> Result<()> {
    std::fs::remove_dir_all(place).map_err(Failure::io(format!("removing {}", place.display())))
}

fn absolute(program: &Path) -> Result<PathBuf> {
    program.canonicalize().map_err(Failure::io(format!("looking for {}", program.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_that_no_origin_has_is_an_error() {
        let options = Options {
            origins: vec![TriedOrigin::Ext4],
            cases: vec!["snapshot".to_owned()],
            kills: 1,
            databases: Vec::new(),
            fsx_operations: 1,
            seed: 1,
        };
        let nowhere = Headpond::at(PathBuf::from("/nonexistent"));
        let failure = run(&nowhere, Path::new("/nonexistent"), &options, |_| {}).expect_err("ext4 has none");
        assert!(failure.to_string().contains("snapshot"), "{failure}");
    }

    #[test]
    fn the_table_has_a_row_for_each_case_and_tells_the_first_line_of_a_failure() {
        let row = |case: &str, found| Row { origin: TriedOrigin::Ext4NoExtents, case: case.to_owned(), found };
        let table = table(&[row("full", Ok("3 kills".to_owned())), row("kill", Err("lost\nmore".to_owned()))]);
        let lines: Vec<_> = table.lines().collect();
        assert_eq!(lines.len(), 3);
        assert_eq!(lines[1], "ext4-no-extents  full passed  3 kills");
        assert_eq!(lines[2], "ext4-no-extents  kill FAILED  lost");
    }
}
