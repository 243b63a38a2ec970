//! The marker: a small directory in the origin. It says that headpond has, or may have, newer data than the origin.
//!
//! Invariants:
//! - While a pool may hold dirty data for an origin, the origin has a marker naming that pool,
//!   durable before the first write is acknowledged. No marker: the origin is complete.
//! - headpond replaces a marker whole: it writes beside, syncs, renames, and syncs the directory.
//! - Only the holder of the lock changes the marker. The kernel drops the lock when the holder dies.
//!
//! The mount hides the marker's name. An unmount that leaves nothing dirty removes the marker, directory and all.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};

use super::durable::DurableLog;
use super::lease::{Lease, LockKeeper, LockState};
use crate::origin::{ATTEMPTS, BesideDir, OriginRoot, look_at, next_of};
use crate::refusal::Refusal;

/// The marker's directory below the origin's root, which the mount hides.
pub use headpond_mount::MARKER_NAME;

const FILE: &str = "marker.json";
const LOCK: &str = "lock";

const ABOUT: &str = "headpond serves this directory, or has served it. The newest data may be in the pool named here and not in \
                     these files. Change nothing here. To complete the files, mount the directory with headpond and unmount it.";

/// Whether the pool may have what the origin lacks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MarkerState {
    /// Mounted now, or the daemon died. Dirty data is possible.
    Mounted,
    /// Unmounted with dirty data in the pool, on purpose.
    DirtyLeft,
}

impl MarkerState {
    /// The state in words.
    #[must_use]
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Mounted => "was mounted and not unmounted",
            Self::DirtyLeft => "was left with dirty data",
        }
    }
}

/// The marker's content.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Marker {
    /// An explanation for people who find the file.
    #[serde(default)]
    pub about: String,
    /// Version of this file's layout.
    pub version: u32,
    /// Whether the origin may be stale.
    pub state: MarkerState,
    /// The origin's key, as in the pool's superblock: 32 hexadecimal digits.
    pub origin_key: String,
    /// The pool's id.
    pub pool: String,
    /// The host's name.
    pub host: String,
    /// The pool's path on that host; of a pool of several devices, the first one's.
    pub flash: PathBuf,
    /// The other devices of a pool of several: each with the number of its member.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<MarkerMember>,
    /// The generation of the pool's list of members. A start whose devices know only an older one lacks a member. 0 for
    /// a pool that has had one device only.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub members_generation: u64,
    /// The mount point, now or last. Empty for a pool that is used without a mount.
    pub mountpoint: PathBuf,
    /// The daemon's process: that of the holder, if there is one.
    pub pid: u32,
    /// The time at which this state began.
    pub since: String,
    /// Dirty bytes at the time of writing. Exact in the state dirty-left.
    #[serde(default)]
    pub dirty_bytes: u64,
    /// The use of the pool that has the origin. None in a marker of a headpond without claims.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<Claim>,
    /// The owner's number: it is larger after each take-over by another host.
    #[serde(default = "first_owner", skip_serializing_if = "is_first_owner")]
    pub owner: u64,
}

/// A device of a pool, as a marker names it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MarkerMember {
    /// Its number.
    pub member: u16,
    /// Its path on the marker's host.
    pub flash: PathBuf,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde wants it so
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

const fn first_owner() -> u64 {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde wants it so
const fn is_first_owner(owner: &u64) -> bool {
    *owner == 1
}

/// One use of a pool for an origin, from its start on. The pool's superblock says the same. So an image of the pool
/// from before, or a copy used elsewhere, differs from the pool that the origin waits for.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Claim {
    /// The pool's epoch: it goes up at each start.
    pub epoch: u64,
    /// Drawn at each start: 32 hexadecimal digits. No two uses share one, not even those of two copies of a pool.
    pub id: String,
    /// The pool's claim before, as the start found it. Zeros for a new pool.
    pub before: String,
    /// Claims that members may have until this use has begun: of the last one that began, and of starts since that died.
    pub earlier: Vec<String>,
    /// Whether each member has this claim, durably. Until then a crash leaves some with an earlier one.
    pub begun: bool,
    /// The count of the pool's last superblock, after a stop in order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped_at: Option<u64>,
}

/// The layout that this version writes and reads.
pub const MARKER_VERSION: u32 = 1;

impl Marker {
    /// Its file's content.
    fn encode(&self) -> std::io::Result<Vec<u8>> {
        let mut text = serde_json::to_vec_pretty(self)?;
        text.push(b'\n');
        Ok(text)
    }

