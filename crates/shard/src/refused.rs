//! Lost writes of an origin that the engine must still learn of.
//!
//! The kernel reports a failed write-back to a descriptor once: at the next fsync or, on NFS, at a write that it
//! refuses for want of space. If that call was not the engine's sync, the engine's next sync succeeds, and the engine
//! would take lost data for safe.
//!
//! Invariants
//! - After an error that another call received, the engine's next sync of the file fails with it.
//! - One sync runs at a time. So no sync succeeds after another call took the error and before that is noted. If
//!   writes can take the error, they do not run beside a sync.

use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};

use headpond_base::{Errno, Result};
use rustix::fs::Advice;

/// Magic number of `statfs`.
const NFS: u64 = 0x6969;

/// The lost writes of one file.
#[derive(Default)]
pub(crate) struct RefusedOfFile {
    order: RwLock<()>,
    untold: Mutex<Option<Errno>>,
    /// The kernel's size of the file may come from lost writes.
    size_is_doubtful: AtomicBool,
}

impl RefusedOfFile {
    /// A sync for the engine.
    pub(crate) fn sync(&self, sync: impl FnOnce() -> Result<()>) -> Result<()> {
        let _alone = self.order.write().unwrap_or_else(PoisonError::into_inner);
        let done = sync();
        let untold = self.note(None);
        done.and(untold.map_or(Ok(()), Err))
    }

    /// A sync for another caller.
    pub(crate) fn sync_aside(&self, sync: impl FnOnce() -> Result<()>) -> Result<()> {
        let _alone = self.order.write().unwrap_or_else(PoisonError::into_inner);
        sync().inspect_err(|errno| {
            self.note(Some(*errno));
        })
    }

    /// A write that may receive the error of earlier writes.
    pub(crate) fn write(&self, write: impl FnOnce() -> Result<()>) -> Result<()> {
        let _beside_writes = self.order.read().unwrap_or_else(PoisonError::into_inner);
        write().inspect_err(|errno| {
            self.note(Some(*errno));
        })
    }

    /// Makes the file end at `size`.
    pub(crate) fn resize(&self, file: &File, size: u64) -> Result<()> {
        if self.size_is_doubtful.swap(false, Ordering::AcqRel) {
            // An NFS client sends nothing if it believes that the file has this size.
            let set = file.set_len(size + 1).and_then(|()| file.set_len(size));
            return set.map_err(|error| {
                self.size_is_doubtful.store(true, Ordering::Release);
                error.into()
            });
        }
        Ok(file.set_len(size)?)
    }

    /// After a refused sync: makes the kernel drop its copies, which may still show lost bytes, and doubts the
    /// kernel's size.
    pub(crate) fn look_anew(&self, file: &File) {
        // If this fails, readers have at least been told of the loss.
        let _ = rustix::fs::fadvise(file, 0, None, Advice::DontNeed);
        self.size_is_doubtful.store(true, Ordering::Release);
    }

    fn note(&self, errno: Option<Errno>) -> Option<Errno> {
        std::mem::replace(&mut *self.untold.lock().unwrap_or_else(PoisonError::into_inner), errno)
    }
}

/// Whether the kernel reports earlier failed writes to writers.
pub(crate) fn tells_writers(file: &File) -> bool {
    rustix::fs::fstatfs(file).is_ok_and(|found| found.f_type as u64 & 0xffff_ffff == NFS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_that_looks_right_is_set_all_the_same_after_a_refused_sync() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(5000).unwrap();
        let changed = || rustix::fs::fstat(&file).unwrap().st_mtime;
        let old = rustix::fs::Timespec { tv_sec: 1, tv_nsec: 0 };
        let times = rustix::fs::Timestamps { last_access: old, last_modification: old };
        let refused = RefusedOfFile::default();
        refused.look_anew(&file);
        rustix::fs::futimens(&file, &times).unwrap();
        refused.resize(&file, 5000).unwrap();
        assert!(changed() > 1, "it was another in between");
        assert_eq!(file.metadata().unwrap().len(), 5000);
    }

    #[test]
    fn an_error_that_another_was_given_fails_the_engines_next_sync_and_no_other() {
        let refused = RefusedOfFile::default();
        assert_eq!(refused.sync_aside(|| Err(Errno::NOSPC)), Err(Errno::NOSPC));
        assert_eq!(refused.sync(|| Ok(())), Err(Errno::NOSPC), "the kernel tells each error once");
        assert_eq!(refused.sync(|| Ok(())), Ok(()));
        assert_eq!(refused.write(|| Err(Errno::DQUOT)), Err(Errno::DQUOT));
        assert_eq!(refused.sync_aside(|| Ok(())), Ok(()), "it is the engine that has to hear of it");
        assert_eq!(refused.sync(|| Err(Errno::IO)), Err(Errno::IO));
        assert_eq!(refused.sync(|| Ok(())), Ok(()));
    }
}
