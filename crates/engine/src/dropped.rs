//! Of which blocks of an object no replay of the log brings anything back, so that they can be changed at the origin
//! without the log being told, and waited for, each time.
//!
//! Invariants:
//! - Whatever is appended of a block takes it out (`Store::set_slot`), and a change through the log takes all out: not
//!   all of it gives blocks slots.
//! - What is in counts once the log is durable up to `said_at`.

use headpond_base::{Block, RangeSet, Sequence};

use crate::locks::Span;

/// So many ranges are remembered: a writer that goes forward needs one.
const RANGES_MAX: usize = 64;

/// A writer that goes forward has as much ahead of it dropped as it has come, though that is cached: it is about to be
/// written. At most 16 MiB at once: one sync of the flash for so much is not felt, and no more is lost should it stop
/// there.
const AHEAD_MAX: u64 = 4096;

/// Ranges of blocks that the log was told to drop. Owned by the object.
#[derive(Default, Debug)]
pub(crate) struct Dropped {
    blocks: RangeSet,
    said_at: Sequence,
    /// Where the last direct change ended, and how many blocks came one after the other before it.
    end: Block,
    run: u64,
}

impl Dropped {
    /// Whether all of these blocks are in.
    pub(crate) fn has(&self, span: Span) -> bool {
        self.blocks.contains(span.first.0, span.end.0)
    }

    /// A block got a slot.
    pub(crate) fn appended(&mut self, block: Block) {
        if !self.blocks.is_empty() {
            self.blocks.remove(block.0, block.0 + 1);
        }
    }

    /// The log is changed by other entries than those of slots.
    pub(crate) fn clear(&mut self) {
        self.blocks.clear();
    }

    /// The log was told to drop these.
    pub(crate) fn add(&mut self, span: Span) {
        if self.blocks.len() >= RANGES_MAX {
            self.blocks.clear();
        }
        self.blocks.add(span.first.0, span.end.0);
    }

    /// What the log was told last must be durable before the origin is changed.
    pub(crate) const fn said(&mut self, at: Sequence) {
        self.said_at = at;
    }

    /// The entry that must be durable before the origin is changed.
    pub(crate) const fn said_at(&self) -> Sequence {
        self.said_at
    }

    /// A direct change comes. So many blocks from its end on go with it, although they are cached: of most changes
    /// none.
    pub(crate) fn goes_to(&mut self, span: Span) -> u64 {
        // A last block that was written in part is written again.
        let goes_on = self.end == span.first || self.end.0 == span.first.0 + 1;
        self.run = if goes_on { self.run + (span.end.0 - self.end.0.min(span.end.0)) } else { 0 };
        self.end = span.end;
        self.run.min(AHEAD_MAX)
    }
}