    /// The explanation that every marker starts with.
    #[must_use]
    pub fn about() -> String {
        ABOUT.to_owned()
    }

    /// The marker beside an origin that another process may hold. None if there is none, or none that can be read.
    /// Only for messages: its owner does not matter.
    #[must_use]
    pub fn beside(origin: &Path) -> Option<Self> {
        Self::parse(&crate::origin::peek(&OriginRoot::open(origin).ok()?, FILE)?.0).ok()
    }

    /// A marker that counts, in a directory that is no origin of this process: its content, or why it cannot be read.
    /// The same markers count as in the mount (`nested.rs` there).
    pub(crate) fn in_directory(dir: impl AsFd) -> Option<Result<Self, String>> {
        let above = look_at(&dir, c"").ok()?;
        let (text, owner) = crate::origin::peek(&dir, FILE)?;
        let shared = above.stx_mode & 0o1002 == 0o1002;
        let trusted = [0, geteuid().as_raw(), above.stx_uid].contains(&owner.user);
        (!shared || trusted).then(|| Self::parse(&text))
    }

    fn parse(text: &[u8]) -> Result<Self, String> {
        let marker: Self = serde_json::from_slice(text).map_err(|error| format!("is damaged: {error}"))?;
        if marker.version > MARKER_VERSION {
            return Err(format!("comes from a newer headpond (version {})", marker.version));
        }
        Ok(marker)
    }

    fn read(dir: &BesideDir) -> Result<Option<Self>, Refusal> {
        let Some(text) = dir.read(FILE)? else { return Ok(None) };
        Self::parse(&text).map(Some).map_err(|why| Refusal::Marker { path: dir.path(FILE), why })
    }
}

/// The marker's directory, held by this process alone.
#[derive(Debug)]
pub struct MarkerHold {
    dir: Arc<BesideDir>,
    lock: Arc<Lease>,
    gone: bool,
}

impl MarkerHold {
    /// Takes the origin for this process, and makes the marker's directory if it is missing.
    ///
    /// # Errors
    /// [`Refusal::OriginInUse`] if another process has the origin; the marker names that process if it can.
    /// [`Refusal::BesideNotOurs`] if what lies there is not headpond's.
    pub fn take(root: &Arc<OriginRoot>) -> Result<Self, Refusal> {
        Self::take_as(root, None)
    }

