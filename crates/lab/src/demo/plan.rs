//! The steps of the demo with their settings, and how long each should take.

use crate::failure::{Failure, Result};
use crate::mariadb::MariadbSettings;
use crate::statistics::WINDOW_SECONDS;
use crate::sysbench::Load;
use clap::Args;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// InnoDB's buffer pool of both sides. Small, so that the demo measures storage.
const BUFFER_POOL_MIB: u32 = 64;
/// InnoDB's redo log of both sides: large enough not to force a checkpoint within a run.
const REDO_LOG_MIB: u32 = 256;
/// 4 x 750,000 rows are 704 MiB of tables: eleven times the buffer pool.
const TABLES: u32 = 4;
const ROWS: u32 = 750_000;
/// What those rows take on disk.
pub const TABLES_MIB: u32 = 704;
const THREADS: u32 = 8;
/// A buffer pool that holds all tables, for the steps that are not measured.
const ALL_MIB: u32 = 1024;
/// Seconds of each run that count, unless said otherwise.
pub const SECONDS: u32 = 60;
/// Seconds of each run before that.
pub const WARMUP: u32 = 40;
/// The same for a first look.
pub const QUICK: (u32, u32) = (2 * WINDOW_SECONDS as u32, 5);
/// The flash that is given to headpond with the modelled disk.
pub const FLASH_SIZE: &str = "2G";

/// What the user may choose that other experiments do not have.
#[derive(Args, Debug)]
#[command(next_help_heading = "Only for the demo")]
pub struct Extras {
    /// Your own slow directory, instead of the modelled 7,200 rpm disk. The demo works in a new directory inside it
    #[arg(long, value_name = "DIR", requires = "flash")]
    origin: Option<PathBuf>,
    /// Your own flash: a directory, a new file, or a device for headpond to use
    #[arg(long, value_name = "PATH", requires = "origin")]
    flash: Option<PathBuf>,
    /// Where to write the page [default: oltp.html or kill.html beside the results]
    #[arg(long, value_name = "FILE", overrides_with = "page")]
    page: Option<PathBuf>,
    /// Keep the data, the flash file and the logs
    #[arg(long)]
    keep: bool,
    /// Show headpond only, with the process that serves killed every five seconds
    #[arg(long)]
    kill: bool,
    /// Run both sides on plain directories, to try out the demo itself
    #[arg(long, hide = true, conflicts_with_all = ["origin", "kill"])]
    rehearse: bool,
    /// Seconds that the set-up took, told by the script
    #[arg(long, hide = true, default_value_t = 0)]
    elapsed: u64,
}

impl Extras {
    /// The first of them that was given, as it is typed.
    #[must_use]
    pub fn given(&self) -> Option<&'static str> {
        let all = [
            ("--origin", self.origin.is_some()),
            ("--flash", self.flash.is_some()),
            ("--page", self.page.is_some()),
            ("--keep", self.keep),
            ("--kill", self.kill),
            ("--rehearse", self.rehearse),
        ];
        all.into_iter().find_map(|(name, given)| given.then_some(name))
    }

    /// The choices of a demo. `directory` is that of the results.
    #[must_use]
    pub fn options(&self, seconds: u32, warmup: u32, scratch: &Path, directory: &Path) -> Options {
        Options {
            origin: self.origin.clone(),
            flash: self.flash.clone(),
            seconds,
            warmup,
            page: self
                .page
                .clone()
                .unwrap_or_else(|| directory.join(if self.kill { "kill.html" } else { "oltp.html" })),
            scratch: scratch.to_path_buf(),
            keep: self.keep,
            kill: self.kill,
            rehearse: self.rehearse,
            elapsed: self.elapsed,
        }
    }
}

/// What was chosen.
#[derive(Debug)]
pub struct Options {
    /// The user's slow directory, instead of the modelled disk.
    pub origin: Option<PathBuf>,
    /// The user's flash.
    pub flash: Option<PathBuf>,
    /// Seconds of each run that count.
    pub seconds: u32,
    /// Seconds of each run before that, which do not count.
    pub warmup: u32,
    /// Where the page goes.
    pub page: PathBuf,
    /// Where the scratch directory is made; about 4 GB are used.
    pub scratch: PathBuf,
    /// Leave everything behind.
    pub keep: bool,
    /// Show headpond only, and kill the process that serves.
    pub kill: bool,
    /// Run both sides on plain directories.
    pub rehearse: bool,
    /// Seconds that the set-up took.
    pub elapsed: u64,
}

