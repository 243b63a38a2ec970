//! The note beside the origin that says how far the pool's log is durable in this use. The marker names the use of
//! the pool that the origin waits for. A snapshot of the flash from that very use has the same claim, and only lacks
//! its last batches. After a crash, this note tells the two apart, except for the last few seconds.
//!
//! Invariants
//! - It never says more than is durable on flash: the engine counts a batch after the flash has answered the sync.
//! - Each use makes the note new, under a name of its own, and renames it. From then on one write of [`BYTES`]
//!   replaces it in place: it needs no more space and changes no directory.
//! - A note that is torn, damaged, missing or of another use claims nothing.
//! - No request waits for it. The end of a mount waits no longer than for a marker.
//!
//! Price: one write and one sync of a block at the origin in each [`PERIOD`] in which something became durable.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use headpond_format::bytes_checksum;
use headpond_shard::{Gate, Handle};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use crate::origin::BesideDir;
use crate::process::log::log_line;
use crate::refusal::Refusal;

/// Its name below the marker's directory.
pub(crate) const FILE: &str = "durable.json";

/// Its size: always the same, filled up with spaces, and no more than a disk writes at once.
const BYTES: usize = 256;

/// How often a changed note is written.
const PERIOD: Duration = Duration::from_secs(5);

const ABOUT: &str = "headpond: the pool is durable at least up to this batch";

/// How far the log of one use is durable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct DurableLog {
    /// The use: its claim's `id`.
    pub(crate) claim: String,
    /// The last batch of the host stream that was durable in that use.
    pub(crate) host_batch: u64,
}

/// The note as written.
#[derive(Serialize, Deserialize)]
struct Written {
    about: String,
    version: u32,
    claim: String,
    host_batch: u64,
    /// CRC-32C over claim and number: it shows a torn write of the note.
    check: String,
}

const VERSION: u32 = 1;

impl DurableLog {
    /// The note's content. `None` if it claims nothing.
    ///
    /// # Errors
    /// If what lies there is not headpond's, or cannot be read.
    pub(crate) fn read(dir: &BesideDir) -> Result<Option<Self>, Refusal> {
        Ok(dir.read(FILE)?.and_then(|text| Self::decode(&text)))
    }

    fn decode(text: &[u8]) -> Option<Self> {
        let Written { version, claim, host_batch, check, .. } = serde_json::from_slice(text).ok()?;
        let said = Self { claim, host_batch };
        (version == VERSION && check == said.check()).then_some(said)
    }

    fn encode(&self) -> io::Result<Vec<u8>> {
        let mut text = serde_json::to_vec(&Written {
            about: ABOUT.to_owned(),
            version: VERSION,
            claim: self.claim.clone(),
            host_batch: self.host_batch,
            check: self.check(),
        })?;
        text.resize(BYTES - 1, b' ');
        text.push(b'\n');
        Ok(text)
    }

    fn check(&self) -> String {
        format!("{:08x}", bytes_checksum(format!("{} {}", self.claim, self.host_batch).as_bytes()))
    }
}

/// The note of one use, as long as the use lasts.
#[derive(Debug)]
pub(crate) struct DurableNote {
    dir: Arc<BesideDir>,
    claim: String,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The note's file, once it exists.
    file: Option<File>,
    /// The last batch that the note names.
    said: Option<u64>,
    /// No write follows.
    ended: bool,
    /// The origin stands still, so the note keeps what it says.
    held: bool,
}

impl DurableNote {
    /// A note that is not written yet: one from an earlier use says nothing about this use.
    pub(crate) fn new(dir: Arc<BesideDir>, claim: &str) -> Self {
        Self { dir, claim: claim.to_owned(), state: Mutex::default() }
    }

    /// Writes how far the log is durable, unless the note says so already. Call it while this process has the origin.
    pub(crate) fn say(&self, host_batch: u64) -> io::Result<()> {
        let mut state = self.state();
        if state.ended || state.held { Ok(()) } else { self.write(&mut state, host_batch) }
    }

    /// Leaves the note as it is from now on, or no longer. Waits for a write under way.
    pub(crate) fn hold(&self, holds: bool) {
        self.state().held = holds;
    }

    /// Writes the note for the last time, if there is a batch, and closes the file. No write follows.
    pub(crate) fn end(&self, host_batch: Option<u64>) -> io::Result<()> {
        let mut state = self.state();
        let said = match host_batch {
            Some(host_batch) if !state.ended => self.write(&mut state, host_batch),
            _ => Ok(()),
        };
        *state = State { ended: true, ..State::default() };
        said
    }

