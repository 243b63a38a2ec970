//! `headpond atomic`: the file `/dev/fcta`, without which MariaDB never asks for untorn writes.
//!
//! MariaDB asks only on a Fusion-io card, and takes any file `/dev/fcta` as proof of one. That is another vendor's
//! name in a system directory. So only this command makes the file. It recognises its own file by the content, and
//! removes all that it made.
//!
//! Invariant: this command neither changes nor removes a file that it did not make.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use headpond_control::{Refusal, Status};
use serde::Serialize;

use crate::ask::{ask_all, ask_status};
use crate::output::{print, print_json};

/// The arguments of `headpond atomic`.
#[derive(Args, Debug)]
#[command(after_long_help = "Examples:
  headpond atomic status               does the file exist, and which files rely on untorn writes?
  headpond atomic enable               as root; until the next reboot
  headpond atomic enable --at-boot     as root; also after each reboot
  headpond atomic disable              as root; removes what enable made")]
pub struct AtomicArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: AtomicCommand,
    /// For tests: below this directory instead of in the system's own
    #[arg(long, value_name = "DIR", global = true, hide = true)]
    pub root: Option<PathBuf>,
}

/// The commands for the marker.
#[derive(Subcommand, Debug)]
pub enum AtomicCommand {
    /// Make /dev/fcta: MariaDB skips its doublewrite from its next start on
    Enable {
        /// Make it again at each boot, by systemd-tmpfiles
        #[arg(long)]
        at_boot: bool,
    },
    /// Remove what `enable` made
    Disable,
    /// Show whether /dev/fcta exists, and which mounts keep writes untorn
    Status {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// The file that MariaDB looks for.
pub const MARKER: &str = "/dev/fcta";

/// The file that makes the marker again at each start of the system.
const AT_BOOT: &str = "/etc/tmpfiles.d/headpond-atomic.conf";

/// The marker's content. By it this command recognises its own file.
const CONTENT: &str = "made by headpond atomic enable; goes with headpond atomic disable";

/// What lies in the marker's place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FoundMarker {
    /// Nothing.
    Absent,
    /// The file that this command made.
    Ours,
    /// Something else: perhaps a real card.
    Foreign,
}

/// Where the files lie.
struct Places {
    marker: PathBuf,
    at_boot: PathBuf,
}

impl Places {
    fn of(args: &AtomicArgs) -> Self {
        let below = |path: &str| args.root.as_ref().map_or_else(|| path.into(), |root| root.join(&path[1..]));
        Self { marker: below(MARKER), at_boot: below(AT_BOOT) }
    }

    fn at_boot_line() -> String {
        format!("f {MARKER} 0444 root root - {CONTENT}\n")
    }
}

/// The status as JSON.
#[derive(Serialize)]
struct Shown {
    marker: FoundMarker,
    at_boot: FoundMarker,
    mounts: Vec<MountShown>,
}

#[derive(Serialize)]
struct MountShown {
    mountpoint: PathBuf,
    mode: String,
    whole_writes: bool,
    files_counted_on: u64,
}

/// `headpond atomic`.
pub fn run(args: &AtomicArgs) -> Result<(), Refusal> {
    let places = Places::of(args);
    match &args.command {
        AtomicCommand::Enable { at_boot } => enable(&places, *at_boot),
        AtomicCommand::Disable => disable(&places),
        AtomicCommand::Status { json } => status(&places, *json),
    }
}

/// What lies at `path`, compared with `content`.
fn look(path: &Path, content: &str) -> Result<FoundMarker, Refusal> {
    let failed = |error| Refusal::Failed { doing: format!("look at {}", path.display()), error };
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(FoundMarker::Absent),
        Err(error) => Err(failed(error)),
        // A device stays closed: to open it may have an effect.
        Ok(found) if !found.is_file() || found.len() > 2 * content.len() as u64 => Ok(FoundMarker::Foreign),
        Ok(_) => {
            let mut text = Vec::new();
            fs::File::open(path).and_then(|mut file| file.read_to_end(&mut text)).map_err(failed)?;
            let same = text.trim_ascii_end() == content.trim_ascii_end().as_bytes();
            Ok(if same { FoundMarker::Ours } else { FoundMarker::Foreign })
        }
    }
}

/// The marker on this machine.
pub fn marker() -> Result<FoundMarker, Refusal> {
    look(Path::new(MARKER), CONTENT)
}

fn make(path: &Path, content: &str) -> Result<(), Refusal> {
    let made = OpenOptions::new().write(true).create_new(true).mode(0o444).open(path);
    made.and_then(|mut file| file.write_all(content.as_bytes())).map_err(|error| denied(error, "make", path))
}

fn denied(error: io::Error, doing: &str, path: &Path) -> Refusal {
    let doing = format!("{doing} {}", path.display());
    match error.kind() {
        io::ErrorKind::PermissionDenied => Refusal::NoPermission { what: doing, advice: "Run as root.".to_owned() },
        _ => Refusal::Failed { doing, error },
    }
}

