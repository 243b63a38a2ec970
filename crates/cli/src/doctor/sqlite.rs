//! SQLite: what a database file tells of its journal, and what that means on a mount.

use std::path::Path;

use super::{Around, Finding, bytes_at};

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
        "a rollback journal: what a page held before is written first, and synced"
    };
    let conditions = vec![around.on_whole_writes()];
    Some(Finding {
        database: "SQLite",
        version: None,
        at: file.to_owned(),
        page_bytes: Some(page_bytes),
        now: now.to_owned(),
        could: "nothing less: a transaction changes several pages, and must be whole in all of them. Of a single page half is \
                never there".to_owned(),
        lines: vec!["PRAGMA journal_mode = WAL;            -- one sync for a commit instead of several".to_owned()],
        conditions,
        check: "PRAGMA journal_mode".to_owned(),
        back: "PRAGMA journal_mode = DELETE".to_owned(),
    })
}
