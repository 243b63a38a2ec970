//! Promise 12 on a real mount: a pool of two devices outlives either, and no start believes one that was left behind.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::pond::{Pond, SIZE, Said, pattern, run, wait_until, write_and_sync};

/// `headpond mount` over these flashes, by name.
pub fn mount_over(pond: &Pond, flashes: &[&str], more: &[&str]) -> Said {
    let (first, others) = flashes.split_first().unwrap();
    let mut arguments: Vec<String> = Vec::new();
    for flash in others {
        arguments.extend(["--flash".to_owned(), pond.at(flash).to_str().unwrap().to_owned()]);
    }
    arguments.extend(more.iter().map(|word| (*word).to_owned()));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    pond.mount_places("origin", "mnt", first, &arguments)
}

/// `headpond pool`.
pub fn pool(pond: &Pond, command: &str, more: &[&OsStr]) -> Said {
    let arguments = [OsStr::new("pool"), OsStr::new(command), pond.mnt().as_os_str()].map(OsString::from);
    run(arguments.into_iter().chain(more.iter().map(OsString::from)))
}

pub fn pool_status(pond: &Pond) -> serde_json::Value {
    pool(pond, "status", &["--json".as_ref()]).ok().json()
}

pub fn fault(pond: &Pond, flash: &str, faults: &str) {
    let (mnt, flash) = (pond.mnt(), pond.at(flash));
    run(["fault".as_ref(), mnt.as_os_str(), faults.as_ref(), "--flash".as_ref(), flash.as_os_str()]).ok();
}

/// The pool says of a lost device which it is, since when it is missed, and what to do.
#[track_caller]
pub fn is_named_as_lost(pond: &Pond, name: &str, state: &str) {
    let status = pool_status(pond);
    let flash = pond.at(name);
    let flash = flash.to_str().unwrap();
    let members = status["members"].as_array().unwrap();
    let lost = members.iter().find(|member| member["flash"] == flash).unwrap_or_else(|| panic!("{status}"));
    assert_eq!((&status["state"], &lost["state"]), (&"DEGRADED".into(), &state.into()), "{status}");
    let since = lost["missed_since"].as_str().unwrap();
    assert!(since.starts_with("20") && since.ends_with('Z'), "{status}");
    let action = status["actions"][0].as_str().unwrap();
    assert!(action.contains(flash) && action.contains(since), "{action}");
    assert_eq!(pond.status()["pool_state"], "DEGRADED", "{}", pond.status());
    run(["stats".as_ref(), pond.mnt().as_os_str()])
        .refused(0, &[if state == "OFFLINE" { "lost_devices 0" } else { "lost_devices 1" }]);
}

/// Writes and syncs blocks of one file, and reads each back, until `end` is set. Returns what the file holds then.
pub fn write_and_verify(path: &std::path::Path, end: &AtomicBool) -> Vec<u8> {
    const BLOCKS: usize = 512;
    let mut holds = pattern(BLOCKS * 4096, 1);
    write_and_sync(path, &holds);
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut round = 2;
    while !end.load(Ordering::SeqCst) {
        let at = (round as usize * 7919) % BLOCKS * 4096;
        let bytes = pattern(4096, round);
        file.write_all_at(&bytes, at as u64).unwrap();
        if round % 3 == 0 {
            file.sync_all().unwrap();
        }
        holds[at..at + 4096].copy_from_slice(&bytes);
        let other = (round as usize * 104_729) % BLOCKS * 4096;
        let mut read = vec![0; 4096];
        file.read_exact_at(&mut read, other as u64).unwrap();
        assert!(read == holds[other..other + 4096], "block {} in round {round}", other / 4096);
        round += 1;
    }
    file.sync_all().unwrap();
    holds
}

/// Ends a writer also where a test fails.
pub struct EndAtLast<'a>(pub &'a AtomicBool);

