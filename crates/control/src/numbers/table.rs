//! Every number of a mount, one entry each: its name, its meaning, and its source. `headpond stats`, the metrics over
//! HTTP and docs/metrics.md all come from this table.
//!
//! Names follow Prometheus: base units (bytes, seconds), and counters end in `_total`. A released name keeps its
//! meaning. Counters start with the daemon.

use headpond_base::BLOCK_U64;
use headpond_engine::{FlushProgress, MemberShown, Stats};
use headpond_format::MemberState;
use headpond_shard::ShardStats;

use super::Snapshot;

/// Whether a number only grows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MetricKind {
    /// Grows from 0, from the daemon's start.
    Counter,
    /// The present value.
    Gauge,
}

/// One number.
pub struct Metric {
    /// Its name, without the prefix `headpond_` of Prometheus.
    pub name: &'static str,
    /// Counter or gauge.
    pub kind: MetricKind,
    /// Its meaning.
    pub help: &'static str,
    pub(super) value: fn(&Snapshot) -> f64,
}

/// An entry for a number of the engine's.
macro_rules! counted {
    ($kind:ident, $name:literal, $field:ident, $help:literal) => {
        Metric { name: $name, kind: MetricKind::$kind, help: $help, value: |now| now.shard.engine.$field as f64 }
    };
}

/// An entry for a number of the engine's in blocks, shown in bytes.
macro_rules! blocks {
    ($kind:ident, $name:literal, $field:ident, $help:literal) => {
        Metric { name: $name, kind: MetricKind::$kind, help: $help, value: |now| bytes(now.shard.engine.$field) }
    };
}

fn bytes(blocks: u64) -> f64 {
    (blocks * BLOCK_U64) as f64
}

/// Dirty blocks that one device has where two should. A pool of which one device is left has nobody for a second copy.
pub(crate) fn exposed_blocks(shard: &ShardStats) -> u64 {
    let takes = |member: &&MemberShown| member.works && member.state == MemberState::InUse;
    if shard.members.iter().filter(takes).count() < 2 { 0 } else { shard.exposed_blocks }
}

const fn clean_blocks(engine: &Stats) -> u64 {
    engine.cached_blocks.saturating_sub(engine.dirty_blocks)
}

/// The seconds that a flush still takes: at its own pace so far, or else at that of destage.
pub(crate) fn eta_seconds(flush: &FlushProgress, destage_rate: f64) -> Option<f64> {
    let done = bytes(flush.total_blocks.saturating_sub(flush.left_blocks));
    let running = flush.running.0 as f64 / 1e9;
    let rate = if done > 0.0 && running > 0.0 { done / running } else { destage_rate };
    (rate > 0.0).then(|| bytes(flush.left_blocks) / rate)
}

