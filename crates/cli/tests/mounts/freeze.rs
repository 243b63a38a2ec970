//! `headpond freeze`: a snapshot shows the origin of one moment, nothing changes there meanwhile, and every way out
//! thaws.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::loop_device::{Loop, has, run as run_command};
use crate::pond::{Pond, SIZE, Said, headpond, pattern, run, wait_until, write_and_sync};

/// Bytes of a record.
const RECORD: usize = 4096;
/// Records that fit a file. Two files take turns.
const SLOTS: u64 = 2000;

/// A command that runs under a freeze until the test lets it go on.
struct Held(Child);

impl Held {
    /// Starts one, and waits until it runs: first `script`, then what lets it go on, then `script` again.
    fn start(pond: &Pond, most: &str, script: &str) -> Self {
        let (go, runs) = (pond.at("go"), pond.at("runs"));
        let _ = fs::remove_file(&go);
        let _ = fs::remove_file(&runs);
        let (go, begun) = (go.display(), runs.display());
        // A command whose freeze is killed goes on by itself: it ends with the test's directory.
        let waits = format!("until [ -e {go} ] || [ ! -e {begun} ]; do sleep 0.02; done");
        let script = format!("{script}\necho $$ > {begun}\n{waits}\n{script}");
        let mut command = headpond();
        command.arg("freeze").arg(pond.mnt()).args(["--quiet", "--for", most, "--", "sh", "-e", "-c", &script]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let held = Self(command.spawn().unwrap());
        wait_until("the command runs", || fs::read_to_string(&runs).is_ok_and(|pid| pid.ends_with('\n')));
        held
    }

    fn go_on(self, pond: &Pond) -> Said {
        fs::write(pond.at("go"), "").unwrap();
        self.0.wait_with_output().unwrap().into()
    }
}

fn freeze(pond: &Pond, command: &[&str]) -> Said {
    let mnt = pond.mnt();
    run([OsStr::new("freeze"), mnt.as_os_str(), OsStr::new("--")].into_iter().chain(command.iter().map(OsStr::new)))
}

fn is_frozen(pond: &Pond) -> bool {
    pond.status()["state"] == "frozen"
}

/// The number of each record in a copy of the two files, in the order in which they were written.
fn records(pond: &Pond, copy: &str) -> Vec<u64> {
    let files = ["even", "odd"].map(|name| fs::read(pond.at(copy).join(name)).unwrap());
    let numbers = (0..2 * SLOTS).map(|number| {
        let at = (number / 2) as usize * RECORD;
        let record = &files[(number % 2) as usize][at..at + RECORD];
        let number = u64::from_le_bytes(record[..8].try_into().unwrap());
        assert!(record.chunks(8).all(|word| word == &record[..8]), "a torn record");
        number
    });
    numbers.collect()
}

/// Two files that have room for all records, and none of them.
fn make_room_for_records(mnt: &Path) {
    for name in ["even", "odd"] {
        write_and_sync(&mnt.join(name), &vec![0; RECORD * SLOTS as usize]);
    }
}

/// Writes and syncs one record after the other, until `stop`.
fn write_records(mnt: &Path, stop: &AtomicBool, written: &AtomicU64) {
    let files = ["even", "odd"].map(|name| File::options().write(true).open(mnt.join(name)).unwrap());
    for number in 1..2 * SLOTS {
        if stop.load(Ordering::SeqCst) {
            return;
        }
        let file = &files[(number % 2) as usize];
        file.write_all_at(&number.to_le_bytes().repeat(RECORD / 8), number / 2 * RECORD as u64).unwrap();
        file.sync_data().unwrap();
        written.store(number, Ordering::SeqCst);
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// The last of these records, which lack none before it.
#[track_caller]
fn last_record(records: &[u64]) -> u64 {
    let last = (1..2 * SLOTS).take_while(|number| records[*number as usize] == *number).count();
    assert!(records[last + 1..].iter().all(|number| *number == 0), "later ones without an earlier one");
    last as u64
}

#[test]
fn a_snapshot_is_the_origin_of_one_moment_and_nothing_changes_there_though_writers_go_on() {
    let pond = Pond::new();
    write_and_sync(&pond.origin().join("cold"), &pattern(1 << 20, 1));
    pond.mount(&["--size", SIZE]).ok();
    let mnt = pond.mnt();
    make_room_for_records(&mnt);
    (0..40).for_each(|number| fs::create_dir(mnt.join(format!("dir{number}"))).unwrap());
    let (stop, written, made) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let _stop = Stop(&stop);
        let (stop, written, made, mnt) = (&stop, &written, &made, &mnt);
        scope.spawn(move || write_records(mnt, stop, written));
        wait_until("some are written", || written.load(Ordering::SeqCst) > 50);
        let before = written.load(Ordering::SeqCst);
        let (origin, copy, lists) = (pond.origin(), pond.at("copy"), pond.at("lists"));
        let script = format!(
            "cp -a {origin}/. {copy}; find {origin} -type f -printf '%P %s %T@ ' -exec md5sum {{}} ';' >> {lists}",
            origin = origin.display(),
            copy = copy.display(),
            lists = lists.display()
        );
        fs::create_dir(&copy).unwrap();
        let held = Held::start(&pond, "60s", &script);
        let status = pond.status();
        assert_eq!(status["state"], "frozen");
        assert!(status["frozen_left_seconds"].as_u64().unwrap() > 0, "{status}");
        // More than the mount has threads. Each has its own directory: the kernel locks that meanwhile.
        for number in 0..40 {
            scope.spawn(move || {
                fs::create_dir(mnt.join(format!("dir{number}/made"))).unwrap();
                made.fetch_add(1, Ordering::SeqCst);
            });
        }
        assert!(fs::read(mnt.join("cold")).unwrap() == pattern(1 << 20, 1), "misses are served");
        let then = written.load(Ordering::SeqCst);
        wait_until("the writer has gone on", || written.load(Ordering::SeqCst) >= then + 50);
        assert_eq!(freeze(&pond, &["true"]).refused(2, &["frozen already"]).status, 2);
        assert_eq!(made.load(Ordering::SeqCst), 0, "what changes names waits");
        assert!(is_frozen(&pond), "it was so all the time");
        held.go_on(&pond).ok();
        wait_until("what waited is done", || made.load(Ordering::SeqCst) == 40);
        let lists = fs::read_to_string(lists).unwrap();
        let lists: Vec<&str> = lists.lines().collect();
        let (first, second) = lists.split_at(lists.len() / 2);
        assert!(first.len() > 3);
        assert_eq!(first, second, "content, sizes and times");
        let last = last_record(&records(&pond, "copy"));
        assert!(last >= before, "{before} were acknowledged, and the copy has {last}");
        assert!(last < then + 50, "and what was written meanwhile is not there");
        stop.store(true, Ordering::SeqCst);
    });
    pond.unmount(&[]).ok();
    let last = written.load(Ordering::SeqCst) as usize;
    assert_eq!(records(&pond, "origin")[last], last as u64);
}

#[test]
fn a_snapshot_of_a_btrfs_subvolume_is_the_origin_of_one_moment() {
    if !has("mkfs.btrfs") || !has("btrfs") {
        return;
    }
    let pond = Pond::new();
    File::create(pond.at("disk")).unwrap().set_len(512 << 20).unwrap();
    run_command(Command::new("mkfs.btrfs").arg("-q").arg(pond.at("disk")));
    let Some(mut disk) = Loop::over(&pond.at("disk")) else { return };
    disk.mount(&pond.at("other"), "rw");
    let subvolume = pond.at("other/slow");
    run_command(Command::new("btrfs").args(["subvolume", "create"]).arg(&subvolume));
    pond.mount_places("other/slow", "mnt", "flash", &["--size", SIZE]).ok();
    let mnt = pond.mnt();
    make_room_for_records(&mnt);
    let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let _stop = Stop(&stop);
        scope.spawn(|| write_records(&mnt, &stop, &written));
        for round in 0..3 {
            let enough = written.load(Ordering::SeqCst) + 50;
            wait_until("some are written", || written.load(Ordering::SeqCst) > enough);
            let before = written.load(Ordering::SeqCst);
            let name = format!("other/snapshot{round}");
            let (from, to) = (subvolume.to_str().unwrap(), pond.at(&name));
            freeze(&pond, &["btrfs", "subvolume", "snapshot", "-r", from, to.to_str().unwrap()]).ok();
            let last = last_record(&records(&pond, &name));
            assert!(last >= before, "{before} were acknowledged, and the snapshot has {last}");
            wait_until("the writer goes on", || written.load(Ordering::SeqCst) > last);
            assert_eq!(last_record(&records(&pond, &name)), last, "it stays what it is");
        }
    });
    pond.unmount(&[]).ok();
    let last = written.load(Ordering::SeqCst);
    assert_eq!(last_record(&records(&pond, "other/slow")), last);
    disk.unmount();
}

