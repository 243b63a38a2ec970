//! The origin does not answer: a mount ends all the same when the host goes down, and loses nothing.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::Command;

use headpond_control::has_ended;

use crate::pond::{Pond, SIZE, pattern, run, wait_until, write_and_sync};
use crate::unseen::before_long;

/// A second mount at `mnt2` whose processes stand still when told to: an origin that does not answer.
struct Away(Vec<u32>);

impl Away {
    fn mount(pond: &Pond) -> Self {
        pond.mount_places("other", "mnt2", "flash2", &["--size", SIZE]).ok();
        Self(processes(pond, "mnt2"))
    }

    fn signal(&self, signal: &str) {
        for process in &self.0 {
            assert!(Command::new("kill").args([signal, &process.to_string()]).status().unwrap().success());
        }
    }
}

impl Drop for Away {
    /// Programs that still wait for this origin get errors.
    fn drop(&mut self) {
        for process in &self.0 {
            let _ = Command::new("kill").args(["-KILL", &process.to_string()]).output();
        }
    }
}

/// The holder and the worker of a mount.
fn processes(pond: &Pond, mnt: &str) -> Vec<u32> {
    let status = run(["status".as_ref(), pond.at(mnt).as_os_str(), "--json".as_ref()]).ok().json();
    ["holder", "pid"].map(|name| status[name].as_u64().unwrap().try_into().unwrap()).into()
}

#[test]
fn a_mount_whose_origin_does_not_answer_ends_at_sigterm_and_the_next_one_has_everything() {
    let pond = Pond::new();
    // headpond refuses a mount of its own as an origin, and not a directory in it. The kernel has no page of this file.
    fs::create_dir(pond.at("other/slow")).unwrap();
    write_and_sync(&pond.at("other/slow/cold"), &pattern(1 << 20, 1));
    let away = Away::mount(&pond);
    pond.mount_places("mnt2/slow", "mnt", "flash", &["--size", SIZE]).ok();
    for change in ["protect=fewest-writes", "shutdown-flush=1s"] {
        run(["set".as_ref(), pond.mnt().as_os_str(), change.as_ref()]).ok();
    }
    let at = |name: &str| pond.mnt().join(name);
    write_and_sync(&at("synced"), &pattern(1 << 20, 2));
    // The origin knows its name, and has not synced it.
    let new = File::create(at("new")).unwrap();
    new.write_all_at(&pattern(1 << 20, 3), 0).unwrap();
    // An open would wait for the origin.
    let (synced, cold) = (File::options().write(true).open(at("synced")).unwrap(), File::open(at("cold")).unwrap());
    let (mnt, processes) = (pond.mnt(), processes(&pond, "mnt"));
    away.signal("-STOP");
    let waiting = before_long("what the pool can do alone", move || {
        synced.write_all_at(&pattern(1 << 19, 4), 0).unwrap();
        synced.sync_data().unwrap();
        synced.write_all_at(&pattern(1 << 19, 5), 1 << 19).unwrap();
        new.write_all_at(&pattern(1 << 19, 6), 0).unwrap();
        // A program waits for the origin meanwhile, and so do the looks at it.
        let waiting = std::thread::spawn(move || cold.read_at(&mut [0; 4096], 0));
        wait_until("the origin is said to be silent", || {
            let status = run(["status".as_ref(), mnt.as_os_str(), "--json".as_ref()]).ok().json();
            status["origin_silent_seconds"].as_u64() > Some(0)
        });
        waiting
    });
    assert!(Command::new("kill").arg(processes[0].to_string()).status().unwrap().success());
    wait_until("its processes have ended", || processes.iter().all(|process| has_ended(*process)));
    assert!(before_long("who waited", move || waiting.join().unwrap()).is_err());
    let log = pond.log();
    assert!(log.contains("1 s, and ends") && log.contains("stay in the pool. The origin does not answer"), "{log}");
    away.signal("-CONT");
    run(["unmount".as_ref(), pond.at("mnt2").as_os_str()]).ok();
    pond.mount_places("other/slow", "mnt", "flash", &[]).ok();
    let synced = [4, 5].map(|seed| pattern(1 << 19, seed)).concat();
    let new = [pattern(1 << 19, 6), pattern(1 << 20, 3).split_off(1 << 19)].concat();
    assert!(fs::read(at("synced")).unwrap() == synced);
    assert!(fs::read(at("new")).unwrap() == new);
    pond.unmount(&[]).ok();
    assert!(fs::read(pond.at("other/slow/synced")).unwrap() == synced);
    assert!(fs::read(pond.at("other/slow/new")).unwrap() == new);
}

/// While a daemon stands still, `status` says so, and ends.
#[test]
fn a_daemon_that_gives_no_answer_holds_up_nobody_who_asks_for_it() {
    let pond = Pond::new();
    let away = Away::mount(&pond);
    let mnt = pond.at("mnt2");
    away.signal("-STOP");
    let asked = mnt.clone();
    let one = std::thread::spawn(move || run(["status".as_ref(), asked.as_os_str()]));
    let both = before_long("a look at the mounts", || [run(["status"]), one.join().unwrap()]);
    for said in both {
        assert!(said.text.contains("does not answer"), "{}", said.text);
    }
    away.signal("-CONT");
    run(["status".as_ref(), mnt.as_os_str()]).ok();
    run(["unmount".as_ref(), mnt.as_os_str()]).ok();
}
