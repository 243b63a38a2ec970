//! The file of an experiment: TOML that users copy and edit.
//!
//! Invariant: an unknown name, or a value that makes no sense, is an error with its place. It is never silently left
//! out.

use super::Software;
use crate::failure::{Failure, Result};
use headpond_format::Geometry;
use serde::{Deserialize, Serialize};

/// pgbench's loads: `simple-update` is what `pgbench -N` runs.
pub const PGBENCH_SCRIPTS: [&str; 3] = ["tpcb-like", "simple-update", "select-only"];

/// What makes the load.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Load {
    /// fio on a file, or on a whole device.
    Fio,
    /// sysbench's OLTP on a database.
    Oltp,
    /// A load by the rules of TPC-C on a database.
    Tpcc,
    /// PostgreSQL's own pgbench.
    Pgbench,
}

impl Load {
    /// Whether a database stands between the load and the storage.
    #[must_use]
    pub const fn on_database(self) -> bool {
        matches!(self, Self::Oltp | Self::Tpcc | Self::Pgbench)
    }
}

/// What goes along the axis of a curve.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Vary {
    /// Threads, or clients.
    Threads,
    /// Requests of one thread under way at once.
    Depth,
    /// The share of the space that is in use, in percent.
    Used,
    /// The size of a request, in KiB.
    Block,
}

impl Vary {
    /// For the axis.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Threads => "threads",
            Self::Depth => "requests at once",
            Self::Used => "space used, %",
            Self::Block => "request size, KiB",
        }
    }
}

/// One load, or one curve of loads.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// What it is called.
    pub name: String,
    /// fio: `read`, `write`, `randread`, `randwrite`, `rw` or `randrw`.
    pub rw: Option<String>,
    /// fio: the percentage of reads in a mixed load.
    pub reads: Option<u32>,
    /// fio: some addresses more often than others, by Zipf's law with this exponent. Without it all alike.
    pub zipf: Option<f64>,
    /// fio: the size of a request in KiB.
    pub block: Option<u32>,
    /// fio: requests of several sizes instead of `block`: of each its KiB and its share in percent, 100 in all.
    #[serde(default)]
    pub blocks: Vec<[u32; 2]>,
    /// fio: its engine, such as `psync`, `libaio` or `io_uring`.
    pub engine: Option<String>,
    /// fio: requests under way at once, of each thread.
    pub depth: Option<u32>,
    /// Threads of fio, clients of a database.
    pub threads: Option<u32>,
    /// An open loop: so many a second, due whatever became of those before. fio: of each thread, evenly, reads or
    /// writes alone. A database: transactions in all, at random moments. As many as it takes without.
    pub rate: Option<u32>,
    /// fio: each write is durable before it is answered (`O_DSYNC`), as those of a database's log.
    #[serde(default)]
    pub synced: bool,
    /// Seconds of each run that count, if not the experiment's.
    pub seconds: Option<u32>,
    /// Seconds of each run before that, if not the experiment's.
    pub warmup: Option<u32>,
    /// fio: how much of the data it works on, in MiB; all of it without.
    pub size: Option<u32>,
    /// sysbench: which of its loads, such as `oltp_read_write`. pgbench: `tpcb-like`, `simple-update` or `select-only`.
    pub script: Option<String>,
    /// What goes along the axis.
    pub vary: Option<Vary>,
    /// Its values.
    #[serde(default)]
    pub values: Vec<u32>,
}

/// The same target with other settings.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// What it is called.
    pub name: String,
    /// Settings of headpond, as for `headpond set`.
    #[serde(default)]
    pub headpond: Vec<String>,
    /// Options of the MariaDB server.
    #[serde(default)]
    pub mariadb: Vec<String>,
    /// Settings of the PostgreSQL server, `name=value`.
    #[serde(default)]
    pub postgres: Vec<String>,
    /// Whether everything dirty is flushed while the load runs.
    #[serde(default)]
    pub flush: bool,
    /// How many processors all of the side may use: the mount, the server and the load. All there are without.
    pub cores: Option<u32>,
    /// Whether it is for mounts of headpond only, because elsewhere no data would be safe with it.
    #[serde(default)]
    pub mount_only: bool,
    /// The variant of the same target that it is compared with; without it, the first side of all.
    pub against: Option<String>,
}

impl Variant {
    /// Options of that database's server.
    #[must_use]
    pub fn of_database(&self, software: Software) -> &[String] {
        match software {
            Software::Mariadb => &self.mariadb,
            Software::Postgres => &self.postgres,
        }
    }
}