    /// The same for an owner of this number, if there is one. A host that was deposed may keep its lock for ever: it is
    /// stopped, say. Who has the pool's lease, and a larger number than the marker has, takes that lock's place.
    ///
    /// # Errors
    /// Those of [`MarkerHold::take`].
    pub(crate) fn take_as(root: &Arc<OriginRoot>, owner: Option<u64>) -> Result<Self, Refusal> {
        // The last holder may remove lock and directory at any moment: then look again.
        for _ in 0..ATTEMPTS {
            let dir = BesideDir::make(root)?;
            let path = dir.path(LOCK);
            let lock = match dir.open_file(LOCK, OFlags::RDWR)? {
                Some(lock) => lock,
                None => match dir.create(LOCK, OFlags::RDWR, 0o600) {
                    Ok(lock) => lock,
                    Err(Errno::NOENT | Errno::EXIST) => continue,
                    Err(error) => return Err(Refusal::from_io("make the marker's lock", &path, error)),
                },
            };
            match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => {
                    let deposed = Marker::read(&dir)?.is_some_and(|marker| Some(marker.owner) < owner);
                    if !deposed {
                        return Err(in_use(root));
                    }
                    dir.remove(LOCK).map_err(|error| Refusal::from_io("remove", &path, error))?;
                    continue;
                }
                Err(error) => return Err(Refusal::from_io("lock", &path, error)),
            }
            if dir.names(LOCK, &lock) && dir.is_in_place() {
                return Ok(Self { dir: Arc::new(dir), lock: Arc::new(Lease::of(lock)), gone: false });
            }
        }
        Err(in_use(root))
    }

    /// What lies beside an origin, to be read while another has it. `None` if nothing does.
    ///
    /// # Errors
    /// [`Refusal::BesideNotOurs`] if it is not headpond's.
    pub(crate) fn to_read(root: &Arc<OriginRoot>) -> Result<Option<Self>, Refusal> {
        let Some(dir) = BesideDir::open(root)? else { return Ok(None) };
        let lock = dir.open_file(LOCK, OFlags::RDONLY)?;
        Ok(lock.map(|lock| Self { dir: Arc::new(dir), lock: Arc::new(Lease::of(lock)), gone: true }))
    }

    /// Goes on with the lock that an earlier process of this mount took, and that was kept since. `None` if it is not
    /// what keeps others out any more.
    ///
    /// # Errors
    /// [`Refusal::BesideNotOurs`] if what lies beside the origin is not headpond's.
    pub(crate) fn take_over(root: &Arc<OriginRoot>, lock: File) -> Result<Option<Self>, Refusal> {
        let Some(dir) = BesideDir::open(root)? else { return Ok(None) };
        // A lock that this descriptor has is granted again.
        let held = flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok();
        let counts = held && dir.names(LOCK, &lock) && dir.is_in_place();
        Ok(counts.then(|| Self { dir: Arc::new(dir), lock: Arc::new(Lease::of(lock)), gone: false }))
    }

    /// Whether what lies beside the origin still is as this process found it.
    ///
    /// # Errors
    /// [`Refusal::OriginInUse`] if another process has written here since, or what cannot be read.
    pub(crate) fn is_still(&self, found: Option<&Marker>, durable: Option<&DurableLog>) -> Result<(), Refusal> {
        let same = self.read()?.as_ref() == found && DurableLog::read(&self.dir)?.as_ref() == durable;
        if same { Ok(()) } else { Err(in_use(self.dir.root())) }
    }

    /// From now on another process keeps the lock, too.
    pub(crate) fn lock_kept_by(&self, keeper: Box<LockKeeper>) -> std::io::Result<()> {
        self.lock.kept_by(keeper)
    }

    /// The marker that the last holder left.
    ///
    /// # Errors
    /// [`Refusal::Marker`] if it cannot be read. Then headpond cannot know whether the origin is stale.
    pub fn read(&self) -> Result<Option<Marker>, Refusal> {
        Marker::read(&self.dir)
    }

    /// Replaces the marker that this mount has written, durably.
    ///
    /// # Errors
    /// If the origin refuses the write, or the directory is not beside the origin any more.
    pub fn write(&self, marker: &Marker) -> Result<(), Refusal> {
        self.put(marker, BesideDir::replace_again)
    }

    fn put(&self, marker: &Marker, replace: fn(&BesideDir, &str, &[u8]) -> std::io::Result<()>) -> Result<(), Refusal> {
        let failed = |error| Refusal::from_io("write the marker", &self.dir.path(FILE), error);
        marker.encode().and_then(|text| replace(&self.dir, FILE, &text)).map_err(failed)
    }

    /// Takes the origin, if what lies beside it is still as this process found it. A recovery may take long, and a
    /// network file system may give the lock to another host meanwhile. That host has then written here. A worker that
    /// `follows` another one of its mount needs no new space at the origin.
    ///
    /// # Errors
    /// [`Refusal::OriginInUse`] if another process has written here since. Otherwise like [`Self::write`].
    pub(crate) fn write_over(
        &self,
        found: Option<&Marker>,
        durable: Option<&DurableLog>,
        marker: &Marker,
        follows: bool,
    ) -> Result<(), Refusal> {
        // An unreadable marker counts as none here: the operator decided so.
        let now = match self.read() {
            Err(Refusal::Marker { .. }) => None,
            now => now?,
        };
        if now.as_ref() != found || DurableLog::read(&self.dir)?.as_ref() != durable {
            return Err(in_use(self.dir.root()));
        }
        if found.is_none() && durable.is_some() {
            // Left by a use that had lost the origin. Without a marker it said nothing; with this one it would.
            let file = super::durable::FILE;
            self.dir.remove(file).map_err(|error| Refusal::from_io("remove", &self.dir.path(file), error))?;
        }
        self.put(marker, if follows { BesideDir::replace_again } else { BesideDir::replace_first })
    }

    /// Replaces the marker from any thread, for as long as the result is not ended.
    pub(crate) fn share(&self, marker: Marker) -> SharedMarker {
        SharedMarker { dir: self.dir.clone(), state: Arc::new(Mutex::new((marker, false))) }
    }

    /// Watches whether this process's claim still stands, from any thread.
    #[must_use]
    pub fn watch(&self, marker: &Marker) -> ClaimWatch {
        let id = marker.claim.as_ref().map(|claim| claim.id.clone()).unwrap_or_default();
        ClaimWatch { root: self.dir.root().clone(), pool: marker.pool.clone(), id }
    }

    /// Watches whether the lock is still held, from any thread, and takes a lost one again.
    pub(crate) fn watch_lock(&self) -> LockWatch {
        LockWatch { dir: self.dir.clone(), lock: self.lock.clone() }
    }

    /// Gives up an origin that is another's by now: this process touches nothing beside it any more. The lock is free
    /// on return, so the next start learns from the marker whose the origin is, and not that this process still ends.
    pub(crate) fn disown(mut self) {
        self.gone = true;
        self.lock.close();
    }

    /// The marker's directory, for other files in it.
    pub(crate) const fn dir(&self) -> &Arc<BesideDir> {
        &self.dir
    }

    /// Removes the marker: the origin is complete. The removal is durable on return.
    ///
    /// # Errors
    /// If the origin does not allow it.
    pub fn remove(mut self) -> Result<(), Refusal> {
        let failed = |error: std::io::Error| Refusal::from_io("remove the marker", &self.dir.path(FILE), error);
        // Without a marker the note says nothing. A crash may have left the unfinished next version of either.
        let durable = super::durable::FILE;
        for name in [durable, &next_of(durable), &next_of(FILE)] {
            self.dir.remove(name).map_err(failed)?;
        }
        self.dir.remove(FILE).map_err(failed)?;
        self.dir.sync().map_err(failed)?;
        // From here on the name is free for the next holder. Our drop must not take it away.
        self.gone = true;
        self.dir.remove(LOCK).map_err(failed)?;
        self.lock.close();
        // A file of others in our directory is no reason to fail: without a marker the directory means nothing.
        self.dir.remove_if_empty();
        self.dir.sync().map_err(failed)
    }
}

