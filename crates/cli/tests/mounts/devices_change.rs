//! The devices of a pool change while programs write: `headpond pool`.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::loop_device::{Loop, make_ext4};
use crate::pond::{Pond, SIZE, Said, headpond, pattern, run, wait_until, write_and_sync};
use crate::several_devices::{EndAtLast, fault, is_named_as_lost, mount_over, pool, pool_status, write_and_verify};

/// The paths of the pool's devices, by name.
fn devices(pond: &Pond) -> Vec<String> {
    let status = pond.status();
    let flashes = status["flashes"].as_array().unwrap().iter();
    flashes.map(|path| path.as_str().unwrap().rsplit('/').next().unwrap().to_owned()).collect()
}

/// Writes and verifies all the while, kills the worker now and then, and compares the origin at the end.
fn while_written(mut pond: Pond, flashes: &[&str], changes: impl Fn(&Pond) + Sync) {
    let others: Vec<_> = flashes[1..].iter().map(|name| pond.at(name).to_str().unwrap().to_owned()).collect();
    let mut more = vec!["--size", SIZE];
    others.iter().for_each(|path| more.extend(["--flash", path]));
    let daemon = pond.mount_foreground(&more);
    let (end, changed, path) = (AtomicBool::new(false), AtomicBool::new(false), pond.mnt().join("file"));
    let holds = std::thread::scope(|scope| {
        let writer = scope.spawn(|| write_and_verify(&path, &end));
        wait_until("it is there", || path.exists());
        let killer = scope.spawn(|| {
            let mut killed = 0;
            while !changed.load(Ordering::SeqCst) {
                let before = pond.status()["pid"].clone();
                // At another moment of a change each time.
                std::thread::sleep(Duration::from_millis(killed * 7 % 60));
                pond.kill_worker(daemon);
                wait_until("another worker serves", || pond.status()["pid"] != before);
                killed += 1;
            }
            assert!(killed > 3, "killed {killed} times: the changes were over too soon");
        });
        let (at_last, no_more) = (EndAtLast(&end), EndAtLast(&changed));
        changes(&pond);
        drop(no_more);
        killer.join().unwrap();
        drop(at_last);
        writer.join().unwrap()
    });
    assert!(fs::read(&path).unwrap() == holds);
    pond.unmount(&[]).ok();
    assert!(fs::read(pond.origin().join("file")).unwrap() == holds);
}

/// Asks for a change until it is so: a worker that is killed forgets what it was asked.
fn until(pond: &Pond, command: &str, words: &[&str], is_so: impl Fn(&[String]) -> bool) {
    wait_until(command, || {
        if is_so(&devices(pond)) {
            return true;
        }
        let words: Vec<_> = words.iter().map(|word| pond.at(word)).collect();
        let mut words: Vec<&std::ffi::OsStr> = words.iter().map(|word| word.as_os_str()).collect();
        if command != "remove" {
            words.extend([std::ffi::OsStr::new("--size"), SIZE.as_ref(), "--format".as_ref()]);
        }
        // Refused while the one before goes on, and without an answer while a worker takes over.
        let _ = pool(pond, command, &words);
        is_so(&devices(pond))
    });
}

#[test]
fn devices_join_and_leave_under_a_writer_while_workers_are_killed() {
    let has = |names: &'static [&str]| move |devices: &[String]| devices == names;
    while_written(Pond::new(), &["flash"], |pond| {
        until(pond, "add", &["second"], |devices| devices.len() == 2);
        until(pond, "remove", &["flash"], has(&["second"]));
        until(pond, "add", &["third"], |devices| devices.len() == 2);
        until(pond, "remove", &["second"], has(&["third"]));
        until(pond, "add", &["fourth"], |devices| devices.len() == 2);
        until(pond, "remove", &["third"], has(&["fourth"]));
    });
}

#[test]
fn a_device_is_replaced_and_the_only_one_moved_and_what_left_is_no_pool() {
    let pond = Pond::new();
    mount_over(&pond, &["flash"], &["--size", SIZE]).ok();
    let (end, path) = (AtomicBool::new(false), pond.mnt().join("file"));
    let at = |name: &str| pond.at(name);
    let holds = std::thread::scope(|scope| {
        let writer = scope.spawn(|| write_and_verify(&path, &end));
        let at_last = EndAtLast(&end);
        wait_until("it is there", || path.exists());
        let new = [at("second").into_os_string(), "--size".into(), "96M".into()];
        let new: Vec<_> = new.iter().map(std::ffi::OsString::as_os_str).collect();
        pool(&pond, "move", &new).refused(0, &["done"]);
        assert_eq!(devices(&pond), ["second"]);
        assert_eq!(pool_status(&pond)["state"], "ONLINE", "a pool of one device is whole");
        pool(&pond, "wait", &[]).ok();
        pool(&pond, "add", &[at("third").as_os_str(), "--size".as_ref(), SIZE.as_ref()]).ok();
        let (old, new) = (at("third"), at("fourth"));
        pool(&pond, "replace", &[old.as_os_str(), new.as_os_str(), "--size".as_ref(), SIZE.as_ref()]).ok();
        drop(at_last);
        writer.join().unwrap()
    });
    assert_eq!(devices(&pond), ["second", "fourth"]);
    let numbers = run(["stats".as_ref(), pond.mnt().as_os_str()]);
    assert!(numbers.text.contains("\nlost_devices 0\n"), "{}", numbers.text);
    assert!(!pond.log().contains("DEGRADED"), "{}", pond.log());
    let status = pool_status(&pond);
    let action = status["actions"].as_array().unwrap().last().unwrap().as_str().unwrap();
    assert!(action.contains("fstab") && action.contains("fourth"), "{action}");
    for free in ["flash", "third"] {
        run(["check".as_ref(), at(free).as_os_str()]).refused(32, &["not a headpond pool"]);
        assert!(fs::read(&path).unwrap() == holds);
    }
    pond.unmount(&["--keep-dirty"]).ok();
    mount_over(&pond, &["flash"], &[]).refused(32, &["not a headpond pool"]);
    mount_over(&pond, &["second", "fourth"], &[]).ok();
    assert!(fs::read(&path).unwrap() == holds);
    pond.unmount(&[]).ok();
    assert!(fs::read(pond.origin().join("file")).unwrap() == holds);
}

