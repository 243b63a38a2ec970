//! What must be there after every mount, whatever happened before.
//!
//! Invariant: a file of fio stands here only after fio wrote, synced and verified it while the daemon
//! lived; from the moment on that it is written anew it stands here no more.

use super::Sum;
use crate::command;
use crate::database::{Database, Places};
use crate::failure::{Failure, Result};
use crate::fio::Job;
use crate::kind::Kind;
use crate::ledger::{Ledgers, RunningClients};
use crate::service::Service;
use std::path::{Path, PathBuf};

/// Clients of each database.
const CLIENTS: u32 = 2;
const KINDS: [Kind; 2] = [Kind::SqliteWal, Kind::SqliteRollback];

/// A file that fio finished.
#[derive(Clone, Debug)]
pub(super) struct Written {
    pub(super) name: String,
    pub(super) job: Job,
}

/// What was promised so far.
pub(super) struct Promises {
    ledgers: PathBuf,
    run: PathBuf,
    pub(super) files: Vec<Written>,
}

impl Promises {
    pub(super) fn new(ledgers: PathBuf, run: PathBuf) -> Self {
        Self { ledgers, run, files: Vec::new() }
    }

    fn name(kind: Kind) -> &'static str {
        if kind == Kind::SqliteWal { "wal" } else { "rollback" }
    }

    fn places(&self, root: &Path, kind: Kind) -> Places {
        Places { data: root.join(Self::name(kind)), run: self.run.join(Self::name(kind)) }
    }

    fn ledgers(&self, kind: Kind) -> Result<Ledgers> {
        let directory = self.ledgers.join(Self::name(kind));
        std::fs::create_dir_all(&directory).map_err(Failure::io(format!("making {}", directory.display())))?;
        Ok(Ledgers::new(directory, CLIENTS))
    }

    /// Makes the databases below `root`.
    pub(super) fn create(&self, root: &Path) -> Result<()> {
        for kind in KINDS {
            let database = kind.create(&self.places(root, kind))?;
            self.ledgers(kind)?.create_tables(&*database)?;
            database.fill()?;
            database.stop()?;
        }
        Ok(())
    }

    /// Lets clients and a load loose on each database.
    pub(super) fn load(&self, root: &Path) -> Result<Vec<(RunningClients, Service)>> {
        let mut running = Vec::new();
        for kind in KINDS {
            let places = self.places(root, kind);
            let database = kind.start(&places)?;
            running.push((self.ledgers(kind)?.start(&*database)?, database.load(&places)?));
        }
        Ok(running)
    }

    /// Looks for everything below `root`, the mount or the origin.
    pub(super) fn check(&self, root: &Path, sum: &mut Sum) -> Result<()> {
        let mut promised = 0;
        for kind in KINDS {
            let database = kind.start(&self.places(root, kind))?;
            let database: &dyn Database = &*database;
            let what = |failure: Failure| Failure::Other(format!("{} on {}: {failure}", kind.name(), root.display()));
            database.check().map_err(what)?;
            promised += self.ledgers(kind)?.verify(database).map_err(what)?.promised as u64;
        }
        sum.transactions = promised;
        for Written { name, job } in &self.files {
            command::run("verifying a file that was written and synced before", &mut job.verify(root, name))?;
            sum.fio_verified += 1;
        }
        Ok(())
    }
}
