//! Promise 11 from outside: the worker that serves dies, another one takes over, and programs notice a pause.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::lacking::has_root;
use crate::pond::{Pond, SIZE, Said, headpond, pattern, run, wait_until, write_and_sync};

/// Kills the worker, and waits for the next one.
fn take_over(pond: &Pond, daemon: usize) {
    let before = pond.status();
    pond.kill_worker(daemon);
    wait_until("another worker serves", || pond.status()["pid"] != before["pid"]);
    let after = pond.status();
    assert_eq!(after["takeovers"].as_u64(), before["takeovers"].as_u64().map(|count| count + 1), "{}", pond.log());
    assert_eq!(after["holder"], before["holder"]);
    let numbers = run(["stats".as_ref(), pond.mnt().as_os_str()]);
    assert!(numbers.text.contains(&format!("\ntakeovers_total {}\n", after["takeovers"])), "{}", numbers.text);
}

/// As this kernel is, and as one before Linux 6.9, which cannot send requests again.
const KERNELS: [&[(&str, &str)]; 2] = [&[], &[("HEADPOND_WITHOUT_SENDING_AGAIN", "1")]];

#[test]
fn what_was_written_and_not_synced_is_there_after_the_worker_was_killed() {
    KERNELS.iter().for_each(|kernel| unsynced_writes(kernel));
}

fn unsynced_writes(kernel: &[(&str, &str)]) {
    let mut pond = Pond::new();
    let daemon = pond.mount_foreground_with(&["--size", SIZE], kernel);
    let path = pond.mnt().join("file");
    let mut file = OpenOptions::new().create(true).truncate(true).read(true).write(true).open(&path).unwrap();
    let mut expected = Vec::new();
    for round in 0..4 {
        let more = pattern(300_000, round);
        file.seek(SeekFrom::End(0)).unwrap();
        file.write_all(&more).unwrap();
        expected.extend_from_slice(&more);
        take_over(&pond, daemon);
        let mut read = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut read).unwrap();
        assert!(read == expected, "round {round}: {} of {} bytes", read.len(), expected.len());
        assert!(fs::read(&path).unwrap() == expected);
    }
    file.sync_all().unwrap();
    drop(file);
    pond.unmount(&[]).ok();
    assert!(fs::read(pond.origin().join("file")).unwrap() == expected);
}

#[test]
fn everything_that_is_open_stays_open_and_names_stay_what_they_are() {
    let mut pond = Pond::new();
    let daemon = pond.mount_foreground(&["--size", SIZE]);
    let at = |name: &str| pond.mnt().join(name);
    fs::create_dir(at("dir")).unwrap();
    for number in 0..500 {
        File::create(at(&format!("dir/file-{number}"))).unwrap();
    }
    let (kept, gone) = (pattern(50_000, 1), pattern(70_000, 2));
    write_and_sync(&at("renamed"), &kept);
    let renamed = OpenOptions::new().read(true).write(true).open(at("renamed")).unwrap();
    write_and_sync(&at("removed"), &gone);
    let removed = OpenOptions::new().read(true).write(true).open(at("removed")).unwrap();
    let number = renamed.metadata().unwrap().ino();
    fs::rename(at("renamed"), at("dir/moved")).unwrap();
    fs::remove_file(at("removed")).unwrap();
    let mut listed: Vec<_> = fs::read_dir(at("dir")).unwrap().take(1).map(|entry| entry.unwrap().file_name()).collect();
    let mut listing = fs::read_dir(at("dir")).unwrap();
    listed.clear();
    listed.extend(listing.by_ref().take(10).map(|entry| entry.unwrap().file_name()));
    take_over(&pond, daemon);

    assert_eq!(renamed.metadata().unwrap().ino(), number);
    assert_eq!(fs::metadata(at("dir/moved")).unwrap().ino(), number);
    assert_eq!(fs::metadata(at("removed")).unwrap_err().kind(), ErrorKind::NotFound);
    let read = |file: &File, len: usize| {
        let mut bytes = vec![0; len];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    };
    assert!(read(&renamed, kept.len()) == kept && read(&removed, gone.len()) == gone);
    removed.write_all_at(b"still", 10).unwrap();
    removed.sync_all().unwrap();
    take_over(&pond, daemon);
    assert_eq!(&read(&removed, gone.len())[8..17], [&gone[8..10], b"still", &gone[15..17]].concat());
    assert_eq!(removed.metadata().unwrap().nlink(), 0);
    listed.extend(listing.map(|entry| entry.unwrap().file_name()));
    listed.sort();
    listed.dedup();
    assert_eq!(listed.len(), 501);
    drop((renamed, removed));
    pond.unmount(&[]).ok();
    assert_eq!(fs::read_dir(pond.origin().join("dir")).unwrap().count(), 501);
    assert!(!pond.origin().join(".headpond").exists());
}

