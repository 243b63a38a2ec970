//! What a peer keeps, in one directory: for each pool a record, and the file of its member.
//!
//! | name | what it is |
//! | --- | --- |
//! | `POOL.json` | the [record](Record): owner's number, epoch, the file, and whether its bytes count |
//! | `POOL.MEMBER.copy` | the member, byte for byte as on any other device of the pool |
//! | `POOL.held` | locked by a process that judges the copy for a take-over; it has no content |
//! | `lock` | held for each change of a record, and for nothing else |
//! | `draining` | there while no copy is to be made: it has no content |
//! | `serving` | held by the one server of the store |
//!
//! Invariants:
//! - A record is replaced whole, and durable when a change of it returns. Owner's number and epoch never go down.
//! - A copy is made only after the record of the one before it says that this one does not count. A crash between any two
//!   steps leaves a record whose copy does not count, and at most files that the next making removes.
//! - No record is changed for an owner while `POOL.held` is locked.
//! - A record says that all syncs are durable only once everything that was written before is on disk.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use headpond_base::{PoolId, hex};
use headpond_peer::{Hello, HelloVerdict, Kept, Reason, Versions, judge};
use rustix::fs::{FallocateFlags, FlockOperation, flock};
use serde::Serialize;

use crate::record::{Record, Seen, VERSION, now};
use crate::store_error::StoreError;

const LOCK: &str = "lock";
const SERVING: &str = "serving";
const DRAINING: &str = "draining";

/// How long a lock is waited for that others take for an instant.
pub(crate) const LOOK_PATIENCE: Duration = Duration::from_secs(1);

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
    /// Why they do not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Whether there is none any more, but for the owner's number.
    pub removed: bool,
    /// Whether each answered sync is on this host's disk.
    pub durable: bool,
    /// Whether this host took the pool for itself.
    pub taken_over: bool,
    /// When an owner was last connected, or accepted: seconds since 1970.
    pub last_connection: u64,
}

/// How the file of a copy is brought to disk.
type Sync = dyn Fn(PoolId, &File) -> io::Result<()> + Send + std::marker::Sync;

/// A directory with copies.
#[derive(Clone)]
pub struct Store {
    dir: PathBuf,
    boot: String,
    speaks: Versions,
    sync: Arc<Sync>,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Store({})", self.dir.display())
    }
}

/// The record of a pool is this process's to change.
pub(crate) struct Records<'a> {
    store: &'a Store,
    _lock: File,
}