/// Whether a process has a handler for SIGINT.
fn handles_interrupts(process: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or("0").trim();
    u64::from_str_radix(caught, 16).is_ok_and(|caught| caught & 2 != 0)
}

#[test]
fn a_move_under_a_writer_goes_on_when_its_command_is_interrupted_and_can_be_waited_for() {
    let pond = Pond::new();
    mount_over(&pond, &["flash"], &["--size", "128M", "--test-fault", "none"]).ok();
    // No long run, which would go to the origin at once.
    let more = |file: u64| format!("f{file}");
    (0..24).for_each(|file| write_and_sync(&pond.mnt().join(more(file)), &pattern(1 << 20, file)));
    let (end, path) = (AtomicBool::new(false), pond.mnt().join("file"));
    let holds = std::thread::scope(|scope| {
        let writer = scope.spawn(|| write_and_verify(&path, &end));
        let at_last = EndAtLast(&end);
        wait_until("it is there", || path.exists());
        // So slow that it is under way when its command is interrupted.
        pond.fault("delay=200").ok();
        let mut moving = headpond();
        moving.args(["pool", "move"]).arg(pond.mnt()).arg(pond.at("new")).args(["--size", "128M"]);
        let moving = moving.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let change = || pool_status(&pond)["change"].clone();
        wait_until("it says how much is left", || change()["left_bytes"].as_u64() > Some(0));
        assert!(change()["total_bytes"].as_u64() >= change()["left_bytes"].as_u64(), "{}", change());
        wait_until("the command can be interrupted", || handles_interrupts(moving.id()));
        assert!(Command::new("kill").args(["-INT", &moving.id().to_string()]).status().unwrap().success());
        let said = Said::from(moving.wait_with_output().unwrap());
        said.refused(73, &["the change goes on in the background", "headpond pool wait"]);
        assert_eq!(change()["state"], "running");
        pond.fault("heal").ok();
        pool(&pond, "wait", &["--quiet".as_ref()]).ok();
        assert_eq!(devices(&pond), ["new"]);
        drop(at_last);
        writer.join().unwrap()
    });
    assert!(fs::read(&path).unwrap() == holds);
    run(["check".as_ref(), pond.flash().as_os_str()]).refused(32, &["not a headpond pool"]);
    pond.unmount(&["--keep-dirty"]).ok();
    mount_over(&pond, &["new"], &[]).ok();
    assert!(fs::read(&path).unwrap() == holds);
    assert!((0..24).all(|file| fs::read(pond.mnt().join(more(file))).unwrap() == pattern(1 << 20, file)));
    pond.unmount(&[]).ok();
    assert!(fs::read(pond.origin().join("file")).unwrap() == holds);
}

#[test]
fn the_only_device_grows_and_shrinks_under_a_writer() {
    let pond = Pond::new();
    mount_over(&pond, &["flash"], &["--size", "96M"]).ok();
    let (end, path) = (AtomicBool::new(false), pond.mnt().join("file"));
    let holds = std::thread::scope(|scope| {
        let writer = scope.spawn(|| write_and_verify(&path, &end));
        let at_last = EndAtLast(&end);
        wait_until("it is there", || path.exists());
        for (command, size, mib) in [("grow", "128M", 128), ("shrink", "80M", 80), ("grow", "96M", 96)] {
            pool(&pond, command, &[size.as_ref()]).ok();
            assert_eq!(pond.status()["size_bytes"], mib << 20, "{command}");
            assert_eq!(fs::metadata(pond.flash()).unwrap().len(), mib << 20, "{command}");
        }
        drop(at_last);
        writer.join().unwrap()
    });
    assert!(fs::read(&path).unwrap() == holds);
    pond.unmount(&["--keep-dirty"]).ok();
    mount_over(&pond, &["flash"], &[]).ok();
    assert_eq!(pond.status()["size_bytes"], 96 << 20);
    assert!(fs::read(&path).unwrap() == holds);
    pond.unmount(&[]).ok();
    assert!(fs::read(pond.origin().join("file")).unwrap() == holds);
}

