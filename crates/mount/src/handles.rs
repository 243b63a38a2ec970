//! What applications have open. A handle's number goes to the kernel, which gives it back with
//! every request; it is never used twice.

use std::collections::HashMap;
use std::fs::File;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use headpond_base::ObjectId;
use rustix::fs::Dir;
use rustix::io::Errno;

use crate::batch::Batching;
use crate::shares::Share;
use crate::tree::{Inode, Known, Pinned};

/// How the content of an open file is reached.
pub(crate) enum Way {
    /// Through the engine.
    Pond {
        /// The engine's name for the file.
        object: ObjectId,
        /// What applications see of it.
        known: Arc<Known>,
    },
    /// Straight at the origin: a file on another file system, mounted below the origin.
    Straight(File, #[expect(dead_code, reason = "held")] Share),
}

/// An open file.
pub(crate) struct OpenFile {
    pub(crate) inode: Pinned,
    pub(crate) way: Way,
    /// It may be written by this handle.
    pub(crate) writes: bool,
    /// Who opened it. What the kernel writes of a shared mapping is charged to this user: the kernel names the handle, and no
    /// process.
    pub(crate) opener: u32,
    /// Writes that wait to be made as one.
    pub(crate) batching: Batching,
}

impl OpenFile {
    pub(crate) fn new(inode: Pinned, way: Way, writes: bool, opener: u32) -> Self {
        Self { inode, way, writes, opener, batching: Batching::default() }
    }

    /// A program was told that its writes are whole.
    pub(crate) fn is_whole(&self) -> bool {
        matches!(&self.way, Way::Pond { known, .. } if known.is_whole())
    }

    /// Its content is the engine's: no request for it blocks.
    pub(crate) const fn is_managed(&self) -> bool {
        matches!(self.way, Way::Pond { .. })
    }
}

/// An open directory: a stream, so only one reader at a time.
pub(crate) struct OpenDirectory {
    pub(crate) inode: Arc<Inode>,
    pub(crate) stream: Mutex<Stream>,
    pub(crate) _share: Share,
}

/// A directory being read.
pub(crate) struct Stream {
    pub(crate) entries: Dir,
    /// Where the next entry is read without a seek.
    pub(crate) position: u64,
}

/// Open things by their numbers.
pub(crate) struct Handles<T> {
    next: AtomicU64,
    open: RwLock<HashMap<u64, Arc<T>>>,
}

impl<T> Handles<T> {
    /// None open.
    pub(crate) fn new() -> Self {
        Self { next: AtomicU64::new(1), open: RwLock::default() }
    }

    /// Takes in something open.
    pub(crate) fn insert(&self, value: T) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.open.write().unwrap_or_else(PoisonError::into_inner).insert(number, Arc::new(value));
        number
    }

    /// The thing with this number.
    pub(crate) fn get(&self, number: u64) -> Result<Arc<T>, Errno> {
        self.open.read().unwrap_or_else(PoisonError::into_inner).get(&number).cloned().ok_or(Errno::BADF)
    }

    /// It is closed.
    pub(crate) fn remove(&self, number: u64) -> Option<Arc<T>> {
        self.open.write().unwrap_or_else(PoisonError::into_inner).remove(&number)
    }

    /// Whether nothing is open.
    pub(crate) fn is_empty(&self) -> bool {
        self.open.read().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Everything that is still open, closed.
    pub(crate) fn drain(&self) -> Vec<Arc<T>> {
        self.open.write().unwrap_or_else(PoisonError::into_inner).drain().map(|(_, value)| value).collect()
    }
}
