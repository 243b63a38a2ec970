//! The note that a pool is obsolete: its flash failed in use, and the origin went on without it.
//!
//! Invariant: the note is durable before the first change that the pool does not know of. It goes only when another
//! pool has taken the failed one's place. It outlives the marker, because a failed pool still looks as if it had the
//! newest data.

use std::io;
use std::sync::Arc;

use crate::origin::BesideDir;
use crate::refusal::Refusal;
use crate::wording::clock::{unix_seconds, utc};

const FILE: &str = "obsolete-pool";

/// The note's place for one origin.
#[derive(Clone, Debug)]
pub(crate) struct ObsoleteNote {
    dir: Arc<BesideDir>,
}

impl ObsoleteNote {
    pub(crate) const fn in_dir(dir: Arc<BesideDir>) -> Self {
        Self { dir }
    }

    /// Writes durably that `pool` is obsolete from now on.
    pub(crate) fn write(&self, pool: &str) -> io::Result<()> {
        let text = format!("{pool}\n{}\n", utc(unix_seconds()));
        if self.dir.is_in_place() {
            return self.dir.replace(FILE, text.as_bytes());
        }
        // The origin's owner moved or removed the directory. The one beside the origin counts.
        let dir = BesideDir::make(self.dir.root()).map_err(|refusal| io::Error::other(refusal.to_string()))?;
        dir.replace(FILE, text.as_bytes())
    }

    /// The note's content, if there is a note.
    ///
    /// # Errors
    /// If it cannot be read. Then headpond cannot know which pool it is about.
    pub(crate) fn read(&self) -> Result<Option<Failure>, Refusal> {
        let Some(text) = self.dir.read(FILE)? else { return Ok(None) };
        let text = String::from_utf8_lossy(&text);
        let mut lines = text.lines();
        let pool = lines.next().filter(|name| !name.is_empty()).map(str::to_owned);
        let when = lines.next().unwrap_or("at an unknown time").to_owned();
        Ok(Some(Failure { pool, when }))
    }

    /// Removes the note: another pool has taken over.
    pub(crate) fn remove(&self) -> Result<(), Refusal> {
        let failed = |error| Refusal::from_io("remove the note of a failed pool", &self.dir.path(FILE), error);
        self.dir.remove(FILE).map_err(failed)
    }
}

/// A flash that failed in use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Failure {
    /// The pool on it. A note without a name was cut short by the same failure.
    pub(crate) pool: Option<String>,
    /// When it failed, in words.
    pub(crate) when: String,
}

impl Failure {
    /// Whether this pool may be the one that failed: the note names it, or no pool.
    pub(crate) fn is_of(&self, pool: &str) -> bool {
        self.pool.as_deref().is_none_or(|named| named == pool)
    }

    /// Whether the note names this pool.
    pub(crate) fn names(&self, pool: &str) -> bool {
        self.pool.as_deref() == Some(pool)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ownership::marker::MARKER_NAME;
    use crate::ownership::marker::tests::root;
    use std::fs;
    use std::path::Path;

    fn note_of(origin: &Path) -> ObsoleteNote {
        ObsoleteNote::in_dir(Arc::new(BesideDir::make(&root(origin)).unwrap()))
    }

    #[test]
    fn a_note_names_the_pool_that_failed_and_no_other() {
        let origin = tempfile::tempdir().unwrap();
        let note = note_of(origin.path());
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
        let note = note_of(origin.path());
        note.write("aa").unwrap();
        fs::write(origin.path().join(MARKER_NAME).join(FILE), "").unwrap();
        let failure = note.read().unwrap().unwrap();
        assert!(failure.is_of("aa") && failure.is_of("bb") && !failure.names("aa"));
    }

    #[test]
    fn a_note_lies_beside_the_origin_even_if_its_directory_was_moved_away() {
        let origin = tempfile::tempdir().unwrap();
        let note = note_of(origin.path());
        fs::rename(origin.path().join(MARKER_NAME), origin.path().join("aside")).unwrap();
        note.write("aa").unwrap();
        assert!(note_of(origin.path()).read().unwrap().unwrap().names("aa"));
    }

    #[test]
    fn a_note_is_not_written_through_a_link() {
        let top = tempfile::tempdir().unwrap();
        let origin = top.path().join("origin");
        fs::create_dir(&origin).unwrap();
        let note = note_of(&origin);
        for name in [FILE, "obsolete-pool.next"] {
            std::os::unix::fs::symlink(top.path().join("out"), origin.join(MARKER_NAME).join(name)).unwrap();
        }
        assert!(note.read().is_err());
        note.write("aa").unwrap();
        assert!(note.read().unwrap().unwrap().names("aa"));
        assert!(!top.path().join("out").exists());
    }
}
