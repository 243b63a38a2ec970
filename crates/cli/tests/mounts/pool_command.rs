//! What `headpond pool` says to programs, and that `-n` changes nothing.

use std::ffi::{OsStr, OsString};
use std::fs;

use serde_json::Value;

use crate::pond::{Pond, SIZE, Said, pattern, run, write_and_sync};
use crate::several_devices::{mount_over, pool, pool_status};

/// `headpond pool`, with words of which those in `names` stand for files of this pond.
fn ask(pond: &Pond, words: &[&str], names: &[&str], more: &[&str]) -> Said {
    let of = |word: &&str| if names.contains(word) { pond.at(word).into_os_string() } else { OsString::from(word) };
    let words: Vec<OsString> = words.iter().chain(more).map(of).collect();
    let rest: Vec<&OsStr> = words[1..].iter().map(OsString::as_os_str).collect();
    pool(pond, words[0].to_str().unwrap(), &rest)
}

/// The files of the pond with their sizes, and what the pool says of its devices and of changes.
fn as_it_is(pond: &Pond) -> (Vec<(OsString, u64)>, Vec<Value>) {
    let entries = fs::read_dir(pond.at("")).unwrap().map(Result::unwrap);
    let files = entries.filter(|entry| entry.file_type().unwrap().is_file() && entry.file_name() != "log");
    let mut files: Vec<_> = files.map(|entry| (entry.file_name(), entry.metadata().unwrap().len())).collect();
    files.sort();
    let status = pool_status(pond);
    let of_member = ["flash", "state", "size_bytes", "dirty_bytes"];
    let members = status["members"].as_array().unwrap().iter();
    let shown = members.flat_map(|member| of_member.map(|name| member[name].clone()));
    (files, shown.chain(["state", "change", "size_bytes"].map(|name| status[name].clone())).collect())
}

#[test]
fn a_dry_run_of_each_change_says_what_would_happen_and_changes_nothing() {
    let moves = "of dirty data move to the others or to the origin; what is clean is dropped";
    // The words, what would be done, and the effect.
    type Change<'a> = (&'a [&'a str], &'a str, &'a str);
    let of_two: &[Change<'_>] = &[
        (&["remove", "flash2"], "removing flash2", moves),
        (&["replace", "flash2", "new", "--size", SIZE], "replacing flash2 by new", moves),
        (&["shrink", "72M", "--flash", "flash2"], "shrinking flash2 to 72 MiB", "dirty data at its end moves forward"),
        (&["grow", "96M", "--flash", "flash2"], "growing flash2 to 96 MiB", "the pool takes new data there"),
        (&["add", "new", "--size", SIZE], "adding new", "the pool takes new data on it"),
        (&["offline", "flash2"], "taking flash2 offline", "of dirty data have one copy until"),
    ];
    let of_one: &[Change<'_>] = &[
        (&["move", "new", "--size", SIZE], "replacing flash by new", moves),
        (&["shrink", "72M"], "shrinking flash to 72 MiB", "dirty data at its end moves forward"),
    ];
    let names = ["flash", "flash2", "new"];
    for (devices, changes) in [(&names[..2], of_two), (&names[..1], of_one)] {
        let pond = Pond::new();
        mount_over(&pond, devices, &["--size", "80M"]).ok();
        run(["set", pond.mnt().to_str().unwrap(), "flush-period=off", "idle-flush=off", "sequential-cutoff=off"]).ok();
        write_and_sync(&pond.mnt().join("file"), &pattern(1 << 20, 1));
        pool(&pond, "wait", &["--quiet".as_ref()]).ok();
        let before = as_it_is(&pond);
        let root = pond.at("").to_str().unwrap().to_owned();
        for (words, what, effect) in changes {
            let said = ask(&pond, words, &names, &["-n"]).ok().text.replace(&root, "");
            assert!(said.starts_with(&format!("would be {what}: ")), "{words:?}: {said}");
            assert!(said.contains(effect) && said.trim_end().ends_with("Nothing was changed"), "{words:?}: {said}");
            let told = ask(&pond, words, &names, &["-n", "--json"]).ok().json();
            assert_eq!(told["what"].as_str().unwrap().replace(&root, ""), *what, "{words:?}");
            assert!(told["effect"].as_str().unwrap().contains(effect), "{told}");
            assert_eq!(told["dry_run"], true);
            assert_eq!(as_it_is(&pond), before, "{words:?}");
        }
        pond.unmount(&[]).ok();
        assert!(fs::read(pond.origin().join("file")).unwrap() == pattern(1 << 20, 1));
    }
}

#[track_caller]
fn has_fields(object: &Value, names: &[&str]) {
    for name in names {
        assert!(object.get(name).is_some(), "'{name}' is missing in {object}");
    }
}

/// The JSON of a pool has all that is promised of it, and so many devices.
#[track_caller]
fn is_a_pool(shown: &Value, pond: &Pond, devices: usize) {
    has_fields(shown, &["pool", "state", "size_bytes", "peers", "change", "scrub", "actions"]);
    has_fields(shown, &["exposed_bytes", "exposed_bytes_per_second", "exposed_left_seconds"]);
    assert_eq!(
        (&shown["mountpoint"], &shown["redundancy"]),
        (&pond.mnt().to_str().into(), &"mirror".into()),
        "{shown}"
    );
    let members = shown["members"].as_array().unwrap();
    assert_eq!(members.len(), devices, "{shown}");
    for member in members {
        has_fields(member, &["member", "flash", "state", "copies_only", "size_bytes", "reserve_bytes", "used_bytes"]);
        has_fields(member, &["dirty_bytes", "free_bytes", "missed_since", "errors", "sync_seconds"]);
    }
}

#[track_caller]
fn is_done(change: &Value, what: &str) {
    has_fields(change, &["handle", "why", "left_bytes", "total_bytes", "bytes_per_second", "seconds", "left_seconds"]);
    assert!(change["state"] == "done" && change["what"].as_str().unwrap().starts_with(what), "{change}");
}

#[test]
fn what_programs_are_told_of_a_pool_has_its_fields() {
    let pond = Pond::new();
    mount_over(&pond, &["flash", "flash2"], &["--size", SIZE]).ok();
    write_and_sync(&pond.mnt().join("file"), &pattern(1 << 20, 1));
    let waited = ask(&pond, &["wait", "--json"], &[], &[]).ok().json();
    is_a_pool(&waited, &pond, 2);
    assert_eq!((&waited["state"], &waited["exposed_bytes"]), (&"ONLINE".into(), &0.into()), "{waited}");
    // Mounts of other tests are listed, too.
    let listed = run(["pool", "list", "--json"]).ok().json();
    let mut listed = listed.as_array().unwrap().iter();
    let listed = listed.find(|one| one["mountpoint"].as_str() == pond.mnt().to_str()).unwrap();
    is_a_pool(listed, &pond, 2);
    assert_eq!(listed["pool"], waited["pool"]);

    let added = ask(&pond, &["add", "flash3", "--size", SIZE, "--json"], &["flash3"], &[]).ok().json();
    is_a_pool(&added, &pond, 3);
    is_done(&added["change"], "adding ");
    let begun = ask(&pond, &["remove", "flash3", "--background", "--json"], &["flash3"], &[]).ok().json();
    let waited = ask(&pond, &["wait", "--json"], &[], &[]).ok().json();
    is_a_pool(&waited, &pond, 2);
    is_done(&waited["change"], "removing ");
    assert!(begun["handle"].is_u64() && begun["handle"] == waited["change"]["handle"], "{begun}: {waited}");
    pond.unmount(&[]).ok();
}
