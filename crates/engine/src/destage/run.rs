//! A run: neighbouring dirty blocks of one object that go to the origin in one write, or one range of zeros.

use headpond_base::{BLOCK_U64, Block, Buf, BufMut, blocks_for};
use headpond_map::{Slot, Zeros};
use headpond_policy::Merge;

use crate::store::object::Object;

/// The largest origin write, in blocks: 1 MiB.
pub(super) const RUN_BLOCKS_MAX: usize = 256;

/// The most zeros in one request of the origin, in blocks: 64 MiB. An origin that can make no holes gets the zeros
/// written, and a miss may have to wait for that: 0.4 s at 150 MB/s. Larger ones would make a discard of 1 TiB cost
/// fewer than 16,384 requests.
const ZEROS_BLOCKS_MAX: u64 = (64 << 20) / BLOCK_U64;

/// What a job may bring, in order: a dirty block with its slot, or a part of an extent of zeros.
pub(super) struct DirtyPart {
    pub(super) first: Block,
    end: Block,
    pub(super) slot: Option<Slot>,
}

impl DirtyPart {
    /// The first of them from `from` on, so many at most. Zeros behind the end of the origin's file are one part:
    /// nothing of them goes there, however many they are.
    pub(super) fn of(known: &Object, from: Block, most: usize) -> Vec<Self> {
        let data =
            known.map().dirty_from(from).map(|(first, slot)| Self { first, end: first.next(), slot: Some(slot) });
        let behind = Block(blocks_for(known.state.size.min(known.origin_size.most())));
        let parts = known.zeros().within(from, Zeros::END).flat_map(|(first, end)| {
            let there = end.min(behind);
            let starts = (first.0..there.0).step_by(ZEROS_BLOCKS_MAX as usize).map(Block);
            let pieces =
                starts.map(move |first| Self { first, end: first.plus(ZEROS_BLOCKS_MAX).min(there), slot: None });
            let first = first.max(behind);
            pieces.chain((first < end).then_some(Self { first, end, slot: None }))
        });
        let mut found: Vec<Self> = data.take(most).chain(parts.take(most)).collect();
        found.sort_unstable_by_key(|dirty| dirty.first);
        found.truncate(most);
        found
    }
}

/// Neighbouring dirty blocks, or a range of zeros.
pub(super) struct Run {
    pub(super) first: Block,
    /// As they were when the run was picked; none of zeros.
    pub(super) slots: Vec<Slot>,
    /// How many blocks of zeros it has, if it is one of zeros.
    pub(super) zeros: u64,
    /// The blocks' bytes, as far as they are read.
    pub(super) bytes: Vec<Option<Buf>>,
    /// Flash reads under way.
    pub(super) reading: u32,
    /// The group of runs that it goes with.
    pub(super) group: usize,
    /// DirtyPart data that cannot be read: the run must not be written.
    pub(super) unreadable: bool,
}

impl Run {
    pub(super) const fn zeros(&self) -> bool {
        self.zeros > 0
    }

    /// The block behind it.
    pub(super) fn end(&self) -> Block {
        self.first.plus(self.zeros + self.slots.len() as u64)
    }

    /// As how many blocks it counts: zeros, however many, as one.
    pub(super) fn weight(&self) -> u64 {
        u64::from(self.zeros()) + self.slots.len() as u64
    }

    fn new(first: Block, slots: Vec<Slot>, zeros: u64) -> Self {
        Self { first, slots, zeros, bytes: Vec::new(), reading: 0, group: 0, unreadable: false }
    }

    /// Runs of what comes in order: neighbours together, ranges of zeros as they are.
    pub(super) fn collect(dirty: &[DirtyPart]) -> Vec<Self> {
        let mut runs = Vec::new();
        for alike in dirty.chunk_by(|one, next| one.slot.is_some() && next.slot.is_some()) {
            let mut slots = alike.iter().filter_map(|dirty| dirty.slot);
            if slots.clone().next().is_none() {
                runs.extend(alike.iter().map(|dirty| Self::new(dirty.first, Vec::new(), dirty.end.0 - dirty.first.0)));
                continue;
            }
            let mut merge = Merge::new(RUN_BLOCKS_MAX as u64, 0);
            let mut found: Vec<_> = alike.iter().filter_map(|dirty| merge.push(dirty.first.0)).collect();
            found.extend(merge.end());
            runs.extend(found.into_iter().map(|run| {
                let count = usize::try_from(run.blocks).expect("a run is bounded");
                Self::new(Block(run.first), slots.by_ref().take(count).collect(), 0)
            }));
        }
        runs
    }

    /// The same of blocks of data.
    pub(super) fn of_data(blocks: &[(Block, Slot)]) -> Vec<Self> {
        let dirty =
            blocks.iter().map(|(first, slot)| DirtyPart { first: *first, end: first.next(), slot: Some(*slot) });
        Self::collect(&dirty.collect::<Vec<_>>())
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
