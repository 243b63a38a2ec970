//! A file system of its own, on an image or in memory, for one case.
//!
//! Invariant: it is unmounted when its owner lets go of it, and its loop device goes with it.

use super::Origin;
use crate::command;
use crate::failure::{Failure, Result};
use crate::pond::directory_in;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Room for everything that the kill tests and the suites make.
pub const ROOMY_MIB: u64 = 2048;
/// How long the kernel may take to let go of what a killed daemon had open.
const BUSY_MAX: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(50);

/// A mounted file system.
pub struct FileSystem {
    path: PathBuf,
}

impl FileSystem {
    /// Makes one of that many MiB, and mounts it below a directory.
    pub fn make(origin: Origin, directory: &Path, mib: u64) -> Result<Self> {
        let path = directory_in(directory, "fs")?;
        if origin == Origin::Tmpfs {
            let mut mount = Command::new("mount");
            mount.args(["-t", "tmpfs", "-o", &format!("size={mib}m,mode=755"), "none"]);
            command::run("mounting a tmpfs", mount.arg(&path))?;
            return Ok(Self { path });
        }
        let image = directory.join("image");
        File::create(&image)
            .and_then(|file| file.set_len(mib << 20))
            .map_err(Failure::io(format!("making {}", image.display())))?;
        let words = mkfs(origin);
        let mut mkfs = Command::new(words[0]);
        command::run("making a file system", mkfs.args(&words[1..]).arg(&image))?;
        let mut mount = Command::new("mount");
        command::run("mounting a file system", mount.args(["-o", "loop"]).arg(&image).arg(&path))?;
        Ok(Self { path })
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Has everything on the disk, so that free space is what it will be.
    pub fn sync(&self) -> Result<()> {
        command::run("syncing a file system", Command::new("sync").arg("-f").arg(&self.path)).map(drop)
    }

    /// What this machine lacks for it.
    pub fn missing(origin: Origin) -> Vec<String> {
        if !rustix::process::geteuid().is_root() {
            return vec!["root, who mounts".to_owned()];
        }
        if origin == Origin::Tmpfs {
            return Vec::new();
        }
        let program = mkfs(origin)[0];
        let lacks = command::run("looking", Command::new(program).arg("-V")).is_err();
        let mut missing: Vec<String> = lacks.then(|| program.to_owned()).into_iter().collect();
        if !Path::new("/dev/loop-control").exists() {
            missing.push("/dev/loop-control".to_owned());
        }
        missing
    }
}

fn mkfs(origin: Origin) -> &'static [&'static str] {
    match origin {
        Origin::Ext4NoExtents => {
            &["mkfs.ext4", "-q", "-F", "-b", "4096", "-m", "0", "-O", "^extent,^64bit,^flex_bg,^metadata_csum"]
        }
        Origin::Xfs => &["mkfs.xfs", "-q", "-f", "-m", "reflink=1"],
        Origin::Btrfs => &["mkfs.btrfs", "-q", "-f"],
        _ => &["mkfs.ext4", "-q", "-F", "-b", "4096", "-m", "0"],
    }
}

impl Drop for FileSystem {
    fn drop(&mut self) {
        let start = Instant::now();
        while command::run("unmounting", Command::new("umount").arg(&self.path)).is_err() {
            if start.elapsed() > BUSY_MAX {
                // Somebody is in there; the next who looks finds nothing in the way.
                let _ = command::run("unmounting", Command::new("umount").arg("--lazy").arg(&self.path));
                return;
            }
            std::thread::sleep(LOOK);
        }
    }
}
