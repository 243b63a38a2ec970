//! A host dies with dirty data on two devices, and takes one of them along.

use std::fs;

use crate::pond::{Pond, SIZE, pattern, run, write_and_sync};
use crate::several_devices::{is_named_as_lost, mount_over, pool_status};

const FILES: u64 = 12;
const FILE_BYTES: usize = 1 << 20;

#[test]
fn a_host_is_killed_and_starts_without_either_of_two_devices() {
    for (left, lost) in [("flash", "flash2"), ("flash2", "flash")] {
        let mut pond = Pond::new();
        let second = pond.at("flash2");
        let daemon = pond.mount_foreground(&["--flash", second.to_str().unwrap(), "--size", SIZE]);
        let mnt = pond.mnt();
        run(["set", mnt.to_str().unwrap(), "flush-period=off", "idle-flush=off", "sequential-cutoff=off"]).ok();
        let file = |number: u64| format!("f{number}");
        for number in 0..FILES {
            write_and_sync(&mnt.join(file(number)), &pattern(FILE_BYTES, number));
        }
        // Some of it anew: what a device had before must not come back.
        for number in (0..FILES).step_by(3) {
            write_and_sync(&mnt.join(file(number)), &pattern(FILE_BYTES, number + 100));
        }
        let holds = |number: u64| pattern(FILE_BYTES, if number.is_multiple_of(3) { number + 100 } else { number });
        assert_eq!(pond.status()["dirty_bytes"], FILES * FILE_BYTES as u64, "the origin has nothing");
        assert_eq!(pool_status(&pond)["exposed_bytes"], 0, "each has its copy once it is synced");

        pond.kill(daemon);
        fs::remove_file(pond.at(lost)).unwrap();
        mount_over(&pond, &[left], &[]).refused(0, &["DEGRADED", "is missing", lost]);
        is_named_as_lost(&pond, lost, "UNAVAIL");
        for number in 0..FILES {
            assert!(fs::read(mnt.join(file(number))).unwrap() == holds(number), "without {lost}: f{number}");
        }
        pond.unmount(&[]).ok();
        for number in 0..FILES {
            assert!(fs::read(pond.origin().join(file(number))).unwrap() == holds(number), "at the origin: f{number}");
        }
    }
}
