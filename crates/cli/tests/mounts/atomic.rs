//! `headpond atomic`: the marker that MariaDB looks for, made and removed only by this command; and `headpond doctor`
//! on a real mount.

use std::fs;
use std::path::Path;

use crate::pond::{Pond, SIZE, Said, run};

fn atomic(root: &Path, words: &[&str]) -> Said {
    run(["atomic", "--root", root.to_str().unwrap()].iter().chain(words))
}

fn root() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for directory in ["dev", "etc/tmpfiles.d"] {
        fs::create_dir_all(root.path().join(directory)).unwrap();
    }
    root
}

/// All files below, with what they hold.
fn all(root: &Path) -> Vec<(String, String)> {
    ["dev", "etc/tmpfiles.d"]
        .iter()
        .flat_map(|directory| fs::read_dir(root.join(directory)).unwrap())
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.display().to_string(), fs::read_to_string(&path).unwrap()))
        .collect()
}

#[test]
fn the_marker_comes_and_goes_with_the_command_and_nothing_else_does() {
    let root = root();
    let root = root.path();
    atomic(root, &["status"]).ok().refused(0, &["missing: MariaDB writes each page twice"]);
    assert!(all(root).is_empty(), "asking makes nothing");
    atomic(root, &["disable"]).ok().refused(0, &["nothing to remove"]);
    atomic(root, &["enable"])
        .ok()
        .refused(0, &["Innodb_dblwr_pages_written", "headpond atomic disable", "gone after a reboot"]);
    atomic(root, &["enable"]).ok().refused(0, &["exists already"]);
    assert_eq!(all(root).len(), 1);
    atomic(root, &["status"]).ok().refused(0, &["made by headpond, until"]);
    atomic(root, &["enable", "--at-boot"]).ok();
    let line = fs::read_to_string(root.join("etc/tmpfiles.d/headpond-atomic.conf")).unwrap();
    assert!(line.starts_with("f /dev/fcta 0444 root root - ") && line.lines().count() == 1, "{line}");
    let made = fs::read_to_string(root.join("dev/fcta")).unwrap();
    assert!(line.ends_with(&format!("{made}\n")), "what is made at boot is known as ours, too");
    let status = atomic(root, &["status", "--json"]).ok().json();
    assert_eq!((&status["marker"], &status["at_boot"]), (&"ours".into(), &"ours".into()));
    atomic(root, &["disable"]).ok();
    assert!(all(root).is_empty());
}

#[test]
fn what_headpond_did_not_make_stays_as_it_is() {
    for (file, other) in [("dev/fcta", "dev/none"), ("etc/tmpfiles.d/headpond-atomic.conf", "dev/fcta")] {
        let root = root();
        let root = root.path();
        fs::write(root.join(file), "somebody else's").unwrap();
        let before = all(root);
        atomic(root, &["enable", "--at-boot"]).refused(2, &["headpond did not make it", "Nothing was changed"]);
        atomic(root, &["disable"]).refused(2, &["headpond did not make it"]);
        assert_eq!(all(root), before);
        assert!(!root.join(other).exists());
    }
    // A device is not even opened: this one would never answer.
    let root = root();
    let status = std::process::Command::new("mkfifo").arg(root.path().join("dev/fcta")).status().unwrap();
    assert!(status.success());
    atomic(root.path(), &["enable"]).refused(2, &["headpond did not make it"]);
}

/// The names of findings.
fn told(findings: &serde_json::Value) -> Vec<&str> {
    findings.as_array().unwrap().iter().map(|finding| finding["name"].as_str().unwrap()).collect()
}

#[test]
fn the_doctor_tells_of_a_mount_what_it_keeps_and_what_lies_on_it() {
    let pond = Pond::new();
    let mut database = vec![0; 4096];
    database[..16].copy_from_slice(b"SQLite format 3\0");
    database[16..20].copy_from_slice(&[16, 0, 1, 1]);
    fs::write(pond.origin().join("app.db"), database).unwrap();
    pond.mount(&["--size", SIZE]).ok();
    let mnt = pond.mnt();
    let doctor = |path: &Path| run(["doctor".as_ref(), path.as_os_str(), "--json".as_ref()]).ok().text.clone();
    let report: serde_json::Value = serde_json::from_str(&doctor(&mnt)).unwrap();
    assert_eq!((&report["mount"]["mode"], &report["mount"]["whole_writes"]), (&"write-back".into(), &true.into()));
    assert_eq!(report["databases"][0]["database"], "SQLite");
    assert_eq!(told(&report["host"]), ["FUSE", "kernel", "request size", "clock", "descriptors"]);
    assert_eq!(told(&report["places"]), ["flash", "spare", "disks", "origin", "memory"]);
    assert!(report["places"][3]["what"].as_str().unwrap().starts_with(pond.origin().to_str().unwrap()), "{report}");
    assert_eq!(report["databases"][0]["page_bytes"], 4096);
    run(["set", mnt.to_str().unwrap(), "mode=write-through"]).ok();
    let report: serde_json::Value = serde_json::from_str(&doctor(&mnt.join("app.db"))).unwrap();
    assert_eq!(report["mount"]["whole_writes"], false);
    assert_eq!(report["databases"][0]["conditions"][0]["met"], false);
    let report: serde_json::Value = serde_json::from_str(&doctor(&pond.origin())).unwrap();
    assert_eq!((&report["mount"], &report["places"]), (&serde_json::Value::Null, &serde_json::Value::Null));
    let places = ["doctor".into(), pond.origin().into_os_string(), "--flash".into(), pond.flash().into_os_string()];
    let said = run(places);
    // A file of the pool beside the origin: one disk, if the kernel names one.
    said.ok().refused(0, &["this host", "/dev/fuse opens", "origin and flash", "the map of the full pool"]);
    run(["doctor", "--flash", "pond"]).refused(2, &["DATADIR"]);
    let second = pond.at("flash2");
    let two = [pond.flash(), second.clone()].map(|flash| ["--flash".into(), flash.into_os_string()]);
    let several = ["doctor".into(), pond.origin().into_os_string(), "--json".into()];
    let before = run(several.into_iter().chain(two.into_iter().flatten())).ok().json();
    let of_both = ["flash", "spare", "flash", "spare", "disks", "copies", "origin", "memory"];
    assert_eq!(told(&before["places"]), of_both);
    run(["pool".as_ref(), "add".as_ref(), mnt.as_os_str(), second.as_os_str(), "--size".as_ref(), SIZE.as_ref()]).ok();
    let report: serde_json::Value = serde_json::from_str(&doctor(&mnt)).unwrap();
    assert_eq!(told(&report["places"]), of_both, "a mount names all of its devices");
    // Whether the kernel names their disk depends on the machine; that it is one, it never denies.
    assert_ne!(report["places"][5]["met"], true, "{report}");
    run(["doctor".as_ref(), mnt.as_os_str()]).ok().refused(0, &["writes can tear", "[NO]"]);
    pond.unmount(&[]).ok();
}
