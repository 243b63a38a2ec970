//! Places that the lab may write to.
//!
//! Invariants:
//! - In a user's directory the lab makes one of its own, and writes and removes nothing beside it.
//! - The lab touches a device, or an existing file, only if it was named with `--destroy`, and never while it is in
//!   use.
//! - What the lab made goes with its owner, even after a failure or an interruption.

use crate::failure::{Failure, Result};
use rustix::fs::{Advice, Mode, OFlags, fadvise};
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// How the lab's own directories begin.
const PREFIX: &str = "headpond-lab-";

/// Makes a directory inside `parent`, which must have so many MiB free.
pub fn directory_in(parent: &Path, mib: u64) -> Result<TempDir> {
    let stat = rustix::fs::statvfs(parent)
        .map_err(|error| Failure::io(format!("looking for free space in {}", parent.display()))(error.into()))?;
    let free = (stat.f_bavail * stat.f_frsize) >> 20;
    if free < mib {
        return Err(Failure::Other(format!(
            "{} has {free} MiB free, and {mib} MiB are needed: name another place, or make the data smaller with --size",
            parent.display()
        )));
    }
    let doing = || format!("making a directory in {}", parent.display());
    let directory = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent).map_err(Failure::io(doing()))?;
    // A database server under an account of its own passes through.
    fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).map_err(Failure::io(doing()))?;
    Ok(directory)
}

/// Refuses a device or file that may hold something.
pub fn may_destroy(path: &Path, destroy: &[PathBuf]) -> Result<()> {
    if !destroy.iter().any(|named| named == path) {
        return Err(Failure::Other(format!(
            "{} may hold data, and the experiment would overwrite it.\n  If it may be destroyed, say so by name: --destroy {}",
            path.display(),
            path.display()
        )));
    }
    // An exclusive open fails while the device is mounted, or is part of something.
    let opened = rustix::fs::open(path, OFlags::RDWR | OFlags::EXCL | OFlags::CLOEXEC, Mode::empty());
    opened.map(drop).map_err(|error| Failure::io(format!("opening {} for nobody else", path.display()))(error.into()))
}

/// Makes a file durable and drops it from the page cache, so that a run starts from the disk.
pub fn cool(path: &Path) -> Result<()> {
    let doing = || format!("syncing {}", path.display());
    if path.is_dir() {
        for entry in fs::read_dir(path).map_err(Failure::io(doing()))? {
            cool(&entry.map_err(Failure::io(doing()))?.path())?;
        }
    } else if path.is_file() {
        let file = File::open(path).map_err(Failure::io(doing()))?;
        file.sync_all().map_err(Failure::io(doing()))?;
        fadvise(&file, 0, None, Advice::DontNeed).map_err(|error| Failure::io(doing())(error.into()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_may_hold_data_must_be_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = may_destroy(file.path(), &[PathBuf::from("/dev/null")]).expect_err("not named").to_string();
        assert!(error.contains(&format!("--destroy {}", file.path().display())), "{error}");
        may_destroy(file.path(), &[file.path().to_path_buf()]).unwrap();
    }

    #[test]
    fn a_directory_of_the_labs_own_goes_away_and_leaves_the_rest() {
        let parent = tempfile::tempdir().unwrap();
        fs::write(parent.path().join("mine"), "data").unwrap();
        let made = directory_in(parent.path(), 1).unwrap();
        fs::write(made.path().join("x"), "y").unwrap();
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 2);
        drop(made);
        assert_eq!(fs::read_to_string(parent.path().join("mine")).unwrap(), "data");
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 1);
        let error = directory_in(parent.path(), u64::MAX >> 21).expect_err("too much").to_string();
        assert!(error.contains("--size"), "{error}");
    }
}
