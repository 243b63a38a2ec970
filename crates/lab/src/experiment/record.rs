//! The record of one run: everything in the report, as the run's JSON file has it.

use serde::{Deserialize, Serialize};

/// The figures of the part that counts.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Figures {
    /// Operations a second: requests of fio, transactions of sysbench.
    pub throughput: f64,
    /// Operations.
    pub operations: u64,
    /// Seconds that they took.
    pub seconds: f64,
    /// Bytes read by the load; zero of a database, whose load does not count bytes.
    pub read_bytes: u64,
    /// Bytes written by the load.
    pub write_bytes: u64,
    /// Latency in milliseconds; none of a model that has no latency.
    pub mean_ms: Option<f64>,
    /// Half of the operations took no longer.
    pub p50_ms: Option<f64>,
    /// 95 %.
    pub p95_ms: Option<f64>,
    /// 99 %.
    pub p99_ms: Option<f64>,
    /// 99.9 %.
    pub p999_ms: Option<f64>,
    /// The longest.
    pub max_ms: Option<f64>,
}

impl Figures {
    /// MiB a second, read and written.
    #[must_use]
    pub fn mib_per_second(&self) -> f64 {
        (self.read_bytes + self.write_bytes) as f64 / f64::from(1 << 20) / self.seconds.max(1e-9)
    }
}

/// The results of the transactions of one kind, where a load has several.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Transactions {
    /// Which kind.
    pub kind: String,
    /// Transactions that were carried out in the part that counts.
    pub committed: u64,
    /// Transactions that were taken back, as their input asked for.
    pub rolled_back: u64,
    /// How often one was tried again because the database had turned it down.
    pub again: u64,
    /// Those carried out, in a minute.
    pub per_minute: f64,
    /// Half of them took no longer, in milliseconds, what was tried again included.
    pub p50_ms: Option<f64>,
    /// 90 %.
    pub p90_ms: Option<f64>,
    /// 99 %.
    pub p99_ms: Option<f64>,
}

/// What a second of the load was like.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Second {
    /// When it ended, in seconds from the start of the load.
    pub at: f64,
    /// Operations a second.
    pub throughput: f64,
    /// 95 % took no longer, in milliseconds.
    pub p95_ms: Option<f64>,
    /// 99 %.
    pub p99_ms: Option<f64>,
}

/// What the machine did in a second.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct System {
    /// When it ended, in seconds from the start of the load.
    pub at: f64,
    /// Shares of all processors: in programs, in the kernel, waiting for I/O.
    pub user: f64,
    /// In the kernel, interrupts included.
    pub system: f64,
    /// Idle while I/O was under way.
    pub waiting: f64,
    /// Bytes a second read from the device under the target.
    pub device_read: f64,
    /// Bytes a second written to it.
    pub device_written: f64,
    /// The share of the time in which it had something to do; none where there is no such counter.
    pub device_busy: Option<f64>,
    /// Bytes a second written to the device of a mount's flash; none without a mount or such a counter.
    #[serde(default)]
    pub flash_written: Option<f64>,
}

/// What a mount had counted by then, since it began.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct PondCounts {
    /// When, in seconds from the start of the load.
    pub at: f64,
    /// Blocks of 4 KiB that reads found on flash.
    pub hit_blocks: u64,
    /// Blocks that reads had to fetch.
    pub miss_blocks: u64,
    /// Read requests to the origin.
    pub origin_reads: u64,
    /// Write requests to the origin.
    pub origin_writes: u64,
    /// Bytes read from the origin.
    pub origin_read_bytes: u64,
    /// Bytes written to the origin.
    pub origin_write_bytes: u64,
    /// Blocks that are newer than the origin's.
    pub dirty_blocks: u64,
    /// Blocks that the pool holds, clean and dirty.
    #[serde(default)]
    pub held_blocks: u64,
    /// Writes that had to wait for room or for destage.
    #[serde(default)]
    pub stalls: u64,
}

/// What reads had found in a cache by then, since it began, by the cache's own counters and in its own unit.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct CacheReads {
    /// When, in seconds from the start of the load.
    pub at: f64,
    /// Found.
    pub found: u64,
    /// Not found.
    pub missed: u64,
}

/// What the rule for a steady state says of the part that counts.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Steadiness {
    /// Whether it is steady.
    pub steady: bool,
    /// The range over five rounds, as a share of their average.
    pub range: f64,
    /// The gain of the fitted line over them, as a share of their average.
    pub slope: f64,
}

/// Where a run that goes on until it is steady settled, and what it is like from there on.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Settling {
    /// Seconds of a round.
    pub round: u32,
    /// Seconds from the start of the load to where it settled; none if it had not by its end.
    pub after: Option<f64>,
    /// Operations a second in the first round.
    pub first: f64,
    /// The mean of the seconds from there on; of the last five rounds where it has not settled.
    pub mean: f64,
    /// The standard deviation of those seconds.
    pub deviation: f64,
}