/// What becomes of a hello.
pub(crate) enum Verdict {
    /// This copy is served.
    Open(Kept, Record),
    /// One is made, in place of that of this record.
    Make(Kept, Option<Record>),
    /// Nothing changes.
    Refuse(Reason, u64),
}

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

    /// Opens a store that is there.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn find(dir: &Path) -> Result<Self, StoreError> {
        if dir.is_dir() { Self::open(dir) } else { Err(StoreError::NoStore(dir.to_owned())) }
    }

    pub(crate) fn open_in_boot(dir: &Path, boot: &str) -> Result<Self, StoreError> {
        fs::create_dir_all(dir).map_err(StoreError::io("make", dir))?;
        Ok(Self {
            dir: dir.to_owned(),
            boot: boot.to_owned(),
            speaks: Versions::SPOKEN,
            sync: Arc::new(|_, file| file.sync_data()),
        })
    }

    /// The same, with another way to bring files to disk.
    #[cfg(test)]
    pub(crate) fn syncing(
        self,
        sync: impl Fn(PoolId, &File) -> io::Result<()> + Send + std::marker::Sync + 'static,
    ) -> Self {
        Self { sync: Arc::new(sync), ..self }
    }

    /// The same, with a server that speaks other versions of the protocol.
    #[cfg(test)]
    pub(crate) fn speaking(self, speaks: Versions) -> Self {
        Self { speaks, ..self }
    }

    /// Which versions of the protocol its server speaks.
    pub(crate) const fn speaks(&self) -> Versions {
        self.speaks
    }

    /// Brings the file of a pool's copy to disk.
    pub(crate) fn sync(&self, pool: PoolId, file: &File) -> io::Result<()> {
        (self.sync)(pool, file)
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

    /// Whether copies are to go from here: none is made.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.dir.join(DRAINING).exists()
    }

    /// Says durably whether they are.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn set_draining(&self, draining: bool) -> Result<(), StoreError> {
        let path = self.dir.join(DRAINING);
        if draining {
            self.lock_file(DRAINING)?;
        } else if let Err(error) = fs::remove_file(&path)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(StoreError::io("remove", &path)(error));
        }
        self.sync_dir().map_err(StoreError::io("sync", &self.dir))
    }

    fn sync_dir(&self) -> io::Result<()> {
        File::open(&self.dir)?.sync_all()
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
        Ok(self.look(pool)?.map(|(record, _)| record))
    }

    /// The same, and which version it is.
    pub(crate) fn look(&self, pool: PoolId) -> Result<Option<(Record, Seen)>, StoreError> {
        Record::read(&self.record_path(pool))
    }

    /// Whether the record of a pool still is the one that was seen.
    pub(crate) fn is_as_seen(&self, pool: PoolId, seen: &Seen) -> bool {
        seen.is_at(&self.record_path(pool))
    }

    /// Holds the copy of a pool as long as the file lives: no owner is accepted, and who is connected is served no more
    /// once he looks. The kernel lets go of it when the process dies.
    pub(crate) fn hold(&self, pool: PoolId) -> Result<File, StoreError> {
        let name = held_name(pool);
        let file = self.lock_file(&name)?;
        // The server looks whether it is held, and locks it for an instant for that.
        lock(&file, &self.dir.join(name), LOOK_PATIENCE).map_err(|error| match error {
            StoreError::InUse(_) => StoreError::Held(pool),
            error => error,
        })?;
        Ok(file)
    }

    /// Whether a process holds the copy of a pool. Whoever cannot tell holds still.
    pub(crate) fn is_held(&self, pool: PoolId) -> bool {
        match File::open(self.dir.join(held_name(pool))) {
            Ok(file) => flock(&file, FlockOperation::NonBlockingLockShared).is_err(),
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        }
    }

    /// Why the bytes of a copy do not count, if they do not.
    pub(crate) fn why_not(&self, record: &Record) -> Option<String> {
        record.why_not(&self.boot, &self.file_path(record))
    }

    /// Judges a hello by what is kept. Changes nothing.
    pub(crate) fn judge(&self, hello: &Hello, limit: u64) -> Result<Verdict, StoreError> {
        let known = self.read(hello.pool)?;
        let kept = known.as_ref().map(|record| {
            let Record { owner, epoch, bytes, .. } = *record;
            Kept { owner, epoch, bytes, member: record.member_name(), counts: self.why_not(record).is_none() }
        });
        Ok(match (judge(self.speaks, hello, kept.as_ref()), known) {
            (HelloVerdict::Open(kept), Some(known)) => Verdict::Open(kept, known),
            (HelloVerdict::Open(_), None) => Verdict::Refuse(Reason::NotKept, 0),
            (HelloVerdict::Make(_), _) if self.is_draining() => Verdict::Refuse(Reason::Draining, 0),
            (HelloVerdict::Make(kept), known) => {
                let others = self.all_records()?.into_iter().filter(|other| other.pool != hex(&hello.pool.0));
                let room = limit.saturating_sub(others.map(|other| other.bytes).fold(0, u64::saturating_add));
                if kept.bytes > room { Verdict::Refuse(Reason::NoRoom, room) } else { Verdict::Make(kept, known) }
            }
            (HelloVerdict::Refuse(reason), _) => Verdict::Refuse(reason, 0),
        })
    }

    /// Makes the empty file of a record, in place of whatever files the pool has. None of them counts.
    pub(crate) fn make_file(&self, record: &Record) -> Result<Result<(), (Reason, u64)>, StoreError> {
        // Also those that a crash during an earlier making has left.
        self.remove_files(record.pool_id())?;
        let path = self.file_path(record);
        let Err(error) = make(&path, record.bytes) else { return Ok(Ok(())) };
        let _ = fs::remove_file(&path);
        if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
            let free = rustix::fs::statvfs(&self.dir).map_or(0, |stat| stat.f_bavail * stat.f_frsize);
            return Ok(Err((Reason::NoRoom, free)));
        }
        Err(StoreError::io("make", &path)(error))
    }

    /// Removes whatever files a pool has. None of them counts, and nobody has one.
    pub(crate) fn remove_files(&self, pool: PoolId) -> Result<(), StoreError> {
        for path in self.files_of(pool)? {
            let _file = open_locked(&path, LOOK_PATIENCE)?;
            fs::remove_file(&path).map_err(StoreError::io("remove", &path))?;
        }
        Ok(())
    }

    fn files_of(&self, pool: PoolId) -> Result<Vec<PathBuf>, StoreError> {
        let first = format!("{}.", hex(&pool.0));
        let is_of = |path: &Path| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&first))
                && path.extension().is_some_and(|kind| kind == "copy")
        };
        Ok(self.paths()?.into_iter().filter(|path| is_of(path)).collect())
    }

    /// All that it keeps.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn all(&self) -> Result<Vec<StoredCopy>, StoreError> {
        Ok(self.all_records()?.iter().map(|record| self.shown(record)).collect())
    }

    /// A record, for people.
    pub(crate) fn shown(&self, record: &Record) -> StoredCopy {
        let file = self.file_path(record);
        let in_use = File::open(&file).is_ok_and(|file| {
            matches!(flock(&file, FlockOperation::NonBlockingLockShared), Err(rustix::io::Errno::WOULDBLOCK))
        });
        let why = self.why_not(record);
        StoredCopy {
            counts: why.is_none(),
            why,
            removed: record.removed.is_some(),
            durable: record.durable,
            pool: record.pool_id().to_string(),
            owner: record.owner,
            epoch: record.epoch,
            bytes: record.bytes,
            file,
            in_use,
            taken_over: record.taken_over,
            last_connection: record.last_connection,
        }
    }

    pub(crate) fn all_records(&self) -> Result<Vec<Record>, StoreError> {
        let paths = self.paths()?.into_iter().filter(|path| path.extension().is_some_and(|kind| kind == "json"));
        let read = |path: PathBuf| Record::read(&path).transpose().map(|read| read.map(|(record, _)| record));
        paths.filter_map(read).collect()
    }

    fn paths(&self) -> Result<Vec<PathBuf>, StoreError> {
        let entries = fs::read_dir(&self.dir).map_err(StoreError::io("read", &self.dir))?;
        let paths = entries.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<PathBuf>>>();
        let mut paths = paths.map_err(StoreError::io("read", &self.dir))?;
        paths.sort();
        Ok(paths)
    }
}