fn not_ours(path: &Path) -> Refusal {
    Refusal::Usage(format!(
        "{} exists, and headpond did not make it. Nothing was changed.\n  If this machine has a Fusion-io card, its driver made the \
         file, and MariaDB asks already. If not, find out what made it: headpond removes only its own files.",
        path.display()
    ))
}

fn enable(places: &Places, at_boot: bool) -> Result<(), Refusal> {
    let there = look(&places.marker, CONTENT)?;
    if there == FoundMarker::Foreign {
        return Err(not_ours(&places.marker));
    }
    if at_boot {
        match look(&places.at_boot, &Places::at_boot_line())? {
            FoundMarker::Foreign => return Err(not_ours(&places.at_boot)),
            FoundMarker::Absent => make(&places.at_boot, &Places::at_boot_line())?,
            FoundMarker::Ours => {}
        }
    }
    if there == FoundMarker::Absent {
        make(&places.marker, CONTENT)?;
    }
    let marker = places.marker.display();
    let stays = if look(&places.at_boot, &Places::at_boot_line())? == FoundMarker::Ours {
        format!("The system makes it again at each boot ({}).", places.at_boot.display())
    } else {
        "It is gone after a reboot, and MariaDB then writes each page twice again. To keep it: headpond atomic enable --at-boot"
            .to_owned()
    };
    print(&format!(
        "{marker} {}\n\
         MariaDB looks for this file when it starts. It then asks for each tablespace whether writes are untorn. A headpond \
         mount in write-back says yes, and MariaDB skips its doublewrite there. Restart MariaDB to begin.\n{stays}\n\
         To see that it works: SHOW GLOBAL STATUS LIKE 'Innodb_dblwr_pages_written' stays 0. (SHOW VARIABLES still says ON.)\n\
         To undo it: headpond atomic disable\n",
        if there == FoundMarker::Ours { "exists already." } else { "made." },
    ))
}

fn disable(places: &Places) -> Result<(), Refusal> {
    let found = [(&places.at_boot, Places::at_boot_line()), (&places.marker, CONTENT.to_owned())];
    let found = found.map(|(path, content)| look(path, &content).map(|marker| (path, marker)));
    let mut removed = false;
    for found in found {
        match found? {
            (path, FoundMarker::Foreign) => return Err(not_ours(path)),
            (path, FoundMarker::Ours) => {
                fs::remove_file(path).map_err(|error| denied(error, "remove", path))?;
                print(&format!("{} removed\n", path.display()))?;
                removed = true;
            }
            (_, FoundMarker::Absent) => {}
        }
    }
    if !removed {
        return print("nothing to remove: MariaDB does not ask for untorn writes\n");
    }
    let counted: u64 = mounts().iter().map(|status| status.whole_write_files).sum();
    if counted > 0 {
        print(&format!("Running databases rely on untorn writes to {counted} files until you restart them.\n"))?;
    }
    print("MariaDB writes each page twice again from its next start on.\n")
}

/// The status of all mounts of this user.
fn mounts() -> Vec<Status> {
    ask_all(ask_status).0
}

/// Whether a mount keeps writes untorn and promises that to databases.
pub fn keeps_writes_whole(status: &Status) -> bool {
    status.mode == "write-back" && !status.flash_failed
}

fn status(places: &Places, json: bool) -> Result<(), Refusal> {
    let mounts = mounts().into_iter().map(|status| MountShown {
        whole_writes: keeps_writes_whole(&status),
        mountpoint: status.mountpoint,
        mode: status.mode,
        files_counted_on: status.whole_write_files,
    });
    let shown = Shown {
        marker: look(&places.marker, CONTENT)?,
        at_boot: look(&places.at_boot, &Places::at_boot_line())?,
        mounts: mounts.collect(),
    };
    if json { print_json(&shown) } else { print(&table(&shown, places)) }
}

fn table(shown: &Shown, places: &Places) -> String {
    let said = match (shown.marker, shown.at_boot) {
        (FoundMarker::Absent, FoundMarker::Ours) => "missing now; the next boot makes it".to_owned(),
        (FoundMarker::Absent, _) => "missing: MariaDB writes each page twice".to_owned(),
        (FoundMarker::Ours, FoundMarker::Ours) => "made by headpond, again at each boot".to_owned(),
        (FoundMarker::Ours, _) => "made by headpond, until the next reboot".to_owned(),
        (FoundMarker::Foreign, _) => "exists, but headpond did not make it".to_owned(),
    };
    let mut text = format!("{}  {said}\n", places.marker.display());
    for mount in &shown.mounts {
        let answer = if mount.whole_writes { "writes are untorn" } else { "writes can tear" };
        text += &format!(
            "{}  {}, {answer}; files whose databases rely on untorn writes: {}\n",
            mount.mountpoint.display(),
            mount.mode,
            mount.files_counted_on
        );
    }
    if shown.mounts.is_empty() {
        text += "you have no headpond mount\n";
    }
    text
}
