//! What a mount counts, for people, programs and Prometheus: one table, one snapshot.
//!
//! Invariant: a snapshot is taken between two turns of the shard, so its numbers belong together, and it costs
//! requests nothing. Uses `wording`.

mod latency;
mod prometheus;
mod rate;
mod table;
mod uses;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use headpond_base::Nanos;
use headpond_shard::ShardStats;
use serde::{Deserialize, Serialize};

use crate::wording::in_columns;

pub use latency::LatencyDistribution;
pub(crate) use prometheus::exposition;
pub(crate) use rate::Rate;
pub use table::{METRICS, Metric, MetricKind};
pub(crate) use table::{eta_seconds, exposed_blocks};
pub use uses::{FileNumbers, ProcessNumbers};
pub(crate) use uses::{files, processes};

/// The state of a mount at one moment, as the table reads it.
pub struct Snapshot {
    pub(crate) shard: ShardStats,
    pub(crate) pool_bytes: u64,
    /// Devices that the pool is without, and not on request.
    pub(crate) lost_devices: u64,
    pub(crate) uptime: Duration,
    /// Bytes a second that destage writes now.
    pub(crate) destage_rate: f64,
    /// The flush-period, if there is one.
    pub(crate) flush_period: Option<Nanos>,
    /// Workers of this mount before this one.
    pub(crate) takeovers: u64,
    /// For how long the origin has left a request without an answer.
    pub(crate) origin_silent_seconds: u64,
    /// Whether another headpond took the origin over.
    pub(crate) claim_lost: bool,
    /// Whether this host may not act as the owner until its lease is renewed.
    pub(crate) lease_waiting: bool,
}

/// All numbers of a mount. The names are those of `headpond stats --json`, and stay.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Numbers {
    /// The mount point.
    pub mountpoint: PathBuf,
    /// The directory that owns the data.
    pub origin: PathBuf,
    /// The file or device of the pool.
    pub flash: PathBuf,
    /// The cache mode in force.
    pub mode: String,
    /// The state of the mount.
    pub state: String,
    /// Every number of [`METRICS`].
    pub metrics: BTreeMap<String, f64>,
    /// How long requests took since the daemon's start: `read_hit`, `read_miss`, `read_bypass`,
    /// `write`, `write_bypass` and `sync`.
    pub latency: BTreeMap<String, LatencyDistribution>,
    /// The files at the top by any count. The busiest of the last second come first.
    pub files: Vec<FileNumbers>,
    /// The same for processes.
    pub processes: Vec<ProcessNumbers>,
    /// Every setting.
    pub settings: BTreeMap<String, String>,
}

impl Snapshot {
    /// Every number of the table.
    pub(crate) fn metrics(&self) -> BTreeMap<String, f64> {
        METRICS.iter().map(|metric| (metric.name.to_owned(), (metric.value)(self))).collect()
    }

    /// The latencies by their names in all outputs.
    pub(crate) fn latency(&self) -> BTreeMap<String, LatencyDistribution> {
        let latency = &self.shard.latency;
        [
            ("read_hit", &latency.read_hit),
            ("read_miss", &latency.read_miss),
            ("read_bypass", &latency.read_bypass),
            ("write", &latency.write),
            ("write_bypass", &latency.write_bypass),
            ("sync", &latency.sync),
        ]
        .into_iter()
        .map(|(name, histogram)| (name.to_owned(), LatencyDistribution::from(histogram)))
        .collect()
    }
}

impl Numbers {
    /// A number by its name; 0 if the name is unknown.
    #[must_use]
    pub fn metric(&self, name: &str) -> f64 {
        self.metrics.get(name).copied().unwrap_or(0.0)
    }

    /// A line for each number, `name value`, for cat and grep.
    #[must_use]
    pub fn lines(&self) -> String {
        let mut lines = String::new();
        for metric in METRICS {
            lines += &format!("{} {}\n", metric.name, number(self.metric(metric.name)));
        }
        for (name, latency) in &self.latency {
            for (what, value) in latency.few() {
                lines += &format!("latency_{name}_{what} {}\n", number(value));
            }
        }
        lines
    }
}

/// A number as text: whole ones without a point.
pub(crate) fn number(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 9e15 { format!("{value:.0}") } else { format!("{value}") }
}

/// The page docs/metrics.md.
#[must_use]
pub fn metrics_reference() -> String {
    let mut page = HEAD.to_owned();
    for metric in METRICS {
        let kind = match metric.kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
        };
        page += &format!("| `headpond_{}` | {kind} | {} |\n", metric.name, metric.help);
    }
    in_columns(&(page + TAIL))
}

const HEAD: &str = "# Numbers

    headpond stats /var/lib/mysql                    a line for each number, for people and grep
    headpond stats /var/lib/mysql --json             the same for programs, with settings
    headpond mount ... --http 127.0.0.1:9187         for Prometheus, at http://127.0.0.1:9187/metrics
    headpond mount ... --http 0.0.0.0:9187 --http-token /etc/headpond.token      for other machines, with a token

The same address serves a [page](page.md), and JSON with a week of history. `--metrics` is its older name.

`stats` shows the names without `headpond_`. Counters start with the daemon. Bytes of hits, misses and the pool are in whole blocks of 4 KiB.

`--json` also has `files` and `processes`: the busiest by bytes from flash, from the origin, bypassed, written, and in the last second.
`files` also has the files with the most data in the pool, clean or dirty. `cached_bytes` is a file's data in the pool, `stored_bytes` the flash that it takes: `cached_bytes / stored_bytes` says how well the file compresses.
Both are `null` for a file that is not among the 32 with the most data or the most dirty data in the pool; `.headpond/files` shows `-`.
headpond counts for the 1,024 busiest threads. A process that ended within a moment has no name.

| name | kind | what |
| --- | --- | --- |
";

const TAIL: &str = "| `headpond_request_duration_seconds` | histogram | Latency of requests, by `operation` (read, write, sync) and `source` (hit, miss, bypass) |
| `headpond_info` | gauge | 1, with origin, mount point and flash as labels |

Alarms and a dashboard: [operations.md](operations.md#watch-it-with-prometheus-and-grafana). Besides, growth of `lost_bytes_total` or `origin_errors_total`, and `failing_files` are worth an alarm.

`headpond stats --reference` prints this page, from the table in `crates/control/src/numbers/table.rs`.
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_prometheus_and_each_is_there_once() {
        let mut seen = Vec::new();
        for metric in METRICS {
            let valid = metric.name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
            assert!(valid && !metric.help.is_empty(), "{}", metric.name);
            assert_eq!(metric.name.ends_with("_total"), metric.kind == MetricKind::Counter, "{}", metric.name);
            assert!(!seen.contains(&metric.name), "{} twice", metric.name);
            seen.push(metric.name);
        }
    }

    #[test]
    fn numbers_are_written_so_that_they_read_back() {
        for (value, text) in [(0.0, "0"), (4096.0, "4096"), (0.25, "0.25"), (1e15, "1000000000000000")] {
            assert_eq!(number(value), text);
            assert!((text.parse::<f64>().unwrap() - value).abs() < f64::EPSILON);
        }
    }
}
