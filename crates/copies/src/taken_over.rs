//! A peer's host takes a pool for itself.
//!
//! Invariant: when this returns, the larger owner's number is durable, and no server writes to the file any more. So the
//! owner before it has heard of each of its syncs that is in the file, and of no other.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use headpond_base::PoolId;

use crate::copy::lock;
use crate::store::{Record, Store, StoreError};

/// How long a server has to let the file go: it looks at each request, and several times a second.
const PATIENCE: Duration = Duration::from_secs(10);

/// A pool that is this host's now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TakenCopy {
    /// Its copy: a device of the pool like any other.
    pub path: PathBuf,
    /// The pool.
    pub pool: PoolId,
    /// The owner's number from now on.
    pub owner: u64,
}

/// Raises the owner's number of a pool in a store, and waits until the server has let the copy go. Done again, it
/// changes nothing.
///
/// # Errors
/// [`StoreError`]: no such pool, bytes that do not count, or a file that another process has.
pub fn take_over(dir: &Path, pool: Option<&str>) -> Result<TakenCopy, StoreError> {
    if !dir.is_dir() {
        return Err(StoreError::WhichPool(format!("there is no store at {}", dir.display())));
    }
    take_from(&Store::open(dir)?, pool)
}

/// What an earlier [`take_over`] made of a pool. For a process that goes on with it. The file stays with the process that has it.
///
/// # Errors
/// [`StoreError`].
pub fn taken_over(dir: &Path, pool: Option<&str>) -> Result<TakenCopy, StoreError> {
    let store = Store::open(dir)?;
    let record = find(&store, pool)?;
    let id = record.pool_id();
    if !record.taken_over {
        return Err(StoreError::WhichPool(format!("pool {id} was not taken over, or an owner has come back since")));
    }
    Ok(TakenCopy { path: store.file_path(&record), pool: id, owner: record.owner })
}

/// The record of the pool of this name, or of the only one.
fn find(store: &Store, pool: Option<&str>) -> Result<Record, StoreError> {
    let all = store.all_records()?;
    let name = |record: &Record| record.pool_id().to_string();
    let matching: Vec<&Record> =
        all.iter().filter(|record| pool.is_none_or(|pool| name(record) == pool || record.pool == pool)).collect();
    match matching[..] {
        [record] => Ok(record.clone()),
        [] => {
            let which = pool.map_or_else(|| "a pool".to_owned(), |pool| format!("pool {pool}"));
            Err(StoreError::WhichPool(format!("{} keeps no copy of {which}", store.dir().display())))
        }
        _ => {
            let names: Vec<String> = matching.iter().map(|record| name(record)).collect();
            let dir = store.dir().display();
            Err(StoreError::WhichPool(format!(
                "{dir} keeps copies of several pools. Name one with --pool: {}",
                names.join(", ")
            )))
        }
    }
}

fn take_from(store: &Store, pool: Option<&str>) -> Result<TakenCopy, StoreError> {
    let records = store.records()?;
    let record = find(store, pool)?;
    let id = record.pool_id();
    let path = store.file_path(&record);
    if !store.counts(&record) {
        return Err(StoreError::DoesNotCount(format!(
            "the copy of pool {id} does not count: this host went down, or its copy was being made anew, while the owner was \
             connected. What the owner was told may not be in it. Bring the owner's flash back. If that is lost for good, \
             what there is can be read: headpond check {}",
            path.display()
        )));
    }
    let owner = if record.taken_over { record.owner } else { record.owner + 1 };
    let record = Record { owner, taken_over: true, ..record };
    records.write(id, &record)?;
    drop(records);
    let file = File::options().read(true).write(true).open(&path).map_err(StoreError::io("open", &path))?;
    lock(&file, &path, PATIENCE)?;
    // What the server had answered from the kernel's memory.
    file.sync_all().map_err(StoreError::io("sync", &path))?;
    let records = store.records()?;
    records.write(id, &Record { settled: true, ..record })?;
    Ok(TakenCopy { path, pool: id, owner })
}