impl Records<'_> {
    /// Judges a hello once more, and makes durable what follows from it. Of a copy that is made, the record says that it
    /// is not made yet. `durable`: everything that was written is on disk, and each sync will be before its answer.
    pub(crate) fn accept(
        &self,
        hello: &Hello,
        limit: u64,
        durable: bool,
    ) -> Result<Result<Record, (Reason, u64)>, StoreError> {
        let store = self.store;
        if store.is_held(hello.pool) {
            return Ok(Err((Reason::InUse, 0)));
        }
        let (kept, file, made) = match store.judge(hello, limit)? {
            Verdict::Open(kept, known) => (kept, known.file, true),
            Verdict::Make(kept, _) => (kept, format!("{}.{}.copy", hex(&hello.pool.0), hex(&kept.member)), false),
            Verdict::Refuse(reason, bytes) => return Ok(Err((reason, bytes))),
        };
        let record = Record {
            version: VERSION,
            pool: hex(&hello.pool.0),
            member: hex(&kept.member),
            owner: kept.owner,
            epoch: kept.epoch,
            bytes: kept.bytes,
            file,
            made,
            boot: store.boot.clone(),
            settled: false,
            durable,
            failed: None,
            removed: None,
            taken_over: false,
            last_connection: now(),
        };
        self.write(hello.pool, &record)?;
        Ok(Ok(record))
    }

    /// The copy of a record that [`Self::accept`] wrote is made. False if another process has changed the record since.
    pub(crate) fn made(&self, record: &mut Record) -> Result<bool, StoreError> {
        let pool = record.pool_id();
        if self.store.is_held(pool) || self.store.read(pool)?.as_ref() != Some(record) {
            return Ok(false);
        }
        record.made = true;
        self.write(pool, record).map(|()| true)
    }

    /// The copy of a record that [`Self::accept`] wrote cannot be made: it takes no room. Without one `before`, nothing is
    /// known of the pool.
    pub(crate) fn unmade(&self, record: &Record, before: bool) -> Result<(), StoreError> {
        let pool = record.pool_id();
        if self.store.read(pool)?.as_ref() != Some(record) {
            return Ok(());
        }
        if before {
            return self.write(pool, &Record { bytes: 0, ..record.clone() });
        }
        let path = self.store.record_path(pool);
        fs::remove_file(&path).map_err(StoreError::io("remove", &path))
    }

    /// Notes what became of the file of a copy. Nothing, if the pool has another file by now.
    pub(crate) fn note(&self, pool: PoolId, file: &str, change: impl FnOnce(&mut Record)) -> Result<(), StoreError> {
        let Some(mut record) = self.store.read(pool)?.filter(|record| record.file == file) else { return Ok(()) };
        change(&mut record);
        self.write(pool, &record)
    }

    /// Notes durably that there is no copy any more, and why, and then frees its room. Nobody has the file.
    pub(crate) fn remove(&self, record: &Record, why: &str) -> Result<(), StoreError> {
        let pool = record.pool_id();
        self.write(pool, &Record { bytes: 0, removed: Some(why.to_owned()), taken_over: false, ..record.clone() })?;
        self.store.remove_files(pool)
    }

    /// Changes a record durably.
    pub(crate) fn write(&self, pool: PoolId, record: &Record) -> Result<(), StoreError> {
        let path = self.store.record_path(pool);
        let next = path.with_extension("next");
        let written = || -> io::Result<()> {
            let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&next)?;
            file.write_all(serde_json::to_string_pretty(&Record { version: VERSION, ..record.clone() })?.as_bytes())?;
            file.sync_all()?;
            fs::rename(&next, &path)?;
            self.store.sync_dir()
        };
        written().map_err(StoreError::io("write", &path))
    }
}

