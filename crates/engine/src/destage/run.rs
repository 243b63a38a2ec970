//! A run: neighbouring dirty blocks of one object that go to the origin in one write.

use headpond_base::{Block, Buf, BufMut, Location};
use headpond_map::Slot;
use headpond_policy::Merge;

/// The largest origin write, in blocks: 1 MiB.
pub(super) const RUN_BLOCKS_MAX: usize = 256;

/// Neighbouring dirty blocks, all data or all zeros.
pub(super) struct Run {
    pub(super) first: Block,
    /// As they were when the run was picked.
    pub(super) slots: Vec<Slot>,
    /// The blocks' bytes, as far as they are read.
    pub(super) bytes: Vec<Option<Buf>>,
    /// Flash reads under way.
    pub(super) reading: u32,
    /// The group of runs that it goes with.
    pub(super) group: usize,
    /// Dirty data that cannot be read: the run must not be written.
    pub(super) unreadable: bool,
}

impl Run {
    pub(super) fn zeros(&self) -> bool {
        self.slots[0].location == Location::ZERO
    }

    /// The block behind it.
    pub(super) fn end(&self) -> Block {
        self.first.plus(self.slots.len() as u64)
    }

    /// Runs of blocks that come in order: neighbours together, data and zeros apart.
    pub(super) fn collect(blocks: &[(Block, Slot)]) -> Vec<Self> {
        let mut runs = Vec::new();
        for alike in
            blocks.chunk_by(|(_, one), (_, next)| (one.location == Location::ZERO) == (next.location == Location::ZERO))
        {
            let mut merge = Merge::new(RUN_BLOCKS_MAX as u64, 0);
            let mut found: Vec<_> = alike.iter().filter_map(|(block, _)| merge.push(block.0)).collect();
            found.extend(merge.end());
            let mut slots = alike.iter().map(|(_, slot)| *slot);
            runs.extend(found.into_iter().map(|run| {
                let count = usize::try_from(run.blocks).expect("a run is bounded");
                let slots = slots.by_ref().take(count).collect();
                Self { first: Block(run.first), slots, bytes: Vec::new(), reading: 0, group: 0, unreadable: false }
            }));
        }
        runs
    }
}

/// Joins blocks that follow each other in one buffer, and cuts the last to `len` bytes in all.
pub(super) fn pieces(blocks: Vec<Option<Buf>>, len: usize) -> Vec<Buf> {
    let mut left = len;
    let mut pieces = Vec::new();
    for block in blocks.into_iter().map(|block| block.expect("a run is written once it is read")) {
        let take = block.len().min(left);
        if take > 0 {
            pieces.push(if take < block.len() { block.slice(0..take) } else { block });
        }
        left -= take;
    }
    debug_assert_eq!(left, 0);
    if pieces.len() > 16 {
        // One copy is cheaper than a system call with hundreds of pieces.
        let mut whole = BufMut::zeroed(len);
        let mut at = 0;
        for piece in &pieces {
            whole[at..at + piece.len()].copy_from_slice(piece);
            at += piece.len();
        }
        return vec![whole.freeze()];
    }
    pieces
}
