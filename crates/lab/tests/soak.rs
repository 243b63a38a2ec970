//! All promises at once on real software, for a minute: the short form of `cargo xtask soak`.
//!
//! `HEADPOND_SOAK_SECONDS` sets how long, `HEADPOND_SOAK_SEED` what the operator does.

mod machine;

use headpond_lab::command;
use headpond_lab::fio::Job;
use headpond_lab::soak::{self, Options};
use std::fs;
use std::process::Command;
use std::time::Duration;

#[test]
fn a_minute_of_everything_breaks_no_promise() {
    if !machine::lacks_nothing(soak::missing()) {
        return;
    }
    let options = Options {
        duration: Duration::from_secs(machine::number("HEADPOND_SOAK_SECONDS", 45)),
        leg_max: Duration::from_secs(8),
        seed: machine::number("HEADPOND_SOAK_SEED", 1),
    };
    let directory = machine::scratch("headpond-soak-");
    match soak::run(&machine::headpond(), directory.path(), &options, |sum| println!("{sum}")) {
        Ok(sum) => {
            assert!(sum.tried_everything(), "not everything was tried: {sum}");
        }
        Err(failure) => panic!(
            "HEADPOND_SOAK_SEED={}: {failure}\neverything is kept in {}",
            options.seed,
            directory.keep().display()
        ),
    }
}

/// As of a load that was started while the mount was there, and opens its file when that is detached.
#[test]
fn fio_makes_nothing_on_a_mount_point_that_is_bare_by_now() {
    if !machine::lacks_nothing(soak::missing()) {
        return;
    }
    let directory = machine::scratch("headpond-bare-");
    let work = directory.path().join("work");
    fs::create_dir(&work).expect("a directory");
    let job = Job { mib: 1, request: 4096, random: false, direct: false, sync_every: 8, seed: 1 };
    let fio = job.write(&work, "fio-0");
    // A directory that was removed under fio, for a mount that was detached under it: neither is found by its name.
    let mut late = Command::new("sh");
    late.args(["-c", r#"rmdir "$0" && exec "$@""#]).arg(&work).arg(fio.get_program()).args(fio.get_args());
    command::run("writing", late.current_dir(&work)).expect_err("there is nothing to write to");
    assert!(!work.exists(), "fio made a directory where its own had been");
    assert!(command::run("writing", &mut job.write(&work, "fio-0")).is_err(), "nor is there one to work in");
    assert!(!work.exists());
}
