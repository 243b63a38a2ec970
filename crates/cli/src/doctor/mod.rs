//! `headpond doctor`: how a database protects itself from torn pages, what it can turn off here, and how. And what of the
//! host is in headpond's way.
//!
//! It reads the files of the data directory and asks the mount. It writes nothing, and asks no server. [`examine`]
//! reads only below the directory it is given, so tests try it on made-up ones.

mod host;
mod innodb;
mod machine;
mod postgres;
mod report;
mod sqlite;

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use headpond_control::{Daemon, FS_TYPE, ListedMount, Refusal, mounts};
use serde::Serialize;

use crate::ask::{ask_pool, ask_settings, ask_status};
use crate::atomic::{self, FoundMarker};
use crate::output::{print, print_json};
use host::{HostFinding, KnownFlash};

/// The arguments of `headpond doctor`.
#[derive(Args, Debug)]
#[command(after_long_help = "Examples:
  headpond doctor                          only this host: what is in headpond's way?
  headpond doctor /var/lib/mysql           a data directory
  headpond doctor /srv/mount               all databases on a mount
  headpond doctor app.db                   a SQLite file
  headpond doctor /slow/mysql --flash /nvme/pond      before a mount: these places, too
  headpond doctor /slow/mysql --flash /nvme1/pond --flash /nvme2/pond
  headpond doctor /var/lib/mysql --json | jq '.databases[].conditions[] | select(.met == false)'")]
pub struct DoctorArgs {
    /// A data directory, a directory that contains some, a mount, or a SQLite file
    #[arg(value_name = "DATADIR|MOUNT|FILE")]
    pub path: Option<PathBuf>,
    /// The file or device of the pool, to look at it and at PATH as its origin; a mount knows its own. Repeat the
    /// option for a pool of several devices
    #[arg(long, value_name = "FILE|DEVICE", requires = "path")]
    pub flash: Vec<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The surroundings of a data directory.
#[derive(Clone, Debug)]
pub struct Around {
    /// The headpond mount that it lies on.
    pub mount: Option<MountFacts>,
    /// Whether `/dev/fcta` exists, and whose it is.
    pub marker: FoundMarker,
}

/// What a mount says about itself.
#[derive(Clone, Debug, Serialize)]
pub struct MountFacts {
    /// The mount point.
    pub mountpoint: PathBuf,
    /// Its cache mode.
    pub mode: String,
    /// Whether it keeps writes untorn.
    pub whole_writes: bool,
    /// Its `sequential-cutoff`, as `get` shows it. None if the mount does not answer.
    pub sequential_cutoff: Option<String>,
    /// The files whose databases rely on untorn writes. None if the mount does not show them.
    pub counted_on: Option<Vec<PathBuf>>,
}

/// A condition for leaving out a defence.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Condition {
    /// The condition in words.
    pub what: String,
    /// Whether it is met. None if the doctor cannot see that.
    pub met: Option<bool>,
}

/// A database that was found.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct FoundDatabase {
    /// Its product.
    pub database: &'static str,
    /// Its version, from its files.
    pub version: Option<String>,
    /// The data directory, or the file.
    pub at: PathBuf,
    /// Its page size.
    pub page_bytes: Option<u32>,
    /// How it protects itself from torn pages now, from its files.
    pub now: String,
    /// What it could do here.
    pub could: String,
    /// The exact lines of configuration, and their file.
    pub lines: Vec<String>,
    /// The conditions for that.
    pub conditions: Vec<Condition>,
    /// How you see that it is in force.
    pub check: String,
    /// How you undo it.
    pub back: String,
}

/// The whole report.
#[derive(Debug, Serialize)]
struct WholeReport {
    io_uring: machine::IoUring,
    host: Vec<HostFinding>,
    /// Origin and flash. None if no mount and no option names them.
    places: Option<Vec<HostFinding>>,
    /// None without a path.
    #[serde(flatten)]
    data: Option<DoctorReport>,
}

/// What was found at a path.
#[derive(Debug, Serialize)]
pub struct DoctorReport {
    /// The path that you gave.
    pub path: PathBuf,
    /// The headpond mount that the path lies on.
    pub mount: Option<MountFacts>,
    /// The databases.
    pub databases: Vec<FoundDatabase>,
}

/// `get` shows this for a setting that is switched off.
const SWITCHED_OFF: &str = "off";

/// How deep below a directory the doctor searches for databases.
const DEPTH: usize = 3;

/// The most directories that it searches: it must not walk a whole disk.
const DIRECTORIES_MAX: usize = 2000;