impl Drop for MarkerHold {
    fn drop(&mut self) {
        // A start that failed leaves no trace. While this process holds the lock, no other has put a marker there.
        if !self.gone && !self.dir.has(FILE) {
            let _ = self.dir.remove(LOCK);
            self.dir.remove_if_empty();
        }
    }
}

/// The marker of one use, which several threads read and change. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct SharedMarker {
    dir: Arc<BesideDir>,
    /// What it says, and whether the use has ended.
    state: Arc<Mutex<(Marker, bool)>>,
}

impl SharedMarker {
    /// What it says.
    pub(crate) fn now(&self) -> Marker {
        self.state().0.clone()
    }

    /// Changes it, and writes it durably if that changed anything. One that ended is not written any more.
    ///
    /// # Errors
    /// If another headpond has taken the origin over, the origin refuses the write, or the directory is not beside the
    /// origin any more. It then says what it said.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Marker)) -> std::io::Result<()> {
        let mut state = self.state();
        let mut next = state.0.clone();
        change(&mut next);
        if state.1 || next == state.0 {
            return Ok(());
        }
        // The lock may be lost: what another headpond has put there since stays.
        if let Ok(Some(there)) = Marker::read(&self.dir)
            && there.claim != state.0.claim
        {
            return Err(std::io::Error::other("another headpond has taken the origin over"));
        }
        self.dir.replace_again(FILE, &next.encode()?)?;
        state.0 = next;
        Ok(())
    }

    /// Ends it, and returns what it says.
    pub(crate) fn end(&self) -> Marker {
        let mut state = self.state();
        state.1 = true;
        state.0.clone()
    }

    fn state(&self) -> MutexGuard<'_, (Marker, bool)> {
        // It changes only once the write has succeeded.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The state of a claim, by the marker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MarkerStanding {
    /// The marker has this claim.
    Ours,
    /// The marker has another claim: another headpond has taken the origin over.
    Theirs(Box<Marker>),
    /// There is no marker any more: it was removed, or moved away with its directory.
    Gone,
}

/// Reads the state of one claim. It looks by name from the origin's root each time, because a headpond that takes
/// over may have made the directory anew.
#[derive(Clone, Debug)]
pub struct ClaimWatch {
    root: Arc<OriginRoot>,
    pool: String,
    id: String,
}

