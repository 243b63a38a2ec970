//! Rows of promises: to a process, that its writes to a file are whole.
//!
//! ```text
//!   promise row   process | its start | file's inode | file's birth
//! ```

use std::sync::Arc;

use crate::MountLedger;

/// A promise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PromiseRow {
    /// The number of the process. Never 0.
    pub process: u32,
    /// When it started, in the kernel's ticks.
    pub born: u64,
    /// The file's inode number at the origin.
    pub inode: u64,
    /// The file's birth time at the origin, or 0.
    pub birth: i64,
}

/// A promise's row. It counts until this is dropped.
#[derive(Debug)]
pub struct PromiseEntry {
    ledger: Arc<MountLedger>,
    /// None if there was no room.
    row: Option<u32>,
}

impl MountLedger {
    /// Enters a promise.
    pub fn promise(self: &Arc<Self>, promise: &PromiseRow) -> PromiseEntry {
        let row = self.promises.take();
        match row {
            Some(row) => {
                let set = |word, value| self.words.set(self.promises.at(row, word), value);
                set(1, promise.born);
                set(2, promise.inode);
                set(3, promise.birth.cast_unsigned());
                set(0, promise.process.into());
            }
            None => self.lacks_one(),
        }
        PromiseEntry { ledger: self.clone(), row }
    }

    /// All promises. Call it once, before any is entered.
    #[must_use]
    pub fn stored_promises(self: &Arc<Self>) -> Vec<(PromiseRow, PromiseEntry)> {
        let of = |row| {
            let get = |word| self.words.get(self.promises.at(row, word));
            let process = get(0) as u32;
            let promise = PromiseRow { process, born: get(1), inode: get(2), birth: get(3).cast_signed() };
            (process != 0).then(|| (promise, PromiseEntry { ledger: self.clone(), row: Some(row) }))
        };
        self.promises.used().filter_map(of).collect()
    }
}

impl PromiseEntry {
    /// The number of its row, by which handles name it. 0 if it has none.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.row.map_or(0, |row| u64::from(row) + 1)
    }
}

impl Drop for PromiseEntry {
    fn drop(&mut self) {
        if self.ledger.is_left() {
            return;
        }
        let Some(row) = self.row else { return self.ledger.lacks_one_less() };
        self.ledger.words.set(self.ledger.promises.at(row, 0), 0);
        self.ledger.promises.give(row);
    }
}