/// A run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Record {
    /// Its place in the plan, from 1.
    pub number: u32,
    /// Which of the sides it is.
    pub side: usize,
    /// Which of the points it is.
    pub point: usize,
    /// Which of the repetitions it is, from 1.
    pub repetition: u32,
    /// When it ended, in seconds since 1970.
    pub ended: u64,
    /// Seconds that were thrown away before the part that counts.
    pub warmup: f64,
    /// Processors that it could use; 0 where that was not kept.
    #[serde(default)]
    pub cores: u32,
    /// The share of its time that it waited for a processor, as others were at work on the machine; none where that was
    /// not kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waited: Option<f64>,
    /// The commands that made it, by what they do.
    pub commands: Vec<(String, String)>,
    /// The figures.
    pub figures: Figures,
    /// The same by kind of transaction; empty where there is one kind only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<Transactions>,
    /// Its seconds, warm-up included.
    pub seconds: Vec<Second>,
    /// The machine meanwhile.
    pub system: Vec<System>,
    /// The mount meanwhile.
    pub pond: Vec<PondCounts>,
    /// What reads found in the cache meanwhile, where another than headpond's own counters tell.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<CacheReads>,
    /// Whether it had settled; none where it was too short to tell.
    pub steadiness: Option<Steadiness>,
    /// Where it settled, of a run that counts from there on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settling: Option<Settling>,
    /// What does not add up, if anything.
    pub doubts: Vec<String>,
}

impl Record {
    /// Judges the seconds that count in five rounds.
    pub(super) fn judge_steadiness(&mut self) {
        let counted: Vec<f64> =
            self.seconds.iter().filter(|second| second.at > self.warmup).map(|second| second.throughput).collect();
        let rounds = headpond_measure::ROUNDS;
        // As even as they come out, and no second left over: the last ones tell most.
        let edge = |round: usize| round * counted.len() / rounds;
        let means: Vec<f64> = (0..rounds)
            .filter_map(|round| headpond_measure::Summary::of(&counted[edge(round)..edge(round + 1)]))
            .map(|round| round.mean)
            .collect();
        self.steadiness = headpond_measure::judge(&means).map(|window| Steadiness {
            steady: window.steady(),
            range: window.range,
            slope: window.slope,
        });
    }

    /// What a counter of the mount gained in the part that counts.
    #[must_use]
    pub fn gained(&self, counter: impl Fn(&PondCounts) -> u64) -> Option<u64> {
        let first = self.pond.iter().rfind(|pond| pond.at <= self.warmup + 0.5).or_else(|| self.pond.first())?;
        Some(counter(self.pond.last()?).saturating_sub(counter(first)))
    }

    /// How much of what reads asked for was found in the cache in the part that counts, and how much was not.
    #[must_use]
    pub fn reads_found(&self) -> Option<(u64, u64)> {
        if let (Some(found), Some(missed)) = (self.gained(|pond| pond.hit_blocks), self.gained(|pond| pond.miss_blocks))
        {
            return Some((found, missed));
        }
        let first = self.reads.iter().rfind(|reads| reads.at <= self.warmup + 0.5).or_else(|| self.reads.first())?;
        let last = self.reads.last()?;
        Some((last.found.saturating_sub(first.found), last.missed.saturating_sub(first.missed)))
    }

    /// The share that was found; none without a cache that tells, or without reads.
    #[must_use]
    pub fn share_found(&self) -> Option<f64> {
        let (found, missed) = self.reads_found()?;
        (found + missed > 0).then(|| found as f64 / (found + missed) as f64)
    }

    /// Bytes that the device got for each operation: of a mount that of its flash, else that under the target.
    #[must_use]
    pub fn written_for_each(&self) -> Option<f64> {
        let plain = |system: &System| system.device_busy.map(|_| system.device_written);
        let cached = !self.pond.is_empty() || !self.reads.is_empty();
        let written = |system: &System| if cached { system.flash_written } else { plain(system) };
        Some(self.machine(written)? / Some(self.figures.throughput).filter(|throughput| *throughput > 0.0)?)
    }

    /// The mean of something about the machine over the part that counts.
    #[must_use]
    pub fn machine(&self, value: impl Fn(&System) -> Option<f64>) -> Option<f64> {
        let counted = self.system.iter().filter(|system| system.at > self.warmup);
        let values: Vec<f64> = counted.filter_map(value).collect();
        headpond_measure::Summary::of(&values).map(|summary| summary.mean)
    }
}

#[cfg(test)]
impl Record {
    /// The first run of the first side, of which nothing is known yet.
    pub(super) fn blank() -> Self {
        Self {
            number: 1,
            side: 0,
            point: 0,
            repetition: 1,
            ended: 0,
            warmup: 0.0,
            cores: 0,
            waited: None,
            commands: Vec::new(),
            figures: Figures::default(),
            kinds: Vec::new(),
            seconds: Vec::new(),
            system: Vec::new(),
            pond: Vec::new(),
            reads: Vec::new(),
            steadiness: None,
            settling: None,
            doubts: Vec::new(),
        }
    }
}
