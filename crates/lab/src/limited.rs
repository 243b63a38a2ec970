//! Flash that takes at most so many bytes of writes a second: a file system of its own on a loop device, which the
//! kernel slows down for all processes (cgroup v1, the root group of `blkio`).
//!
//! Reads are not slowed down, and neither are writes outside a measurement: otherwise the set-up of a side would take
//! longer than its runs.
//!
//! Invariant: limit, mount, loop device and file go with their owner, even after a failure.

use super::place;
use crate::command;
use crate::failure::{Failure, Result};
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
    /// The loop device, once there is one.
    device: Option<PathBuf>,
    /// Its number, as `MAJOR:MINOR`.
    number: String,
    mb_per_second: u32,
    mounted: bool,
    directory: TempDir,
}

/// While it lives, writes are slowed down.
pub struct Limit<'a>(&'a Limited);

impl Limited {
    /// Makes one of `mib` inside `scratch`.
    pub fn make(scratch: &Path, mib: u64, mb_per_second: u32) -> Result<Self> {
        if let Some(missing) = missing() {
            return Err(Failure::Other(format!(
                "flash cannot be slowed down here: {missing}\n  Run the experiment with --quick, which does without, or name places that are as slow as you want"
            )));
        }
        let directory = place::directory_in(scratch, mib)?;
        let mut limited = Self { device: None, number: String::new(), mb_per_second, mounted: false, directory };
        let image = limited.directory.path().join("flash.image");
        let doing = || format!("making {}", image.display());
        let file = fs::File::create_new(&image).map_err(Failure::io(doing()))?;
        file.set_len(mib << 20).map_err(Failure::io(doing()))?;
        let mut losetup = Command::new("losetup");
        losetup.args(["--find", "--show", "--direct-io=on"]).arg(&image);
        let device = PathBuf::from(command::run("making a loop device", &mut losetup)?.trim());
        limited.device = Some(device.clone());
        let name = device.file_name().unwrap_or_default();
        let number = Path::new("/sys/block").join(name).join("dev");
        let number = fs::read_to_string(&number).map_err(Failure::io(format!("reading {}", number.display())))?;
        number.trim().clone_into(&mut limited.number);
        let mut mkfs = Command::new("mkfs.ext4");
        // Nothing that the file system would do later, while a load is measured.
        mkfs.args(["-q", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard"]).arg(&device);
        command::run("making a file system", &mut mkfs)?;
        fs::create_dir(limited.path()).map_err(Failure::io("making a mount point"))?;
        command::run("mounting it", Command::new("mount").arg(&device).arg(limited.path()))?;
        limited.mounted = true;
        Ok(limited)
    }

    /// Where it is mounted.
    pub fn path(&self) -> PathBuf {
        self.directory.path().join("flash")
    }

    /// Slows writes down from now on.
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

impl Drop for Limited {
    fn drop(&mut self) {
        // A drop reports no error. The operator sees what is left.
        if self.mounted {
            let _ = command::run("unmounting it", Command::new("umount").arg(self.path()));
        }
        if let Some(device) = &self.device {
            let _ = command::run("taking the loop device away", Command::new("losetup").arg("--detach").arg(device));
        }
    }
}

/// What this machine lacks for it.
#[must_use]
pub fn missing() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("only root can".to_owned());
    }
    if !Path::new(LIMIT).exists() {
        return Some(format!("the kernel has no {LIMIT} (cgroup v1)"));
    }
    let programs = command::lacking(&["losetup", "mount", "umount", "sync"]);
    (!programs.is_empty()).then(|| format!("there is no {}", programs.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel's line for a device; nothing without a limit.
    fn told(number: &str) -> Option<String> {
        let all = fs::read_to_string(LIMIT).expect("it can be read");
        all.lines().find_map(|line| line.strip_prefix(&format!("{number} "))).map(str::to_owned)
    }

    #[test]
    fn it_is_slow_while_it_is_to_be_and_gone_afterwards() {
        if missing().is_some() || !Path::new("/dev/loop-control").exists() {
            return;
        }
        let scratch = tempfile::tempdir().expect("a directory");
        let limited = Limited::make(scratch.path(), 64, 5).expect("it is made");
        let (number, device) = (limited.number.clone(), limited.device.clone().expect("a loop device"));
        fs::write(limited.path().join("data"), b"there").expect("it can be written");
        assert_eq!(told(&number), None);
        let limit = limited.limit().expect("it can be slowed down");
        assert_eq!(told(&number).as_deref(), Some("5000000"));
        drop(limit);
        assert_eq!(told(&number), None);
        drop(limited);
        assert_eq!(fs::read_dir(scratch.path()).expect("it is there").count(), 0);
        let backing = Path::new("/sys/block").join(device.file_name().expect("a name")).join("loop/backing_file");
        // The kernel removes the device after its last use. A new mount name space of another process holds a copy of
        // the mount for a moment.
        let of_ours =
            || fs::read_to_string(&backing).is_ok_and(|file| file.contains(&*scratch.path().to_string_lossy()));
        let start = std::time::Instant::now();
        while of_ours() && start.elapsed().as_secs() < 60 {
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        assert!(!of_ours(), "{}", backing.display());
    }
}
