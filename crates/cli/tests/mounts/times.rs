//! The status change time that programs see: it moves when they change a file, and not when headpond writes it to the
//! origin.

use std::fs::{self, File, OpenOptions, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use crate::pond::{Pond, SIZE, pattern, write_and_sync};

type Time = (i64, i64);

fn ctime(path: &Path) -> Time {
    let found = fs::metadata(path).unwrap();
    (found.ctime(), found.ctime_nsec())
}

fn overwrite(path: &Path) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(b"in the middle", 5_000).unwrap();
    file.sync_all().unwrap();
}

fn ctimes(directory: &Path, names: &[&str]) -> Vec<Time> {
    names.iter().map(|name| ctime(&directory.join(name))).collect()
}

/// Files that were changed in each way, with something of each in the pool.
fn changed(pond: &Pond) -> [&'static str; 5] {
    let names = ["written", "overwritten", "with-mode", "dated", "cut"];
    let mnt = pond.mnt();
    for name in names {
        let path = mnt.join(name);
        if name == "written" {
            write_and_sync(&path, &pattern(50_000, 1));
        } else {
            overwrite(&path);
        }
    }
    fs::set_permissions(mnt.join("with-mode"), Permissions::from_mode(0o640)).unwrap();
    let dated = OpenOptions::new().write(true).open(mnt.join("dated")).unwrap();
    dated.set_modified(UNIX_EPOCH + Duration::from_secs(1_000_000)).unwrap();
    OpenOptions::new().write(true).open(mnt.join("cut")).unwrap().set_len(20_000).unwrap();
    File::open(mnt.join("cut")).unwrap().sync_all().unwrap();
    names
}

fn with_files() -> Pond {
    let pond = Pond::new();
    for name in ["overwritten", "with-mode", "dated", "cut"] {
        write_and_sync(&pond.origin().join(name), &pattern(50_000, 2));
    }
    pond
}

#[test]
fn the_status_change_time_is_the_same_after_a_remount_until_a_program_changes_the_file() {
    let pond = with_files();
    pond.mount(&["--size", SIZE]).ok();
    let names = changed(&pond);
    let seen = ctimes(&pond.mnt(), &names);
    pond.unmount(&[]).ok();
    let at_origin = ctimes(&pond.origin(), &names);
    assert_ne!(at_origin, seen, "headpond has written there since");

    pond.mount(&[]).ok();
    assert_eq!(ctimes(&pond.mnt(), &names), seen, "of files that nobody has opened");
    for name in names {
        fs::read(pond.mnt().join(name)).unwrap();
    }
    assert_eq!(ctimes(&pond.mnt(), &names), seen);
    pond.unmount(&[]).ok();
    assert_eq!(ctimes(&pond.origin(), &names), at_origin, "nothing was written there");

    // Others change one of them, before a mount and while it is there.
    fs::set_permissions(pond.origin().join("written"), Permissions::from_mode(0o600)).unwrap();
    pond.mount(&[]).ok();
    let others = ctime(&pond.origin().join("written"));
    assert_eq!(ctime(&pond.mnt().join("written")), others);
    fs::set_permissions(pond.origin().join("overwritten"), Permissions::from_mode(0o600)).unwrap();
    let others = ctime(&pond.origin().join("overwritten"));
    fs::set_permissions(pond.mnt().join("with-mode"), Permissions::from_mode(0o600)).unwrap();
    let own = ctime(&pond.mnt().join("with-mode"));
    assert!(own > seen[2]);
    pond.unmount(&[]).ok();
    pond.mount(&[]).ok();
    assert_eq!(ctime(&pond.mnt().join("overwritten")), others);
    assert_eq!(ctime(&pond.mnt().join("with-mode")), own);
    assert_eq!(ctime(&pond.mnt().join("cut")), seen[4]);
    pond.unmount(&[]).ok();
}

#[test]
fn the_status_change_time_is_the_same_after_the_pool_was_left_dirty() {
    let pond = with_files();
    pond.mount(&["--size", SIZE]).ok();
    let names = changed(&pond);
    let seen = ctimes(&pond.mnt(), &names);
    pond.unmount(&["--keep-dirty"]).ok();
    pond.mount(&[]).ok();
    assert_eq!(ctimes(&pond.mnt(), &names), seen);
    pond.flush().ok();
    assert_eq!(ctimes(&pond.mnt(), &names), seen);
    pond.unmount(&[]).ok();
    pond.mount(&[]).ok();
    assert_eq!(ctimes(&pond.mnt(), &names), seen);
    pond.unmount(&[]).ok();
}

#[test]
fn the_status_change_time_is_the_same_after_a_kill_when_nothing_was_under_way() {
    let mut pond = with_files();
    let daemon = pond.mount_foreground(&["--size", SIZE]);
    let path = pond.mnt().join("overwritten");
    overwrite(&path);
    let seen = ctime(&path);
    assert!(seen > ctime(&pond.origin().join("overwritten")));
    pond.kill(daemon);
    pond.mount(&[]).ok();
    assert_eq!(ctime(&path), seen);
    pond.flush().ok();
    pond.unmount(&[]).ok();
    pond.mount(&[]).ok();
    assert_eq!(ctime(&path), seen);
    pond.unmount(&[]).ok();
}
