//! Reading a pool's structures, and why one cannot be used.

use headpond_base::{BatchNumber, Buf, Epoch, Errno, Result as IoResult, SegmentId};
use headpond_format::Damage;

/// Every number that goes on from what was found must be below this, or it is no number that was ever
/// counted up to. The format refuses larger ones by themselves; this leaves room to go on.
pub(crate) const NUMBER_MAX: u64 = 1 << 62;

/// Reading at start, when there is nothing to do but wait.
pub trait FlashRead {
    /// Reads exactly `len` bytes at `offset`, both multiples of a block.
    ///
    /// # Errors
    /// When the device cannot.
    fn read(&mut self, offset: u64, len: usize) -> IoResult<Buf>;
}

/// Why a pool cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScanError {
    /// No pool of any version.
    #[error("this is not a headpond pool: it has no superblock")]
    NotAPool,
    /// A pool of another version.
    #[error("{}", Damage::Version { found: *found })]
    Version {
        /// Its version.
        found: u32,
    },
    /// The device is smaller than the pool on it.
    #[error("cut short: the pool has {wanted} bytes, but the device only {found}")]
    CutShort {
        /// Bytes that the pool takes.
        wanted: u64,
        /// Bytes that there are.
        found: u64,
    },
    /// A structure without which nothing can be said is damaged, or says what this program does not know.
    #[error("{what} at byte {offset}{}: {damage}", if matches!(damage, Damage::Unsupported(..)) { "" } else { " is damaged" })]
    Damaged {
        /// Which.
        what: &'static str,
        /// Where.
        offset: u64,
        /// How.
        damage: Damage,
    },
    /// The device cannot be read where it must be.
    #[error("cannot read the flash at byte {offset}: {errno}")]
    Read {
        /// Where.
        offset: u64,
        /// Why.
        errno: Errno,
    },
    /// A later use of the pool left traces, but the superblock that began it is gone.
    #[error(
        "the newest superblock is lost: segment {segment} is from use {found} of the pool, the newest intact \
         superblock from use {known}"
    )]
    LostSuperblock {
        /// A segment that was written later.
        segment: SegmentId,
        /// The use in which it was.
        found: Epoch,
        /// The latest use that a superblock tells of.
        known: Epoch,
    },
    /// Writes that were durable are not there any more.
    #[error("the flash lost synced writes: its log ends at batch {after}, but was durable up to batch {durable}")]
    LostHistory {
        /// The last batch that is there.
        after: BatchNumber,
        /// The last that must be.
        durable: BatchNumber,
    },
}

/// Says what is wrong with a structure at a place.
pub(crate) const fn damaged(what: &'static str, offset: u64, damage: Damage) -> ScanError {
    ScanError::Damaged { what, offset, damage }
}
