//! The order in which dirty blocks go to the origin: by address, neighbours joined.
//!
//! An origin I/O costs about the same for 16 KiB as for half a megabyte. So dirty blocks that lie
//! close together go in one write, and where the blocks between them are clean and at hand, even
//! across a gap: one larger write instead of two.
//!
//! Invariants: a run holds what was given, in order; none is longer than the bound; it begins and
//! ends with a dirty block.

use headpond_base::{BLOCK_U64, Nanos};

/// What the origin charges.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OriginCost {
    /// For each I/O, whatever its size.
    pub each: Nanos,
    /// For each MiB.
    pub mebibyte: Nanos,
}

impl OriginCost {
    /// The largest gap, in blocks, for which one write over it is no dearer than two writes
    /// beside it, if what is in the gap costs `extra` for each MiB to get.
    #[must_use]
    pub fn gap_worth(self, extra: Nanos) -> u64 {
        let dear = u128::from(self.mebibyte.0) + u128::from(extra.0);
        let blocks = u128::from(self.each.0) * (1 << 20) / (dear.max(1) * u128::from(BLOCK_U64));
        u64::try_from(blocks).unwrap_or(u64::MAX)
    }
}

/// Blocks that go to the origin in one write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// Its first block.
    pub first: u64,
    /// How many it spans.
    pub blocks: u64,
    /// How many of them are dirty; the others fill gaps.
    pub dirty: u64,
}

/// Joins dirty blocks that come in order.
#[derive(Clone, Debug)]
pub struct Merge {
    blocks_max: u64,
    gap_max: u64,
    open: Option<Run>,
}

impl Merge {
    /// Runs of up to `blocks_max` blocks, over gaps of up to `gap_max`; 0 joins neighbours only.
    #[must_use]
    pub const fn new(blocks_max: u64, gap_max: u64) -> Self {
        Self { blocks_max, gap_max, open: None }
    }

    /// The next dirty block, after all before it. Answers with a run that it ended.
    pub fn push(&mut self, block: u64) -> Option<Run> {
        if let Some(run) = &mut self.open {
            let gap = block.checked_sub(run.first + run.blocks);
            debug_assert!(gap.is_some(), "dirty blocks come in order");
            let blocks = block - run.first + 1;
            if gap.is_some_and(|gap| gap <= self.gap_max) && blocks <= self.blocks_max {
                (run.blocks, run.dirty) = (blocks, run.dirty + 1);
                return None;
            }
        }
        self.open.replace(Run { first: block, blocks: 1, dirty: 1 })
    }

    /// There are no more. Answers with the last run.
    pub const fn end(&mut self) -> Option<Run> {
        self.open.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn runs(blocks: &BTreeSet<u64>, blocks_max: u64, gap_max: u64) -> Vec<Run> {
        let mut merge = Merge::new(blocks_max, gap_max);
        let mut runs: Vec<_> = blocks.iter().filter_map(|block| merge.push(*block)).collect();
        runs.extend(merge.end());
        runs
    }

    proptest! {
        #[test]
        fn every_block_goes_once_and_no_two_runs_could_have_been_one(
            blocks in proptest::collection::btree_set(0..300_u64, 0..120), blocks_max in 1..40_u64, gap_max in 0..5_u64,
        ) {
            let runs = runs(&blocks, blocks_max, gap_max);
            prop_assert_eq!(runs.iter().map(|run| run.dirty).sum::<u64>(), blocks.len() as u64);
            for run in &runs {
                let inside: Vec<_> = blocks.range(run.first..run.first + run.blocks).collect();
                prop_assert_eq!(inside.len() as u64, run.dirty);
                prop_assert!(run.blocks <= blocks_max && blocks.contains(&(run.first + run.blocks - 1)));
            }
            for pair in runs.windows(2) {
                let gap = pair[1].first - (pair[0].first + pair[0].blocks);
                prop_assert!(gap > gap_max || pair[1].first - pair[0].first + 1 > blocks_max);
            }
        }
    }

    #[test]
    fn a_gap_is_crossed_when_the_larger_write_is_no_dearer() {
        // 200 I/Os and 150 MiB a second: an I/O costs as much as 0.75 MiB.
        let origin = OriginCost { each: Nanos(5 * Nanos::MILLISECOND.0), mebibyte: Nanos(Nanos::SECOND.0 / 150) };
        assert_eq!(origin.gap_worth(Nanos(0)), 192);
        assert_eq!(origin.gap_worth(origin.mebibyte), 96);
        let blocks = BTreeSet::from([0, 1, 2, 100, 101, 400]);
        assert_eq!(runs(&blocks, 256, 192).len(), 2);
        assert_eq!(runs(&blocks, 256, 0).len(), 3);
    }
}
