//! The death of the process that serves is unseen: databases, fsx and pjdfstest work on a mount while its worker is
//! killed, again and again, and none of them meets an error.
//!
//! Invariants:
//! - Nothing is started again but the worker, and that by the holder alone. The holder is the same at the end.
//! - `headpond status` counts as many take-overs as workers were killed or replaced. So none died by itself.
//! - A pause is measured, and decides nothing, up to a limit that only something stuck reaches.

mod databases;
mod file_programs;
mod killer;
mod large_map;

use crate::command;
use crate::failure::{Failure, Result};
use crate::kind::Kind;
use crate::pond::Headpond;
use crate::{fsx, kill, pjdfstest};
use clap::ValueEnum;
pub use killer::Pace;
pub use large_map::{Stalls, run as measure_stalls};
use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

/// What works on the mount.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// A database under its clients and a load.
    Database(Kind),
    /// fsx, on a file for each of its shapes.
    Fsx,
    /// pjdfstest, compared with the origin's own file system.
    Pjdfstest,
}

impl Work {
    /// All of it.
    #[must_use]
    pub fn all() -> Vec<Self> {
        Kind::ALL.into_iter().map(Self::Database).chain([Self::Fsx, Self::Pjdfstest]).collect()
    }

    /// For people to read.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Database(kind) => kind.name(),
            Self::Fsx => "fsx",
            Self::Pjdfstest => "pjdfstest",
        }
    }

    /// What this machine lacks to try it.
    #[must_use]
    pub fn missing(self) -> Option<String> {
        let program = match self {
            Self::Database(kind) => return kill::missing(kind),
            Self::Fsx => fsx::missing(),
            Self::Pjdfstest => pjdfstest::missing(),
        };
        let mut missing: Vec<String> = program.into_iter().collect();
        missing.extend(command::lacking(&["fusermount3"]));
        (!missing.is_empty()).then(|| missing.join(", "))
    }
}

impl FromStr for Work {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "fsx" => Ok(Self::Fsx),
            "pjdfstest" => Ok(Self::Pjdfstest),
            _ => Kind::from_str(text, false).map(Self::Database).map_err(|_| {
                let kinds = Kind::value_variants().iter().filter_map(ValueEnum::to_possible_value);
                let kinds: Vec<_> = kinds.map(|kind| kind.get_name().to_owned()).collect();
                format!("it is none of {}, fsx, pjdfstest", kinds.join(", "))
            }),
        }
    }
}

/// What is to be done.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// What works meanwhile.
    pub work: Work,
    /// How many workers are killed.
    pub kills: u32,
    /// When.
    pub pace: Pace,
    /// Decides the moments.
    pub seed: u64,
    /// Nothing is killed or replaced, in the same time: what the load waits for by itself.
    pub spares: bool,
}

/// What was done, and seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pauses {
    /// Workers that were killed.
    pub kills: u64,
    /// Of these, so many during an upgrade.
    pub during_upgrades: u64,
    /// Workers that were replaced by `headpond upgrade`.
    pub upgrades: u64,
    /// What came to its end meanwhile.
    pub done: Finished,
    /// The longest that a client waited for a transaction; none where no client was asked.
    pub longest: Option<Duration>,
}

/// What came to its end meanwhile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Finished {
    /// Transactions of the clients that keep ledgers.
    Transactions(u64),
    /// Operations of fsx.
    Operations(u64),
    /// Tests of pjdfstest that passed.
    Tests(u64),
}

impl fmt::Display for Pauses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (done, unit) = match self.done {
            Finished::Transactions(done) => (done, "transactions, none lost or torn"),
            Finished::Operations(done) => (done, "operations"),
            Finished::Tests(done) => (done, "tests passed"),
        };
        let counted = |count: u64, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
        let (kills, upgrades) = (counted(self.kills, "kill"), counted(self.upgrades, "upgrade"));
        let during = self.during_upgrades;
        write!(f, "{kills} ({during} during an upgrade), {upgrades}, {done} {unit}, no error")?;
        self.longest.map_or(Ok(()), |longest| write!(f, "; the longest took {:.2} s", longest.as_secs_f64()))
    }
}

/// Runs it in `directory`. At the end everything is brought to the origin, and the same is found there without
/// headpond.
pub fn run(headpond: &Headpond, directory: &Path, options: &Options) -> Result<Pauses> {
    match options.work {
        Work::Database(kind) => databases::run(headpond, directory, kind, options),
        Work::Fsx => file_programs::run_fsx(headpond, directory, options),
        Work::Pjdfstest => file_programs::run_pjdfstest(headpond, directory, options),
    }
}

fn failed(what: impl Into<String>) -> Failure {
    Failure::Other(what.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_work_is_named_on_the_command_line() {
        assert_eq!("fsx".parse(), Ok(Work::Fsx));
        assert_eq!("sqlite-wal".parse(), Ok(Work::Database(Kind::SqliteWal)));
        let refused = "oracle".parse::<Work>().expect_err("there is none");
        assert!(refused.contains("mariadb-whole") && refused.contains("pjdfstest"), "{refused}");
    }
}
