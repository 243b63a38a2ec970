//! What a log starts from, and what it asks for.

use headpond_base::{BatchNumber, Buf, Epoch, Generation, MemberId, OwnerNumber, PoolId, Sequence};
use headpond_format::{Address, Addresses, Geometry};

use crate::lives::FoundRow;
use crate::mutation::Mutation;
use crate::segments::Segment;
use crate::sides::CommitSide;

/// Names a write of the log until it is completed. Later writes have larger ids.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WriteId(pub u64);

/// I/O that the log asks for.
#[derive(Debug)]
pub enum LogIo {
    /// Write `data` at `at`.
    Write {
        /// The write's name: the same for each copy.
        id: WriteId,
        /// The first byte.
        at: Address,
        /// The bytes.
        data: Buf,
    },
    /// Make all completed writes durable on these members, which are all of their side that have any. It is completed once
    /// all are done. At most one sync of each side is under way.
    Sync {
        /// Whose members they are.
        side: CommitSide,
        /// The members.
        members: Vec<MemberId>,
    },
    /// These bytes are no longer needed.
    Trim {
        /// The first byte.
        at: Address,
        /// The number of bytes.
        len: u64,
    },
}

/// Where a log starts from: an empty pool, or the result of [`crate::scan`].
#[derive(Debug)]
pub struct LogStart {
    /// The pool.
    pub pool: PoolId,
    /// The division of the pool.
    pub geometry: Geometry,
    /// The homes of the segments.
    pub addresses: Addresses,
    /// The members that are here.
    pub members: Vec<MemberId>,
    /// Those of them that take new segments, and in how many of their slots, from the first.
    pub take_new: Vec<(MemberId, u32)>,
    /// The members whose slots are lent only, as homes of second copies.
    pub copies_only: Vec<MemberId>,
    /// The owner that writes.
    pub owner: OwnerNumber,
    /// The present use of the pool.
    pub epoch: Epoch,
    /// The next entry.
    pub next_sequence: Sequence,
    /// The next batch.
    pub next_batch: BatchNumber,
    /// The next segment generation.
    pub next_generation: Generation,
    /// All segments. None is open.
    pub segments: Vec<Segment>,
    /// Their rows.
    pub rows: Vec<FoundRow>,
    /// A planted bug, to test the tests.
    pub mutation: Option<Mutation>,
}
