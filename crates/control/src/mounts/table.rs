//! The kernel's table of mounts, `/proc/self/mountinfo`. headpond asks it instead of the file system, because a mount
//! that is stuck or whose daemon died does not answer.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use headpond_mount::path_of_source;
use rustix::mount::{UnmountFlags, unmount};

use crate::refusal::Refusal;

/// The file system type of headpond's mounts.
pub const FS_TYPE: &str = "fuse.headpond";

/// One mount.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedMount {
    /// The kernel's number for it.
    pub id: u32,
    /// The number of the mount that it is mounted on.
    pub parent: u32,
    /// The number of its device, major and minor: the same for all mounts of one file system.
    pub device: (u32, u32),
    /// The directory of its file system that the mount point shows.
    pub root: PathBuf,
    /// The mount point.
    pub mountpoint: PathBuf,
    /// Its file system type: [`FS_TYPE`] for ours.
    pub fs_type: String,
    /// The source of the mount. For headpond's mounts: the origin.
    pub source: PathBuf,
    /// The user who mounted it, for FUSE.
    pub user: Option<u32>,
}

/// All mounts that this process sees. Of several on one mount point the topmost comes last.
#[must_use]
pub fn mounts() -> Vec<ListedMount> {
    fs::read("/proc/self/mountinfo").map_or_else(|_| Vec::new(), |text| parse(&text))
}

/// The topmost mount on a mount point, if there is one.
#[must_use]
pub fn mounted_on(mountpoint: &Path) -> Option<ListedMount> {
    mounts().into_iter().rev().find(|mount| mount.mountpoint == mountpoint)
}

/// All mounts that another process sees, with their paths in its namespace.
#[must_use]
pub(crate) fn mounts_of(process: &Path) -> Vec<ListedMount> {
    fs::read(process.join("mountinfo")).map_or_else(|_| Vec::new(), |text| parse(&text))
}

pub(crate) fn parse(text: &[u8]) -> Vec<ListedMount> {
    text.split(|&byte| byte == b'\n').filter_map(parse_line).collect()
}

fn parse_line(line: &[u8]) -> Option<ListedMount> {
    let fields: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
    let dash = fields.iter().position(|field| *field == b"-")?;
    let options = fields.get(dash + 3).copied().unwrap_or_default();
    let user = options
        .split(|&byte| byte == b',')
        .find_map(|option| option.strip_prefix(b"user_id="))
        .and_then(|user| std::str::from_utf8(user).ok()?.parse().ok());
    let number = |at: usize| std::str::from_utf8(fields.get(at)?).ok()?.parse().ok();
    let (major, minor) = std::str::from_utf8(fields.get(2)?).ok()?.split_once(':')?;
    let fs_type = String::from_utf8_lossy(fields.get(dash + 1)?).into_owned();
    let source = unescape(fields.get(dash + 2)?);
    let source = if fs_type == FS_TYPE { path_of_source(source.as_os_str().as_bytes()) } else { source };
    Some(ListedMount {
        id: number(0)?,
        parent: number(1)?,
        device: (major.parse().ok()?, minor.parse().ok()?),
        root: unescape(fields.get(3)?),
        mountpoint: unescape(fields.get(4)?),
        fs_type,
        source,
        user,
    })
}

/// Undoes the kernel's `\040` for space, tab, newline and backslash.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, after)) = rest.split_first() {
        let octal = after.get(..3).filter(|_| first == b'\\').and_then(|digits| {
            digits.iter().try_fold(0_u32, |value, digit| {
                (b'0'..=b'7').contains(digit).then(|| value * 8 + u32::from(digit - b'0'))
            })
        });
        match octal.and_then(|value| u8::try_from(value).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

/// How to unmount.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Detach {
    /// Only if no program uses it.
    Idle,
    /// At once from the namespace. A program that has it open keeps it until the daemon ends.
    Lazy,
}

/// Unmounts: as root by the kernel's own call, else through fusermount3.
///
/// # Errors
/// [`Refusal::Busy`] if the mount is in use and `how` is not lazy.
pub fn detach(mountpoint: &Path, how: Detach) -> Result<(), Refusal> {
    let flags = match how {
        Detach::Idle => UnmountFlags::empty(),
        Detach::Lazy => UnmountFlags::DETACH,
    } | UnmountFlags::NOFOLLOW;
    match unmount(mountpoint, flags) {
        Ok(()) => return Ok(()),
        Err(rustix::io::Errno::BUSY) => return Err(busy(mountpoint)),
        // Not mounted any more: another unmount was faster.
        Err(rustix::io::Errno::INVAL) if mounted_on(mountpoint).is_none() => return Ok(()),
        Err(rustix::io::Errno::PERM) => {}
        Err(error) => return Err(Refusal::from_io("unmount", mountpoint, error)),
    }
    let mut command = Command::new("fusermount3");
    command.arg("-u");
    if how == Detach::Lazy {
        command.arg("-z");
    }
    let output = command.arg("--").arg(mountpoint).output().map_err(|error| Refusal::Failed {
        doing: format!("run fusermount3 to unmount {}", mountpoint.display()),
        error,
    })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("busy") {
        return Err(busy(mountpoint));
    }
    Err(Refusal::Failed {
        doing: format!("unmount {}", mountpoint.display()),
        error: std::io::Error::other(said.trim().to_owned()),
    })
}

fn busy(mountpoint: &Path) -> Refusal {
    Refusal::Busy { path: mountpoint.to_owned(), by: String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_read_with_spaces_in_their_names_and_optional_fields() {
        let text = b"23 1 8:1 / / rw,relatime shared:1 - ext4 /dev/root rw\n\
            99 23 0:45 / /srv/my\\040db rw,nosuid - fuse.headpond /slow/my\\134db rw,user_id=1000,group_id=1000\n";
        let mounts = parse(text);
        assert_eq!(mounts.len(), 2);
        assert_eq!(mounts[0].mountpoint, Path::new("/"));
        assert_eq!(
            mounts[1],
            ListedMount {
                id: 99,
                parent: 23,
                device: (0, 45),
                root: "/".into(),
                mountpoint: "/srv/my db".into(),
                fs_type: FS_TYPE.into(),
                source: "/slow/my\\db".into(),
                user: Some(1000)
            }
        );
    }

    #[test]
    fn cut_lines_and_escapes_are_survived() {
        for text in ["", "\n", "1 2 3", "1 2 3 / /x rw - ", "1 2 3 / /x\\0 rw - a b", "1 2 3 / /x\\999 rw - a b c"] {
            let _ = parse(text.as_bytes());
        }
    }

    #[test]
    fn the_root_is_a_mount_of_this_process() {
        assert!(mounted_on(Path::new("/")).is_some());
    }
}
