//! Where a daemon's socket and log lie. A client finds them by the mount point alone.
//!
//! Invariants:
//! - The directory belongs to the daemon's user, and no other user may write there.
//! - Only the holder of the directory's lock makes a socket or removes a dead one. So no process removes the socket
//!   of a daemon that has just taken a dead one's place.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::process::geteuid;

use crate::refusal::Refusal;

/// The directories for a user's daemons, the best first.
fn candidates(user: u32) -> Vec<PathBuf> {
    if user == 0 {
        return vec!["/run/headpond".into(), "/tmp/headpond-0".into()];
    }
    let mut dirs = Vec::new();
    if user == geteuid().as_raw()
        && let Some(dir) = std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| Path::new(dir).is_absolute())
    {
        dirs.push(Path::new(&dir).join("headpond"));
    }
    dirs.push(format!("/run/user/{user}/headpond").into());
    dirs.push(format!("/tmp/headpond-{user}").into());
    dirs
}

/// The directory for a new daemon of this user. It is made if it is missing.
///
/// # Errors
/// If none can be made, or another user owns it.
pub fn make() -> Result<PathBuf, Refusal> {
    let user = geteuid().as_raw();
    let mut last = None;
    for dir in candidates(user) {
        match fs::DirBuilder::new().mode(0o700).create(&dir) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => {
                last = Some((dir, error));
                continue;
            }
        }
        match trusted(&dir, user) {
            Ok(()) => return Ok(dir),
            Err(error) => last = Some((dir, error)),
        }
    }
    let (dir, error) = last.unwrap_or_else(|| ("/tmp".into(), io::Error::other("no place")));
    Err(Refusal::from_io("make the directory for the control socket,", &dir, error))
}

fn trusted(dir: &Path, user: u32) -> io::Result<()> {
    let metadata = fs::symlink_metadata(dir)?;
    if metadata.is_dir() && metadata.uid() == user && metadata.mode() & 0o022 == 0 {
        Ok(())
    } else {
        Err(io::Error::other("it belongs to another user, or others can write there"))
    }
}

/// Takes a directory's lock, which the file holds. Hold it for moments only.
///
/// # Errors
/// If it cannot be opened.
pub(crate) fn lock(dir: &Path) -> io::Result<File> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(dir.join("lock"))?;
    flock(&file, FlockOperation::LockExclusive)?;
    Ok(file)
}

/// Removes the sockets of this user's dead daemons. A socket that cannot be removed stays, and counts as dead again.
pub fn remove_dead() {
    for dir in dirs_of(&[geteuid().as_raw()]) {
        let Ok(_lock) = lock(&dir) else { continue };
        for socket in sockets_in(&dir) {
            let refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
            if UnixStream::connect(&socket).is_err_and(refused) {
                let _ = fs::remove_file(&socket);
            }
        }
    }
}

/// The sockets at which the daemon of a mount point may listen, for this user and for the user who mounted it. Each
/// comes with the user who must own it.
#[must_use]
pub fn sockets_of(mountpoint: &Path, mounted_by: Option<u32>) -> Vec<(PathBuf, u32)> {
    let own = geteuid().as_raw();
    let mut users = vec![own];
    users.extend(mounted_by.filter(|user| *user != own));
    let name = name_of(mountpoint);
    let socket = |dir: PathBuf| dir.join(format!("{name}.sock"));
    users.iter().flat_map(|&user| dirs_of(&[user]).into_iter().map(move |dir| (socket(dir), user))).collect()
}

/// All sockets of this user's daemons, dead or alive.
#[must_use]
pub fn all_sockets() -> Vec<PathBuf> {
    let mut sockets: Vec<PathBuf> =
        dirs_of(&[geteuid().as_raw()]).into_iter().flat_map(|dir| sockets_in(&dir)).collect();
    sockets.sort();
    sockets
}

fn sockets_in(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().filter_map(|entry| entry.ok().map(|entry| entry.path()));
    entries.filter(|path| path.extension().is_some_and(|extension| extension == "sock")).collect()
}

fn dirs_of(users: &[u32]) -> Vec<PathBuf> {
    let mut dirs = Vec::new();
    for &user in users {
        dirs.extend(candidates(user).into_iter().filter(|dir| trusted(dir, user).is_ok()));
    }
    dirs
}

/// The name of a mount point's files: its last part for people, and a hash of all of it, because a socket's path may
/// have at most 107 bytes.
#[must_use]
pub fn name_of(mountpoint: &Path) -> String {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325; // FNV-1a
    for byte in mountpoint.as_os_str().as_bytes() {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    }
    let last = mountpoint.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    let readable: String =
        last.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '_' }).take(24).collect();
    format!("{readable}-{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_safe_and_differ_by_the_whole_path() {
        let long = Path::new("/a").join("x y/../".repeat(100)).join("d\u{e4}tabase-with-a-very-long-name-indeed");
        for path in [Path::new("/"), Path::new("/var/lib/mysql"), &long] {
            let name = name_of(path);
            assert!(name.len() <= 41 && !name.contains(['/', ' ', '.']), "{name}");
        }
        assert_ne!(name_of(Path::new("/a/mysql")), name_of(Path::new("/b/mysql")));
    }

    #[test]
    fn a_directory_that_others_may_write_is_not_trusted() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let user = geteuid().as_raw();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
        assert!(trusted(dir.path(), user).is_ok());
        assert!(trusted(dir.path(), user + 1).is_err());
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o770)).unwrap();
        assert!(trusted(dir.path(), user).is_err());
    }
}
