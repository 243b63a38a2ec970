//! Why a mount or an unmount failed: what failed, on what, why, and the command that helps.

use std::fmt;
use std::io;
use std::path::PathBuf;

use headpond_ledger::LedgerRefusal;

/// A failed mount or unmount.
#[derive(Debug)]
#[non_exhaustive]
pub enum MountError {
    /// The mount point does not exist.
    MountpointMissing(PathBuf),
    /// The mount point is no directory.
    MountpointNotDirectory(PathBuf),
    /// The mount point has something in it, which the mount would hide.
    MountpointNotEmpty(PathBuf),
    /// The mount point is inside the origin: the mount would contain itself.
    MountpointInsideOrigin {
        /// The mount point.
        mountpoint: PathBuf,
        /// The origin.
        origin: PathBuf,
    },
    /// A dead mount is in the way and could not be removed.
    DeadMount {
        /// The mount point.
        mountpoint: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The origin cannot be opened.
    Origin {
        /// The origin.
        origin: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The kernel has no FUSE, or does not let this process have it.
    NoFuse(io::Error),
    /// `fusermount3` is missing, and ordinary users mount through it.
    NoHelper,
    /// This user may not mount here, or not for others.
    NotPermitted {
        /// The mount point.
        mountpoint: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// Anything else that the system said.
    Mount {
        /// The mount point.
        mountpoint: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// The mount is in use and was left as it is.
    Busy(PathBuf),
    /// The mount could not be removed.
    Unmount {
        /// The mount point.
        mountpoint: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// What a process before left of the mount cannot be used.
    Ledger(LedgerRefusal),
    /// Serving the mount ended with an error.
    Session(io::Error),
}

impl fmt::Display for MountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MountpointMissing(path) => {
                write!(f, "the mount point {0} does not exist. To make it: mkdir -p {0}", path.display())
            }
            Self::MountpointNotDirectory(path) => {
                write!(f, "the mount point {} is not a directory", path.display())
            }
            Self::MountpointNotEmpty(path) => write!(
                f,
                "the mount point {} is not empty, and the mount would hide its files. Use an empty directory",
                path.display()
            ),
            Self::MountpointInsideOrigin { mountpoint, origin } => write!(
                f,
                "the mount point {} is inside the origin {}, so the mount would contain itself. Use a directory outside",
                mountpoint.display(),
                origin.display()
            ),
            Self::DeadMount { mountpoint, error } => write!(
                f,
                "cannot remove a mount without a daemon at {}: {error}. Try: umount -l {}",
                mountpoint.display(),
                mountpoint.display()
            ),
            Self::Origin { origin, error } => write!(f, "cannot open the origin {}: {error}", origin.display()),
            Self::NoFuse(error) => write!(
                f,
                "cannot open /dev/fuse: {error}. Load the kernel module (modprobe fuse). In a container, pass the device in"
            ),
            Self::NoHelper => {
                write!(f, "fusermount3 is missing, and only root can mount without it. Install the package fuse3")
            }
            Self::NotPermitted { mountpoint, reason } => {
                write!(f, "not permitted to mount at {}: {reason}", mountpoint.display())
            }
            Self::Mount { mountpoint, error } => write!(f, "cannot mount at {}: {error}", mountpoint.display()),
            Self::Busy(path) => write!(
                f,
                "{} is in use by a program, and stays mounted. To see which: fuser -vm {}",
                path.display(),
                path.display()
            ),
            Self::Unmount { mountpoint, error } => write!(f, "cannot unmount {}: {error}", mountpoint.display()),
            Self::Ledger(refusal) => write!(f, "cannot go on with the mount: {refusal}"),
            Self::Session(error) => write!(f, "the mount ended with an error: {error}"),
        }
    }
}

impl std::error::Error for MountError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::DeadMount { error, .. }
            | Self::Origin { error, .. }
            | Self::NoFuse(error)
            | Self::Mount { error, .. }
            | Self::Unmount { error, .. }
            | Self::Session(error) => Some(error),
            Self::Ledger(refusal) => Some(refusal),
            _ => None,
        }
    }
}
