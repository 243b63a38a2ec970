//! Reads a pool's structures, and says why a pool cannot be used.

use headpond_base::{BatchNumber, Buf, Epoch, Errno, MemberId, Result as IoResult, SegmentId};
use headpond_format::Damage;

/// The bound for every number from which counting goes on; no writer counts up to a larger one. The format alone
/// refuses numbers from 2^63 on; this bound leaves room to go on.
pub(crate) const NUMBER_MAX: u64 = 1 << 62;

/// Blocking reads, for a start: it has nothing else to do.
pub trait FlashRead {
    /// Reads exactly `len` bytes at `offset`, both multiples of a block.
    ///
    /// # Errors
    /// When the device cannot be read.
    fn read(&mut self, offset: u64, len: usize) -> IoResult<Buf>;
}

/// Why a pool cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScanError {
    /// No pool of any version.
    #[error("this is not a headpond pool: it has no superblock")]
    NotAPool,
    /// A pool of another format version.
    #[error("{}", Damage::Version { found: *found })]
    Version {
        /// The version of the pool.
        found: u32,
    },
    /// The device is smaller than the pool on it.
    #[error("cut short: the pool has {wanted} bytes, but the device only {found}")]
    CutShort {
        /// Bytes of the pool.
        wanted: u64,
        /// Bytes of the device.
        found: u64,
    },
    /// A device belongs to another pool than the others.
    #[error("device {} of those given belongs to another pool than the newest", device + 1)]
    OtherPool {
        /// Its place among the devices given, from 0.
        device: usize,
    },
    /// Two devices are copies of one member.
    #[error("device {} of those given is a copy of another: both say that they are the same member", device + 1)]
    SameMember {
        /// Its place among the devices given, from 0.
        device: usize,
    },
    /// Two members were used, each without the other.
    #[error("device {} of those given was used without the newest, and the newest without it: only one may go on", device + 1)]
    UsedApart {
        /// Its place among the devices given, from 0.
        device: usize,
    },
    /// A member is not here, the pool was not left in order, and its host batches may have no other copy.
    #[error(
        "member {} of the pool is not here, and after the crash it may have writes that no other member has", member.0
    )]
    MissingAfterCrash {
        /// The member.
        member: MemberId,
    },
    /// A member cannot be read, the pool was not left in order, and the member's host batches may have no other copy.
    #[error(
        "member {} of the pool cannot be read, and after the crash it may have writes that no other member has", member.0
    )]
    UnreadAfterCrash {
        /// The member.
        member: MemberId,
    },
    /// A member is not here, and has data that no other has.
    #[error("member {} of the pool is not here, and {dirty_blocks} blocks that the origin lacks are on it alone", member.0)]
    MissingMember {
        /// The member.
        member: MemberId,
        /// Blocks that only it has, as far as the checkpoint and the log tell.
        dirty_blocks: u64,
    },
    /// A structure that the start needs is damaged, or asks for what this program does not know.
    #[error("{what} at byte {offset}{}: {damage}", if matches!(damage, Damage::Unsupported(..)) { "" } else { " is damaged" })]
    Damaged {
        /// The structure.
        what: &'static str,
        /// Its byte offset.
        offset: u64,
        /// What is wrong with it.
        damage: Damage,
    },
    /// The device cannot be read where the start needs it.
    #[error("cannot read the flash at byte {offset}: {errno}")]
    Read {
        /// The byte offset.
        offset: u64,
        /// The device's error.
        errno: Errno,
    },
    /// A later use of the pool left traces, but its superblock is lost.
    #[error(
        "the newest superblock is lost: segment {segment} is from use {found} of the pool, the newest intact \
         superblock from use {known}"
    )]
    LostSuperblock {
        /// A segment that the later use wrote.
        segment: SegmentId,
        /// The later use.
        found: Epoch,
        /// The latest use that an intact superblock names.
        known: Epoch,
    },
    /// Durable writes are missing.
    #[error("the flash lost synced writes: its log ends at batch {after}, but was durable up to batch {durable}")]
    LostHistory {
        /// The last host batch that was found.
        after: BatchNumber,
        /// The last host batch that was durable.
        durable: BatchNumber,
    },
}

/// The error for a damaged structure at `offset`.
pub(crate) const fn damaged(what: &'static str, offset: u64, damage: Damage) -> ScanError {
    ScanError::Damaged { what, offset, damage }
}