impl ClaimWatch {
    /// Reads the marker: five system calls at the origin, and on a network file system a question to its server.
    ///
    /// # Errors
    /// If the marker cannot be read, or what lies there is not headpond's. The state of the claim is then unknown.
    pub fn look(&self) -> Result<MarkerStanding, Refusal> {
        let marker = match BesideDir::open(&self.root)? {
            Some(dir) => Marker::read(&dir)?,
            None => None,
        };
        Ok(match marker {
            None => MarkerStanding::Gone,
            Some(marker) => {
                let is_ours =
                    marker.pool == self.pool && marker.claim.as_ref().is_some_and(|claim| claim.id == self.id);
                if is_ours { MarkerStanding::Ours } else { MarkerStanding::Theirs(Box::new(marker)) }
            }
        })
    }
}

/// Reads the state of the lock.
#[derive(Clone, Debug)]
pub(crate) struct LockWatch {
    dir: Arc<BesideDir>,
    lock: Arc<Lease>,
}

impl LockWatch {
    /// Asks the origin's server.
    pub(crate) fn look(&self) -> LockState {
        self.lock.look(|| match self.dir.open_file(LOCK, OFlags::RDWR) {
            Ok(Some(file)) => Ok(file),
            Ok(None) => Err(Errno::NOENT),
            Err(_) => Err(Errno::IO),
        })
    }
}

