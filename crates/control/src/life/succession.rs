//! A worker's place in the row of workers that serve one mount: what the last one left to it, and what it leaves to
//! the next. The [holder](headpond_holder) keeps that in between.
//!
//! Invariants:
//! - A worker that takes over asks nothing of the mount point: each such question would wait for the worker itself.
//! - What the operator decided at the mount (a format, data to drop, settings from a file) was done by the first
//!   worker. A later one repeats none of it.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use headpond_base::MemberId;
use headpond_engine::TailSlots;
use headpond_holder::{Arena, ArenaError, Inherited, Sizes, Tie};
use headpond_mount::{
    DescriptorKeeper, JournalRoom, LastingMount, LedgerRoom, MountLedger, RequestJournal, can_send_again,
    connection_stands, path_of_source, source_of,
};

use crate::devices::{PoolDevice, PoolDevices};
use crate::mounts::CheckedPlaces;
use crate::ownership::LockKeeper;
use crate::peers::PeerPlan;
use crate::pool::ArenaTail;
use crate::process::kill_before_holder;
use crate::refusal::{Decisions, Refusal};
use crate::service::DeviceKeeper;
use crate::settings::MountPlan;
use crate::web::Session;

/// The descriptor of the FUSE connection.
const CONNECTION: &str = "fuse";

/// An open flash, with its lock, before the number of its member.
const FLASH: &str = "flash-";

/// Before a peer in the places.
const PEER: &str = "peer ";

/// The lock beside the origin.
const ORIGIN_LOCK: &str = "lock";

/// The places of the mount, as text.
const PLACES: &str = "places";

/// What browsers got for the token, as text.
const SESSION: &str = "session";

/// The name of a file that is open and has no name, before its number in the ledger.
const NAMELESS: &str = "file-";

/// For tests: take the kernel for one that cannot send requests again.
const WITHOUT_SENDING_AGAIN: &str = "HEADPOND_WITHOUT_SENDING_AGAIN";

/// For tests: so many inodes have room in the ledger.
const LEDGER_INODES: &str = "HEADPOND_LEDGER_INODES";

/// For tests: a successor hangs in recovery while there is this file.
const HANGS: &str = "HEADPOND_RECOVERY_HANGS";

/// A worker's place in the row.
#[derive(Debug)]
pub struct Succession {
    tie: Arc<Tie>,
    lives: u64,
    arena: Arena,
    left: Option<Left>,
    /// Files that are open and have no name, by their numbers in the ledger.
    nameless: BTreeMap<u64, OwnedFd>,
    /// All devices that the holder keeps, members or not.
    kept_devices: Vec<MemberId>,
}

/// What the last worker left.
#[derive(Debug)]
pub(crate) struct Left {
    connection: OwnedFd,
    /// Each flash, as the places have them.
    flashes: Vec<File>,
    /// None from a worker of a version that left none.
    origin_lock: Option<File>,
    places: CheckedPlaces,
    http_token: Option<PathBuf>,
    session: Option<Session>,
    /// The hosts that may keep a copy.
    peers: Vec<PeerPlan>,
}