impl Drop for EndAtLast<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn one_of_two_devices_fails_under_load_and_no_program_sees_it() {
    for failure in ["write-errors=0", "sync-errors=0", "cut"] {
        let pond = Pond::new();
        mount_over(&pond, &["flash", "flash2"], &["--size", SIZE, "--test-fault", "none"]).ok();
        assert_eq!(pool_status(&pond)["state"], "ONLINE");
        let (end, path) = (AtomicBool::new(false), pond.mnt().join("file"));
        let holds = std::thread::scope(|scope| {
            let writer = scope.spawn(|| write_and_verify(&path, &end));
            let at_last = EndAtLast(&end);
            wait_until("it is written", || pool_status(&pond)["members"][1]["dirty_bytes"].as_u64() > Some(0));
            fault(&pond, "flash2", failure);
            wait_until("the pool goes on without it", || pool_status(&pond)["members"][1]["state"] == "FAULTED");
            let synced = pond.mnt().join("after");
            write_and_sync(&synced, b"with one device");
            drop(at_last);
            writer.join().unwrap()
        });
        let status = pool_status(&pond);
        assert_eq!(status["state"], "DEGRADED", "{failure}");
        let action = status["actions"][0].as_str().unwrap();
        assert!(action.contains("flash2") && action.contains("headpond pool add"), "{failure}: {action}");
        run(["status".as_ref(), pond.mnt().as_os_str()]).refused(0, &["DEGRADED", "headpond pool status"]);
        assert_eq!(pond.status()["flash_failed"], false, "{failure}");
        assert!(fs::read(&path).unwrap() == holds, "{failure}");
        pond.flush().ok();
        assert_eq!(pool_status(&pond)["exposed_bytes"], 0, "{failure}: the origin is a second place");
        pond.unmount(&[]).ok();
        assert!(fs::read(pond.origin().join("file")).unwrap() == holds, "{failure}");
    }
}

#[test]
fn a_device_that_vanishes_while_nothing_is_written_is_found_lost() {
    let pond = Pond::new();
    mount_over(&pond, &["flash", "flash2"], &["--size", SIZE, "--test-fault", "none"]).ok();
    write_and_sync(&pond.mnt().join("file"), &pattern(1 << 20, 1));
    pond.flush().ok();
    fault(&pond, "flash2", "cut");
    wait_until("it is lost", || pool_status(&pond)["members"][1]["state"] == "FAULTED");
    assert!(fs::read(pond.mnt().join("file")).unwrap() == pattern(1 << 20, 1));
    pond.unmount(&[]).ok();
}

#[test]
fn a_device_that_is_much_slower_than_the_other_is_named() {
    let pond = Pond::new();
    mount_over(&pond, &["flash", "flash2"], &["--size", SIZE, "--test-fault", "none"]).ok();
    let path = pond.mnt().join("file");
    write_and_sync(&path, &pattern(1 << 20, 1));
    assert_eq!(pool_status(&pond)["actions"].as_array().unwrap().len(), 0, "{}", pool_status(&pond));
    fault(&pond, "flash2", "delay=200");
    wait_until("the slow device is named", || {
        write_and_sync(&path, &pattern(4096, 2));
        let status = pool_status(&pond);
        status["actions"][0]
            .as_str()
            .is_some_and(|action| action.contains("flash2 takes") && action.contains("replace"))
    });
    let status = pool_status(&pond);
    let sync = |member: usize| status["members"][member]["sync_seconds"].as_f64().unwrap();
    assert!(sync(1) > 8.0 * sync(0), "{status}");
    assert_eq!(status["state"], "ONLINE", "nothing is lost");
    fault(&pond, "flash2", "heal");
    pond.unmount(&[]).ok();
}