#[test]
fn an_upgrade_ends_a_freeze_and_the_client_says_so() {
    let pond = Pond::new();
    pond.mount(&["--size", SIZE]).ok();
    let mnt = pond.mnt();
    write_and_sync(&mnt.join("a"), &pattern(1 << 20, 1));
    let held = Held::start(&pond, "60s", "true");
    assert!(is_frozen(&pond));
    run([OsStr::new("upgrade"), mnt.as_os_str()]).ok();
    assert!(!is_frozen(&pond));
    fs::create_dir(mnt.join("made")).unwrap();
    assert!(pond.origin().join("made").exists());
    held.go_on(&pond).refused(75, &["Do not trust the snapshot"]);
    write_and_sync(&mnt.join("a"), &pattern(1 << 20, 2));
    freeze(&pond, &["cp", pond.origin().join("a").to_str().unwrap(), pond.at("copy").to_str().unwrap()]).ok();
    assert!(fs::read(pond.at("copy")).unwrap() == pattern(1 << 20, 2), "the next one is whole");
    pond.unmount(&[]).ok();
}

/// Ends the writer, also when the test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn the_command_decides_the_status_and_each_end_thaws() {
    let pond = Pond::new();
    pond.mount(&["--size", SIZE]).ok();
    let mnt = pond.mnt();
    write_and_sync(&mnt.join("a"), &pattern(1 << 20, 1));
    let copy = pond.at("a");
    freeze(&pond, &["cp", pond.origin().join("a").to_str().unwrap(), copy.to_str().unwrap()]).ok();
    assert!(fs::read(&copy).unwrap() == pattern(1 << 20, 1), "what was dirty is there");
    freeze(&pond, &["sh", "-c", "exit 7"]).refused(7, &[]);
    freeze(&pond, &["sh", "-c", "kill -KILL $$"]).refused(128 + 9, &[]);
    freeze(&pond, &["/no/such/command"]).refused(1, &["/no/such/command"]);
    wait_until("it has thawed", || !is_frozen(&pond));
    // The client dies, and leaves the command.
    let mut held = Held::start(&pond, "60s", "true");
    assert!(is_frozen(&pond));
    held.0.kill().unwrap();
    held.0.wait().unwrap();
    wait_until("it has thawed", || !is_frozen(&pond));
    fs::write(pond.at("go"), "").unwrap();
    // The time is over. It counts from before the origin's file system is synced, which may take seconds.
    let held = Held::start(&pond, "10s", "true");
    fs::create_dir(mnt.join("waited")).unwrap();
    wait_until("it has thawed", || !is_frozen(&pond));
    held.go_on(&pond).refused(75, &["Do not trust the snapshot", "--for"]);
    // The operator ends it.
    let mut held = Held::start(&pond, "60s", "true");
    assert!(Command::new("kill").args(["-INT", &held.0.id().to_string()]).status().unwrap().success());
    assert_eq!(held.0.wait().unwrap().code(), Some(73));
    wait_until("it has thawed", || !is_frozen(&pond));
    fs::create_dir(mnt.join("again")).unwrap();
    pond.flush().ok();
    pond.unmount(&[]).ok();
}

