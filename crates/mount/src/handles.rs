//! What applications have open. Each handle has a number. The kernel gets it and sends it back with every request. No
//! number is used twice.

use std::collections::HashMap;
use std::fs::File;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use headpond_base::ObjectId;
use rustix::fs::Dir;
use rustix::io::Errno;

use crate::atomic_write::AtomicWriting;
use crate::shares::Share;
use crate::tree::{Inode, Known, Pinned};

/// The way to the content of an open file.
pub(crate) enum ContentWay {
    /// Through the engine.
    Pond {
        /// The engine's name for the file.
        object: ObjectId,
        /// What applications see of it.
        known: Arc<Known>,
    },
    /// Straight at the origin: a file on another file system that is mounted below the origin.
    Straight(File, #[expect(dead_code, reason = "held")] Share),
}

/// An open file.
pub(crate) struct OpenHandle {
    pub(crate) inode: Pinned,
    pub(crate) way: ContentWay,
    /// This handle may write.
    pub(crate) writes: bool,
    /// The user who opened it. The kernel's writes of a shared mapping count for this user: the kernel names the
    /// handle, and no process.
    pub(crate) opener: u32,
    /// The handle's atomic write, if one is open.
    pub(crate) atomic_writing: AtomicWriting,
}

impl OpenHandle {
    pub(crate) fn new(inode: Pinned, way: ContentWay, writes: bool, opener: u32) -> Self {
        Self { inode, way, writes, opener, atomic_writing: AtomicWriting::default() }
    }

    /// Whether the mount promised a program that its writes are whole.
    pub(crate) fn is_whole(&self) -> bool {
        matches!(&self.way, ContentWay::Pond { known, .. } if known.is_whole())
    }

    /// Whether the engine has its content. If so, no request for it blocks.
    pub(crate) const fn is_managed(&self) -> bool {
        matches!(self.way, ContentWay::Pond { .. })
    }
}

/// An open directory. It is a stream, so it has one reader at a time.
pub(crate) struct OpenDirectory {
    pub(crate) inode: Arc<Inode>,
    pub(crate) stream: Mutex<DirectoryStream>,
    pub(crate) _share: Share,
}

/// A directory being read.
pub(crate) struct DirectoryStream {
    pub(crate) entries: Dir,
    /// The position of the next entry that it reads without a seek.
    pub(crate) position: u64,
}

/// Open things by their numbers.
pub(crate) struct Handles<T> {
    next: AtomicU64,
    open: RwLock<HashMap<u64, Arc<T>>>,
}

impl<T> Handles<T> {
    /// No handles.
    pub(crate) fn new() -> Self {
        Self { next: AtomicU64::new(1), open: RwLock::default() }
    }

    /// Adds an open thing and numbers it.
    pub(crate) fn insert(&self, value: T) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.open.write().unwrap_or_else(PoisonError::into_inner).insert(number, Arc::new(value));
        number
    }

    /// The thing with this number.
    pub(crate) fn get(&self, number: u64) -> Result<Arc<T>, Errno> {
        self.open.read().unwrap_or_else(PoisonError::into_inner).get(&number).cloned().ok_or(Errno::BADF)
    }

    /// Closes a handle.
    pub(crate) fn remove(&self, number: u64) -> Option<Arc<T>> {
        self.open.write().unwrap_or_else(PoisonError::into_inner).remove(&number)
    }

    /// Whether nothing is open.
    pub(crate) fn is_empty(&self) -> bool {
        self.open.read().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Closes all handles and returns what they had open.
    pub(crate) fn drain(&self) -> Vec<Arc<T>> {
        self.open.write().unwrap_or_else(PoisonError::into_inner).drain().map(|(_, value)| value).collect()
    }
}
