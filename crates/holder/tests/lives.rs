//! Workers that die in every way, and the holder that goes on. The worker is this test program, started once more.

#![allow(clippy::unwrap_used)]

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use headpond_holder::{Patience, Program, Sizes, Tie, Told, hold};

mod in_fuse;

const SIZES: Sizes = Sizes { tail_words: 1, ledger_words: 1, journal_words: 1, tail_bytes: 4096, journal_bytes: 4096 };

/// The directory of the test that runs, and what its workers do, one after the other.
const PLACE: &str = "HEADPOND_TEST_PLACE";
const LIVES: &str = "HEADPOND_TEST_LIVES";

/// Tests hand down what their workers do in the environment, so they run one at a time.
static ONE: Mutex<()> = Mutex::new(());

/// What came of a holder: its status, what it noted, and what its workers wrote.
struct Seen {
    status: u8,
    notes: Vec<String>,
    written: String,
    served: bool,
    /// How often the holder looked after its worker.
    looks: usize,
}

fn lives(lives: &str) -> Seen {
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let place = tempfile::tempdir().unwrap();
    let (mut notes, mut served, mut looks) = (Vec::new(), false, 0);
    let arguments = ["worker", "--exact", "--ignored", "--nocapture"].map(Into::into).to_vec();
    // The only thread that reads or writes the environment is this one.
    #[allow(unsafe_code)]
    // SAFETY: see above; the lock keeps other tests out.
    unsafe {
        std::env::set_var(PLACE, place.path());
        std::env::set_var(LIVES, lives);
    }
    let limits = getrlimit(Resource::Nofile);
    let mut not_started = 0;
    let status = hold(
        Program::own(arguments).unwrap(),
        SIZES,
        Patience(2),
        |told| match told {
            Told::Line(line) => {
                notes.push(line.to_owned());
                not_started += u32::from(line.contains("could not be started"));
                if not_started == 3 {
                    setrlimit(Resource::Nofile, limits).unwrap();
                }
            }
            Told::Watching => looks += 1,
        },
        || {
            served = true;
            Ok(())
        },
    )
    .unwrap();
    let written = fs::read_to_string(place.path().join("written")).unwrap_or_default();
    Seen { status, notes, written, served, looks }
}

#[test]
#[ignore = "not a test: it is the worker of the others"]
fn worker() {
    let Some(place) = std::env::var_os(PLACE).map(PathBuf::from) else { return };
    let lives = std::env::var(LIVES).unwrap();
    if fs::remove_file(place.join("deaf")).is_ok() {
        std::thread::sleep(std::time::Duration::from_secs(60));
    }
    let (tie, inherited) = Tie::take(SIZES).unwrap();
    let tie = Arc::new(tie);
    let life = usize::try_from(inherited.lives).unwrap();
    let mut log = OpenOptions::new().create(true).append(true).open(place.join("written")).unwrap();
    let word = &inherited.arena.tail_words[0];
    writeln!(log, "life {life}, word {}, note {:?}", word.load(Ordering::Acquire), inherited.notes.get("so")).unwrap();
    if let Some(kept) = inherited.kept.get("file") {
        let (mut file, mut text) = (File::from(kept.try_clone().unwrap()), String::new());
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        writeln!(log, "kept {text}").unwrap();
    }
    for step in lives.split(',').nth(life).unwrap_or("end").split('+') {
        match step {
            "word" => drop(word.fetch_add(1, Ordering::Release)),
            "note" => tie.note("so", &format!("said in life {life}")).unwrap(),
            "notes" => (0..150).for_each(|number| tie.note(&format!("note-{number}"), "text").unwrap()),
            "keep" => {
                // Without a name from the start: only the holder's descriptor is left of it.
                let mut file = tempfile::tempfile().unwrap();
                write!(file, "of life {life}").unwrap();
                tie.keep("file", file.as_fd()).unwrap();
            }
            "release" => tie.release("file").unwrap(),
            "ready" => tie.ready().unwrap(),
            // Much longer than a worker has to serve so that it counts as one that came up.
            "up" => (0..6).for_each(|_| {
                inherited.arena.beat().fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(std::time::Duration::from_millis(500));
            }),
            // Two threads without a pause: files come and go, and one is kept again and again.
            "talk" => {
                let (one, other) = (tie.clone(), tie.clone());
                std::thread::spawn(move || {
                    for number in 0_u64.. {
                        one.keep(&format!("file-{number}"), std::io::stderr().as_fd()).unwrap();
                        one.release(&format!("file-{number}")).unwrap();
                    }
                });
                std::thread::spawn(move || {
                    loop {
                        other.keep("again", std::io::stderr().as_fd()).unwrap();
                    }
                });
            }
            // A signal for the holder, which is this process's parent, a moment after this process is gone.
            "term-later" => {
                let holder = rustix::process::getppid().unwrap().as_raw_nonzero();
                let gone = format!("while kill -0 {} 2> /dev/null; do sleep 0.02; done", std::process::id());
                let kill = format!("({gone}; sleep 0.3; kill -TERM {holder}) &");
                let null = std::process::Stdio::null;
                std::process::Command::new("sh").args(["-c", &kill]).stdin(null()).stdout(null()).status().unwrap();
            }
            "slow" => (0..8).for_each(|_| {
                inherited.arena.beat().fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(std::time::Duration::from_millis(500));
            }),
            // More than a socket has room for, for a successor that does not read.
            "deaf" => {
                (0..20).for_each(|number| tie.note(&format!("note-{number}"), &"x".repeat(50_000)).unwrap());
                File::create(place.join("deaf")).unwrap();
            }
            "mark" => writeln!(log, "marked").unwrap(),
            "wait" => std::thread::sleep(std::time::Duration::from_secs(60)),
            "ending" => tie.ending().unwrap(),
            "again" => tie.go_on_with("/proc/self/exe").unwrap(),
            "false" => tie.go_on_with("/bin/false").unwrap(),
            "missing" => {
                let refused = tie.go_on_with("/proc/self/no-such-program").unwrap_err();
                assert_eq!(refused.kind(), std::io::ErrorKind::NotFound);
            }
            // No program: it opens and does not start.
            "data" => tie.go_on_with("/etc/passwd").unwrap(),
            // The holder, which is this process's parent, gets no descriptor more.
            "starve" => {
                let few = Rlimit { current: Some(8), ..getrlimit(Resource::Nofile) };
                rustix::process::prlimit(rustix::process::getppid(), Resource::Nofile, few).unwrap();
            }
            "stick" => in_fuse::stick(&place.join("mnt")),
            "abort" => in_fuse::abort(&place.join("mnt")),
            "refuse" => std::process::exit(34),
            "end" => std::process::exit(0),
            "kill" => {
                let own = rustix::process::getpid();
                rustix::process::kill_process(own, rustix::process::Signal::KILL).unwrap();
            }
            "die" => std::process::abort(),
            other => panic!("{other}"),
        }
    }
    std::process::abort();
}