#[test]
fn writes_that_must_go_to_the_origin_wait_for_the_thaw_and_reads_do_not() {
    let pond = Pond::new();
    pond.mount(&["--size", SIZE, "--mode", "write-through"]).ok();
    let mnt = pond.mnt();
    write_and_sync(&mnt.join("a"), &pattern(1 << 20, 1));
    let held = Held::start(&pond, "60s", "true");
    let before = fs::metadata(pond.origin().join("a")).unwrap().modified().unwrap();
    let done = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for number in 0..40 {
            let (done, mnt) = (&done, &mnt);
            scope.spawn(move || {
                let file = File::options().write(true).open(mnt.join("a")).unwrap();
                file.write_all_at(&pattern(4096, 2), number * 8192).unwrap();
                done.fetch_add(1, Ordering::SeqCst);
            });
        }
        let mut block = vec![0; 4096];
        File::open(mnt.join("a")).unwrap().read_exact_at(&mut block, 4096).unwrap();
        assert!(block == pattern(1 << 20, 1)[4096..8192]);
        assert_eq!(done.load(Ordering::SeqCst), 0);
        assert_eq!(fs::metadata(pond.origin().join("a")).unwrap().modified().unwrap(), before);
        held.go_on(&pond).ok();
    });
    assert_eq!(done.load(Ordering::SeqCst), 40);
    let content = fs::read(pond.origin().join("a")).unwrap();
    assert!((0..40).all(|number| content[number * 8192..][..4096] == pattern(4096, 2)));
    pond.unmount(&[]).ok();
}

