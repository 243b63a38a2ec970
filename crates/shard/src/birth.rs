//! Whether a file system's birth times tell its files apart.

use std::os::fd::AsFd;

/// `OVERLAYFS_SUPER_MAGIC`.
const OVERLAY: u64 = 0x794c_7630;

/// Whether a file keeps its birth time for as long as it lives, on the file system of this descriptor.
///
/// overlayfs shows that of the file below, until somebody opens the file for writing; and that of its copy from then on.
/// There a file is known by its inode number alone, as where there are no birth times.
#[must_use]
pub fn birth_times_last(of: impl AsFd) -> bool {
    // Sign-extended on some machines.
    !rustix::fs::fstatfs(of).is_ok_and(|found| found.f_type as u64 & 0xffff_ffff == OVERLAY)
}
