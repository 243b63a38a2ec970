//! What applications have open. Each handle has a number. The kernel gets it and sends it back with every request. No
//! number is used twice.

use std::collections::HashMap;
use std::fs::File;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use headpond_base::ObjectId;
use headpond_ledger::{HandleEntry, HandleKind, HandleRow, MountLedger};
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
    numbers: Numbers,
    open: RwLock<HashMap<u64, OpenThing<T>>>,
}

/// Where numbers of handles come from.
enum Numbers {
    /// They end with the process.
    Own(AtomicU64),
    /// They outlive it.
    Lasting(Arc<MountLedger>, HandleKind),
}

/// An open thing, and its row in the ledger.
struct OpenThing<T> {
    thing: Arc<T>,
    entry: Option<HandleEntry>,
}

/// How a handle came about.
#[derive(Clone, Copy, Default)]
pub(crate) struct Opening {
    /// The number of the request.
    pub(crate) unique: u64,
    /// The user who asked.
    pub(crate) opener: u32,
    /// The flags with which it opens again at the origin.
    pub(crate) flags: u32,
}

/// What has a row in the ledger while it is open.
pub(crate) trait Rowed {
    /// The number of its inode's row, and whether it may write. `None` if it has no row.
    fn row(&self) -> Option<(u64, bool)>;
}

impl Rowed for OpenHandle {
    fn row(&self) -> Option<(u64, bool)> {
        Some((self.inode.row(), self.writes))
    }
}

impl Rowed for OpenDirectory {
    fn row(&self) -> Option<(u64, bool)> {
        Some((self.inode.row(), false))
    }
}

impl Rowed for String {
    fn row(&self) -> Option<(u64, bool)> {
        None
    }
}

impl<T: Rowed> Handles<T> {
    /// No handles. With a ledger, numbers and rows are there.
    pub(crate) fn new(ledger: Option<&Arc<MountLedger>>, kind: HandleKind) -> Self {
        let numbers = match ledger {
            Some(ledger) => Numbers::Lasting(ledger.clone(), kind),
            None => Numbers::Own(AtomicU64::new(1)),
        };
        Self { numbers, open: RwLock::default() }
    }

    /// Adds an open thing and numbers it.
    pub(crate) fn insert(&self, value: T, how: Opening) -> u64 {
        let (number, entry) = match &self.numbers {
            Numbers::Own(next) => (next.fetch_add(1, Ordering::Relaxed), None),
            Numbers::Lasting(ledger, kind) => {
                let number = ledger.next_number(*kind);
                let row = value.row().map(|(inode, writes)| HandleRow {
                    number,
                    kind: *kind,
                    inode,
                    writes,
                    atomic: false,
                    opener: how.opener,
                    flags: how.flags,
                    unique: how.unique,
                    promise: 0,
                });
                (number, row.map(|row| ledger.open_handle(&row)))
            }
        };
        self.put(number, value, entry);
        number
    }

    /// Adds a thing that was open before, under its number.
    pub(crate) fn put(&self, number: u64, value: T, entry: Option<HandleEntry>) {
        let thing = OpenThing { thing: Arc::new(value), entry };
        self.open.write().unwrap_or_else(PoisonError::into_inner).insert(number, thing);
    }

    /// Shows a handle's row, if it has one.
    pub(crate) fn note(&self, number: u64, note: impl FnOnce(&HandleEntry)) {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = open.get(&number).and_then(|open| open.entry.as_ref()) {
            note(entry);
        }
    }

    /// The thing with this number.
    pub(crate) fn get(&self, number: u64) -> Result<Arc<T>, Errno> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        open.get(&number).map(|open| open.thing.clone()).ok_or(Errno::BADF)
    }

    /// Closes a handle.
    pub(crate) fn remove(&self, number: u64) -> Option<Arc<T>> {
        let removed = self.open.write().unwrap_or_else(PoisonError::into_inner).remove(&number);
        removed.map(|open| open.thing)
    }

    /// Whether nothing is open.
    pub(crate) fn is_empty(&self) -> bool {
        self.open.read().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Closes all handles and returns what they had open.
    pub(crate) fn drain(&self) -> Vec<Arc<T>> {
        self.open.write().unwrap_or_else(PoisonError::into_inner).drain().map(|(_, open)| open.thing).collect()
    }
}
