//! The kill test: MariaDB on a mount under load, the daemon killed at a random moment, again and
//! again; nothing that a client saw committed may be missing afterwards.
//!
//! What it does not show: a killed process leaves the kernel and the flash alone, so nothing that
//! was written is lost with it. Power cuts are the simulator's part.

use crate::command;
use crate::failure::{Failure, Result};
use crate::ledger::{Found, Ledgers};
use crate::mariadb::{self, Server, Settings};
use crate::pond::{Headpond, Mounting};
use crate::service::Service;
use crate::sysbench::Load;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Clients that keep a ledger.
const CLIENTS: u32 = 4;
/// The load beside them: it makes the buffer pool spill, so that pages are read and written.
const LOAD: Load = Load { tables: 4, rows: 25_000, threads: 4 };
/// Smaller than the tables, for the same reason.
const SETTINGS: Settings = Settings { buffer_pool_mib: 16, redo_log_mib: 32, durable: true };
/// The kill comes between these two after the load began.
const EARLIEST: Duration = Duration::from_millis(300);
const LATEST: Duration = Duration::from_millis(4000);

/// What a kill test is to do.
pub struct Options {
    /// How many kills.
    pub rounds: u32,
    /// Decides the moments of the kills.
    pub seed: u64,
}

/// What a round showed.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    /// When the daemon was killed, after the load began.
    pub killed_after: Duration,
    /// Transactions that clients saw committed in this round.
    pub committed: u64,
    /// What was found of all rounds so far.
    pub found: Found,
    /// Tables that were checked row by row.
    pub tables: usize,
}

/// Runs the rounds in `directory`, and tells `each` about every one that was survived.
pub fn run(headpond: &Headpond, directory: &Path, options: &Options, mut each: impl FnMut(&Round)) -> Result<()> {
    let place = Place::make(directory)?;
    let ledgers = Ledgers::new(place.ledgers.clone(), CLIENTS);
    place.install(headpond, &ledgers)?;
    let mut random = options.seed;
    for _ in 0..options.rounds {
        let (killed_after, committed) = place.load_and_kill(headpond, &ledgers, &mut random)?;
        let (found, tables) = place.look(headpond, &ledgers)?;
        each(&Round { killed_after, committed, found, tables });
    }
    Ok(())
}

/// The directories of a kill test.
struct Place {
    mounting: Mounting,
    run: PathBuf,
    ledgers: PathBuf,
}

impl Place {
    fn make(directory: &Path) -> Result<Self> {
        // The server's account must be able to pass through.
        fs::set_permissions(directory, Permissions::from_mode(0o755))
            .map_err(Failure::io(format!("opening {} to the server", directory.display())))?;
        let make = |name: &str| {
            let path = directory.join(name);
            fs::create_dir_all(&path).map_err(Failure::io(format!("making {}", path.display())))?;
            Ok(path)
        };
        let mounting = Mounting {
            origin: make("origin")?,
            mountpoint: make("mnt")?,
            flash: directory.join("flash.pond"),
            size: Some("512M".to_owned()),
            mode: "write-back",
            model_disk: None,
            log: directory.join("headpond.log"),
        };
        Ok(Self { mounting, run: make("run")?, ledgers: make("ledgers")? })
    }

    fn data(&self) -> PathBuf {
        self.mounting.mountpoint.join("mysql")
    }

    /// Makes the database on the mount itself, and unmounts with all that is dirty kept.
    fn install(&self, headpond: &Headpond, ledgers: &Ledgers) -> Result<()> {
        let mount = headpond.mount(&self.mounting)?;
        mariadb::install(&self.data())?;
        let server = Server::start(&self.data(), &self.run, &SETTINGS)?;
        server.create_database()?;
        ledgers.create_tables(&server)?;
        LOAD.prepare(server.socket())?;
        server.stop()?;
        mount.unmount_keep_dirty()
    }

    /// Loads the database until the daemon is killed under it. Returns when that was, and how many
    /// transactions had been committed.
    fn load_and_kill(&self, headpond: &Headpond, ledgers: &Ledgers, random: &mut u64) -> Result<(Duration, u64)> {
        let mount = headpond.mount(&self.mounting)?;
        let server = Server::start(&self.data(), &self.run, &SETTINGS)?;
        let clients = ledgers.start(&server)?;
        let sysbench = LOAD.endless_command(server.socket());
        let mut load = Service::start("sysbench", sysbench, &self.run.join("sysbench.log"))?;
        clients.wait_for(1)?;
        let start = Instant::now();
        let after = EARLIEST + Duration::from_millis(next(random) % (LATEST - EARLIEST).as_millis() as u64);
        std::thread::sleep(after);
        let killed_after = start.elapsed();
        mount.kill();
        // The server has lost its disk. It may notice or hang; either way it is gone now.
        server.kill();
        load.kill();
        Ok((killed_after, clients.join()?))
    }

    /// Mounts again and looks: the database starts, its tables are whole, nothing is missing.
    fn look(&self, headpond: &Headpond, ledgers: &Ledgers) -> Result<(Found, usize)> {
        let mount = headpond.mount(&self.mounting)?;
        let server = Server::start(&self.data(), &self.run, &SETTINGS)?;
        let tables = server.check_tables()?;
        let found = ledgers.verify(&server)?;
        server.stop()?;
        mount.unmount_keep_dirty()?;
        Ok((found, tables))
    }
}

/// The next of a row of numbers that looks random (SplitMix64).
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Whether this machine has what a kill test needs; else what is missing.
pub fn missing() -> Option<String> {
    let programs = ["mariadb", "mariadb-install-db", "sysbench", "fusermount3"];
    let lacks = |program: &&str| command::run("looking", std::process::Command::new(program).arg("--version")).is_err();
    let mut missing: Vec<&str> = programs.into_iter().filter(lacks).collect();
    if mariadb::version().is_err() {
        missing.push("mariadbd");
    }
    if !Path::new("/dev/fuse").exists() {
        missing.push("/dev/fuse");
    }
    (!missing.is_empty()).then(|| missing.join(", "))
}