/// `headpond doctor`.
pub fn run(args: &DoctorArgs) -> Result<(), Refusal> {
    let data = args.path.as_deref().map(examine_here).transpose()?;
    let places = args.path.as_deref().and_then(|path| places(path, &args.flash));
    let report = WholeReport { io_uring: machine::io_uring(), host: host::host(), places, data };
    if args.json { print_json(&report) } else { print(&report.to_string()) }
}

/// Looks at origin and flash: those of the mount that a path lies on, or the path and what `--flash` names. None if
/// nothing names a flash.
fn places(path: &Path, named: &[PathBuf]) -> Option<Vec<HostFinding>> {
    let mount = headpond_at(path);
    let flashes = if named.is_empty() {
        flashes_of(mount.as_ref()?)?
    } else {
        named.iter().map(|path| KnownFlash { path: path.clone(), reserve_bytes: None }).collect()
    };
    Some(host::places(mount.as_ref().map_or(path, |mount| &mount.source), &flashes))
}

/// The devices that a mount's pool has now.
fn flashes_of(mount: &ListedMount) -> Option<Vec<KnownFlash>> {
    let pool = ask_pool(&Daemon::of(&mount.mountpoint).ok()?).ok()?;
    let here = pool.members.into_iter().filter(|member| member.size_bytes > 0);
    Some(here.map(|one| KnownFlash { path: one.flash, reserve_bytes: Some(one.reserve_bytes) }).collect())
}

/// The headpond mount that a path lies on.
fn headpond_at(path: &Path) -> Option<ListedMount> {
    let path = fs::canonicalize(path).ok()?;
    let around = mounts().into_iter().filter(|mount| path.starts_with(&mount.mountpoint));
    let nearest = around.max_by_key(|mount| mount.mountpoint.as_os_str().len())?;
    (nearest.fs_type == FS_TYPE).then_some(nearest)
}

/// Examines a path in its surroundings.
fn examine_here(path: &Path) -> Result<DoctorReport, Refusal> {
    let path = fs::canonicalize(path)
        .map_err(|error| Refusal::Failed { doing: format!("look at {}", path.display()), error })?;
    let around = Around { mount: mount_of(&path), marker: atomic::marker()? };
    Ok(examine(&path, &around))
}

/// What the headpond mount that a path lies on says about itself.
fn mount_of(path: &Path) -> Option<MountFacts> {
    let mountpoint = headpond_at(path)?.mountpoint;
    let daemon = Daemon::of(&mountpoint).ok();
    let status = daemon.as_ref().and_then(|daemon| ask_status(daemon).ok());
    let settings = daemon.as_ref().and_then(|daemon| ask_settings(daemon).ok());
    let cutoff = settings.iter().flatten().find(|value| value.name == "sequential-cutoff");
    let counted_on = fs::read_to_string(mountpoint.join(".headpond/whole")).ok();
    Some(MountFacts {
        mode: status.as_ref().map_or_else(|| "unknown".to_owned(), |status| status.mode.clone()),
        whole_writes: status.as_ref().is_some_and(atomic::keeps_writes_whole),
        sequential_cutoff: cutoff.map(|value| value.value.clone()),
        counted_on: counted_on.map(|text| listed(&text)),
        mountpoint,
    })
}

/// The paths in the mount's own list. The list has a head line, then lines of a number, a name and a path.
fn listed(text: &str) -> Vec<PathBuf> {
    let path = |line: &str| {
        let (_, rest) = line.trim_start().split_once(' ')?;
        let (_, path) = rest.trim_start().split_once(' ')?;
        Some(PathBuf::from(path.trim_start()))
    };
    text.lines().skip(1).filter_map(path).collect()
}

/// Examines a data directory, a database file, or all of these below a directory.
pub fn examine(path: &Path, around: &Around) -> DoctorReport {
    let mut databases = Vec::new();
    let mut left = DIRECTORIES_MAX;
    look(path, around, DEPTH, &mut left, &mut databases);
    DoctorReport { path: path.to_owned(), mount: around.mount.clone(), databases }
}

fn look(path: &Path, around: &Around, depth: usize, left: &mut usize, found: &mut Vec<FoundDatabase>) {
    if path.is_file() {
        found.extend(sqlite::examine(path, around));
        return;
    }
    let server = innodb::examine(path, around).or_else(|| postgres::examine(path, around));
    if let Some(server) = server {
        found.push(server);
        return;
    }
    let Ok(entries) = fs::read_dir(path) else { return };
    let mut entries: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    entries.sort();
    for entry in entries {
        let Ok(kind) = fs::symlink_metadata(&entry) else { continue };
        if kind.is_file() {
            found.extend(sqlite::examine(&entry, around));
        } else if kind.is_dir() && depth > 0 && *left > 0 {
            *left -= 1;
            look(&entry, around, depth - 1, left, found);
        }
    }
}