#[test]
fn a_program_that_makes_and_removes_files_sees_no_error_while_workers_die() {
    KERNELS.iter().for_each(|kernel| made_and_removed(kernel));
}

fn made_and_removed(kernel: &[(&str, &str)]) {
    let mut pond = Pond::new();
    let daemon = pond.mount_foreground_with(&["--size", SIZE], kernel);
    let script = "cd \"$1\" || exit 9; i=0; while [ ! -e stop ]; do i=$((i+1)); \
                  mkdir d$i && echo $i > d$i/a && mv d$i/a d$i/b && ln d$i/b d$i/c && ln -s b d$i/l && \
                  [ \"$(cat d$i/l)\" = $i ] && rm d$i/b d$i/c d$i/l && rmdir d$i || { echo \"at $i\"; exit 1; }; done; echo $i";
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(script).arg("sh").arg(pond.mnt());
    let worker = shell.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    for _ in 0..6 {
        std::thread::sleep(std::time::Duration::from_millis(300));
        take_over(&pond, daemon);
    }
    File::create(pond.mnt().join("stop")).unwrap();
    let output = worker.wait_with_output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}");
    pond.unmount(&[]).ok();
    let left: Vec<_> = fs::read_dir(pond.origin()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["stop"]);
}

#[test]
fn a_holder_that_is_killed_ends_the_mount_with_errors_and_what_was_synced_is_safe() {
    let mut pond = Pond::new();
    let daemon = pond.mount_foreground(&["--size", SIZE]);
    let path = pond.mnt().join("file");
    write_and_sync(&path, b"synced");
    let file = File::open(&path).unwrap();
    pond.kill(daemon);
    assert!(file.read_at(&mut [0; 6], 0).is_err() || fs::metadata(&path).is_err());
    drop(file);
    pond.mount(&[]).ok();
    assert_eq!(fs::read(&path).unwrap(), b"synced");
    pond.unmount(&[]).ok();
}

#[test]
fn an_upgrade_goes_on_with_another_program_and_refuses_one_that_cannot() {
    let mut pond = Pond::new();
    let daemon = pond.mount_foreground(&["--size", SIZE]);
    let path = pond.mnt().join("file");
    let file = File::create(&path).unwrap();
    file.write_all_at(b"before", 0).unwrap();
    let before = pond.status();
    let program = pond.program(env!("CARGO_BIN_EXE_headpond"), "headpond-next");
    let upgrade = |program: &Path| {
        let said = headpond().arg("upgrade").arg(pond.mnt()).arg("--program").arg(program).output().unwrap();
        Said::from(said)
    };
    upgrade(&program).ok();
    let after = pond.status();
    assert_ne!(after["pid"], before["pid"]);
    let exe = fs::read_link(format!("/proc/{}/exe", after["pid"])).unwrap();
    assert_eq!(exe, program);
    file.write_all_at(b" after", 6).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"before after");
    upgrade(Path::new("/bin/true")).refused(2, &["cannot take over"]);
    assert_eq!(pond.status()["pid"], after["pid"]);
    take_over(&pond, daemon);
    run(["upgrade".as_ref(), pond.mnt().as_os_str(), "--json".as_ref()]).ok();
    drop(file);
    pond.unmount(&[]).ok();
    assert_eq!(fs::read(pond.origin().join("file")).unwrap(), b"before after");
}

/// A file that stays open over whatever comes, written in part.
struct HalfWritten {
    file: File,
    path: PathBuf,
}

impl HalfWritten {
    fn on(pond: &Pond) -> Self {
        let path = pond.mnt().join("file");
        let file = File::create(&path).unwrap();
        file.write_all_at(b"before", 0).unwrap();
        Self { file, path }
    }

    /// The rest can be written, and all of it read.
    #[track_caller]
    fn goes_on(self) {
        self.file.write_all_at(b" after", 6).unwrap();
        drop(self.file);
        assert_eq!(fs::read(&self.path).unwrap(), b"before after");
    }
}

