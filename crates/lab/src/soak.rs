//! The soak: everything at once on one mount for hours. fsx, fio with verification, and SQLite with
//! ledgers load it, while the cache mode is switched and flushes run; in between the daemon is killed
//! (with and without the loss of unsynced flash writes), or unmounted with a flush or without one,
//! and mounted again.
//!
//! What counts as wrong: a load that fails while the daemon was not killed; after each mount, a
//! ledger's transaction that is missing, a failed `PRAGMA integrity_check`, a file that fio had
//! written, synced and verified and that reads otherwise now; the same at the origin alone after
//! an unmount; a command that does not end in [`COMMAND_MAX`].

mod loads;
mod promises;

use crate::command;
use crate::failure::{Result, check_interrupt};
use crate::fsx;
use crate::kind::Kind;
use crate::pond::{Headpond, Mount, Mounting, directory_in};
use crate::random::{below, next};
use crate::service::Service;
use loads::Loads;
use promises::Promises;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long `flush`, `set` and `unmount` may take: they have at most a pool's worth to write.
pub const COMMAND_MAX: Duration = Duration::from_secs(300);
/// Between two things that the operator does.
const PAUSE_MAX: Duration = Duration::from_secs(4);
/// Smaller than what the loads write, so that the log comes round and clean data is evicted.
const POOL: &str = "192M";
/// The directory below the origin, and so below the mount, in which everything happens: a load that comes too
/// late, when the daemon is dead and its mount gone, finds none there and makes no file on the bare mount point.
const WORK: &str = "work";
const MODES: [&str; 4] = ["write-back", "write-through", "write-around", "pass-through"];

/// What a soak is to do.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How long it goes on. The last leg is finished. On a machine so slow that some load has not finished
    /// anything by then, up to four times as long.
    pub duration: Duration,
    /// The longest time between a mount and its end.
    pub leg_max: Duration,
    /// Decides what the operator does, and when. The loads make it differ from run to run all the same.
    pub seed: u64,
}

/// What was done and found so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum {
    /// Times that the mount was made.
    pub legs: u64,
    /// Kills of the daemon after which everything written to the flash was there.
    pub kills: u64,
    /// Kills with which the flash lost what was not synced.
    pub lossy_kills: u64,
    /// Unmounts with a flush.
    pub unmounts: u64,
    /// Unmounts that left dirty data in the pool.
    pub left_dirty: u64,
    /// Switches of the cache mode.
    pub switches: u64,
    /// Flushes of a mount in use.
    pub flushes: u64,
    /// Operations of fsx runs that were finished.
    pub fsx_operations: u64,
    /// Files that fio wrote and read back.
    pub fio_written: u64,
    /// Times that such a file was read after a mount, or from the origin alone.
    pub fio_verified: u64,
    /// Transactions in the ledgers: each was there after each mount since.
    pub transactions: u64,
}

impl Sum {
    /// Whether the mount was ended, and every load has finished something.
    #[must_use]
    pub const fn tried_everything(&self) -> bool {
        let ended = self.kills + self.lossy_kills + self.unmounts + self.left_dirty;
        ended > 0 && self.fsx_operations > 0 && self.fio_written > 0 && self.transactions > 0
    }
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} mounts, ended by {} kills, {} kills that lost unsynced flash writes, {} unmounts and {} that left \
             dirty data; {} mode switches, {} flushes; {} fsx operations; fio wrote {} files and verified them {} \
             times later; {} transactions promised and found",
            self.legs,
            self.kills,
            self.lossy_kills,
            self.unmounts,
            self.left_dirty,
            self.switches,
            self.flushes,
            self.fsx_operations,
            self.fio_written,
            self.fio_verified,
            self.transactions
        )
    }
}

/// How a leg ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Kill,
    Unmount,
    KeepDirty,
}

/// Runs a soak in `directory`; tells `each` the sum after every leg.
pub fn run(headpond: &Headpond, directory: &Path, options: &Options, mut each: impl FnMut(&Sum)) -> Result<Sum> {
    let mut soak = Soak::make(headpond, directory, options)?;
    let start = Instant::now();
    let goes_on = |sum: &Sum| {
        let most = if sum.tried_everything() { options.duration } else { options.duration * 4 };
        start.elapsed() < most
    };
    while goes_on(&soak.sum) {
        soak.leg(options.leg_max)?;
        each(&soak.sum);
    }
    // Whatever the last leg left, all of it must reach the origin.
    let mount = soak.mount(None)?;
    soak.promises.check(&soak.mounted(), &mut soak.sum)?;
    mount.unmount()?;
    soak.promises.check(&soak.at_origin(), &mut soak.sum)?;
    Ok(soak.sum)
}

struct Soak<'a> {
    headpond: &'a Headpond,
    mounting: Mounting,
    run: PathBuf,
    promises: Promises,
    random: u64,
    sum: Sum,
}

