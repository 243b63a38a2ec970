//! SQLite: no server, but several processes on one file.
//!
//! Invariant: every connection is set to be durable (`synchronous=EXTRA`: with a rollback journal the
//! removal of the journal, which is the commit, is synced too).

use crate::command;
use crate::database::{Database, Places};
use crate::failure::{Failure, Result};
use crate::service::Service;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How SQLite makes a transaction atomic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Journal {
    /// Changes are appended to a log beside the file, and reach the file later.
    WriteAhead,
    /// The old pages are kept in a file beside it until the commit removes that.
    Rollback,
}

/// Rows of the load's table: about 4 MiB of pages.
const ROWS: u32 = 8000;
/// Transactions of the load: more than a round has time for.
const TRANSACTIONS: usize = 50_000;
/// Seconds between two of them. SQLite's lock knows no order: without a pause the load has it nearly always, and the
/// other clients hardly commit.
const PAUSE: &str = "0.02";

/// What this machine lacks.
#[must_use]
pub fn missing() -> Vec<String> {
    command::lacking(&["sqlite3", "stdbuf"])
}

/// Makes an empty database.
pub fn create(places: &Places, journal: Journal) -> Result<()> {
    fs::create_dir_all(&places.data).map_err(Failure::io(format!("making {}", places.data.display())))?;
    let (mode, says) = match journal {
        Journal::WriteAhead => ("wal", "wal\n"),
        Journal::Rollback => ("delete", "delete\n"),
    };
    let said = File::of(places).sql(&format!("PRAGMA journal_mode={mode}"))?;
    if said == says {
        return Ok(());
    }
    Err(Failure::Other(format!("SQLite was asked for journal_mode={mode} and took {}", said.trim())))
}

/// A database file.
pub struct File {
    path: PathBuf,
}

impl File {
    /// The one that the kill test uses.
    #[must_use]
    pub fn of(places: &Places) -> Self {
        Self { path: places.data.join("lab.sqlite") }
    }
}

/// The shell, which ends at the first error and prints each line at once.
fn shell(path: &Path) -> Command {
    let mut shell = Command::new("stdbuf");
    shell.args(["--output=L", "sqlite3", "-batch", "-bail", "-init", "/dev/null", "-tabs"]);
    // Three writers take turns, and SQLite knows no order among them: the one that asks at the right moment is next.
    // With the disk under test slow, or the machine busy, one can be out of luck for minutes.
    shell.args(["-cmd", ".timeout 600000", "-cmd", "PRAGMA synchronous=EXTRA"]).arg(path);
    shell
}

impl Database for File {
    fn sql(&self, statements: &str) -> Result<String> {
        command::run("running SQL", shell(&self.path).arg(statements))
    }

    fn client(&self) -> Command {
        shell(&self.path)
    }

    fn begin(&self) -> &'static str {
        // Takes the right to write at once, so that a transaction never has to be tried again.
        "BEGIN IMMEDIATE"
    }

    fn fill(&self) -> Result<()> {
        self.sql(&format!(
            "CREATE TABLE filler (id INTEGER PRIMARY KEY, kind INT, body BLOB); CREATE INDEX kinds ON filler (kind); \
             WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {ROWS}) \
             INSERT INTO filler SELECT i, i % 97, randomblob(400) FROM n"
        ))?;
        Ok(())
    }

    fn load(&self, places: &Places) -> Result<Service> {
        let script = places.run.join("load.sql");
        let one = format!(
            "BEGIN IMMEDIATE; UPDATE filler SET kind = abs(random() % 97), body = randomblob(300 + abs(random() % 300)) \
             WHERE id IN (SELECT 1 + abs(random() % {ROWS}) FROM filler LIMIT 20); COMMIT;\n.shell sleep {PAUSE}\n"
        );
        fs::create_dir_all(&places.run)
            .and_then(|()| fs::write(&script, one.repeat(TRANSACTIONS)))
            .map_err(Failure::io(format!("writing {}", script.display())))?;
        let mut load = shell(&self.path);
        load.arg(format!(".read {}", script.display()));
        Service::start("the load of SQLite", load, &places.run.join("load.log"))
    }

    fn check(&self) -> Result<usize> {
        let said = self.sql("PRAGMA integrity_check")?;
        if said != "ok\n" {
            return Err(Failure::Other(format!("PRAGMA integrity_check says:\n{said}")));
        }
        let count = self.sql("SELECT count(*) FROM sqlite_schema")?;
        count.trim().parse().map_err(|_| Failure::Other(format!("no number: '{count}'")))
    }

    fn stop(self: Box<Self>) -> Result<()> {
        Ok(())
    }

    /// There is no server; its clients end with their session.
    fn kill(self: Box<Self>) {}
}
