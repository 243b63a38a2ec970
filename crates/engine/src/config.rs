//! What can be set, with its range.

use headpond_base::{CacheMode, Nanos};
use headpond_log::Mutation;

use crate::treatment::{Class, ClassLimit};

/// Settings of an engine.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// What happens to writes, and whether reads are served from flash.
    pub mode: CacheMode,
    /// Above this share of the pool that is dirty, in percent (1 to 70), destage runs as fast as
    /// the origin takes it, and writes wait for it a little further up.
    pub dirty_threshold: u8,
    /// No block stays dirty much longer than this while the origin keeps up.
    pub flush_period: Nanos,
    /// While the pool has room, a miss brings this many bytes along: a power of two, at least a
    /// block. An origin read of 512 KiB takes a disk little longer than one of 16 KiB.
    pub fetch_bytes: u32,
    /// Acknowledged writes that nobody synced become durable after at most this.
    pub sync_interval: Nanos,
    /// What may be kept for each class of requests.
    pub classes: [ClassLimit; Class::COUNT],
    /// A planted bug, for tests of the tests.
    pub mutation: Option<Mutation>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            mode: CacheMode::WriteBack,
            dirty_threshold: 50,
            flush_period: Nanos(60 * Nanos::SECOND.0),
            fetch_bytes: 512 << 10,
            sync_interval: Nanos::SECOND,
            classes: [ClassLimit::default(); Class::COUNT],
            mutation: None,
        }
    }
}
