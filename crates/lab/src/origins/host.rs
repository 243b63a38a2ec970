//! A file system for one case, on an image or in memory.
//!
//! Invariants
//! - Its owner's drop unmounts it, and removes its loop device.
//! - It is empty at first. A process with a mount namespace of its own may still hold an earlier one with its loop
//!   device, and the kernel would mount that again for the same image. So each has an image of its own.

use super::TriedOrigin;
use crate::command;
use crate::failure::{Failure, Result};
use crate::mount_point;
use crate::pond::directory_in;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::NamedTempFile;

/// Room for everything that the kill tests and the suites make.
pub const ROOMY_MIB: u64 = 2048;
/// A mounted file system.
pub struct FileSystem {
    path: PathBuf,
    /// None in memory.
    _image: Option<NamedTempFile>,
}

impl FileSystem {
    /// Makes one of that many MiB, and mounts it below a directory.
    pub fn make(origin: TriedOrigin, directory: &Path, mib: u64) -> Result<Self> {
        let path = directory_in(directory, "fs")?;
        if origin == TriedOrigin::Tmpfs {
            let mut mount = Command::new("mount");
            mount.args(["-t", "tmpfs", "-o", &format!("size={mib}m,mode=755"), "none"]);
            command::run("mounting a tmpfs", mount.arg(&path))?;
            return Ok(Self { path, _image: None });
        }
        let image = NamedTempFile::new_in(directory)
            .and_then(|image| image.as_file().set_len(mib << 20).map(|()| image))
            .map_err(Failure::io(format!("making an image in {}", directory.display())))?;
        let words = mkfs(origin);
        let mut mkfs = Command::new(words[0]);
        command::run("making a file system", mkfs.args(&words[1..]).arg(image.path()))?;
        let mut mount = Command::new("mount");
        command::run("mounting a file system", mount.args(["-o", "loop"]).arg(image.path()).arg(&path))?;
        Ok(Self { path, _image: Some(image) })
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
    pub fn missing(origin: TriedOrigin) -> Vec<String> {
        if !rustix::process::geteuid().is_root() {
            return vec!["root, who mounts".to_owned()];
        }
        if origin == TriedOrigin::Tmpfs {
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

fn mkfs(origin: TriedOrigin) -> &'static [&'static str] {
    match origin {
        TriedOrigin::Ext4NoExtents => {
            &["mkfs.ext4", "-q", "-F", "-b", "4096", "-m", "0", "-O", "^extent,^64bit,^flex_bg,^metadata_csum"]
        }
        TriedOrigin::Xfs => &["mkfs.xfs", "-q", "-f", "-m", "reflink=1"],
        TriedOrigin::Btrfs => &["mkfs.btrfs", "-q", "-f"],
        _ => &["mkfs.ext4", "-q", "-F", "-b", "4096", "-m", "0"],
    }
}

impl Drop for FileSystem {
    fn drop(&mut self) {
        if mount_point::let_go(&self.path).is_err() {
            // A process is in there; the next look finds nothing in the way.
            let _ = command::run("unmounting", Command::new("umount").arg("--lazy").arg(&self.path));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;

    #[test]
    fn one_that_is_made_again_is_empty_though_another_name_space_holds_the_one_before() {
        let missing = FileSystem::missing(TriedOrigin::Ext4);
        if !missing.is_empty() || !command::lacking(&["unshare"]).is_empty() {
            eprintln!("left out: {missing:?}");
            return;
        }
        let directory = tempfile::tempdir().expect("a directory");
        let fs = FileSystem::make(TriedOrigin::Ext4, directory.path(), 16).expect("made");
        fs::write(fs.path().join("file"), "x").expect("written");
        let mut holder = Command::new("unshare");
        holder.args(["--mount", "--propagation", "private", "sh", "-c", "echo; exec sleep 60"]);
        let mut holder = holder.stdout(Stdio::piped()).spawn().expect("started");
        let mut line = String::new();
        let held = holder.stdout.take().map(|said| BufReader::new(said).read_line(&mut line));
        assert!(matches!(held, Some(Ok(1))), "{held:?}");
        drop(fs);
        let again = FileSystem::make(TriedOrigin::Ext4, directory.path(), 16).expect("made again");
        let found = again.path().join("file").exists();
        drop(again);
        holder.kill().and_then(|()| holder.wait()).expect("ended");
        assert!(!found, "the file of the one before");
    }
}