/// Where a mount is, who serves it, and by which program.
fn server(pond: &Pond) -> (serde_json::Value, std::path::PathBuf) {
    let pid = pond.status()["pid"].clone();
    let program = fs::read_link(format!("/proc/{pid}/exe")).unwrap();
    (pid, program)
}

#[test]
fn an_upgrade_to_a_program_that_the_holder_cannot_open_is_refused_and_the_mount_goes_on() {
    if !has_root("for a mount name space") {
        return;
    }
    let mut pond = Pond::new();
    pond.mount_foreground(&["--size", SIZE]);
    let file = HalfWritten::on(&pond);
    let before = server(&pond);
    // Only the client's mount namespace has the program there.
    let script =
        "mount --bind \"$(dirname \"$1\")\" \"$2\" && exec \"$1\" upgrade \"$3\" --program \"$2/$(basename \"$1\")\"";
    let mut client = Command::new("unshare");
    client.args(["--mount", "--propagation", "private", "sh", "-c", script, "sh", env!("CARGO_BIN_EXE_headpond")]);
    let said = Said::from(client.arg(pond.at("other")).arg(pond.mnt()).output().unwrap());
    said.refused(2, &["the holder of the mount cannot open it: No such file", "Nothing was changed"]);
    let inside = pond.mnt().join("program");
    fs::write(&inside, "").unwrap();
    let said = run(["upgrade".as_ref(), pond.mnt().as_os_str(), "--program".as_ref(), inside.as_os_str()]);
    said.refused(2, &["lies in the mount itself", "Copy the program"]);
    assert_eq!(server(&pond), before);
    file.goes_on();
    run(["upgrade".as_ref(), pond.mnt().as_os_str()]).ok();
    assert_eq!(fs::read(pond.mnt().join("file")).unwrap(), b"before after");
    pond.unmount(&[]).ok();
}

#[test]
fn a_program_that_fails_at_once_leaves_the_mount_to_the_one_before() {
    let mut pond = Pond::new();
    pond.mount_foreground(&["--size", SIZE]);
    let file = HalfWritten::on(&pond);
    let before = server(&pond);
    let script =
        format!("#!/bin/sh\n[ \"$1\" = shared-layout ] && exec {} \"$@\"\nexit 3\n", env!("CARGO_BIN_EXE_headpond"));
    let program = pond.script("program", &script);
    let said = run(["upgrade".as_ref(), pond.mnt().as_os_str(), "--program".as_ref(), program.as_os_str()]);
    said.refused(2, &["did not come up, and the last program goes on"]);
    let after = server(&pond);
    assert!(after.0 != before.0 && after.1 == before.1, "{before:?} {after:?}");
    assert!(pond.log().contains("did not serve; going on with the last one"), "{}", pond.log());
    file.goes_on();
    pond.unmount(&[]).ok();
}

#[test]
fn a_program_that_shares_memory_in_another_way_is_refused_and_the_mount_goes_on() {
    let mut pond = Pond::new();
    pond.mount_foreground(&["--size", SIZE]);
    let file = HalfWritten::on(&pond);
    let before = server(&pond);
    let answers = |layout: &str| {
        let script = format!("#!/bin/sh\n[ \"$1\" = shared-layout ] && echo '{layout}' && exit 0\nexit 3\n");
        let program = pond.script(&format!("answers {layout}"), &script);
        run(["upgrade".as_ref(), pond.mnt().as_os_str(), "--program".as_ref(), program.as_os_str()])
    };
    let own = run(["shared-layout"]).ok().text.trim().to_owned();
    let (version, sizes) = own.split_once(": ").unwrap();
    let later = version.parse::<u32>().unwrap() + 1;
    for layout in [format!("{later}: {sizes}"), format!("{own}0"), String::new()] {
        answers(&layout)
            .refused(2, &["shares memory with the holder in another way", "Nothing was changed", "unmount"]);
        assert_eq!(server(&pond), before, "{layout}");
    }
    file.goes_on();
    pond.unmount(&[]).ok();
}

/// Does something on a thread, which may hang with the mount: the test then fails and does not hang, too.
pub fn before_long<T: Send + 'static>(what: &str, does: impl FnOnce() -> T + Send + 'static) -> T {
    let (send, done) = std::sync::mpsc::channel();
    std::thread::spawn(move || drop(send.send(does())));
    done.recv_timeout(std::time::Duration::from_secs(60)).unwrap_or_else(|_| panic!("{what}: it hangs, or panicked"))
}