#[test]
fn a_device_that_failed_is_replaced_and_dirty_data_has_two_copies_again() {
    let pond = Pond::new();
    mount_over(&pond, &["flash", "flash2"], &["--size", SIZE, "--test-fault", "none"]).ok();
    let path = pond.mnt().join("file");
    write_and_sync(&path, &pattern(2 << 20, 1));
    fault(&pond, "flash", "cut");
    write_and_sync(&path, &pattern(2 << 20, 2));
    wait_until("it is lost", || pool_status(&pond)["members"][0]["state"] == "FAULTED");
    let (old, new) = (pond.at("flash"), pond.at("flash3"));
    pool(&pond, "replace", &[old.as_os_str(), new.as_os_str(), "--size".as_ref(), SIZE.as_ref()]).ok();
    pool(&pond, "wait", &[]).ok();
    let status = pool_status(&pond);
    assert_eq!((&status["state"], status["members"].as_array().unwrap().len()), (&"ONLINE".into(), 2), "{status}");
    write_and_sync(&path, &pattern(2 << 20, 3));
    pond.unmount(&["--keep-dirty"]).ok();
    // Either of the two that are left is enough.
    fs::rename(pond.at("flash2"), pond.at("aside")).unwrap();
    mount_over(&pond, &["flash3"], &[]).ok();
    assert!(fs::read(&path).unwrap() == pattern(2 << 20, 3));
    pond.unmount(&[]).ok();
}

#[test]
fn a_device_that_failed_before_the_worker_died_is_replaced_too() {
    let mut pond = Pond::new();
    let second = pond.at("flash2").to_str().unwrap().to_owned();
    let daemon = pond.mount_foreground(&["--size", SIZE, "--flash", &second, "--test-fault", "none"]);
    let path = pond.mnt().join("file");
    write_and_sync(&path, &pattern(2 << 20, 1));
    let (old, new) = (pond.at("flash"), pond.at("flash3"));
    let size = ["--size", SIZE].map(AsRef::as_ref);
    let wrong = pond.at("wrong");
    pool(&pond, "replace", &[&[wrong.as_os_str(), new.as_os_str()][..], &size].concat()).refused(2, &["is no device"]);
    fault(&pond, "flash", "cut");
    write_and_sync(&path, &pattern(2 << 20, 2));
    wait_until("it is lost", || pool_status(&pond)["members"][0]["state"] == "FAULTED");
    wait_until("its end is noted", || pond.log().contains("is out of the pool"));
    let before = pond.status()["pid"].clone();
    pond.kill_worker(daemon);
    wait_until("another worker serves", || pond.status()["pid"] != before);
    is_named_as_lost(&pond, "flash", "FAULTED");
    pool(&pond, "replace", &[&[old.as_os_str(), new.as_os_str()][..], &size].concat()).ok();
    pool(&pond, "wait", &[]).ok();
    assert_eq!(pool_status(&pond)["state"], "ONLINE");
    assert!(fs::read(&path).unwrap() == pattern(2 << 20, 2));
    pond.unmount(&[]).ok();
}

#[test]
fn what_is_missed_is_named_by_the_mounts_to_come_until_another_comes_or_none_is_wanted() {
    let pond = Pond::new();
    mount_over(&pond, &["flash", "flash2", "flash3"], &["--size", SIZE, "--test-fault", "none"]).ok();
    let path = pond.mnt().join("file");
    write_and_sync(&path, &pattern(2 << 20, 1));
    fault(&pond, "flash", "cut");
    write_and_sync(&path, &pattern(2 << 20, 2));
    wait_until("its end is noted", || pond.log().contains("is out of the pool"));
    // The origin has everything, and no marker.
    pond.unmount(&[]).ok();
    mount_over(&pond, &["flash2", "flash3"], &["--test-fault", "none"]).ok();
    is_named_as_lost(&pond, "flash", "FAULTED");
    let first = pond.at("flash");
    pool(&pond, "remove", &[first.as_os_str()]).ok();
    let status = pool_status(&pond);
    assert_eq!((&status["state"], status["members"].as_array().unwrap().len()), (&"ONLINE".into(), 2), "{status}");
    let second = pond.at("flash2");
    wait_until("it is offline", || pool(&pond, "offline", &[second.as_os_str(), "--quiet".as_ref()]).status == 0);
    pond.unmount(&[]).ok();
    mount_over(&pond, &["flash3"], &[]).ok();
    is_named_as_lost(&pond, "flash2", "OFFLINE");
    pool(&pond, "online", &[second.as_os_str()]).ok();
    let status = pool_status(&pond);
    assert_eq!((&status["state"], status["members"].as_array().unwrap().len()), (&"ONLINE".into(), 2), "{status}");
    pond.unmount(&[]).ok();
    mount_over(&pond, &["flash3", "flash2"], &[]).ok();
    assert_eq!(pool_status(&pond)["state"], "ONLINE");
    pond.unmount(&[]).ok();
}

