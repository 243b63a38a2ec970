//! Units, identifiers, buffers and errors: the words that every other layer uses.
//!
//! Invariant: nothing here does I/O or reads a clock. No public function of headpond uses a bare integer for one of
//! the types below.

mod buf;
mod compression;
mod copy_loss;
mod errno;
mod hex;
mod ids;
mod mode;
mod ranges;
mod redundancy;
mod time;

pub use buf::{Buf, BufMut, Lender, keep_up_to};
pub use compression::{Compression, ZSTD_LEVEL_MAX};
pub use copy_loss::{COPIES_MAX, CopyLoss};
pub use errno::{Errno, Result};
pub use hex::{hex, unhex};
pub use ids::{
    BatchNumber, Block, Class, Epoch, Generation, Location, MemberId, ObjectId, OwnerNumber, PoolId, SegmentId,
    Sequence, Stream,
};
pub use mode::CacheMode;
pub use ranges::RangeSet;
pub use redundancy::Redundancy;
pub use time::{Nanos, UnixNanos};

/// Bytes of a block: the unit of the map, of checksums and of alignment on flash.
///
/// The page of each database that headpond meets is 4 KiB or a multiple of it. The physical sector of its flash is 4
/// KiB.
pub const BLOCK: usize = 4096;

/// [`BLOCK`] as the type that byte offsets use.
pub const BLOCK_U64: u64 = BLOCK as u64;

/// The largest write request that is untorn (promise 3), in bytes.
pub const RECORD_BYTES_MAX: usize = 1 << 20;

/// The most blocks that one record touches: 1 MiB that starts in the middle of a block.
pub const RECORD_BLOCKS_MAX: usize = RECORD_BYTES_MAX / BLOCK + 1;

/// How many blocks hold `bytes` bytes.
#[must_use]
pub const fn blocks_for(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK_U64)
}