#[test]
fn no_other_mount_gets_the_origin_while_workers_die() {
    let mut pond = Pond::new();
    let daemon = pond.mount_foreground(&["--size", SIZE]);
    let lock = OpenOptions::new().read(true).write(true).open(pond.origin().join(".headpond/lock")).unwrap();
    let (mut tries, mut refused) = (0_u64, 0_u64);
    for round in 0..6 {
        let before = pond.status()["pid"].clone();
        pond.kill_worker(daemon);
        // The lock is refused at any moment between the two workers.
        for _ in 0..200 {
            tries += 1;
            let asked = rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive);
            refused += u64::from(asked == Err(rustix::io::Errno::WOULDBLOCK));
            std::thread::sleep(std::time::Duration::from_micros(300));
        }
        if round % 3 == 0 {
            let other = pond.mount_places("origin", "mnt2", "flash2", &["--size", SIZE]);
            other.refused(11, &["headpond unmount"]);
        }
        wait_until("another worker serves", || pond.status()["pid"] != before);
    }
    assert_eq!(refused, tries);
    pond.unmount(&[]).ok();
    assert!(!pond.origin().join(".headpond").exists());
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
    pond.mount_places("origin", "mnt2", "flash2", &["--size", SIZE]).ok();
}

#[test]
fn no_other_mount_gets_the_flash_while_nobody_serves() {
    let mut pond = Pond::new();
    let hangs = pond.at("hangs");
    let daemon = pond.mount_foreground_with(&["--size", SIZE], &[("HEADPOND_RECOVERY_HANGS", hangs.to_str().unwrap())]);
    let path = pond.mnt().join("file");
    write_and_sync(&path, b"kept");
    fs::write(&hangs, "").unwrap();
    pond.kill_worker(daemon);
    let other = pond.mount_places("other", "mnt2", "flash", &["--size", SIZE, "--format", "--discard-dirty"]);
    other.refused(31, &[pond.flash().to_str().unwrap(), "in use by another headpond"]);
    assert_eq!(fs::read_dir(pond.at("other")).unwrap().count(), 0);
    fs::remove_file(&hangs).unwrap();
    assert_eq!(before_long("a read", move || fs::read(path).unwrap()), b"kept");
    pond.unmount(&[]).ok();
}

#[test]
fn a_successor_that_hangs_in_its_recovery_is_replaced() {
    let mut pond = Pond::new();
    let hangs = pond.at("hangs");
    let environment = [("HEADPOND_RECOVERY_HANGS", hangs.to_str().unwrap()), ("HEADPOND_HANGS_AFTER", "2")];
    let daemon = pond.mount_foreground_with(&["--size", SIZE], &environment);
    let path = pond.mnt().join("file");
    write_and_sync(&path, b"kept");
    fs::write(&hangs, "").unwrap();
    pond.kill_worker(daemon);
    wait_until("the holder notices", || pond.log().contains("hung, and was killed"));
    fs::remove_file(&hangs).unwrap();
    assert_eq!(before_long("a read", move || fs::read(path).unwrap()), b"kept");
    pond.unmount(&[]).ok();
}

#[test]
fn five_successors_that_do_not_come_up_end_the_mount_with_errors_and_what_was_synced_is_safe() {
    let mut pond = Pond::new();
    let hangs = pond.at("hangs");
    let environment = [("HEADPOND_RECOVERY_HANGS", hangs.to_str().unwrap()), ("HEADPOND_HANGS_AFTER", "3")];
    let daemon = pond.mount_foreground_with(&["--size", SIZE], &environment);
    let path = pond.mnt().join("file");
    write_and_sync(&path, &pattern(100_000, 3));
    fs::write(&hangs, "").unwrap();
    pond.kill_worker(daemon);
    // It comes while nobody serves, and waits.
    let waiting = pond.mnt().join("other");
    let error = before_long("a caller", move || fs::metadata(waiting).unwrap_err());
    assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::CONNABORTED.raw_os_error()), "{error}");
    assert_eq!(pond.wait(daemon), 1);
    let log = pond.log();
    assert!(log.contains("5 in a row did not come up: the mount ends"), "{log}");
    assert_eq!(log.matches("the worker hung, and was killed").count(), 5, "{log}");
    fs::remove_file(&hangs).unwrap();
    pond.mount(&[]).ok();
    assert!(fs::read(&path).unwrap() == pattern(100_000, 3));
    pond.unmount(&[]).ok();
}