/// What is dirty in the pool when a run begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dirty {
    /// MiB written at random through the mount, in requests of 16 KiB.
    pub written: u32,
    /// MiB of the file in which they lie: the more, the longer they take to be flushed.
    pub over: u32,
}

/// What a short form does instead.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quick {
    /// Seconds that count.
    pub seconds: u32,
    /// Seconds before that.
    pub warmup: u32,
    /// Runs of each side.
    pub repeats: u32,
    /// Seconds of a round, where the long form has rounds.
    pub round: Option<u32>,
    /// The data, in MiB.
    pub size: u32,
    /// The flash, in MiB; without it four times the data, and no more than the long form has.
    pub flash: Option<u32>,
    /// For every case with an axis: these of its values, where it has them.
    #[serde(default)]
    pub values: Vec<u32>,
    /// sysbench: rows of each table.
    pub rows: Option<u32>,
    /// pgbench: its scale.
    pub scale: Option<u32>,
    /// TPC-C: warehouses.
    pub warehouses: Option<u32>,
    /// TPC-C: items.
    pub items: Option<u32>,
    /// TPC-C: customers of each district.
    pub customers: Option<u32>,
}

/// The study's own sizes, where it had larger ones: for people with the hardware. What it does not name stays.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StudyScale {
    /// Seconds that count.
    pub seconds: Option<u32>,
    /// Seconds before that.
    pub warmup: Option<u32>,
    /// The data, in MiB.
    pub size: Option<u32>,
    /// The flash, in MiB.
    pub flash: Option<u32>,
    /// sysbench: tables.
    pub tables: Option<u32>,
    /// sysbench: rows of each table.
    pub rows: Option<u32>,
    /// TPC-C: warehouses.
    pub warehouses: Option<u32>,
    /// Databases: the server's own cache of pages, in MiB.
    pub buffer_pool: Option<u32>,
    /// Threads of each case without an axis.
    pub threads: Option<u32>,
    /// Requests at once of each case without an axis.
    pub depth: Option<u32>,
    /// The values of each case whose axis are threads.
    #[serde(default)]
    pub values: Vec<u32>,
}

/// An experiment.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    /// Its name on the command line.
    pub name: String,
    /// What it is, in a line.
    pub title: String,
    /// What it answers, and what to look at.
    pub question: String,
    /// Where it comes from.
    pub source: String,
    /// What makes the load.
    pub load: Load,
    /// Seconds of each run that count.
    pub seconds: u32,
    /// Seconds of each run before that, thrown away.
    pub warmup: u32,
    /// Runs of each side.
    pub repeats: u32,
    /// fio: seconds of a round. With it a run counts from where it has settled on, by its rounds, and what came before
    /// is its warm-up; `warmup` must be 0 then.
    pub round: Option<u32>,
    /// The data, in MiB. fio: a file, or of a device its first part.
    pub size: u32,
    /// The flash given to headpond where the lab makes it, in MiB.
    pub flash: u32,
    /// MB of writes that the lab's flash takes in a second; without it, as many as it can.
    pub write_limit: Option<u32>,
    /// sysbench: tables and rows of each.
    pub tables: Option<u32>,
    /// sysbench: rows of each table.
    pub rows: Option<u32>,
    /// Databases: which one.
    #[serde(default)]
    pub database: Software,
    /// TPC-C: warehouses, which decide how much data there is: about 100 MiB each.
    pub warehouses: Option<u32>,
    /// TPC-C: items; without it the standard's 100,000.
    pub items: Option<u32>,
    /// TPC-C: customers of each district; without it the standard's 3,000.
    pub customers: Option<u32>,
    /// pgbench: its scale, which decides how much data there is: about 15 MiB each.
    pub scale: Option<u32>,
    /// Databases: the server's own cache of pages, in MiB.
    pub buffer_pool: Option<u32>,
    /// Databases: whether the pool begins with all of the tables, as one that has served them for long.
    #[serde(default)]
    pub warm: bool,
    /// What is compared where the user names nothing.
    pub targets: Vec<String>,
    /// The loads.
    #[serde(rename = "case")]
    pub cases: Vec<Case>,
    /// The same on each target with other settings.
    #[serde(rename = "variant", default)]
    pub variants: Vec<Variant>,
    /// fio: what is made dirty in another file before each run; the data is read once after that, so that the load
    /// finds it on flash.
    pub dirty: Option<Dirty>,
    /// The short form.
    pub quick: Quick,
    /// The study's own sizes.
    pub study: Option<StudyScale>,
}

