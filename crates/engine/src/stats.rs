//! What the engine counts.

use headpond_base::Class;
use headpond_policy::Regrets;
use serde::{Deserialize, Serialize};

/// Counters from the engine's start, and gauges of now. Blocks are of 4 KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// Requests of each kind that were answered.
    pub reads: u64,
    /// Writes answered.
    pub writes: u64,
    /// Syncs answered.
    pub syncs: u64,
    /// Bytes that reads were answered with.
    pub read_bytes: u64,
    /// Bytes that writes brought.
    pub write_bytes: u64,
    /// Blocks served from flash or from what is on its way there.
    pub read_hits_blocks: u64,
    /// Blocks of those that are in memory only, as not yet worth a write to flash.
    #[serde(default)]
    pub memory_hits_blocks: u64,
    /// Blocks of those that came from the origin all the same, because it answers sooner than flash.
    #[serde(default)]
    pub origin_hits_blocks: u64,
    /// Blocks that had to come from the origin.
    pub read_miss_blocks: u64,
    /// Reads and writes that passed by the cache, by a rule or as part of a sequential run: the reads let
    /// nothing in, the writes went to the origin alone.
    pub bypassed_reads: u64,
    /// See `bypassed_reads`.
    pub bypassed_writes: u64,
    /// Bytes of those.
    pub bypassed_read_bytes: u64,
    /// Bytes of those.
    pub bypassed_write_bytes: u64,
    /// Rows of segments that got a parity.
    #[serde(default)]
    pub rows_made: u64,
    /// Reads whose bytes came out of such a row, and not from where they lie.
    #[serde(default)]
    pub row_reads: u64,
    /// Clean blocks written to flash: what reads brought in.
    pub admitted_blocks: u64,
    /// Those of them that nobody had asked for: neighbours of a miss.
    pub neighbour_blocks: u64,
    /// Neighbours of a miss that nobody had asked for, and that waited in memory until a request does.
    #[serde(default)]
    pub waiting_neighbour_blocks: u64,
    /// Blocks that were not worth keeping, neighbours or given up, and were asked for before they went: each a miss
    /// less.
    pub lingering_hit_blocks: u64,
    /// Clean blocks dropped for room.
    pub evicted_blocks: u64,
    /// Missed blocks that the policy had evicted, by how many others it evicted since, in eighths of what it keeps.
    /// Estimated from a sample. See [`Regrets`], and [`Stats::saved_by`] for what to make of them.
    #[serde(default)]
    pub regretted_blocks: [u64; Regrets::PARTS],
    /// Gauge: blocks that the policy evicted since it keeps as many as now. They may still be served.
    #[serde(default)]
    pub given_up_blocks: u64,
    /// Bytes of data appended to the log: written by applications, let in, and moved.
    #[serde(default)]
    pub record_bytes: u64,
    /// Bytes that these took on flash, without heads and footers.
    #[serde(default)]
    pub payload_bytes: u64,
    /// Blocks copied inside the pool to free a segment.
    pub moved_blocks: u64,
    /// Flash reads, writes and syncs asked for.
    pub flash_reads: u64,
    /// See `flash_reads`.
    pub flash_writes: u64,
    /// See `flash_reads`.
    pub flash_syncs: u64,
    /// Bytes of those.
    pub flash_read_bytes: u64,
    /// Bytes of those.
    pub flash_write_bytes: u64,
    /// Origin reads, writes and syncs asked for.
    pub origin_reads: u64,
    /// See `origin_reads`.
    pub origin_writes: u64,
    /// See `origin_reads`.
    pub origin_syncs: u64,
    /// Bytes of those.
    pub origin_read_bytes: u64,
    /// Bytes of those.
    pub origin_write_bytes: u64,
    /// Origin writes that went over gaps, with what the origin has there already.
    pub joined_writes: u64,
    /// Origin reads of what lies in gaps.
    pub gap_reads: u64,
    /// Blocks made clean by destage.
    pub destaged_blocks: u64,
    /// Flash reads that failed or did not match, and were answered from the origin or a second try.
    pub masked_flash_errors: u64,
    /// Dirty blocks that could not be read back: an error was told.
    pub lost_blocks: u64,
    /// Origin operations that failed.
    pub origin_errors: u64,
    /// Checkpoints completed.
    pub checkpoints: u64,
    /// Segments emptied.
    pub segments_reclaimed: u64,
    /// Writes that had to wait for room or for destage.
    pub stalls: u64,
    /// Gauge: blocks that the map points to, and ranges of zeros that the origin has not got.
    pub cached_blocks: u64,
    /// Gauge: bytes of flash that those take. Less than 4 KiB for each where records are packed.
    #[serde(default)]
    pub stored_bytes: u64,
    /// Gauge: blocks of those that are in packed records.
    #[serde(default)]
    pub packed_blocks: u64,
    /// Gauge: dirty ones of those, and these ranges, each as one block.
    pub dirty_blocks: u64,
    /// Gauge: blocks that the pool can hold.
    pub pool_blocks: u64,
    /// Dirty blocks beyond which writes wait for destage.
    pub dirty_blocks_max: u64,
    /// Gauge: segments that can be filled at once.
    pub free_segments: u64,
    /// Gauge: all segments.
    pub segments: u64,
    /// Gauge: objects known.
    pub objects: u64,
    /// Gauge: bytes of memory that the map takes.
    pub map_bytes: u64,
    /// Gauge: clean blocks that the policy keeps. What else is clean is served until its place is needed.
    pub kept_blocks: u64,
    /// Gauge: clean blocks that the policy keeps at most.
    #[serde(default)]
    pub kept_blocks_max: u64,
    /// Gauge: blocks of each class, dirty ones included: what a rule holds against its quota.
    #[serde(skip)]
    pub class_blocks: [u64; Class::COUNT],
    /// Gauge: bytes of memory that the policy takes at its capacity.
    pub policy_bytes: u64,
    /// Gauge: clean blocks in memory only.
    #[serde(default)]
    pub memory_blocks: u64,
    /// Gauge: dirty blocks that one member has, where two should.
    #[serde(default)]
    pub exposed_blocks: u64,
    /// Gauge: dirty blocks that still move, because slots are to be emptied: of a device that goes, or becomes smaller.
    #[serde(default)]
    pub leaving_blocks: u64,
    /// Gauge: objects with something for the origin, their size or time included.
    pub dirty_objects: u64,
    /// Gauge: objects whose destage failed last time.
    pub failing_objects: u64,
    /// Gauge: age of the oldest data that only the pool has, at most, in nanoseconds; of data from
    /// before the start, since that.
    pub oldest_dirty_age_nanos: u64,
    /// Gauge: blocks that the oldest flush under way has still to destage, and had at its start.
    pub flush_left_blocks: u64,
    /// See `flush_left_blocks`.
    pub flush_total_blocks: u64,
    /// Gauge: 1 after a flash write or sync failed: the pool takes nothing more.
    pub flash_failed: u64,
    /// Gauge: the number of the log's last entry.
    #[serde(default)]
    pub last_entry: u64,
    /// Gauge: up to this entry the log is durable on flash.
    #[serde(default)]
    pub durable_entry: u64,
    /// Gauge: the last host batch of the log that is durable; 0 before the first checkpoint of this use is.
    #[serde(default)]
    pub durable_host_batch: u64,
}

impl Stats {
    /// Missed blocks that a pool larger by so many eighths would have had, up to 16. An estimate: see [`Regrets`].
    ///
    /// # Panics
    /// With more than 16.
    #[must_use]
    pub fn saved_by(&self, eighths: usize) -> u64 {
        Regrets::saved(&self.regretted_blocks, eighths)
    }
}
