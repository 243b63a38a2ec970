//! Origins inside the origin. If a directory below has a marker of its own, its newest data is in another pool. This
//! mount would show stale data there, and the other pool would not learn of writes through this mount.
//!
//! Invariants:
//! - No request enters such a directory: to look it up is an error. So nothing in it is read, changed, renamed or
//!   removed through this mount, its marker least of all.
//! - This costs one system call for each look-up of a directory, and none for a file.

use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};

use headpond_names::{FileKind, Found};
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::MARKER_NAME;
use crate::stat::stat;

/// The file that makes a directory an origin.
const MARKER_FILE: &str = "marker.json";

/// Nested origins that the mount remembers, to show them.
const KEPT: usize = 16;

/// The error for a request that enters one: "Device or resource busy".
pub(crate) const REFUSED: Errno = Errno::BUSY;

/// The nested origins that were met.
#[derive(Default)]
pub(crate) struct NestedOrigins(Mutex<Vec<Vec<u8>>>);

impl NestedOrigins {
    /// Notes one at this path below the origin.
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

/// Whether a directory, whose status was just read, is another headpond's origin.
pub(crate) fn is_origin(directory: impl AsFd, found: &Found) -> bool {
    // Most directories have no such entry, and then this is all the cost.
    let Ok(beside) = stat(&directory, MARKER_NAME) else { return false };
    if beside.kind != FileKind::Directory {
        return false;
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(&directory, MARKER_NAME, flags, Mode::empty()).is_ok_and(|beside| has_marker(beside, found))
}

/// Whether a directory named like headpond's own has a marker. `above` is its parent.
///
/// In a directory where all may make files and only owners may remove them (`/tmp` and its like), another user's
/// marker does not count: with it that user could close the directory to all others. Anywhere else, a user who can
/// make a marker can remove the data as well.
pub(crate) fn has_marker(beside: impl AsFd, above: &Found) -> bool {
    let Ok(marker) = stat(beside, MARKER_FILE) else { return false };
    let shared = above.mode & 0o1002 == 0o1002;
    let trusted = [0, geteuid().as_raw(), above.uid].contains(&marker.uid);
    marker.kind == FileKind::File && (!shared || trusted)
}