const SHIPPED: [(&str, &str); 26] = [
    ("fileio", include_str!("../../experiments/fileio.toml")),
    ("fill", include_str!("../../experiments/fill.toml")),
    ("steady", include_str!("../../experiments/steady.toml")),
    ("sweep", include_str!("../../experiments/sweep.toml")),
    ("profiles", include_str!("../../experiments/profiles.toml")),
    ("streams", include_str!("../../experiments/streams.toml")),
    ("oltp", include_str!("../../experiments/oltp.toml")),
    ("tpcc", include_str!("../../experiments/tpcc.toml")),
    ("tpcc-postgres", include_str!("../../experiments/tpcc-postgres.toml")),
    ("tpcc-memory", include_str!("../../experiments/tpcc-memory.toml")),
    ("warming", include_str!("../../experiments/warming.toml")),
    ("limit", include_str!("../../experiments/limit.toml")),
    ("rate", include_str!("../../experiments/rate.toml")),
    ("thresholds", include_str!("../../experiments/thresholds.toml")),
    ("dbconfig", include_str!("../../experiments/dbconfig.toml")),
    ("pace", include_str!("../../experiments/pace.toml")),
    ("flush", include_str!("../../experiments/flush.toml")),
    ("warm-zipf", include_str!("../../experiments/warm-zipf.toml")),
    ("cold-zipf", include_str!("../../experiments/cold-zipf.toml")),
    ("random-writes", include_str!("../../experiments/random-writes.toml")),
    ("untorn", include_str!("../../experiments/untorn.toml")),
    ("untorn-postgres", include_str!("../../experiments/untorn-postgres.toml")),
    ("untorn-tpcc", include_str!("../../experiments/untorn-tpcc.toml")),
    ("untorn-tpcc-postgres", include_str!("../../experiments/untorn-tpcc-postgres.toml")),
    ("compression", include_str!("../../experiments/compression.toml")),
    ("kernel-caches", include_str!("../../experiments/kernel-caches.toml")),
];

/// The experiments that come with headpond.
pub fn shipped() -> Result<Vec<Definition>> {
    SHIPPED.iter().map(|(name, text)| Definition::parse(text, name)).collect()
}

/// The file of a shipped experiment.
#[must_use]
pub fn shipped_text(name: &str) -> Option<&'static str> {
    SHIPPED.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

impl Definition {
    /// By the name of a shipped one, or by the path of a file.
    pub fn find(name: &str) -> Result<Self> {
        if let Some(text) = shipped_text(name) {
            return Self::parse(text, name);
        }
        let text = std::fs::read_to_string(name).map_err(|error| {
            let known = SHIPPED.map(|(name, _)| name).join(", ");
            Failure::Other(format!("'{name}' is neither a shipped experiment ({known}) nor a file: {error}"))
        })?;
        Self::parse(&text, name)
    }

    /// Reads a file's text; `place` is for messages.
    pub fn parse(text: &str, place: &str) -> Result<Self> {
        let definition: Self =
            toml::from_str(text).map_err(|error| Failure::Other(format!("experiment {place}: {error}")))?;
        definition.check().map_err(|what| Failure::Other(format!("experiment {place}: {what}")))?;
        Ok(definition)
    }

    /// What it is for a case that has times or a size of its own.
    #[must_use]
    pub fn of_case(&self, case: usize) -> Self {
        let mut own = self.clone();
        if let Some(case) = self.cases.get(case) {
            own.seconds = case.seconds.unwrap_or(self.seconds);
            own.warmup = case.warmup.unwrap_or(self.warmup);
            own.size = case.size.unwrap_or(self.size);
        }
        own
    }

    /// The short form. It limits no writes: it says nothing about speed, and works for everybody.
    #[must_use]
    pub fn quick(mut self) -> Self {
        self.write_limit = None;
        let quick = &self.quick;
        (self.seconds, self.warmup, self.repeats) = (quick.seconds, quick.warmup, quick.repeats);
        self.round = self.round.and(quick.round).or(self.round);
        if let Some(dirty) = &mut self.dirty {
            // In proportion to the data, as the flash of such an experiment should be too.
            let short = |mib: u32| (mib * quick.size / self.size).max(8);
            *dirty = Dirty { written: short(dirty.written), over: short(dirty.over) };
        }
        self.flash = quick.flash.unwrap_or_else(|| self.flash.min((quick.size * 4).max(128)));
        self.size = quick.size;
        self.rows = quick.rows.or(self.rows);
        self.scale = quick.scale.or(self.scale);
        self.warehouses = quick.warehouses.or(self.warehouses);
        self.items = quick.items.or(self.items);
        self.customers = quick.customers.or(self.customers);
        for case in &mut self.cases {
            (case.seconds, case.warmup, case.size) = (None, None, None);
        }
        for case in self.cases.iter_mut().filter(|case| case.vary.is_some()) {
            case.values.retain(|value| quick.values.contains(value));
        }
        self
    }