impl Succession {
    /// Takes a place behind the last worker, or the first one. Call it before anything else.
    ///
    /// # Errors
    /// If the holder is gone, or the last worker was of a version with another layout.
    pub fn take() -> Result<Self, Refusal> {
        let failed = |error: ArenaError| Refusal::Failed {
            doing: "take over from the last worker".to_owned(),
            error: std::io::Error::other(error.to_string()),
        };
        let (tie, inherited) = Tie::take(layout()).map_err(failed)?;
        kill_before_holder();
        let Inherited { arena, mut kept, notes, lives } = inherited;
        let origin_lock = kept.remove(ORIGIN_LOCK).map(File::from);
        let member = |name: &String| name.strip_prefix(FLASH)?.parse().ok().map(MemberId);
        let kept_devices = kept.keys().filter_map(member).collect();
        let written = notes.get(PLACES).and_then(|text| read(text));
        let left = kept.remove(CONNECTION).zip(written).map(|(connection, mut written)| {
            // A worker may have died between the two messages about a device. One that is not named is free.
            let mut flashes = Vec::new();
            written.flashes.retain(|(member, _)| {
                let file = kept.remove(&flash_name(*member));
                let has = file.is_some();
                flashes.extend(file.map(File::from));
                has
            });
            let Places { origin, mountpoint, http_token, flashes: named, peers } = written;
            let paths = named.into_iter().map(|(_, path)| path).collect();
            let places = CheckedPlaces { origin, mountpoint, flashes: paths };
            let session = notes.get(SESSION).and_then(|text| Session::left(text));
            Left { connection, flashes, origin_lock, places, http_token, session, peers }
        });
        if lives > 0 && left.is_none() {
            let lost = std::io::Error::other("the holder has lost what the last worker left");
            return Err(failed(ArenaError::Io(lost)));
        }
        let number = |name: &str| name.strip_prefix(NAMELESS).and_then(|number| number.parse().ok());
        let nameless = kept.into_iter().filter_map(|(name, file)| Some((number(&name)?, file))).collect();
        Ok(Self { tie: Arc::new(tie), lives, arena, left, nameless, kept_devices })
    }

    /// Whether no worker served the mount before.
    #[must_use]
    pub const fn is_first(&self) -> bool {
        self.left.is_none()
    }

    /// What this worker does of what the operator asked for: all of it, or, if it takes over, what still counts.
    #[must_use]
    pub fn plan(&self, asked: MountPlan) -> MountPlan {
        match &self.left {
            Some(left) => left.plan(asked),
            None => asked,
        }
    }

    /// The holder's process.
    #[allow(clippy::unused_self)] // only a worker with a place in the row has one
    pub(crate) fn holder(&self) -> u32 {
        rustix::process::getppid().map_or(0, |holder| holder.as_raw_nonzero().get().unsigned_abs())
    }

    /// How many workers there were before.
    pub(crate) const fn lives(&self) -> u64 {
        self.lives
    }

    /// Where this worker counts its signs of life.
    pub(crate) fn beat(&self) -> &'static AtomicU64 {
        self.arena.beat()
    }

    /// The log's tail in the arena. The first call gets it.
    pub(crate) fn take_tail(&mut self) -> Option<ArenaTail> {
        let memory = TailSlots::USUAL.split(self.arena.tail_bytes.take()?);
        Some(ArenaTail::of(self.arena.tail_words, TailSlots::USUAL, memory))
    }

    /// Files of the origin that are open and have no name. One that cannot be named once more, for want of descriptors,
    /// is left out, and requests for it fail.
    pub(crate) fn nameless(&self) -> Vec<OwnedFd> {
        self.nameless.values().filter_map(|file| file.try_clone().ok()).collect()
    }

    /// Hangs, if a test asked for it.
    pub(crate) fn hang(&self) {
        let Some(file) = std::env::var_os(HANGS).filter(|_| !self.is_first()) else { return };
        while Path::new(&file).exists() {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }

    /// What of the mount outlives this worker: new, or with what the last one left.
    pub(crate) fn lasting(&mut self) -> Result<LastingMount, Refusal> {
        let words = self.arena.ledger_words;
        let ledger =
            if self.left.is_some() { MountLedger::open(words) } else { MountLedger::create(words, ledger_room()) };
        let failed = |why: String| Refusal::Failed {
            doing: "take over from the last worker".to_owned(),
            error: std::io::Error::other(why),
        };
        let ledger = ledger.map_err(|why| failed(why.to_string()))?;
        let kept = std::mem::take(&mut self.nameless);
        // A test may ask for what a kernel before 6.9 needs.
        let needs_journal = !can_send_again() || std::env::var_os(WITHOUT_SENDING_AGAIN).is_some();
        let bytes = self.arena.journal_bytes.take().filter(|_| needs_journal);
        let journal = bytes.map(|bytes| RequestJournal::over(self.arena.journal_words, bytes, JournalRoom::USUAL));
        if let Some(unknown) = journal.as_ref().map(RequestJournal::unknown).filter(|unknown| *unknown > 0) {
            return Err(failed(format!(
                "{unknown} requests were under way for which the memory shared with the holder had no room. Nobody can answer \
                 them, so the mount must end"
            )));
        }
        Ok(LastingMount { ledger, keeper: Arc::new(WithHolder(self.tie.clone())), kept, journal })
    }

    /// What the last worker left, if there was one that served.
    pub(crate) const fn left(&self) -> Option<&Left> {
        self.left.as_ref()
    }
}