/// More devices than there are numbers: those of the members that are gone are given again.
#[test]
fn a_pool_outlives_forty_devices_and_believes_none_that_had_a_number_before() {
    let pond = Pond::new();
    mount_over(&pond, &["flash", "old"], &["--size", SIZE, "--test-fault", "none"]).ok();
    let path = pond.mnt().join("file");
    write_and_sync(&path, &pattern(1 << 20, 1));
    fault(&pond, "old", "cut");
    write_and_sync(&path, &pattern(1 << 20, 2));
    wait_until("it is lost", || pool_status(&pond)["members"][1]["state"] == "FAULTED");
    wait_until("its end is noted", || pond.log().contains("is out of the pool"));
    let replace = |old: &str, new: &str| {
        let (old, new) = (pond.at(old), pond.at(new));
        pool(&pond, "replace", &[old.as_os_str(), new.as_os_str(), "--size".as_ref(), SIZE.as_ref()]).ok();
    };
    replace("old", "device0");
    for device in 1..40 {
        let before = format!("device{}", device - 1);
        replace(&before, &format!("device{device}"));
        fs::remove_file(pond.at(&before)).unwrap();
        write_and_sync(&path, &pattern(1 << 20, device));
    }
    assert_eq!(pond.log().matches("failed, and is out of the pool").count(), 1, "{}", pond.log());
    let status = pool_status(&pond);
    let numbers: Vec<u64> =
        status["members"].as_array().unwrap().iter().map(|member| member["member"].as_u64().unwrap()).collect();
    assert!(numbers.len() == 2 && numbers.iter().all(|number| *number < 32), "{status}");
    pool(&pond, "wait", &[]).ok();
    assert_eq!(pool_status(&pond)["state"], "ONLINE");
    pond.unmount(&["--keep-dirty"]).ok();
    // The first one to be lost had a number that another has by now.
    mount_over(&pond, &["flash", "device39", "old"], &[]).refused(0, &["old is no member of the pool any more"]);
    assert!(fs::read(&path).unwrap() == pattern(1 << 20, 39));
    pond.unmount(&["--keep-dirty"]).ok();
    mount_over(&pond, &["old"], &[]).refused(43, &["goes on without this one"]);
    fs::rename(pond.at("flash"), pond.at("aside")).unwrap();
    mount_over(&pond, &["device39"], &[]).ok();
    assert!(fs::read(&path).unwrap() == pattern(1 << 20, 39), "either of the two is enough");
    pond.unmount(&[]).ok();
}

#[test]
fn a_device_is_taken_offline_under_load_and_given_back() {
    let pond = Pond::new();
    mount_over(&pond, &["flash", "flash2"], &["--size", SIZE]).ok();
    let (end, path, second) = (AtomicBool::new(false), pond.mnt().join("file"), pond.at("flash2"));
    let second = second.as_os_str();
    let holds = std::thread::scope(|scope| {
        let writer = scope.spawn(|| write_and_verify(&path, &end));
        let at_last = EndAtLast(&end);
        pool(&pond, "online", &[second]).refused(2, &["is not offline", "pool add"]);
        wait_until("it is written", || pool_status(&pond)["members"][1]["dirty_bytes"].as_u64() > Some(0));
        pool(&pond, "offline", &[second, "-n".as_ref()]).refused(0, &["would be taking", "Nothing was changed"]);
        pool(&pond, "wait", &["--quiet".as_ref()]).ok();
        // A moment without a second copy may come back under load.
        wait_until("it is offline", || pool(&pond, "offline", &[second, "--quiet".as_ref()]).status == 0);
        let status = pool_status(&pond);
        assert_eq!((&status["state"], &status["members"][1]["state"]), (&"DEGRADED".into(), &"OFFLINE".into()));
        let action = status["actions"][0].as_str().unwrap();
        assert!(action.contains("headpond pool online"), "{action}");
        run(["status".as_ref(), pond.mnt().as_os_str()]).refused(0, &["DEGRADED"]);
        // It is free: whatever is done to it.
        OpenOptions::new().write(true).open(pond.at("flash2")).unwrap().write_all_at(&[9; 1 << 20], 1 << 20).unwrap();
        pool(&pond, "offline", &[pond.at("flash").as_os_str()]).refused(1, &["cannot do without it"]);
        pool(&pond, "online", &[second]).ok();
        pool(&pond, "wait", &["--quiet".as_ref()]).ok();
        drop(at_last);
        writer.join().unwrap()
    });
    let status = pool_status(&pond);
    assert_eq!((&status["state"], status["members"].as_array().unwrap().len()), (&"ONLINE".into(), 2), "{status}");
    assert!(!pond.log().contains("DEGRADED"), "{}", pond.log());
    pond.unmount(&["--keep-dirty"]).ok();
    // What was given back is enough by itself.
    fs::rename(pond.at("flash"), pond.at("aside")).unwrap();
    mount_over(&pond, &["flash2"], &[]).ok();
    assert!(fs::read(&path).unwrap() == holds);
    pond.unmount(&[]).ok();
}

