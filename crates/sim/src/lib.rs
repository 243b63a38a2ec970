//! The deterministic simulator.
//!
//! The real engine runs on simulated flash and a simulated origin, in simulated time. One seed decides everything:
//! the pool, the operations, when and in which order each I/O completes, what fails, and when the power goes. A model
//! of what applications may see checks every answer, and after every crash everything that is left.
//!
//! Keeps true: the same seed and options always give the same run, on any machine. So one command repeats a failure.

mod above;
mod campaign;
mod changed_range;
mod configuration;
mod content;
mod crash;
mod destage_arguments;
mod devices;
mod exhaustive;
#[cfg(test)]
mod fake;
mod flash;
mod found;
mod hits;
mod hosts;
mod look;
mod marker;
mod membership;
mod model;
mod names;
mod origin;
mod outliving;
mod planted;
mod planted_hosts;
mod replayed;
mod rewritten;
mod roster;
mod run;
mod scenario;
mod several_devices;
mod shrink;
mod sim;
mod synced_here;
mod takeover;
mod thoroughness;
mod timed;
mod tree;
mod under_test;
mod untorn;
mod upkeep;
mod uses;
mod volumes;
mod warming;
mod world;

pub use campaign::{CampaignFindings, quiet_panics, run_caught, run_seeds};
pub use destage_arguments::DestageArguments;
pub use exhaustive::{run_exhaustive, run_one_sequence};
pub use headpond_timed::{DeviceModel, Hardware, OnCard};
pub use hits::{HitLoad, read_hits};
pub use planted::{Planted, PlantedUse};
pub use planted_hosts::PlantedHosts;
pub use replayed::{Replayed, replay_through_engine};
pub use rewritten::{LogLoad, LogRun, rewrite_log};
pub use scenario::Options;
pub use several_devices::{
    DevicePool, LoadServed, MixedLoad, Moved, Rebuild, move_away, read_rate, rebuild, room_for_clean, synced_writes,
    while_rows_are_made, write_rate, write_rate_after_adding,
};
pub use shrink::shrink;
pub use timed::{Arrival, PAGE, PagedLoad, TimedReport, run_paged};
pub use warming::{Second, Warming, warm_up};

use std::fmt;

/// The figures of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HistorySums {
    /// Operations done.
    pub ops: u64,
    /// Crashes, also those during recovery.
    pub crashes: u64,
    /// Recoveries that found a host batch on flash without the one before it.
    pub gaps: u64,
    /// Starts that did on flash what the last process had left in memory.
    pub takeovers: u64,
    /// Members that were lost, losses that the pool made up for, and lists of members that came to count.
    pub losses: u64,
    /// See `losses`.
    pub repairs: u64,
    /// See `losses`.
    pub lists: u64,
    /// Copies that the owner let go, as their host was being drained.
    pub drains: u64,
    /// Losses before the last one was made up for, of a member without dirty blocks: they must cost nothing.
    pub second_losses: u64,
    /// Stops in order.
    pub stops: u64,
    /// Times that an engine was started from a pool.
    pub recoveries: u64,
    /// Flushes that were answered and checked.
    pub flushes: u64,
    /// Scrubs that read everything.
    pub scrubs: u64,
    /// Conflicts with an origin that others changed.
    pub conflicts: u64,
    /// Those of them that came after a crash and that only the status change time shows.
    pub unseen: u64,
    /// Syncs that waited for no other host, and whose data was there after a crash.
    pub synced_here: u64,
    /// Objects whose clean data was dropped at a start.
    pub dropped: u64,
    /// Blocks destaged, segments reclaimed, checkpoints taken.
    pub destaged: u64,
    /// See `destaged`.
    pub reclaimed: u64,
    /// See `destaged`.
    pub checkpoints: u64,
    /// Rows of segments that got a parity, and reads that got their bytes out of one.
    pub rows: u64,
    /// See `rows`.
    pub row_reads: u64,
    /// Bytes of flash that packing saved.
    pub saved: u64,
    /// Writes that a crash found under way, or acknowledged but not synced: each could have been torn.
    pub at_risk: u64,
    /// Segments that were opened.
    pub segments: u64,
    /// Bytes that reads returned.
    pub bytes_read: u64,
    /// Histories that ended early, because one file may have been taken for another: see "Known and not mended" in
    /// docs/fault-model.md.
    pub undecided: u64,
    /// Events in the simulated world.
    pub steps: u64,
    /// A hash over all of them.
    pub hash: u64,
}

impl HistorySums {
    /// Adds another run's figures.
    pub(crate) fn add(&mut self, other: &Self) {
        self.ops += other.ops;
        self.crashes += other.crashes;
        self.gaps += other.gaps;
        self.takeovers += other.takeovers;
        self.losses += other.losses;
        self.repairs += other.repairs;
        self.lists += other.lists;
        self.drains += other.drains;
        self.second_losses += other.second_losses;
        self.stops += other.stops;
        self.recoveries += other.recoveries;
        self.flushes += other.flushes;
        self.scrubs += other.scrubs;
        self.conflicts += other.conflicts;
        self.unseen += other.unseen;
        self.synced_here += other.synced_here;
        self.dropped += other.dropped;
        self.at_risk += other.at_risk;
        self.segments += other.segments;
        self.bytes_read += other.bytes_read;
        self.undecided += other.undecided;
        self.steps += other.steps;
        self.destaged += other.destaged;
        self.reclaimed += other.reclaimed;
        self.checkpoints += other.checkpoints;
        self.rows += other.rows;
        self.row_reads += other.row_reads;
        self.saved += other.saved;
        self.hash ^= other.hash;
    }
}