impl Left {
    /// Where the mount is.
    pub(crate) const fn places(&self) -> &CheckedPlaces {
        &self.places
    }

    /// The connection with the kernel.
    pub(crate) fn connection(&self) -> std::io::Result<OwnedFd> {
        self.connection.try_clone()
    }

    /// What browsers got for the token.
    pub(crate) fn session(&self) -> Option<Session> {
        self.session.clone()
    }

    /// Whether the mount is still there.
    pub(crate) fn is_connected(&self) -> bool {
        connection_stands(&self.connection)
    }

    /// The open flashes, with their locks, and where they lie.
    pub(crate) fn flashes(&self) -> Result<Vec<(File, &Path)>, Refusal> {
        let take = |(file, path): (&File, &PathBuf)| file.try_clone().map_err(|error| (path.clone(), error));
        let files: Result<Vec<_>, _> = self.flashes.iter().zip(&self.places.flashes).map(take).collect();
        let files = files.map_err(|(path, error)| Refusal::from_io("take over", &path, error))?;
        Ok(files.into_iter().zip(self.places.flashes.iter().map(PathBuf::as_path)).collect())
    }

    /// The lock beside the origin.
    pub(crate) fn origin_lock(&self) -> Option<File> {
        self.origin_lock.as_ref()?.try_clone().ok()
    }

    fn plan(&self, mut asked: MountPlan) -> MountPlan {
        asked.mountpoint.clone_from(&self.places.mountpoint);
        asked.http_token.clone_from(&self.http_token);
        let pool = &mut asked.pool;
        pool.origin.clone_from(&self.places.origin);
        pool.flashes.clone_from(&self.places.flashes);
        pool.peers.clone_from(&self.peers);
        (pool.size, pool.reserve) = (None, None);
        (pool.mode, pool.config, pool.redundancy) = (None, None, None);
        (pool.format, pool.discard_dirty) = (false, false);
        pool.decisions = Decisions::default();
        asked
    }
}

/// Keeps descriptors with the holder.
struct WithHolder(Arc<Tie>);

impl DescriptorKeeper for WithHolder {
    fn keep(&self, number: u64, file: BorrowedFd<'_>) -> std::io::Result<()> {
        self.0.keep(&format!("{NAMELESS}{number}"), file)
    }

    fn let_go(&self, number: u64) {
        // A holder that is gone takes this worker with it.
        let _ = self.0.release(&format!("{NAMELESS}{number}"));
    }
}

/// Room for what the kernel believes.
fn ledger_room() -> LedgerRoom {
    let asked = std::env::var(LEDGER_INODES).ok().and_then(|inodes| inodes.parse().ok());
    asked.map_or(LedgerRoom::USUAL, |inodes| LedgerRoom { inodes, ..LedgerRoom::USUAL })
}

/// How the memory shared with the holder is divided.
pub(crate) fn layout() -> Sizes {
    let tail = TailSlots::USUAL;
    let journal = JournalRoom::USUAL;
    Sizes {
        tail_words: tail.words(),
        ledger_words: ledger_room().words(),
        journal_words: journal.words(),
        tail_bytes: tail.bytes(),
        journal_bytes: journal.bytes(),
    }
}

/// The layout as text: programs with the same one can take over from each other.
#[must_use]
pub fn shared_layout() -> String {
    let Sizes { tail_words, ledger_words, journal_words, tail_bytes, journal_bytes } = layout();
    format!("{LAYOUT}: {tail_words} {ledger_words} {journal_words} {tail_bytes} {journal_bytes}")
}

