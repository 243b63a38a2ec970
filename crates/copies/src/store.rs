//! What a peer keeps, in one directory: for each pool a record, and the file of its member.
//!
//! | name | what it is |
//! | --- | --- |
//! | `POOL.json` | the record: owner's number, epoch, the file, and whether its bytes count |
//! | `POOL.MEMBER.copy` | the member, byte for byte as on any other device of the pool |
//! | `lock` | held for each change of a record |
//! | `serving` | held by the one server of the store |
//!
//! Invariants:
//! - A record is replaced whole, and durable when a change of it returns. Owner's number and epoch never go down.
//! - The bytes of a copy count unless the host went down while an owner was connected: its kernel may have forgotten
//!   what was answered. The boot in the record tells.
//! - A copy is made only after the record of the one before it says that this one does not count.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use headpond_base::{PoolId, hex, unhex};
use headpond_peer::{Hello, HelloVerdict, Kept, MemberNamed, Reason, judge};
use rustix::fs::{FallocateFlags, FlockOperation, flock};
use serde::{Deserialize, Serialize};
use thiserror::Error;

const LOCK: &str = "lock";
const SERVING: &str = "serving";
const VERSION: u32 = 1;

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
    /// Another server has it.
    #[error("another `headpond peer serve` has the store {}", .0.display())]
    Serving(PathBuf),
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
    /// Another process has the file, and keeps it.
    #[error("{} is in use by another process. A pool that took over may be mounted from it", .0.display())]
    InUse(PathBuf),
}

impl StoreError {
    pub(crate) fn io<'a>(doing: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> Self + 'a {
        move |source| Self::Io { doing, path: path.to_owned(), source }
    }
}

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
    /// This host took the pool for itself, and no owner was accepted since.
    pub(crate) taken_over: bool,
    /// When an owner was last connected, or accepted: seconds since 1970.
    pub(crate) last_connection: u64,
}

impl Record {
    /// The pool; zeros if the record names none.
    pub(crate) fn pool_id(&self) -> PoolId {
        PoolId(unhex(&self.pool).unwrap_or_default())
    }

    /// The member's name; zeros if the record has none.
    pub(crate) fn member_name(&self) -> MemberNamed {
        unhex(&self.member).unwrap_or_default()
    }
}

/// What a store keeps of one pool, for people.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct StoredCopy {
    /// The pool.
    pub pool: String,
    /// The largest owner's number that is known.
    pub owner: u64,
    /// The epoch of that.
    pub epoch: u64,
    /// Bytes of the member.
    pub bytes: u64,
    /// Its file.
    pub file: PathBuf,
    /// Whether a process has the file open: a server with a connection, or a pool that took over.
    pub in_use: bool,
    /// Whether the bytes count.
    pub counts: bool,
    /// Whether this host took the pool for itself.
    pub taken_over: bool,
    /// When an owner was last connected, or accepted: seconds since 1970.
    pub last_connection: u64,
}

/// A directory with copies.
#[derive(Clone, Debug)]
pub struct Store {
    dir: PathBuf,
    boot: String,
}

/// The record of a pool is this process's to change.
pub(crate) struct Records<'a> {
    store: &'a Store,
    _lock: File,
}

/// Tells one version of a record from another.
pub(crate) type RecordStamp = (u64, i64, i64);

