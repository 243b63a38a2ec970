//! Rows of open files and directories.
//!
//! ```text
//!   handle row   number | kind, flags, opener | inode's row | request | open flags | promise
//! ```

use std::sync::Arc;

use crate::MountLedger;
use crate::layout::AT_NUMBERS;

const NUMBER: usize = 0;
const WHAT: usize = 1;
const INODE: usize = 2;
const UNIQUE: usize = 3;
const FLAGS: usize = 4;
const PROMISE: usize = 5;

const DIRECTORY: u64 = 1;
const WRITES: u64 = 2;
const ATOMIC: u64 = 4;

/// What a handle is of. Each kind has numbers of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HandleKind {
    /// A file.
    File,
    /// A directory.
    Directory,
    /// A text of the mount's own. It has no row: it is made again when it is read.
    Sheet,
}

/// What is known of a handle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HandleRow {
    /// Its number, which the kernel sends with each request. Never 0.
    pub number: u64,
    /// What it is of. Not a [`HandleKind::Sheet`].
    pub kind: HandleKind,
    /// The number of its inode's row; 0 for the root.
    pub inode: u64,
    /// It may write.
    pub writes: bool,
    /// An atomic write is open.
    pub atomic: bool,
    /// The user who opened it.
    pub opener: u32,
    /// The flags with which it opens again at the origin.
    pub flags: u32,
    /// The request that opened it.
    pub unique: u64,
    /// The number of the promise's row that it holds; 0 if none.
    pub promise: u64,
}

/// A handle's row. It counts until this is dropped.
#[derive(Debug)]
pub struct HandleEntry {
    ledger: Arc<MountLedger>,
    /// None if there was no room.
    row: Option<u32>,
}

impl MountLedger {
    /// A number for a new handle. None comes twice, whatever ends.
    #[must_use]
    pub fn next_number(&self, kind: HandleKind) -> u64 {
        self.words.add(AT_NUMBERS + kind as usize, 1)
    }

    /// Enters a handle.
    pub fn open_handle(self: &Arc<Self>, handle: &HandleRow) -> HandleEntry {
        let row = self.handles.take();
        match row {
            Some(row) => {
                let set = |word, value| self.words.set(self.handles.at(row, word), value);
                let flag = |is, flag| if is { flag } else { 0 };
                let what = flag(handle.kind == HandleKind::Directory, DIRECTORY)
                    | flag(handle.writes, WRITES)
                    | flag(handle.atomic, ATOMIC);
                set(WHAT, what | u64::from(handle.opener) << 32);
                set(INODE, handle.inode);
                set(UNIQUE, handle.unique);
                set(FLAGS, handle.flags.into());
                set(PROMISE, handle.promise);
                set(NUMBER, handle.number);
            }
            None => self.lacks_one(),
        }
        HandleEntry { ledger: self.clone(), row }
    }

    /// All handles. Call it once, before any is entered.
    #[must_use]
    pub fn stored_handles(self: &Arc<Self>) -> Vec<(HandleRow, HandleEntry)> {
        let of = |row| {
            let get = |word| self.words.get(self.handles.at(row, word));
            let (number, what) = (get(NUMBER), get(WHAT));
            let has = |flag| what & flag != 0;
            let handle = HandleRow {
                number,
                kind: if has(DIRECTORY) { HandleKind::Directory } else { HandleKind::File },
                inode: get(INODE),
                writes: has(WRITES),
                atomic: has(ATOMIC),
                opener: (what >> 32) as u32,
                flags: get(FLAGS) as u32,
                unique: get(UNIQUE),
                promise: get(PROMISE),
            };
            (number != 0).then(|| (handle, HandleEntry { ledger: self.clone(), row: Some(row) }))
        };
        self.handles.used().filter_map(of).collect()
    }
}

impl HandleEntry {
    /// Whether an atomic write is open.
    pub fn set_atomic(&self, is_open: bool) {
        let Some(at) = self.at(WHAT) else { return };
        if is_open { self.ledger.words.mark(at, ATOMIC) } else { self.ledger.words.unmark(at, ATOMIC) }
    }

    /// It holds this promise from now on; 0 means none.
    pub fn set_promise(&self, number: u64) {
        if let Some(at) = self.at(PROMISE) {
            self.ledger.words.set(at, number);
        }
    }

    fn at(&self, word: usize) -> Option<usize> {
        self.row.map(|row| self.ledger.handles.at(row, word))
    }
}

impl Drop for HandleEntry {
    fn drop(&mut self) {
        if self.ledger.is_left() {
            return;
        }
        let Some(row) = self.row else { return self.ledger.lacks_one_less() };
        self.ledger.words.set(self.ledger.handles.at(row, NUMBER), 0);
        self.ledger.handles.give(row);
    }
}