#[test]
fn a_pool_starts_without_a_device_loudly_and_does_not_believe_it_when_it_comes_back() {
    let mut pond = Pond::new();
    let path = pond.mnt().join("file");
    mount_over(&pond, &["flash", "flash2"], &["--size", SIZE]).ok();
    write_and_sync(&path, &pattern(3 << 20, 1));
    pond.unmount(&["--keep-dirty"]).ok();
    fs::rename(pond.at("flash2"), pond.at("aside")).unwrap();
    // The same command again, with its size: the missing file is not made anew.
    mount_over(&pond, &["flash", "flash2"], &["--size", SIZE]).refused(0, &["DEGRADED", "is missing", "pool add"]);
    assert!(!pond.at("flash2").exists());
    assert_eq!(pool_status(&pond)["state"], "DEGRADED");
    assert_eq!(pool_status(&pond)["members"][1]["state"], "UNAVAIL");
    assert!(fs::read(&path).unwrap() == pattern(3 << 20, 1));
    pond.unmount(&["--keep-dirty"]).ok();
    let daemon = pond.mount_foreground(&[]);
    write_and_sync(&path, &pattern(3 << 20, 2));
    pond.kill(daemon);

    fs::rename(pond.at("aside"), pond.at("flash2")).unwrap();
    pond.mount_places("origin", "mnt", "flash2", &[]).refused(43, &["not all of the pool", "Nothing was written"]);
    mount_over(&pond, &["flash", "flash2"], &[]).refused(0, &["no member", "pool add"]);
    assert!(fs::read(&path).unwrap() == pattern(3 << 20, 2), "the old one is not believed");
    pool(&pond, "add", &[pond.at("flash2").as_os_str()]).ok();
    pool(&pond, "wait", &["-q".as_ref()]).ok();
    assert_eq!(pool_status(&pond)["state"], "ONLINE");
    pond.unmount(&[]).ok();
    assert!(fs::read(pond.origin().join("file")).unwrap() == pattern(3 << 20, 2));
}

#[test]
fn without_redundancy_a_pool_does_not_start_without_a_device_that_has_dirty_data() {
    let pond = Pond::new();
    mount_over(&pond, &["flash", "flash2"], &["--size", SIZE, "--redundancy", "none"]).ok();
    assert_eq!(pool_status(&pond)["redundancy"], "none");
    for file in 0..12 {
        write_and_sync(&pond.mnt().join(format!("f{file}")), &pattern(1 << 20, file));
    }
    let status = pool_status(&pond);
    assert!(status["members"].as_array().unwrap().iter().all(|one| one["dirty_bytes"].as_u64() > Some(0)), "{status}");
    pond.unmount(&["--keep-dirty"]).ok();
    for alone in ["flash", "flash2"] {
        pond.mount_places("origin", "mnt", alone, &[])
            .refused(43, &["is missing", "dirty data", "Nothing was written"]);
    }
    mount_over(&pond, &["flash2", "flash"], &[]).ok();
    pond.unmount(&[]).ok();
    for file in 0..12 {
        assert!(fs::read(pond.origin().join(format!("f{file}"))).unwrap() == pattern(1 << 20, file), "f{file}");
    }
}

#[test]
fn devices_that_are_not_one_pool_are_refused_by_name() {
    let pond = Pond::new();
    mount_over(&pond, &["flash", "flash2"], &["--size", SIZE]).ok();
    pond.unmount(&[]).ok();
    pond.mount_places("origin", "mnt", "other1", &["--size", SIZE]).ok();
    pond.unmount(&[]).ok();
    mount_over(&pond, &["flash", "flash2", "other1"], &[]).refused(44, &["another pool"]);
    fs::copy(pond.at("flash"), pond.at("copy")).unwrap();
    mount_over(&pond, &["flash", "flash2", "copy"], &[]).refused(44, &["copy"]);
    File::create(pond.at("new")).unwrap().set_len(64 << 20).unwrap();
    mount_over(&pond, &["flash", "flash2", "new"], &[]).refused(32, &["new", "no pool"]);
    mount_over(&pond, &["flash", "flash"], &[]).refused(2, &["named twice"]);
    mount_over(&pond, &["flash", "flash2"], &[]).ok();
    pond.unmount(&[]).ok();
}