/// The parts of the demo, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Making and filling the tables.
    Load,
    /// A fresh copy of them on the origin.
    CopyWithout,
    /// The load without headpond.
    RunWithout,
    /// A fresh copy again.
    CopyWith,
    /// The load with headpond.
    RunWith,
    /// Writing everything to the origin, and looking at it there.
    Return,
}

impl Step {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Load, Self::CopyWithout, Self::RunWithout, Self::CopyWith, Self::RunWith, Self::Return];

    /// Those with headpond only.
    const WITH: [Self; 4] = [Self::Load, Self::CopyWith, Self::RunWith, Self::Return];

    /// What is said while it goes on.
    pub fn title(self) -> &'static str {
        match self {
            Self::Load => "loading the tables",
            Self::CopyWithout => "copying them to the origin",
            Self::RunWithout => "the load without headpond",
            Self::CopyWith => "copying the same tables to the origin again",
            Self::RunWith => "the load with headpond in front",
            Self::Return => "writing back, unmounting, checking the origin alone",
        }
    }
}

/// The settings of a demo.
pub struct Plan {
    /// The load.
    pub load: Load,
    /// The server under it, on both sides.
    pub settings: MariadbSettings,
    /// The server that loads the tables, in a hurry.
    pub loading: MariadbSettings,
    /// The server that checks the tables, with room for all of them.
    pub checking: MariadbSettings,
    /// Seconds of each run that do not count.
    pub warmup: u32,
    /// Seconds of each run that count.
    pub seconds: u32,
    /// What is done.
    pub steps: &'static [Step],
}

impl Plan {
    /// The plan for what the user chose.
    pub fn of(options: &Options) -> Result<Self> {
        let least = WINDOW_SECONDS as u32 * 2;
        if options.seconds < least {
            return Err(Failure::Other(format!(
                "--seconds {}: at least {least} are needed for two averages of {WINDOW_SECONDS} s",
                options.seconds
            )));
        }
        let plan = Self::lasting(options.seconds, options.warmup);
        Ok(if options.kill { Self { steps: &Step::WITH, ..plan } } else { plan })
    }

    /// The plan for runs with so many seconds that count, and so many of warm-up.
    pub fn lasting(seconds: u32, warmup: u32) -> Self {
        Self {
            load: Load { tables: TABLES, rows: ROWS, threads: THREADS },
            settings: MariadbSettings {
                buffer_pool_mib: BUFFER_POOL_MIB,
                redo_log_mib: REDO_LOG_MIB,
                durable: true,
                more: Vec::new(),
            },
            loading: MariadbSettings {
                buffer_pool_mib: ALL_MIB,
                redo_log_mib: REDO_LOG_MIB,
                durable: false,
                more: Vec::new(),
            },
            checking: MariadbSettings {
                buffer_pool_mib: ALL_MIB,
                redo_log_mib: REDO_LOG_MIB,
                durable: true,
                more: Vec::new(),
            },
            warmup,
            seconds,
            steps: &Step::ALL,
        }
    }

    /// How long all of it should take.
    pub fn expected_in_all(&self) -> Duration {
        self.steps.iter().map(|step| self.expected(*step)).sum()
    }

    /// How long a step should take, as seen on two cores.
    pub fn expected(&self, step: Step) -> Duration {
        let run = u64::from(self.warmup + self.seconds) + 10;
        Duration::from_secs(match step {
            Step::Load => 25,
            Step::CopyWithout | Step::CopyWith => 8,
            Step::RunWithout | Step::RunWith => run,
            Step::Return => 45,
        })
    }

    /// What is said at the start.
    pub fn introduction(&self, storage: &str) -> String {
        let minutes = self.expected_in_all().as_secs().div_ceil(60);
        format!(
            "MariaDB with a {} MiB buffer pool and {TABLES_MIB} MiB of tables, sysbench oltp_read_write with {} clients,\n\
             {} s of warm-up and {} s that count on each side: about {minutes} minutes.\n{storage}\n",
            self.settings.buffer_pool_mib, self.load.threads, self.warmup, self.seconds
        )
    }
}
