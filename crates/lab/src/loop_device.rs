//! A loop device over a file of the lab's own: a block device that it may write to.
//!
//! Invariant: the device goes with its owner, even after a failure. If it is in use then, the kernel takes it away
//! with the last user.

use crate::command;
use crate::failure::Result;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A loop device.
#[derive(Debug)]
pub struct LoopDevice(PathBuf);

impl LoopDevice {
    /// Makes one over `file`, past the page cache.
    ///
    /// # Errors
    /// When the command fails. Only root can.
    pub fn over(file: &Path) -> Result<Self> {
        let mut losetup = Command::new("losetup");
        losetup.args(["--find", "--show", "--direct-io=on"]).arg(file);
        let device = command::run("making a loop device", &mut losetup)?;
        Ok(Self(PathBuf::from(device.trim())))
    }

    /// The device.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// What this machine lacks for it.
    #[must_use]
    pub fn missing() -> Option<String> {
        if !rustix::process::geteuid().is_root() {
            return Some("only root can make a loop device".to_owned());
        }
        if !Path::new("/dev/loop-control").exists() {
            return Some("the kernel has no loop devices (/dev/loop-control)".to_owned());
        }
        command::missing(&["losetup"])
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        // A drop reports no error. The operator sees what is left.
        let _ = command::run("taking the loop device away", Command::new("losetup").arg("--detach").arg(&self.0));
    }
}
