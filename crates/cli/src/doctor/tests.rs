//! The doctor on made-up data directories.

use super::*;
use std::os::unix::fs::symlink;
use tempfile::TempDir;

fn write(path: &Path, bytes: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

/// A file's bytes: zeros up to `offset`, then these.
fn at(offset: usize, bytes: &[u8]) -> Vec<u8> {
    let mut all = vec![0; offset];
    all.extend_from_slice(bytes);
    all.resize(offset + 4096, 0);
    all
}

fn mounted(directory: &TempDir, mode: &str, counted_on: &[&str]) -> Around {
    let mount = MountFacts {
        mountpoint: fs::canonicalize(directory.path()).unwrap(),
        mode: mode.to_owned(),
        whole_writes: mode == "write-back",
        sequential_cutoff: Some("off".to_owned()),
        counted_on: Some(counted_on.iter().map(PathBuf::from).collect()),
    };
    Around { mount: Some(mount), marker: FoundMarker::Ours }
}

const NOWHERE: Around = Around { mount: None, marker: FoundMarker::Absent };

fn unmet(finding: &FoundDatabase) -> Vec<&str> {
    finding.conditions.iter().filter(|one| one.met == Some(false)).map(|one| one.what.as_str()).collect()
}

fn top(directory: &TempDir) -> PathBuf {
    fs::canonicalize(directory.path()).unwrap()
}

#[test]
fn mariadb_on_a_mount_is_told_what_is_in_force_and_nothing_is_missing() {
    let directory = TempDir::new().unwrap();
    let data = top(&directory).join("mysql");
    write(&data.join("ibdata1"), &at(54, &(1_u32 << 4 | 5).to_be_bytes()));
    write(&data.join("mysql_upgrade_info"), b"10.11.6-MariaDB\n");
    let found = examine(&top(&directory), &mounted(&directory, "write-back", &["mysql/ibdata1"])).databases;
    let [finding] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((finding.database, finding.version.as_deref()), ("MariaDB", Some("10.11.6-MariaDB")));
    assert_eq!(finding.page_bytes, Some(16384));
    assert!(finding.now.contains("skips its doublewrite"), "{}", finding.now);
    assert_eq!(unmet(finding), [""; 0]);
    let found = examine(&data, &mounted(&directory, "write-back", &[])).databases;
    assert!(found[0].now.contains("each page twice"), "{}", found[0].now);
}

#[test]
fn what_is_missing_for_mariadb_is_named() {
    let directory = TempDir::new().unwrap();
    let data = top(&directory);
    write(&data.join("ibdata1"), &at(54, &(7_u32 << 6).to_be_bytes()));
    symlink("/tmp", data.join("elsewhere")).unwrap();
    let around = Around { marker: FoundMarker::Absent, ..mounted(&directory, "write-around", &[]) };
    let found = examine(&data, &around).databases;
    let missing = unmet(&found[0]);
    for part in ["write-around", "at most 32 KiB", "/dev/fcta", "elsewhere leads away"] {
        assert!(missing.iter().any(|what| what.contains(part)), "{part}: {missing:?}");
    }
    let nowhere = examine(&data, &NOWHERE);
    assert!(unmet(&nowhere.databases[0])[0].contains("lies on none"));
    assert!(nowhere.to_string().contains("not on a headpond mount"), "{nowhere}");
}

#[test]
fn mysql_is_known_by_its_own_tablespace_and_asks_only_with_direct_writes() {
    let directory = TempDir::new().unwrap();
    let data = top(&directory);
    write(&data.join("ibdata1"), &at(54, &0_u32.to_be_bytes()));
    write(&data.join("mysql.ibd"), &[0; 100]);
    write(&data.join("mysqld-auto.cnf"), br#"{"mysql_static_variables": {"innodb_doublewrite": {"Value": "ON"}}}"#);
    let found = examine(&data, &mounted(&directory, "write-back", &[])).databases;
    assert_eq!((found[0].database, found[0].page_bytes), ("MySQL", Some(16384)));
    assert!(found[0].lines.iter().any(|line| line.starts_with("innodb_flush_method = O_DIRECT")));
    assert!(unmet(&found[0])[0].contains("SET PERSIST"), "{found:?}");
}

#[test]
fn postgresql_tells_what_its_last_checkpoint_did_and_what_its_files_say() {
    let directory = TempDir::new().unwrap();
    let data = top(&directory).join("15/main");
    write(&data.join("PG_VERSION"), b"15\n");
    write(&data.join("global/pg_control"), &at(56, &[1]));
    write(&data.join("global/1262"), &at(18, &(8192_u16 | 4).to_le_bytes()));
    fs::create_dir(data.join("pg_tblspc")).unwrap();
    let around = mounted(&directory, "write-back", &[]);
    let one = |around: &Around| examine(&data, around).databases.remove(0);
    let finding = one(&around);
    assert_eq!((finding.version.as_deref(), finding.page_bytes), (Some("15"), Some(8192)));
    assert!(finding.now.contains("full_page_writes = on"), "{}", finding.now);
    assert!(unmet(&finding).is_empty(), "{finding}");
    assert!(finding.lines[0].starts_with("full_page_writes = off"));

    write(&top(&directory).join("etc/postgresql.conf"), b"full_page_writes = off\n");
    let options = format!(
        "/usr/lib/postgresql \"-c\" \"config_file={}\"\n",
        top(&directory).join("etc/postgresql.conf").display()
    );
    write(&data.join("postmaster.opts"), options.as_bytes());
    assert!(one(&around).now.contains("reload"), "{}", one(&around).now);
    write(&data.join("global/pg_control"), &at(56, &[0]));
    assert!(one(&around).now.contains("does not log full pages"), "{}", one(&around).now);
    symlink("/var/tmp", data.join("pg_tblspc/16400")).unwrap();
    assert!(unmet(&one(&around))[0].contains("16400 leads away"));

    // PostgreSQL does not ask the mount, so a long run of its pages would bypass the log.
    let mut around = around;
    around.mount.as_mut().unwrap().sequential_cutoff = Some("4M".to_owned());
    let missing = one(&around);
    assert!(unmet(&missing)[0].contains("sequential-cutoff=off"), "{missing}");
}

#[test]
fn sqlite_files_are_found_among_others() {
    let directory = TempDir::new().unwrap();
    let head =
        |versions: u8| [b"SQLite format 3\0".as_slice(), &4096_u16.to_be_bytes(), &[versions; 2], &[0; 80]].concat();
    write(&top(&directory).join("app/state.db"), &head(1));
    write(&top(&directory).join("app/log.db"), &head(2));
    write(&top(&directory).join("app/notes.txt"), b"SQLite format 3, it says, and is none");
    let found = examine(&top(&directory), &mounted(&directory, "write-back", &[])).databases;
    let names: Vec<_> = found.iter().map(|one| one.at.file_name().unwrap().to_str().unwrap()).collect();
    assert_eq!(names, ["log.db", "state.db"]);
    assert!(found[0].now.contains("write-ahead log") && found[1].now.contains("rollback journal"));
    assert!(unmet(&found[1]).is_empty());
}

#[test]
fn the_mounts_own_list_is_read() {
    let text = "           pid name            path\n          4711 mariadbd        db/with blank.ibd\n";
    assert_eq!(listed(text), [PathBuf::from("db/with blank.ibd")]);
}

#[test]
fn where_there_is_no_database_that_is_said() {
    let directory = TempDir::new().unwrap();
    let report = examine(directory.path(), &NOWHERE);
    assert!(report.databases.is_empty());
    assert!(report.to_string().contains("found no MariaDB"), "{report}");
}

#[test]
fn a_fifo_in_a_data_directory_holds_nobody_up() {
    let directory = TempDir::new().unwrap();
    let fifo = directory.path().join("PG_VERSION");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    assert!(text_of(&fifo).is_none() && bytes_at::<1>(&fifo, 0).is_none());
    symlink("/dev/zero", directory.path().join("postmaster.opts")).unwrap();
    assert!(text_of(&directory.path().join("postmaster.opts")).is_none(), "an endless one is not read");
    assert!(postgres::examine(directory.path(), &NOWHERE).is_none());
}
