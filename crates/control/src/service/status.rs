//! The status of a mount, as text and as JSON.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::FlushShown;
use super::pool_shown::listed;
use crate::wording::{HowMany, Size, clock};

/// A snapshot of a mount. The field names are those of `headpond status --json` and stay. Counters start with the
/// daemon. A block has 4 KiB.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// The mount point.
    pub mountpoint: PathBuf,
    /// The directory that owns the data.
    pub origin: PathBuf,
    /// The file or device of the pool; of a pool of several, the first.
    pub flash: PathBuf,
    /// All files or devices of the pool.
    pub flashes: Vec<PathBuf>,
    /// `ONLINE`, `DEGRADED` or `FAULTED`: see `headpond pool status`.
    pub pool_state: String,
    /// The pool's id.
    pub pool: String,
    /// The cache mode in force.
    pub mode: String,
    /// `running`, `flushing`, `frozen`, `changing mode`, `unmounting`.
    pub state: String,
    /// Of a frozen origin: the seconds until it thaws at the latest.
    pub frozen_left_seconds: u64,
    /// The process that serves: the worker.
    pub pid: u32,
    /// The process that keeps the mount alive over the death of a worker. 0: there is none.
    pub holder: u32,
    /// How many workers died, or were replaced by an upgrade, since the mount.
    pub takeovers: u64,
    /// The daemon's version.
    pub version: String,
    /// The backend of the flash: `uring` or `psync`.
    pub backend: String,
    /// Seconds since the mount.
    pub uptime_seconds: u64,
    /// The pool's size.
    pub size_bytes: u64,
    /// Its room for data.
    pub capacity_bytes: u64,
    /// Blocks with valid data: clean or dirty.
    pub used_blocks: u64,
    /// The same in bytes.
    pub used_bytes: u64,
    /// The bytes of flash that these take: fewer if they are packed.
    pub stored_bytes: u64,
    /// The bytes of the packed ones among them, as unpacked.
    pub packed_bytes: u64,
    /// Clean blocks.
    pub cached_blocks: u64,
    /// The same in bytes.
    pub cached_bytes: u64,
    /// Dirty blocks.
    pub dirty_blocks: u64,
    /// The same in bytes.
    pub dirty_bytes: u64,
    /// Files with something that the origin lacks, even if only their size or time.
    pub dirty_files: u64,
    /// Blocks read from flash or memory.
    pub read_hits_blocks: u64,
    /// Blocks read from the origin.
    pub read_miss_blocks: u64,
    /// The share of hits in both, from 0 to 1.
    pub hit_ratio: f64,
    /// Reads at the origin.
    pub origin_reads: u64,
    /// Writes at the origin.
    pub origin_writes: u64,
    /// Bytes of those reads.
    pub origin_read_bytes: u64,
    /// Bytes of those writes.
    pub origin_write_bytes: u64,
    /// Syncs of the origin's files.
    pub origin_syncs: u64,
    /// For how many seconds the origin has left a request without an answer. 0: it answers.
    pub origin_silent_seconds: u64,
    /// Which headpond has taken the origin over, and what to do. Empty while this mount has it.
    pub claim_lost: String,
    /// The lease by which this host owns the pool: `held`, or `waiting` while it is not renewed and the mount stands
    /// still. Empty without a lease, and once another host owns the pool.
    #[serde(default)]
    pub lease: String,
    /// Reads from flash.
    pub flash_reads: u64,
    /// Writes to flash.
    pub flash_writes: u64,
    /// Bytes of those reads.
    pub flash_read_bytes: u64,
    /// Bytes of those writes.
    pub flash_write_bytes: u64,
    /// Syncs of the flash.
    pub flash_syncs: u64,
    /// Flash errors that no application saw, because the origin had the data.
    pub flash_errors_masked: u64,
    /// A write or sync of the flash failed: the pool caches nothing more, and writes go to the origin, if this mount
    /// has it.
    pub flash_failed: bool,
    /// Dirty blocks that are unreadable on flash. An application got an error.
    pub lost_blocks: u64,
    /// Origin errors.
    pub origin_errors: u64,
    /// The last flush: `none`, `running`, `done`, `cancelled`, or `failed: ` and why.
    pub flush: String,
    /// The last flushes by their handles, the newest first, with their progress or end.
    pub flushes: Vec<FlushShown>,
    /// Files whose databases rely on untorn writes.
    pub whole_write_files: u64,
    /// The paths of directories below the origin that are other headponds' origins, so that this mount does not enter
    /// them.
    pub nested_origins: Vec<PathBuf>,
    /// All counters of the engine, under its own names.
    pub engine: serde_json::Value,
}