#[test]
fn a_first_worker_that_never_served_takes_the_holder_with_it() {
    for (lives_are, status) in [("refuse", 34), ("die", 134)] {
        let seen = lives(lives_are);
        assert_eq!((seen.status, seen.served, seen.notes.len()), (status, false, 0), "{:?}", seen.notes);
    }
}

#[test]
fn a_worker_that_dies_is_followed_by_one_that_has_all_it_kept() {
    let seen = lives("word+note+keep+ready+die,word+ready+die,release+ready+die,ready+ending+end");
    assert_eq!((seen.status, seen.served, seen.notes.len()), (0, true, 3), "{:?}", seen.notes);
    let said = "note Some(\"said in life 0\")";
    let expected = format!(
        "life 0, word 0, note None\nlife 1, word 1, {said}\nkept of life 0\nlife 2, word 2, {said}\nkept of life 0\nlife 3, word \
         2, {said}\n"
    );
    assert_eq!(seen.written, expected);
}

#[test]
fn all_that_a_worker_said_before_it_died_counts() {
    let seen = lives("notes+ready+die,notes+note+ready+die,ready+end");
    assert_eq!((seen.status, seen.served), (0, true), "{:?}", seen.notes);
    assert!(seen.written.ends_with("life 2, word 0, note Some(\"said in life 1\")\n"), "{}", seen.written);
}

#[test]
fn five_in_a_row_that_do_not_come_up_are_enough_and_one_that_does_counts_anew() {
    let seen = lives("ready+die,die,refuse,die,die,die,die");
    assert_eq!(seen.status, 1);
    assert!(seen.notes.last().unwrap().contains("did not come up"), "{:?}", seen.notes);
    assert_eq!(seen.written.matches("life").count(), 6);
    let seen = lives("ready+die,die,die,ready+up+die,die,die,die,die,ready+end");
    assert_eq!((seen.status, seen.written.matches("life").count()), (0, 9), "{:?}", seen.notes);
    // After one that came up, and after one that was killed, there are as many.
    for first in ["ready+up+die", "ready+kill"] {
        let seen = lives(&format!("{first},die,die,die,die,die,ready+end"));
        assert_eq!((seen.status, seen.written.matches("life").count()), (1, 6), "{:?}", seen.notes);
        let seen = lives(&format!("{first},die,die,die,die,ready+end"));
        assert_eq!((seen.status, seen.written.matches("life").count()), (0, 6), "{:?}", seen.notes);
    }
}

#[test]
fn a_holder_that_can_start_no_worker_tries_again_after_a_pause() {
    let seen = lives("ready+starve+keep+die,ready+end");
    assert_eq!((seen.status, seen.written.matches("life").count()), (0, 2), "{:?}", seen.notes);
    let failed = |note: &&String| note.contains("could not be started (Too many open files");
    assert_eq!(seen.notes.iter().filter(failed).count(), 3, "{:?}", seen.notes);
    // Nor can it keep more, and says so.
    assert!(seen.notes[0].starts_with("no descriptor is left to keep file"), "{:?}", seen.notes);
    assert!(!seen.written.contains("kept"), "{}", seen.written);
}

