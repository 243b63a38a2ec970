//! SQLite: which journal a database file uses, and what that means on a mount.

use std::path::Path;

use super::{Around, Condition, FoundDatabase, bytes_at, unseen};

/// The first bytes of a database file.
const MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// Examines a database file. `None` if it is none.
pub fn examine(file: &Path, around: &Around) -> Option<FoundDatabase> {
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
        "a write-ahead log: SQLite writes each page twice, first into the log"
    } else {
        "a rollback journal: SQLite first writes and syncs the page's old content, unless it is built for batch-atomic writes"
    };
    let conditions = vec![
        around.on_whole_writes(),
        unseen(
            "SQLite is built with SQLITE_ENABLE_BATCH_ATOMIC_WRITE (see PRAGMA compile_options): Android's is, Debian's is not",
        ),
        Condition {
            what: "the journal mode is not WAL: with WAL, SQLite does not ask".to_owned(),
            met: Some(!with_log),
        },
        unseen("a transaction changes at most 64 runs of pages, 1 MiB in all: SQLite uses the journal for larger ones"),
    ];
    Some(FoundDatabase {
        database: "SQLite",
        version: None,
        at: file.to_owned(),
        page_bytes: Some(page_bytes),
        now: now.to_owned(),
        could: "commit without a journal: the mount writes all pages of a transaction as one untorn batch".to_owned(),
        lines: vec!["PRAGMA journal_mode = DELETE;         -- or TRUNCATE, PERSIST; SQLite then asks by itself".to_owned()],
        conditions,
        check: "strace -e ioctl shows F2FS_IOC_START_ATOMIC_WRITE (0xf501) and 0xf502 for each commit, and no -journal file appears".to_owned(),
        back: "PRAGMA journal_mode = WAL, or a SQLite that is not built for it".to_owned(),
    })
}
