//! The operations of a disk, and their ends.

use headpond_base::{BLOCK, BLOCK_U64, Buf, Errno, MemberId, Result};

/// Names an operation until it is done. The caller chooses it, unique among those under way on one disk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Tag(pub u64);

/// An operation of a disk. Offsets are bytes from the disk's start.
#[derive(Clone, Debug)]
pub enum DiskOp {
    /// Read exactly `len` bytes.
    Read {
        /// The operation's name.
        tag: Tag,
        /// The first byte, a multiple of the block.
        offset: u64,
        /// The number of bytes, a multiple of the block.
        len: usize,
    },
    /// Write all of `data`.
    Write {
        /// The operation's name.
        tag: Tag,
        /// The first byte, a multiple of the block.
        offset: u64,
        /// The bytes: a multiple of the block, block-aligned in memory.
        data: Buf,
    },
    /// Make every write to this disk durable that has completed.
    Sync {
        /// The operation's name.
        tag: Tag,
    },
    /// These bytes are no longer needed. A hint without an end: the disk may drop it. It does no harm to a write of
    /// the same bytes that is submitted later. No such write may be under way.
    Trim {
        /// The first byte, a multiple of the block.
        offset: u64,
        /// The number of bytes, a multiple of the block.
        len: u64,
    },
}

/// The end of an operation.
#[derive(Clone, Debug)]
pub struct Completion {
    /// The disk.
    pub disk: MemberId,
    /// The operation.
    pub tag: Tag,
    /// Its result.
    pub end: End,
}

/// The result of an operation.
#[derive(Clone, Debug)]
pub enum End {
    /// Of [`DiskOp::Read`]: all bytes, or an error.
    Read(Result<Buf>),
    /// Of [`DiskOp::Write`]. After an error the bytes on the disk are unknown.
    Write(Result<()>),
    /// Of [`DiskOp::Sync`]. After an error any write since the last good sync may be lost, even if a later sync
    /// succeeds.
    Sync(Result<()>),
}

impl DiskOp {
    /// Checks that a disk of `bytes` may carry this out: it is aligned, not empty, and inside the disk.
    ///
    /// # Errors
    /// [`Errno::INVAL`] otherwise.
    pub fn check(&self, bytes: u64) -> Result<()> {
        let (offset, len, aligned_memory) = match self {
            Self::Read { offset, len, .. } => (*offset, *len as u64, true),
            Self::Write { offset, data, .. } => {
                (*offset, data.len() as u64, (data.as_ptr() as usize).is_multiple_of(BLOCK))
            }
            Self::Trim { offset, len } => (*offset, *len, true),
            Self::Sync { .. } => return Ok(()),
        };
        let aligned = offset.is_multiple_of(BLOCK_U64) && len.is_multiple_of(BLOCK_U64) && aligned_memory;
        let inside = len > 0 && offset.checked_add(len).is_some_and(|end| end <= bytes);
        if aligned && inside { Ok(()) } else { Err(Errno::INVAL) }
    }

    /// The end of this operation of `disk` with an error. `None` for a trim, which has no end.
    #[must_use]
    pub fn failed(&self, disk: MemberId, errno: Errno) -> Option<Completion> {
        let (tag, end) = match *self {
            Self::Read { tag, .. } => (tag, End::Read(Err(errno))),
            Self::Write { tag, .. } => (tag, End::Write(Err(errno))),
            Self::Sync { tag } => (tag, End::Sync(Err(errno))),
            Self::Trim { .. } => return None,
        };
        Some(Completion { disk, tag, end })
    }
}
