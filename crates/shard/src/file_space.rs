//! A file's space at the origin: what its file system keeps if asked, and what it only promises.
//!
//! ```text
//! keeps       ext4, tmpfs, F2FS             fallocate is a promise
//! keeps none  btrfs, ZFS, bcachefs          an overwrite takes new space whatever was asked for: it is counted
//! unsure      XFS, NFS, overlays, all else  fallocate, and counted: blocks may be shared, or the server's file system is such
//! ```
//!
//! A file system that turns out to have no `fallocate` for a file (ext4 without extents, NFS before 4.2) keeps none for it.

use std::fs::File;
use std::os::unix::fs::MetadataExt;

use headpond_base::{Errno, Result};
use headpond_engine::Space;
use rustix::fs::{FallocateFlags, SeekFrom};

use crate::file_origin::{allocate, from};

/// Magic numbers of `statfs`.
const EXT: u64 = 0xef53;
const TMPFS: u64 = 0x0102_1994;
const F2FS: u64 = 0xf2f5_2010;
const BTRFS: u64 = 0x9123_683e;
const ZFS: u64 = 0x2fc1_2fc1;
const BCACHEFS: u64 = 0xca45_1a4e;

/// What a file's file system does with space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SpaceKind {
    /// It keeps what it is asked for.
    Keeps,
    /// It keeps none that would help a later overwrite.
    KeepsNone,
    /// It may.
    Unsure,
}

impl SpaceKind {
    /// Of the file system that has this file.
    #[must_use]
    pub fn of(file: &File) -> Self {
        // Sign-extended on some machines.
        match rustix::fs::fstatfs(file).map(|found| found.f_type as u64 & 0xffff_ffff) {
            Ok(EXT | TMPFS | F2FS) => Self::Keeps,
            Ok(BTRFS | ZFS | BCACHEFS) => Self::KeepsNone,
            _ => Self::Unsure,
        }
    }
}

/// Makes sure of space for ranges. The caller puts the file's time back if it was changed, which is said first.
pub(crate) fn reserve(file: &File, kind: SpaceKind, ranges: &[(u64, u64)], insists: bool) -> (bool, Result<Space>) {
    let counted = Space { counts: kind != SpaceKind::Keeps, ..Space::default() };
    let nothing = Space { keeps_none: true, counts: true, ..Space::default() };
    if kind == SpaceKind::KeepsNone && !insists {
        return (false, Ok(nothing));
    }
    let (mut changed, mut space) = (false, counted);
    for (start, end) in ranges {
        if let Some(found) = has_data(file, kind, *start, *end) {
            space.found.push(found);
            continue;
        }
        match allocate(file, FallocateFlags::KEEP_SIZE, *start, end - start) {
            Ok(()) => changed = true,
            Err(Errno::OPNOTSUPP) if !insists => return (changed, Ok(nothing)),
            // Part of it may be there.
            Err(errno) => return (errno != Errno::OPNOTSUPP, Err(errno)),
        }
    }
    (changed, Ok(space))
}

/// Where the data ends that begins at `start`, if it holds the whole range. What has data has space.
fn has_data(file: &File, kind: SpaceKind, start: u64, end: u64) -> Option<(u64, u64)> {
    let found = file.metadata().ok()?;
    // Without a block its bytes lie in the inode.
    if start >= found.len() || found.blocks() == 0 {
        return None;
    }
    // Moves the file's own position, which nothing here uses.
    let hole = rustix::fs::seek(file, SeekFrom::Hole(start)).ok()?;
    // The block in which the file ends is there as a whole.
    let block = found.blksize().max(1);
    let to = if kind == SpaceKind::Keeps { hole.next_multiple_of(block) } else { hole };
    (to >= end).then_some((start, to))
}

/// What the file system has free for everybody, and in all, in bytes.
pub(crate) fn free(file: &File) -> Result<(u64, u64)> {
    let found = rustix::fs::fstatvfs(file).map_err(from)?;
    Ok((found.f_bavail.saturating_mul(found.f_frsize), found.f_blocks.saturating_mul(found.f_frsize)))
}