fn held_name(pool: PoolId) -> String {
    format!("{}.held", hex(&pool.0))
}

/// Opens a copy's file, and locks it if nobody has it after this time.
pub(crate) fn open_locked(path: &Path, patience: Duration) -> Result<File, StoreError> {
    let file = File::options().read(true).write(true).open(path).map_err(StoreError::io("open", path))?;
    lock(&file, path, patience)?;
    Ok(file)
}

/// Locks a file, if nobody has it after this time.
fn lock(file: &File, path: &Path, patience: Duration) -> Result<(), StoreError> {
    let until = Instant::now() + patience;
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(StoreError::InUse(path.to_owned())),
            Err(errno) => return Err(StoreError::io("lock", path)(errno.into())),
        }
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

#[cfg(test)]
mod tests {
    use headpond_peer::Versions;

    use super::*;

    const POOL: PoolId = PoolId([7; 16]);
    const BYTES: u64 = 1 << 20;

    fn hello(owner: u64, epoch: u64, member: u8, bytes: u64) -> Hello {
        Hello {
            versions: Versions::SPOKEN,
            durable: false,
            pool: POOL,
            member: [member; 16],
            owner,
            epoch,
            bytes,
            beside: [0; 16],
        }
    }

    fn accept(store: &Store, hello: &Hello, durable: bool) -> Result<Record, (Reason, u64)> {
        store.records().unwrap().accept(hello, 2 * BYTES, durable).unwrap()
    }

