//! The marker: a small directory in the origin that says that headpond has, or may have, newer
//! data than what is seen there.
//!
//! Invariants:
//! - While a pool may hold dirty data for an origin, the origin has a marker naming that pool,
//!   durable before the first write is acknowledged. No marker: the origin is complete.
//! - A marker is replaced whole: written beside, synced, renamed, directory synced.
//! - Whoever changes it holds the lock, which the kernel drops when the holder dies.
//!
//! The marker's name is hidden by the mount. It is removed, directory and all, when an
//! unmount leaves nothing dirty.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::Refusal;

/// The marker's directory below the origin's root, which the mount hides.
pub use headpond_mount::MARKER_NAME;

const FILE: &str = "marker.json";
const NEXT: &str = "marker.json.next";
const LOCK: &str = "lock";

/// How often to look again when others come and go at the same moment.
const ATTEMPTS: usize = 16;

const ABOUT: &str = "This directory is, or was, served by headpond. Its newest data may be in the pool named here and not in \
                     these files. Change nothing here; mount it with headpond again, and unmount it to make it complete.";

/// Whether the pool may have what the origin has not.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MarkerState {
    /// Mounted now, or the daemon died: dirty data is possible.
    Mounted,
    /// Left on purpose with dirty data in the pool.
    DirtyLeft,
}

impl MarkerState {
    /// For people.
    #[must_use]
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Mounted => "was mounted and not unmounted since",
            Self::DirtyLeft => "was left with dirty data",
        }
    }
}

/// What the marker says.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Marker {
    /// What this is, for people who find it.
    #[serde(default)]
    pub about: String,
    /// Version of this file's layout.
    pub version: u32,
    /// Whether the origin may be stale.
    pub state: MarkerState,
    /// The origin's key, as in the pool's superblock: 32 hexadecimal digits.
    pub origin_key: String,
    /// The pool's own name.
    pub pool: String,
    /// The machine.
    pub host: String,
    /// Where the pool is on it.
    pub flash: PathBuf,
    /// Where it is, or was, mounted.
    pub mountpoint: PathBuf,
    /// The daemon.
    pub pid: u32,
    /// When it came into this state.
    pub since: String,
    /// Dirty bytes when it was written: exact for a state of dirty-left.
    #[serde(default)]
    pub dirty_bytes: u64,
}

/// The layout that is written and understood.
pub const MARKER_VERSION: u32 = 1;

impl Marker {
    /// The explanation that every marker starts with.
    #[must_use]
    pub fn about() -> String {
        ABOUT.to_owned()
    }

    /// The marker beside a directory that somebody else may hold, for showing: none where there is
    /// none, or none that can be read.
    #[must_use]
    pub fn beside(dir: &Path) -> Option<Self> {
        let text = fs::read(dir.join(MARKER_NAME).join(FILE)).ok()?;
        serde_json::from_slice(&text).ok()
    }
}

/// The marker's directory, held by this process alone.
#[derive(Debug)]
pub struct MarkerHold {
    origin: PathBuf,
    dir: PathBuf,
    _lock: File,
    gone: bool,
}

impl MarkerHold {
    /// Takes the origin for this process, making the marker's directory where it is missing.
    ///
    /// # Errors
    /// [`Refusal::OriginInUse`] when another process has it, naming it as far as its marker does.
    pub fn take(origin: &Path) -> Result<Self, Refusal> {
        let dir = origin.join(MARKER_NAME);
        // The last holder may remove lock and directory at any moment: then look again.
        for _ in 0..ATTEMPTS {
            match fs::DirBuilder::new().mode(0o755).create(&dir) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(Refusal::from_io("make the marker directory", &dir, error));
                }
                _ => {}
            }
            let path = dir.join(LOCK);
            let options = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).clone();
            let lock = match options.open(&path) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(Refusal::from_io("open the marker's lock", &path, error)),
            };
            match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => return Err(in_use(origin)),
                Err(error) => return Err(Refusal::from_io("lock", &path, error)),
            }
            let held = lock.metadata().map_err(|error| Refusal::from_io("look at", &path, error))?;
            let is_there =
                fs::symlink_metadata(&path).is_ok_and(|there| (there.dev(), there.ino()) == (held.dev(), held.ino()));
            if is_there {
                return Ok(Self { origin: origin.to_owned(), dir, _lock: lock, gone: false });
            }
        }
        Err(in_use(origin))
    }

    /// What the last holder left.
    ///
    /// # Errors
    /// [`Refusal::Marker`] when it cannot be understood: then nobody knows whether the origin is stale.
    pub fn read(&self) -> Result<Option<Marker>, Refusal> {
        let path = self.dir.join(FILE);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Refusal::from_io("read the marker", &path, error)),
        };
        let marker: Marker = serde_json::from_slice(&text)
            .map_err(|error| Refusal::Marker { path: path.clone(), why: format!("is damaged: {error}") })?;
        if marker.version > MARKER_VERSION {
            let why = format!("was written by a newer headpond (version {})", marker.version);
            return Err(Refusal::Marker { path, why });
        }
        Ok(Some(marker))
    }

    /// Replaces the marker, durably.
    ///
    /// # Errors
    /// When the origin does not take it.
    pub fn write(&self, marker: &Marker) -> Result<(), Refusal> {
        let next = self.dir.join(NEXT);
        self.replace(&next, marker).map_err(|error| Refusal::from_io("write the marker", &next, error))
    }

    fn replace(&self, next: &Path, marker: &Marker) -> io::Result<()> {
        let mut text = serde_json::to_vec_pretty(marker)?;
        text.push(b'\n');
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o644).open(next)?;
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(next, self.dir.join(FILE))?;
        sync_dir(&self.dir)?;
        sync_dir(&self.origin)
    }

    /// Removes the marker: the origin is complete. Durable before it returns.
    ///
    /// # Errors
    /// When the origin does not allow it.
    pub fn remove(mut self) -> Result<(), Refusal> {
        let path = self.dir.join(FILE);
        let failed = |error: io::Error| Refusal::from_io("remove the marker", &path, error);
        remove_if_there(&self.dir.join(NEXT)).map_err(failed)?;
        remove_if_there(&path).map_err(failed)?;
        sync_dir(&self.dir).map_err(failed)?;
        // From here on the name is free for the next holder, who must not lose it to our drop.
        self.gone = true;
        remove_if_there(&self.dir.join(LOCK)).map_err(failed)?;
        // Somebody's own file in our directory is no reason to fail: without a marker in it
        // the directory means nothing.
        let _ = fs::remove_dir(&self.dir);
        sync_dir(&self.origin).map_err(failed)
    }
}