    /// The form with the study's own sizes.
    ///
    /// # Errors
    /// When the experiment has none.
    pub fn of_study(mut self) -> Result<Self> {
        let Some(study) = self.study.clone() else {
            return Err(Failure::Other(format!(
                "experiment '{}' has no study's sizes of its own: leave --scale out, or choose --size, --seconds and --warmup",
                self.name
            )));
        };
        self.seconds = study.seconds.unwrap_or(self.seconds);
        self.warmup = study.warmup.unwrap_or(self.warmup);
        self.size = study.size.unwrap_or(self.size);
        self.flash = study.flash.unwrap_or(self.flash);
        self.tables = study.tables.or(self.tables);
        self.rows = study.rows.or(self.rows);
        self.warehouses = study.warehouses.or(self.warehouses);
        self.buffer_pool = study.buffer_pool.or(self.buffer_pool);
        for case in &mut self.cases {
            (case.seconds, case.warmup, case.size) = (None, None, None);
            match case.vary {
                Some(Vary::Threads) if !study.values.is_empty() => {
                    case.values.clone_from(&study.values);
                    // Its short form has some of them, too.
                    self.quick.values.extend(&study.values);
                }
                Some(_) => {}
                None => {
                    case.threads = study.threads.or(case.threads);
                    case.depth = study.depth.or(case.depth);
                }
            }
        }
        Ok(self)
    }

    fn check(&self) -> std::result::Result<(), String> {
        if self.seconds < 1 || self.repeats < 1 || self.size < 8 || self.quick.seconds < 1 || self.quick.size < 8 {
            return Err("seconds and repeats must be at least 1, and size at least 8 (MiB)".to_owned());
        }
        for flash in [Some(self.flash), self.quick.flash].into_iter().flatten() {
            // As a mount asks it.
            Geometry::for_bytes(u64::from(flash) << 20).map_err(|error| format!("flash = {flash}: {error}"))?;
        }
        if self.cases.is_empty() || self.targets.is_empty() {
            return Err("there must be a [[case]], and a target".to_owned());
        }
        self.check_variants()?;
        self.check_round()?;
        if let Some(dirty) = &self.dirty {
            if self.load != Load::Fio || dirty.written < 8 || dirty.over < dirty.written {
                return Err("[dirty] is for load = \"fio\": written at least 8 (MiB), and over no less".to_owned());
            }
        } else if self.variants.iter().any(|variant| variant.flush) {
            return Err("flush = true needs something to flush: [dirty]".to_owned());
        }
        if self.load.on_database() && self.buffer_pool.is_none() {
            return Err("a database needs buffer_pool".to_owned());
        }
        if self.write_limit == Some(0) {
            return Err("a write_limit of 0 lets nothing through".to_owned());
        }
        if self.load == Load::Pgbench
            && (self.database != Software::Postgres || self.scale.is_none_or(|scale| scale < 1))
        {
            return Err("load = \"pgbench\" needs database = \"postgres\", and a scale of at least 1".to_owned());
        }
        if self.load == Load::Tpcc {
            self.check_tpcc()?;
        }
        for case in &self.cases {
            self.check_case(case).map_err(|what| format!("case '{}': {what}", case.name))?;
        }
        Ok(())
    }

    fn check_tpcc(&self) -> std::result::Result<(), String> {
        let warehouses = self.warehouses.unwrap_or(0);
        let mut customers = [self.customers, self.quick.customers].into_iter().flatten();
        if warehouses < 1 || customers.any(|customers| !(30..=3000).contains(&customers)) {
            return Err("load = \"tpcc\" needs warehouses, and customers between 30 and 3000 if any".to_owned());
        }
        // An order names up to fifteen items.
        if [self.items, self.quick.items].into_iter().flatten().any(|items| !(100..=100_000).contains(&items)) {
            return Err("items must be between 100 and 100000".to_owned());
        }
        Ok(())
    }

