//! The loss of a device is unseen: a database works on a mount over two devices, one of which is pulled, replaced, and
//! made up for, again and again. Now and then the process that serves is killed while one is missing.
//!
//! Invariants:
//! - The next device is pulled once `headpond pool wait` says that all dirty data has its copies.
//! - A device that was pulled is never used again.

use crate::database_on_mount::{DatabaseOnMount, POOL};
use crate::failure::{Failure, Result};
use crate::kind::Kind;
use crate::loaded_database::{Look, disturb, watch};
use crate::pond::{Headpond, Mount};
use crate::random::below;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long anything may take, on a slow and busy machine, before it counts as stuck.
const STUCK: Duration = Duration::from_secs(120);
/// How often a wait looks.
const LOOK: Duration = Duration::from_millis(20);
/// The ways to lose a device: it is gone; it takes no more writes; its syncs fail.
const WAYS: [&str; 3] = ["cut", "write-errors=0", "sync-errors=0"];
/// At each such pull the worker is killed, too.
const KILLED_AT: u32 = 3;

/// What is to be done.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The database.
    pub kind: Kind,
    /// How many devices are pulled.
    pub pulls: u32,
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
}

impl fmt::Display for PulledDevices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pulls, kills, transactions, .. } = self;
        write!(
            f,
            "{pulls} devices pulled, {kills} kills meanwhile, {transactions} transactions, none lost or torn, no error; "
        )?;
        let [longest, whole] = [self.longest, self.whole_after].map(|time| time.as_secs_f64());
        write!(f, "the longest took {longest:.2} s, and all had its copies again after {whole:.2} s at most")
    }
}

/// Runs it in `directory`. At the end everything is brought to the origin, and the same is found there without
/// headpond.
pub fn run(headpond: &Headpond, directory: &Path, options: &Options) -> Result<PulledDevices> {
    let mut place = DatabaseOnMount::make(directory, directory, options.kind)?;
    place.mounting.others = vec![directory.join("flash-0.pond")];
    place.mounting.fault = Some("none".to_owned());
    let devices = vec![place.mounting.flash.clone(), place.mounting.others[0].clone()];
    let pull = |mount: &Mount, look: Look<'_>| {
        let mut puller =
            Puller { mount, directory, devices, random: options.seed, kills: 0, whole_after: Duration::ZERO };
        (0..options.pulls).try_for_each(|number| puller.pull(number, look))?;
        Ok((puller.kills, puller.whole_after))
    };
    let whole = |mount: &Mount, (kills, _): &(u64, Duration)| {
        let takeovers = mount.lives()?.takeovers;
        if takeovers == *kills {
            Ok(())
        } else {
            Err(failed(format!("{takeovers} workers ended, and {kills} were killed")))
        }
    };
    let ((kills, whole_after), served) = disturb(headpond, &place, pull, whole)?;
    let (transactions, longest) = (served.transactions, served.longest);
    Ok(PulledDevices { pulls: options.pulls, kills, transactions, longest, whole_after })
}

struct Puller<'a> {
    mount: &'a Mount,
    directory: &'a Path,
    /// The two that work.
    devices: Vec<PathBuf>,
    random: u64,
    kills: u64,
    whole_after: Duration,
}

impl Puller<'_> {
    /// Pulls a device, and puts another one in its place.
    fn pull(&mut self, number: u32, look: Look<'_>) -> Result<()> {
        watch(Duration::from_millis(200 + below(&mut self.random, 1000)), look)?;
        let place = usize::try_from(below(&mut self.random, 2)).expect("one of two");
        let old = self.devices[place].clone();
        let way = WAYS[number as usize % WAYS.len()];
        let lost = Instant::now();
        self.mount.fault(&old, way)?;
        self.until(look, "the loss is noticed", |mount| Ok(mount.device_state(&old)? == "FAULTED"))?;
        if number % KILLED_AT == KILLED_AT - 1 {
            self.kill(look)?;
        }
        let new = self.directory.join(format!("flash-{}.pond", number + 1));
        self.mount.replace_device(&old, &new, POOL)?;
        let mut whole = self.mount.begin_pool_wait(&self.directory.join("pool-wait.log"))?;
        while whole.is_running() {
            watch(LOOK, look)?;
            if lost.elapsed() > STUCK {
                return Err(failed(format!("after pull {number} dirty data still lacks copies")));
            }
        }
        whole.wait_for_end(STUCK)?;
        self.whole_after = self.whole_after.max(lost.elapsed());
        self.devices[place] = new;
        std::fs::remove_file(&old).map_err(Failure::io(format!("removing {}", old.display())))
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

const fn failed(what: String) -> Failure {
    Failure::Other(what)
}
