//! The database of a side: MariaDB or PostgreSQL, made, started and reached in the same way.

use crate::database::{Database, Places};
use crate::failure::Result;
use crate::{mariadb, postgres, sysbench};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Which database.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Software {
    /// MariaDB with InnoDB.
    #[default]
    Mariadb,
    /// PostgreSQL.
    Postgres,
}

/// What a server is started with.
#[derive(Clone, Debug)]
pub struct Needs {
    /// Its cache of pages, in MiB.
    pub memory_mib: u32,
    /// Its redo log, in MiB.
    pub log_mib: u32,
    /// Whether each commit is made durable. Off only to load data that can be loaded again.
    pub durable: bool,
    /// Further options, as the server knows them.
    pub more: Vec<String>,
}

/// A server that runs.
pub enum Server {
    /// MariaDB.
    Mariadb(mariadb::Server),
    /// PostgreSQL.
    Postgres(postgres::Server),
}

impl Software {
    /// The directory of its data, beside whatever else a target holds.
    pub const fn directory(self) -> &'static str {
        match self {
            Self::Mariadb => "mysql",
            Self::Postgres => "postgres",
        }
    }

    /// For people.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Mariadb => "MariaDB",
            Self::Postgres => "PostgreSQL",
        }
    }

    /// Its version.
    pub fn version(self) -> Result<String> {
        match self {
            Self::Mariadb => mariadb::version(),
            Self::Postgres => postgres::version(),
        }
    }

    /// Makes an empty database, to be filled by a load.
    pub fn make(self, data: &Path, run: &Path, needs: &Needs) -> Result<Server> {
        match self {
            Self::Mariadb => mariadb::install(data)?,
            Self::Postgres => postgres::install(data)?,
        }
        let server = self.start(data, run, needs)?;
        if let Server::Mariadb(server) = &server {
            server.create_database()?;
        }
        Ok(server)
    }

    /// Starts it on the data that is there.
    pub fn start(self, data: &Path, run: &Path, needs: &Needs) -> Result<Server> {
        let (durable, more) = (needs.durable, needs.more.clone());
        Ok(match self {
            Self::Mariadb => {
                let (buffer_pool_mib, redo_log_mib) = (needs.memory_mib, needs.log_mib);
                let settings = mariadb::MariadbSettings { buffer_pool_mib, redo_log_mib, durable, more };
                Server::Mariadb(mariadb::Server::start(data, run, &settings)?)
            }
            Self::Postgres => {
                let (shared_buffers_mib, max_wal_mib) = (needs.memory_mib, needs.log_mib);
                let settings = postgres::PostgresSettings {
                    shared_buffers_mib,
                    max_wal_mib,
                    full_page_writes: true,
                    durable,
                    more,
                };
                let places = Places { data: data.to_path_buf(), run: run.to_path_buf() };
                Server::Postgres(postgres::Server::start(&places, &settings)?)
            }
        })
    }
}

impl Server {
    /// sysbench's options that lead to it.
    pub fn connection(&self) -> Vec<String> {
        match self {
            Self::Mariadb(server) => sysbench::connection(server.socket()),
            Self::Postgres(server) => vec![
                "--db-driver=pgsql".to_owned(),
                format!("--pgsql-host={}", server.socket_directory().display()),
                format!("--pgsql-user={}", postgres::SUPERUSER),
                format!("--pgsql-db={}", postgres::SUPERUSER),
            ],
        }
    }

    /// The options by which PostgreSQL's own programs find it; none of MariaDB.
    pub fn host(&self) -> Vec<String> {
        match self {
            Self::Mariadb(_) => Vec::new(),
            Self::Postgres(server) => vec![format!("--host={}", server.socket_directory().display())],
        }
    }

    /// Its command as it would be typed.
    pub fn typed(&self) -> String {
        match self {
            Self::Mariadb(server) => server.typed(),
            Self::Postgres(server) => server.typed(),
        }
    }

    /// Stops it in order: everything is written back first.
    pub fn stop(self) -> Result<()> {
        match self {
            Self::Mariadb(server) => server.stop(),
            Self::Postgres(server) => Database::stop(Box::new(server)),
        }
    }

    /// Ends it at once, as a crash would.
    pub fn kill(self) {
        match self {
            Self::Mariadb(server) => server.kill(),
            Self::Postgres(server) => Database::kill(Box::new(server)),
        }
    }
}
