//! The blocks of one object that are zeros which the origin has not got, as extents.
//!
//! Invariants:
//! - Extents are not empty, and do not overlap or touch: of the sets that hold these blocks it is the smallest.
//! - None reaches beyond [`Zeros::END`].
//!
//! Cost: an extent takes as much as any other, however long it is. So extents are counted and not their blocks, and
//! each counts as one dirty block where that is bounded.

use headpond_base::{Block, RangeSet};

/// Bytes of an extent in a checkpoint.
pub const EXTENT_BYTES: usize = 16;

/// Bytes of memory that an extent takes: a B-tree node has room for 11 and is two thirds full on the average.
const EXTENT_MEMORY: usize = 26;

/// All extents of one object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Zeros(RangeSet);

impl Zeros {
    /// No object has this block.
    pub const END: Block = Block(1 << 41);

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many extents there are.
    #[must_use]
    pub fn extents(&self) -> u64 {
        self.0.len() as u64
    }

    /// Bytes of memory that they take.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.0.len() * EXTENT_MEMORY
    }

    /// Whether a block is one of them.
    #[must_use]
    pub fn has(&self, block: Block) -> bool {
        self.has_all(block, block.next())
    }

    /// Whether all blocks from `first` up to and without `end` are.
    #[must_use]
    pub fn has_all(&self, first: Block, end: Block) -> bool {
        self.0.contains(first.0, end.0)
    }

    /// Whether any of them is.
    #[must_use]
    pub fn has_any(&self, first: Block, end: Block) -> bool {
        self.within(first, end).next().is_some()
    }

    /// The extents from `first` up to and without `end`, cut there, in order.
    pub fn within(&self, first: Block, end: Block) -> impl Iterator<Item = (Block, Block)> {
        self.0.within(first.0, end.0).map(|(first, end)| (Block(first), Block(end)))
    }

    /// Makes blocks zeros.
    ///
    /// # Panics
    /// When one is beyond [`Zeros::END`]: the front doors allow no object to be so long.
    pub fn add(&mut self, first: Block, end: Block) {
        assert!(first >= end || end <= Self::END, "no object is so long");
        self.0.add(first.0, end.0);
    }

    /// Makes them something else. An extent may become two.
    pub fn remove(&mut self, first: Block, end: Block) {
        self.0.remove(first.0, end.0);
    }

    /// Appends the extents from `from` on to `out`, as first block and count of blocks (u64 each), `most` of them at
    /// most; answers with where to go on, or `None` when those were all.
    pub fn encode(&self, from: Block, most: usize, out: &mut Vec<u8>) -> Option<Block> {
        let mut extents = self.within(from, Self::END);
        for (first, end) in extents.by_ref().take(most) {
            out.extend_from_slice(&first.0.to_le_bytes());
            out.extend_from_slice(&(end.0 - first.0).to_le_bytes());
        }
        extents.next().map(|(first, _)| first)
    }

    /// Takes extents as they come from a checkpoint, behind those that are there. Answers `false` if they make no
    /// sense.
    pub fn decode(&mut self, bytes: &[u8]) -> bool {
        let (extents, rest) = bytes.as_chunks::<EXTENT_BYTES>();
        for extent in extents {
            let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| extent[at + byte]));
            let (first, blocks) = (word(0), word(8));
            let end = first.checked_add(blocks).filter(|end| blocks > 0 && *end <= Self::END.0);
            let Some(end) = end.filter(|_| !self.0.reaches_beyond(first)) else { return false };
            self.0.add(first, end);
        }
        rest.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SPAN: usize = 96;

    fn set(zeros: &Zeros, from: usize, to: usize) -> Vec<usize> {
        let blocks = zeros.within(Block(from as u64), Block(to as u64));
        blocks.flat_map(|(first, end)| first.0 as usize..end.0 as usize).collect()
    }

    /// What a checkpoint gives back that writes a few extents at a time.
    fn reloaded(zeros: &Zeros, most: usize) -> Zeros {
        let (mut copy, mut from) = (Zeros::default(), Some(Block(0)));
        while let Some(at) = from {
            let mut bytes = Vec::new();
            from = zeros.encode(at, most, &mut bytes);
            assert!(copy.decode(&bytes) && bytes.len() <= most * EXTENT_BYTES);
        }
        copy
    }

    proptest! {
        #[test]
        fn extents_agree_with_a_naive_set(
            steps in proptest::collection::vec((any::<bool>(), 0..SPAN, 0..SPAN), 0..60),
            probe in (0..SPAN, 0..SPAN),
            most in 1_usize..5,
        ) {
            let (mut zeros, mut naive) = (Zeros::default(), std::collections::BTreeSet::new());
            for (add, first, end) in steps {
                let before = zeros.extents();
                if add {
                    zeros.add(Block(first as u64), Block(end as u64));
                    naive.extend(first..end);
                } else {
                    zeros.remove(Block(first as u64), Block(end as u64));
                    naive.retain(|block| !(first..end).contains(block));
                }
                prop_assert!(zeros.extents() <= before + 1, "a change makes one more at most");
                let starts = naive.iter().filter(|block| **block == 0 || !naive.contains(&(**block - 1))).count();
                prop_assert_eq!(zeros.extents(), starts as u64);
            }
            let (first, end) = probe;
            let expected: Vec<usize> = naive.iter().copied().filter(|block| (first..end).contains(block)).collect();
            prop_assert_eq!(set(&zeros, first, end), &expected[..]);
            let (first, end) = (Block(first as u64), Block(end as u64));
            prop_assert_eq!(zeros.has_any(first, end), !expected.is_empty());
            prop_assert_eq!(zeros.has_all(first, end), expected.len() as u64 == end.0.saturating_sub(first.0));
            prop_assert_eq!(zeros.has(first), naive.contains(&(first.0 as usize)));
            prop_assert_eq!(reloaded(&zeros, most), zeros);
        }
    }

    #[test]
    fn an_extent_of_a_tebibyte_takes_what_one_of_a_block_takes() {
        let (mut one, mut many) = (Zeros::default(), Zeros::default());
        one.add(Block(7), Block(8));
        many.add(Block(0), Block(1 << 28));
        assert_eq!((one.extents(), one.memory()), (many.extents(), many.memory()));
        many.remove(Block(1 << 20), Block((1 << 20) + 1));
        assert_eq!(many.extents(), 2);
    }

    #[test]
    fn extents_out_of_order_or_that_make_no_sense_are_refused() {
        let decodes = |extents: &[(u64, u64)]| {
            let bytes: Vec<u8> =
                extents.iter().flat_map(|(first, blocks)| [*first, *blocks]).flat_map(u64::to_le_bytes).collect();
            Zeros::default().decode(&bytes)
        };
        assert!(decodes(&[]) && decodes(&[(0, 5), (5, 1), (9, (1 << 41) - 9)]));
        for wrong in [&[(3, 0)][..], &[(0, 5), (4, 2)], &[(5, 1), (0, 1)], &[(1, 1 << 41)], &[(u64::MAX, 2)]] {
            assert!(!decodes(wrong), "{wrong:?}");
        }
        assert!(!Zeros::default().decode(&[1; 15]), "half an extent");
    }

    #[test]
    fn a_walk_that_is_overtaken_by_a_change_goes_on_in_order() {
        let mut zeros = Zeros::default();
        [(0, 5), (10, 15), (20, 25)].iter().for_each(|(first, end)| zeros.add(Block(*first), Block(*end)));
        let (mut copy, mut bytes) = (Zeros::default(), Vec::new());
        let next = zeros.encode(Block(0), 2, &mut bytes).unwrap();
        assert!(copy.decode(&bytes) && next == Block(20));
        zeros.add(Block(12), Block(22));
        bytes.clear();
        assert_eq!(zeros.encode(next, 2, &mut bytes), None);
        assert!(copy.decode(&bytes));
        assert_eq!(set(&copy, 0, SPAN), [0, 1, 2, 3, 4, 10, 11, 12, 13, 14, 20, 21, 22, 23, 24]);
    }
}
