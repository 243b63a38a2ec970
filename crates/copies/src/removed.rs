//! An operator removes a copy that its owner has not let go.
//!
//! Invariant: a copy whose owner is connected, or that another process has, stays; and so does one that counts, unless the
//! caller gives up what it has. The owner's number and the epoch stay known.

use std::path::Path;

use crate::record::Record;
use crate::store::{LOOK_PATIENCE, Store, StoredCopy, open_locked};
use crate::store_error::StoreError;
use crate::taken_over::find;

/// Removes the copy of a pool, and returns what it was. `discard`: also if it counts.
///
/// # Errors
/// [`StoreError`]. Nothing was removed.
pub fn remove_copy(dir: &Path, pool: &str, discard: bool) -> Result<StoredCopy, StoreError> {
    let store = Store::find(dir)?;
    let id = find(&store, Some(pool))?.pool_id();
    // Nobody is accepted meanwhile.
    let _hold = store.hold(id)?;
    let records = store.records()?;
    // By now an owner may have let it go.
    let record = find(&store, Some(pool))?;
    let shown = store.shown(&record);
    free(&store, &record)?;
    if shown.counts && !discard {
        let whose = if record.taken_over {
            "this host has taken the pool over, and the copy is its flash".to_owned()
        } else {
            format!(
                "it may be all that is left of what the owner synced. To go on with it: headpond takeover --store {}",
                dir.display()
            )
        };
        return Err(StoreError::Wanted(format!(
            "the copy of pool {id} counts: {whose}. Nothing was removed. To lose it: --discard"
        )));
    }
    records.remove(&record, "it was removed by hand")?;
    Ok(shown)
}

/// Makes sure that no process has the file.
fn free(store: &Store, record: &Record) -> Result<(), StoreError> {
    let path = store.file_path(record);
    if !path.exists() {
        return Ok(());
    }
    open_locked(&path, LOOK_PATIENCE).map(drop).map_err(|error| match error {
        StoreError::InUse(_) if !record.taken_over => StoreError::Wanted(format!(
            "the owner of pool {} is connected. Nothing was removed. There: headpond pool remove MOUNTPOINT PEER, with this \
             host's address",
            record.pool_id()
        )),
        error => error,
    })
}