#[test]
fn a_worker_whose_shard_hangs_while_it_serves_is_replaced() {
    let mut pond = Pond::new();
    let hangs = pond.at("hangs");
    let environment = [("HEADPOND_SHARD_HANGS", hangs.to_str().unwrap()), ("HEADPOND_HANGS_AFTER", "5")];
    pond.mount_foreground_with(&["--size", SIZE], &environment);
    let path = pond.mnt().join("file");
    let file = File::create(&path).unwrap();
    file.write_all_at(b"not synced", 0).unwrap();
    let before = pond.status();
    fs::write(&hangs, "").unwrap();
    wait_until("the holder notices", || pond.log().contains("the worker hung, and was killed"));
    fs::remove_file(&hangs).unwrap();
    assert_eq!(before_long("a read", move || fs::read(path).unwrap()), b"not synced");
    before_long("a sync", move || file.sync_all().unwrap());
    let after = pond.status();
    assert!(after["pid"] != before["pid"] && after["holder"] == before["holder"], "{before} {after}");
    pond.unmount(&[]).ok();
    assert_eq!(fs::read(pond.origin().join("file")).unwrap(), b"not synced");
}

#[test]
fn a_tree_with_more_files_than_the_ledger_has_room_for_is_walked_while_workers_die() {
    const ROOM: usize = 4000;
    let mut pond = Pond::new();
    let tree = pond.origin().join("tree");
    for number in 0..3 * ROOM {
        let directory = tree.join(format!("d{}", number / 500));
        if number % 500 == 0 {
            fs::create_dir_all(&directory).unwrap();
        }
        File::create(directory.join(format!("file-{number}"))).unwrap();
    }
    let room = ROOM.to_string();
    let daemon = pond.mount_foreground_with(&["--size", SIZE], &[("HEADPOND_LEDGER_INODES", &room)]);
    let open = File::open(pond.mnt().join("tree/d0/file-7")).unwrap();
    let tree = pond.mnt().join("tree");
    let walk = std::thread::spawn(move || {
        let mut seen = 0;
        for directory in fs::read_dir(tree).unwrap() {
            for entry in fs::read_dir(directory.unwrap().path()).unwrap() {
                let path = entry.unwrap().path();
                assert!(fs::metadata(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())).is_file());
                seen += 1;
            }
        }
        seen
    });
    let mut kills = 0;
    while !walk.is_finished() && kills < 4 {
        std::thread::sleep(std::time::Duration::from_millis(400));
        take_over(&pond, daemon);
        kills += 1;
    }
    assert_eq!(before_long("the walk", move || walk.join().unwrap()), 3 * ROOM);
    take_over(&pond, daemon);
    assert_eq!(open.metadata().unwrap().len(), 0);
    assert!(!pond.log().contains("more files are in use than can be noted"), "{}", pond.log());
    drop(open);
    pond.unmount(&[]).ok();
}

/// The processors of each thread of a process, as the kernel lists them.
fn processors_of(process: u64) -> BTreeSet<String> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    threads
        .filter_map(|thread| fs::read_to_string(thread.ok()?.path().join("status")).ok())
        .filter_map(|status| {
            let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
            Some(line.trim().to_owned())
        })
        .collect()
}

#[test]
fn a_mount_that_was_given_processors_runs_on_no_other_nor_does_the_next_worker() {
    let own = processors_of(std::process::id().into()).first().unwrap().clone();
    let last = own.rsplit(['-', ',']).next().unwrap().to_owned();
    let mut pond = Pond::new();
    pond.mount(&["--size", SIZE, "--processors", "1023"]).refused(2, &["cannot run on processor 1023", &own]);
    let daemon = pond.mount_foreground(&["--size", SIZE, "--processors", &last]);
    let worker = |pond: &Pond| pond.status()["pid"].as_u64().unwrap();
    write_and_sync(&pond.mnt().join("file"), &pattern(100_000, 1));
    assert_eq!(processors_of(worker(&pond)), [last.clone()].into());
    take_over(&pond, daemon);
    write_and_sync(&pond.mnt().join("file"), &pattern(100_000, 2));
    assert_eq!(processors_of(worker(&pond)), [last].into());
}