impl Status {
    /// What the origin lacks. A file may lack only its newest size or time.
    fn dirty(&self) -> String {
        let files = HowMany(self.dirty_files, "file");
        match (self.dirty_bytes, self.dirty_files) {
            (0, 0) => Size(0).to_string(),
            (0, _) => format!("{}, and the newest size or time of {files}", Size(0)),
            (bytes, _) => format!("{} in {files}", Size(bytes)),
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut row = |name: &str, value: &str| writeln!(f, "  {name:<10} {value}");
        row("origin", &self.origin.display().to_string())?;
        if !self.claim_lost.is_empty() {
            row("LOST", &self.claim_lost)?;
        }
        if self.lease == "waiting" {
            row("WAITING", "the lease is not renewed, so the mount stands still. Does the registry answer?")?;
        }
        if self.origin_silent_seconds > 0 {
            let silent = clock::duration(self.origin_silent_seconds);
            row("", &format!("has not answered for {silent}; the pool still serves what it has"))?;
        }
        let flashes = if self.flashes.len() > 1 { listed(&self.flashes) } else { self.flash.display().to_string() };
        row("flash", &format!("{flashes}, {} ({})", Size(self.size_bytes), self.backend))?;
        if self.pool_state == "DEGRADED" {
            let mount = self.mountpoint.display();
            row(
                "DEGRADED",
                &format!("a device is lost, or dirty data has one copy. What to do: headpond pool status {mount}"),
            )?;
        }
        row("pool", &self.pool)?;
        row("mode", &format!("{}, {}", self.mode, self.state))?;
        if self.state == "frozen" {
            row("", &format!("thaws in {} at the latest", clock::duration(self.frozen_left_seconds)))?;
        }
        let lives = match self.takeovers {
            0 => String::new(),
            1 => ", the second worker of this mount".to_owned(),
            lives => format!(", after {lives} other workers of this mount"),
        };
        row("daemon", &format!("process {}, up {}{lives}", self.pid, clock::duration(self.uptime_seconds)))?;
        let used = if self.packed_bytes > 0 { self.stored_bytes } else { self.used_bytes };
        let packed = if self.packed_bytes > 0 {
            let times = self.used_bytes as f64 / self.stored_bytes.max(1) as f64;
            format!(", compressed from {} ({times:.2} times as much)", Size(self.used_bytes))
        } else {
            String::new()
        };
        let (capacity, share) = (Size(self.capacity_bytes), percent(used, self.capacity_bytes));
        row("used", &format!("{} of {capacity} ({share}){packed}", Size(used)))?;
        row("dirty", &self.dirty())?;
        let (hits, misses) = (self.read_hits_blocks, self.read_miss_blocks);
        row(
            "reads",
            &format!("{} of {} blocks from the pool ({})", hits, hits + misses, percent(hits, hits + misses)),
        )?;
        let traffic = |reads, read_bytes, writes, write_bytes| {
            format!("{reads} reads ({}), {writes} writes ({})", Size(read_bytes), Size(write_bytes))
        };
        row(
            "at origin",
            &traffic(self.origin_reads, self.origin_read_bytes, self.origin_writes, self.origin_write_bytes),
        )?;
        row(
            "on flash",
            &format!(
                "{}, {} syncs",
                traffic(self.flash_reads, self.flash_read_bytes, self.flash_writes, self.flash_write_bytes),
                self.flash_syncs
            ),
        )?;
        row(
            "errors",
            &format!(
                "{} at the origin, {} on flash (masked), {} blocks lost{}",
                self.origin_errors,
                self.flash_errors_masked,
                self.lost_blocks,
                if self.flash_failed { "; THE FLASH HAS FAILED" } else { "" },
            ),
        )?;
        for path in &self.nested_origins {
            row(
                "not shown",
                &format!("{}: the origin of another headpond, whose pool may have newer data", path.display()),
            )?;
        }
        row("flush", &self.flush)?;
        self.flushes.iter().try_for_each(|flush| row("", &line(flush)))
    }
}

/// A line for a flush.
fn line(flush: &FlushShown) -> String {
    let FlushShown { handle, path, state, why, left_bytes, total_bytes, seconds, left_seconds } = flush;
    let what = if path.is_empty() { "everything" } else { path };
    let ran = clock::duration(*seconds as u64);
    match (state.as_str(), left_seconds) {
        ("running", Some(left)) => {
            let left = clock::duration(left.ceil() as u64);
            format!("{handle}: {what}, {} of {} left, {left} to go", Size(*left_bytes), Size(*total_bytes))
        }
        ("running", None) => format!("{handle}: {what}, {} of {} left", Size(*left_bytes), Size(*total_bytes)),
        ("failed", _) => format!("{handle}: {what}, failed after {ran}: {why}"),
        _ => format!("{handle}: {what}, {state} after {ran}"),
    }
}

fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "-".to_owned();
    }
    let tenths = u128::from(part) * 1000 / u128::from(whole);
    format!("{}.{} %", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_find_every_documented_field() {
        let value = serde_json::to_value(Status::default()).unwrap();
        for field in [
            "mountpoint",
            "origin",
            "flash",
            "pool",
            "mode",
            "uptime_seconds",
            "size_bytes",
            "used_blocks",
            "used_bytes",
            "stored_bytes",
            "packed_bytes",
            "cached_blocks",
            "cached_bytes",
            "dirty_blocks",
            "dirty_bytes",
            "read_hits_blocks",
            "read_miss_blocks",
            "hit_ratio",
            "origin_reads",
            "origin_writes",
            "origin_read_bytes",
            "origin_write_bytes",
            "flash_reads",
            "flash_writes",
            "flash_read_bytes",
            "flash_write_bytes",
            "flash_errors_masked",
            "origin_errors",
            "origin_silent_seconds",
            "claim_lost",
            "flush",
            "flushes",
            "nested_origins",
        ] {
            assert!(value.get(field).is_some(), "{field} is missing");
        }
    }

    #[test]
    fn people_see_what_packing_saves() {
        let status = Status {
            used_bytes: 6 << 30,
            stored_bytes: 3 << 30,
            packed_bytes: 5 << 30,
            capacity_bytes: 4 << 30,
            ..Status::default()
        };
        let shown = status.to_string();
        assert!(shown.contains("3 GiB of 4 GiB (75.0 %), compressed from 6 GiB (2.00 times as much)"), "{shown}");
    }

    #[test]
    fn people_see_amounts_and_shares() {
        let status = Status {
            used_bytes: 3 << 30,
            capacity_bytes: 4 << 30,
            dirty_bytes: 5 << 20,
            read_hits_blocks: 9,
            read_miss_blocks: 1,
            ..Status::default()
        };
        let shown = status.to_string();
        for part in ["3 GiB of 4 GiB (75.0 %)", "5 MiB", "9 of 10 blocks", "90.0 %"] {
            assert!(shown.contains(part), "{part} is missing in:\n{shown}");
        }
    }
}
