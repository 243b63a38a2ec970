//! The mount point: checking it, and removing a dead mount from it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::mpsc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::MountError;

/// The program through which ordinary users mount and unmount.
const HELPER: &str = "fusermount3";

/// How long a mount may take to answer. While a worker takes over from another one, its questions wait.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// What a question to a mount came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MountAnswer {
    /// It has a daemon, or is no mount.
    Given,
    /// Its daemon is gone.
    Gone,
    /// It has a daemon that stands still, or what is left of one: a process that was killed and waits for its origin.
    None,
}

/// Asks a mount whether its daemon is there, and waits ten seconds at most.
///
/// It asks for what the kernel cannot answer by itself; the kernel may know the status of the mount's root. A daemon
/// that was killed this moment lets go of its requests a little later, and a waiting request then ends as aborted.
#[must_use]
pub fn ask_mount(mountpoint: &Path) -> MountAnswer {
    let path = mountpoint.to_owned();
    let asked = within(ANSWER_MAX, move || rustix::fs::statfs(path).map(drop));
    match asked {
        Some(Err(Errno::NOTCONN | Errno::CONNABORTED)) => MountAnswer::Gone,
        Some(_) => MountAnswer::Given,
        None => MountAnswer::None,
    }
}

/// Calls `ask` on a thread of its own. None if it takes longer; the thread stays behind, at most to the end of the process.
fn within<T: Send + 'static>(time: Duration, ask: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (sender, answer) = mpsc::sync_channel(1);
    let asking = std::thread::Builder::new().name("ask-mount".into()).spawn(move || drop(sender.send(ask())));
    asking.ok().and_then(|_| answer.recv_timeout(time).ok())
}

/// Checks a mount point and gives its full path. Removes a mount whose daemon died: it is of no use, and its owner is
/// about to mount there again.
pub(crate) fn check(mountpoint: &Path, origin: &Path) -> Result<PathBuf, MountError> {
    if ask_mount(mountpoint) == MountAnswer::Gone {
        remove_dead(mountpoint).map_err(|error| MountError::DeadMount { mountpoint: mountpoint.to_owned(), error })?;
    }
    let found = fs::metadata(mountpoint).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => MountError::MountpointMissing(mountpoint.to_owned()),
        _ => MountError::Mount { mountpoint: mountpoint.to_owned(), error },
    })?;
    if !found.is_dir() {
        return Err(MountError::MountpointNotDirectory(mountpoint.to_owned()));
    }
    let whole = |path: &Path, error| MountError::Mount { mountpoint: path.to_owned(), error };
    let mountpoint = mountpoint.canonicalize().map_err(|error| whole(mountpoint, error))?;
    // The origin is open already. If its path leads nowhere by now, the mount hides nothing.
    let origin = origin.canonicalize().unwrap_or_else(|_| origin.to_owned());
    if mountpoint.starts_with(&origin) {
        return Err(MountError::MountpointInsideOrigin { mountpoint, origin });
    }
    let mut entries = fs::read_dir(&mountpoint).map_err(|error| whole(&mountpoint, error))?;
    if entries.next().is_some() {
        return Err(MountError::MountpointNotEmpty(mountpoint));
    }
    Ok(mountpoint)
}

fn remove_dead(mountpoint: &Path) -> io::Result<()> {
    match rustix::mount::unmount(mountpoint, UnmountFlags::DETACH) {
        Ok(()) => Ok(()),
        Err(Errno::PERM) => {
            let output = helper(&["-u", "-z"], mountpoint)?;
            if output.status.success() { Ok(()) } else { Err(io::Error::other(said(&output))) }
        }
        Err(error) => Err(error.into()),
    }
}

/// Unmounts, unless the mount is in use.
pub(crate) fn unmount(mountpoint: &Path) -> Result<(), MountError> {
    let failed = |error| MountError::Unmount { mountpoint: mountpoint.to_owned(), error };
    match rustix::mount::unmount(mountpoint, UnmountFlags::NOFOLLOW) {
        Ok(()) => Ok(()),
        Err(Errno::BUSY) => Err(MountError::Busy(mountpoint.to_owned())),
        // Not mounted any more: another unmount was faster.
        Err(Errno::INVAL | Errno::NOENT) => Ok(()),
        Err(Errno::PERM) => {
            let output = helper(&["-u"], mountpoint).map_err(failed)?;
            let text = said(&output);
            if output.status.success() || text.contains("not found in") || text.contains("not mounted") {
                Ok(())
            } else if text.contains("busy") {
                Err(MountError::Busy(mountpoint.to_owned()))
            } else {
                Err(failed(io::Error::other(text)))
            }
        }
        Err(error) => Err(failed(error.into())),
    }
}

/// Why the mount failed.
pub(crate) fn refusal(mountpoint: &Path, error: io::Error) -> MountError {
    let mountpoint = mountpoint.to_owned();
    if let Err(fuse) = fs::File::options().read(true).write(true).open("/dev/fuse") {
        return MountError::NoFuse(fuse);
    }
    let root = rustix::process::geteuid().is_root();
    if !root && Command::new(HELPER).arg("-V").output().is_err() {
        return MountError::NoHelper;
    }
    let text = error.to_string();
    if text.contains("user_allow_other") {
        let reason = "letting other users in needs the line `user_allow_other` in /etc/fuse.conf, or root".to_owned();
        return MountError::NotPermitted { mountpoint, reason };
    }
    if error.kind() == io::ErrorKind::PermissionDenied || text.to_lowercase().contains("permi") {
        let reason = if root {
            format!("{error}. A container needs the capability CAP_SYS_ADMIN for it")
        } else {
            format!("{} An ordinary user can mount only on own, writable directories", text.trim())
        };
        return MountError::NotPermitted { mountpoint, reason };
    }
    MountError::Mount { mountpoint, error }
}

fn helper(arguments: &[&str], mountpoint: &Path) -> io::Result<Output> {
    Command::new(HELPER).args(arguments).arg("--").arg(mountpoint).output()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_gives_no_answer_is_not_waited_for() {
        let (held, never) = mpsc::channel::<()>();
        assert_eq!(within(Duration::from_millis(1), move || never.recv().is_ok()), None);
        drop(held);
        assert_eq!(within(ANSWER_MAX, || 7), Some(7));
        assert_eq!(ask_mount(Path::new("/")), MountAnswer::Given);
    }
}
