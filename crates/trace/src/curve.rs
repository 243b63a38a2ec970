//! What a pool of each size would have done for a trace: the answer to how much flash to buy.
//!
//! The policy is the product's, at each size, as the engine calls it: a read that misses comes in, a written block
//! always does, and a dirty one cannot go before it was destaged. So the curve is exact for the trace, or for a sample
//! of its blocks ([`LoadOptions::sample`](crate::LoadOptions)).

use headpond_policy::{Adaptive, Admission, Cache, Host, Insertion, Key, Policy};

use crate::destage::DirtyBlocks;
use crate::load::LoadedTrace;
use crate::replay::CHUNK;

/// What a pool of one size would have done.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SizePoint {
    /// Blocks that the pool keeps.
    pub size_blocks: u64,
    /// Blocks that reads asked for.
    pub reads: u64,
    /// Those of them that the origin had to give.
    pub read_misses: u64,
    /// Read requests.
    pub read_requests: u64,
    /// Those that had to wait for the origin for at least one block: each is one read there, or a few.
    pub missed_requests: u64,
    /// Written blocks.
    pub written: u64,
    /// Blocks that went to the origin because of that.
    pub destaged: u64,
}

impl SizePoint {
    /// The share of the blocks that reads found in the pool.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // far below 2^52
    pub fn hit_ratio(&self) -> f64 {
        if self.reads == 0 { 0.0 } else { 1.0 - self.read_misses as f64 / self.reads as f64 }
    }
}

/// How new the blocks of a trace are that it reads.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FirstReads {
    /// Blocks that reads asked for.
    pub reads: u64,
    /// Those that nothing had referred to before: no pool has them.
    pub first: u64,
    /// The same of the last quarter of the reads.
    pub late_reads: u64,
    /// See `late_reads`.
    pub late_first: u64,
}

/// Counts the first reads of a trace, in the sample.
#[must_use]
pub fn first_reads(load: &LoadedTrace) -> FirstReads {
    let mut counts = FirstReads::default();
    let reads = load.references().iter().filter(|reference| !reference.is_write()).count() as u64;
    let mut next = 0;
    for reference in load.references() {
        // Blocks are numbered in the order of their first reference.
        let first = reference.block() == next;
        next += u32::from(first);
        if reference.is_write() {
            continue;
        }
        let late = counts.reads >= reads - reads / 4;
        counts.reads += 1;
        counts.first += u64::from(first);
        counts.late_reads += u64::from(late);
        counts.late_first += u64::from(late && first);
    }
    counts
}

/// The flash: a dirty block may not go.
struct Pool<'a, 'b> {
    dirty: &'b DirtyBlocks<'a>,
}

#[allow(clippy::cast_possible_truncation)] // keys are numbers of blocks
impl Host for Pool<'_, '_> {
    fn evictable(&mut self, key: Key) -> bool {
        !self.dirty.is_dirty(key.0 as u32)
    }

    fn fill(&mut self, _: Key) -> bool {
        true
    }

    fn evicted(&mut self, _: Key) {}
}

/// How a pool is run.
#[derive(Clone, Copy, Debug)]
pub struct ReplayedPool {
    /// Its policy.
    pub policy: Policy,
    /// Which reads it lets in.
    pub admission: Admission,
    /// How many seconds a block may be dirty; `None` for ever.
    pub flush_seconds: Option<u32>,
}

/// What a pool that keeps `size_blocks` would have done for a trace. `sample` is the one with which it was loaded.
/// `progress` gets the number of references done, now and then.
#[must_use]
pub fn size_point(
    load: &LoadedTrace,
    size_blocks: u64,
    sample: u32,
    plan: ReplayedPool,
    progress: &mut dyn FnMut(u64),
) -> SizePoint {
    let blocks = usize::try_from(size_blocks >> sample).unwrap_or(usize::MAX).max(1);
    // More than there are is no use, and would take memory.
    let blocks = blocks.min(load.footprint() * 2 + 16);
    let mut cache = Cache::new(plan.policy, plan.admission, blocks, Adaptive::memory_for(blocks));
    let mut dirty = DirtyBlocks::new(load, blocks, 0, plan.flush_seconds);
    let mut counts = Counts::default();
    let mut gone = load.gone().iter().peekable();
    let mut seconds = load.seconds().iter().peekable();
    let mut cleaned = Vec::new();
    for (number, chunk) in load.references().chunks(CHUNK).enumerate() {
        for (at, reference) in chunk.iter().enumerate() {
            let at = number * CHUNK + at;
            while let Some((_, block)) = gone.next_if(|(before, _)| *before <= at) {
                dirty.lose(*block);
                cache.forget(Key(u64::from(*block)));
            }
            while let Some((_, second)) = seconds.next_if(|(from, _)| *from <= at) {
                dirty.pass_time(*second, &mut |block| cleaned.push(block));
            }
            let (block, key) = (reference.block(), Key(u64::from(reference.block())));
            let found = cache.touch(key, &mut Pool { dirty: &dirty });
            if reference.is_write() {
                dirty.write(block, &mut |block| cleaned.push(block));
                if found {
                    cache.wrote(key);
                } else {
                    cache.admit(key, Insertion::OnFlash, &mut Pool { dirty: &dirty });
                }
                counts.begins = counts.begins && !load.begins_request(at);
            } else {
                // A dirty block that the policy refused is in the pool all the same.
                let found = found || dirty.is_dirty(block);
                if !found {
                    cache.admit(key, Insertion::Read, &mut Pool { dirty: &dirty });
                }
                counts.read(load.begins_request(at), found);
            }
            for block in cleaned.drain(..) {
                let key = Key(u64::from(block));
                if cache.contains(key) {
                    cache.release(key);
                } else {
                    cache.admit(key, Insertion::OnFlash, &mut Pool { dirty: &dirty });
                }
            }
        }
        progress(chunk.len() as u64);
    }
    gone.for_each(|(_, block)| dirty.lose(*block));
    counts.point(load, size_blocks, sample, dirty.end())
}

