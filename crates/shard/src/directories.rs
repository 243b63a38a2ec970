//! Directories with changed entries. They are synced together with the files whose names changed.
//!
//! A sync of a file makes its data durable, and on some file systems nothing else. btrfs before 6.15.3 brings back a
//! file that lost its last name, even if a sync of the file came later. Few file systems promise a second name. So a
//! sync that must cover a name, or its removal, also syncs the directory.
//!
//! Invariants
//! - A directory counts as synced only by a sync that began after the change.
//! - A change whose sync failed stays, for the next sync of the file.
//!
//! Price: one descriptor for each directory with such changes, up to a limit, until the files are synced. One sync of
//! a directory serves all files that changed in it before.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The most directories that one file waits for. A file that moves again and again without a sync has the oldest one
/// synced at once.
const DIRECTORIES_MAX: usize = 16;

/// The most open directories. Beyond it each change is synced at once. That is slow, and happens only when files with
/// dirty data are removed from, or moved between, ever more directories.
const OPEN_MAX: usize = 256;

/// How many syncs there were.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Syncs {
    /// Files.
    pub files: u64,
    /// Directories.
    pub directories: u64,
}

/// All directories with changes that may need a sync.
#[derive(Default)]
pub(crate) struct Directories {
    open: Mutex<HashMap<(u64, u64), Weak<Directory>>>,
    synced: Arc<AtomicU64>,
}

struct Directory {
    file: File,
    changes: AtomicU64,
    /// The last synced change. Locked during a sync: a thread that comes meanwhile may have nothing left to do.
    synced: Mutex<u64>,
    /// The count of all directories.
    count: Arc<AtomicU64>,
}

/// A change of a directory's entries.
struct Change {
    directory: Arc<Directory>,
    number: u64,
}

/// Changes of one file's names that are not synced.
#[derive(Default)]
pub(crate) struct NameChanges {
    changes: Mutex<Vec<Change>>,
    /// Locked during their sync: a thread that comes meanwhile waits for it.
    syncing: Mutex<()>,
}

impl Directories {
    /// Notes that an entry of the directory changed, for a file with the changes `of`.
    pub(crate) fn changed(&self, directory: OwnedFd, of: &NameChanges) -> io::Result<()> {
        let file = File::from(directory);
        let found = file.metadata()?;
        let mut open = locked(&self.open);
        let place = open.entry((found.dev(), found.ino())).or_default();
        let directory = place.upgrade().unwrap_or_else(|| {
            let (changes, synced) = (AtomicU64::new(0), Mutex::new(0));
            let directory = Arc::new(Directory { file, changes, synced, count: self.synced.clone() });
            *place = Arc::downgrade(&directory);
            directory
        });
        if open.len().is_power_of_two() || open.len() > OPEN_MAX {
            // Drops directories without users. Only now and then, so it costs little.
            open.retain(|_, directory| directory.strong_count() > 0);
        }
        let crowded = open.len() > OPEN_MAX;
        drop(open);
        let number = directory.changes.fetch_add(1, Ordering::AcqRel) + 1;
        of.add(Change { directory, number });
        if crowded { of.sync().map(drop) } else { Ok(()) }
    }

    /// How many directory syncs there were.
    pub(crate) fn synced(&self) -> u64 {
        self.synced.load(Ordering::Relaxed)
    }
}

impl NameChanges {
    fn add(&self, change: Change) {
        let mut changes = locked(&self.changes);
        // The later change covers an earlier one.
        changes.retain(|earlier| !Arc::ptr_eq(&earlier.directory, &change.directory));
        if changes.len() >= DIRECTORIES_MAX && changes[0].sync().is_ok() {
            changes.remove(0);
        }
        changes.push(change);
    }

    /// Makes the changes so far durable. `false` if there were none.
    pub(crate) fn sync(&self) -> io::Result<bool> {
        let _syncing = locked(&self.syncing);
        let mut left = std::mem::take(&mut *locked(&self.changes));
        let mut result = Ok(!left.is_empty());
        left.retain(|change| {
            let synced = change.sync();
            let stays = synced.is_err();
            if result.is_ok() {
                result = synced.map(|()| true);
            }
            stays
        });
        left.into_iter().for_each(|change| self.add(change));
        result
    }
}

impl Change {
    fn sync(&self) -> io::Result<()> {
        let mut synced = locked(&self.directory.synced);
        if *synced < self.number {
            let through = self.directory.changes.load(Ordering::Acquire);
            self.directory.file.sync_all()?;
            self.directory.count.fetch_add(1, Ordering::Relaxed);
            *synced = through;
        }
        Ok(())
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each change of the content is whole before anything can panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(path: &std::path::Path) -> OwnedFd {
        File::open(path).unwrap().into()
    }

    #[test]
    fn a_sync_of_a_directory_counts_for_all_files_whose_names_changed_before_it() {
        let place = tempfile::tempdir().unwrap();
        let (directories, one, other) = (Directories::default(), NameChanges::default(), NameChanges::default());
        for file in [&one, &other, &one] {
            directories.changed(open(place.path()), file).unwrap();
        }
        one.sync().unwrap();
        assert_eq!(directories.synced(), 1);
        other.sync().unwrap();
        one.sync().unwrap();
        assert_eq!(directories.synced(), 1, "it was synced after that change");
        directories.changed(open(place.path()), &other).unwrap();
        other.sync().unwrap();
        assert_eq!(directories.synced(), 2);
    }

    #[test]
    fn not_more_directories_than_the_limit_are_open() {
        let place = tempfile::tempdir().unwrap();
        let directories = Directories::default();
        let files: Vec<_> = (0..2 * OPEN_MAX)
            .map(|number| {
                let (path, file) = (place.path().join(number.to_string()), NameChanges::default());
                std::fs::create_dir(&path).unwrap();
                directories.changed(open(&path), &file).unwrap();
                file
            })
            .collect();
        let waiting = files.iter().filter(|file| !locked(&file.changes).is_empty()).count();
        assert_eq!((waiting, directories.synced()), (OPEN_MAX, OPEN_MAX as u64));
    }

    #[test]
    fn a_file_that_is_moved_on_and_on_does_not_hold_ever_more_directories() {
        let place = tempfile::tempdir().unwrap();
        let (directories, file) = (Directories::default(), NameChanges::default());
        let many = 3 * DIRECTORIES_MAX;
        for number in 0..many {
            let path = place.path().join(number.to_string());
            std::fs::create_dir(&path).unwrap();
            directories.changed(open(&path), &file).unwrap();
        }
        assert_eq!(locked(&file.changes).len(), DIRECTORIES_MAX);
        assert!(locked(&directories.open).len() < many, "what nobody waits for is forgotten");
        file.sync().unwrap();
        assert_eq!(directories.synced(), many as u64, "each once");
    }
}