#[test]
fn the_end_of_a_worker_and_of_the_mount_thaw_and_the_client_says_so() {
    let mut pond = Pond::new();
    let daemon = pond.mount_foreground(&["--size", SIZE]);
    let mnt = pond.mnt();
    write_and_sync(&mnt.join("a"), &pattern(1 << 20, 1));
    let held = Held::start(&pond, "60s", "true");
    pond.kill_worker(daemon);
    fs::create_dir(mnt.join("made")).unwrap();
    assert!(pond.origin().join("made").exists());
    held.go_on(&pond).refused(75, &["Do not trust the snapshot"]);
    let file = File::options().write(true).open(mnt.join("a")).unwrap();
    let held = Held::start(&pond, "60s", "true");
    std::thread::scope(|scope| {
        // It waits at the time of the signal, or comes too late.
        scope.spawn(|| drop(fs::create_dir(mnt.join("waits"))));
        file.write_all_at(&pattern(1 << 20, 2), 0).unwrap();
        file.sync_data().unwrap();
        assert_eq!(pond.signal(daemon, "-TERM"), 0);
    });
    held.go_on(&pond).refused(75, &["Do not trust the snapshot"]);
    assert!(fs::read(pond.origin().join("a")).unwrap() == pattern(1 << 20, 2), "the end flushed it");
}

#[test]
fn a_full_pool_makes_writers_wait_for_the_thaw_and_loses_nothing() {
    let pond = Pond::new();
    pond.mount(&["--size", SIZE]).ok();
    let path = pond.mnt().join("a");
    write_and_sync(&path, &vec![0; 100 << 20]);
    let held = Held::start(&pond, "60s", "true");
    let (written, over) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let _stop = Stop(&over);
        scope.spawn(|| {
            let file = File::options().write(true).open(&path).unwrap();
            for number in 0..100 {
                file.write_all_at(&pattern(1 << 20, number), number << 20).unwrap();
                written.store(number + 1, Ordering::SeqCst);
            }
            file.sync_data().unwrap();
        });
        // The pool takes no more than 64 MiB, and destage stands still. It has stopped if it does not go on for a while.
        let mut last = (u64::MAX, 0);
        wait_until("the writer waits", || {
            let now = written.load(Ordering::SeqCst);
            last = if now == last.0 { (now, last.1 + 1) } else { (now, 0) };
            last.1 > 100
        });
        assert!(last.0 < 100, "the pool cannot have taken all");
        assert!(is_frozen(&pond));
        held.go_on(&pond).ok();
    });
    assert_eq!(written.load(Ordering::SeqCst), 100);
    pond.unmount(&[]).ok();
    let content = fs::read(pond.origin().join("a")).unwrap();
    assert!((0..100).all(|number| content[number << 20..][..1 << 20] == pattern(1 << 20, number as u64)));
}

