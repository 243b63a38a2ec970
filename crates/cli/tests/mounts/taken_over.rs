//! Another host takes the origin over while this mount lives: its lock was lost, as over a network it can be, and the
//! other came with `--discard-dirty`. Who cannot prove that the origin is its own does not write to it (promise 12).

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::pond::{Pond, SIZE, tree, wait_until, write_and_sync};

/// A mount whose origin has "old" and whose pool has "new", and which has just looked that the origin is its own.
fn with_dirty_data() -> Pond {
    let pond = Pond::new();
    pond.mount(&["--size", SIZE]).ok();
    write_and_sync(&pond.mnt().join("file"), b"old");
    pond.flush().ok();
    write_and_sync(&pond.mnt().join("file"), b"new");
    pond
}

/// What another host leaves beside the origin when it takes it over.
fn take_over(origin: &Path) -> Vec<u8> {
    let marker = origin.join(".headpond/marker.json");
    let mut theirs: serde_json::Value = serde_json::from_slice(&fs::read(&marker).unwrap()).unwrap();
    theirs["host"] = "db2".into();
    theirs["pool"] = "99999999-0000".into();
    theirs["claim"]["id"] = "0123456789abcdef0123456789abcdef".into();
    let theirs = serde_json::to_vec(&theirs).unwrap();
    let next = origin.join(".headpond/marker.json.theirs");
    fs::write(&next, &theirs).unwrap();
    fs::rename(&next, &marker).unwrap();
    theirs
}

fn kill(pid: u64, signal: &str) {
    assert!(Command::new("kill").args([signal, &pid.to_string()]).status().unwrap().success());
}

/// Nothing gets to the origin any more, and the mount can be left without touching what is the new owner's.
fn is_out(pond: &Pond, theirs: &[u8]) {
    let origin = tree(&pond.origin());
    pond.flush().refused(72, &["no longer this mount's", "db2", "unmount", "--keep-dirty"]);
    let file = fs::OpenOptions::new().write(true).open(pond.mnt().join("file")).unwrap();
    let barred = Some(EROFS);
    let written = std::os::unix::fs::FileExt::write_all_at(&file, b"later", 0);
    assert_eq!(written.unwrap_err().raw_os_error(), barred, "what could never get to the origin is not taken in");
    drop(file);
    let mnt = pond.mnt();
    for refused in [
        fs::write(mnt.join("another"), b"x"),
        fs::create_dir(mnt.join("directory")),
        fs::rename(mnt.join("file"), mnt.join("renamed")),
        fs::remove_file(mnt.join("file")),
        fs::hard_link(mnt.join("file"), mnt.join("link")),
        fs::set_permissions(mnt.join("file"), std::os::unix::fs::PermissionsExt::from_mode(0o600)),
    ] {
        assert_eq!(refused.unwrap_err().raw_os_error(), barred);
    }
    assert_eq!(fs::read(mnt.join("file")).unwrap(), b"new", "what is dirty can still be read");
    let shown = crate::pond::run([std::ffi::OsStr::new("status"), mnt.as_os_str()]);
    shown.refused(0, &["LOST", "db2"]);
    crate::pond::run([std::ffi::OsStr::new("stats"), mnt.as_os_str()]).refused(0, &["\nclaim_lost 1\n"]);
    pond.unmount(&[]).refused(72, &["no longer this mount's"]);
    pond.unmount(&["--keep-dirty"]).refused(0, &["stay in the pool", "no longer this mount's"]);
    assert_eq!(tree(&pond.origin()), origin, "nothing at the origin was touched");
    assert_eq!(fs::read(pond.origin().join("file")).unwrap(), b"old");
    assert_eq!(fs::read(pond.origin().join(".headpond/marker.json")).unwrap(), theirs);
    assert!(pond.origin().join(".headpond/lock").exists(), "the lock's file is the new owner's");
    // No mount goes on with that pool by accident.
    pond.mount(&[]).refused(12, &["another pool"]);
}

/// Read-only file system.
const EROFS: i32 = 30;

#[test]
fn a_mount_whose_origin_was_taken_over_finds_out_and_writes_nothing_any_more() {
    let pond = with_dirty_data();
    let theirs = take_over(&pond.origin());
    wait_until("the loss is known", || pond.status()["claim_lost"].as_str().is_some_and(|lost| lost.contains("db2")));
    wait_until("the log has it", || pond.log().contains("no longer this mount's"));
    is_out(&pond, &theirs);
}

#[test]
fn a_daemon_that_was_stopped_for_longer_than_its_last_look_is_good_for_looks_before_it_writes() {
    let pond = with_dirty_data();
    let pid = pond.status()["pid"].as_u64().unwrap();
    kill(pid, "-STOP");
    let theirs = take_over(&pond.origin());
    // As a machine that was asleep, or starved. Longer than the interval between two looks.
    std::thread::sleep(Duration::from_millis(5200));
    kill(pid, "-CONT");
    is_out(&pond, &theirs);
}

#[test]
fn a_marker_that_is_gone_is_a_loss_and_leaving_makes_none_anew() {
    let pond = with_dirty_data();
    fs::remove_file(pond.origin().join(".headpond/marker.json")).unwrap();
    wait_until("the loss is known", || {
        pond.status()["claim_lost"].as_str().is_some_and(|lost| lost.contains("removed"))
    });
    pond.unmount(&["--keep-dirty"]).refused(0, &["stay in the pool", "no longer this mount's"]);
    assert!(pond.marker().is_none());
    assert_eq!(fs::read(pond.origin().join("file")).unwrap(), b"old");
}
