//! Files with changes at the origin that no log has (mode, owner, names, extended attributes), and that are not yet
//! synced there.
//!
//! Invariants
//! - A sync makes durable every change that was answered before it, even if the kernel forgot the file in between.
//! - Memory for forgotten files is bounded. When there are too many, every file counts as changed.
//!
//! A file that is new to the mount counts as synced, because each mount first syncs the origin's whole file system.
//!
//! Price: 16 bytes for each forgotten file. Once there are too many, each file that the kernel meets again and an
//! application syncs costs one sync of the origin.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::FileKey;

/// The most forgotten files that are kept.
const FORGOTTEN_MAX: usize = 1 << 16;

/// The changes of one file.
#[derive(Debug, Default)]
pub struct Unsynced {
    changes: AtomicU64,
    /// The last synced one of them.
    synced: AtomicU64,
}

impl Unsynced {
    /// The file was changed. Call it before the caller has its answer.
    pub fn note(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether there is something to sync.
    pub fn is_so(&self) -> bool {
        self.synced.load(Ordering::Acquire) < self.changes.load(Ordering::Acquire)
    }

    /// Syncs the file, if there is something to sync.
    pub(crate) async fn settle<E>(&self, sync: impl Future<Output = Result<(), E>>) -> Result<(), E> {
        let through = self.changes.load(Ordering::Acquire);
        if self.synced.load(Ordering::Acquire) < through {
            sync.await?;
            self.synced.fetch_max(through, Ordering::AcqRel);
        }
        Ok(())
    }
}

/// Files that the kernel forgot before they were synced.
#[derive(Debug)]
pub(crate) struct ForgottenUnsynced {
    files: BTreeSet<FileKey>,
    max: usize,
    /// There were more: any file may be one.
    any: bool,
}

impl Default for ForgottenUnsynced {
    fn default() -> Self {
        Self::of(FORGOTTEN_MAX)
    }
}

impl ForgottenUnsynced {
    fn of(max: usize) -> Self {
        Self { files: BTreeSet::new(), max, any: false }
    }

    /// The kernel forgot this file.
    pub(crate) fn keep(&mut self, file: FileKey) {
        self.any |= self.files.len() >= self.max;
        if self.any {
            self.files = BTreeSet::new();
        } else {
            self.files.insert(file);
        }
    }

    /// There were some, and nothing says which.
    pub(crate) fn forget_which(&mut self) {
        self.any = true;
    }

    /// The kernel met this file again.
    pub(crate) fn taken_in(&mut self, file: FileKey) -> Unsynced {
        let unsynced = Unsynced::default();
        if self.files.remove(&file) || self.any {
            unsynced.note();
        }
        unsynced
    }
}

#[cfg(test)]
mod tests {
    use headpond_base::UnixNanos;

    use super::*;
    use crate::block_on;

    const fn file(inode: u64) -> FileKey {
        FileKey { inode, birth: UnixNanos(1) }
    }

    fn settle<E>(unsynced: &Unsynced, sync: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        block_on(unsynced.settle(async { sync() }))
    }

    #[test]
    fn a_change_during_a_sync_is_for_the_next_one_and_a_failed_sync_settles_nothing() {
        let unsynced = Unsynced::default();
        assert!(settle(&unsynced, || Err("nothing was to be synced")).is_ok());
        unsynced.note();
        assert_eq!(settle(&unsynced, || Err("failed")), Err("failed"));
        assert!(unsynced.is_so());
        let during = || {
            unsynced.note();
            Ok::<_, ()>(())
        };
        settle(&unsynced, during).unwrap();
        assert!(unsynced.is_so());
        settle(&unsynced, || Ok::<_, ()>(())).unwrap();
        assert!(!unsynced.is_so());
    }

    #[test]
    fn with_more_forgotten_files_than_are_kept_each_file_may_be_one_of_them() {
        let mut forgotten = ForgottenUnsynced::of(2);
        forgotten.keep(file(1));
        forgotten.keep(file(2));
        assert!(!forgotten.taken_in(file(9)).is_so());
        assert!(forgotten.taken_in(file(1)).is_so());
        assert!(!forgotten.taken_in(file(1)).is_so(), "it is known by its inode now");
        forgotten.keep(file(1));
        forgotten.keep(file(3));
        assert!((1..10).all(|inode| forgotten.taken_in(file(inode)).is_so()));
        assert_eq!(forgotten.files.len(), 0);
    }
}
