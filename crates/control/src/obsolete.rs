//! The note that a pool is obsolete: its flash failed in use, and the origin went on without it.
//!
//! Invariant: the note is durable before the first change that the pool does not know of, and
//! goes only when another pool has taken the failed one's place. It outlives the marker, because
//! a pool that failed still looks as if it had the newest data.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::Refusal;
use crate::clock::{unix_seconds, utc};
use crate::marker::MARKER_NAME;

const FILE: &str = "obsolete-pool";

/// The place of the note for one origin.
#[derive(Clone, Debug)]
pub(crate) struct ObsoleteNote {
    origin: PathBuf,
}

impl ObsoleteNote {
    pub(crate) fn of(origin: &Path) -> Self {
        Self { origin: origin.to_owned() }
    }

    fn path(&self) -> PathBuf {
        self.origin.join(MARKER_NAME).join(FILE)
    }

    /// Says durably that `pool` is obsolete from now on.
    pub(crate) fn write(&self, pool: &str) -> io::Result<()> {
        let dir = self.origin.join(MARKER_NAME);
        match fs::DirBuilder::new().mode(0o755).create(&dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(self.path())?;
        writeln!(file, "{pool}\n{}", utc(unix_seconds()))?;
        file.sync_all()?;
        File::open(&dir)?.sync_all()?;
        File::open(&self.origin)?.sync_all()
    }

    /// What the note says, if there is one.
    ///
    /// # Errors
    /// When it cannot be read: then nobody knows which pool it is about.
    pub(crate) fn read(&self) -> Result<Option<Failure>, Refusal> {
        let text = match fs::read_to_string(self.path()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Refusal::from_io("read the note of a failed pool", &self.path(), error)),
            Ok(text) => text,
        };
        let mut lines = text.lines();
        let pool = lines.next().filter(|name| !name.is_empty()).map(str::to_owned);
        let when = lines.next().unwrap_or("at an unknown time").to_owned();
        Ok(Some(Failure { pool, when }))
    }

    /// Removes the note: another pool has taken over.
    pub(crate) fn remove(&self) -> Result<(), Refusal> {
        match fs::remove_file(self.path()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Refusal::from_io("remove the note of a failed pool", &self.path(), error))
            }
            _ => Ok(()),
        }
    }
}

/// A flash that failed in use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Failure {
    /// The pool that was on it. A note that names none was cut short by the same failure.
    pub(crate) pool: Option<String>,
    /// When, for people.
    pub(crate) when: String,
}

impl Failure {
    /// Whether it is this pool that failed, as far as can be told.
    pub(crate) fn is_of(&self, pool: &str) -> bool {
        self.pool.as_deref().is_none_or(|named| named == pool)
    }

    /// Whether it is surely this pool, which the note names.
    pub(crate) fn names(&self, pool: &str) -> bool {
        self.pool.as_deref() == Some(pool)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_names_the_pool_that_failed_and_no_other() {
        let origin = tempfile::tempdir().unwrap();
        let note = ObsoleteNote::of(origin.path());
        assert_eq!(note.read().unwrap(), None);
        note.write("aa").unwrap();
        let failure = note.read().unwrap().unwrap();
        assert!(failure.is_of("aa") && failure.names("aa"));
        assert!(!failure.is_of("bb") && !failure.names("bb"), "a new pool on the same flash has another name");
        assert!(failure.when.ends_with('Z'), "{failure:?}");
        note.remove().unwrap();
        assert_eq!(note.read().unwrap(), None);
    }

    #[test]
    fn a_note_that_was_cut_short_may_be_about_every_pool() {
        let origin = tempfile::tempdir().unwrap();
        let note = ObsoleteNote::of(origin.path());
        note.write("aa").unwrap();
        fs::write(note.path(), "").unwrap();
        let failure = note.read().unwrap().unwrap();
        assert!(failure.is_of("aa") && failure.is_of("bb") && !failure.names("aa"));
    }
}
