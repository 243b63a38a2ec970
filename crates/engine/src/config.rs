//! What can be set, with its range.

use headpond_base::{CacheMode, Nanos};
use headpond_log::Mutation;
use headpond_policy::{Admission, FlashWriteLimit, Policy, Streams};

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
    /// What is kept when not everything can be.
    pub policy: Policy,
    /// Which reads are let in.
    pub admission: Admission,
    /// What reads may write to flash in a day. Dirty data is never asked about.
    pub flash_write_limit: Option<FlashWriteLimit>,
    /// Sequential runs longer than this many bytes, of one process in one object, pass by the cache.
    pub sequential_cutoff: Option<u64>,
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
            policy: Policy::default(),
            admission: Admission::default(),
            flash_write_limit: None,
            sequential_cutoff: Some(Streams::CUTOFF),
            classes: [ClassLimit::default(); Class::COUNT],
            mutation: None,
        }
    }
}
