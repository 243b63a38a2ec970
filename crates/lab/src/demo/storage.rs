//! The places of the demo's data: the scratch directory, the origin, the flash.
//!
//! Invariants:
//! - both sides start from byte-identical copies of the tables, written to the origin in one go
//!   and out of the page cache;
//! - In the user's own directories, the demo writes and removes only what it made there.

use super::plan::{FLASH_SIZE, Options};
use crate::command;
use crate::failure::{Failure, Result};
use crate::pond::{Headpond, Mount, Mounting};
use rustix::fs::{Advice, fadvise};
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// The disk that stands in for a slow origin.
const MODEL_DISK: &str = "hdd-7200";
/// What the scratch directory must have room for: tables, redo log and temporary files twice, and
/// the flash.
const ROOM_BYTES: u64 = 5 << 30;

/// Which side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Front {
    /// The slow directory as it is.
    Without,
    /// headpond in write-back mode.
    With,
}

enum Kind {
    /// The machine's disk, slowed down to the model.
    Model,
    /// The user's storage, and the pool file to make there, if it is one.
    Own { flash: PathBuf, made: bool },
    /// No headpond at all.
    Rehearsal,
}

impl Kind {
    fn of(options: &Options) -> Self {
        match &options.flash {
            Some(flash) if flash.is_dir() => Self::Own { flash: flash.join("headpond-demo.pond"), made: true },
            Some(flash) => Self::Own { flash: flash.clone(), made: !flash.exists() },
            None if options.rehearse => Self::Rehearsal,
            None => Self::Model,
        }
    }

    fn describe(&self, origin: &Path) -> String {
        match self {
            Self::Model => format!(
                "Origin: a modelled 7,200 rpm disk (real I/O, delayed by seek, rotation and transfer). Flash: a file of {FLASH_SIZE}."
            ),
            Self::Own { flash, .. } => format!("Origin: {}. Flash: {}.", origin.display(), flash.display()),
            Self::Rehearsal => "A rehearsal: plain directories on both sides, no headpond.".to_owned(),
        }
    }
}

/// Where the data lies.
pub struct Storage {
    scratch: TempDir,
    origin: TempDir,
    kind: Kind,
}

/// A data directory that is ready for a server, with what stands in front of it.
pub struct Stage {
    /// The server's data directory.
    pub data: PathBuf,
    /// The mount that it is on, if any.
    pub mount: Option<Mount>,
    /// What this side is called.
    pub title: &'static str,
}

impl Storage {
    /// Makes the directories that the user's choice wants.
    pub fn set_up(options: &Options) -> Result<Self> {
        let scratch = directory_in(&options.scratch)?;
        let stat = rustix::fs::statvfs(scratch.path())
            .map_err(|error| Failure::io("looking for free space")(std::io::Error::from(error)))?;
        let free = stat.f_bavail * stat.f_frsize;
        if free < ROOM_BYTES {
            return Err(Failure::Other(format!(
                "{} has {} MiB free, the demo needs {}: give it another place with --scratch DIR",
                options.scratch.display(),
                free >> 20,
                ROOM_BYTES >> 20
            )));
        }
        let origin = directory_in(options.origin.as_deref().unwrap_or(scratch.path()))?;
        Ok(Self { scratch, origin, kind: Kind::of(options) })
    }

    /// What the origin is, in words.
    pub fn describe(&self) -> String {
        self.kind.describe(self.origin.path().parent().unwrap_or(self.origin.path()))
    }

    /// The same, while nothing is made yet.
    pub fn planned(options: &Options) -> String {
        Kind::of(options).describe(options.origin.as_deref().unwrap_or(&options.scratch))
    }

    /// The tables as they were loaded.
    pub fn prepared(&self) -> PathBuf {
        self.scratch.path().join("prepared")
    }

    /// Sockets and logs.
    pub fn run_directory(&self) -> PathBuf {
        self.scratch.path().join("run")
    }

