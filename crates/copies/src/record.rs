//! The record of a pool in a store: who may write to the copy, and whether its bytes count.
//!
//! The bytes of a copy count if
//! - the copy was made whole, and is there, and
//! - no sync of it has failed, and
//! - all that was answered is on disk: the owner went and everything was synced then (`settled`), or each answered sync
//!   was (`durable`); or this host has not gone down since, so its kernel has what the disk lacks.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use headpond_base::{PoolId, unhex};
use headpond_peer::MemberNamed;
use serde::{Deserialize, Serialize};

use crate::store_error::StoreError;

/// The layout that is written. Version 1 lacks `durable` and `failed`, version 2 `removed`.
pub(crate) const VERSION: u32 = 3;

/// The record of a pool.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) version: u32,
    pub(crate) pool: String,
    pub(crate) member: String,
    pub(crate) owner: u64,
    pub(crate) epoch: u64,
    pub(crate) bytes: u64,
    pub(crate) file: String,
    /// False while a copy is made in place of another.
    pub(crate) made: bool,
    /// The boot of this host in which an owner was last connected.
    pub(crate) boot: String,
    /// Everything was on disk when that owner went.
    pub(crate) settled: bool,
    /// Since that owner was accepted, each answered sync is on disk, with all that was written before it.
    #[serde(default)]
    pub(crate) durable: bool,
    /// A sync of the file failed, for this reason: any write before it may be lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) failed: Option<String>,
    /// There is no copy any more, for this reason. The owner's number stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) removed: Option<String>,
    /// This host took the pool for itself, and no owner was accepted since.
    pub(crate) taken_over: bool,
    /// When an owner was last connected, or accepted: seconds since 1970.
    pub(crate) last_connection: u64,
}

/// The version of a record that was read. Its file stays open: so no later version gets its inode number, and to
/// compare the numbers is enough.
#[derive(Debug)]
pub(crate) struct Seen {
    _file: File,
    place: (u64, u64),
}

impl Seen {
    /// Whether the record at this path still is the one that was read.
    pub(crate) fn is_at(&self, path: &Path) -> bool {
        fs::metadata(path).is_ok_and(|found| (found.dev(), found.ino()) == self.place)
    }
}

impl Record {
    /// Reads the record at a path, if there is one.
    pub(crate) fn read(path: &Path) -> Result<Option<(Self, Seen)>, StoreError> {
        let damaged = |what: String| StoreError::Damaged { path: path.to_owned(), what };
        let mut file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file.map_err(StoreError::io("open", path))?,
        };
        let found = file.metadata().map_err(StoreError::io("look at", path))?;
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(StoreError::io("read", path))?;
        let record: Self = serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
        if !(1..=VERSION).contains(&record.version) {
            return Err(damaged(format!("it has version {}, and this headpond reads {VERSION}", record.version)));
        }
        // A record never leads out of its store.
        if record.file.contains('/') || record.pool_id() == PoolId::default() {
            return Err(damaged("it names no file of this store".to_owned()));
        }
        Ok(Some((record, Seen { _file: file, place: (found.dev(), found.ino()) })))
    }

    /// The pool; zeros if the record names none.
    pub(crate) fn pool_id(&self) -> PoolId {
        PoolId(unhex(&self.pool).unwrap_or_default())
    }

    /// The member's name; zeros if the record has none.
    pub(crate) fn member_name(&self) -> MemberNamed {
        unhex(&self.member).unwrap_or_default()
    }

    /// Why the bytes do not count in this boot, if they do not. `file` is where they lie.
    pub(crate) fn why_not(&self, boot: &str, file: &Path) -> Option<String> {
        if let Some(why) = &self.removed {
            return Some(why.clone());
        }
        if let Some(why) = &self.failed {
            return Some(format!("its disk failed: {why}"));
        }
        if !self.made {
            return Some("it was being made anew while the owner was connected".to_owned());
        }
        if !fs::metadata(file).is_ok_and(|found| found.len() >= self.bytes) {
            return Some("its file is missing, or cut short".to_owned());
        }
        (!self.settled && !self.durable && self.boot != boot)
            .then(|| "this host went down while the owner was connected".to_owned())
    }
}

pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