fn in_use(origin: &OriginRoot) -> Refusal {
    let marker = crate::origin::peek(origin, FILE).and_then(|(text, _)| Marker::parse(&text).ok());
    let (by, target) = marker.map_or(("mounted".to_owned(), "MOUNTPOINT".to_owned()), |marker| {
        let mountpoint = marker.mountpoint.display();
        let at = format!("(host {}, process {}, since {})", marker.host, marker.pid, marker.since);
        if marker.mountpoint.as_os_str().is_empty() {
            return (format!("in use without a mount {at}"), "MOUNTPOINT".to_owned());
        }
        (format!("mounted on {mountpoint} {at}"), mountpoint.to_string())
    });
    Refusal::OriginInUse { path: origin.path().to_owned(), by, target }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::refusal::ExitStatus;
    use headpond_base::hex;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    pub(crate) fn example(state: MarkerState) -> Marker {
        Marker {
            about: Marker::about(),
            version: MARKER_VERSION,
            state,
            origin_key: hex(&[7; 16]),
            pool: "01020304-0506".to_owned(),
            host: "db1".to_owned(),
            flash: "/nvme/pond".into(),
            members: Vec::new(),
            members_generation: 0,
            mountpoint: "/var/lib/mysql".into(),
            pid: 42,
            since: "2026-11-21T02:22:16Z".to_owned(),
            dirty_bytes: 4096,
            claim: Some(claim("aa")),
            owner: 1,
        }
    }

    fn claim(id: &str) -> Claim {
        Claim { epoch: 3, id: id.to_owned(), ..Claim::default() }
    }

    pub(crate) fn root(dir: &Path) -> Arc<OriginRoot> {
        Arc::new(OriginRoot::open(dir).unwrap())
    }

    #[test]
    fn a_marker_lives_from_take_to_remove_and_leaves_nothing() {
        let origin = tempfile::tempdir().unwrap();
        let hold = MarkerHold::take(&root(origin.path())).unwrap();
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
        let first = MarkerHold::take(&root(origin.path())).unwrap();
        first.write(&example(MarkerState::Mounted)).unwrap();
        let refusal = MarkerHold::take(&root(origin.path())).unwrap_err();
        assert_eq!(refusal.status(), ExitStatus::OriginInUse);
        let text = refusal.to_string();
        assert!(text.contains("/var/lib/mysql") && text.contains("db1") && text.contains("42"), "{text}");
        drop(first);
        let second = MarkerHold::take(&root(origin.path())).unwrap();
        assert_eq!(second.read().unwrap(), Some(example(MarkerState::Mounted)), "what a crash left is found");
    }

    #[test]
    fn a_start_whose_origin_another_one_took_meanwhile_writes_nothing() {
        let origin = tempfile::tempdir().unwrap();
        let hold = MarkerHold::take(&root(origin.path())).unwrap();
        let ours = example(MarkerState::Mounted);
        hold.write_over(None, None, &ours, false).unwrap();
        hold.write_over(Some(&ours), None, &ours, false).unwrap();
        let theirs = Marker { claim: Some(claim("bb")), host: "db2".to_owned(), ..ours.clone() };
        hold.write(&theirs).unwrap();
        for found in [None, Some(&ours)] {
            let refusal = hold.write_over(found, None, &ours, false).unwrap_err();
            assert_eq!(refusal.status(), ExitStatus::OriginInUse);
            assert!(refusal.to_string().contains("db2"), "{refusal}");
        }
        assert_eq!(hold.read().unwrap(), Some(theirs.clone()));
        // Its marker is unchanged, but its note has moved: that use goes on.
        let note = DurableLog { claim: "bb".to_owned(), host_batch: 7 };
        assert!(hold.write_over(Some(&theirs), Some(&note), &ours, false).is_err());
        assert_eq!(hold.read().unwrap(), Some(theirs));
    }

    #[test]
    fn a_note_without_a_marker_says_nothing_of_the_next_use() {
        let origin = tempfile::tempdir().unwrap();
        let hold = MarkerHold::take(&root(origin.path())).unwrap();
        let note = crate::ownership::durable::DurableNote::new(hold.dir().clone(), "aa");
        note.say(7).unwrap();
        let found = DurableLog::read(hold.dir()).unwrap();
        assert!(found.is_some());
        hold.write_over(None, found.as_ref(), &example(MarkerState::Mounted), false).unwrap();
        assert_eq!(DurableLog::read(hold.dir()).unwrap(), None);
    }

    #[test]
    fn a_start_that_came_to_nothing_leaves_no_trace() {
        let origin = tempfile::tempdir().unwrap();
        drop(MarkerHold::take(&root(origin.path())).unwrap());
        assert_eq!(fs::read_dir(origin.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_damaged_or_newer_marker_is_no_missing_marker() {
        let origin = tempfile::tempdir().unwrap();
        let hold = MarkerHold::take(&root(origin.path())).unwrap();
        let newer = serde_json::to_string(&Marker { version: 2, ..example(MarkerState::Mounted) }).unwrap();
        for bytes in ["", "{", "{\"version\":1}", &newer] {
            fs::write(origin.path().join(MARKER_NAME).join(FILE), bytes).unwrap();
            assert_eq!(hold.read().unwrap_err().status(), ExitStatus::MarkerDamaged, "{bytes}");
        }
    }

    #[test]
    fn a_marker_of_a_headpond_that_knew_no_claims_is_read() {
        let mut old = serde_json::to_value(example(MarkerState::DirtyLeft)).unwrap();
        old.as_object_mut().unwrap().remove("claim");
        let read = Marker::parse(old.to_string().as_bytes()).unwrap();
        assert_eq!(read, Marker { claim: None, ..example(MarkerState::DirtyLeft) });
    }

    #[test]
    fn a_claim_that_another_one_took_over_is_told() {
        let origin = tempfile::tempdir().unwrap();
        let hold = MarkerHold::take(&root(origin.path())).unwrap();
        let mine = example(MarkerState::Mounted);
        hold.write(&mine).unwrap();
        let watch = hold.watch(&mine);
        assert_eq!(watch.look().unwrap(), MarkerStanding::Ours);
        hold.write(&Marker { state: MarkerState::DirtyLeft, ..mine.clone() }).unwrap();
        assert_eq!(watch.look().unwrap(), MarkerStanding::Ours, "the state may change");
        for theirs in [
            Marker { claim: Some(claim("bb")), ..mine.clone() },
            Marker { claim: None, ..mine.clone() },
            Marker { pool: "another".to_owned(), ..mine.clone() },
        ] {
            hold.write(&theirs).unwrap();
            assert_eq!(watch.look().unwrap(), MarkerStanding::Theirs(Box::new(theirs)));
        }
        // As another host does, which made all of it anew.
        fs::rename(origin.path().join(MARKER_NAME), origin.path().join("aside")).unwrap();
        assert_eq!(watch.look().unwrap(), MarkerStanding::Gone);
        let second = MarkerHold::take(&root(origin.path())).unwrap();
        second.write(&Marker { claim: Some(claim("cc")), ..mine.clone() }).unwrap();
        assert!(matches!(watch.look().unwrap(), MarkerStanding::Theirs(_)));
        let refusal = hold.write(&mine).unwrap_err();
        assert!(refusal.to_string().contains("away from the origin"), "{refusal}");
        hold.remove().unwrap();
        assert!(second.read().unwrap().is_some(), "nobody else's is removed");
    }

    /// headpond refuses what others plant under its names. It neither follows nor changes it.
    #[test]
    fn what_others_plant_beside_the_origin_is_refused_and_not_followed() {
        type Plant = fn(&Path, &Path);
        let plants: [(&str, Plant); 8] = [
            ("symbolic link", |dir, out| symlink(out, dir).unwrap()),
            ("a file", |dir, _| fs::write(dir, "x").unwrap()),
            ("a FIFO", |dir, _| fifo(dir)),
            ("written by others", |dir, _| {
                fs::create_dir(dir).unwrap();
                fs::set_permissions(dir, fs::Permissions::from_mode(0o777)).unwrap();
            }),
            ("symbolic link", |dir, out| {
                fs::create_dir(dir).unwrap();
                symlink(out.join("file"), dir.join(LOCK)).unwrap();
            }),
            ("a FIFO", |dir, _| {
                fs::create_dir(dir).unwrap();
                fifo(&dir.join(LOCK));
            }),
            ("other names", |dir, out| {
                fs::create_dir(dir).unwrap();
                fs::hard_link(out.join("file"), dir.join(LOCK)).unwrap();
            }),
            ("written by others", |dir, out| {
                fs::create_dir(dir).unwrap();
                fs::copy(out.join("file"), dir.join(LOCK)).unwrap();
                fs::set_permissions(dir.join(LOCK), fs::Permissions::from_mode(0o666)).unwrap();
            }),
        ];
        for (says, plant) in plants {
            let top = tempfile::tempdir().unwrap();
            let (origin, out) = (top.path().join("origin"), top.path().join("out"));
            for dir in [&origin, &out] {
                fs::create_dir(dir).unwrap();
            }
            fs::write(out.join("file"), "not headpond's").unwrap();
            plant(&origin.join(MARKER_NAME), &out);
            let refusal = MarkerHold::take(&root(&origin)).unwrap_err();
            assert_eq!(refusal.status(), ExitStatus::BesideNotOurs, "{says}: {refusal}");
            let text = refusal.to_string();
            assert!(
                text.contains(says) || says.starts_with("written") && text.contains("is writable by other users"),
                "{text}"
            );
            assert!(text.contains("rm -r ") || text.contains("rm '"), "{text}");
            assert_eq!(fs::read(out.join("file")).unwrap(), b"not headpond's");
            assert_eq!(fs::read_dir(&out).unwrap().count(), 1, "{says}: nothing was made elsewhere");
        }
    }

    fn fifo(path: &Path) {
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    }

    #[test]
    fn the_next_marker_is_made_new_whatever_lies_there() {
        let top = tempfile::tempdir().unwrap();
        let (origin, out) = (top.path().join("origin"), top.path().join("out"));
        fs::create_dir(&origin).unwrap();
        fs::write(&out, "not headpond's").unwrap();
        let hold = MarkerHold::take(&root(&origin)).unwrap();
        hold.write(&example(MarkerState::Mounted)).unwrap();
        for (kind, follows) in (0..3).flat_map(|kind| [(kind, false), (kind, true)]) {
            let next = origin.join(MARKER_NAME).join("marker.json.next");
            fs::remove_file(&next).unwrap();
            match kind {
                0 => symlink(&out, &next).unwrap(),
                1 => fs::hard_link(&out, &next).unwrap(),
                _ => fifo(&next),
            }
            let now = hold.read().unwrap();
            hold.write_over(now.as_ref(), None, &example(MarkerState::Mounted), follows).unwrap();
            assert_eq!(hold.read().unwrap(), Some(example(MarkerState::Mounted)));
            assert_eq!(fs::read(&out).unwrap(), b"not headpond's");
        }
        let marker = origin.join(MARKER_NAME).join(FILE);
        fs::remove_file(&marker).unwrap();
        symlink(&out, &marker).unwrap();
        assert_eq!(hold.read().unwrap_err().status(), ExitStatus::BesideNotOurs, "nor is a marker that is none read");
    }

    #[test]
    fn a_directory_of_another_user_is_refused() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let origin = tempfile::tempdir().unwrap();
        let dir = origin.path().join(MARKER_NAME);
        fs::create_dir(&dir).unwrap();
        std::os::unix::fs::chown(&dir, Some(1234), None).unwrap();
        let refusal = MarkerHold::take(&root(origin.path())).unwrap_err();
        assert_eq!(refusal.status(), ExitStatus::BesideNotOurs);
        assert!(refusal.to_string().contains("belongs to user 1234") && refusal.to_string().contains("chown -hR 0"));
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 0, "and nothing is made in it");
    }
}