#[test]
fn a_device_grows_while_it_is_used() {
    let pond = Pond::new();
    mount_over(&pond, &["flash"], &["--size", SIZE]).ok();
    write_and_sync(&pond.mnt().join("file"), &pattern(1 << 20, 1));
    let capacity = pond.status()["capacity_bytes"].as_u64().unwrap();
    pool(&pond, "grow", &["64M".as_ref()]).refused(2, &["already"]);
    pool(&pond, "grow", &["96M".as_ref(), "-n".as_ref()]).refused(0, &["Nothing was changed"]);
    assert_eq!(fs::metadata(pond.flash()).unwrap().len(), 64 << 20);
    pool(&pond, "grow", &["96M".as_ref()]).ok();
    assert_eq!(pond.status()["size_bytes"], 96 << 20);
    assert!(pond.status()["capacity_bytes"].as_u64().unwrap() > capacity + (24 << 20), "{}", pond.status());
    pond.unmount(&["--keep-dirty"]).ok();
    pond.mount(&[]).ok();
    assert_eq!(pond.status()["size_bytes"], 96 << 20);
    assert!(fs::read(pond.mnt().join("file")).unwrap() == pattern(1 << 20, 1));
    pond.unmount(&[]).ok();
}

#[test]
fn a_device_shrinks_while_it_is_used_and_keeps_what_is_dirty() {
    let pond = Pond::new();
    mount_over(&pond, &["flash"], &["--size", "128M"]).ok();
    for file in 0..24 {
        write_and_sync(&pond.mnt().join(format!("f{file}")), &pattern(1 << 20, file));
    }
    pool(&pond, "shrink", &["200M".as_ref()]).refused(2, &["no more than"]);
    pool(&pond, "shrink", &["80M".as_ref()]).ok();
    assert_eq!(fs::metadata(pond.flash()).unwrap().len(), 80 << 20);
    assert_eq!(pond.status()["size_bytes"], 80 << 20);
    pond.unmount(&["--keep-dirty"]).ok();
    pond.mount(&[]).ok();
    for file in 0..24 {
        assert!(fs::read(pond.mnt().join(format!("f{file}"))).unwrap() == pattern(1 << 20, file), "f{file}");
    }
    pond.unmount(&[]).ok();
    assert!(fs::read(pond.origin().join("f9")).unwrap() == pattern(1 << 20, 9));
}

/// Waits until a part of what there was is left, by the words of a status, and a rate and the time to go are known.
pub fn wait_for_progress(pond: &Pond, total: &str, shown: impl Fn(&serde_json::Value) -> [serde_json::Value; 3]) {
    let mut most = 0;
    wait_until(&format!("a part of {total} is left"), || {
        let [left, rate, time] = shown(&pool_status(pond));
        let left = left.as_u64().unwrap();
        most = most.max(left);
        left > 0 && left < most && rate.as_f64() > Some(0.0) && time.as_f64() > Some(0.0)
    });
}

#[test]
fn a_device_that_shrinks_says_how_much_is_left_to_move() {
    let pond = Pond::new();
    mount_over(&pond, &["flash"], &["--size", "128M", "--test-fault", "none"]).ok();
    let settings = ["flush-period=off", "idle-flush=off", "dirty-threshold=off", "sequential-cutoff=off"];
    run(["set", pond.mnt().to_str().unwrap()].iter().chain(&settings)).ok();
    let holds = pattern(84 << 20, 1);
    write_and_sync(&pond.mnt().join("file"), &holds);
    // So slow that it can be watched.
    pond.fault("delay=20").ok();
    pool(&pond, "shrink", &["88M".as_ref(), "--background".as_ref()]).ok();
    wait_for_progress(&pond, "what lies at the end", |status| {
        let change = &status["change"];
        assert!(change["total_bytes"].as_u64() >= change["left_bytes"].as_u64(), "{change}");
        ["left_bytes", "bytes_per_second", "left_seconds"].map(|name| change[name].clone())
    });
    pool(&pond, "status", &[]).refused(0, &["shrinking", " left, ", "/s", " to go"]);
    pond.fault("heal").ok();
    let waited = pool(&pond, "wait", &["--json".as_ref()]).ok().json();
    let change = &waited["change"];
    assert_eq!((&change["state"], &change["left_bytes"]), (&"done".into(), &0.into()), "{waited}");
    assert_eq!(pond.status()["size_bytes"], 88 << 20);
    pond.unmount(&[]).ok();
    assert!(fs::read(pond.origin().join("file")).unwrap() == holds);
}

