//! The loss of a device is unseen: a database works on a mount over two devices, or three with parity, one of which is
//! pulled, replaced, and made up for, again and again. Now and then the process that serves is killed while one is
//! missing.
//!
//! Invariants:
//! - The next device is pulled once `headpond pool wait` says that all dirty data has its copies, and the pool is
//!   `ONLINE` then.
//! - With parity, a row was made since the last device came, and a checkpoint after it: so the row counts, and has no
//!   second copies any more.
//! - A device that was pulled is never used again.

use crate::database_on_mount::{DatabaseOnMount, POOL};
use crate::failure::{Failure, Result};
use crate::kind::Kind;
use crate::loaded_database::{Look, disturb, watch};
use crate::pond::{Headpond, Mount};
use crate::random::below;
use serde_json::Value;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long anything may take, on a slow and busy machine, before it counts as stuck.
const STUCK: Duration = Duration::from_secs(120);
/// How often a wait looks.
const LOOK: Duration = Duration::from_millis(20);
/// The ways to lose a device: it is gone; it takes no more writes; its syncs fail.
const WAYS: [&str; 3] = ["cut", "write-errors=0", "sync-errors=0"];
/// The size of each of three devices. They are small, so that the second copies of rows are given up soon.
const SMALL_POOL: &str = "64M";
/// At each such pull the worker is killed, too.
const KILLED_AT: u32 = 3;

/// What is to be done.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The database.
    pub kind: Kind,
    /// How many devices are pulled.
    pub pulls: u32,
    /// Three devices, and full segments have a parity instead of a second copy.
    pub parity: bool,
    /// Decides which, and when.
    pub seed: u64,
}

/// What was done, and seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PulledDevices {
    /// Devices that were pulled.
    pub pulls: u32,
    /// Workers that were killed while one was missing.
    pub kills: u64,
    /// Transactions of the clients.
    pub transactions: u64,
    /// The longest that a client waited for one.
    pub longest: Duration,
    /// The longest from a loss to the moment when all dirty data had its copies again.
    pub whole_after: Duration,
    /// With parity: what came of it.
    pub rows: Option<Rows>,
}

/// What came of rows with a parity.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rows {
    /// Rows that were made between pulls.
    pub made: u64,
    /// Reads that came out of rows, from a pull until all had its copies again.
    pub reads: u64,
}

impl fmt::Display for PulledDevices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pulls, kills, transactions, .. } = self;
        write!(
            f,
            "{pulls} devices pulled, {kills} kills meanwhile, {transactions} transactions, none lost or torn, no error; "
        )?;
        let [longest, whole] = [self.longest, self.whole_after].map(|time| time.as_secs_f64());
        write!(f, "the longest took {longest:.2} s, and all had its copies again after {whole:.2} s at most")?;
        match self.rows {
            Some(Rows { made, reads }) => write!(f, "; {made} rows were made, and {reads} reads came out of rows"),
            None => Ok(()),
        }
    }
}

/// Runs it in `directory`. At the end everything is brought to the origin, and the same is found there without
/// headpond.
pub fn run(headpond: &Headpond, directory: &Path, options: &Options) -> Result<PulledDevices> {
    let mut place = DatabaseOnMount::make(directory, directory, options.kind)?;
    let (others, size) = if options.parity { (2, SMALL_POOL) } else { (1, POOL) };
    place.mounting.others = (0..others).map(|other| directory.join(format!("other-{other}.pond"))).collect();
    place.mounting.redundancy = options.parity.then_some("parity");
    place.mounting.size = Some(size.to_owned());
    place.mounting.fault = Some("none".to_owned());
    let devices = [&place.mounting.flash].into_iter().chain(&place.mounting.others).cloned().collect();
    let pull = |mount: &Mount, look: Look<'_>| {
        let random = options.seed;
        let rows = options.parity.then(Rows::default);
        let (kills, whole_after) = (0, Duration::ZERO);
        let mut puller = Puller { mount, directory, devices, size, random, kills, whole_after, rows };
        (0..options.pulls).try_for_each(|number| puller.pull(number, look))?;
        Ok((puller.kills, puller.whole_after, puller.rows))
    };
    let whole = |mount: &Mount, (kills, _, rows): &(u64, Duration, Option<Rows>)| {
        let takeovers = mount.lives()?.takeovers;
        if takeovers != *kills {
            return Err(failed(format!("{takeovers} workers ended, and {kills} were killed")));
        }
        match rows {
            Some(Rows { reads: 0, made }) => {
                Err(failed(format!("{made} rows were made, and nothing was read of them")))
            }
            _ => Ok(()),
        }
    };
    let ((kills, whole_after, rows), served) = disturb(headpond, &place, pull, whole)?;
    let (transactions, longest) = (served.transactions, served.longest);
    Ok(PulledDevices { pulls: options.pulls, kills, transactions, longest, whole_after, rows })
}