#[test]
fn another_program_goes_on_and_the_last_one_if_it_does_not_serve() {
    let seen = lives("ready+again+end,ready+end");
    assert_eq!((seen.status, seen.written.matches("life").count()), (0, 2), "{:?}", seen.notes);
    let seen = lives("ready+false+end,never,ready+end");
    assert!(seen.notes.iter().any(|note| note.contains("going on with the last one")), "{:?}", seen.notes);
    assert_eq!(seen.status, 0);
    assert!(seen.written.contains("life 2, "), "{}", seen.written);
    let seen = lives("ready+data+end,ready+end");
    assert!(seen.notes[1].contains("the new program could not be started (Permission denied"), "{:?}", seen.notes);
    assert_eq!((seen.status, seen.written.matches("life").count()), (0, 2), "{:?}", seen.notes);
}

#[test]
fn a_program_that_the_holder_cannot_open_is_refused_while_the_worker_still_serves() {
    let seen = lives("ready+missing+mark+die,ready+missing+again+end,ready+end");
    assert_eq!((seen.status, seen.written.matches("life").count()), (0, 3), "{:?}", seen.notes);
    assert!(seen.written.contains("marked\nlife 1, "), "{}", seen.written);
}

#[test]
fn a_worker_that_dies_at_its_end_is_the_last_one() {
    let seen = lives("ready+ending+die");
    assert_eq!((seen.status, seen.notes.len()), (134, 0));
}

#[test]
fn a_signal_between_two_workers_waits_until_the_next_one_serves() {
    let seen = lives("ready+term-later+die,up+mark+ready+wait");
    assert_eq!((seen.status, seen.written.matches("life").count()), (143, 2), "{:?}", seen.notes);
    assert!(seen.written.ends_with("marked\n"), "{}", seen.written);
}

#[test]
fn a_successor_that_hangs_before_it_serves_is_replaced_and_one_that_goes_on_is_not() {
    let seen = lives("ready+die,wait,slow+mark+ready+end");
    assert_eq!((seen.status, seen.written.matches("life").count()), (0, 3), "{:?}", seen.notes);
    assert!(seen.notes.iter().any(|note| note.contains("hung")), "{:?}", seen.notes);
    assert!(seen.written.ends_with("marked\n"), "{}", seen.written);
}

#[test]
fn a_successor_that_does_not_even_read_is_replaced() {
    let seen = lives("deaf+ready+kill,never,mark+ready+up+ending+end");
    assert_eq!((seen.status, seen.notes.len()), (0, 2), "{:?}", seen.notes);
    assert!(seen.notes[1].contains("hung") && seen.written.contains("marked"), "{:?}", seen.notes);
}

#[test]
fn a_new_program_that_gives_signs_and_never_serves_leaves_the_mount_to_the_one_before() {
    let seen = lives("ready+again+end,slow+wait,mark+ready+ending+end");
    assert_eq!((seen.status, seen.notes.len()), (0, 2), "{:?}", seen.notes);
    assert!(seen.notes[1].contains("hung") && seen.notes[1].contains("going on with the last one"), "{:?}", seen.notes);
    assert!(seen.written.contains("marked"));
}

#[test]
fn a_worker_that_hangs_while_it_serves_is_replaced() {
    let seen = lives("ready+wait,ready+end");
    assert_eq!((seen.status, seen.written.matches("life").count()), (0, 2), "{:?}", seen.notes);
    assert!(seen.notes.iter().any(|note| note.contains("hung")), "{:?}", seen.notes);
}

#[test]
fn the_holder_looks_after_a_worker_that_never_stops_talking_and_finds_that_it_hangs() {
    let seen = lives("talk+ready+slow+mark+wait,ready+end");
    assert_eq!((seen.status, seen.written.matches("life").count()), (0, 2), "{:?}", seen.notes);
    assert!(seen.written.contains("marked"), "it was killed while it gave signs of life: {}", seen.written);
    assert!(seen.notes.iter().any(|note| note.contains("hung")), "{:?}", seen.notes);
    // Four seconds with signs of life, and at least two looks without one.
    assert!(seen.looks >= 5, "{} looks", seen.looks);
}

#[test]
fn a_killed_worker_that_waits_for_a_lookup_which_waits_for_a_worker_is_followed_by_the_next() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("left out: only root mounts, and aborts a connection");
        return;
    }
    let seen = lives("stick+ready+kill,mark+ready+abort+ending+end");
    assert_eq!((seen.status, seen.notes.len()), (0, 1), "{:?}", seen.notes);
    assert!(seen.written.contains("marked"), "{}", seen.written);
}