#[test]
fn another_worker_takes_over_a_pool_of_two_devices() {
    let mut pond = Pond::new();
    let second = pond.at("flash2");
    let daemon = pond.mount_foreground(&["--flash", second.to_str().unwrap(), "--size", SIZE]);
    let path = pond.mnt().join("file");
    let mut file = File::create(&path).unwrap();
    std::io::Write::write_all(&mut file, &pattern(1 << 20, 1)).unwrap();
    let before = pond.status();
    pond.kill_worker(daemon);
    wait_until("another worker serves", || pond.status()["pid"] != before["pid"]);
    assert!(fs::read(&path).unwrap() == pattern(1 << 20, 1), "what was not synced");
    let status = pool_status(&pond);
    assert_eq!(
        (&status["state"], status["members"].as_array().unwrap().len()),
        (&"ONLINE".into(), 2),
        "{}",
        pond.log()
    );
    drop(file);
    pond.unmount(&[]).ok();
    assert!(fs::read(pond.origin().join("file")).unwrap() == pattern(1 << 20, 1));
}

#[test]
fn a_pool_of_two_devices_is_examined_whole_and_in_parts() {
    let pond = Pond::new();
    mount_over(&pond, &["flash", "flash2"], &["--size", SIZE]).ok();
    write_and_sync(&pond.mnt().join("file"), &pattern(1 << 20, 1));
    pond.unmount(&["--keep-dirty"]).ok();
    let (one, two) = (pond.at("flash"), pond.at("flash2"));
    let check = |flashes: &[&OsStr]| run([OsStr::new("check"), OsStr::new("--json")].iter().chain(flashes));
    let report = check(&[one.as_os_str(), OsStr::new("--flash"), two.as_os_str()]).ok().json();
    assert_eq!((&report["verdict"], &report["blocks"]["dirty"]), (&"sound".into(), &256.into()), "{report}");
    assert_eq!((report["blocks"]["verified"].as_u64(), &report["files"]), (Some(256), &1.into()), "{report}");
    let report = check(&[one.as_os_str()]).refused(41, &[]).json();
    assert_eq!((&report["verdict"], &report["blocks"]["dirty"]), (&"harmless".into(), &256.into()), "{report}");
}

/// What `cat` finds in the file of numbers.
fn number(pond: &Pond, name: &str) -> u64 {
    let sheet = fs::read_to_string(pond.mnt().join(".headpond/stats")).unwrap();
    let found = sheet.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    found.unwrap_or_else(|| panic!("{name} is missing in:\n{sheet}"))
}

#[test]
fn a_pool_with_parity_tells_of_its_rows_and_of_what_was_read_out_of_them() {
    let pond = Pond::new();
    let three = ["flash", "flash2", "flash3"];
    let mount = |more: &[&str]| {
        mount_over(&pond, &three, &[&["--test-fault", "none"], more].concat()).ok();
    };
    mount(&["--size", SIZE, "--redundancy", "parity"]);
    let settings = ["flush-period=off", "idle-flush=off", "dirty-threshold=off", "sequential-cutoff=off"];
    run(["set", pond.mnt().to_str().unwrap()].iter().chain(&settings)).ok();
    let holds = pattern(32 << 20, 1);
    write_and_sync(&pond.mnt().join("file"), &holds);
    wait_until("rows are made", || number(&pond, "parity_rows_total") > 1);
    pool(&pond, "wait", &["-q".as_ref()]).ok();
    // With the checkpoint of an unmount the rows count, and their second copies are given up.
    pond.unmount(&["--keep-dirty"]).ok();
    mount(&[]);
    pool(&pond, "wait", &["-q".as_ref()]).ok();
    assert_eq!(number(&pond, "parity_reads_total"), 0, "all devices work");
    fault(&pond, "flash2", "cut");
    wait_until("something was read out of a row", || number(&pond, "parity_reads_total") > 0);
    let [old, new] = ["flash2", "new"].map(|name| pond.at(name).into_os_string());
    pool(&pond, "replace", &[&old, &new, "--size".as_ref(), SIZE.as_ref()]).ok();
    pool(&pond, "wait", &["-q".as_ref()]).ok();
    let status = pool_status(&pond);
    assert_eq!((&status["state"], &status["exposed_bytes"]), (&"ONLINE".into(), &0.into()), "{status}");
    pond.unmount(&[]).ok();
    assert!(fs::read(pond.origin().join("file")).unwrap() == holds);
}
