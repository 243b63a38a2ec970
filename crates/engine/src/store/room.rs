//! The room in the pool: free segments, objects that the log may name, blocks that are worth their place.
//!
//! Invariant: the log never names more than [`Store::objects_max`] objects, so no checkpoint is ever too long. Code
//! that names an object asks here first.

use headpond_base::Stream;
use headpond_format::BLOCK_UNITS;

use crate::store::Store;
use crate::store::object::PATH_ROOM;

/// Segments kept free or on their way there, but for a share of the pool.
const FREE_MIN: usize = 8;
/// That share is one in so many. What is free holds nothing, and what is full is packed the closer for it: with twice as
/// much free, reclaim moves more.
const FREE_SHARE: usize = 64;

/// Below this many free segments nothing is moved: what is left is for entries without data.
pub(crate) const MOVE_RESERVE: usize = 3;

/// Segments that only reclaim and bookkeeping may take: more than these must be free before a write takes room.
pub(crate) const WRITE_RESERVE: usize = 4;

/// Segments that must stay free for what cannot wait, before what was read may take room, or one more is filled at a
/// time.
pub(crate) const ADMIT_RESERVE: usize = 6;

/// Up to this share of the pool may be kept or dirty before anything of it is dropped: a little more
/// than the policy keeps.
const ROOMY_PERCENT: u64 = 86;

/// Where records are packed, up to so many times as many blocks are kept, and in the pool, as would fit as they are:
/// memory for their names and slots has a bound.
pub(crate) const PACKED_MOST: u64 = 4;

/// What an object takes in a checkpoint next to its path and its slots: the frame and the entry
/// of its state, the frame and the number before its chunks.
const OBJECT_BYTES: u64 = 24 + 112 + 32;

/// Of so many segments, those that should be free or about to be: more than a write waits for.
fn free_wanted(segments: usize) -> usize {
    FREE_MIN.min(segments / 3).max(WRITE_RESERVE + 1) + segments / FREE_SHARE
}

/// Of so many segments, those that hold nothing to be kept: they are free, or being filled.
pub(crate) fn held_free(segments: usize, host_segments: usize) -> usize {
    free_wanted(segments) + Stream::ALL.len() - 1 + host_segments
}

impl Store {
    /// Segments that should be free or about to be.
    pub(crate) fn free_wanted(&self) -> usize {
        free_wanted(self.log.segments_to_open())
    }

    /// Whether there is no room to move anything: only dropping and destage help.
    pub(crate) fn is_short_of_segments(&self) -> bool {
        self.log.free_segments() <= MOVE_RESERVE
    }

    /// Whether clean blocks may take room.
    pub(crate) fn has_room_for_clean(&self) -> bool {
        self.log.segments().free() > ADMIT_RESERVE && self.log.takes_writes() && !self.log.lacks_room_for_a_loss(false)
    }

    /// Whether what is kept or dirty fits into the pool with segments to spare. Then a log that has
    /// come to its end needs its live records moved together, not dropped.
    pub(crate) fn is_roomy(&self) -> bool {
        // Copies apart lie where nothing else is.
        let mirrors_here = self.log.mirrors() && !self.log.segments().copies_apart();
        let (copies, saved) = if mirrors_here { (2, self.log.units_saved_by_rows()) } else { (1, 0) };
        let wanted = (copies * self.sums.dirty_units() + self.sums.kept_units()).saturating_sub(saved);
        wanted * 100 < self.log.data_blocks() * u64::from(BLOCK_UNITS) * ROOMY_PERCENT
    }

    /// Whether so little is free that what was read takes no room any more, and writes soon wait for some.
    pub(crate) fn is_nearly_short(&self) -> bool {
        self.log.free_segments().min(self.log.segments().free()) <= ADMIT_RESERVE
    }

    /// Segments that are free, or will be without more being emptied: what waits, and what rows give back.
    pub(crate) fn free_soon(&self) -> usize {
        let segments = self.log.segments();
        // A segment with a copy takes two of the slots that rows give back.
        let slots = if self.log.mirrors() { 2 } else { 1 };
        self.log.free_segments() + segments.waiting() + segments.slots_of_rows() / slots
    }

    /// Blocks that could be dirty, were nothing else there.
    pub(crate) fn dirty_room(&self) -> u64 {
        self.log.dirty_blocks()
    }

    /// Whether the pool holds as many blocks as memory may be used for, however little flash they take.
    pub(crate) fn is_crowded(&self) -> bool {
        self.sums.cached_blocks() >= self.log.data_blocks() * PACKED_MOST
    }

    /// The most objects that the log may name: as many as a checkpoint is sure to have room for.
    fn objects_max(&self) -> u64 {
        self.log.geometry().object_bytes() / (OBJECT_BYTES + PATH_ROOM)
    }

    /// Whether no object is left over, so that dirty ones should be made clean.
    pub(crate) fn is_short_of_objects(&self) -> bool {
        self.persisted_objects() >= self.objects_max()
    }

    /// Memory for what is not durable yet.
    pub(crate) fn unsynced_bytes_max(&self) -> usize {
        let pool = usize::try_from(self.log.geometry().pool_bytes).unwrap_or(usize::MAX);
        (pool / 4).min(64 << 20)
    }
}