impl Drop for MarkerHold {
    fn drop(&mut self) {
        // A start that came to nothing leaves no trace. While the lock is held, nobody else can
        // have put a marker there.
        if !self.gone && !self.dir.join(FILE).exists() {
            let _ = fs::remove_file(self.dir.join(LOCK));
            let _ = fs::remove_dir(&self.dir);
        }
    }
}

fn in_use(origin: &Path) -> Refusal {
    let (by, target) = Marker::beside(origin).map_or((String::new(), "MOUNTPOINT".to_owned()), |marker| {
        let mountpoint = marker.mountpoint.display();
        let by = format!(" on {mountpoint} (host {}, process {}, since {})", marker.host, marker.pid, marker.since);
        (by, mountpoint.to_string())
    });
    Refusal::OriginInUse { path: origin.to_owned(), by, target }
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Sixteen bytes as hexadecimal digits.
#[must_use]
pub fn hex(key: &[u8; 16]) -> String {
    key.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::ExitStatus;

    pub(crate) fn example(state: MarkerState) -> Marker {
        Marker {
            about: Marker::about(),
            version: MARKER_VERSION,
            state,
            origin_key: hex(&[7; 16]),
            pool: "01020304-0506".to_owned(),
            host: "db1".to_owned(),
            flash: "/nvme/pond".into(),
            mountpoint: "/var/lib/mysql".into(),
            pid: 42,
            since: "2026-11-21T02:22:16Z".to_owned(),
            dirty_bytes: 4096,
        }
    }

    #[test]
    fn a_marker_lives_from_take_to_remove_and_leaves_nothing() {
        let origin = tempfile::tempdir().unwrap();
        let hold = MarkerHold::take(origin.path()).unwrap();
        assert_eq!(hold.read().unwrap(), None);
        for state in [MarkerState::Mounted, MarkerState::DirtyLeft] {
            hold.write(&example(state)).unwrap();
            assert_eq!(hold.read().unwrap(), Some(example(state)));
        }
        hold.remove().unwrap();
        assert_eq!(fs::read_dir(origin.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_second_holder_is_refused_and_told_who_has_it() {
        let origin = tempfile::tempdir().unwrap();
        let first = MarkerHold::take(origin.path()).unwrap();
        first.write(&example(MarkerState::Mounted)).unwrap();
        let refusal = MarkerHold::take(origin.path()).unwrap_err();
        assert_eq!(refusal.status(), ExitStatus::OriginInUse);
        let text = refusal.to_string();
        assert!(text.contains("/var/lib/mysql") && text.contains("db1") && text.contains("42"), "{text}");
        drop(first);
        let second = MarkerHold::take(origin.path()).unwrap();
        assert_eq!(second.read().unwrap(), Some(example(MarkerState::Mounted)), "what a crash left is found");
    }

    #[test]
    fn a_start_that_came_to_nothing_leaves_no_trace() {
        let origin = tempfile::tempdir().unwrap();
        drop(MarkerHold::take(origin.path()).unwrap());
        assert_eq!(fs::read_dir(origin.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_damaged_or_newer_marker_is_no_missing_marker() {
        let origin = tempfile::tempdir().unwrap();
        let hold = MarkerHold::take(origin.path()).unwrap();
        let newer = serde_json::to_string(&Marker { version: 2, ..example(MarkerState::Mounted) }).unwrap();
        for bytes in ["", "{", "{\"version\":1}", &newer] {
            fs::write(origin.path().join(MARKER_NAME).join(FILE), bytes).unwrap();
            assert_eq!(hold.read().unwrap_err().status(), ExitStatus::MarkerDamaged, "{bytes}");
        }
    }
}
