//! A database on trial: what the kill test asks of each kind, so that its rounds and its ledger are
//! the same for all of them.
//!
//! Invariant: each kind is set up so that a commit it acknowledges is durable by its own manual.
//! What is lost then was lost below it.

use crate::failure::Result;
use crate::service::Service;
use crate::{mariadb, postgres, sqlite};
use std::path::PathBuf;
use std::process::Command;

/// The kinds that are tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Kind {
    /// MariaDB with InnoDB.
    Mariadb,
    /// The same, that finds out by itself that writes are whole, and writes each page once.
    MariadbWhole,
    /// PostgreSQL.
    Postgres,
    /// PostgreSQL with `full_page_writes=off`.
    PostgresWhole,
    /// SQLite with a write-ahead log.
    SqliteWal,
    /// SQLite with a rollback journal.
    SqliteRollback,
}

/// Where a database lives.
#[derive(Clone, Debug)]
pub struct Places {
    /// Its data: on the storage on trial.
    pub data: PathBuf,
    /// Sockets and logs: elsewhere.
    pub run: PathBuf,
}

/// Pages that a server has written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pages {
    /// In their place.
    pub written: u64,
    /// A second time, against torn ones.
    pub copies: u64,
}

/// A database that answers.
pub trait Database {
    /// Runs statements, and returns the rows, tabs between the columns.
    fn sql(&self, statements: &str) -> Result<String>;

    /// A client that runs the statements it reads, prints each row at once with tabs between the
    /// columns, and ends at the first statement that fails.
    fn client(&self) -> Command;

    /// The statement that begins a transaction which changes something.
    fn begin(&self) -> &'static str;

    /// Makes what the load works on.
    fn fill(&self) -> Result<()>;

    /// Starts a load beside the ledger, so that pages are read and written all over the files.
    fn load(&self, places: &Places) -> Result<Service>;

    /// Runs the database's own checks. Returns how many tables and indexes they covered.
    fn check(&self) -> Result<usize>;

    /// What it has written since it was started, if it is on trial without copies of its pages.
    fn pages(&self) -> Result<Option<Pages>> {
        Ok(None)
    }

    /// Stops it in order.
    fn stop(self: Box<Self>) -> Result<()>;

    /// Ends it at once, as a crash would.
    fn kill(self: Box<Self>);
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Mariadb, Self::MariadbWhole, Self::Postgres, Self::PostgresWhole, Self::SqliteWal, Self::SqliteRollback];

    /// For people to read.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mariadb => "MariaDB",
            Self::MariadbWhole => "MariaDB (each page once)",
            Self::Postgres => "PostgreSQL",
            Self::PostgresWhole => "PostgreSQL (full_page_writes=off)",
            Self::SqliteWal => "SQLite (write-ahead log)",
            Self::SqliteRollback => "SQLite (rollback journal)",
        }
    }

    /// Starts a MariaDB of this kind.
    fn mariadb(self, places: &Places) -> Result<mariadb::Server> {
        match self {
            Self::MariadbWhole => {
                mariadb::Server::start_that_asks(&places.data, &places.run, &mariadb::Settings::SMALL)
            }
            _ => mariadb::Server::start(&places.data, &places.run, &mariadb::Settings::SMALL),
        }
    }

    /// What this machine lacks to try it.
    #[must_use]
    pub fn missing(self) -> Vec<String> {
        match self {
            Self::Mariadb => mariadb::missing(),
            Self::MariadbWhole => mariadb::missing_for_whole(),
            Self::Postgres | Self::PostgresWhole => postgres::missing(),
            Self::SqliteWal | Self::SqliteRollback => sqlite::missing(),
        }
    }

    /// Makes an empty database, and starts it.
    pub fn create(self, places: &Places) -> Result<Box<dyn Database>> {
        match self {
            Self::Mariadb | Self::MariadbWhole => mariadb::install(&places.data)?,
            Self::Postgres | Self::PostgresWhole => postgres::install(&places.data)?,
            Self::SqliteWal => sqlite::create(places, sqlite::Journal::WriteAhead)?,
            Self::SqliteRollback => sqlite::create(places, sqlite::Journal::Rollback)?,
        }
        if matches!(self, Self::Mariadb | Self::MariadbWhole) {
            let server = self.mariadb(places)?;
            server.create_database()?;
            return Ok(Box::new(server));
        }
        self.start(places)
    }

    /// Starts it on the data that is there.
    pub fn start(self, places: &Places) -> Result<Box<dyn Database>> {
        Ok(match self {
            Self::Mariadb | Self::MariadbWhole => Box::new(self.mariadb(places)?),
            Self::Postgres => Box::new(postgres::Server::start(places, &postgres::Settings::small(true))?),
            Self::PostgresWhole => Box::new(postgres::Server::start(places, &postgres::Settings::small(false))?),
            Self::SqliteWal | Self::SqliteRollback => Box::new(sqlite::File::of(places)),
        })
    }
}
