//! A peer's host takes a pool for itself.
//!
//! In two steps, as what can be checked shall be checked before the owner is deposed:
//!
//! ```text
//!   hold_copy ── the server has let go of the file ──> HeldCopy ── take: the number is durable ──> TakenCopy
//!                                                     └────── dropped: nothing has changed
//! ```
//!
//! Invariants:
//! - While a copy is held, no server writes to its file, and nobody answers its owner. So the owner has heard of each of
//!   its syncs that is in the file, and of no other.
//! - The number goes up only in a record that is as it was when it was held.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use headpond_base::PoolId;

use crate::record::Record;
use crate::store::{Store, open_locked};
use crate::store_error::StoreError;

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

/// A copy that no owner can reach while this lives, and that can be judged before anything is decided. Nothing of the
/// pool has changed: dropped, or with the process that dies, the hold is gone, and the owner may connect again.
#[derive(Debug)]
pub struct HeldCopy {
    store: Store,
    record: Record,
    path: PathBuf,
    file: File,
    _hold: File,
}

impl HeldCopy {
    /// Its file: a device of the pool like any other.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file, with its lock, which stays with this.
    ///
    /// # Errors
    /// If there are no descriptors left.
    pub fn file(&self) -> Result<File, StoreError> {
        self.file.try_clone().map_err(StoreError::io("open once more", &self.path))
    }

    /// The owner's number that this host has once it took the pool.
    #[must_use]
    pub const fn owner(&self) -> u64 {
        if self.record.taken_over { self.record.owner } else { self.record.owner + 1 }
    }

    /// Whether this host has taken the pool before, and no owner was accepted since.
    #[must_use]
    pub const fn is_taken(&self) -> bool {
        self.record.taken_over
    }

    /// Raises the owner's number, durably. Done again, it changes nothing.
    ///
    /// # Errors
    /// [`StoreError`]: the record was changed meanwhile, or cannot be written.
    pub fn take(self) -> Result<TakenCopy, StoreError> {
        let (pool, owner) = (self.record.pool_id(), self.owner());
        let records = self.store.records()?;
        if self.store.read(pool)?.as_ref() != Some(&self.record) {
            return Err(StoreError::InUse(self.path.clone()));
        }
        records.write(pool, &Record { owner, taken_over: true, settled: true, ..self.record.clone() })?;
        Ok(TakenCopy { path: self.path.clone(), pool, owner })
    }
}

/// Holds the copy of a pool, and waits until the server has let it go. On return all of it is on disk.
///
/// # Errors
/// [`StoreError`]: no such pool, bytes that do not count, or a file that another process has.
pub fn hold_copy(dir: &Path, pool: Option<&str>) -> Result<HeldCopy, StoreError> {
    hold_in(Store::find(dir)?, pool)
}

/// Takes the pool of a copy that needs no judgement: [`hold_copy`], and [`HeldCopy::take`].
///
/// # Errors
/// [`StoreError`].
pub fn take_over(dir: &Path, pool: Option<&str>) -> Result<TakenCopy, StoreError> {
    hold_copy(dir, pool)?.take()
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
pub(crate) fn find(store: &Store, pool: Option<&str>) -> Result<Record, StoreError> {
    let mut all = store.all_records()?;
    all.retain(|record| record.removed.is_none());
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

pub(crate) fn hold_in(store: Store, pool: Option<&str>) -> Result<HeldCopy, StoreError> {
    let id = find(&store, pool)?.pool_id();
    let hold = store.hold(id)?;
    let records = store.records()?;
    let record = counting(&store, id)?;
    let path = store.file_path(&record);
    // As it is: the server looks at a record that was written anew, and finds the hold.
    records.write(id, &record)?;
    drop(records);
    let file = open_locked(&path, PATIENCE)?;
    // What the server had answered from the kernel's memory.
    let synced = file.sync_all();
    let records = store.records()?;
    if let Err(error) = synced {
        records.note(id, &record.file, |record| record.failed = Some(format!("a sync failed: {error}")))?;
    }
    // The server may have found out at its last sync that the copy does not count.
    let now = counting(&store, id)?;
    if now.file != record.file {
        return Err(StoreError::InUse(path));
    }
    drop(records);
    Ok(HeldCopy { store, record: now, path, file, _hold: hold })
}

/// The record of a pool whose copy counts.
fn counting(store: &Store, pool: PoolId) -> Result<Record, StoreError> {
    let gone = || StoreError::WhichPool(format!("{} keeps no copy of pool {pool}", store.dir().display()));
    let record = store.read(pool)?.ok_or_else(gone)?;
    let Some(why) = store.why_not(&record) else { return Ok(record) };
    Err(StoreError::DoesNotCount(format!(
        "the copy of pool {pool} does not count: {why}. What the owner was told may not be in it. Nothing was changed. \
         Bring the owner's flash back. If that is lost for good, what there is can be read: headpond check {}",
        store.file_path(&record).display()
    )))
}