struct Puller<'a> {
    mount: &'a Mount,
    directory: &'a Path,
    /// Those that work.
    devices: Vec<PathBuf>,
    /// The size of each.
    size: &'static str,
    random: u64,
    kills: u64,
    whole_after: Duration,
    rows: Option<Rows>,
}

impl Puller<'_> {
    /// Pulls a device, and puts another one in its place.
    fn pull(&mut self, number: u32, look: Look<'_>) -> Result<()> {
        self.wait_for_row(look)?;
        watch(Duration::from_millis(200 + below(&mut self.random, 1000)), look)?;
        let devices = self.devices.len() as u64;
        let place = usize::try_from(below(&mut self.random, devices)).expect("one of a few");
        let old = self.devices[place].clone();
        let way = WAYS[number as usize % WAYS.len()];
        let mut read_before = self.read_of_rows()?;
        let lost = Instant::now();
        self.mount.fault(&old, way)?;
        self.until(look, "the loss is noticed", |mount| Ok(mount.device_state(&old)? == "FAULTED"))?;
        if number % KILLED_AT == KILLED_AT - 1 {
            self.count_reads(read_before)?;
            self.kill(look)?;
            // The next worker counts from 0.
            read_before = 0;
        }
        let new = self.directory.join(format!("flash-{}.pond", number + 1));
        self.mount.replace_device(&old, &new, self.size)?;
        let log = self.directory.join(format!("pool-wait-{number}.log"));
        let mut whole = self.mount.begin_pool_wait(&log)?;
        while whole.is_running() {
            watch(LOOK, look)?;
            if lost.elapsed() > STUCK {
                return Err(failed(format!("after pull {number} dirty data still lacks copies")));
            }
        }
        whole.wait_for_end(STUCK)?;
        self.whole_after = self.whole_after.max(lost.elapsed());
        self.count_reads(read_before)?;
        is_whole(&log)?;
        self.devices[place] = new;
        std::fs::remove_file(&old).map_err(Failure::io(format!("removing {}", old.display())))
    }

    /// With parity: waits until a row is made from here on, and counts.
    fn wait_for_row(&mut self, look: Look<'_>) -> Result<()> {
        let Some(rows) = self.rows else { return Ok(()) };
        let numbers = |mount: &Mount| mount.numbers(["parity_rows_total", "checkpoints_total"]);
        let [made_before, _] = numbers(self.mount)?;
        self.until(look, "a row is made", |mount| Ok(numbers(mount)?[0] > made_before))?;
        // One that was under way may have begun before the row was there.
        let [_, checkpoints] = numbers(self.mount)?;
        self.until(look, "a row counts", |mount| Ok(numbers(mount)?[1] > checkpoints + 1))?;
        let made = rows.made + numbers(self.mount)?[0] - made_before;
        self.rows = Some(Rows { made, ..rows });
        Ok(())
    }

    /// How many reads came out of rows, as the worker counts.
    fn read_of_rows(&self) -> Result<u64> {
        let [reads] = self.mount.numbers(["parity_reads_total"])?;
        Ok(reads)
    }

    /// Counts the reads that came out of rows since there were so many.
    fn count_reads(&mut self, before: u64) -> Result<()> {
        let reads = self.read_of_rows()? - before;
        if let Some(rows) = &mut self.rows {
            rows.reads += reads;
        }
        Ok(())
    }

    fn kill(&mut self, look: Look<'_>) -> Result<()> {
        if self.mount.kill_worker().is_none() {
            return Err(failed("there is no worker to kill".to_owned()));
        }
        self.kills += 1;
        let due = self.kills;
        self.until(look, "another worker serves", |mount| Ok(mount.lives()?.takeovers == due))
    }

    /// Waits. An answer that does not come is asked for again: a worker may be about to take over.
    fn until(&self, look: Look<'_>, what: &str, is_so: impl Fn(&Mount) -> Result<bool>) -> Result<()> {
        let start = Instant::now();
        loop {
            match is_so(self.mount) {
                Ok(true) => return Ok(()),
                Err(failure) if start.elapsed() > STUCK => return Err(failure),
                Ok(false) if start.elapsed() > STUCK => {
                    return Err(failed(format!("it does not come to this: {what}")));
                }
                Ok(false) | Err(_) => watch(LOOK, look)?,
            }
        }
    }
}

/// That a pool had all it should have when a wait for that ended, by what the wait has told.
fn is_whole(told: &Path) -> Result<()> {
    let text = std::fs::read_to_string(told).map_err(Failure::io(format!("reading {}", told.display())))?;
    let pool: Value = serde_json::from_str(&text).unwrap_or_default();
    if pool["state"] == "ONLINE" && pool["exposed_bytes"] == 0 {
        return Ok(());
    }
    Err(failed(format!("a wait for the pool has ended, and it is not whole:\n{text}")))
}

const fn failed(what: String) -> Failure {
    Failure::Other(what)
}
