//! The pace of destage: how many blocks a second go to the origin, and when the next may.
//!
//! Each reason to destage asks for a rate of its own, and the highest counts; `destage-rate` bounds it.
//!
//! - `flush-period`, less a margin: all that was dirty when this way through began, in half of that. So a way takes
//!   about that time at most although blocks become dirty meanwhile. The rate does not sink while a way lasts: what is
//!   left of it would else be written slower and slower, and never be done. A way that took longer than nine tenths of
//!   it, as with blocks that are all changed alike, makes the next ones faster by as much. With the round and the sync
//!   that come on top, none stays dirty for longer than the period, as long as the origin takes what that needs.
//! - `dirty-threshold`: near it, as much as becomes dirty. Below it less, in proportion, so that the share
//!   settles instead of swinging about the threshold; above it more; a tenth above it, all that the origin takes.
//! - `idle-flush`: all that the origin takes, while nobody else wants anything of it and nothing becomes dirty. A
//!   block that is written again after that goes again.
//!
//! Misses come first, but only as long as that rate is kept: what was granted and did not go, because the origin
//! was busy with them, raises the number of writes that destage may have under way beside them, a few in each second,
//! until it goes. So its share of the origin is as large as the rate needs, and not larger.
//!
//! Invariants: what is granted in any span is at most the rates of that span and a second more (two where the rate is
//! low); with no reason left, nothing is. Arithmetic that is the same on every machine.

use headpond_base::{BLOCK_U64, Nanos};

/// How often the engine wants to be told the time while it has something to pace.
pub(crate) const TICK: Nanos = Nanos(50 * Nanos::MILLISECOND.0);

/// Grants are saved for at most so many seconds: what a slow sync held up is made up for.
const BURST: f64 = 1.0;
/// So many seconds' worth at most is owed for what went at once: at a low rate a large write is paid for by waiting.
const DEBT: f64 = 4.0;
/// Grants that have lain for so many seconds are late: the origin does not give destage what its rate needs.
const LATE: f64 = 0.25;
/// By so many writes a second the number beside misses grows while grants are late, and sinks while they are not.
const PRESS: f64 = 4.0;
const RELAX: f64 = 1.0;
/// A rate of fewer blocks a second goes out once a second, so that not each needs a sync of its own.
const SLOW: f64 = 256.0;
/// Writes beside misses at most, but for one: each may be of 1 MiB. As many as there are misses would be less than half
/// of the origin, as the end of a round and its sync wait in the queue, too.
const BESIDE_MAX: f64 = 63.0;
/// Of a period so much is left for a round and its sync, which come on top of a way: at most that part of it.
const MARGIN: Nanos = Nanos(3 * Nanos::SECOND.0);
const MARGIN_MOST: f64 = 0.25;
/// A way is to take this part of what is planned with.
const WAY: f64 = 0.9;
/// And is at most so many times as fast for it.
const HASTE_MAX: f64 = 4.0;
/// Over this many seconds the rate at which blocks become dirty is averaged.
const INFLOW_SECONDS: f64 = 5.0;
/// Destage for the threshold begins at this share of it.
const THRESHOLD_BEGINS: f64 = 0.8;
/// At this share of it there is no holding back any more.
const THRESHOLD_FULL: f64 = 1.1;

/// What the rate depends on, as it is now.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Situation {
    /// Blocks that are dirty.
    pub(super) dirty: u64,
    /// Blocks that became dirty since the start.
    pub(super) dirtied: u64,
    /// `None`: blocks may stay dirty for ever.
    pub(super) period: Option<Nanos>,
    /// Blocks that may be dirty; `None`: as many as will.
    pub(super) threshold: Option<u64>,
    /// Bytes a second at most.
    pub(super) limit: Option<u64>,
    /// All that the origin takes, but for the limit: it is idle, or a write waits for room.
    pub(super) drain: bool,
    /// All that the origin takes: the pool cannot go on otherwise.
    pub(super) emergency: bool,
}

/// Grants blocks.
pub(super) struct Governor {
    last: Nanos,
    dirtied: u64,
    /// When a block last became dirty, as far as ticks tell.
    dirtied_at: Nanos,
    /// Blocks a second that become dirty, averaged.
    inflow: f64,
    /// Blocks that were dirty when this way through all of them began.
    way: u64,
    way_began: Nanos,
    /// So many times as fast as would be right if nothing became dirty meanwhile and all that is granted went.
    haste: f64,
    /// Blocks a second; infinite if nothing holds it back.
    rate: f64,
    /// Blocks that may go now. Below zero: more went than was granted.
    saved: f64,
    /// Writes that may be under way beside misses, for the rate to be kept.
    pressed: f64,
}

