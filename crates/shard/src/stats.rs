//! What a shard knows about itself.

use headpond_engine::{FlushProgress, Stats};

use crate::Histogram;

/// A snapshot of a shard, taken between two turns: all numbers belong together.
#[derive(Clone, Debug, Default)]
pub struct ShardStats {
    /// The engine's.
    pub engine: Stats,
    /// The flushes under way, oldest first.
    pub flushes: Vec<FlushProgress>,
    /// How long requests took.
    pub latency: Latencies,
    /// What carries out flash operations: `uring` or `psync`.
    pub device: &'static str,
    /// Gauge: requests taken from the mailbox and not yet answered.
    pub requests_under_way: u64,
    /// Gauge: flash operations under way.
    pub flash_under_way: u64,
    /// Gauge: origin operations under way or waiting for a thread.
    pub origin_under_way: u64,
    /// Turns of the loop.
    pub turns: u64,
    /// Requests answered, of any kind.
    pub answered: u64,
}

/// How long requests took, from the front door's call to the answer, in nanoseconds.
#[derive(Clone, Debug, Default)]
pub struct Latencies {
    /// Reads that the flash, or memory, answered.
    pub read_hit: Histogram,
    /// Reads that an origin read answered.
    pub read_miss: Histogram,
    /// Writes.
    pub write: Histogram,
    /// Syncs.
    pub sync: Histogram,
}
