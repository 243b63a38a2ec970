//! What can be set, with its range.

use headpond_base::{CacheMode, Class, Compression, CopyLoss, Nanos, Redundancy};
use headpond_format::MEMBERS_MAX;
use headpond_log::{FillPolicy, Mutation};
use headpond_policy::{Admission, ClassLimit, FlashWriteLimit, Policy, SequentialRuns};

use crate::modes::{ModeBehaviour, behaviour};
use crate::treatment::Treatment;

/// Settings of an engine.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// What happens to writes, and whether reads are served from flash.
    pub mode: CacheMode,
    /// Destage keeps the share of the pool that is dirty near this, in percent (1 to 70); a tenth above
    /// it runs as fast as the origin takes it, and writes wait for it a little further up. 0: off.
    pub dirty_threshold: u8,
    /// No block stays dirty much longer than this while the origin keeps up. [`Config::OFF`]: for ever.
    pub flush_period: Nanos,
    /// Once nobody has waited for the origin for so long, it gets all that is dirty, as fast as it takes it.
    pub idle_flush: Option<Nanos>,
    /// Destage writes at most so many bytes a second, but for a flush or where the pool cannot go on otherwise.
    pub destage_rate: Option<u64>,
    /// No destage begins, not even for a flush or for room: the origin stands still.
    pub destage_held: bool,
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
    /// While flash is the bottleneck and the origin answers sooner, up to this share of clean hits goes there, in
    /// percent (1 to 90). 0: none.
    pub hits_to_origin: u8,
    /// What may be kept for each class of requests.
    pub classes: [ClassLimit; Class::COUNT],
    /// How records are packed from now on; what is on flash stays as it is until it is written anew.
    pub compression: Compression,
    /// Records are packed while so much of the pool is in use, in percent, or more; 0: always. Below that packing would
    /// cost time and gain no room.
    pub compression_from: u8,
    /// How many members have each dirty block, in a pool of several.
    pub redundancy: Redundancy,
    /// What a sync waits for while the copy on another host is lost.
    pub copy_loss: CopyLoss,
    /// How many segments are filled with host writes at once, 1 or more. Read at the start only.
    pub host_segments: usize,
    /// Blocks of host writes that go to flash before anybody asks for a sync, while the flash has little to do. Read at
    /// the start only.
    pub early_blocks: u32,
    /// How many members have a number of their own, before those of members that are gone are given again. Fewer than
    /// [`MEMBERS_MAX`] in tests. Read at the start only.
    pub numbers: usize,
    /// Each of several members is asked so often whether it is still there. `None`: never.
    pub probe_period: Option<Nanos>,
    /// A planted bug, for tests of the tests.
    pub mutation: Option<Mutation>,
}

impl Config {
    /// A period that never ends.
    pub const OFF: Nanos = Nanos(u64::MAX);
}

impl Config {
    /// For how long a block may stay dirty; `None`: for ever.
    #[must_use]
    pub fn period(&self) -> Option<Nanos> {
        Some(self.flush_period).filter(|period| *period != Self::OFF)
    }

    /// What the cache mode does with requests.
    pub(crate) const fn behaviour(&self) -> ModeBehaviour {
        behaviour(self.mode)
    }

    /// The same, as far as a request's treatment allows it.
    pub(crate) const fn behaviour_for(&self, how: Treatment) -> ModeBehaviour {
        how.handling.limit(self.behaviour())
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            mode: CacheMode::WriteBack,
            dirty_threshold: 50,
            flush_period: Nanos(300 * Nanos::SECOND.0),
            idle_flush: Some(Nanos(10 * Nanos::SECOND.0)),
            destage_rate: None,
            destage_held: false,
            fetch_bytes: 512 << 10,
            sync_interval: Nanos::SECOND,
            policy: Policy::default(),
            admission: Admission::default(),
            flash_write_limit: None,
            sequential_cutoff: Some(SequentialRuns::CUTOFF),
            hits_to_origin: 0,
            classes: [ClassLimit::default(); Class::COUNT],
            compression: Compression::Off,
            compression_from: 50,
            redundancy: Redundancy::default(),
            copy_loss: CopyLoss::default(),
            probe_period: None,
            numbers: MEMBERS_MAX,
            host_segments: 1,
            early_blocks: FillPolicy::EARLY_BLOCKS,
            mutation: None,
        }
    }
}
