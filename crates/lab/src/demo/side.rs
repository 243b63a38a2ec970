//! One side of the comparison: runs the load and records every second of it.

use super::machine::CpuTime;
use super::plan::{Plan, Step};
use super::progress::DemoProgress;
use super::storage::{Stage, Storage};
use crate::command;
use crate::failure::Result;
use crate::mariadb::Server;
use crate::pond::{Figures, Mount};
use crate::processor;
use crate::statistics::{spread, windows};
use crate::sysbench::{Second, SysbenchTotals};
use std::time::{Duration, Instant};

/// The counters at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Seconds since the start of the load.
    pub at: f64,
    /// What the mount, or else the server, has counted.
    pub figures: Figures,
    cpu: CpuTime,
    /// Processor time of the mount's daemon, in ticks; 0 without one.
    daemon: u64,
}

/// What one side showed.
pub struct Side {
    /// What it is called.
    pub title: &'static str,
    /// Whether a cache was there to hit.
    pub cached: bool,
    /// sysbench's figures of each second, warm-up included.
    pub seconds: Vec<Second>,
    /// The counters after each of those seconds.
    pub samples: Vec<Sample>,
    /// sysbench's figures of the measured part.
    pub totals: SysbenchTotals,
    /// The commands that made it.
    pub commands: Vec<(&'static str, String)>,
    warmup: f64,
}

/// What is done with the data after the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It is thrown away: the server is not made to write its buffer pool to a slow disk.
    Discard,
    /// It is written to the origin, and looked at there without headpond.
    Keep,
}

/// How the data came home.
#[derive(Clone, Copy, Debug, Default)]
pub struct After {
    /// What was newer than the origin when the load and the server had stopped, in MiB.
    pub dirty_mib: f64,
    /// How long it took to write that to the origin and to unmount.
    pub unmount: Duration,
    /// The tables that were found whole on the origin alone.
    pub tables_checked: usize,
}

/// Runs one side.
pub fn run(
    plan: &Plan,
    storage: &Storage,
    stage: Stage,
    ending: Ending,
    progress: &mut DemoProgress,
) -> Result<(Side, After)> {
    let server = Server::start(&stage.data, &storage.run_directory(), &plan.settings)?;
    let sysbench = plan.load.run_command(server.socket(), plan.warmup, plan.seconds);
    let mut commands = vec![("MariaDB", server.typed()), ("sysbench", command::typed(&sysbench))];
    commands.extend(stage.mount.as_ref().map(|mount| ("headpond", mount.typed())));
    let figures = || stage.mount.as_ref().map_or_else(|| from_server(&server), |mount| mount.figures());

    let (mut seconds, mut samples) = (Vec::new(), Vec::new());
    let load = plan.load.start(sysbench)?;
    let mut processes = vec![server.pid(), load.pid()];
    processes.extend(stage.mount.as_ref().map(Mount::pid));
    let daemon = || stage.mount.as_ref().map_or(0, |mount| processor::ticks_of(mount.pid()));
    let totals = load.follow(|second| {
        let sample = Sample { at: second.at, figures: figures()?, cpu: CpuTime::now(&processes), daemon: daemon() };
        samples.push(sample);
        seconds.push(second);
        let part = if second.at <= f64::from(plan.warmup) { "warm-up, " } else { "" };
        let all = plan.warmup + plan.seconds;
        progress.note(&format!("{part}{:.0} of {all} s, {:.0} transactions/s", second.at, second.tps));
        Ok(())
    })?;
    let side = Side {
        title: stage.title,
        cached: stage.mount.is_some() && ending == Ending::Keep,
        seconds,
        samples,
        totals,
        commands,
        warmup: f64::from(plan.warmup),
    };
    let after = end(plan, storage, stage, server, ending, progress)?;
    Ok((side, after))
}

