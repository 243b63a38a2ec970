//! What a disk is asked for, and how it ends.

use headpond_base::{BLOCK, BLOCK_U64, Buf, Errno, MemberId, Result};

/// Names an operation until it is done. Chosen by the caller, unique among those under way on one disk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Tag(pub u64);

/// Something to be done by a disk. Offsets are bytes from the disk's start.
#[derive(Clone, Debug)]
pub enum DiskOp {
    /// Read exactly `len` bytes.
    Read {
        /// Names it.
        tag: Tag,
        /// Where, a multiple of the block.
        offset: u64,
        /// How many bytes, a multiple of the block.
        len: usize,
    },
    /// Write all of `data`.
    Write {
        /// Names it.
        tag: Tag,
        /// Where, a multiple of the block.
        offset: u64,
        /// What: a multiple of the block, and block-aligned in memory.
        data: Buf,
    },
    /// Make every write to this disk that is done by now durable.
    Sync {
        /// Names it.
        tag: Tag,
    },
    /// These bytes are not needed any more. A hint, never answered; the disk may drop it. A write to the
    /// same bytes that is submitted later is safe from it. None may be under way.
    Trim {
        /// Where, a multiple of the block.
        offset: u64,
        /// How many bytes, a multiple of the block.
        len: u64,
    },
}

/// The end of an operation.
#[derive(Clone, Debug)]
pub struct Completion {
    /// Of which disk.
    pub disk: MemberId,
    /// Which operation.
    pub tag: Tag,
    /// What it came to.
    pub end: End,
}

/// What an operation came to.
#[derive(Clone, Debug)]
pub enum End {
    /// Of [`DiskOp::Read`]: all bytes asked for, or an error.
    Read(Result<Buf>),
    /// Of [`DiskOp::Write`]. After an error the bytes on the disk are unknown.
    Write(Result<()>),
    /// Of [`DiskOp::Sync`]. After an error nothing can be said of any write since the last good sync,
    /// and a later sync that succeeds does not change that.
    Sync(Result<()>),
}

impl DiskOp {
    /// Whether a disk of `bytes` may carry this out: aligned, not empty, and inside.
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

    /// The end of this operation of `disk` with an error; none for a trim, which has no end.
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