impl fmt::Display for HistorySums {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} operations, {} crashes that found {} writes not durable, {} gaps in the order on flash, \
             {} takeovers with batches left in memory, {} members lost ({} while another was missing), {} of these made up for, {} lists of members, {} copies let go, \
             {} clean stops, {} recoveries, {} flushes, {} scrubs, {} conflicts ({} seen by the status change time alone), \
             {} syncs that waited for this host alone, \
             {} MiB read and checked, {} checkpoints, \
             {} segments opened, {} rows made, {} reads out of rows, {} reclaimed, {} blocks destaged, {} MiB saved by packing, {} histories undecided, \
             {} events (digest {:016x})",
            self.ops,
            self.crashes,
            self.at_risk,
            self.gaps,
            self.takeovers,
            self.losses,
            self.second_losses,
            self.repairs,
            self.lists,
            self.drains,
            self.stops,
            self.recoveries,
            self.flushes,
            self.scrubs,
            self.conflicts,
            self.unseen,
            self.synced_here,
            self.bytes_read >> 20,
            self.checkpoints,
            self.segments,
            self.rows,
            self.row_reads,
            self.reclaimed,
            self.destaged,
            self.saved >> 20,
            self.undecided,
            self.steps,
            self.hash
        )
    }
}

/// The result of the exhaustive cases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cases {
    /// Sequences of operations.
    pub sequences: u64,
    /// Moments at which the power was cut.
    pub cuts: u64,
    /// Recoveries checked: one for each way of cutting.
    pub recoveries: u64,
    /// Take-overs checked, after a death of the process alone.
    pub deaths: u64,
}

impl Cases {
    pub(crate) const fn add(&mut self, other: &Self) {
        self.sequences += other.sequences;
        self.cuts += other.cuts;
        self.recoveries += other.recoveries;
        self.deaths += other.deaths;
    }
}

impl fmt::Display for Cases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sequences, cuts, recoveries, deaths } = self;
        write!(f, "{sequences} sequences, {cuts} cuts, {recoveries} recoveries, {deaths} deaths of the process alone")
    }
}

/// A broken promise.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// The options.
    pub options: Options,
    /// The operation at which it showed. `None` for the start or the end.
    pub at: Option<u32>,
    /// What was seen.
    pub what: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.options.exhaustive {
            write!(
                f,
                "sequence {}: {}\nagain:  cargo xtask sim --exhaustive --seeds {} --verbose",
                self.seed, self.what, self.seed
            )?;
            return match self.options.mutation {
                Some(mutation) => write!(f, " --mutation {}", mutation_name(mutation)),
                None => Ok(()),
            };
        }
        let at = self.at.map_or_else(|| "at the start or the end".to_owned(), |at| format!("at operation {at}"));
        writeln!(f, "seed {} broke a promise {at}: {}", self.seed, self.what)?;
        write!(f, "again:  cargo xtask sim --seeds {} --ops {}", self.seed, self.options.ops)?;
        for (index, range) in self.options.skip.iter().enumerate() {
            f.write_str(if index == 0 { " --skip " } else { "," })?;
            if range.len() == 1 { write!(f, "{}", range.start)? } else { write!(f, "{}..{}", range.start, range.end)? }
        }
        if self.options.names {
            f.write_str(" --names")?;
        }
        if self.options.members {
            f.write_str(" --members")?;
        }
        if self.options.copies {
            f.write_str(" --copies")?;
        }
        if self.options.parity {
            f.write_str(" --parity")?;
        }
        if self.options.upkeep {
            f.write_str(" --upkeep")?;
        }
        if self.options.reuse {
            f.write_str(" --reuse")?;
        }
        if self.options.kernels {
            f.write_str(" --kernels")?;
        }
        if self.options.uses {
            f.write_str(" --uses")?;
        }
        if self.options.hosts {
            f.write_str(" --hosts")?;
        }
        if let Some(planted) = self.options.planted_hosts {
            write!(f, " --planted-hosts {}", planted.name())?;
        }
        if let Some(planted) = self.options.planted {
            write!(f, " --planted {}", planted.name())?;
        }
        if self.options.untorn {
            f.write_str(" --untorn")?;
        }
        if let Some(host_segments) = self.options.host_segments {
            write!(f, " --host-segments {host_segments}")?;
        }
        if let Some(volumes) = self.options.volumes {
            write!(f, " --volumes {volumes}")?;
        }
        if let Some(second_tail) = self.options.second_tail {
            write!(f, " --second-tail {second_tail}")?;
        }
        if self.options.no_faults {
            f.write_str(" --no-faults")?;
        }
        if self.options.serial {
            f.write_str(" --serial")?;
        }
        if self.options.whole_looks {
            f.write_str(" --whole-looks")?;
        }
        if let Some(mode) = self.options.mode {
            write!(f, " --mode {mode}")?;
        }
        if let Some(mutation) = self.options.mutation {
            write!(f, " --mutation {}", mutation_name(mutation))?;
        }
        f.write_str(" --verbose")
    }
}

/// A planted bug's name on the command line.
#[must_use]
pub fn mutation_name(mutation: headpond_engine::Mutation) -> &'static str {
    let all = headpond_engine::Mutation::ALL;
    all.into_iter().find(|(_, known)| *known == mutation).map_or("unknown", |(name, _)| name)
}

/// Runs one seed against the real engine.
///
/// # Errors
/// The first broken promise.
pub fn run_seed(seed: u64, options: &Options) -> Result<HistorySums, Failure> {
    if options.uses {
        return uses::run(seed, options);
    }
    if options.hosts {
        return hosts::run(seed, options, options.planted_hosts);
    }
    if options.names {
        return names::run(seed, options, options.planted);
    }
    run::run(seed, options, &under_test::Real)
}
