//! A database on a mount, with its directories and the ledgers of its clients beside it.

use crate::database::{Database, Places};
use crate::failure::Result;
use crate::kind::Kind;
use crate::ledger::{LedgerFound, Ledgers};
use crate::pond::{Headpond, Mount, Mounting, directory_in};
use std::path::{Path, PathBuf};

/// A few times what a load writes in a few seconds: the log comes round, and segments are used again.
pub(crate) const POOL: &str = "192M";

/// The directories.
pub(crate) struct DatabaseOnMount {
    pub(crate) kind: Kind,
    pub(crate) mounting: Mounting,
    pub(crate) run: PathBuf,
    pub(crate) ledgers: PathBuf,
}

impl DatabaseOnMount {
    /// Makes them, the origin on the storage at another directory.
    pub(crate) fn make(storage: &Path, directory: &Path, kind: Kind) -> Result<Self> {
        let mounting = Mounting::on(storage, directory, POOL)?;
        let [run, ledgers] = [directory_in(directory, "run")?, directory_in(directory, "ledgers")?];
        Ok(Self { kind, mounting, run, ledgers })
    }

    /// Where the database lives.
    pub(crate) fn places(&self) -> Places {
        Places { data: self.mounting.mountpoint.join("data"), run: self.run.clone() }
    }

    /// Makes the database on the mount itself, and unmounts with all that is dirty kept.
    pub(crate) fn install(&self, headpond: &Headpond, ledgers: &Ledgers, settings: &[&str]) -> Result<()> {
        let mount = headpond.mount(&self.mounting)?;
        if !settings.is_empty() {
            mount.set(settings)?;
        }
        if self.kind == Kind::PostgresWhole {
            // It does not ask the mount to keep its writes untorn: long runs of them would bypass the log.
            mount.set(&["sequential-cutoff=off"])?;
        }
        let database = self.kind.create(&self.places())?;
        ledgers.create_tables(&*database)?;
        database.fill()?;
        database.stop()?;
        mount.unmount_keep_dirty()
    }

    /// Mounts, and starts the database.
    pub(crate) fn start(&self, headpond: &Headpond) -> Result<(Mount, Box<dyn Database>)> {
        let mount = headpond.mount(&self.mounting)?;
        Ok((mount, self.kind.start(&self.places())?))
    }

    /// What the unmounted origin has, without headpond, after the database's own checks.
    pub(crate) fn verify_without_headpond(&self, ledgers: &Ledgers) -> Result<LedgerFound> {
        let places = Places { data: self.mounting.origin.join("data"), run: self.run.clone() };
        let database = self.kind.start(&places)?;
        database.check()?;
        let found = ledgers.verify(&*database)?;
        database.stop()?;
        Ok(found)
    }
}
