//! Promise 11 on real software: the process that serves is killed under databases, fsx and pjdfstest, and replaced
//! once; one kill comes during an upgrade. None of them meets an error, and nothing that they were told is missing.
//!
//! `HEADPOND_UNSEEN_KILLS` sets the number of kills under each, `HEADPOND_UNSEEN_SEED` their moments.

mod machine;

use headpond_lab::guest::Guest;
use headpond_lab::kind::Kind;
use headpond_lab::pond::Mounting;
use headpond_lab::unseen::{self, Options, Pace, Work};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

fn nothing_is_seen(work: Work, kills: u64, pace: Pace) {
    if !machine::lacks_nothing(work.missing()) {
        return;
    }
    let _beside = machine::side_by_side();
    let kills = machine::number("HEADPOND_UNSEEN_KILLS", kills);
    let options =
        Options { work, kills: kills as u32, pace, seed: machine::number("HEADPOND_UNSEEN_SEED", 1), spares: false };
    let directory = machine::scratch("headpond-unseen-");
    match unseen::run(&machine::headpond(), directory.path(), &options) {
        Ok(pauses) => {
            println!("{}: {pauses}", work.name());
            assert_eq!(pauses.kills, kills);
            // One half-way, and perhaps those during which a worker was killed.
            assert!((1..=1 + pauses.during_upgrades).contains(&pauses.upgrades), "{pauses}");
            assert_eq!(pauses.during_upgrades > 0, kills > 1);
        }
        Err(failure) => panic!(
            "HEADPOND_UNSEEN_SEED={}: {failure}\neverything is kept in {}",
            options.seed,
            directory.keep().display()
        ),
    }
}

#[test]
fn mariadb_sees_nothing_of_kills_of_the_worker() {
    nothing_is_seen(Work::Database(Kind::Mariadb), 3, Pace::Often);
}

#[test]
fn postgresql_sees_nothing_of_kills_of_the_worker() {
    nothing_is_seen(Work::Database(Kind::Postgres), 2, Pace::Often);
}

#[test]
fn sqlite_sees_nothing_of_kills_of_workers_that_take_over() {
    nothing_is_seen(Work::Database(Kind::SqliteRollback), 4, Pace::Again);
}

#[test]
fn fsx_sees_nothing_of_kills_of_the_worker() {
    nothing_is_seen(Work::Fsx, 2, Pace::Often);
}

#[test]
fn pjdfstest_sees_nothing_of_a_kill_of_the_worker() {
    nothing_is_seen(Work::Pjdfstest, 1, Pace::Often);
}

/// Writes and syncs until it fails. Tells how many writes are synced after each, and at the end the error.
fn write_until_an_error(path: &Path, tell: &mpsc::Sender<io::Result<u32>>) {
    let outcome = File::create(path).and_then(|mut file| {
        for number in 0_u32.. {
            file.write_all(&number.to_le_bytes())?;
            file.sync_data()?;
            // Nobody listens after the test has failed.
            let _ = tell.send(Ok(number + 1));
        }
        Ok(())
    });
    let _ = tell.send(Err(outcome.expect_err("it ends with an error only")));
}

/// The end of what the holder can do: its own death is an error, as that of any FUSE daemon.
#[test]
fn the_death_of_the_holder_is_an_error_and_no_hang_and_loses_nothing_that_was_synced() {
    const STUCK: Duration = Duration::from_secs(60);
    if !machine::lacks_nothing((!Path::new("/dev/fuse").exists()).then(|| "/dev/fuse".to_owned())) {
        return;
    }
    let headpond = machine::headpond();
    let directory = machine::scratch("headpond-unseen-");
    let mounting = Mounting::below(directory.path(), "64M").expect("directories");
    let mut mount = headpond.mount(&mounting).expect("a mount");
    let path = mounting.mountpoint.join("file");
    let (tell, told) = mpsc::channel();
    let writer = path.clone();
    std::thread::spawn(move || write_until_an_error(&writer, &tell));
    let mut synced = 0;
    while synced < 20 {
        synced = told.recv_timeout(STUCK).expect("the writer goes on").expect("no error yet");
    }
    mount.kill_holder();
    let error = loop {
        match told.recv_timeout(STUCK).expect("an error, and no hang") {
            Ok(count) => synced = count,
            Err(error) => break error,
        }
    };
    let gone = [rustix::io::Errno::CONNABORTED, rustix::io::Errno::NOTCONN].map(|errno| Some(errno.raw_os_error()));
    assert!(gone.contains(&error.raw_os_error()), "the writer's error: {error}");
    let error = fs::metadata(&path).expect_err("the mount is dead");
    assert!(gone.contains(&error.raw_os_error()), "a new caller's error: {error}");

    mount.kill();
    let mount = headpond.mount(&mounting).expect("a mount of what is left");
    let bytes = fs::read(&path).expect("the file is there");
    assert!(bytes.len() >= synced as usize * 4, "{} bytes, and {synced} numbers were synced", bytes.len());
    for (number, bytes) in bytes.chunks_exact(4).enumerate() {
        assert_eq!(bytes, (number as u32).to_le_bytes(), "number {number}");
    }
    mount.unmount().expect("it ends");
}

/// Runs a script with the program of this tree in a guest of its own. It must end by telling `OK`.
fn in_a_guest(script: &str, programs: &[&str], environment: &[(&'static str, String)]) {
    if !machine::lacks_nothing(Guest::missing(programs)) {
        return;
    }
    let directory = machine::scratch("headpond-unseen-");
    let program = ("HEADPOND", machine::headpond().program().display().to_string());
    let guest = Guest {
        directory: directory.path().to_owned(),
        modules: &["fuse"],
        disk: None,
        sockets: Vec::new(),
        script: script.to_owned(),
        environment: environment.iter().cloned().chain([program]).collect(),
        limit: Duration::from_secs(180),
    };
    let mut told = Vec::new();
    guest
        .run(|line| {
            println!("{line}");
            told.push(line.to_owned());
        })
        .unwrap_or_else(|failure| panic!("{failure}\n{}", told.join("\n")));
    assert!(told.iter().any(|line| line.starts_with("OK 6.1")), "{}", told.join("\n"));
}

/// Debian 12 has Linux 6.1, which cannot send requests again (6.9 can).
#[test]
fn on_an_older_kernel_too_programs_see_nothing_of_kills() {
    in_a_guest(include_str!("../src/unseen/guest.sh"), &["dd", "cmp", "seq"], &[("KILLS", "4".to_owned())]);
}

#[test]
fn under_systemd_the_mount_and_the_database_come_back_after_the_death_of_the_holder() {
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").canonicalize().expect("it is here");
    let programs = ["/lib/systemd/systemd", "systemctl", "unshare", "nsenter", "pgrep", "cmp", "seq"];
    let packaging = [("PACKAGING", packaging.display().to_string())];
    in_a_guest(include_str!("../src/unseen/units.sh"), &programs, &packaging);
}
