//! Why headpond cannot use a flash file or device. The user reads these errors.

use std::io;
use std::path::PathBuf;

/// Why a flash file or device cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FlashError {
    /// It does not exist.
    #[error("flash {0} does not exist. To make it as a file, add --size")]
    Missing(PathBuf),
    /// It exists already and should be created.
    #[error("flash {0} exists already; nothing was changed")]
    Exists(PathBuf),
    /// Another process holds it.
    #[error("flash {0} is in use by another process, or mounted as a file system")]
    InUse(PathBuf),
    /// Neither a file nor a block device.
    #[error("flash {0} is neither a regular file nor a block device")]
    NotFlash(PathBuf),
    /// Another user owns it, or can write to it.
    #[error("flash {path} {why}")]
    NotOwn {
        /// The file.
        path: PathBuf,
        /// What is wrong, and the command that mends it.
        why: String,
    },
    /// Not enough room to create it.
    #[error("flash {path}: no room for {wanted} bytes, only {free} are free there")]
    NoSpace {
        /// The file.
        path: PathBuf,
        /// The size that was asked for, in bytes.
        wanted: u64,
        /// Free bytes in its file system.
        free: u64,
    },
    /// Permission denied.
    #[error("no permission to {doing} flash {path}")]
    Permission {
        /// What failed.
        doing: &'static str,
        /// The file or device.
        path: PathBuf,
    },
    /// io_uring was asked for by name, and the kernel refuses it.
    #[error("flash {path}: the kernel refuses io_uring: {source}. Use --backend psync")]
    NoUring {
        /// The file or device.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// Any other error.
    #[error("cannot {doing} flash {path}: {source}")]
    Io {
        /// What failed.
        doing: &'static str,
        /// The file or device.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
}
