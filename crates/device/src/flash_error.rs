//! Why a flash file or device cannot be used, in words for the person who named it.

use std::io;
use std::path::PathBuf;

/// Why a flash file or device cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FlashError {
    /// It does not exist.
    #[error("flash {0} does not exist: give a size (--size) to create it as a file")]
    Missing(PathBuf),
    /// It was to be created, and is there already.
    #[error("flash {0} exists already, and is left as it is")]
    Exists(PathBuf),
    /// Another process holds it.
    #[error("flash {0} is in use by another process (or is mounted): a pool serves one daemon at a time")]
    InUse(PathBuf),
    /// Neither a file nor a block device.
    #[error("flash {0} is neither a regular file nor a block device")]
    NotFlash(PathBuf),
    /// Others own it, or may write it.
    #[error("flash {path} {why}")]
    NotOwn {
        /// The file.
        path: PathBuf,
        /// What is wrong, and the command that mends it.
        why: String,
    },
    /// Not enough room to create it.
    #[error("no room for a flash file {path} of {wanted} bytes: {free} bytes are free there")]
    NoSpace {
        /// The file.
        path: PathBuf,
        /// Its size if there were room.
        wanted: u64,
        /// What is free in its file system.
        free: u64,
    },
    /// Not allowed.
    #[error("no permission to {doing} flash {path}")]
    Permission {
        /// What was being done.
        doing: &'static str,
        /// The file or device.
        path: PathBuf,
    },
    /// io_uring was asked for by name and the kernel refuses it.
    #[error("io_uring cannot be used for flash {path}: {source} (the psync backend works everywhere)")]
    NoUring {
        /// The file or device.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// Anything else.
    #[error("cannot {doing} flash {path}: {source}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// The file or device.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
}
