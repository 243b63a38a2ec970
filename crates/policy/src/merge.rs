//! The order in which dirty blocks go to the origin: by address, with neighbours joined.
//!
//! An origin I/O costs about the same for 16 KiB as for half a megabyte. So dirty blocks that lie close together go in
//! one write. That write may cross a gap if the blocks in it are clean and at hand: one larger write instead of two.
//!
//! Invariants: a run holds the given blocks, in order. No run is longer than the bound. It begins and ends with a
//! dirty block.

use headpond_base::{BLOCK_U64, Nanos};

/// What an origin I/O costs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OriginCost {
    /// Time for each I/O, whatever its size.
    pub each: Nanos,
    /// Time for each MiB.
    pub mebibyte: Nanos,
}

impl OriginCost {
    /// The largest gap, in blocks, over which one write costs no more than two writes beside it. `extra` is what a MiB
    /// of the gap costs to get.
    #[must_use]
    pub fn gap_worth(self, extra: Nanos) -> u64 {
        let dear = u128::from(self.mebibyte.0) + u128::from(extra.0);
        let blocks = u128::from(self.each.0) * (1 << 20) / (dear.max(1) * u128::from(BLOCK_U64));
        u64::try_from(blocks).unwrap_or(u64::MAX)
    }
}

/// Blocks that go to the origin in one write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WriteRun {
    /// Its first block.
    pub first: u64,
    /// Blocks from the first to the last.
    pub blocks: u64,
    /// Dirty blocks. The others fill gaps.
    pub dirty: u64,
}

/// Joins dirty blocks. They come in order.
#[derive(Clone, Debug)]
pub struct Merge {
    blocks_max: u64,
    gap_max: u64,
    open: Option<WriteRun>,
}

impl Merge {
    /// Makes runs of up to `blocks_max` blocks, over gaps of up to `gap_max` blocks; 0 joins only neighbours.
    #[must_use]
    pub const fn new(blocks_max: u64, gap_max: u64) -> Self {
        Self { blocks_max, gap_max, open: None }
    }

    /// Adds the next dirty block, after all before it. Returns the run that it ended, if any.
    pub fn push(&mut self, block: u64) -> Option<WriteRun> {
        if let Some(run) = &mut self.open {
            let gap = block.checked_sub(run.first + run.blocks);
            debug_assert!(gap.is_some(), "dirty blocks come in order");
            let blocks = block - run.first + 1;
            if gap.is_some_and(|gap| gap <= self.gap_max) && blocks <= self.blocks_max {
                (run.blocks, run.dirty) = (blocks, run.dirty + 1);
                return None;
            }
        }
        self.open.replace(WriteRun { first: block, blocks: 1, dirty: 1 })
    }

    /// Ends the blocks. Returns the last run.
    pub const fn end(&mut self) -> Option<WriteRun> {
        self.open.take()
    }
}

/// What lies between a run and the one before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gap {
    /// No write may go over it.
    Closed,
    /// Its bytes are at hand.
    AtHand,
    /// Its bytes must be read from the origin first.
    ToRead,
}

impl OriginCost {
    /// What an I/O of `blocks` blocks costs, in nanoseconds.
    #[must_use]
    pub const fn of(self, blocks: u64) -> u64 {
        self.each.0.saturating_add(self.mebibyte.0.saturating_mul(blocks) / ((1 << 20) / BLOCK_U64))
    }
}

/// Runs that follow each other and go to the origin in one write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Joined {
    /// Number of runs.
    pub runs: usize,
    /// Cost of the write, and of the read of missing bytes in between.
    pub cost: Nanos,
}

