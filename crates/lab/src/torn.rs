//! The control of the tests of whole writes: would they see a torn page, if there were one?
//!
//! A database that counts on whole writes changes every row of a table, its mount is killed in the middle of that, and
//! flash has torn what was not synced. Then all is started again, by the recovery that users get or by one that takes
//! torn batches of the log for whole (`--test-fault accept-torn-batch`). The first must leave a sound database each
//! time, the second must break it.
//!
//! The server's own log lies beside the mount: each of its syncs would make the pages under way durable as well, so
//! that hardly ever one is left to be torn.
//!
//! Invariant: with either recovery everything else is the same.

use crate::command;
use crate::database::{Database, Pages, Places};
use crate::failure::{Failure, Result, check_interrupt};
use crate::kind::Kind;
use crate::pond::{Figures, Headpond, Mount, Mounting, directory_in};
use crate::random::{below, next};
use crate::{mariadb, postgres};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Rows of the table, of some 250 bytes: more than the server's own cache holds, so that pages are written all the
/// time.
const ROWS: u32 = 80_000;
/// The kill comes when so many bytes, and up to so many more, have gone to flash since the change began.
const WRITTEN_MIN: u64 = 2 << 20;
const WRITTEN_MORE: u64 = 4 << 20;
/// How long that may take.
const WRITTEN_MAX: Duration = Duration::from_secs(120);
/// How long changing a setting may take.
const SET_MAX: Duration = Duration::from_secs(60);
/// How often it is looked at.
const LOOK: Duration = Duration::from_millis(10);
/// Kills after which something must have been torn: about every third finds a batch under way.
const ROUNDS_MAX: u32 = 20;
/// How often all rows are changed, one change after the other: more than a round has time for.
const CHANGES: usize = 40;
/// What a server says in its log of a page that is not what it wrote; what says most comes first.
const DAMAGE: [&str; 8] = [
    "page verification failed",
    "invalid page in block",
    "log to corrupted page",
    "page corruption",
    "corrupted page",
    // Of the first page of a file.
    "wrong space ID",
    "Inconsistent tablespace ID",
    "Data structure corruption",
];

/// The work.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// With which database: one of those that count on whole writes.
    pub kind: Kind,
    /// How many kills, where the database stays sound. More, if flash had nothing to tear in any of them.
    pub rounds: u32,
    /// Decides when kills come, and which writes are torn.
    pub seed: u64,
    /// Whether recovery takes torn batches for whole.
    pub accepts_torn: bool,
}

/// What a kill led to.
#[derive(Clone, Debug)]
pub struct Round {
    /// Batches of the log that had arrived in part, and those behind them: what a recovery that works drops.
    pub dropped_batches: u64,
    /// What the server had written just before, if it counts that.
    pub pages: Option<Pages>,
    /// How the database is broken, if it is.
    pub damage: Option<Breakage>,
}

/// How a database is broken.
#[derive(Clone, Debug)]
pub struct Breakage {
    /// What failed: a start, a check, or a look at the rows.
    pub failure: String,
    /// What the server says in its log of damaged pages, if anything.
    pub page: Option<String>,
}

/// Runs the rounds in `directory`, until the database is broken or there were enough: a recovery that takes torn
/// batches is given `ROUNDS_MAX` to break it. Tells `each` about every one.
pub fn run(headpond: &Headpond, directory: &Path, options: &Options, mut each: impl FnMut(&Round)) -> Result<()> {
    let mut place = Place::make(directory, options.kind)?;
    let mut random = options.seed;
    place.install(headpond)?;
    place.mounting.fault = Some(fault(options, &mut random));
    let mut mount = headpond.mount(&place.mounting)?;
    let mut database = place.start()?;
    let mut torn = false;
    for round in 1..=ROUNDS_MAX.max(options.rounds) {
        place.settle(&*database)?;
        let pages = place.change_and_kill(mount, database, &mut random)?;
        let dropped_batches = headpond.dropped_batches(&place.mounting.flash, options.accepts_torn)?;
        place.mounting.fault = Some(fault(options, &mut random));
        mount = headpond.mount(&place.mounting)?;
        let told_before = place.told()?.len();
        match place.start().and_then(|started| sound(&*started).map(|()| started)) {
            Ok(started) => {
                each(&Round { dropped_batches, pages, damage: None });
                database = started;
                torn |= dropped_batches > 0;
                if !options.accepts_torn && round >= options.rounds && torn {
                    break;
                }
            }
            Err(Failure::Interrupted) => return Err(Failure::Interrupted),
            Err(failure) => {
                let told = place.told()?.split_off(told_before);
                let says = |words: &&str| told.lines().find(|line| line.contains(words)).map(str::to_owned);
                let page = DAMAGE.iter().find_map(says);
                each(&Round { dropped_batches, pages, damage: Some(Breakage { failure: failure.to_string(), page }) });
                return Ok(());
            }
        }
    }
    database.stop()?;
    mount.unmount()
}

