//! A database under test: what the kill test asks of each kind. Its rounds and its ledger are the same for all kinds.
//!
//! Invariant: each kind is set up so that, by its own manual, a commit that it acknowledges is durable. A lost commit
//! was then lost below the database.

use crate::failure::Result;
use crate::service::Service;
use std::path::PathBuf;
use std::process::Command;

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