/// Stops the server, and does with the data what is to be done.
pub fn end(
    plan: &Plan,
    storage: &Storage,
    stage: Stage,
    server: Server,
    ending: Ending,
    progress: &mut DemoProgress,
) -> Result<After> {
    if ending == Ending::Discard {
        server.kill();
        return stage.mount.map_or(Ok(()), |mount| mount.unmount_keep_dirty()).map(|()| After::default());
    }
    progress.begin(Step::Return);
    server.stop()?;
    let mut after = After::default();
    if let Some(mount) = stage.mount {
        after.dirty_mib = mount.figures()?.dirty_blocks as f64 * 4096.0 / f64::from(1 << 20);
        progress.note(&format!("{:.0} MiB to write back", after.dirty_mib));
        let start = Instant::now();
        mount.unmount()?;
        after.unmount = start.elapsed();
    }
    progress.note("checking every row on the origin");
    let server = Server::start(&storage.bare(), &storage.run_directory(), &plan.checking)?;
    after.tables_checked = server.check_tables()?;
    server.stop()?;
    Ok(after)
}

/// Without a mount to count them: the requests that the database itself makes.
fn from_server(server: &Server) -> Result<Figures> {
    let rows = server.sql(
        "SHOW GLOBAL STATUS WHERE Variable_name IN \
         ('Innodb_data_reads','Innodb_data_writes','Innodb_data_read','Innodb_data_written')",
    )?;
    let value = |name: &str| {
        let row = rows.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('\t'));
        row.and_then(|text| text.parse().ok()).unwrap_or(0)
    };
    Ok(Figures {
        origin_reads: value("Innodb_data_reads"),
        origin_writes: value("Innodb_data_writes"),
        origin_read_bytes: value("Innodb_data_read"),
        origin_write_bytes: value("Innodb_data_written"),
        ..Figures::default()
    })
}

impl Side {
    /// The transactions of each measured second.
    fn measured_tps(&self) -> Vec<f64> {
        self.seconds.iter().filter(|second| second.at > self.warmup).map(|second| second.tps).collect()
    }

    /// The 10 s averages of the measured part.
    pub fn windows(&self) -> Vec<f64> {
        windows(&self.measured_tps())
    }

    /// How far the farthest 10 s average lies from their mean, as a share of it.
    pub fn spread(&self) -> f64 {
        spread(&self.windows())
    }

    /// The first and the last sample of the measured part.
    fn ends(&self) -> Option<(&Sample, &Sample)> {
        Some((self.samples.iter().find(|sample| sample.at >= self.warmup)?, self.samples.last()?))
    }

    /// What a counter gained in each measured second.
    pub fn rate(&self, counter: impl Fn(&Figures) -> u64) -> f64 {
        self.ends().map_or(0.0, |(first, last)| {
            counter(&last.figures).saturating_sub(counter(&first.figures)) as f64 / (last.at - first.at).max(1.0)
        })
    }

    /// The share of the blocks read in the measured part that were on flash.
    pub fn hit_ratio(&self) -> Option<f64> {
        let hits = self.rate(|figures| figures.hit_blocks);
        let all = hits + self.rate(|figures| figures.miss_blocks);
        (self.cached && all > 0.0).then(|| hits / all)
    }

    /// The share of the processors that database, load and headpond used in the measured time.
    pub fn cpu_share(&self) -> f64 {
        self.ends().map_or(0.0, |(first, last)| last.cpu.share_since(&first.cpu))
    }

    /// Processor seconds of headpond for a million requests that it answered in the measured part.
    pub fn processor_cost(&self) -> Option<f64> {
        let (first, last) = self.ends()?;
        let requests = last.figures.requests.saturating_sub(first.figures.requests);
        let used = processor::seconds(last.daemon.saturating_sub(first.daemon));
        (requests > 0).then(|| used / requests as f64 * 1e6)
    }

    /// What a counter gained in each second of the run, warm-up included.
    pub fn rates(&self, counter: impl Fn(&Figures) -> u64) -> Vec<(f64, f64)> {
        let pairs = self.samples.iter().zip(self.samples.iter().skip(1));
        pairs
            .map(|(before, now)| {
                let gain = counter(&now.figures).saturating_sub(counter(&before.figures));
                (now.at, gain as f64 / (now.at - before.at).max(1.0))
            })
            .collect()
    }
}
