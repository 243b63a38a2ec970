//! How a file system treats space that a file asks for.
//!
//! ```text
//! keeps       ext4, tmpfs, F2FS             fallocate is a promise
//! keeps none  btrfs, ZFS, bcachefs          an overwrite takes new space whatever was asked for: it is counted
//! unsure      XFS, NFS, overlays, all else  fallocate, and counted: blocks may be shared, or the server may keep none
//! ```
//!
//! If a file system has no `fallocate` for a file (ext4 without extents, NFS before 4.2), it keeps no space for that
//! file.

use std::fs::File;
use std::os::unix::fs::MetadataExt;

use headpond_base::{Errno, Result};
use headpond_engine::{Room, Space};
use rustix::fs::{FallocateFlags, SeekFrom};

use crate::btrfs_quota;

/// Magic numbers of `statfs`.
const EXT: u64 = 0xef53;
const TMPFS: u64 = 0x0102_1994;
const F2FS: u64 = 0xf2f5_2010;
const BTRFS: u64 = 0x9123_683e;
const ZFS: u64 = 0x2fc1_2fc1;
const BCACHEFS: u64 = 0xca45_1a4e;

/// Bytes that btrfs reports as free, and that its own trees may take at any moment: a chunk for them, a tenth of a
/// small disk or a gigabyte on a large one, usually in two copies.
const BTRFS_TREES_SHARE: u64 = 5;
const BTRFS_TREES_MAX: u64 = 2 << 30;

/// The magic number of the file's file system.
fn magic(file: &File) -> Option<u64> {
    // Sign-extended on some machines.
    rustix::fs::fstatfs(file).ok().map(|found| found.f_type as u64 & 0xffff_ffff)
}

/// How a file system treats space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SpaceKind {
    /// It keeps space on request.
    Keeps,
    /// It keeps no space that would help a later overwrite.
    KeepsNone,
    /// It may keep space.
    Unsure,
}

impl SpaceKind {
    /// The kind of the file system that has this file.
    #[must_use]
    pub fn of(file: &File) -> Self {
        match magic(file) {
            Some(EXT | TMPFS | F2FS) => Self::Keeps,
            Some(BTRFS | ZFS | BCACHEFS) => Self::KeepsNone,
            _ => Self::Unsure,
        }
    }

    /// Whether concurrent changes may take each other's space: on XFS, or on what may lie over XFS.
    pub(crate) fn has_others_in_the_way(self) -> bool {
        self == Self::Unsure
    }
}

/// Reserves space for ranges. The first value says whether the file system was asked. That may move the file's time,
/// and the caller puts it back: ext4 of Linux 6.18 moves it for a file without extents, and then refuses.
pub(crate) fn reserve(file: &File, kind: SpaceKind, ranges: &[(u64, u64)], insists: bool) -> (bool, Result<Space>) {
    let counted = Space { counts: kind != SpaceKind::Keeps, ..Space::default() };
    let nothing = Space { keeps_none: true, counts: true, ..Space::default() };
    if kind == SpaceKind::KeepsNone && !insists {
        return (false, Ok(nothing));
    }
    let (mut asked, mut space) = (false, counted);
    for (start, end) in ranges {
        if let Some(found) = has_data(file, kind, *start, *end) {
            space.found.push(found);
            continue;
        }
        asked = true;
        match allocate(file, FallocateFlags::KEEP_SIZE, *start, end - start) {
            Ok(()) => {}
            Err(Errno::OPNOTSUPP) if !insists => return (asked, Ok(nothing)),
            // Part of the space may be reserved.
            Err(errno) => return (asked, Err(errno)),
        }
    }
    (asked, Ok(space))
}

/// Returns where the data that begins at `start` ends, if it covers the whole range. Data has space.
fn has_data(file: &File, kind: SpaceKind, start: u64, end: u64) -> Option<(u64, u64)> {
    let found = file.metadata().ok()?;
    // A file without blocks has its bytes in the inode.
    if start >= found.len() || found.blocks() == 0 {
        return None;
    }
    // Moves the file's own position. No code here uses it.
    let hole = rustix::fs::seek(file, SeekFrom::Hole(start)).ok()?;
    // The last block of the file is there as a whole.
    let block = found.blksize().max(1);
    let to = if kind == SpaceKind::Keeps { hole.next_multiple_of(block) } else { hole };
    (to >= end).then_some((start, to))
}

/// `fallocate`, repeated when it is interrupted.
pub(crate) fn allocate(file: &File, how: FallocateFlags, offset: u64, len: u64) -> Result<()> {
    loop {
        match rustix::fs::fallocate(file, how, offset, len) {
            Ok(()) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => return Err(Errno::OPNOTSUPP),
            Err(errno) => return Err(from(errno)),
        }
    }
}

/// The same error, as an [`Errno`].
pub(crate) fn from(errno: rustix::io::Errno) -> Errno {
    Errno(errno.raw_os_error())
}

/// The free space of the file system for everybody; on btrfs, what the limit of the file's subvolume leaves of it. A
/// file system that writes nothing in place reports the state of its last transaction. With `settles` the figure
/// contains all writes.
pub(crate) fn free(file: &File, settles: bool) -> Result<Room> {
    let kind = SpaceKind::of(file);
    if settles && kind == SpaceKind::KeepsNone {
        rustix::fs::syncfs(file).map_err(from)?;
    }
    let found = rustix::fs::fstatvfs(file).map_err(from)?;
    let [free, bytes] = [found.f_bavail, found.f_blocks].map(|blocks| blocks.saturating_mul(found.f_frsize));
    let all = Room { free, bytes, counts: kind != SpaceKind::Keeps };
    if magic(file) != Some(BTRFS) {
        return Ok(all);
    }
    let all = Room { free: free.saturating_sub((bytes / BTRFS_TREES_SHARE).min(BTRFS_TREES_MAX)), ..all };
    Ok(match btrfs_quota::left_for(file) {
        Some(left) if left.free < all.free => Room { free: left.free, bytes: left.bytes.min(bytes), ..all },
        _ => all,
    })
}
