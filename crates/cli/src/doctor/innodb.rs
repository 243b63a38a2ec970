//! MariaDB and MySQL: InnoDB's doublewrite.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Around, Condition, FoundDatabase, bytes_at, text_of, unseen};
use crate::atomic::FoundMarker;

/// The largest page for which MariaDB asks for untorn writes.
const MARIADB_PAGE_MAX: u32 = 32 << 10;

/// Where the first page of a tablespace has its flags: after the page's head, in the tablespace's.
const FLAGS_AT: u64 = 38 + 16;

/// The page size in the flags, in either of MariaDB's two formats (MySQL has the older one).
fn page_bytes(flags: u32) -> Option<u32> {
    const FULL_CRC32: u32 = 1 << 4;
    let shift = if flags & FULL_CRC32 != 0 { flags & 15 } else { flags >> 6 & 15 };
    match shift {
        0 => Some(16 << 10),
        3..=7 => Some(512 << shift),
        _ => None,
    }
}

/// Examines a server's data directory. `None` if it is none.
pub fn examine(directory: &Path, around: &Around) -> Option<FoundDatabase> {
    let system = directory.join("ibdata1");
    let flags = bytes_at(&system, FLAGS_AT).map(u32::from_be_bytes)?;
    let page_bytes = page_bytes(flags);
    let is_mysql = directory.join("mysql.ibd").exists();
    let told = around.is_counted_on(&system);
    let conditions = common(directory, around);
    Some(if is_mysql {
        mysql(directory, page_bytes, told, conditions)
    } else {
        mariadb(directory, around, page_bytes, told, conditions)
    })
}

/// The conditions of both servers.
fn common(directory: &Path, around: &Around) -> Vec<Condition> {
    vec![around.on_whole_writes(), around.nothing_elsewhere(links(directory).into_iter())]
}

/// Paths that lead out of a data directory: symbolic links to databases, and InnoDB's own link files.
fn links(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(next) = directories.pop() {
        let Ok(entries) = fs::read_dir(&next) else { continue };
        for entry in entries.filter_map(Result::ok) {
            let path = entry.path();
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_symlink() {
                found.push(path);
            } else if path.extension().is_some_and(|extension| extension == "isl") {
                found.extend(text_of(&path).map(|target| PathBuf::from(target.trim())));
            } else if kind.is_dir() && next == directory {
                directories.push(path);
            }
        }
    }
    found.sort();
    found
}

fn told_now(told: Option<bool>) -> String {
    match told {
        Some(true) => "the running server asked for untorn writes, and skips its doublewrite".to_owned(),
        Some(false) => "the server writes each page twice (doublewrite): it has not asked for untorn writes".to_owned(),
        None => {
            "the server writes each page twice (doublewrite), unless its configuration turns innodb_doublewrite off"
                .to_owned()
        }
    }
}

const CHECK: &str = "SHOW GLOBAL STATUS LIKE 'Innodb_dblwr_pages_written': stays 0 while Innodb_pages_written grows. \
     SHOW VARIABLES LIKE 'innodb_doublewrite' still says ON; ignore that.";

fn mariadb(
    directory: &Path,
    around: &Around,
    page_bytes: Option<u32>,
    told: Option<bool>,
    mut conditions: Vec<Condition>,
) -> FoundDatabase {
    conditions.push(Condition {
        what: "pages have at most 32 KiB: MariaDB does not ask for larger ones".to_owned(),
        met: page_bytes.map(|bytes| bytes <= MARIADB_PAGE_MAX),
    });
    conditions.push(Condition {
        what: "/dev/fcta exists: MariaDB asks only then. To make it: headpond atomic enable".to_owned(),
        met: Some(around.marker != FoundMarker::Absent),
    });
    let version = ["mariadb_upgrade_info", "mysql_upgrade_info"]
        .iter()
        .find_map(|name| text_of(&directory.join(name)))
        .map(|text| text.trim().to_owned());
    FoundDatabase {
        database: "MariaDB",
        version,
        at: directory.to_owned(),
        page_bytes,
        now: told_now(told),
        could: "skip the doublewrite by itself: it asks the mount about each tablespace".to_owned(),
        lines: vec![
            "headpond atomic enable --at-boot      # as root; then restart MariaDB. You need not set anything.".to_owned(),
            "[mariadb]".to_owned(),
            "innodb_flush_method = O_DIRECT        # the default since 10.6: no kernel cache, one request for each page".to_owned(),
            "innodb_use_atomic_writes = ON         # the default".to_owned(),
        ],
        conditions,
        check: CHECK.to_owned(),
        back: "headpond atomic disable, then restart MariaDB".to_owned(),
    }
}

fn mysql(
    directory: &Path,
    page_bytes: Option<u32>,
    told: Option<bool>,
    mut conditions: Vec<Condition>,
) -> FoundDatabase {
    // MySQL asks for the system tablespace alone, and applies the answer to all others.
    conditions.push(unseen("innodb_directories, innodb_undo_directory and innodb_data_home_dir lie in this mount: MySQL asks once for all of them"));
    let own = text_of(&directory.join("mysqld-auto.cnf")).unwrap_or_default();
    let persisted = own.contains("\"innodb_doublewrite\"");
    conditions.push(Condition {
        what: "SET PERSIST does not set innodb_doublewrite (mysqld-auto.cnf)".to_owned(),
        met: Some(!persisted),
    });
    FoundDatabase {
        database: "MySQL",
        version: None,
        at: directory.to_owned(),
        page_bytes,
        now: told_now(told),
        could: "skip the doublewrite: MySQL 8.0 by itself if it uses O_DIRECT, any version if you set it".to_owned(),
        lines: vec![
            "[mysqld]".to_owned(),
            "innodb_flush_method = O_DIRECT        # 8.0 asks only with this value".to_owned(),
            "# innodb_doublewrite = OFF            # for versions that do not ask. Turn it on again before you move the data".to_owned(),
        ],
        conditions,
        check: CHECK.to_owned(),
        back: "innodb_flush_method = fsync (or innodb_doublewrite = ON), then restart MySQL".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::page_bytes;

    #[test]
    fn flags_of_either_format_tell_the_page_size() {
        for (flags, bytes) in [
            (0, Some(16 << 10)),
            (3 << 6, Some(4 << 10)),
            (6 << 6, Some(32 << 10)),
            (7 << 6, Some(64 << 10)),
            (1 << 4 | 5, Some(16 << 10)),
            (1 << 4 | 3, Some(4 << 10)),
            (1 << 6, None),
        ] {
            assert_eq!(page_bytes(flags), bytes, "{flags:#x}");
        }
    }
}