impl Store {
    /// Opens a store, and makes its directory if it is missing.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn open(dir: &Path) -> Result<Self, StoreError> {
        let boot = Path::new("/proc/sys/kernel/random/boot_id");
        let boot = fs::read_to_string(boot).map_err(StoreError::io("read", boot))?;
        Self::open_in_boot(dir, boot.trim())
    }

    pub(crate) fn open_in_boot(dir: &Path, boot: &str) -> Result<Self, StoreError> {
        fs::create_dir_all(dir).map_err(StoreError::io("make", dir))?;
        Ok(Self { dir: dir.to_owned(), boot: boot.to_owned() })
    }

    /// Its directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Takes the store for one server, as long as the file lives.
    pub(crate) fn take_for_server(&self) -> Result<File, StoreError> {
        let path = self.dir.join(SERVING);
        let file = self.lock_file(SERVING)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(file),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(StoreError::Serving(self.dir.clone())),
            Err(errno) => Err(StoreError::io("lock", &path)(errno.into())),
        }
    }

    fn lock_file(&self, name: &str) -> Result<File, StoreError> {
        let path = self.dir.join(name);
        let how = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
        how.map_err(StoreError::io("open", &path))
    }

    /// Waits until the records are this process's to change: others change them in an instant.
    pub(crate) fn records(&self) -> Result<Records<'_>, StoreError> {
        let lock = self.lock_file(LOCK)?;
        flock(&lock, FlockOperation::LockExclusive)
            .map_err(|errno| StoreError::io("lock", &self.dir.join(LOCK))(errno.into()))?;
        Ok(Records { store: self, _lock: lock })
    }

    pub(crate) fn record_path(&self, pool: PoolId) -> PathBuf {
        self.dir.join(format!("{}.json", hex(&pool.0)))
    }

    pub(crate) fn file_path(&self, record: &Record) -> PathBuf {
        self.dir.join(&record.file)
    }

    /// The record of a pool as it is now.
    pub(crate) fn read(&self, pool: PoolId) -> Result<Option<Record>, StoreError> {
        read_record(&self.record_path(pool))
    }

    /// Which version of the record of a pool is there now.
    pub(crate) fn stamp(&self, pool: PoolId) -> io::Result<RecordStamp> {
        let found = fs::metadata(self.record_path(pool))?;
        Ok((found.ino(), found.mtime(), found.mtime_nsec()))
    }

    /// Whether the bytes of a copy count.
    pub(crate) fn counts(&self, record: &Record) -> bool {
        record.made && (record.settled || record.boot == self.boot)
    }

    fn kept(&self, record: &Record) -> Kept {
        let Record { owner, epoch, bytes, .. } = *record;
        Kept { owner, epoch, bytes, member: record.member_name(), counts: self.counts(record) }
    }

    /// All that it keeps.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn all(&self) -> Result<Vec<StoredCopy>, StoreError> {
        let mut found = Vec::new();
        for record in self.all_records()? {
            let file = self.file_path(&record);
            let in_use = File::open(&file).is_ok_and(|file| {
                matches!(flock(&file, FlockOperation::NonBlockingLockShared), Err(rustix::io::Errno::WOULDBLOCK))
            });
            found.push(StoredCopy {
                counts: self.counts(&record),
                pool: record.pool_id().to_string(),
                owner: record.owner,
                epoch: record.epoch,
                bytes: record.bytes,
                file,
                in_use,
                taken_over: record.taken_over,
                last_connection: record.last_connection,
            });
        }
        Ok(found)
    }

    pub(crate) fn all_records(&self) -> Result<Vec<Record>, StoreError> {
        let entries = fs::read_dir(&self.dir).map_err(StoreError::io("read", &self.dir))?;
        let mut paths = Vec::new();
        for entry in entries {
            let path = entry.map_err(StoreError::io("read", &self.dir))?.path();
            if path.extension().is_some_and(|kind| kind == "json") {
                paths.push(path);
            }
        }
        paths.sort();
        paths.iter().filter_map(|path| read_record(path).transpose()).collect()
    }
}

impl Records<'_> {
    /// Judges a hello, and makes durable what follows from it. What is to be served, and whether it was made anew.
    pub(crate) fn meet(&self, hello: &Hello, limit: u64) -> Result<Result<Record, (Reason, u64)>, StoreError> {
        let store = self.store;
        let known = store.read(hello.pool)?;
        let kept = known.as_ref().map(|record| store.kept(record));
        let accepted = |kept: &Kept, file: String| Record {
            version: VERSION,
            pool: hex(&hello.pool.0),
            member: hex(&kept.member),
            owner: kept.owner,
            epoch: kept.epoch,
            bytes: kept.bytes,
            file,
            made: true,
            boot: store.boot.clone(),
            settled: false,
            taken_over: false,
            last_connection: now(),
        };
        match (judge(hello, kept.as_ref()), known) {
            (HelloVerdict::Open(kept), Some(known)) => {
                let record = accepted(&kept, known.file);
                self.write(hello.pool, &record)?;
                Ok(Ok(record))
            }
            (HelloVerdict::Open(_), None) => Ok(Err((Reason::NotKept, 0))),
            (HelloVerdict::Make(kept), known) => {
                let others = store.all_records()?.into_iter().filter(|other| other.pool != hex(&hello.pool.0));
                let room = limit.saturating_sub(others.map(|other| other.bytes).fold(0, u64::saturating_add));
                if kept.bytes > room {
                    return Ok(Err((Reason::NoRoom, room)));
                }
                let record = accepted(&kept, format!("{}.{}.copy", hex(&hello.pool.0), hex(&kept.member)));
                if let Some(known) = known {
                    self.write(hello.pool, &Record { made: false, ..record.clone() })?;
                    let path = store.file_path(&known);
                    match fs::remove_file(&path) {
                        Err(error) if error.kind() != io::ErrorKind::NotFound => {
                            return Err(StoreError::io("remove", &path)(error));
                        }
                        _ => {}
                    }
                }
                let path = store.file_path(&record);
                if let Err(error) = make(&path, record.bytes) {
                    let _ = fs::remove_file(&path);
                    let free = rustix::fs::statvfs(&store.dir).map_or(0, |stat| stat.f_bavail * stat.f_frsize);
                    let full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
                    return if full {
                        Ok(Err((Reason::NoRoom, free.min(room))))
                    } else {
                        Err(StoreError::io("make", &path)(error))
                    };
                }
                self.write(hello.pool, &record)?;
                Ok(Ok(record))
            }
            (HelloVerdict::Refuse(reason), _) => Ok(Err((reason, 0))),
        }
    }

    /// Changes a record durably.
    pub(crate) fn write(&self, pool: PoolId, record: &Record) -> Result<(), StoreError> {
        let path = self.store.record_path(pool);
        let next = path.with_extension("next");
        let written = || -> io::Result<()> {
            let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&next)?;
            file.write_all(serde_json::to_string_pretty(record)?.as_bytes())?;
            file.sync_all()?;
            fs::rename(&next, &path)?;
            File::open(&self.store.dir)?.sync_all()
        };
        written().map_err(StoreError::io("write", &path))
    }
}

