//! Opens what lies below a directory, and nothing else.
//!
//! Invariants:
//! - It follows no link and reaches nothing above the directory, whatever the directory's owner plants there
//!   meanwhile. It enters mount points below only if the caller says so: only a user who may mount can plant one.
//! - An open with `O_PATH` does not act on the file. The caller checks the kind of the file, and then opens it for use
//!   with [`reopen`]. So a FIFO does not hang, and a device does nothing.

use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, StatxFlags, openat, openat2, statx};
use rustix::io::Errno;

const RESOLVE: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

/// What happens at a mount point on the way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mounts {
    /// The way goes on through it.
    Entered,
    /// The way ends there. A kernel without `openat2` tells a mount point only by its device.
    Refused,
}

/// Opens `path` below `directory`. Creates nothing. An empty path means the directory itself.
///
/// # Errors
/// The system's: `ELOOP` for a link on the way, `EXDEV` for a path that leaves the directory or meets a mount point.
pub fn open_beneath(directory: impl AsFd, path: &Path, flags: OFlags, mounts: Mounts) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::CLOEXEC;
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let resolve = if mounts == Mounts::Refused { RESOLVE | ResolveFlags::NO_XDEV } else { RESOLVE };
    match openat2(&directory, path, flags, Mode::empty(), resolve) {
        // Linux before 5.6, or a sandbox that does not know the call. Some sandboxes say EPERM.
        Err(Errno::NOSYS | Errno::PERM) => step_by_step(directory, path, flags, mounts),
        opened => opened,
    }
}

/// Like [`open_beneath`], with calls that every kernel has: one directory after the other.
fn step_by_step(directory: impl AsFd, path: &Path, flags: OFlags, mounts: Mounts) -> Result<OwnedFd, Errno> {
    let device = device_of(&directory)?;
    let is_on_way = |file: &OwnedFd| Ok(mounts == Mounts::Entered || device_of(file)? == device);
    let step = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut at = openat(&directory, c".", step, Mode::empty())?;
    let mut parts = path.components().filter(|part| *part != Component::CurDir).peekable();
    while let Some(part) = parts.next() {
        let Component::Normal(name) = part else { return Err(Errno::XDEV) };
        let flags = if parts.peek().is_some() { step } else { flags | OFlags::NOFOLLOW };
        // To open a device or a FIFO acts on it, so check its kind first.
        let found = openat(&at, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        if !is_on_way(&found)? {
            return Err(Errno::XDEV);
        }
        at = if flags.contains(OFlags::PATH) && !flags.contains(OFlags::DIRECTORY) {
            found
        } else {
            openat(&at, name, flags, Mode::empty())?
        };
        if parts.peek().is_none() {
            return Ok(at);
        }
    }
    openat(&at, c".", flags - OFlags::NOFOLLOW, Mode::empty())
}

/// Opens for use what is open with `O_PATH`: the very same file, even if its name now leads elsewhere.
///
/// # Errors
/// The system's.
pub fn reopen(file: impl AsFd, flags: OFlags) -> Result<OwnedFd, Errno> {
    let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    rustix::fs::open(path, (flags - OFlags::NOFOLLOW) | OFlags::CLOEXEC, Mode::empty())
}

/// The present path of a descriptor's file.
///
/// # Errors
/// The system's.
pub fn path_of(file: impl AsFd) -> Result<PathBuf, Errno> {
    let link = rustix::fs::readlink(format!("/proc/self/fd/{}", file.as_fd().as_raw_fd()), Vec::new())?;
    Ok(PathBuf::from(OsStr::from_bytes(link.as_bytes())))
}

fn device_of(file: impl AsFd) -> Result<(u32, u32), Errno> {
    let found = statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::TYPE)?;
    Ok((found.stx_dev_major, found.stx_dev_minor))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};
    use std::os::unix::fs::symlink;

    #[test]
    fn links_and_ways_out_are_refused_with_and_without_openat2() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        fs::create_dir_all(at("top/a/b")).unwrap();
        fs::write(at("top/a/b/file"), "in").unwrap();
        fs::write(at("out"), "out").unwrap();
        symlink(at("out"), at("top/a/link")).unwrap();
        symlink("a", at("top/dir-link")).unwrap();
        symlink("b/file", at("top/a/inner")).unwrap();
        let top = File::open(at("top")).unwrap();
        let read = OFlags::RDONLY | OFlags::NOFOLLOW;
        let new = |path: &str, flags| open_beneath(&top, Path::new(path), flags, Mounts::Refused).map(drop);
        let old =
            |path: &str, flags| step_by_step(&top, Path::new(path), flags | OFlags::CLOEXEC, Mounts::Refused).map(drop);
        for (path, expected) in [
            ("a/b/file", Ok(())),
            ("./a/b", Ok(())),
            (".", Ok(())),
            ("a/link", Err(Errno::LOOP)),
            ("a/inner", Err(Errno::LOOP)),
            ("a/none", Err(Errno::NOENT)),
            ("../out", Err(Errno::XDEV)),
            ("/etc/passwd", Err(Errno::XDEV)),
        ] {
            assert_eq!((new(path, read), old(path, read)), (expected, expected), "{path}");
        }
        for open in [&new as &dyn Fn(&str, OFlags) -> Result<(), Errno>, &old] {
            assert!(matches!(open("dir-link/b/file", read), Err(Errno::LOOP | Errno::NOTDIR)));
        }
        let link = open_beneath(&top, Path::new("a/inner"), OFlags::PATH | OFlags::NOFOLLOW, Mounts::Entered).unwrap();
        assert_eq!(reopen(&link, OFlags::RDONLY).unwrap_err(), Errno::LOOP, "a link is looked at, not followed");
    }
}