/// The cheapest way to write these runs. Each comes with the gap before it, in order. The result says which go
/// together. For each write, one read gets all missing bytes, from the first gap to read to the end of the last.
///
/// Invariants: no way over these gaps with writes of at most `blocks_max` costs less. Of two with the same cost, it is
/// the one with larger writes.
#[must_use]
pub fn join(runs: &[(WriteRun, Gap)], blocks_max: u64, writes: OriginCost, reads: OriginCost) -> Vec<Joined> {
    // For each end: the least cost up to there, the runs of the last write, and the cost of that write.
    let mut best: Vec<(u64, usize, u64)> = vec![(0, 0, 0)];
    for end in 1..=runs.len() {
        let last = runs[end - 1].0;
        let to = last.first + last.blocks;
        let mut chosen = (u64::MAX, 1, 0);
        let (mut read_from, mut read_to) = (0, 0);
        for start in (0..end).rev() {
            let blocks = to - runs[start].0.first;
            if blocks > blocks_max && start + 1 < end {
                break;
            }
            let read = if read_to > read_from { reads.of(read_to - read_from) } else { 0 };
            let cost = writes.of(blocks).saturating_add(read);
            let total = best[start].0.saturating_add(cost);
            if total <= chosen.0 {
                chosen = (total, end - start, cost);
            }
            if start == 0 {
                break;
            }
            let before = runs[start - 1].0;
            match runs[start].1 {
                Gap::Closed => break,
                Gap::AtHand => {}
                Gap::ToRead => {
                    read_from = before.first + before.blocks;
                    read_to = if read_to == 0 { runs[start].0.first } else { read_to };
                }
            }
        }
        best.push(chosen);
    }
    let mut joined = Vec::new();
    let mut end = runs.len();
    while end > 0 {
        let (_, count, cost) = best[end];
        joined.push(Joined { runs: count, cost: Nanos(cost) });
        end -= count;
    }
    joined.reverse();
    joined
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn runs(blocks: &BTreeSet<u64>, blocks_max: u64, gap_max: u64) -> Vec<WriteRun> {
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

    /// The least cost over every way to join.
    fn least(runs: &[(WriteRun, Gap)], blocks_max: u64, writes: OriginCost, reads: OriginCost) -> u64 {
        let cuts = runs.len() - 1;
        let ways = (0..1_u32 << cuts).filter_map(|way| {
            let mut start = 0;
            let mut sum = 0;
            for end in 1..=runs.len() {
                if end < runs.len() && way >> (end - 1) & 1 == 0 {
                    continue;
                }
                let (first, last) = (runs[start].0, runs[end - 1].0);
                let blocks = last.first + last.blocks - first.first;
                let gaps = &runs[start + 1..end];
                if gaps.iter().any(|(_, gap)| *gap == Gap::Closed) || blocks > blocks_max && end > start + 1 {
                    return None;
                }
                let mut read: Option<(u64, u64)> = None;
                for index in start + 1..end {
                    if runs[index].1 == Gap::ToRead {
                        let from = runs[index - 1].0.first + runs[index - 1].0.blocks;
                        read = Some((read.map_or(from, |(from, _)| from), runs[index].0.first));
                    }
                }
                sum += writes.of(blocks) + read.map_or(0, |(from, to)| reads.of(to - from));
                start = end;
            }
            Some(sum)
        });
        ways.min().unwrap()
    }

    proptest! {
        #[test]
        fn no_other_way_to_join_is_cheaper(
            sizes in proptest::collection::vec((1..30_u64, 1..80_u64, 0..3_u8), 1..9),
            each in (0..50_u64, 0..50_u64), mebibyte in (0..50_u64, 0..50_u64), blocks_max in 30..200_u64,
        ) {
            let cost = |each, mebibyte| OriginCost { each: Nanos(each * 100_000), mebibyte: Nanos(mebibyte * 1_000_000) };
            let (writes, reads) = (cost(each.0, mebibyte.0), cost(each.1, mebibyte.1));
            let mut at = 0;
            let runs: Vec<_> = sizes.iter().map(|(blocks, gap, kind)| {
                let first = at + gap;
                at = first + blocks;
                let gap = [Gap::Closed, Gap::AtHand, Gap::ToRead][usize::from(*kind)];
                (WriteRun { first, blocks: *blocks, dirty: *blocks }, gap)
            }).collect();
            let joined = join(&runs, blocks_max, writes, reads);
            prop_assert_eq!(joined.iter().map(|write| write.runs).sum::<usize>(), runs.len());
            prop_assert_eq!(joined.iter().map(|write| write.cost.0).sum::<u64>(), least(&runs, blocks_max, writes, reads));
        }
    }

    #[test]
    fn several_runs_close_together_are_worth_reading_what_lies_between() {
        let origin = OriginCost { each: Nanos(5 * Nanos::MILLISECOND.0), mebibyte: Nanos(Nanos::SECOND.0 / 150) };
        let runs: Vec<_> =
            (0..10).map(|index| (WriteRun { first: index * 20, blocks: 4, dirty: 4 }, Gap::ToRead)).collect();
        assert_eq!(join(&runs[..2], 256, origin, origin).len(), 2, "a read and a write for two writes: no");
        assert_eq!(join(&runs, 256, origin, origin).len(), 1, "a read and a write for ten writes");
    }
}