#[test]
fn a_log_that_only_grows_is_in_the_snapshot_up_to_one_moment_and_goes_on_after_the_thaw() {
    let pond = Pond::new();
    pond.mount(&["--size", SIZE]).ok();
    let path = pond.mnt().join("log");
    write_and_sync(&path, b"");
    let (stop, lines) = (AtomicBool::new(false), AtomicU64::new(0));
    let line = |number: u64| format!("{number:>99}\n");
    std::thread::scope(|scope| {
        let _stop = Stop(&stop);
        scope.spawn(|| {
            let mut log = File::options().append(true).open(&path).unwrap();
            for number in 0.. {
                if stop.load(Ordering::SeqCst) {
                    return;
                }
                std::io::Write::write_all(&mut log, line(number).as_bytes()).unwrap();
                log.sync_data().unwrap();
                lines.store(number + 1, Ordering::SeqCst);
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        });
        for round in 0..3 {
            let enough = lines.load(Ordering::SeqCst) + 20;
            wait_until("the log grows", || lines.load(Ordering::SeqCst) > enough);
            let before = lines.load(Ordering::SeqCst);
            let copy = pond.at(&format!("copy{round}"));
            let script = format!("cat {} > {}", pond.origin().join("log").display(), copy.display());
            let held = Held::start(&pond, "60s", &script);
            let frozen = fs::read(&copy).unwrap();
            held.go_on(&pond).ok();
            assert!(fs::read(&copy).unwrap() == frozen, "the origin has changed meanwhile");
            let whole: Vec<u8> = (0..frozen.len() as u64 / 100).flat_map(|number| line(number).into_bytes()).collect();
            assert!(frozen == whole, "round {round}: {} bytes are no whole lines", frozen.len());
            assert!(frozen.len() as u64 >= before * 100, "round {round}: {before} lines were durable before");
        }
    });
    pond.unmount(&[]).ok();
    let last = lines.load(Ordering::SeqCst) as usize;
    assert!(fs::read(pond.origin().join("log")).unwrap().len() >= last * 100);
}

#[test]
fn a_freeze_that_cannot_come_about_says_why_within_its_time_and_nothing_stays_frozen() {
    let mut pond = Pond::new();
    let held = pond.at("held");
    let environment = [("HEADPOND_ORIGIN_SYNC_WAITS_FOR", held.to_str().unwrap())];
    pond.mount_foreground_with(&["--size", SIZE], &environment);
    let (mnt, ran) = (pond.mnt(), pond.at("ran"));
    write_and_sync(&mnt.join("a"), &pattern(1 << 20, 1));
    let freeze = |most: &str| {
        let touch = ["--".as_ref(), OsStr::new("touch"), ran.as_os_str()];
        run([OsStr::new("freeze"), mnt.as_os_str(), "--for".as_ref(), most.as_ref()].into_iter().chain(touch))
    };
    // The origin does not answer.
    fs::write(&held, "").unwrap();
    freeze("1s").refused(75, &["--for"]);
    assert!(!ran.exists(), "nothing ran");
    wait_until("it has thawed", || !is_frozen(&pond));
    fs::create_dir(mnt.join("made")).unwrap();
    fs::remove_file(&held).unwrap();
    freeze("60s").ok();
    pond.unmount(&[]).ok();
}