/// Grows with each change to what workers leave to each other, or say to the holder, if the sizes stay.
const LAYOUT: u32 = 6;

/// The places of a mount, as workers leave them to each other.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Places {
    origin: PathBuf,
    mountpoint: PathBuf,
    http_token: Option<PathBuf>,
    /// The flashes, by the numbers of their members.
    flashes: Vec<(MemberId, PathBuf)>,
    /// The hosts that may keep a copy.
    peers: Vec<PeerPlan>,
}

fn flash_name(member: MemberId) -> String {
    format!("{FLASH}{}", member.0)
}

/// The places as text: a line each, in which no byte is special.
fn written(places: &Places) -> String {
    let Places { origin, mountpoint, http_token, flashes, peers } = places;
    let paths = [Some(origin), Some(mountpoint), http_token.as_ref()];
    let paths = paths.map(|path| path.map_or_else(String::new, |path| source_of(path)));
    let flashes = flashes.iter().map(|(member, path)| format!("{} {}", member.0, source_of(path)));
    // As JSON, which has no newline unless it is asked for one.
    let peers = peers.iter().filter_map(|peer| Some(format!("{PEER}{}", serde_json::to_string(peer).ok()?)));
    paths.into_iter().chain(flashes).chain(peers).collect::<Vec<_>>().join("\n")
}

fn read(text: &str) -> Option<Places> {
    let mut lines = text.split('\n');
    let mut path = || lines.next().map(|line| path_of_source(line.as_bytes()));
    let (origin, mountpoint, http_token) = (path()?, path()?, path()?);
    let (mut flashes, mut peers) = (Vec::new(), Vec::new());
    for line in lines {
        if let Some(text) = line.strip_prefix(PEER) {
            peers.push(serde_json::from_str(text).ok()?);
        } else {
            let (member, path) = line.split_once(' ')?;
            flashes.push((MemberId(member.parse().ok()?), path_of_source(path.as_bytes())));
        }
    }
    let http_token = Some(http_token).filter(|path| !path.as_os_str().is_empty());
    Some(Places { origin, mountpoint, http_token, flashes, peers })
}

/// The way to those who come after.
#[derive(Clone)]
pub(crate) struct Heirs {
    tie: Option<Arc<Tie>>,
    /// All devices that the holder kept for this worker.
    kept: Vec<MemberId>,
    places: Arc<OnceLock<(PathBuf, PathBuf, Option<PathBuf>)>>,
}

impl Heirs {
    pub(crate) fn of(succession: Option<&Succession>) -> Self {
        let kept = succession.map_or_else(Vec::new, |succession| succession.kept_devices.clone());
        Self { tie: succession.map(|succession| succession.tie.clone()), kept, places: Arc::default() }
    }

    /// Leaves to the next worker what browsers got for the token.
    pub(crate) fn leave_session(&self, session: &Session) -> std::io::Result<()> {
        self.tie.as_ref().map_or(Ok(()), |tie| tie.note(SESSION, session.as_text()))
    }

    /// From now on a worker that dies is followed by another one. The first worker also leaves the connection.
    pub(crate) fn serve(
        &self,
        connection: impl AsFd,
        devices: &PoolDevices,
        places: &CheckedPlaces,
        http_token: Option<&PathBuf>,
    ) -> std::io::Result<()> {
        let Some(tie) = &self.tie else { return Ok(()) };
        tie.keep(CONNECTION, connection.as_fd())?;
        let _ = self.places.set((places.origin.clone(), places.mountpoint.clone(), http_token.cloned()));
        for device in devices.all() {
            if let Some(file) = device.file.here() {
                tie.keep(&flash_name(device.member), file.as_fd())?;
            }
        }
        self.note(devices)?;
        // One that the last worker was about to take in, or to let go.
        for member in self.kept.iter().filter(|member| !devices.has(**member)) {
            tie.release(&flash_name(*member))?;
        }
        tie.ready()
    }