/// Makes an empty file with all its space.
fn make(path: &Path, bytes: u64) -> io::Result<()> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(path)?;
    // It asks for free space first: a refusal must not take all of it meanwhile.
    let free = rustix::fs::fstatvfs(&file).map_or(u64::MAX, |stat| stat.f_bavail.saturating_mul(stat.f_frsize));
    if bytes > free {
        return Err(io::ErrorKind::StorageFull.into());
    }
    match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes) {
        Ok(()) => {}
        // Without it the file system may run full later: a write fails then, and the owner loses this copy.
        Err(rustix::io::Errno::OPNOTSUPP) => file.set_len(bytes)?,
        Err(errno) => return Err(errno.into()),
    }
    file.sync_all()?;
    File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
}

fn read_record(path: &Path) -> Result<Option<Record>, StoreError> {
    let damaged = |what: String| StoreError::Damaged { path: path.to_owned(), what };
    let text = match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        text => text.map_err(StoreError::io("read", path))?,
    };
    let record: Record = serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
    if record.version != VERSION {
        return Err(damaged(format!("it has version {}, and this headpond reads {VERSION}", record.version)));
    }
    // A record never leads out of its store.
    if record.file.contains('/') || record.pool_id() == PoolId::default() {
        return Err(damaged("it names no file of this store".to_owned()));
    }
    Ok(Some(record))
}

pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use headpond_peer::PROTOCOL;

    use super::*;

    const POOL: PoolId = PoolId([7; 16]);
    const BYTES: u64 = 1 << 20;

    fn hello(owner: u64, epoch: u64, member: u8, bytes: u64) -> Hello {
        Hello { version: PROTOCOL, durable: false, pool: POOL, member: [member; 16], owner, epoch, bytes }
    }

    fn meet(store: &Store, hello: &Hello) -> Result<Record, (Reason, u64)> {
        store.records().unwrap().meet(hello, 2 * BYTES).unwrap()
    }

    #[test]
    fn a_copy_counts_until_its_host_goes_down_while_an_owner_is_connected() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open_in_boot(dir.path(), "first").unwrap();
        assert_eq!(meet(&store, &hello(1, 3, 0, 0)), Err((Reason::NotKept, 0)));
        let made = meet(&store, &hello(1, 3, 5, BYTES)).unwrap();
        assert_eq!(fs::metadata(store.file_path(&made)).unwrap().len(), BYTES);
        // The server was killed, and the kernel kept all.
        assert!(meet(&store, &hello(1, 4, 0, 0)).is_ok());
        let later = Store::open_in_boot(dir.path(), "second").unwrap();
        assert_eq!(meet(&later, &hello(1, 4, 0, 0)), Err((Reason::NotKept, 0)), "memory of the host is gone");
        assert!(!later.all().unwrap()[0].counts);
        let anew = meet(&later, &hello(1, 4, 6, BYTES)).unwrap();
        assert_ne!(anew.file, made.file);
        assert!(!store.file_path(&made).exists());
        later.records().unwrap().write(POOL, &Record { settled: true, ..anew }).unwrap();
        let third = Store::open_in_boot(dir.path(), "third").unwrap();
        assert!(meet(&third, &hello(1, 4, 0, 0)).is_ok(), "all was on disk");
    }

    #[test]
    fn what_has_no_room_leaves_what_is_kept_and_a_record_leads_nowhere_else() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open_in_boot(dir.path(), "boot").unwrap();
        let made = meet(&store, &hello(1, 1, 5, BYTES)).unwrap();
        assert_eq!(meet(&store, &hello(1, 1, 6, 3 * BYTES)), Err((Reason::NoRoom, 2 * BYTES)));
        assert!(store.file_path(&made).exists());
        let records = store.records().unwrap();
        records.write(POOL, &Record { file: "../../etc/passwd".to_owned(), ..made }).unwrap();
        drop(records);
        assert!(matches!(store.read(POOL), Err(StoreError::Damaged { .. })));
    }
}