/// Everything that was not synced goes down early, a tenth of its blocks torn: nearly every batch of a few pages has
/// a torn one, and most have a head that is whole.
fn fault(options: &Options, random: &mut u64) -> String {
    let accepts = if options.accepts_torn { ",accept-torn-batch" } else { "" };
    format!("lose-unsynced,early=1000,torn=100,seed={}{accepts}", next(random) >> 32)
}

/// Whether the checks of the database pass, and every row was changed as often as every other.
fn sound(database: &dyn Database) -> Result<()> {
    database.check()?;
    let found = database.sql("SELECT COUNT(*), COUNT(DISTINCT turn), COUNT(DISTINCT id) FROM pages")?;
    if found.split_whitespace().eq([ROWS.to_string().as_str(), "1", &ROWS.to_string()]) {
        return Ok(());
    }
    Err(Failure::Other(format!("{ROWS} rows were changed as one, and are, in rows, states and keys: {found}")))
}

/// The directories.
struct Place {
    kind: Kind,
    mounting: Mounting,
    places: Places,
    /// The server's own log: beside the mount.
    log: PathBuf,
}

impl Place {
    fn make(directory: &Path, kind: Kind) -> Result<Self> {
        let mounting = Mounting::below(directory, "192M")?;
        let places = Places { data: mounting.mountpoint.join("data"), run: directory_in(directory, "run")? };
        Ok(Self { kind, mounting, places, log: directory_in(directory, "log")? })
    }

    /// Makes the database on the mount, moves its own log away, and fills its table.
    fn install(&self, headpond: &Headpond) -> Result<()> {
        let mount = headpond.mount(&self.mounting)?;
        // Destage takes only durable data, and so would sync it. The pool keeps the setting.
        // A database that does not ask for untorn writes has long runs of them bypass the log, unless that is off.
        let settings = ["flush-period=off", "sequential-cutoff=off"];
        mount.start("set", &settings, &self.places.run.join("set.log"))?.wait_for_end(SET_MAX)?;
        let data = &self.places.data;
        let of_log = match self.kind {
            Kind::MariadbWhole => {
                mariadb::install(data)?;
                "ib_logfile0"
            }
            Kind::PostgresWhole => {
                postgres::install(data)?;
                "pg_wal"
            }
            _ => return Err(Failure::Other(format!("{} does not count on whole writes", self.kind.name()))),
        };
        let mut moving = Command::new("mv");
        command::run("moving the server's log", moving.arg(data.join(of_log)).arg(&self.log))?;
        if self.kind == Kind::MariadbWhole {
            mariadb::give(&self.log)?;
            let server = self.mariadb()?;
            server.create_database()?;
            self.fill(&server)?;
            server.stop()?;
        } else {
            let (moved, link) = (self.log.join(of_log), data.join(of_log));
            std::os::unix::fs::symlink(&moved, &link).map_err(Failure::io(format!(
                "linking {} to {}",
                link.display(),
                moved.display()
            )))?;
            let server = self.start()?;
            self.fill(&*server)?;
            server.stop()?;
        }
        mount.unmount_keep_dirty()
    }