impl Around {
    /// What every database needs: untorn writes to its files.
    fn on_whole_writes(&self) -> Condition {
        let what = match &self.mount {
            None => "the data lies on a headpond mount in write-back; this data lies on none".to_owned(),
            Some(mount) => {
                format!("the mount keeps writes untorn; {} is in {}", mount.mountpoint.display(), mount.mode)
            }
        };
        Condition { what, met: Some(self.mount.as_ref().is_some_and(|mount| mount.whole_writes)) }
    }

    /// The condition for a database that does not ask the mount: no long run of its writes bypasses the log.
    fn no_run_bypasses(&self) -> Condition {
        let told = self.mount.as_ref().and_then(|mount| Some((mount, mount.sequential_cutoff.as_deref()?)));
        let what = match told {
            Some((_, SWITCHED_OFF)) => {
                "long sequential runs of writes go through the log (sequential-cutoff=off)".to_owned()
            }
            Some((mount, cutoff)) => format!(
                "long sequential runs of writes go through the log. Now those beyond {cutoff} bypass it, and can tear. \
                 To change it: headpond set {} sequential-cutoff=off",
                mount.mountpoint.display()
            ),
            None => "long sequential runs of writes go through the log: the mount has sequential-cutoff=off".to_owned(),
        };
        Condition { what, met: told.map(|(_, cutoff)| cutoff == SWITCHED_OFF) }
    }

    /// The condition that no link of the data directory leads off the mount.
    fn nothing_elsewhere(&self, led_to: impl Iterator<Item = PathBuf>) -> Condition {
        let away = led_to.filter(|link| self.is_on_mount(link) == Some(false));
        let away: Vec<String> = away.map(|link| link.display().to_string()).collect();
        Condition {
            what: if away.is_empty() {
                "no tablespace lies elsewhere".to_owned()
            } else {
                format!("no tablespace lies elsewhere: {} leads away from the mount", away.join(", "))
            },
            met: if self.mount.is_none() { None } else { Some(away.is_empty()) },
        }
    }

    /// Whether a database relies on untorn writes to this file. None if the mount does not show it.
    fn is_counted_on(&self, file: &Path) -> Option<bool> {
        let mount = self.mount.as_ref()?;
        let inside = file.strip_prefix(&mount.mountpoint).ok()?;
        Some(mount.counted_on.as_ref()?.iter().any(|path| path == inside))
    }

    /// Whether a path leads to a place on the same mount.
    fn is_on_mount(&self, path: &Path) -> Option<bool> {
        let mount = self.mount.as_ref()?;
        Some(fs::canonicalize(path).ok()?.starts_with(&mount.mountpoint))
    }
}

/// A condition that the doctor cannot see.
fn unseen(what: &str) -> Condition {
    Condition { what: what.to_owned(), met: None }
}

/// `N` bytes of a file, from `offset` on.
fn bytes_at<const N: usize>(path: &Path, offset: u64) -> Option<[u8; N]> {
    use std::os::unix::fs::FileExt;
    let mut bytes = [0; N];
    open_regular(path)?.read_exact_at(&mut bytes, offset).ok()?;
    Some(bytes)
}

/// The most that the doctor reads of a text file.
const TEXT_MAX: u64 = 1 << 20;

/// A text file's content, or its first mebibyte.
fn text_of(path: &Path) -> Option<String> {
    use std::io::Read;
    let mut bytes = Vec::new();
    open_regular(path)?.take(TEXT_MAX).read_to_end(&mut bytes).ok()?;
    String::from_utf8(bytes).ok()
}

/// Opens a regular file, and nothing else. The directory belongs to the database, and this command often runs as
/// root: a planted FIFO or device must neither block it nor have an effect.
fn open_regular(path: &Path) -> Option<fs::File> {
    use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};
    use std::os::fd::AsRawFd;
    let place = openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let kind = FileType::from_raw_mode(fstat(&place).ok()?.st_mode);
    if kind == FileType::RegularFile {
        fs::File::open(format!("/proc/self/fd/{}", place.as_raw_fd())).ok()
    } else {
        None
    }
}

#[cfg(test)]
mod tests;
