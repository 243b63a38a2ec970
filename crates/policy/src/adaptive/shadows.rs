//! Small copies of the policy, one for each setting, on a sample of the keys. They show which setting would do best.
//!
//! A key's hash decides whether it is in the sample, so a shadow sees every use of a key or none. A shadow is smaller
//! than the cache by the same factor (a miniature simulation: Waldspurger and others, ATC 2017). The cost of a setting
//! is its misses, and a little for its writes to flash.
//!
//! Invariants: the setting changes only
//! - when another did better by more than chance. Both saw the same keys, so only the references on which they differ
//!   count. A difference below [`SURE`] times the root of their number is noise;
//! - and when the gain covers what the change itself may cost ([`CHANGE`]).

use super::core::AdaptiveCore;
use super::tuning::{TUNINGS, Tuning};
use crate::{Host, Insertion, Key};

/// The cache's size in shadow sizes, within the bounds below. One in eight keys for each of six shadows is most of the
/// work that the cache itself has.
const SAMPLE: usize = 8;
/// A shadow smaller than this is mostly noise. To one of 256 blocks, a loop a little larger than the cache can look as
/// if it fitted.
const BLOCKS_MIN: usize = 512;
/// A larger shadow says no more. It would take 85 KiB for each setting.
const BLOCKS_MAX: usize = 4096;

/// The costs of a miss and of a flash write: a tenth of a miss. Mere recency writes on every miss, so it must save one
/// miss in eleven to be chosen.
const MISS: u64 = 1024;
const FILL: u64 = 102;

/// Sampled references between two looks at the scores, in shadow sizes: a quarter.
const LOOK: usize = 4;
/// At each look the past fades by one part in this many. Half of it is gone after 67 looks: 17 times as many sampled
/// references as a shadow has blocks.
const FADE: u64 = 96;
/// How many standard deviations are more than chance. Large, because blocks of one scan differ together.
const SURE: u64 = 4;
/// What a change must already have saved, had it been made before: the shadow's blocks, divided by this, in misses. A
/// shadow always holds what its setting keeps; the cache must load it first. If a load has short phases and each suits
/// another setting, every change would come too late.
const CHANGE: u64 = 16;

struct Shadow {
    core: AdaptiveCore,
    /// Fading sum of the shadow's costs.
    cost: u64,
    /// Fading sum of the references with another outcome than in the setting in use, times [`MISS`]. It goes on when
    /// the setting in use changes, which errs on the side of no change.
    differed: u64,
    missed: bool,
}

/// The shadows, and which setting is in use.
pub(super) struct Shadows {
    shadows: Vec<Shadow>,
    used: usize,
    /// Keys whose sampling hash is below this are in the sample.
    below: u64,
    seen: usize,
    look: usize,
    /// Misses that a change must have saved.
    change: u64,
}

/// A host that counts flash writes, and holds nothing.
struct Count(u64);

impl Host for Count {
    fn evictable(&mut self, _: Key) -> bool {
        true
    }

    fn fill(&mut self, _: Key) -> bool {
        self.0 += 1;
        true
    }

    fn evicted(&mut self, _: Key) {}
}

impl Shadows {
    /// Shadows for a cache of `capacity` blocks, `memory` of them only in memory.
    pub(super) fn new(capacity: usize, memory: usize) -> Self {
        let blocks = (capacity / SAMPLE).clamp(BLOCKS_MIN, BLOCKS_MAX).min(capacity);
        let memory = (memory * blocks).div_ceil(capacity);
        let shadow =
            |tuning| Shadow { core: AdaptiveCore::new(blocks, memory, tuning), cost: 0, differed: 0, missed: false };
        let below = u128::from(u64::MAX) * blocks as u128 / capacity as u128;
        Self {
            shadows: TUNINGS.map(shadow).into_iter().collect(),
            used: 0,
            below: u64::try_from(below).unwrap_or(u64::MAX),
            seen: 0,
            look: (blocks / LOOK).max(1),
            change: blocks as u64 / CHANGE,
        }
    }

    pub(super) fn memory(&self) -> usize {
        self.shadows.iter().map(|shadow| shadow.core.memory()).sum()
    }

    /// Counts a use of a key. Returns the setting to change to, if it is time.
    pub(super) fn touch(&mut self, key: Key) -> Option<Tuning> {
        // Other bits than the shadows' own tables use: those tables would then use only a part of themselves.
        if key.hash().rotate_left(32).wrapping_mul(0x9e37_79b9_7f4a_7c15) > self.below {
            return None;
        }
        for shadow in &mut self.shadows {
            shadow.missed = !shadow.core.touch(key);
            if shadow.missed {
                let mut count = Count(0);
                shadow.core.admit(key, Insertion::Read, &mut count);
                shadow.cost += MISS + FILL * count.0;
            }
        }
        let missed = self.shadows[self.used].missed;
        for shadow in &mut self.shadows {
            shadow.differed += u64::from(shadow.missed != missed) * MISS;
        }
        self.seen += 1;
        (self.seen.is_multiple_of(self.look)).then(|| self.choose()).flatten()
    }

    fn choose(&mut self) -> Option<Tuning> {
        let used = self.shadows[self.used].cost;
        let best = (0..self.shadows.len()).min_by_key(|at| self.shadows[*at].cost)?;
        let gain = (used - self.shadows[best].cost) / MISS;
        let sure = gain * gain > SURE * SURE * (self.shadows[best].differed / MISS) && gain >= self.change;
        for shadow in &mut self.shadows {
            shadow.cost -= shadow.cost / FADE;
            shadow.differed -= shadow.differed / FADE;
        }
        if !sure {
            return None;
        }
        self.used = best;
        Some(TUNINGS[best])
    }
}
