//! PostgreSQL: full-page writes in its log.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Around, FoundDatabase, bytes_at, text_of, unseen};

/// Where `global/pg_control` says whether full_page_writes was on at the last checkpoint, since version 11.
const FULL_PAGE_WRITES_AT: u64 = 56;

/// Where any page has its size. The lower byte is the version of the page's layout.
const PAGE_SIZE_AT: u64 = 18;

/// Examines a data directory. `None` if it is none.
pub fn examine(directory: &Path, around: &Around) -> Option<FoundDatabase> {
    let version = text_of(&directory.join("PG_VERSION"))?.trim().to_owned();
    let control = directory.join("global/pg_control");
    let major: u32 = version.split('.').next()?.parse().ok()?;
    let last = bytes_at::<1>(&control, FULL_PAGE_WRITES_AT).filter(|_| major >= 11).map(|[byte]| byte != 0);
    // pg_database, the same file in every cluster.
    let page_bytes = bytes_at(&directory.join("global/1262"), PAGE_SIZE_AT)
        .map(u16::from_le_bytes)
        .map(|word| u32::from(word & 0xff00))
        .filter(|bytes| *bytes > 0);
    let configured = configured(directory);
    let mut conditions =
        vec![around.on_whole_writes(), around.no_run_bypasses(), around.nothing_elsewhere(tablespaces(directory))];
    conditions.push(unseen("no rule sends the server's writes past the log (headpond rules list)"));
    conditions.push(unseen("fsync = on, and synchronous_commit as you need it: untorn is not durable"));
    conditions.push(unseen(
        "standbys of this server have untorn writes, too: without full pages in the log nothing repairs a torn page there",
    ));
    conditions.push(unseen("you do not need pg_rewind: it refuses to work without full_page_writes"));
    conditions.push(unseen(
        "shared_buffers stay in memory (huge_pages = on, or no swap): the kernel may split a write from swapped-out memory",
    ));
    let now = match (configured, last) {
        (Some(true) | None, Some(true)) => {
            "PostgreSQL logs each page in full at its first change after a checkpoint (full_page_writes = on)"
        }
        (Some(false), Some(true)) => {
            "full_page_writes = off is set, but was not in force at the last checkpoint: reload the server"
        }
        (_, Some(false)) => "PostgreSQL does not log full pages (full_page_writes was off at the last checkpoint)",
        (Some(false), None) => "full_page_writes = off is set",
        (_, None) => {
            "PostgreSQL logs each page in full at its first change after a checkpoint, unless full_page_writes is off"
        }
    };
    let file = main_file(directory);
    Some(FoundDatabase {
        database: "PostgreSQL",
        version: Some(version),
        at: directory.to_owned(),
        page_bytes,
        now: now.to_owned(),
        could: "leave full pages out of its log. It does not ask the mount: you set it".to_owned(),
        lines: vec![
            format!("full_page_writes = off                # in {}; then SELECT pg_reload_conf() and CHECKPOINT", file.display()),
        ],
        conditions,
        check: "SHOW full_page_writes says off, and pg_waldump --stats=record shows hardly any full page images (FPI). During a base backup the server logs them anyway".to_owned(),
        back: "full_page_writes = on, SELECT pg_reload_conf(), CHECKPOINT. Do this before you move the data, leave write-back, or run pg_rewind".to_owned(),
    })
}

/// The main configuration file: in the data directory, or where the server's command line says.
fn main_file(directory: &Path) -> PathBuf {
    let options = text_of(&directory.join("postmaster.opts")).unwrap_or_default();
    let named = options.split('"').find_map(|word| word.strip_prefix("config_file="));
    named.map_or_else(|| directory.join("postgresql.conf"), PathBuf::from)
}

/// The setting in the configuration files; the later file counts. None if none sets it.
fn configured(directory: &Path) -> Option<bool> {
    let files = [main_file(directory), directory.join("postgresql.auto.conf")];
    files.iter().filter_map(|file| text_of(file)).filter_map(|text| last_setting(&text)).next_back()
}

/// The last line that sets it. Included files are not read.
fn last_setting(text: &str) -> Option<bool> {
    let line = |line: &str| {
        let line = line.split('#').next()?.trim();
        let rest = line.strip_prefix("full_page_writes")?;
        let value = rest.trim_start().trim_start_matches('=').trim().trim_matches('\'').to_ascii_lowercase();
        match value.as_str() {
            "on" | "true" | "yes" | "1" => Some(true),
            "off" | "false" | "no" | "0" => Some(false),
            _ => None,
        }
    };
    text.lines().filter_map(line).next_back()
}

/// The tablespaces: links in `pg_tblspc` lead to them.
fn tablespaces(directory: &Path) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(directory.join("pg_tblspc")).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()))
}

#[cfg(test)]
mod tests {
    use super::last_setting;

    #[test]
    fn the_last_line_counts_and_comments_do_not() {
        assert_eq!(last_setting("#full_page_writes = off\n"), None);
        assert_eq!(last_setting("full_page_writes = on # why\nfull_page_writes off\n"), Some(false));
        assert_eq!(last_setting("full_page_writes='TRUE'"), Some(true));
    }
}
