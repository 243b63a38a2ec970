//! The kinds of databases that are tried, and how each is set up.

use crate::database::{Database, Places};
use crate::failure::Result;
use crate::{mariadb, postgres, sqlite};

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
                mariadb::Server::start_that_asks(&places.data, &places.run, &mariadb::MariadbSettings::SMALL)
            }
            _ => mariadb::Server::start(&places.data, &places.run, &mariadb::MariadbSettings::SMALL),
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
            Self::Postgres => Box::new(postgres::Server::start(places, &postgres::PostgresSettings::small(true))?),
            Self::PostgresWhole => {
                Box::new(postgres::Server::start(places, &postgres::PostgresSettings::small(false))?)
            }
            Self::SqliteWal | Self::SqliteRollback => Box::new(sqlite::File::of(places)),
        })
    }
}
