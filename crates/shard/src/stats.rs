//! The counts of a shard.

use std::time::Duration;

use headpond_base::MemberId;
use headpond_door::DoorId;
use headpond_engine::{FlushProgress, Holding, MemberShown, ScrubShown, Stats};

use crate::Histogram;

/// A snapshot of a shard, taken between two turns: all numbers belong together.
#[derive(Clone, Debug, Default)]
pub struct ShardStats {
    /// The engine's counts.
    pub engine: Stats,
    /// The flushes under way, oldest first.
    pub flushes: Vec<FlushProgress>,
    /// The objects with most in the pool, and those with most that the origin lacks.
    pub holdings: Vec<Holding>,
    /// All members that the pool has had.
    pub members: Vec<MemberShown>,
    /// Gauge: dirty blocks that one member has where two should.
    pub exposed_blocks: u64,
    /// How far a scrub is, or how the last one ended.
    pub scrub: Option<ScrubShown>,
    /// How many operations of each disk have failed, of those that had any.
    pub disk_errors: Vec<(MemberId, u64)>,
    /// How long requests took.
    pub latency: Latencies,
    /// The backend of flash operations: `uring` or `psync`.
    pub device: &'static str,
    /// The counts of each served door, in the order in which they came.
    pub doors: Vec<DoorStats>,
    /// Gauge: requests taken in and not yet answered.
    pub requests_under_way: u64,
    /// Gauge: flash operations under way.
    pub flash_under_way: u64,
    /// Gauge: origin operations under way or waiting for a thread.
    pub origin_under_way: u64,
    /// Gauge: under a [`Hold`](crate::Hold), what it waits for: changes that the engine has, or, once it holds the
    /// origin, changes at the origin.
    pub changes_under_way: u64,
    /// How long the origin has left the oldest of them without an answer.
    pub origin_silent: Option<Duration>,
    /// Turns of the loop.
    pub turns: u64,
    /// Requests answered, of any kind.
    pub answered: u64,
}

/// One door of a shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DoorStats {
    /// The door.
    pub door: DoorId,
    /// Gauge: requests taken in through it and not yet answered.
    pub under_way: u64,
    /// Requests that came through it and were answered.
    pub answered: u64,
}

/// How long requests took, from the door's call to the answer, in nanoseconds.
#[derive(Clone, Debug, Default)]
pub struct Latencies {
    /// Reads that the flash, or memory, answered.
    pub read_hit: Histogram,
    /// Reads that an origin read answered.
    pub read_miss: Histogram,
    /// Reads past the cache that an origin read answered: by a rule, or in a sequential run.
    pub read_bypass: Histogram,
    /// Writes.
    pub write: Histogram,
    /// Writes that a rule sent past the cache.
    pub write_bypass: Histogram,
    /// Syncs.
    pub sync: Histogram,
}
