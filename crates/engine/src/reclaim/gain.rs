//! Whether reclaim gains anything by moving blocks.
//!
//! What a segment takes is not only what counts in it: heads of batches, and what is left at its end because the next
//! record did not fit. Moved on, that comes again, so a pool of dirty data can look as if it had room to win and win
//! none, for ever.
//!
//! Invariant: while nothing but reclaim changes what the pool holds, it moves a bounded number of blocks. Then nothing
//! moves until a write, a read or destage has changed something.

use super::Reclaiming;

/// For each block that others change so many may move: twice what a segment costs of which one block in eight is won.
const MOVES_PER_CHANGE: u64 = 16;
/// So many segments, or all if there are more, may move with no change by others. One in eight of those is won at least
/// if their room is used well, so what is wanted free comes together.
const SEGMENTS_AT_LEAST: u64 = 128;

/// What reclaim moved lately, against what others changed. Owned by reclaim.
#[derive(Default)]
pub(super) struct Gain {
    /// Blocks that moved and were not made good by changes of others.
    spent: u64,
    moved: u64,
    changed: u64,
}

impl Gain {
    /// So many blocks were moved, and changed by others, since the start.
    fn note(&mut self, moved: u64, changed: u64) {
        let granted = changed.saturating_sub(self.changed).saturating_mul(MOVES_PER_CHANGE);
        self.spent = (self.spent + (moved - self.moved)).saturating_sub(granted);
        (self.moved, self.changed) = (moved, changed);
    }
}

impl Reclaiming<'_> {
    /// Counts what moved and what changed; with as many segments free as should be, nothing was in vain.
    pub(super) fn note_gain(&mut self) {
        let moved = self.stats.moved_blocks;
        self.reclaim.gain.note(moved, self.store.sums().slots_changed().saturating_sub(moved));
        if self.reclaim.idle() && !self.wants_segments() {
            self.reclaim.gain.spent = 0;
        }
    }

    /// Whether so much moved with nothing to show for it that only dropping helps.
    pub(super) fn moves_in_vain(&self) -> bool {
        let segments = self.store.log().segments().len() as u64;
        let blocks = u64::from(self.store.log().geometry().segment_blocks());
        self.reclaim.gain.spent >= segments.max(SEGMENTS_AT_LEAST) * blocks
    }
}