#[test]
fn a_change_that_is_not_possible_is_refused_and_a_dry_run_changes_nothing() {
    let pond = Pond::new();
    mount_over(&pond, &["flash"], &["--size", SIZE]).ok();
    let at = |name: &str| pond.at(name).into_os_string();
    pool(&pond, "remove", &[&at("flash")]).refused(2, &["only device", "headpond pool move"]);
    pool(&pond, "remove", &[&at("nobody")]).refused(2, &["no device of this pool"]);
    pool(&pond, "add", &[&at("flash")]).refused(2, &["already"]);
    pool(&pond, "add", &[&at("new")]).refused(30, &["--size"]);
    fs::write(pond.at("text"), vec![b'x'; 80 << 20]).unwrap();
    pool(&pond, "add", &[&at("text")]).refused(32, &["--format"]);
    assert!(fs::read(pond.at("text")).unwrap().iter().all(|byte| *byte == b'x'), "it was touched");
    let mine = pond.mnt().join("flash").into_os_string();
    pool(&pond, "add", &[&mine, "--size".as_ref(), SIZE.as_ref()]).refused(23, &["inside the mount point"]);
    let inside = pond.origin().join("flash").into_os_string();
    pool(&pond, "add", &[&inside, "--size".as_ref(), SIZE.as_ref()]).refused(23, &["inside the origin"]);
    pool(&pond, "remove", &["--cancel".as_ref()]).refused(2, &["no change"]);
    let said = pool(&pond, "add", &[&at("new"), "--size".as_ref(), SIZE.as_ref(), "-n".as_ref()]);
    said.refused(0, &["adding", "Nothing was changed"]);
    assert!(!pond.at("new").exists());
    assert_eq!(devices(&pond), ["flash"]);
    let listed = run(["pool", "list"]);
    listed.refused(0, &[pond.mnt().to_str().unwrap(), "ONLINE"]);
    pond.unmount(&[]).ok();
}

#[test]
fn a_removal_is_taken_back_and_a_dry_run_of_that_changes_nothing() {
    let pond = Pond::new();
    mount_over(&pond, &["flash", "flash2"], &["--size", "128M", "--redundancy", "none", "--test-fault", "none"]).ok();
    let (mnt, second) = (pond.mnt(), pond.at("flash2"));
    let path = |file: u64| mnt.join(format!("f{file}"));
    // No long run, which would go to the origin at once.
    (0..24).for_each(|file| write_and_sync(&path(file), &pattern(1 << 20, file)));
    let cancel = |more: &[&str]| {
        let words: Vec<&std::ffi::OsStr> = ["--cancel"].iter().chain(more).map(std::ffi::OsStr::new).collect();
        pool(&pond, "remove", &words)
    };
    cancel(&["-n"]).refused(2, &["no change"]);
    // So much, and so slow, that it is still under way when the list of members is durable.
    run(["fault".as_ref(), mnt.as_os_str(), "delay=200".as_ref()]).ok();
    pool(&pond, "remove", &[second.as_os_str(), "--background".as_ref()]).ok();
    wait_until("it is being emptied", || pool_status(&pond)["members"][1]["state"] == "REMOVING");
    cancel(&["-n"]).refused(0, &["taken back: removing", "flash2 stays in the pool, with", "Nothing was changed"]);
    let planned = cancel(&["-n", "--json"]).ok().json();
    assert_eq!(planned["dry_run"], true);
    let status = pool_status(&pond);
    assert_eq!((&status["members"][1]["state"], &status["change"]["state"]), (&"REMOVING".into(), &"running".into()));
    // Refused until the list of members is durable.
    wait_until("it is taken back", || cancel(&[]).status == 0);
    run(["fault".as_ref(), mnt.as_os_str(), "heal".as_ref()]).ok();
    pool(&pond, "wait", &[]).ok();
    assert_eq!(pool_status(&pond)["members"][1]["state"], "ONLINE");
    assert_eq!(devices(&pond), ["flash", "flash2"]);
    assert!((0..24).all(|file| fs::read(path(file)).unwrap() == pattern(1 << 20, file)));
    pond.unmount(&[]).ok();
}

#[test]
fn a_crash_in_the_middle_of_a_removal_leaves_a_pool_that_goes_on_with_it() {
    let mut pond = Pond::new();
    let second = pond.at("flash2");
    let more = ["--flash", second.to_str().unwrap()];
    let daemon = pond.mount_foreground(&[&more[..], &["--size", SIZE]].concat());
    for file in 0..16 {
        write_and_sync(&pond.mnt().join(format!("f{file}")), &pattern(1 << 20, file));
    }
    pool(&pond, "remove", &[second.as_os_str(), "--background".as_ref()]).ok();
    pond.kill(daemon);
    let daemon = pond.mount_foreground(&more);
    for file in 0..16 {
        assert!(fs::read(pond.mnt().join(format!("f{file}"))).unwrap() == pattern(1 << 20, file), "f{file}");
    }
    pool(&pond, "wait", &[]).ok();
    if devices(&pond).len() == 2 {
        // The crash came before the list was written.
        pool(&pond, "remove", &[second.as_os_str()]).ok();
    }
    wait_until("it has left", || devices(&pond) == ["flash"]);
    // Wiped; or, if the crash came just before that, a pool that lacks its other device.
    let alone = run(["check".as_ref(), second.as_os_str()]);
    assert!([32, 43].contains(&alone.status), "{}", alone.text);
    pond.unmount(&[]).ok();
    assert_eq!(pond.wait(daemon), 0);
    for file in 0..16 {
        assert!(fs::read(pond.origin().join(format!("f{file}"))).unwrap() == pattern(1 << 20, file), "f{file}");
    }
}