    fn data(&self) -> PathBuf {
        self.origin.path().join("mysql")
    }

    /// Puts a fresh copy of the tables on the origin.
    pub fn restore(&self) -> Result<()> {
        let data = self.data();
        if data.exists() {
            fs::remove_dir_all(&data).map_err(Failure::io(format!("removing {}", data.display())))?;
        }
        let mut copy = Command::new("cp");
        copy.args(["--archive", "--sparse=never", "--reflink=never"]).arg(self.prepared()).arg(&data);
        command::run("copying the tables to the origin", &mut copy)?;
        cool(&data)
    }

    /// Puts `front` before the origin.
    pub fn front(&self, headpond: &Headpond, front: Front) -> Result<Stage> {
        let title = match front {
            Front::Without => "without headpond",
            Front::With => "with headpond",
        };
        let (flash, size, mode, model_disk) = match (&self.kind, front) {
            (Kind::Model, Front::Without) => {
                (self.scratch.path().join("unused.pond"), Some("256M"), "pass-through", true)
            }
            (Kind::Model, Front::With) => {
                (self.scratch.path().join("flash.pond"), Some(FLASH_SIZE), "write-back", true)
            }
            (Kind::Own { flash, made }, Front::With) => {
                (flash.clone(), made.then_some(FLASH_SIZE), "write-back", false)
            }
            (Kind::Own { .. }, Front::Without) | (Kind::Rehearsal, _) => {
                return Ok(Stage { data: self.data(), mount: None, title });
            }
        };
        let mounting = Mounting {
            origin: self.origin.path().to_path_buf(),
            mountpoint: self.scratch.path().join("mnt"),
            flash,
            others: Vec::new(),
            size: size.map(str::to_owned),
            mode,
            redundancy: None,
            model_disk: model_disk.then(|| MODEL_DISK.to_owned()),
            fault: None,
            log: self.scratch.path().join("headpond.log"),
        };
        let mount = headpond.mount(&mounting)?;
        Ok(Stage { data: mounting.mountpoint.join("mysql"), mount: Some(mount), title })
    }

    /// The server's data directory on the origin itself, with nothing in front.
    pub fn bare(&self) -> PathBuf {
        self.data()
    }

    /// Removes what the demo made, or says where it is.
    pub fn clean_up(mut self, keep: bool) -> Result<()> {
        if keep {
            self.scratch.disable_cleanup(true);
            self.origin.disable_cleanup(true);
            println!("Kept: {} and {}", self.scratch.path().display(), self.origin.path().display());
            return Ok(());
        }
        if let Kind::Own { flash, made: true } = &self.kind {
            fs::remove_file(flash).map_err(Failure::io(format!("removing {}", flash.display())))?;
        }
        Ok(())
    }
}

/// A new directory in `parent` that the server's account can pass through.
fn directory_in(parent: &Path) -> Result<TempDir> {
    let doing = || format!("making a directory in {}", parent.display());
    let directory =
        tempfile::Builder::new().prefix("headpond-demo-").tempdir_in(parent).map_err(Failure::io(doing()))?;
    fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).map_err(Failure::io(doing()))?;
    Ok(directory)
}

/// Makes everything below `directory` durable and drops it from the page cache, so that a run
/// starts from the disk alone.
fn cool(directory: &Path) -> Result<()> {
    let doing = || format!("syncing {}", directory.display());
    for entry in fs::read_dir(directory).map_err(Failure::io(doing()))? {
        let path = entry.map_err(Failure::io(doing()))?.path();
        if path.is_dir() {
            cool(&path)?;
        } else if path.is_file() {
            let file = File::open(&path).map_err(Failure::io(doing()))?;
            file.sync_all().map_err(Failure::io(doing()))?;
            fadvise(&file, 0, None, Advice::DontNeed)
                .map_err(|error| Failure::io(doing())(std::io::Error::from(error)))?;
        }
    }
    Ok(())
}