/// What is counted meanwhile.
#[derive(Default)]
struct Counts {
    reads: u64,
    misses: u64,
    requests: u64,
    missed_requests: u64,
    /// The present request is a read without a miss so far.
    begins: bool,
}

impl Counts {
    fn read(&mut self, begins: bool, found: bool) {
        self.reads += 1;
        self.misses += u64::from(!found);
        if begins {
            self.requests += 1;
            self.begins = true;
        }
        if !found && std::mem::take(&mut self.begins) {
            self.missed_requests += 1;
        }
    }

    /// Counts of a sample stand for those of all blocks. It may have more or fewer references than its share, most of
    /// all of the blocks that are used most often, which are hits at any size (SHARDS-adj: Waldspurger, Park, Garthwaite
    /// and Ahmad, FAST 2015).
    fn point(&self, load: &LoadedTrace, size_blocks: u64, sample: u32, destage: crate::ReplayedDestage) -> SizePoint {
        let [reads, writes] = load.referred();
        if sample == 0 {
            return SizePoint {
                size_blocks,
                reads: self.reads,
                read_misses: self.misses,
                read_requests: self.requests,
                missed_requests: self.missed_requests,
                written: destage.written_blocks,
                destaged: destage.destaged_blocks,
            };
        }
        let read_requests = load.requests() - load.write_requests();
        let read_misses = (self.misses << sample).min(reads);
        let missed = u128::from(read_requests) * u128::from(read_misses) / u128::from(reads.max(1));
        SizePoint {
            size_blocks,
            reads,
            read_misses,
            read_requests,
            missed_requests: u64::try_from(missed).unwrap_or(u64::MAX),
            written: writes,
            destaged: (destage.destaged_blocks << sample).min(writes),
        }
    }
}

/// The knee of a curve: the first of these sizes from which on a pool of twice the size or more never saves `share` of
/// the misses. `points` are sizes and misses, the sizes rising; nothing larger than the last one saves anything more.
/// `None` without points.
#[must_use]
#[allow(clippy::cast_precision_loss)] // far below 2^52
pub fn knee(points: &[(u64, u64)], share: f64) -> Option<usize> {
    let last = points.len().checked_sub(1)?;
    let saves = |at: &usize| {
        let (size, misses) = points[*at];
        let double = points.iter().find(|point| point.0 / 2 >= size).unwrap_or(&points[last]);
        misses.saturating_sub(double.1) as f64 >= share * misses.max(1) as f64
    };
    Some((0..last).rev().find(saves).map_or(0, |at| at + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_knee_lies_behind_the_last_doubling_that_saves_enough() {
        let share = 0.1;
        assert_eq!(knee(&[], share), None);
        assert_eq!(knee(&[(4, 70)], share), Some(0));
        assert_eq!(knee(&[(1, 100), (2, 99), (4, 98), (8, 97)], share), Some(0), "no size saves anything");
        assert_eq!(knee(&[(1, 100), (2, 50), (4, 48), (8, 47)], share), Some(1));
        assert_eq!(knee(&[(1, 100), (2, 99), (4, 20), (8, 20)], share), Some(2), "a plateau before a cliff is no knee");
        assert_eq!(knee(&[(2, 100), (3, 95), (4, 60), (6, 58)], share), Some(2), "each size has its double");
        assert_eq!(knee(&[(1, 0), (2, 0)], share), Some(0));
    }
}
