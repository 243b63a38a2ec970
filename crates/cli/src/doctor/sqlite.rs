//! SQLite: what a database file tells of its journal, and what that means on a mount.

use std::path::Path;

use super::{Around, Condition, Finding, bytes_at, unseen};

/// What a database file begins with.
const MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// A database, if the file is one.
pub fn examine(file: &Path, around: &Around) -> Option<Finding> {
    let head: [u8; 20] = bytes_at(file, 0)?;
    if head[..16] != *MAGIC {
        return None;
    }
    let page_bytes = match u16::from_be_bytes([head[16], head[17]]) {
        1 => 64 << 10,
        bytes => u32::from(bytes),
    };
    let with_log = head[18] == 2;
    let now = if with_log {
        "a write-ahead log: pages are written twice, first into the log"
    } else {
        "a rollback journal: what a page held before is written first, and synced; unless SQLite was built for batch-atomic \
         writes and is answered"
    };
    let conditions = vec![
        around.on_whole_writes(),
        unseen(
            "SQLite built with SQLITE_ENABLE_BATCH_ATOMIC_WRITE (PRAGMA compile_options lists it): Android's is, Debian's is not",
        ),
        Condition {
            what: "a journal mode other than WAL: with a log it does not ask".to_owned(),
            met: Some(!with_log),
        },
        unseen(
            "transactions of up to 64 pages that lie apart, 1 MiB in all: larger ones use the journal by themselves",
        ),
    ];
    Some(Finding {
        database: "SQLite",
        version: None,
        at: file.to_owned(),
        page_bytes: Some(page_bytes),
        now: now.to_owned(),
        could: "commit without a journal: all pages of a transaction as one batch, which the mount makes whole".to_owned(),
        lines: vec!["PRAGMA journal_mode = DELETE;         -- or TRUNCATE, PERSIST; then SQLite asks by itself".to_owned()],
        conditions,
        check: "strace -e ioctl shows F2FS_IOC_START_ATOMIC_WRITE (0xf501) and 0xf502 for each commit, and no -journal file appears".to_owned(),
        back: "any SQLite that was not built for it, or PRAGMA journal_mode = WAL".to_owned(),
    })
}