impl<'a> Soak<'a> {
    fn make(headpond: &'a Headpond, directory: &Path, options: &Options) -> Result<Self> {
        let mounting = Mounting::below(directory, POOL)?;
        let run = directory_in(directory, "run")?;
        let promises = Promises::new(directory_in(directory, "ledgers")?, run.clone());
        directory_in(&mounting.origin, WORK)?;
        let soak = Self { headpond, mounting, run, promises, random: options.seed, sum: Sum::default() };
        let mount = headpond.mount(&soak.mounting)?;
        soak.promises.create(&soak.mounted())?;
        mount.unmount_keep_dirty()?;
        Ok(soak)
    }

    /// Where the loads and the promises are while it is mounted.
    fn mounted(&self) -> PathBuf {
        self.mounting.mountpoint.join(WORK)
    }

    /// The same at the origin.
    fn at_origin(&self) -> PathBuf {
        self.mounting.origin.join(WORK)
    }

    /// Mounts with a fault or without, and looks for everything that was promised before.
    fn mount(&mut self, fault: Option<String>) -> Result<Mount> {
        self.mounting.fault = fault;
        let mount = self.headpond.mount(&self.mounting)?;
        self.sum.legs += 1;
        Ok(mount)
    }

    fn leg(&mut self, leg_max: Duration) -> Result<()> {
        let lossy = below(&mut self.random, 2) == 0;
        let seed = next(&mut self.random) >> 32;
        let mount = self.mount(lossy.then(|| format!("lose-unsynced,early=300,torn=300,seed={seed}")))?;
        let mounted = self.mounted();
        self.promises.check(&mounted, &mut self.sum)?;
        let loads = Loads::start(&mounted, &self.run, &self.promises, next(&mut self.random))?;
        let length = leg_max / 4 + leg_max.mul_f64(below(&mut self.random, 750) as f64 / 1000.0);
        let start = Instant::now();
        while start.elapsed() < length {
            let pause = below(&mut self.random, PAUSE_MAX.as_millis() as u64);
            self.rest(&loads, Duration::from_millis(pause).min(length.saturating_sub(start.elapsed())))?;
            self.operate(&mount)?;
        }
        match self.choose_end() {
            End::Kill => self.kill(mount, loads, lossy),
            End::Unmount => {
                loads.stop(&mut self.promises, &mut self.sum)?;
                mount.unmount()?;
                self.sum.unmounts += 1;
                let origin = self.at_origin();
                self.promises.check(&origin, &mut self.sum)
            }
            End::KeepDirty => {
                loads.stop(&mut self.promises, &mut self.sum)?;
                self.sum.left_dirty += 1;
                mount.unmount_keep_dirty()
            }
        }
    }

    fn choose_end(&mut self) -> End {
        match below(&mut self.random, 10) {
            0..6 => End::Kill,
            6..8 => End::Unmount,
            _ => End::KeepDirty,
        }
    }

    /// Kills the daemon; half of the time while a command is under way.
    fn kill(&mut self, mount: Mount, loads: Loads, lossy: bool) -> Result<()> {
        let command = if below(&mut self.random, 2) == 0 { Some(self.command(&mount)?) } else { None };
        std::thread::sleep(Duration::from_millis(below(&mut self.random, 200)));
        loads.excuse();
        mount.kill();
        drop(command);
        if lossy {
            self.sum.lossy_kills += 1;
        } else {
            self.sum.kills += 1;
        }
        loads.end_after_kill(&mut self.promises, &mut self.sum)
    }

    /// Waits, and looks after the loads meanwhile.
    fn rest(&self, loads: &Loads, pause: Duration) -> Result<()> {
        let start = Instant::now();
        loop {
            loads.check()?;
            check_interrupt()?;
            let left = pause.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(Duration::from_millis(50)));
        }
    }

    /// What an operator does: switches the mode, or flushes.
    fn operate(&mut self, mount: &Mount) -> Result<()> {
        self.command(mount)?.wait_for_end(COMMAND_MAX)
    }

    fn command(&mut self, mount: &Mount) -> Result<Service> {
        let log = self.run.join("commands.log");
        match below(&mut self.random, 3) {
            0 => {
                self.sum.flushes += 1;
                mount.start("flush", &["--quiet"], &log)
            }
            choice => {
                self.sum.switches += 1;
                // Back to write-back half of the time: there is the most to go wrong.
                let mode = if choice == 1 { MODES[0] } else { MODES[below(&mut self.random, 4) as usize] };
                mount.start("set", &[&format!("mode={mode}")], &log)
            }
        }
    }
}

/// What this machine lacks for a soak, if anything.
#[must_use]
pub fn missing() -> Option<String> {
    let mut missing = Kind::SqliteWal.missing();
    missing.extend(fsx::missing());
    missing.extend(command::lacking(&["fio", "fusermount3"]));
    if !Path::new("/dev/fuse").exists() {
        missing.push("/dev/fuse".to_owned());
    }
    (!missing.is_empty()).then(|| missing.join(", "))
}