    fn fill(&self, database: &dyn Database) -> Result<()> {
        if self.kind == Kind::MariadbWhole {
            database.sql(&format!(
                "CREATE TABLE pages (id INT PRIMARY KEY, turn INT NOT NULL, filler BINARY(200) NOT NULL); \
                 INSERT INTO pages SELECT seq, 0, REPEAT('x', 200) FROM seq_1_to_{ROWS}"
            ))?;
            return Ok(());
        }
        // Half of each page is left free, so that a change stays in its page.
        database.sql(&format!(
            "CREATE TABLE pages (id INT PRIMARY KEY, turn INT NOT NULL, filler CHAR(200) NOT NULL) \
               WITH (fillfactor = 45, autovacuum_enabled = off); \
             INSERT INTO pages SELECT i, 0, repeat('x', 200) FROM generate_series(1, {ROWS}) AS i; \
             CREATE EXTENSION amcheck"
        ))?;
        Ok(())
    }

    fn mariadb(&self) -> Result<mariadb::Server> {
        // The server syncs what it has written of its pages after each round of that: rounds are made large. And a log
        // that is nearly full would make it sync them as well.
        let more = vec![
            format!("--innodb-log-group-home-dir={}", self.log.display()),
            "--innodb-io-capacity=20000".to_owned(),
            "--innodb-max-dirty-pages-pct=5".to_owned(),
        ];
        let settings = mariadb::MariadbSettings { buffer_pool_mib: 16, redo_log_mib: 96, durable: true, more };
        mariadb::Server::start_that_asks(&self.places.data, &self.places.run, &settings)
    }

    fn start(&self) -> Result<Box<dyn Database>> {
        if self.kind == Kind::MariadbWhole {
            return Ok(Box::new(self.mariadb()?));
        }
        let small = postgres::PostgresSettings::small(false);
        let more = vec!["checkpoint_timeout=10min".to_owned(), "autovacuum=off".to_owned()];
        let settings = postgres::PostgresSettings { max_wal_mib: 512, more, ..small };
        Ok(Box::new(postgres::Server::start(&self.places, &settings)?))
    }

    /// So that the next change of each page goes into the server's log as that change, and not as the whole page.
    fn settle(&self, database: &dyn Database) -> Result<()> {
        if self.kind == Kind::PostgresWhole {
            // With page checksums on, marks that a row's transaction has ended put whole pages into the log.
            database.sql("VACUUM (FREEZE) pages")?;
            database.sql("CHECKPOINT")?;
        }
        Ok(())
    }

    /// Changes every row, and kills mount and server while pages of that are on their way.
    fn change_and_kill(&self, mount: Mount, database: Box<dyn Database>, random: &mut u64) -> Result<Option<Pages>> {
        let enough = mount.figures()?.flash_write_bytes + WRITTEN_MIN + below(random, WRITTEN_MORE);
        let start = Instant::now();
        let change = Change::begin(&*database)?;
        let wait = |is_time: &dyn Fn(&Figures) -> bool| {
            while !is_time(&mount.figures()?) {
                if start.elapsed() > WRITTEN_MAX {
                    return Err(Failure::Other(
                        "the server hardly writes anything, so that nothing can be torn".to_owned(),
                    ));
                }
                check_interrupt()?;
                std::thread::sleep(LOOK);
            }
            Ok(())
        };
        wait(&|now| now.flash_write_bytes >= enough)?;
        // Asking the server takes longer than the kill may wait.
        let pages = database.pages()?;
        wait(&|now| now.unsynced_entries > 0)?;
        mount.kill();
        database.kill();
        drop(change);
        Ok(pages)
    }

    /// What the server has said so far.
    fn told(&self) -> Result<String> {
        let name = if self.kind == Kind::MariadbWhole { "mariadb.log" } else { "postgres.log" };
        let path = self.places.run.join(name);
        let text = fs::read(&path).map_err(Failure::io(format!("reading {}", path.display())))?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

/// A client that changes all rows, again and again, until it is let go of.
struct Change {
    child: Child,
}

impl Change {
    fn begin(database: &dyn Database) -> Result<Self> {
        let mut client = database.client();
        command::detach(&mut client).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = client.spawn().map_err(|error| command::failed("starting a client", &client, error, ""))?;
        let mut change = Self { child };
        let statements = "UPDATE pages SET turn = turn + 1;\n".repeat(CHANGES);
        if let Some(pipe) = change.child.stdin.as_mut() {
            pipe.write_all(statements.as_bytes()).map_err(Failure::io("telling a client what to do"))?;
        }
        Ok(change)
    }
}

impl Drop for Change {
    fn drop(&mut self) {
        // Failing means that it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