    /// A hello with all that follows.
    fn meet(store: &Store, hello: &Hello, durable: bool) -> Result<Record, (Reason, u64)> {
        let mut record = accept(store, hello, durable)?;
        if hello.bytes > 0 {
            store.make_file(&record).unwrap()?;
            assert!(store.records().unwrap().made(&mut record).unwrap());
        }
        Ok(record)
    }

    fn copies(store: &Store) -> usize {
        store.files_of(POOL).unwrap().len()
    }

    #[test]
    fn a_copy_counts_until_its_host_goes_down_while_an_owner_is_connected() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open_in_boot(dir.path(), "first").unwrap();
        assert_eq!(meet(&store, &hello(1, 3, 0, 0), false), Err((Reason::NotKept, 0)));
        let made = meet(&store, &hello(1, 3, 5, BYTES), false).unwrap();
        assert_eq!(fs::metadata(store.file_path(&made)).unwrap().len(), BYTES);
        // The server was killed, and the kernel kept all.
        assert!(meet(&store, &hello(1, 4, 0, 0), false).is_ok());
        let later = Store::open_in_boot(dir.path(), "second").unwrap();
        assert_eq!(meet(&later, &hello(1, 4, 0, 0), false), Err((Reason::NotKept, 0)), "memory of the host is gone");
        assert!(!later.all().unwrap()[0].counts);
        let anew = meet(&later, &hello(1, 4, 6, BYTES), false).unwrap();
        assert_ne!(anew.file, made.file);
        assert!(!store.file_path(&made).exists());
        later.records().unwrap().write(POOL, &Record { settled: true, ..anew }).unwrap();
        let third = Store::open_in_boot(dir.path(), "third").unwrap();
        assert!(meet(&third, &hello(1, 4, 0, 0), false).is_ok(), "all was on disk");
    }

    #[test]
    fn a_copy_counts_after_its_host_went_down_if_each_sync_of_the_last_owner_was_durable() {
        let dir = tempfile::tempdir().unwrap();
        let in_boot = |boot| Store::open_in_boot(dir.path(), boot).unwrap();
        meet(&in_boot("first"), &hello(1, 3, 5, BYTES), true).unwrap();
        assert!(in_boot("second").all().unwrap()[0].counts);
        meet(&in_boot("second"), &hello(1, 4, 0, 0), false).unwrap();
        let all = in_boot("third").all().unwrap();
        assert!(!all[0].counts && all[0].why.as_ref().unwrap().contains("went down"), "{all:?}");
    }

    #[test]
    fn a_copy_that_failed_or_lost_its_file_does_not_count_until_it_is_made_anew() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open_in_boot(dir.path(), "boot").unwrap();
        let made = meet(&store, &hello(1, 3, 5, BYTES), true).unwrap();
        let fail = |record: &mut Record| record.failed = Some("EIO".to_owned());
        store.records().unwrap().note(POOL, "another.copy", fail).unwrap();
        assert!(store.all().unwrap()[0].counts, "that was a copy of before");
        store.records().unwrap().note(POOL, &made.file, fail).unwrap();
        assert_eq!(meet(&store, &hello(1, 4, 0, 0), true), Err((Reason::NotKept, 0)));
        let made = meet(&store, &hello(1, 4, 6, BYTES), true).unwrap();
        assert!(meet(&store, &hello(1, 4, 0, 0), true).is_ok());
        File::options().write(true).open(store.file_path(&made)).unwrap().set_len(BYTES / 2).unwrap();
        assert_eq!(meet(&store, &hello(1, 5, 0, 0), true), Err((Reason::NotKept, 0)));
    }

    #[test]
    fn a_crash_between_any_two_steps_of_a_making_leaves_nothing_that_counts_and_nothing_for_ever() {
        for known in [false, true] {
            for steps in 0..3 {
                let dir = tempfile::tempdir().unwrap();
                let store = Store::open_in_boot(dir.path(), "boot").unwrap();
                if known {
                    meet(&store, &hello(1, 3, 5, BYTES), true).unwrap();
                }
                let record = (steps > 0).then(|| accept(&store, &hello(1, 4, 6, BYTES), true).unwrap());
                if steps > 1 {
                    store.make_file(&record.unwrap()).unwrap().unwrap();
                }
                // The crash. The owner comes back, and asks for what is kept, then for a copy.
                let kept = meet(&store, &hello(1, 5, 0, 0), true);
                assert_eq!(kept.is_ok(), known && steps == 0, "{known} {steps}: {kept:?}");
                meet(&store, &hello(1, 5, 7, BYTES), true).unwrap();
                assert_eq!(copies(&store), 1, "{known} {steps}");
                assert!(store.all().unwrap()[0].counts);
            }
        }
    }

    #[test]
    fn what_has_no_room_leaves_what_is_kept_and_a_record_leads_nowhere_else() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open_in_boot(dir.path(), "boot").unwrap();
        let made = meet(&store, &hello(1, 1, 5, BYTES), false).unwrap();
        assert_eq!(meet(&store, &hello(1, 1, 6, 3 * BYTES), false), Err((Reason::NoRoom, 2 * BYTES)));
        assert!(store.file_path(&made).exists());
        // What could not be made takes no room of others.
        let record = accept(&store, &hello(1, 1, 6, 2 * BYTES), false).unwrap();
        store.records().unwrap().unmade(&record, true).unwrap();
        assert_eq!(store.read(POOL).unwrap().unwrap().bytes, 0);
        let records = store.records().unwrap();
        records.write(POOL, &Record { file: "../../etc/passwd".to_owned(), ..made }).unwrap();
        drop(records);
        assert!(matches!(store.read(POOL), Err(StoreError::Damaged { .. })));
    }

    #[test]
    fn while_a_copy_is_held_no_owner_is_recorded() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open_in_boot(dir.path(), "boot").unwrap();
        let made = meet(&store, &hello(1, 1, 5, BYTES), false).unwrap();
        let hold = store.hold(POOL).unwrap();
        assert!(matches!(store.hold(POOL), Err(StoreError::Held(POOL))));
        assert_eq!(accept(&store, &hello(1, 2, 0, 0), false), Err((Reason::InUse, 0)));
        assert_eq!(accept(&store, &hello(1, 2, 6, BYTES), false), Err((Reason::InUse, 0)));
        assert_eq!(store.read(POOL).unwrap().unwrap(), made);
        drop(hold);
        assert!(accept(&store, &hello(1, 2, 0, 0), false).is_ok());
    }

    #[test]
    fn a_record_of_before_is_read_and_each_version_of_one_is_told_from_another() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open_in_boot(dir.path(), "boot").unwrap();
        let made = meet(&store, &hello(1, 1, 5, BYTES), false).unwrap();
        let path = store.record_path(POOL);
        let mut old: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        old["version"] = 1.into();
        old.as_object_mut().unwrap().remove("durable").unwrap();
        fs::write(&path, old.to_string()).unwrap();
        let (record, seen) = store.look(POOL).unwrap().unwrap();
        assert_eq!(record, Record { version: 1, ..made.clone() });
        assert!(store.is_as_seen(POOL, &seen));
        for _ in 0..8 {
            // A file that is gone gives its inode number to the next one, unless it is open.
            store.records().unwrap().write(POOL, &made).unwrap();
            assert!(!store.is_as_seen(POOL, &seen));
        }
    }
}