#[test]
fn a_share_of_each_device_stays_unwritten_and_is_shown_kept_and_given_up() {
    let pond = Pond::new();
    let reserve = ["--size", "80M", "--reserve", "20%"];
    for nonsense in ["95%", "-3%", "a fifth"] {
        let option = format!("--reserve={nonsense}");
        mount_over(&pond, &["flash"], &["--size", "80M", &option]).refused(2, &["20%", "90%"]);
    }
    mount_over(&pond, &["flash"], &["--size", SIZE, "--reserve", "20%"])
        .refused(34, &["--reserve 20% of 64 MiB", "at least 64 MiB"]);
    assert!(!pond.flash().exists());
    mount_over(&pond, &["flash"], &reserve).ok();
    assert_eq!(fs::metadata(pond.flash()).unwrap().len(), 80 << 20, "others cannot take the space");
    let sizes = |member: usize| {
        let member = pool_status(&pond)["members"][member].clone();
        ["size_bytes", "reserve_bytes"].map(|name| member[name].as_u64().unwrap())
    };
    assert_eq!((sizes(0), &pond.status()["size_bytes"]), ([64 << 20, 16 << 20], &(64 << 20).into()));
    run(["pool".as_ref(), "status".as_ref(), pond.mnt().as_os_str()]).refused(0, &["reserve", "16 MiB"]);
    run(["doctor".as_ref(), pond.mnt().as_os_str()]).refused(0, &["spare"]);
    // More than it takes, over and over.
    for round in 0..4 {
        write_and_sync(&pond.mnt().join("file"), &pattern(24 << 20, round));
        pond.flush().ok();
    }
    let (new, third) = (pond.at("new"), ["--size".as_ref(), "96M".as_ref(), "--reserve".as_ref(), "30".as_ref()]);
    pool(&pond, "add", &[&[new.as_os_str()], &third[..]].concat()).ok();
    assert_eq!(sizes(1), [whole_blocks(96, 70), (96 << 20) - whole_blocks(96, 70)]);
    write_and_sync(&pond.mnt().join("file"), &pattern(24 << 20, 9));
    pond.unmount(&["--keep-dirty"]).ok();
    for (flash, used) in [("flash", 64 << 20), ("new", whole_blocks(96, 70))] {
        let unwritten = fs::read(pond.at(flash)).unwrap().split_off(usize::try_from(used).unwrap());
        assert!(unwritten.iter().all(|byte| *byte == 0), "{flash} was written behind what the pool uses");
    }

    // A pool keeps what it has.
    let both = ["flash", "new"];
    let other = ["--reserve", "50%"];
    mount_over(&pond, &both, &other).refused(2, &["16 MiB of 80 MiB", "pool shrink MOUNTPOINT", "--flash"]);
    mount_over(&pond, &both, &["--reserve", "0%"]).refused(2, &["pool grow"]);
    mount_over(&pond, &both, &[]).ok();
    assert_eq!(sizes(0), [64 << 20, 16 << 20]);
    pool(&pond, "grow", &["80M".as_ref(), "--flash".as_ref(), pond.flash().as_os_str()]).ok();
    assert_eq!(sizes(0), [80 << 20, 0]);
    assert!(fs::read(pond.mnt().join("file")).unwrap() == pattern(24 << 20, 9));
    pool(&pond, "remove", &[new.as_os_str()]).ok();
    pond.unmount(&[]).ok();
    mount_over(&pond, &["flash"], &["--format", "--size", "80M", "--reserve", "20%"]).ok();
    pond.unmount(&[]).ok();
    mount_over(&pond, &["flash"], &reserve).ok();
    pond.unmount(&[]).ok();
    mount_over(&pond, &["flash"], &["--size", "80M"]).refused(2, &["has 64 MiB"]);
}

#[test]
fn a_device_that_comes_back_keeps_what_was_left_unwritten_of_it_unless_told_otherwise() {
    let pond = Pond::new();
    mount_over(&pond, &["flash", "flash2"], &["--size", "80M", "--reserve", "20%"]).ok();
    let second = pond.at("flash2").into_os_string();
    let offline = || pool(&pond, "offline", &[&second, "--quiet".as_ref()]).status == 0;
    let sizes = || {
        let member = pool_status(&pond)["members"][1].clone();
        ["size_bytes", "reserve_bytes"].map(|name| member[name].as_u64().unwrap() >> 20)
    };
    assert_eq!(sizes(), [64, 16]);
    wait_until("it is offline", offline);
    pool(&pond, "online", &[&second, "-n".as_ref()]).refused(0, &["64 MiB of it as before"]);
    pool(&pond, "online", &[&second]).refused(0, &["64 MiB of it as before"]);
    assert_eq!(sizes(), [64, 16], "{}", pool_status(&pond));
    wait_until("it is offline once more", offline);
    pool(&pond, "online", &[&second, "--reserve".as_ref(), "0%".as_ref()]).refused(0, &["all but 0% of it"]);
    assert_eq!(sizes(), [80, 0]);
    pond.unmount(&[]).ok();
}