impl Governor {
    pub(super) const fn new(now: Nanos) -> Self {
        Self {
            last: now,
            dirtied: 0,
            dirtied_at: now,
            inflow: 0.0,
            way: 0,
            way_began: now,
            haste: 1.0,
            rate: 0.0,
            saved: 0.0,
            pressed: 0.0,
        }
    }

    /// Tells how things stand.
    pub(super) fn tick(&mut self, now: Nanos, situation: Situation) {
        if situation.dirtied != self.dirtied {
            self.dirtied_at = now;
        }
        let seconds = now.since(self.last).0 as f64 / 1e9;
        self.last = now;
        if seconds > 0.0 {
            let became = situation.dirtied.saturating_sub(self.dirtied) as f64;
            let weight = seconds / (INFLOW_SECONDS + seconds);
            self.inflow += (became / seconds - self.inflow) * weight;
            self.dirtied = situation.dirtied;
        }
        if situation.dirty == 0 {
            self.way = 0;
        }
        self.rate = self.wanted(situation);
        if self.rate.is_finite() {
            // At a low rate a job begins with a second's worth: that is not late yet.
            let (begins, most) =
                if self.rate < SLOW { (1.0, 2.0 * self.rate.ceil() + 1.0) } else { (0.0, self.rate * BURST) };
            self.saved = (self.saved + self.rate * seconds).min(most).max(-DEBT * self.rate);
            let late = self.saved > self.rate * (begins + LATE) + 1.0;
            let change = if late { PRESS } else { -RELAX };
            self.pressed = (self.pressed + change * seconds).clamp(0.0, BESIDE_MAX);
        }
    }

    /// For how long nothing has become dirty.
    pub(super) fn quiet_for(&self, now: Nanos) -> Nanos {
        now.since(self.dirtied_at)
    }

    /// Writes that may be under way beside misses.
    pub(super) fn beside_misses(&self) -> usize {
        1 + self.pressed as usize
    }

    fn wanted(&self, situation: Situation) -> f64 {
        if situation.emergency {
            return f64::INFINITY;
        }
        let dirty = situation.dirty as f64;
        let for_period = situation.period.map_or(0.0, |period| {
            let half = (planned(period) / 2e9).max(1e-9);
            self.haste * dirty.max(self.way as f64) / half
        });
        let share = situation.threshold.map_or(0.0, |threshold| dirty / (threshold.max(1) as f64));
        let for_threshold = if share >= THRESHOLD_FULL {
            f64::INFINITY
        } else {
            self.inflow * ((share - THRESHOLD_BEGINS) / (1.0 - THRESHOLD_BEGINS)).max(0.0)
        };
        let drain = if situation.drain { f64::INFINITY } else { 0.0 };
        let limit = situation.limit.map_or(f64::INFINITY, |bytes| bytes as f64 / BLOCK_U64 as f64);
        for_period.max(for_threshold).max(drain).min(limit)
    }

    /// A way through all that is dirty begins now, and the one before is over.
    pub(super) fn way_begins(&mut self, now: Nanos, dirty: u64, period: Option<Nanos>) {
        let took = now.since(self.way_began).0 as f64;
        let slower = period.map_or(0.0, |period| took / (planned(period) * WAY).max(1.0));
        self.haste = if self.way > 0 { (self.haste * slower).clamp(1.0, HASTE_MAX) } else { 1.0 };
        (self.way, self.way_began) = (dirty, now);
    }

    /// Blocks a second, as of now.
    pub(super) const fn rate(&self) -> f64 {
        self.rate
    }

    /// Whether something may go now.
    pub(super) fn grants(&self) -> bool {
        !self.rate.is_finite() || self.saved >= 1.0
    }

    /// Whether a job may begin, when so many blocks are dirty: at a low rate, once a second's worth is saved.
    pub(super) fn grants_a_job(&self, dirty: u64) -> bool {
        let enough = if self.rate < SLOW { self.rate.ceil().min(dirty as f64) } else { 1.0 };
        !self.rate.is_finite() || self.rate > 0.0 && self.saved >= enough.max(1.0)
    }

