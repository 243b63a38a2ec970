//! One file has one cache: an origin that lies in another one, under whatever name, is not served by two pools.

use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;
use std::process::Command;

use crate::lacking::has_root;
use crate::loop_device::run as run_command;
use crate::pond::{Pond, SIZE, run, wait_until, write_and_sync};

/// A directory that is seen at another place too.
struct Bind(PathBuf);

impl Bind {
    fn new(pond: &Pond, from: &str, to: &str) -> Self {
        fs::create_dir_all(pond.at(to)).unwrap();
        run_command(Command::new("mount").arg("--bind").arg(pond.at(from)).arg(pond.at(to)));
        Self(pond.at(to))
    }
}

impl Drop for Bind {
    fn drop(&mut self) {
        run_command(Command::new("umount").arg("--lazy").arg(&self.0));
    }
}

fn unmount(pond: &Pond, mnt: &str, more: &[&str]) {
    let mnt = pond.at(mnt);
    run([OsStr::new("unmount"), mnt.as_os_str()].into_iter().chain(more.iter().map(OsStr::new))).ok();
}

#[test]
fn an_origin_above_or_below_one_that_is_mounted_is_refused_whatever_its_name() {
    let pond = Pond::new();
    for slow in ["slow", "with,comma", "with space\nand \\134 more%2C", "d\u{e4}ta"] {
        let (whole, part) = (slow.to_owned(), format!("{slow}/db"));
        fs::create_dir_all(pond.at(&part)).unwrap();
        for (first, second, says) in [(&part, &whole, "contains"), (&whole, &part, "lies in")] {
            pond.mount_places(first, "mnt", "flash", &["--size", SIZE]).ok();
            let refused = pond.mount_places(second, "mnt2", "flash2", &["--size", SIZE]);
            refused.refused(11, &[says, pond.at(first).to_str().unwrap(), pond.mnt().to_str().unwrap()]);
            assert!(!pond.at("flash2").exists());
            unmount(&pond, "mnt", &[]);
        }
    }
}

#[test]
fn an_origin_that_a_bind_mount_shows_under_another_name_is_refused() {
    if !has_root("for bind mounts") {
        return;
    }
    let pond = Pond::new();
    fs::create_dir_all(pond.at("slow/db/deep")).unwrap();
    let _alias = Bind::new(&pond, "slow", "alias");
    let _part = Bind::new(&pond, "slow/db", "part,1");
    for (first, second, says) in [
        ("slow/db", "alias", "contains"),
        ("alias", "slow/db", "lies in"),
        ("part,1", "slow", "contains"),
        ("slow", "part,1", "lies in"),
        ("alias", "part,1/deep", "lies in"),
        ("part,1", "slow/db", "already mounted"),
    ] {
        pond.mount_places(first, "mnt", "flash", &["--size", SIZE]).ok();
        let refused = pond.mount_places(second, "mnt2", "flash2", &["--size", SIZE]);
        refused.refused(11, &[says, pond.mnt().to_str().unwrap()]);
        unmount(&pond, "mnt", &[]);
    }
    // Left with dirty data, and seen only by way of another mount of the file system.
    pond.mount_places("slow", "mnt", "flash", &[]).ok();
    write_and_sync(&pond.mnt().join("db/x"), b"newer");
    unmount(&pond, "mnt", &["--keep-dirty"]);
    let refused = pond.mount_places("part,1", "mnt2", "flash2", &["--size", SIZE]);
    refused.refused(12, &["lies in", "left with dirty data", pond.flash().to_str().unwrap(), "headpond mount"]);
    pond.mount_places("slow", "mnt", "flash", &[]).ok();
    unmount(&pond, "mnt", &[]);
    pond.mount_places("part,1", "mnt2", "flash2", &["--size", SIZE]).ok();
    assert_eq!(fs::read(pond.at("mnt2/x")).unwrap(), b"newer");
    unmount(&pond, "mnt2", &[]);
}

