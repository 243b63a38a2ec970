//! Origins inside the origin. A directory below that holds a marker of its own has its newest data in another pool: what
//! this mount would show of it is stale, and what it would write there the other pool would not know.
//!
//! Invariants:
//! - Such a directory is not entered: to look it up is an error, so nothing in it is read, changed, renamed or removed
//!   through this mount, its marker least of all.
//! - It costs one system call for each look-up of a directory, and none for a file.

use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};

use headpond_names::{Found, Kind};
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::MARKER_NAME;
use crate::stat::stat;

/// The file by which a directory is known to be an origin.
const MARKER_FILE: &str = "marker.json";

/// Directories that are kept for those who ask.
const KEPT: usize = 16;

/// What is said to who enters one: "Device or resource busy".
pub(crate) const REFUSED: Errno = Errno::BUSY;

/// Those that were met.
#[derive(Default)]
pub(crate) struct NestedOrigins(Mutex<Vec<Vec<u8>>>);

impl NestedOrigins {
    /// One was met, at this path below the origin.
    pub(crate) fn met(&self, path: Vec<u8>) {
        let mut met = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if met.len() < KEPT && !met.contains(&path) {
            met.push(path);
        }
    }

    pub(crate) fn all(&self) -> Vec<Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Whether a directory, which was just looked at, is another headpond's origin.
pub(crate) fn is_origin(directory: impl AsFd, found: &Found) -> bool {
    // Nearly always there is nothing, and this is all that it costs.
    let Ok(beside) = stat(&directory, MARKER_NAME) else { return false };
    if beside.kind != Kind::Directory {
        return false;
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(&directory, MARKER_NAME, flags, Mode::empty()).is_ok_and(|beside| has_marker(beside, found))
}

/// Whether a directory named like headpond's own has a marker. `above` is the directory that it lies in.
///
/// In a directory where everybody may make files and nobody may remove another's (`/tmp` and its like), a marker of
/// another user's says nothing: with it that user could close the directory to all others. Anywhere else who can make one can
/// as well remove what is there.
pub(crate) fn has_marker(beside: impl AsFd, above: &Found) -> bool {
    let Ok(marker) = stat(beside, MARKER_FILE) else { return false };
    let shared = above.mode & 0o1002 == 0o1002;
    let trusted = [0, geteuid().as_raw(), above.uid].contains(&marker.uid);
    marker.kind == Kind::File && (!shared || trusted)
}