    /// Blocks went.
    pub(super) fn spend(&mut self, blocks: u64) {
        if self.rate.is_finite() {
            self.saved -= blocks as f64;
        }
    }
}

/// What a way is planned with, in nanoseconds.
fn planned(period: Nanos) -> f64 {
    let period = period.0 as f64;
    period - (MARGIN.0 as f64).min(period * MARGIN_MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = Nanos::SECOND.0;
    const PERIOD: Situation = Situation {
        dirty: 0,
        dirtied: 0,
        period: Some(Nanos(60 * SECOND)),
        threshold: None,
        limit: None,
        drain: false,
        emergency: false,
    };

    /// Blocks granted in each second, while so many become dirty in each tick.
    fn run(mut situation: Situation, seconds: usize, inflow: u64) -> (Vec<u64>, Situation) {
        let mut governor = Governor::new(Nanos(0));
        governor.way_begins(Nanos(0), situation.dirty, situation.period);
        let mut granted = vec![0; seconds];
        for tick in 1..=seconds as u64 * 20 {
            situation.dirty += inflow;
            situation.dirtied += inflow;
            governor.tick(Nanos(tick * TICK.0), situation);
            while governor.grants() && situation.dirty > 0 {
                governor.spend(1);
                situation.dirty -= 1;
                granted[(tick as usize - 1) / 20] += 1;
            }
        }
        (granted, situation)
    }

    #[test]
    fn what_is_dirty_goes_in_half_of_the_planned_time_in_equal_steps_and_is_done_then() {
        let (granted, left) = run(Situation { dirty: 3000, ..PERIOD }, 31, 0);
        assert!(granted[..28].iter().all(|blocks| (102..=108).contains(blocks)), "{granted:?}");
        assert_eq!(left.dirty, 0);
    }

    #[test]
    fn ways_through_blocks_that_are_all_changed_alike_come_to_take_less_than_a_period() {
        // An elevator over so many blocks, of which the same number becomes dirty in each tick, wherever it is; and
        // what is granted in each fifth second is lost, as to a sync.
        let blocks = 60_000_u64;
        let mut dirty = std::collections::BTreeSet::new();
        let (mut governor, mut at, mut began, mut ways) = (Governor::new(Nanos(0)), 0, Nanos(0), Vec::new());
        for tick in 1..=20 * 600_u64 {
            let now = Nanos(tick * TICK.0);
            dirty.extend((0..10).map(|one| (tick * 10 + one).wrapping_mul(0x9E37_79B9_7F4A_7C15) % blocks));
            governor.tick(now, Situation { dirty: dirty.len() as u64, dirtied: tick * 10, ..PERIOD });
            while governor.grants() {
                let Some(next) = dirty.range(at..).next().copied() else {
                    ways.push(now.since(began).0 / SECOND);
                    (at, began) = (0, now);
                    governor.way_begins(now, dirty.len() as u64, PERIOD.period);
                    break;
                };
                governor.spend(1);
                if tick / 20 % 5 > 0 {
                    dirty.remove(&next);
                    at = next + 1;
                }
            }
        }
        assert!(ways[4..].iter().all(|seconds| (36..55).contains(seconds)), "{ways:?}");
    }

    #[test]
    fn the_share_settles_at_the_threshold_with_what_goes_as_steady_as_what_comes() {
        let situation = Situation { period: None, threshold: Some(10_000), ..PERIOD };
        let (granted, left) = run(situation, 120, 20);
        assert!((9_000..11_000).contains(&left.dirty), "{}", left.dirty);
        assert!(granted[60..].iter().all(|blocks| (360..=440).contains(blocks)), "{granted:?}");
        assert!(granted[..15].iter().all(|blocks| *blocks == 0), "below it there is no reason");
    }

    #[test]
    fn with_no_reason_left_nothing_goes() {
        let none = Situation { period: None, dirty: 5000, ..PERIOD };
        assert_eq!(run(none, 60, 10).0.iter().sum::<u64>(), 0);
    }

    #[test]
    fn the_limit_holds_for_all_but_an_emergency() {
        let limited = Situation { drain: true, dirty: 100_000, limit: Some(50 * BLOCK_U64), ..PERIOD };
        let (granted, _) = run(limited, 20, 0);
        assert!(granted.iter().all(|blocks| (48..=52).contains(blocks)), "{granted:?}");
        let emergency = Situation { emergency: true, ..limited };
        assert_eq!(run(emergency, 1, 0).0[0], 100_000);
    }
}