#[test]
fn an_origin_below_that_was_left_with_dirty_data_is_not_entered() {
    let pond = Pond::new();
    fs::create_dir_all(pond.at("slow/a/db")).unwrap();
    fs::write(pond.at("slow/a/db/x"), "hello").unwrap();
    fs::write(pond.at("slow/a/y"), "beside").unwrap();
    pond.mount_places("slow/a/db", "mnt", "flash", &["--size", SIZE]).ok();
    write_and_sync(&pond.mnt().join("x"), b"newer");
    unmount(&pond, "mnt", &["--keep-dirty"]);

    pond.mount_places("slow", "mnt2", "flash2", &["--size", SIZE]).ok();
    let mnt = pond.at("mnt2");
    assert_eq!(fs::read(mnt.join("a/y")).unwrap(), b"beside");
    for _ in 0..2 {
        let refused = fs::read(mnt.join("a/db/x")).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ResourceBusy, "stale data is not served");
    }
    assert_eq!(fs::metadata(mnt.join("a/db")).unwrap_err().kind(), ErrorKind::ResourceBusy);
    assert!(fs::remove_dir_all(mnt.join("a")).is_err());
    assert!(fs::rename(mnt.join("a/db"), mnt.join("moved")).is_err());
    assert!(fs::remove_file(mnt.join("a/db/.headpond/marker.json")).is_err());
    assert!(pond.at("slow/a/db/.headpond/marker.json").exists());
    let status = run([OsStr::new("status"), mnt.as_os_str(), OsStr::new("--json")]).ok().text.clone();
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    assert_eq!(status["nested_origins"], serde_json::json!(["a/db"]));
    let shown = run([OsStr::new("status"), mnt.as_os_str()]).ok().text.clone();
    assert!(shown.contains("a/db: the origin of another headpond"), "{shown}");
    wait_until("the log tells", || pond.log().contains("a/db is the origin of another headpond"));
    unmount(&pond, "mnt2", &[]);

    pond.mount_places("slow/a/db", "mnt", "flash", &[]).ok();
    assert_eq!(fs::read(pond.mnt().join("x")).unwrap(), b"newer");
    unmount(&pond, "mnt", &[]);
    pond.mount_places("slow", "mnt2", "flash2", &[]).ok();
    assert_eq!(fs::read(mnt.join("a/db/x")).unwrap(), b"newer", "a complete one is as any directory");
    unmount(&pond, "mnt2", &[]);
}

/// A directory that a program has open becomes an origin, from another host: its marker is out of reach all the same.
#[test]
fn the_marker_of_a_directory_that_became_an_origin_meanwhile_cannot_be_touched() {
    let pond = Pond::new();
    pond.mount(&["--size", SIZE]).ok();
    fs::create_dir(pond.mnt().join("db")).unwrap();
    let held = fs::File::open(pond.mnt().join("db")).unwrap();
    let ours = pond.origin().join("db/.headpond");
    fs::create_dir(&ours).unwrap();
    fs::write(ours.join("marker.json"), "{}").unwrap();
    let below = format!("/proc/self/fd/{}/.headpond", std::os::fd::AsRawFd::as_raw_fd(&held));
    assert_eq!(fs::remove_file(format!("{below}/marker.json")).unwrap_err().kind(), ErrorKind::ResourceBusy);
    assert_eq!(fs::rename(&below, pond.mnt().join("moved")).unwrap_err().kind(), ErrorKind::ResourceBusy);
    assert!(ours.join("marker.json").exists());
    drop(held);
    pond.unmount(&[]).ok();
}

