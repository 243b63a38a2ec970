//! An ext4 of the lab's own, on a loop device over a file.
//!
//! Invariant: mount and loop device go with their owner, even after a failure.

use crate::command;
use crate::failure::{Failure, Result};
use crate::loop_device::LoopDevice;
use crate::mount_point;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The file system, mounted.
pub struct LoopFileSystem {
    device: LoopDevice,
    path: PathBuf,
    mounted: bool,
}

impl LoopFileSystem {
    /// Makes a file of so many MiB with a file system in it.
    ///
    /// # Errors
    /// When the file is there already, or the command fails.
    pub fn make_image(file: &Path, mib: u64) -> Result<()> {
        let doing = || format!("making {}", file.display());
        let image = fs::File::create_new(file).map_err(Failure::io(doing()))?;
        image.set_len(mib << 20).map_err(Failure::io(doing()))?;
        let mut mkfs = Command::new("mkfs.ext4");
        // Nothing that the file system would do later, while a load is measured.
        mkfs.args(["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard"]).arg(file);
        command::run("making a file system", &mut mkfs).map(drop)
    }

    /// Mounts the file system in `file` at `path`, a directory that it makes.
    ///
    /// # Errors
    /// When a command fails. Only root can.
    pub fn mount(file: &Path, path: PathBuf) -> Result<Self> {
        let mut made = Self { device: LoopDevice::over(file)?, path, mounted: false };
        fs::create_dir(&made.path).map_err(Failure::io("making a mount point"))?;
        command::run("mounting it", Command::new("mount").arg(made.device.path()).arg(&made.path))?;
        made.mounted = true;
        Ok(made)
    }

    /// Where it is mounted.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its loop device.
    #[must_use]
    pub fn device(&self) -> &Path {
        self.device.path()
    }

    /// What this machine lacks for it.
    #[must_use]
    pub fn missing() -> Option<String> {
        LoopDevice::missing().or_else(|| command::missing(&["mount", "umount"]))
    }
}

impl Drop for LoopFileSystem {
    fn drop(&mut self) {
        // A drop reports no error. The operator sees what is left.
        if let Some(Err(error)) = self.mounted.then(|| mount_point::let_go(&self.path)) {
            eprintln!("headpond-lab: {} stays mounted: {error}", self.path.display());
        }
    }
}