    fn write(&self, state: &mut State, host_batch: u64) -> io::Result<()> {
        let in_place = state.file.as_ref().is_some_and(|file| self.dir.names(FILE, file));
        // The number only grows. A use whose log has not begun has nothing to say.
        if host_batch == 0 || (in_place && state.said >= Some(host_batch)) {
            return Ok(());
        }
        let text = DurableLog { claim: self.claim.clone(), host_batch }.encode()?;
        match &state.file {
            Some(file) if in_place => {
                file.write_all_at(&text, 0)?;
                file.sync_data()?;
            }
            _ => {
                state.file = None;
                self.dir.replace(FILE, &text)?;
                let file = self.dir.open_file(FILE, OFlags::WRONLY);
                state.file = file.map_err(|refusal| io::Error::other(refusal.to_string()))?;
            }
        }
        state.said = Some(host_batch);
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A write that failed half-way leaves `said` as it was, and the next one repeats it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps the note up to date, on a thread of its own, as long as the result lives.
///
/// # Errors
/// If the thread cannot start.
pub(crate) fn keep_up(note: Arc<DurableNote>, handle: Handle, gate: Arc<Gate>) -> io::Result<Sender<()>> {
    let (stop, stopped) = channel();
    let keep = move || {
        let mut failing = false;
        while matches!(stopped.recv_timeout(PERIOD), Err(RecvTimeoutError::Timeout)) {
            let durable = handle.stats().engine.durable_host_batch;
            // The gate reports a lost claim by itself.
            if gate.is_lost() || gate.pass().is_err() {
                continue;
            }
            let failed = note.say(durable).err();
            if let Some(error) = failed.as_ref().filter(|_| !failing) {
                log_line(format_args!(
                    "cannot note beside the origin how far the pool is durable: {error}. Until this works, headpond cannot \
                     tell the pool from an older image of it after a crash"
                ));
            }
            failing = failed.is_some();
        }
    };
    std::thread::Builder::new().name("durable-note".to_owned()).spawn(keep)?;
    Ok(stop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ownership::marker::MARKER_NAME;
    use crate::ownership::marker::tests::root;
    use std::fs;
    use std::path::Path;

    fn dir_of(origin: &Path) -> Arc<BesideDir> {
        Arc::new(BesideDir::make(&root(origin)).unwrap())
    }

    fn said(origin: &Path) -> Option<u64> {
        let said = DurableLog::read(&dir_of(origin)).unwrap();
        said.map(|said| {
            assert_eq!(said.claim, "ab".repeat(16));
            said.host_batch
        })
    }

    fn note_of(origin: &Path) -> DurableNote {
        DurableNote::new(dir_of(origin), &"ab".repeat(16))
    }

    #[test]
    fn the_note_is_written_in_place_and_only_grows() {
        let origin = tempfile::tempdir().unwrap();
        let note = note_of(origin.path());
        note.say(0).unwrap();
        assert_eq!(said(origin.path()), None, "there is nothing to say");
        let file = || fs::metadata(origin.path().join(MARKER_NAME).join(FILE)).unwrap();
        note.say(7).unwrap();
        let made = std::os::unix::fs::MetadataExt::ino(&file());
        for (batch, says) in [(8, 8), (5, 8), (u64::MAX, u64::MAX)] {
            note.say(batch).unwrap();
            assert_eq!(said(origin.path()), Some(says));
            assert_eq!(file().len(), BYTES as u64);
        }
        assert_eq!(std::os::unix::fs::MetadataExt::ino(&file()), made);
    }

    #[test]
    fn the_next_use_makes_it_anew_and_what_ended_is_not_written_any_more() {
        let origin = tempfile::tempdir().unwrap();
        let (first, second) = (note_of(origin.path()), note_of(origin.path()));
        first.say(7).unwrap();
        second.say(3).unwrap();
        assert_eq!(said(origin.path()), Some(3));
        second.end(Some(4)).unwrap();
        second.say(9).unwrap();
        second.end(Some(9)).unwrap();
        assert_eq!(said(origin.path()), Some(4));
    }

    #[test]
    fn what_is_torn_missing_or_not_understood_claims_nothing() {
        let origin = tempfile::tempdir().unwrap();
        let path = origin.path().join(MARKER_NAME).join(FILE);
        assert_eq!(said(origin.path()), None);
        let of = |host_batch| DurableLog { claim: "ab".repeat(16), host_batch }.encode().unwrap();
        let (old, new) = (of(1999), of(2000));
        // Each mix of two writes reads as one of them, or as nothing.
        for cut in 0..=BYTES {
            fs::write(&path, [&new[..cut], &old[cut..]].concat()).unwrap();
            let said = said(origin.path());
            assert!([None, Some(1999), Some(2000)].contains(&said), "cut at {cut}: {said:?}");
        }
        for text in [&new[..100], b"", b"nonsense"] {
            fs::write(&path, text).unwrap();
            assert_eq!(said(origin.path()), None);
        }
        let newer = String::from_utf8(new).unwrap().replace("\"version\":1", "\"version\":2");
        fs::write(&path, newer).unwrap();
        assert_eq!(said(origin.path()), None);
    }

    #[test]
    fn a_note_is_not_written_through_a_link_nor_read_through_one() {
        let top = tempfile::tempdir().unwrap();
        let (origin, out) = (top.path().join("origin"), top.path().join("out"));
        fs::create_dir(&origin).unwrap();
        let dir = dir_of(&origin);
        fs::write(&out, "another's").unwrap();
        let path = origin.join(MARKER_NAME).join(FILE);
        std::os::unix::fs::symlink(&out, &path).unwrap();
        assert!(DurableLog::read(&dir).is_err());
        let note = note_of(&origin);
        note.say(7).unwrap();
        assert_eq!(said(&origin), Some(7));
        // Planted while it is in use.
        let plants = [std::os::unix::fs::symlink::<&Path, &Path>, fs::hard_link::<&Path, &Path>];
        for (batch, plant) in (8..).zip(plants) {
            fs::remove_file(&path).unwrap();
            plant(&out, &path).unwrap();
            note.say(batch).unwrap();
            assert_eq!((fs::read(&out).unwrap(), said(&origin)), (b"another's".to_vec(), Some(batch)));
        }
    }
}