/// So many percent of so many MiB, in whole blocks.
const fn whole_blocks(mib: u64, percent: u64) -> u64 {
    (mib << 20) * percent / 100 / 4096 * 4096
}

#[test]
fn what_stays_unwritten_of_a_block_device_is_trimmed() {
    let pond = Pond::new();
    fs::write(pond.at("device"), vec![7; 80 << 20]).unwrap();
    let Some(flash) = Loop::over(&pond.at("device")) else { return };
    let device = flash.device().to_str().unwrap();
    mount_over(&pond, &[device], &["--format", "--reserve", "20%"]).ok();
    let member = pool_status(&pond)["members"][0].clone();
    assert_eq!((&member["size_bytes"], &member["reserve_bytes"]), (&(64 << 20).into(), &(16 << 20).into()));
    let end = fs::read(pond.at("device")).unwrap().split_off(64 << 20);
    // A loop device takes discards where the file system below can make holes.
    let name = flash.device().file_name().unwrap().to_str().unwrap();
    let most = fs::read_to_string(format!("/sys/block/{name}/queue/discard_max_bytes")).unwrap();
    let expected = if most.trim() == "0" { 7 } else { 0 };
    assert!(end.iter().all(|byte| *byte == expected), "discard_max_bytes {most}");
    pond.unmount(&[]).ok();
    mount_over(&pond, &[device], &["--reserve", "20%"]).ok();
    pond.unmount(&[]).ok();
}

#[test]
fn the_only_device_moves_to_a_block_device_under_a_writer() {
    let pond = Pond::new();
    make_ext4(&pond.at("device"), 96 << 20);
    let Some(new) = Loop::over(&pond.at("device")) else { return };
    let device = new.device().to_str().unwrap();
    mount_over(&pond, &["flash"], &["--size", SIZE]).ok();
    let (end, path) = (AtomicBool::new(false), pond.mnt().join("file"));
    let holds = std::thread::scope(|scope| {
        let writer = scope.spawn(|| write_and_verify(&path, &end));
        let at_last = EndAtLast(&end);
        wait_until("it is there", || path.exists());
        let before = fs::read(new.device()).unwrap();
        pool(&pond, "move", &[device.as_ref()]).refused(32, &["ext4 file system", "--format"]);
        assert!(fs::read(new.device()).unwrap() == before, "the device was touched");
        pool(&pond, "move", &[device.as_ref(), "--format".as_ref()]).refused(0, &["done"]);
        drop(at_last);
        writer.join().unwrap()
    });
    let status = pond.status();
    assert_eq!((&status["flashes"][0], &status["size_bytes"]), (&device.into(), &(96 << 20).into()));
    run(["check".as_ref(), pond.flash().as_os_str()]).refused(32, &["not a headpond pool"]);
    assert!(fs::read(&path).unwrap() == holds);
    // The pool is whole with one device: what is written stays there, and nothing has it go to the origin.
    run(["set".as_ref(), pond.mnt().as_os_str(), "protect=fewest-writes".as_ref()]).ok();
    run(["flush".as_ref(), pond.mnt().as_os_str()]).ok();
    let after = pattern(1 << 20, 1);
    write_and_sync(&pond.mnt().join("after"), &after);
    let status = pond.status();
    assert_eq!((&status["dirty_bytes"], &status["engine"]["exposed_blocks"]), (&(1 << 20).into(), &0.into()));
    pond.unmount(&["--keep-dirty"]).ok();
    assert_ne!(fs::read(pond.origin().join("after")).unwrap_or_default(), after);
    mount_over(&pond, &[device], &[]).ok();
    assert!(fs::read(&path).unwrap() == holds && fs::read(pond.mnt().join("after")).unwrap() == after);
    pond.unmount(&[]).ok();
    assert!(fs::read(pond.origin().join("file")).unwrap() == holds);
    assert!(fs::read(pond.origin().join("after")).unwrap() == after);
}

#[test]
fn a_block_device_that_has_left_is_free_for_others() {
    let pond = Pond::new();
    for name in ["device1", "device2"] {
        File::create(pond.at(name)).unwrap().set_len(80 << 20).unwrap();
    }
    let Some(one) = Loop::over(&pond.at("device1")) else { return };
    let Some(two) = Loop::over(&pond.at("device2")) else { return };
    mount_over(&pond, &[one.device().to_str().unwrap(), two.device().to_str().unwrap()], &["--format"]).ok();
    write_and_sync(&pond.mnt().join("file"), &pattern(2 << 20, 1));
    pool(&pond, "remove", &[two.device().as_os_str()]).ok();
    // Another user opens it for itself alone.
    let free = || {
        use std::os::unix::fs::OpenOptionsExt;
        File::options().read(true).custom_flags(0o200).open(two.device()).is_ok()
    };
    wait_until("it is free", free);
    assert!(fs::read(pond.mnt().join("file")).unwrap() == pattern(2 << 20, 1));
    pond.unmount(&[]).ok();
}