    /// What keeps the lock beside the origin for them, so that no other process takes it in between.
    pub(crate) fn lock_keeper(&self) -> Option<Box<LockKeeper>> {
        let tie = self.tie.clone()?;
        Some(Box::new(move |lock| match lock {
            Some(lock) => tie.keep(ORIGIN_LOCK, lock),
            None => tie.release(ORIGIN_LOCK),
        }))
    }

    /// Whether a program with this layout can go on.
    pub(crate) fn may_be(&self, program: &Path, layout: &str) -> Result<(), Refusal> {
        let refuse = |why: &str| Err(Refusal::Usage(format!("upgrade to {}: {why}", program.display())));
        if self.tie.is_none() {
            return refuse("this daemon has no holder. Unmount, and mount with the new program");
        }
        if layout != shared_layout() {
            return refuse(
                "it shares memory with the holder in another way than the program that serves, so it cannot take over. Nothing was \
                 changed. Stop the database, unmount, and mount with the new program",
            );
        }
        Ok(())
    }

    /// The next worker is this program, once this one has ended. The holder has it open on return.
    pub(crate) fn go_on_with(&self, program: &Path) -> Result<(), Refusal> {
        let named = program.to_str().ok_or_else(|| std::io::ErrorKind::InvalidFilename.into());
        let opened = named.and_then(|named| self.tie.as_ref().map_or(Ok(()), |tie| tie.go_on_with(named)));
        opened.map_err(|error| {
            Refusal::Usage(format!(
                "upgrade to {}: the holder of the mount cannot open it: {error}. The holder must see the file in its own \
                 mount namespace, and may read it. Nothing was changed",
                program.display()
            ))
        })
    }

    /// Nobody comes after this worker: the mount is gone, and the pool has everything.
    pub(crate) fn end(&self) {
        if let Some(tie) = &self.tie {
            // A holder that is gone takes this worker with it.
            let _ = tie.ending();
        }
    }
}

impl DeviceKeeper for Heirs {
    fn note(&self, devices: &PoolDevices) -> std::io::Result<()> {
        let (Some(tie), Some((origin, mountpoint, http_token))) = (&self.tie, self.places.get()) else {
            return Ok(());
        };
        let here = devices.all().into_iter().filter(|device| device.file.here().is_some());
        let flashes = here.map(|device| (device.member, device.path)).collect();
        let peers = devices.peers();
        let (origin, mountpoint) = (origin.clone(), mountpoint.clone());
        tie.note(PLACES, &written(&Places { origin, mountpoint, http_token: http_token.clone(), flashes, peers }))
    }

    fn keep(&self, device: &PoolDevice, devices: &PoolDevices) -> std::io::Result<()> {
        let Some(tie) = &self.tie else { return Ok(()) };
        if let Some(file) = device.file.here() {
            tie.keep(&flash_name(device.member), file.as_fd())?;
        }
        self.note(devices)
    }

    fn let_go(&self, member: MemberId, devices: &PoolDevices) -> std::io::Result<()> {
        let Some(tie) = &self.tie else { return Ok(()) };
        self.note(devices)?;
        tie.release(&flash_name(member))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_read_back_whatever_their_names_are() {
        for http_token in [None, Some(PathBuf::from("/etc/to,ken"))] {
            for flashes in [
                vec![(MemberId(0), "/nvme/pond".into())],
                vec![(MemberId(3), "/a b\nc".into()), (MemberId(7), "/d".into())],
            ] {
                let (origin, mountpoint) = ("/slow/a\nb".into(), "/mnt/%41 x".into());
                let address = "unix:/run/a\nb".to_owned();
                let plan = |dir| PeerPlan {
                    address: address.clone(),
                    certificates: Some(dir),
                    durable: true,
                    timeout_millis: 900,
                };
                let peers = http_token.clone().into_iter().flat_map(|dir| [plan(dir.clone()), plan(dir)]).collect();
                let places = Places { origin, mountpoint, http_token: http_token.clone(), flashes, peers };
                assert_eq!(read(&written(&places)), Some(places));
            }
        }
        assert_eq!(read("/slow\n/mnt"), None);
        assert_eq!(read("/slow\n/mnt\n\n/nvme/pond"), None);
    }
}