#[test]
fn nobody_closes_a_directory_of_everybody_with_a_marker_of_his_own() {
    if !has_root("to be several users") {
        return;
    }
    let pond = Pond::new();
    for (dir, mode) in [("shared", 0o1777), ("own", 0o755)] {
        let ours = pond.origin().join(dir).join(".headpond");
        fs::create_dir_all(&ours).unwrap();
        fs::write(ours.join("marker.json"), "{}").unwrap();
        fs::write(pond.origin().join(dir).join("file"), "x").unwrap();
        for path in [&ours, &ours.join("marker.json")] {
            chown(path, Some(1234), None).unwrap();
        }
        fs::set_permissions(pond.origin().join(dir), fs::Permissions::from_mode(mode)).unwrap();
    }
    pond.mount(&["--size", SIZE]).ok();
    assert_eq!(fs::read(pond.mnt().join("shared/file")).unwrap(), b"x");
    assert!(fs::read(pond.mnt().join("own/file")).is_err());
    pond.unmount(&[]).ok();
    // The same for an origin that lies below it.
    fs::create_dir(pond.origin().join("shared/db")).unwrap();
    fs::create_dir(pond.origin().join("own/db")).unwrap();
    pond.mount_places("origin/own/db", "mnt", "flash2", &["--size", SIZE]).refused(13, &["lies in", "rm -r"]);
    pond.mount_places("origin/shared/db", "mnt", "flash2", &["--size", SIZE]).ok();
    pond.unmount(&[]).ok();
}

/// A pool that syncs a file of its own mount waits for itself.
#[test]
fn another_flash_is_not_taken_from_the_mount_or_the_origin_by_another_name() {
    if !has_root("for bind mounts") {
        return;
    }
    let pond = Pond::new();
    fs::create_dir(pond.origin().join("deep")).unwrap();
    pond.mount(&["--size", SIZE]).ok();
    let _mount = Bind::new(&pond, "mnt/deep", "alias");
    let _origin = Bind::new(&pond, "origin/deep", "elsewhere");
    for (flash, says) in [("alias/flash", "inside the mount point"), ("elsewhere/flash", "inside the origin")] {
        let (mnt, flash) = (pond.mnt(), pond.at(flash));
        let words: [&OsStr; 6] =
            ["pool".as_ref(), "add".as_ref(), mnt.as_ref(), flash.as_ref(), "--size".as_ref(), SIZE.as_ref()];
        run(words).refused(23, &[says]);
        assert!(!flash.exists());
    }
    pond.unmount(&[]).ok();
}

/// As on a file system that does not tell capital letters from others: here a second name by other means.
#[test]
fn the_marker_is_not_reached_by_another_name_that_the_origin_takes_for_its_own() {
    if !has_root("for bind mounts") {
        return;
    }
    let pond = Pond::new();
    fs::create_dir(pond.origin().join(".headpond")).unwrap();
    let _names = [".HEADPOND", ".Headpond"].map(|name| Bind::new(&pond, "origin/.headpond", &format!("origin/{name}")));
    pond.mount(&["--size", SIZE]).ok();
    for name in [".HEADPOND", ".Headpond"] {
        let marker = pond.mnt().join(name).join("marker.json");
        assert_eq!(fs::read(&marker).unwrap_err().kind(), ErrorKind::NotFound, "{name}");
        assert_eq!(fs::remove_file(&marker).unwrap_err().kind(), ErrorKind::NotFound, "{name}");
    }
    assert!(pond.marker().is_some());
    assert!(pond.mnt().join(".headpond/stats").exists(), "the numbers are there as ever");
    pond.unmount(&[]).ok();
}

#[test]
fn a_flash_inside_the_origin_is_refused_under_any_name() {
    if !has_root("for bind mounts") {
        return;
    }
    let pond = Pond::new();
    fs::create_dir_all(pond.origin().join("deep/er")).unwrap();
    let _part = Bind::new(&pond, "origin/deep", "elsewhere");
    for flash in ["elsewhere/flash", "elsewhere/er/flash"] {
        pond.mount_places("origin", "mnt", flash, &["--size", SIZE]).refused(23, &["inside the origin"]);
        assert!(!pond.at(flash).exists());
    }
}
