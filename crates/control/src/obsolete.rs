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

    /// Refuses a pool that the note names. A note that names none, or cannot be read, names every
    /// pool: it may have been cut short by the same failure.
    ///
    /// # Errors
    /// [`Refusal::PoolObsolete`].
    pub(crate) fn check(&self, pool: &str, flash: &Path) -> Result<(), Refusal> {
        let text = match fs::read_to_string(self.path()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(Refusal::from_io("read the note of a failed pool", &self.path(), error)),
            Ok(text) => text,
        };
        let mut lines = text.lines();
        let named = lines.next().unwrap_or_default();
        if !named.is_empty() && named != pool {
            return Ok(());
        }
        let when = lines.next().unwrap_or("at an unknown time").to_owned();
        Err(Refusal::PoolObsolete { path: flash.to_owned(), when })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ExitStatus;

    #[test]
    fn a_pool_that_failed_in_use_is_refused_and_another_one_is_not() {
        let origin = tempfile::tempdir().unwrap();
        let note = ObsoleteNote::of(origin.path());
        let flash = Path::new("/nvme/pond");
        assert!(note.check("aa", flash).is_ok(), "no note, no refusal");
        note.write("aa").unwrap();
        let refusal = note.check("aa", flash).unwrap_err();
        assert_eq!(refusal.status(), ExitStatus::PoolObsolete);
        assert!(refusal.to_string().contains("/nvme/pond") && refusal.to_string().contains("--format"), "{refusal}");
        assert!(note.check("bb", flash).is_ok(), "a new pool on the same flash has another name");
        note.remove().unwrap();
        assert!(note.check("aa", flash).is_ok());
    }

    #[test]
    fn a_note_that_was_cut_short_refuses_every_pool() {
        let origin = tempfile::tempdir().unwrap();
        let note = ObsoleteNote::of(origin.path());
        note.write("aa").unwrap();
        fs::write(note.path(), "").unwrap();
        assert!(note.check("bb", Path::new("/nvme/pond")).is_err());
    }
}