    fn check_round(&self) -> std::result::Result<(), String> {
        let long = self.round.map(|round| (round, self.warmup, self.seconds));
        let short = self.round.map(|round| (self.quick.round.unwrap_or(round), self.quick.warmup, self.quick.seconds));
        let rounds_min = headpond_measure::ROUNDS as u32;
        for (round, warmup, seconds) in [long, short].into_iter().flatten() {
            if self.load != Load::Fio || warmup > 0 || round < 1 || seconds < round * rounds_min {
                return Err(format!(
                    "round is for load = \"fio\" with warmup = 0, and seconds are at least {rounds_min} rounds"
                ));
            }
        }
        Ok(())
    }

    fn check_variants(&self) -> std::result::Result<(), String> {
        for variant in &self.variants {
            let known = |name: &String| self.variants.iter().any(|other| other.name == *name && other != variant);
            if variant.cores == Some(0) {
                return Err(format!("variant '{}': nothing runs on 0 cores", variant.name));
            }
            if let Some(unknown) = variant.against.as_ref().filter(|name| !known(name)) {
                return Err(format!("variant '{}': against = \"{unknown}\" is no other variant", variant.name));
            }
        }
        Ok(())
    }

    fn check_case(&self, case: &Case) -> std::result::Result<(), String> {
        if case.vary.is_some() == case.values.is_empty() {
            return Err("vary and values belong together".to_owned());
        }
        if case.vary.is_some() && !case.values.iter().any(|value| self.quick.values.contains(value)) {
            return Err("none of its values is in quick.values".to_owned());
        }
        if case.values.contains(&0) {
            return Err("a value of 0 is nothing".to_owned());
        }
        if case.vary == Some(Vary::Used) && case.values.iter().any(|value| *value > 100) {
            return Err("more than 100 % cannot be used".to_owned());
        }
        if case.seconds == Some(0) || case.size.is_some_and(|size| size < 8 || size > self.size) {
            return Err("its seconds are at least 1, and its size between 8 (MiB) and the experiment's".to_owned());
        }
        if self.round.is_some() && (case.seconds.is_some() || case.warmup.is_some()) {
            return Err("a case of an experiment with a round has no times of its own".to_owned());
        }
        if case.synced && (self.load != Load::Fio || case.rw.as_deref() != Some("write")) {
            return Err("synced = true is for fio with rw = \"write\"".to_owned());
        }
        match self.load {
            Load::Fio => {
                const KNOWN: [&str; 6] = ["read", "write", "randread", "randwrite", "rw", "randrw"];
                match &case.rw {
                    Some(rw) if KNOWN.contains(&rw.as_str()) => {}
                    _ => return Err(format!("rw must be one of {}", KNOWN.join(", "))),
                }
                if case.script.is_some() {
                    return Err("script is for load = \"oltp\"".to_owned());
                }
                let of_one_size = case.block.is_some() || case.vary == Some(Vary::Block);
                if case.blocks.is_empty() && !of_one_size {
                    return Err("block is missing".to_owned());
                }
                let shares: u32 = case.blocks.iter().map(|[_, share]| share).sum();
                if !case.blocks.is_empty()
                    && (of_one_size || shares != 100 || case.blocks.iter().any(|[kib, _]| *kib == 0))
                {
                    return Err("blocks stand instead of block: sizes of at least 1 (KiB), with shares of 100 in all"
                        .to_owned());
                }
                if case.zipf.is_some_and(|exponent| !(exponent > 0.0 && exponent != 1.0 && exponent < 10.0)) {
                    return Err("zipf is above 0, below 10, and not 1".to_owned());
                }
                // Of each direction fio keeps a schedule of its own.
                if case.rate.is_some() && matches!(case.rw.as_deref(), Some("rw" | "randrw")) {
                    return Err("a rate is for reads or writes alone".to_owned());
                }
            }
            Load::Oltp => {
                if self.tables.is_none() || self.rows.is_none() {
                    return Err("load = \"oltp\" needs tables and rows".to_owned());
                }
                if !case.script.as_deref().is_some_and(|script| script.starts_with("oltp_")) {
                    return Err("script must be one of sysbench's oltp_...".to_owned());
                }
            }
            Load::Pgbench => {
                if !case.script.as_deref().is_some_and(|script| PGBENCH_SCRIPTS.contains(&script)) {
                    return Err(format!("script must be one of {}", PGBENCH_SCRIPTS.join(", ")));
                }
            }
            Load::Tpcc => {
                if case.script.is_some() {
                    return Err("script is for load = \"oltp\"".to_owned());
                }
            }
        }
        if case.rate == Some(0) {
            return Err("a rate of 0 is nothing".to_owned());
        }
        if self.load.on_database()
            && (case.rw.is_some() || matches!(case.vary, Some(Vary::Depth | Vary::Block | Vary::Used)))
        {
            return Err("rw, and vary other than threads, are for load = \"fio\"".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shipped_file_is_whole_and_bears_its_name() {
        for ((name, _), definition) in SHIPPED.iter().zip(shipped().unwrap()) {
            assert_eq!(definition.name, *name);
            let quick = definition.clone().quick();
            assert!(quick.cases.iter().all(|case| case.vary.is_none() == case.values.is_empty()));
            let seconds = quick.seconds + quick.warmup;
            assert!(seconds <= if quick.round.is_some() { 20 } else { 5 }, "{name}: the short form is short");
            assert!(quick.repeats <= 4, "{name}");
            for flash in [definition.flash, quick.flash] {
                assert!(Geometry::for_bytes(u64::from(flash) << 20).is_ok(), "{name}: no mount takes {flash} MiB");
            }
            if let Ok(study) = definition.clone().of_study() {
                assert!(study.check().is_ok(), "{name}: {:?}", study.check());
                assert!(study.seconds >= definition.seconds && study.size >= definition.size, "{name}: no smaller");
            }
            // Fewer runs can never be significant: see the statistics.
            assert!(definition.repeats >= 4, "{name}");
        }
    }

    #[test]
    fn a_case_has_its_own_times_until_the_short_form() {
        let long = Definition::find("kernel-caches").unwrap();
        let of = |definition: &Definition, case| {
            let own = definition.of_case(case);
            (own.warmup, own.seconds, own.size)
        };
        assert_eq!(of(&long, 0), (240, 120, 1536));
        assert_eq!(of(&long, 1), (0, 180, 1536));
        assert_eq!(of(&long, 2), (60, 120, 1024));
        let quick = long.quick();
        assert!((0..4).all(|case| of(&quick, case) == (1, 2, 96)));
    }

    #[test]
    fn what_a_file_says_wrongly_is_told() {
        let good = shipped_text("fileio").unwrap();
        let wrong = |from: &str, to: &str| {
            assert!(good.contains(from), "{from}");
            Definition::parse(&good.replacen(from, to, 1), "mine.toml").expect_err(to).to_string()
        };
        assert!(wrong("warmup =", "warm-up =").contains("warm-up"));
        assert!(wrong("rw = \"randread\"", "rw = \"sideways\"").contains("randwrite"));
        assert!(wrong("block = 16", "").contains("block is missing"));
        let flush = shipped_text("flush").unwrap();
        let error =
            Definition::parse(&flush.replacen("[dirty]", "[dirt]", 1), "mine").expect_err("unknown").to_string();
        assert!(error.contains("dirt"), "{error}");
        let without = flush.replace("[dirty]\nwritten = 384\nover = 3072\n", "");
        assert!(Definition::parse(&without, "mine").expect_err("nothing to flush").to_string().contains("[dirty]"));
        let thresholds = shipped_text("thresholds").unwrap().replacen("against = \"1", "against = \"2", 1);
        assert!(Definition::parse(&thresholds, "mine").expect_err("no such").to_string().contains("no other variant"));
        let steady = shipped_text("steady").unwrap();
        for (from, to) in [("warmup = 0", "warmup = 5"), ("round = 60", "round = 600")] {
            let error = Definition::parse(&steady.replacen(from, to, 1), "mine").expect_err(to).to_string();
            assert!(error.contains("5 rounds"), "{error}");
        }
        let pace = shipped_text("pace").unwrap().replace("rw = \"randwrite\"", "rw = \"randrw\"");
        assert!(Definition::parse(&pace, "mine").expect_err("both").to_string().contains("reads or writes alone"));
        let caches = shipped_text("kernel-caches").unwrap();
        for (from, to, told) in [
            ("size = 1024", "size = 4096", "the experiment's"),
            ("seconds = 180", "seconds = 0", "at least 1"),
            ("rw = \"write\"", "rw = \"read\"", "synced"),
        ] {
            let error = Definition::parse(&caches.replacen(from, to, 1), "mine").expect_err(to).to_string();
            assert!(error.contains(told), "{error}");
        }
        let error = Definition::find("no-such-file").expect_err("there is none").to_string();
        assert!(error.contains("fileio") && error.contains("no-such-file"), "{error}");
    }
}
