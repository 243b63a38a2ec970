//! How many writes the origin gets if dirty blocks are gathered, sorted and merged.
//!
//! The model: a written block is dirty, and absorbs further writes to it. When dirty blocks reach the threshold, the
//! oldest of them, an eighth of the cache, go to the origin in the order of their addresses, with neighbours joined
//! ([`headpond_policy::Merge`]); so do those that were dirty for as long as they may be. At the end all dirty blocks
//! go. A dirty block that is discarded never goes.

use std::collections::{BTreeSet, VecDeque};

use headpond_policy::Merge;

use crate::load::LoadedTrace;

/// Destage begins at this part of the cache: a half, the product's default.
const THRESHOLD: usize = 2;
/// One destage writes this part of the cache.
const BATCH: usize = 8;
/// The largest write to the origin: 1 MiB.
const RUN_BLOCKS_MAX: u64 = 256;

/// The result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplayedDestage {
    /// Write requests of the trace.
    pub write_requests: u64,
    /// Blocks that they wrote.
    pub written_blocks: u64,
    /// Blocks that went to the origin.
    pub destaged_blocks: u64,
    /// The writes in which they went.
    pub destage_ios: u64,
}

/// Gathers and destages the writes of a trace in a cache of `size_blocks`. A write may span gaps of up to `gap_max`
/// clean blocks.
#[must_use]
pub fn destage(load: &LoadedTrace, size_blocks: usize, gap_max: u64) -> ReplayedDestage {
    let mut dirty = DirtyBlocks::new(load, size_blocks, gap_max, None);
    let mut gone = load.gone().iter().peekable();
    for (at, reference) in load.references().iter().enumerate() {
        while let Some((_, block)) = gone.next_if(|(before, _)| *before <= at) {
            dirty.lose(*block);
        }
        if reference.is_write() {
            dirty.write(reference.block(), &mut drop);
        }
    }
    gone.for_each(|(_, block)| dirty.lose(*block));
    dirty.end()
}

/// The dirty blocks of a cache.
pub(crate) struct DirtyBlocks<'a> {
    load: &'a LoadedTrace,
    most: usize,
    batch: usize,
    gap_max: u64,
    /// How many seconds a block may be dirty.
    period: Option<u32>,
    second: u32,
    /// Since which of all changes from clean to dirty each block is dirty; 0: it is clean.
    since: Vec<u32>,
    changes: u32,
    /// Dirty blocks, the oldest first, with that number and the second. One that is clean by now, or dirty anew, is
    /// there with an old number.
    oldest: VecDeque<(u32, u32, u32)>,
    count: usize,
    result: ReplayedDestage,
}

impl<'a> DirtyBlocks<'a> {
    pub(crate) fn new(load: &'a LoadedTrace, size_blocks: usize, gap_max: u64, period: Option<u32>) -> Self {
        Self {
            load,
            most: (size_blocks / THRESHOLD).max(1),
            batch: (size_blocks / BATCH).max(1),
            gap_max,
            period,
            second: 0,
            since: vec![0; load.footprint()],
            changes: 0,
            oldest: VecDeque::new(),
            count: 0,
            result: ReplayedDestage {
                write_requests: load.write_requests(),
                written_blocks: 0,
                destaged_blocks: 0,
                destage_ios: 0,
            },
        }
    }

    pub(crate) fn is_dirty(&self, block: u32) -> bool {
        self.since[block as usize] != 0
    }

    /// A block is written. `cleaned` gets the blocks that go to the origin for it.
    pub(crate) fn write(&mut self, block: u32, cleaned: &mut dyn FnMut(u32)) {
        self.result.written_blocks += 1;
        if self.is_dirty(block) {
            return;
        }
        self.changes += 1;
        self.since[block as usize] = self.changes;
        self.oldest.push_back((block, self.changes, self.second));
        self.count += 1;
        if self.count >= self.most {
            self.write_out(self.batch, |_| true, cleaned);
        }
    }

    /// It is this second now. `cleaned` gets the blocks that were dirty for as long as they may be.
    pub(crate) fn pass_time(&mut self, second: u32, cleaned: &mut dyn FnMut(u32)) {
        self.second = second;
        if let Some(period) = self.period {
            self.write_out(usize::MAX, |since| since.saturating_add(period) <= second, cleaned);
        }
    }

    /// A block is discarded.
    pub(crate) fn lose(&mut self, block: u32) {
        let since = &mut self.since[block as usize];
        self.count -= usize::from(*since != 0);
        *since = 0;
    }

    /// The rest goes to the origin.
    pub(crate) fn end(mut self) -> ReplayedDestage {
        self.write_out(usize::MAX, |_| true, &mut drop);
        self.result
    }

    /// Writes out the oldest blocks, at most so many, as long as they are due by the second in which they became dirty.
    fn write_out(&mut self, most: usize, due: impl Fn(u32) -> bool, cleaned: &mut dyn FnMut(u32)) {
        let mut sorted = BTreeSet::new();
        while sorted.len() < most
            && let Some((block, number, second)) = self.oldest.front().copied()
            && due(second)
        {
            self.oldest.pop_front();
            let since = &mut self.since[block as usize];
            if *since == number {
                *since = 0;
                self.count -= 1;
                cleaned(block);
                sorted.insert(self.load.place(block));
            }
        }
        self.result.destaged_blocks += sorted.len() as u64;
        self.result.destage_ios += self.writes_of(sorted);
    }

    /// The writes that these blocks take.
    fn writes_of(&self, sorted: BTreeSet<(u64, u64)>) -> u64 {
        let (mut writes, mut volume) = (0, None);
        let mut merge = Merge::new(RUN_BLOCKS_MAX, self.gap_max);
        for (of, position) in sorted {
            if volume != Some(of) {
                writes += u64::from(merge.end().is_some());
                volume = Some(of);
            }
            writes += u64::from(merge.push(position).is_some());
        }
        writes + u64::from(merge.end().is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_goes_once_however_often_it_was_written_and_never_if_it_was_discarded() {
        let load = LoadedTrace::of_keys(0..100);
        let mut dirty = DirtyBlocks::new(&load, 1000, 0, Some(10));
        let mut cleaned = Vec::new();
        let mut clean = |block| cleaned.push(block);
        (0..10).for_each(|_| (0..4).for_each(|block| dirty.write(block, &mut clean)));
        dirty.lose(2);
        dirty.pass_time(5, &mut clean);
        dirty.write(50, &mut clean);
        dirty.write(2, &mut clean);
        dirty.pass_time(10, &mut clean);
        assert!(dirty.is_dirty(50) && dirty.is_dirty(2) && !dirty.is_dirty(3));
        let result = dirty.end();
        assert_eq!(cleaned, [0, 1, 3]);
        assert_eq!((result.written_blocks, result.destaged_blocks), (42, 5));
        assert_eq!(result.destage_ios, 4, "0 and 1 are neighbours; 3 was alone, and so were 2 and 50 later");
    }
}
