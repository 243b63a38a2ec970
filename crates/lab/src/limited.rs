//! Flash that takes at most so many bytes of writes a second: a file system of its own on a loop device, which the
//! kernel slows down for all processes (cgroup v1, the root group of `blkio`).
//!
//! Reads are not slowed down, and neither are writes outside a measurement: otherwise the set-up of a side would take
//! longer than its runs.
//!
//! Invariant: limit, mount, loop device and file go with their owner, even after a failure.

use crate::command;
use crate::failure::{Failure, Result};
use crate::loop_file_system::LoopFileSystem;
use crate::place;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Takes `MAJOR:MINOR BYTES`, and 0 for no limit.
const LIMIT: &str = "/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device";
/// What a limit is counted in: MB, as storage is sold.
const MB: u64 = 1_000_000;

/// The file system.
pub struct Limited {
    // Fields are dropped in order.
    file_system: LoopFileSystem,
    /// The loop device's number, as `MAJOR:MINOR`.
    number: String,
    mb_per_second: u32,
    _directory: TempDir,
}

/// While it lives, writes are slowed down.
pub struct Limit<'a>(&'a Limited);

impl Limited {
    /// Makes one of `mib` inside `scratch`.
    ///
    /// # Errors
    /// When something is missing (the error says what), or there is no room.
    pub fn make(scratch: &Path, mib: u64, mb_per_second: u32) -> Result<Self> {
        if let Some(missing) = missing() {
            return Err(Failure::Other(format!(
                "flash cannot be slowed down here: {missing}\n  Run the experiment with --quick, which does without, or name places that are as slow as you want"
            )));
        }
        let directory = place::directory_in(scratch, mib)?;
        let image = directory.path().join("flash.image");
        LoopFileSystem::make_image(&image, mib)?;
        let file_system = LoopFileSystem::mount(&image, directory.path().join("flash"))?;
        let name = file_system.device().file_name().unwrap_or_default();
        let number = Path::new("/sys/block").join(name).join("dev");
        let number = fs::read_to_string(&number).map_err(Failure::io(format!("reading {}", number.display())))?;
        Ok(Self { file_system, number: number.trim().to_owned(), mb_per_second, _directory: directory })
    }

    /// Where it is mounted.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.file_system.path().to_path_buf()
    }

    /// The limit in force, in bytes a second, as the kernel shows it; none without one.
    ///
    /// # Errors
    /// When the kernel does not show its limits.
    pub fn in_force(&self) -> Result<Option<u64>> {
        let all = fs::read_to_string(LIMIT).map_err(Failure::io(format!("reading {LIMIT}")))?;
        let line = all.lines().find_map(|line| line.strip_prefix(&self.number)?.strip_prefix(' '));
        Ok(line.and_then(|bytes| bytes.trim().parse().ok()))
    }

    /// Slows writes down from now on.
    ///
    /// # Errors
    /// When the sync before that fails, or the kernel refuses the limit.
    pub fn limit(&self) -> Result<Limit<'_>> {
        // What was written before is not to be paid for now.
        command::run("syncing it", Command::new("sync").arg("--file-system").arg(self.path()))?;
        self.set(u64::from(self.mb_per_second) * MB)?;
        Ok(Limit(self))
    }

    fn set(&self, bytes: u64) -> Result<()> {
        fs::write(LIMIT, format!("{} {bytes}", self.number)).map_err(Failure::io(format!("writing to {LIMIT}")))
    }
}

impl Drop for Limit<'_> {
    fn drop(&mut self) {
        // Failing leaves a device slow that is about to go.
        let _ = self.0.set(0);
    }
}

/// Whether this kernel can slow a device down for all processes. No package adds that.
#[must_use]
pub fn kernel_can() -> bool {
    Path::new(LIMIT).exists()
}

/// What this machine lacks for it.
#[must_use]
pub fn missing() -> Option<String> {
    if !kernel_can() {
        return Some(format!("the kernel has no {LIMIT} (cgroup v1)"));
    }
    LoopFileSystem::missing().or_else(|| command::missing(&["sync"]))
}
