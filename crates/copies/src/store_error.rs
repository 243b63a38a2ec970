//! Why a store cannot be used.

use std::io;
use std::path::{Path, PathBuf};

use headpond_base::PoolId;
use thiserror::Error;

/// Why a store cannot be used.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The system refuses something.
    #[error("cannot {doing} {}: {source}", path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// There is none.
    #[error("there is no store at {}: `headpond peer serve` makes it", .0.display())]
    NoStore(PathBuf),
    /// Another server has it.
    #[error("another `headpond peer serve` has the store {}", .0.display())]
    Serving(PathBuf),
    /// Its address, without certificates: whoever connects can read and replace the copies.
    #[error(
        "cannot listen at {0}: others than this host could connect. Give --certificates DIR, or listen at a unix socket \
         or a loopback address"
    )]
    OpenToAll(String),
    /// A record is none.
    #[error("the record {} is damaged: {what}", path.display())]
    Damaged {
        /// The record.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// It keeps no such pool, or several.
    #[error("{0}")]
    WhichPool(String),
    /// What it keeps does not count.
    #[error("{0}")]
    DoesNotCount(String),
    /// What it keeps is still wanted, or may be.
    #[error("{0}")]
    Wanted(String),
    /// Another process judges the copy for a take-over.
    #[error("another command, such as `headpond takeover`, has the copy of pool {0} at this moment")]
    Held(PoolId),
    /// Another process has the file, and keeps it.
    #[error("{} is in use by another process. A pool that took over may be mounted from it", .0.display())]
    InUse(PathBuf),
}

impl StoreError {
    pub(crate) fn io<'a>(doing: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> Self + 'a {
        move |source| Self::Io { doing, path: path.to_owned(), source }
    }
}