/// All numbers, in the order of the outputs.
pub const METRICS: &[Metric] = &[
    // What applications ask for.
    counted!(Counter, "reads_total", reads, "Reads answered for applications"),
    counted!(Counter, "writes_total", writes, "Writes answered for applications"),
    counted!(Counter, "syncs_total", syncs, "Syncs answered for applications"),
    counted!(Counter, "read_bytes_total", read_bytes, "Bytes that applications read"),
    counted!(Counter, "write_bytes_total", write_bytes, "Bytes that applications wrote"),
    blocks!(Counter, "read_hit_bytes_total", read_hits_blocks, "Bytes read from flash or memory, in whole blocks"),
    blocks!(
        Counter,
        "memory_hit_bytes_total",
        memory_hits_blocks,
        "Hit bytes that came from the memory window, where new blocks wait for admission"
    ),
    blocks!(
        Counter,
        "origin_hit_bytes_total",
        origin_hits_blocks,
        "Hit bytes that headpond read from the origin instead of flash (hits-to-origin)"
    ),
    blocks!(
        Counter,
        "read_miss_bytes_total",
        read_miss_blocks,
        "Bytes of misses, read from the origin, in whole blocks"
    ),
    counted!(
        Counter,
        "bypassed_reads_total",
        bypassed_reads,
        "Reads that bypassed the pool, by a rule or as part of a sequential run"
    ),
    counted!(
        Counter,
        "bypassed_writes_total",
        bypassed_writes,
        "Writes that bypassed the pool, by a rule or as part of a sequential run"
    ),
    counted!(Counter, "bypassed_read_bytes_total", bypassed_read_bytes, "Bytes of reads that bypassed the pool"),
    counted!(Counter, "bypassed_write_bytes_total", bypassed_write_bytes, "Bytes of writes that bypassed the pool"),
    counted!(Counter, "stalls_total", stalls, "Writes that waited for room or for destage"),
    Metric {
        name: "requests_under_way",
        kind: MetricKind::Gauge,
        help: "Requests of applications under way",
        value: |now| now.shard.requests_under_way as f64,
    },
    // The origin.
    counted!(Counter, "origin_reads_total", origin_reads, "Reads at the origin"),
    counted!(Counter, "origin_writes_total", origin_writes, "Writes at the origin"),
    counted!(Counter, "origin_syncs_total", origin_syncs, "Syncs of the origin's files"),
    counted!(Counter, "origin_read_bytes_total", origin_read_bytes, "Bytes read at the origin"),
    counted!(Counter, "origin_write_bytes_total", origin_write_bytes, "Bytes written at the origin"),
    counted!(Counter, "origin_errors_total", origin_errors, "Failed operations of the origin"),
    Metric {
        name: "origin_operations_under_way",
        kind: MetricKind::Gauge,
        help: "Operations of the origin under way or queued",
        value: |now| now.shard.origin_under_way as f64,
    },
    Metric {
        name: "origin_silent_seconds",
        kind: MetricKind::Gauge,
        help: "Seconds for which the origin has left a request without an answer; 0 below 3",
        value: |now| now.origin_silent_seconds as f64,
    },
    Metric {
        name: "claim_lost",
        kind: MetricKind::Gauge,
        help: "1 once another headpond has taken the origin over: this mount changes it no more",
        value: |now| f64::from(u8::from(now.claim_lost)),
    },
    Metric {
        name: "lease_waiting",
        kind: MetricKind::Gauge,
        help: "1 while the registry has not renewed the lease: the mount stands still, and programs wait",
        value: |now| f64::from(u8::from(now.lease_waiting)),
    },
    // Flash.
    counted!(Counter, "flash_reads_total", flash_reads, "Reads from flash"),
    counted!(Counter, "flash_writes_total", flash_writes, "Writes to flash"),
    counted!(Counter, "flash_syncs_total", flash_syncs, "Syncs of the flash"),
    counted!(Counter, "flash_read_bytes_total", flash_read_bytes, "Bytes read from flash"),
    counted!(Counter, "flash_write_bytes_total", flash_write_bytes, "Bytes written to flash"),
    counted!(
        Counter,
        "flash_errors_masked_total",
        masked_flash_errors,
        "Flash reads that failed or did not match their checksum, while the origin had the data"
    ),
    blocks!(
        Counter,
        "lost_bytes_total",
        lost_blocks,
        "Dirty bytes that flash could not give to a read, a write of a part of them, or destage; each try counts"
    ),
    counted!(
        Gauge,
        "flash_failed",
        flash_failed,
        "1 after a failed write or sync of the flash: the pool caches nothing more"
    ),
    Metric {
        name: "lost_devices",
        kind: MetricKind::Gauge,
        help: "Devices that failed, or were missing at the start: the pool goes on without them",
        value: |now| now.lost_devices as f64,
    },
    Metric {
        name: "exposed_bytes",
        kind: MetricKind::Gauge,
        help: "Dirty bytes that one device of the pool has where two should (redundancy=mirror), or whose row lost a device (parity)",
        value: |now| bytes(exposed_blocks(&now.shard)),
    },
    Metric {
        name: "flash_operations_under_way",
        kind: MetricKind::Gauge,
        help: "Operations of the flash under way",
        value: |now| now.shard.flash_under_way as f64,
    },
    // The pool.
    Metric {
        name: "pool_size_bytes",
        kind: MetricKind::Gauge,
        help: "Size of the pool's file or device",
        value: |now| now.pool_bytes as f64,
    },
    blocks!(Gauge, "pool_capacity_bytes", pool_blocks, "Room for data in the pool"),
    Metric {
        name: "clean_bytes",
        kind: MetricKind::Gauge,
        help: "Clean bytes in the pool: the same as at the origin",
        value: |now| bytes(clean_blocks(&now.shard.engine)),
    },
    counted!(
        Gauge,
        "stored_bytes",
        stored_bytes,
        "Bytes of flash that clean and dirty data take; compression makes them fewer"
    ),
    blocks!(
        Gauge,
        "packed_bytes",
        packed_blocks,
        "Clean and dirty bytes that are compressed on flash, counted uncompressed"
    ),
    blocks!(
        Gauge,
        "dirty_bytes",
        dirty_blocks,
        "Dirty bytes in the pool: newer than the origin; a range of zeros counts as 4 KiB"
    ),
    blocks!(Gauge, "dirty_limit_bytes", dirty_blocks_max, "Dirty bytes beyond which writes wait for destage"),
    Metric {
        name: "oldest_dirty_age_seconds",
        kind: MetricKind::Gauge,
        help: "Upper bound of the age of the oldest dirty data; 0 if nothing is dirty",
        value: |now| now.shard.engine.oldest_dirty_age_nanos as f64 / 1e9,
    },
    counted!(Gauge, "dirty_files", dirty_objects, "Files with dirty data, or with only a newer size or time"),
    counted!(Gauge, "failing_files", failing_objects, "Files whose last destage failed"),
    counted!(Gauge, "known_files", objects, "Files that the pool knows"),
    counted!(Gauge, "free_segments", free_segments, "Free segments"),
    counted!(Gauge, "segments", segments, "All segments"),
    counted!(Gauge, "map_memory_bytes", map_bytes, "Memory of the map"),
    blocks!(Gauge, "memory_bytes", memory_blocks, "Clean bytes in the memory window, where they wait for admission"),
    blocks!(Counter, "admitted_bytes_total", admitted_blocks, "Clean bytes that reads admitted to flash"),
    blocks!(
        Counter,
        "neighbour_bytes_total",
        neighbour_blocks,
        "Admitted bytes that no program had asked for: prefetched neighbours of a miss"
    ),
    blocks!(
        Counter,
        "waiting_neighbour_bytes_total",
        waiting_neighbour_blocks,
        "Prefetched neighbours of a miss that waited in memory for a request, and not on flash"
    ),
    blocks!(
        Counter,
        "lingering_hit_bytes_total",
        lingering_hit_blocks,
        "Hit bytes of blocks that the policy had given up, but not evicted yet"
    ),
    Metric {
        name: "regretted_quarter_bytes_total",
        kind: MetricKind::Counter,
        help: "Bytes of misses that a pool larger by a quarter would have saved, estimated from a sample of evicted blocks",
        value: |now| bytes(now.shard.engine.saved_by(2)),
    },
    Metric {
        name: "regretted_half_bytes_total",
        kind: MetricKind::Counter,
        help: "The same for a pool larger by a half; has the quarter's in it",
        value: |now| bytes(now.shard.engine.saved_by(4)),
    },
    Metric {
        name: "regretted_double_bytes_total",
        kind: MetricKind::Counter,
        help: "The same for a pool twice as large; has the half's in it",
        value: |now| bytes(now.shard.engine.saved_by(8)),
    },
    blocks!(Counter, "evicted_bytes_total", evicted_blocks, "Clean bytes evicted for room"),
    counted!(
        Counter,
        "record_bytes_total",
        record_bytes,
        "Bytes of data appended to the log: written, admitted or moved"
    ),
    counted!(Counter, "payload_bytes_total", payload_bytes, "Bytes of flash that this data took"),
    blocks!(Counter, "moved_bytes_total", moved_blocks, "Bytes moved by reclaim"),
    counted!(Counter, "reclaimed_segments_total", segments_reclaimed, "Segments freed by reclaim"),
    counted!(
        Counter,
        "parity_rows_total",
        rows_made,
        "Rows of full segments that got a parity, and gave up their second copies (redundancy=parity)"
    ),
    counted!(
        Counter,
        "parity_reads_total",
        row_reads,
        "Reads, of programs and of headpond, whose bytes were made up from the rest of a row: their own device is lost, or gave other bytes"
    ),
    counted!(Counter, "checkpoints_total", checkpoints, "Checkpoints completed"),
    // Destage.
    blocks!(Counter, "destaged_bytes_total", destaged_blocks, "Bytes made clean by destage"),
    Metric {
        name: "destage_bytes_per_second",
        kind: MetricKind::Gauge,
        help: "Bytes destaged per second, over the last ten seconds",
        value: |now| now.destage_rate,
    },
    blocks!(Gauge, "flush_left_bytes", flush_left_blocks, "Bytes that the running flush still has to destage"),
    Metric {
        name: "flush_left_seconds",
        kind: MetricKind::Gauge,
        help: "Seconds that the running flush still takes at its present rate; 0 if none runs or nothing moves",
        value: |now| now.shard.flushes.first().map_or(0.0, |flush| eta_seconds(flush, now.destage_rate).unwrap_or(0.0)),
    },
    Metric {
        name: "flush_period_seconds",
        kind: MetricKind::Gauge,
        help: "The flush-period; 0 if it is off",
        value: |now| now.flush_period.map_or(0.0, |period| period.0 as f64 / 1e9),
    },
    Metric {
        name: "takeovers_total",
        kind: MetricKind::Counter,
        help: "Workers of the mount that died or were replaced; unlike other counters, from the mount on",
        value: |now| now.takeovers as f64,
    },
    Metric {
        name: "uptime_seconds",
        kind: MetricKind::Gauge,
        help: "Seconds since the mount",
        value: |now| now.uptime.as_secs_f64(),
    },
];
