//! The kill test: a database on a mount under load. The daemon is killed at a random moment, again and again. No
//! commit that a client saw may be missing afterwards.
//!
//! A kill leaves the kernel and the flash alone, so by itself it loses nothing that was written. In some rounds the
//! flash also loses unsynced writes ([`FlashAtKill::LosesUnsynced`]). For the log these are as bad as a power cut.
//!
//! It does not show power cuts of the origin: the origin's kernel keeps what it got. The simulator tests those.

use crate::command;
use crate::database::{Database, Pages};
use crate::database_on_mount::DatabaseOnMount;
use crate::failure::Result;
use crate::kind::Kind;
use crate::ledger::{LedgerFound, Ledgers};
use crate::pond::{Headpond, Mount};
use crate::random::{below, next};
use std::path::Path;
use std::time::{Duration, Instant};

/// Clients that keep a ledger.
const CLIENTS: u32 = 4;
/// The kill comes between these two after the load began.
const EARLIEST: Duration = Duration::from_millis(200);
const LATEST: Duration = Duration::from_millis(2500);
/// The same where there are many rounds.
const LATEST_SHORT: Duration = Duration::from_millis(900);
/// A kill while the daemon starts again comes at most so long after its start.
const RESTART: Duration = Duration::from_millis(200);

/// The modelled disk of a slow origin.
const SLOW_ORIGIN: &str = "hdd-7200";

/// How the flash behaves when the daemon is killed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum FlashAtKill {
    /// As files do: what was written stays.
    Keeps,
    /// What was not synced is lost; some of it got there all the same, in no order, some of that torn.
    LosesUnsynced,
    /// The first, third, fifth... kill loses what was not synced.
    EveryOtherLoses,
    /// Syncs are acknowledged and not carried out. The test must fail on it, or it tests nothing.
    Lies,
}

impl FlashAtKill {
    /// In the words of `headpond mount --test-fault`.
    pub(crate) fn fault(self, round: u32, random: &mut u64) -> Option<String> {
        let seed = next(random) >> 32;
        let loses = match self {
            Self::Keeps => false,
            Self::LosesUnsynced => true,
            Self::EveryOtherLoses => round.is_multiple_of(2),
            Self::Lies => return Some(format!("lying-syncs,seed={seed}")),
        };
        loses.then(|| format!("lose-unsynced,early=300,torn=300,seed={seed}"))
    }
}

/// What a kill test is to do.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// With which database.
    pub kind: Kind,
    /// How many kills.
    pub rounds: u32,
    /// Decides the moments of the kills, and what the flash loses.
    pub seed: u64,
    /// What a kill does to the flash.
    pub flash: FlashAtKill,
    /// Whether the origin is as slow as a hard disk: more is dirty at a kill, and destage is half-way.
    pub slow_origin: bool,
    /// Whether rounds are short, for many of them: the load is killed sooner.
    pub short: bool,
}

/// What a round showed.
#[derive(Clone, Debug)]
pub struct Round {
    /// When the daemon was killed, after the load began.
    pub killed_after: Duration,
    /// What was wrong with the flash.
    pub fault: Option<String>,
    /// Transactions that clients saw committed in this round.
    pub committed: u64,
    /// How often it was killed again while it started, before it was left alone.
    pub killed_starting: u64,
    /// What was found of all rounds so far.
    pub found: LedgerFound,
    /// Tables and indexes that passed the database's own checks.
    pub checked: usize,
    /// What the server had written just before the kill, if it is one that writes each page once.
    pub pages: Option<Pages>,
}

/// Runs the rounds in `directory`, and tells `each` about every one that was survived. At the end
/// everything is brought to the origin, and the same is found there without headpond.
pub fn run(headpond: &Headpond, directory: &Path, options: &Options, each: impl FnMut(&Round)) -> Result<()> {
    run_on(headpond, directory, directory, options, each)
}

/// The same with the origin on the storage at another directory.
pub fn run_on(
    headpond: &Headpond,
    storage: &Path,
    directory: &Path,
    options: &Options,
    mut each: impl FnMut(&Round),
) -> Result<()> {
    let mut place = DatabaseOnMount::make(storage, directory, options.kind)?;
    place.mounting.model_disk = options.slow_origin.then(|| SLOW_ORIGIN.to_owned());
    let ledgers = Ledgers::new(place.ledgers.clone(), CLIENTS);
    let mut random = options.seed;
    place.install(headpond, &ledgers, settings(options.flash))?;
    place.mounting.fault = options.flash.fault(0, &mut random);
    let (mut mount, mut database) = place.start(headpond)?;
    for round in 0..options.rounds {
        let fault = place.mounting.fault.clone();
        let Killed { after: killed_after, committed, pages } =
            load_and_kill(&place, mount, database, &ledgers, options.short, &mut random)?;
        place.mounting.fault = options.flash.fault(round + 1, &mut random);
        let killed_starting = below(&mut random, 3);
        for _ in 0..killed_starting {
            let after = RESTART.mul_f64(below(&mut random, 1000) as f64 / 1000.0);
            headpond.kill_while_mounting(&place.mounting, after)?;
        }
        (mount, database) = place.start(headpond)?;
        let checked = database.check()?;
        let found = ledgers.verify(&*database)?;
        each(&Round { killed_after, fault, committed, killed_starting, found, checked, pages });
    }
    database.stop()?;
    mount.unmount()?;
    place.verify_without_headpond(&ledgers).map(drop)
}

/// What the mount is set to while the database is made.
fn settings(flash: FlashAtKill) -> &'static [&'static str] {
    match flash {
        // What reached the origin meanwhile would be missing in the pool, and the next mount refused for it: here it
        // is the ledgers that must find the loss.
        FlashAtKill::Lies => &["flush-period=off"],
        _ => &[],
    }
}

/// What a load came to before its mount was killed.
struct Killed {
    /// When, after it began.
    after: Duration,
    /// Transactions that clients saw committed.
    committed: u64,
    pages: Option<Pages>,
}

/// Loads the database until the daemon is killed under it.
fn load_and_kill(
    place: &DatabaseOnMount,
    mount: Mount,
    database: Box<dyn Database>,
    ledgers: &Ledgers,
    short: bool,
    random: &mut u64,
) -> Result<Killed> {
    let clients = ledgers.start(&*database)?;
    let mut load = database.load(&place.places())?;
    clients.wait_for(1)?;
    let start = Instant::now();
    let latest = if short { LATEST_SHORT } else { LATEST };
    let after = EARLIEST + Duration::from_millis(next(random) % (latest - EARLIEST).as_millis() as u64);
    std::thread::sleep(after);
    let pages = database.pages()?;
    let killed_after = start.elapsed();
    mount.kill();
    // The server has lost its disk. It may notice or hang; either way it is gone now.
    database.kill();
    load.kill();
    Ok(Killed { after: killed_after, committed: clients.join()?, pages })
}

/// What this machine lacks for a kill test of that kind, if anything.
#[must_use]
pub fn missing(kind: Kind) -> Option<String> {
    let mut missing = kind.missing();
    missing.extend(command::lacking(&["fusermount3"]));
    if !Path::new("/dev/fuse").exists() {
        missing.push("/dev/fuse".to_owned());
    }
    (!missing.is_empty()).then(|| missing.join(", "))
}
