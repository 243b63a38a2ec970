//! The origin, opened once. Everything else of a start, and of the mount after it, reaches the origin by this
//! descriptor.
//!
//! Invariant: the kernel gives the path of the open descriptor. So a directory or link that is swapped in on the way
//! to the origin changes nothing after the open.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use headpond_shard::{birth_times_last, path_of};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, Statx, StatxFlags, openat, statx};
use rustix::io::Errno;

use crate::refusal::Refusal;

/// For tests: syncs of the whole origin wait while there is this file.
const SYNC_WAITS_FOR: &str = "HEADPOND_ORIGIN_SYNC_WAITS_FOR";

/// The origin's root, open.
#[derive(Debug)]
pub struct OriginRoot {
    path: PathBuf,
    dir: OwnedFd,
    device: (u32, u32),
    /// Birth times tell its files apart.
    has_births: bool,
    newborn: OnceLock<Owner>,
}

/// A file's owner, and which others may write it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Owner {
    pub(crate) user: u32,
    /// The permission bits that let group and others write.
    pub(crate) writable: u32,
}

impl Owner {
    pub(crate) fn of(found: &Statx) -> Self {
        Self { user: found.stx_uid, writable: u32::from(found.stx_mode) & 0o022 }
    }
}

pub(crate) const FIELDS: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::BTIME);

impl OriginRoot {
    /// Opens the origin. It follows links in the path that the operator gave. From here on nothing follows a link.
    ///
    /// # Errors
    /// If there is none, or it cannot be opened.
    pub fn open(given: &Path) -> Result<Self, Refusal> {
        let refuse = |why: &str| Refusal::Origin { path: given.to_owned(), why: why.to_owned() };
        let failed = |error: Errno| match error {
            Errno::NOENT => refuse("does not exist"),
            Errno::NOTDIR => refuse("is not a directory"),
            error => Refusal::from_io("open the origin", given, error),
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = openat(CWD, given, flags, Mode::empty()).map_err(failed)?;
        let now = look_at(&dir, c"").map_err(failed)?;
        let path = path_of(&dir).map_err(|error| Refusal::from_io("find the path of the origin", given, error))?;
        // The kernel's text itself marks a name that is gone.
        let there = look_at(CWD, &path).map_err(|_| refuse("has just been removed or moved"))?;
        if identity(&there) != identity(&now) {
            return Err(refuse("has just been replaced, or a mount hides it"));
        }
        let (device, has_births) = ((now.stx_dev_major, now.stx_dev_minor), birth_times_last(&dir));
        Ok(Self { path, dir, device, has_births, newborn: OnceLock::new() })
    }

    /// Its path at the open, without links.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The device of its file system.
    pub(crate) const fn device(&self) -> (u32, u32) {
        self.device
    }

    /// The status of a file here, by its descriptor or its name in a directory. It has a birth time only where that tells
    /// files apart.
    pub(crate) fn look_at(&self, dir: impl AsFd, name: impl rustix::path::Arg) -> Result<Statx, Errno> {
        let mut found = look_at(dir, name)?;
        if !self.has_births {
            found.stx_mask &= !StatxFlags::BTIME.bits();
        }
        Ok(found)
    }

    /// Makes everything durable that the origin's file system has in memory only.
    ///
    /// # Errors
    /// The origin's. Some of what was written there may be lost.
    pub fn sync_file_system(&self) -> io::Result<()> {
        if let Some(held_by) = std::env::var_os(SYNC_WAITS_FOR) {
            while Path::new(&held_by).exists() {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        Ok(rustix::fs::syncfs(&self.dir)?)
    }

    /// The owner that a file gets which this process makes here. Some file systems do not give it to the user who
    /// asks: NFS that maps root to another user, CIFS, FAT. `None` if a trial is impossible.
    pub(crate) fn newborn(&self) -> Option<Owner> {
        if let Some(known) = self.newborn.get() {
            return Some(*known);
        }
        let mode = Mode::from_raw_mode(0o644);
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let owner = match openat(&self.dir, c".", flags | OFlags::TMPFILE, mode) {
            Ok(file) => Owner::of(&look_at(&file, c"").ok()?),
            // The file system has no files without a name.
            Err(_) => {
                let name = format!(".headpond-probe-{}", std::process::id());
                let file = openat(&self.dir, &name, flags | OFlags::CREATE | OFlags::EXCL, mode).ok()?;
                let found = look_at(&file, c"");
                let _ = rustix::fs::unlinkat(&self.dir, &name, AtFlags::empty());
                Owner::of(&found.ok()?)
            }
        };
        Some(*self.newborn.get_or_init(|| owner))
    }
}

impl AsFd for OriginRoot {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }
}

/// The status of a descriptor, or of a name in it. It follows no links.
pub(crate) fn look_at(dir: impl AsFd, name: impl rustix::path::Arg) -> Result<Statx, Errno> {
    statx(dir, name, AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT, FIELDS)
}

/// What tells a file from every other file at the same moment.
pub(crate) const fn identity(found: &Statx) -> (u32, u32, u64) {
    (found.stx_dev_major, found.stx_dev_minor, found.stx_ino)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn an_origin_that_is_swapped_once_it_is_open_stays_the_one_that_was_opened() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("origin")).unwrap();
        fs::write(at("origin/mine"), "").unwrap();
        std::os::unix::fs::symlink("origin", at("link")).unwrap();
        let root = OriginRoot::open(&at("link")).unwrap();
        assert_eq!(root.path(), fs::canonicalize(at("origin")).unwrap(), "links are resolved once");
        fs::rename(at("origin"), at("aside")).unwrap();
        fs::create_dir(at("origin")).unwrap();
        assert!(look_at(&root, c"mine").is_ok());
    }

    #[test]
    fn what_is_no_directory_is_told_and_does_not_hang() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        rustix::fs::mknodat(CWD, &fifo, rustix::fs::FileType::Fifo, Mode::RWXU, 0).unwrap();
        for (path, says) in [(fifo, "not a directory"), (dir.path().join("gone"), "does not exist")] {
            let refusal = OriginRoot::open(&path).unwrap_err();
            assert!(refusal.to_string().contains(says), "{refusal}");
        }
    }
}
