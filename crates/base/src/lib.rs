//! Units, identifiers, buffers and errors: the words that every other layer uses.
//!
//! Invariant: nothing here does I/O or reads a clock. A bare integer never crosses a public
//! function of headpond where it means one of the types below.

mod buf;
mod compression;
mod errno;
mod ids;
mod mode;
mod time;

pub use buf::{Buf, BufMut, keep_up_to};
pub use compression::{Compression, ZSTD_LEVEL_MAX};
pub use errno::{Errno, Result};
pub use ids::{
    BatchNumber, Block, Class, Epoch, Generation, Location, MemberId, ObjectId, OwnerNumber, PoolId, SegmentId,
    Sequence, Stream,
};
pub use mode::CacheMode;
pub use time::{Nanos, UnixNanos};

/// Size of a block in bytes: the unit of the map, of checksums and of alignment on flash.
///
/// 4 KiB is the page of every database that headpond meets or a divisor of it, and the
/// physical sector of the flash it lives on.
pub const BLOCK: usize = 4096;

/// [`BLOCK`] as the type that byte offsets use.
pub const BLOCK_U64: u64 = BLOCK as u64;

/// The largest write request that is kept whole (promise 3), in bytes.
pub const RECORD_BYTES_MAX: usize = 1 << 20;

/// The most blocks that one record touches: 1 MiB that starts in the middle of a block.
pub const RECORD_BLOCKS_MAX: usize = RECORD_BYTES_MAX / BLOCK + 1;

/// The first block at or after `bytes`: how many blocks it takes to hold that many bytes.
#[must_use]
pub const fn blocks_for(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK_U64)
}
