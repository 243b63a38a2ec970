//! How many writes the origin gets if dirty blocks are gathered, sorted and merged.
//!
//! The model: a written block is dirty, and absorbs further writes to it. When dirty blocks reach the threshold, the
//! oldest of them, an eighth of the cache, go to the origin in the order of their addresses, with neighbours joined
//! ([`headpond_policy::Merge`]). At the end all dirty blocks go.

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
    let most = (size_blocks / THRESHOLD).max(1);
    let batch = (size_blocks / BATCH).max(1);
    let mut dirty = vec![false; load.footprint()];
    let mut oldest = VecDeque::new();
    let mut result = ReplayedDestage {
        write_requests: load.write_requests(),
        written_blocks: 0,
        destaged_blocks: 0,
        destage_ios: 0,
    };
    for reference in load.references().iter().filter(|reference| reference.is_write()) {
        let block = reference.block();
        result.written_blocks += 1;
        if std::mem::replace(&mut dirty[block as usize], true) {
            continue;
        }
        oldest.push_back(block);
        if oldest.len() >= most {
            write_out(load, oldest.drain(..batch), &mut dirty, gap_max, &mut result);
        }
    }
    write_out(load, oldest.drain(..), &mut dirty, gap_max, &mut result);
    result
}

fn write_out(
    load: &LoadedTrace,
    blocks: impl Iterator<Item = u32>,
    dirty: &mut [bool],
    gap_max: u64,
    result: &mut ReplayedDestage,
) {
    let sorted: BTreeSet<(u64, u64)> = blocks
        .map(|block| {
            dirty[block as usize] = false;
            load.place(block)
        })
        .collect();
    result.destaged_blocks += sorted.len() as u64;
    let mut merge = Merge::new(RUN_BLOCKS_MAX, gap_max);
    let mut volume = None;
    for (of, position) in sorted {
        if volume != Some(of) {
            result.destage_ios += u64::from(merge.end().is_some());
            volume = Some(of);
        }
        result.destage_ios += u64::from(merge.push(position).is_some());
    }
    result.destage_ios += u64::from(merge.end().is_some());
}
