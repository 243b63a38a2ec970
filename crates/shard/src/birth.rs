//! Whether a file system's birth times tell its files apart.

use std::os::fd::AsFd;

/// `OVERLAYFS_SUPER_MAGIC`.
const OVERLAY: u64 = 0x794c_7630;

/// Whether a file keeps its birth time for as long as it lives, on the file system of this descriptor.
///
/// On overlayfs it changes: the first open for writing makes a copy of the file, with a birth time of its own. So a file
/// there is known by its inode number alone, as on a file system without birth times.
#[must_use]
pub fn birth_times_last(of: impl AsFd) -> bool {
    // Sign-extended on some machines.
    !rustix::fs::fstatfs(of).is_ok_and(|found| found.f_type as u64 & 0xffff_ffff == OVERLAY)
}
