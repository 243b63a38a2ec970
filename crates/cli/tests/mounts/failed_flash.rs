//! Flash that fails while it is used, on a real mount: no application error while the origin, or a
//! copy, has the data (promise 5); and what the operator can do afterwards.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;

use crate::numbers::free_port;
use crate::page::kinds;
use crate::pond::{Pond, SIZE, pattern, tree, wait_until, write_and_sync};

const MODES: [&str; 4] = ["write-back", "write-through", "write-around", "pass-through"];

/// A mount with `files` of which each is a megabyte, clean and cached.
fn pond_with_files(mode: &str, files: u64) -> Pond {
    let pond = Pond::new();
    pond.mount(&["--size", SIZE, "--mode", mode, "--test-fault", "none"]).ok();
    for file in 0..files {
        write_and_sync(&pond.mnt().join(format!("f{file}")), &pattern(1 << 20, file));
    }
    pond.flush().ok();
    pond
}

#[test]
fn reads_go_on_from_the_origin_when_flash_cannot_be_read() {
    for mode in MODES {
        let pond = pond_with_files(mode, 4);
        // Mounted anew, so that neither the kernel's memory nor ours is what answers.
        pond.unmount(&[]).ok();
        pond.mount(&["--test-fault", "none"]).ok();
        pond.fault("read-errors=0").ok();
        for file in 0..4 {
            assert!(fs::read(pond.mnt().join(format!("f{file}"))).unwrap() == pattern(1 << 20, file), "{mode}");
        }
        let status = pond.status();
        if mode == "write-back" || mode == "write-through" {
            assert!(status["flash_errors_masked"].as_u64().unwrap() > 0, "{mode}: the flash was never asked");
        }
        assert_eq!(status["lost_blocks"], 0, "{mode}");
        pond.fault("heal").ok();
        pond.unmount(&[]).ok();
        assert_eq!(tree(&pond.origin()).len(), 4, "{mode}");
    }
}

#[test]
fn writes_go_on_at_the_origin_when_flash_cannot_be_written_and_the_origin_is_complete() {
    for mode in MODES {
        for fault in ["write-errors=0", "sync-errors=0"] {
            let pond = pond_with_files(mode, 2);
            pond.fault(fault).ok();
            // The one that meets the failure may be told of it (promise 8); those after it are not.
            let file = OpenOptions::new().write(true).open(pond.mnt().join("f0")).unwrap();
            file.write_all_at(&pattern(1 << 20, 7), 0).unwrap();
            let _ = file.sync_all();
            pond.flush().ok();
            file.sync_all().unwrap();
            drop(file);
            write_and_sync(&pond.mnt().join("after"), &pattern(3 << 20, 8));
            assert!(fs::read(pond.mnt().join("f0")).unwrap() == pattern(1 << 20, 7), "{mode} {fault}");
            assert!(fs::read(pond.mnt().join("f1")).unwrap() == pattern(1 << 20, 1), "{mode} {fault}");
            pond.unmount(&[]).ok().refused(0, &["complete"]);
            assert_eq!(pond.marker(), None, "{mode} {fault}");
            for (name, len, seed) in [("f0", 1 << 20, 7), ("f1", 1 << 20, 1), ("after", 3 << 20, 8)] {
                let there = fs::read(pond.origin().join(name)).unwrap();
                assert!(there == pattern(len, seed), "{mode} {fault}: {name}");
            }
        }
    }
}

#[test]
fn the_history_and_the_log_tell_of_errors_of_the_flash() {
    let pond = Pond::new();
    let port = free_port();
    let address = format!("127.0.0.1:{port}");
    pond.mount(&["--size", SIZE]).ok();
    write_and_sync(&pond.mnt().join("f0"), &pattern(1 << 20, 0));
    pond.unmount(&[]).ok();
    pond.mount(&["--test-fault", "none", "--http", &address]).ok();
    let has = |kind: &str| kinds(port, "").iter().filter(|one| *one == kind).count();
    assert_eq!((has("flash-error-masked"), has("flash-failed")), (0, 0));
    pond.fault("read-errors=0").ok();
    assert!(fs::read(pond.mnt().join("f0")).unwrap() == pattern(1 << 20, 0));
    wait_until("a masked error is told", || has("flash-error-masked") == 1);
    assert_eq!(has("flash-failed"), 0, "a read alone is no failure");
    pond.fault("heal").ok();
    pond.fault("write-errors=0").ok();
    write_and_sync_with_patience(&pond, "after", &pattern(1 << 20, 9));
    wait_until("the failure is told", || has("flash-failed") == 1);
    for told in ["a read of the flash failed, but the origin had the data", "the pool caches nothing more"] {
        // The line comes right behind the event.
        wait_until(told, || pond.log().contains(told));
    }
    pond.unmount(&[]).ok();
}

#[test]
fn a_device_that_is_pulled_out_costs_no_more_than_what_only_it_had() {
    for mode in MODES {
        let pond = pond_with_files(mode, 2);
        pond.fault("cut").ok();
        write_and_sync_with_patience(&pond, "after", &pattern(2 << 20, 9));
        assert!(fs::read(pond.mnt().join("f1")).unwrap() == pattern(1 << 20, 1), "{mode}");
        pond.unmount(&[]).ok();
        assert!(fs::read(pond.origin().join("after")).unwrap() == pattern(2 << 20, 9), "{mode}");
    }
}

/// The first sync after a failure may tell of it.
fn write_and_sync_with_patience(pond: &Pond, name: &str, bytes: &[u8]) {
    let file = File::create(pond.mnt().join(name)).unwrap();
    file.write_all_at(bytes, 0).unwrap();
    wait_until("a sync succeeds without flash", || file.sync_all().is_ok());
}

/// A pool whose flash failed with dirty data in it, and a daemon that was killed before the origin had all of it.
fn failed_with_dirty_data() -> Pond {
    let mut pond = Pond::new();
    // A slow origin: the dirty data is not carried over before the daemon is killed.
    let daemon = pond.mount_foreground(&["--size", SIZE, "--test-fault", "none"]);
    for name in ["wrote to the origin", "left"] {
        write_and_sync(&pond.mnt().join(name), &pattern(1 << 20, 1));
    }
    pond.flush().ok();
    for name in ["wrote to the origin", "left"] {
        let file = OpenOptions::new().write(true).open(pond.mnt().join(name)).unwrap();
        file.write_all_at(&pattern(1 << 20, 2), 0).unwrap();
        file.sync_all().unwrap();
    }
    pond.kill(daemon);
    // What a failure does before anything is changed at the origin, and no more.
    let marker = pond.marker().unwrap();
    let note = format!("{}\n2026-11-21T05:00:00Z\n", marker["pool"].as_str().unwrap());
    fs::write(pond.origin().join(".headpond/obsolete-pool"), note).unwrap();
    fs::write(pond.origin().join("wrote to the origin"), pattern(1 << 20, 3)).unwrap();
    pond
}

#[test]
fn a_pool_that_failed_in_use_is_refused_with_what_it_holds_and_the_choices() {
    let pond = failed_with_dirty_data();
    let choices =
        ["failed while in use", "wrote to the origin", "left", "1 MiB", "not changed", "--keep-origin", "--keep-pool"];
    pond.mount(&[]).refused(40, &choices);
    pond.mount(&["--keep-pool", "left"]).refused(40, &["wrote to the origin"]);
    pond.mount(&["--format"]).refused(40, &["--discard-dirty"]);
    assert!(fs::read(pond.origin().join("wrote to the origin")).unwrap() == pattern(1 << 20, 3), "nothing was changed");
    assert!(fs::read(pond.origin().join("left")).unwrap() == pattern(1 << 20, 1), "nothing was changed");
    pond.mount_places("origin", "mnt", "flash2", &["--size", SIZE]).refused(12, &["--discard-dirty"]);
}

#[test]
fn what_a_failed_pool_still_has_is_carried_to_the_origin_where_the_operator_says_so() {
    let pond = failed_with_dirty_data();
    pond.mount(&["--keep-pool", "left", "--keep-origin", "wrote to the origin"]).ok();
    assert!(!pond.origin().join(".headpond/obsolete-pool").exists(), "the note goes once it is decided");
    for (name, seed) in [("wrote to the origin", 3), ("left", 2)] {
        assert!(fs::read(pond.mnt().join(name)).unwrap() == pattern(1 << 20, seed), "{name}");
    }
    pond.unmount(&[]).ok();
    for (name, seed) in [("wrote to the origin", 3), ("left", 2)] {
        assert!(fs::read(pond.origin().join(name)).unwrap() == pattern(1 << 20, seed), "{name}");
    }
    assert!(!pond.origin().join(".headpond").exists());
}

#[test]
fn a_failed_pool_that_fails_again_still_gives_what_can_be_read() {
    let pond = failed_with_dirty_data();
    pond.mount(&["--keep-pool", "left", "--keep-origin", "wrote to the origin", "--test-fault", "write-errors=0"]).ok();
    assert!(pond.origin().join(".headpond/obsolete-pool").exists(), "the note stays");
    pond.flush().ok();
    assert!(fs::read(pond.mnt().join("left")).unwrap() == pattern(1 << 20, 2));
    pond.unmount(&[]).ok();
    assert!(fs::read(pond.origin().join("left")).unwrap() == pattern(1 << 20, 2));
    assert!(fs::read(pond.origin().join("wrote to the origin")).unwrap() == pattern(1 << 20, 3));
}

#[test]
fn a_failed_pool_is_given_up_for_a_new_one_on_the_same_or_another_flash() {
    for (flash, more) in [("flash", ["--format", "--discard-dirty"]), ("flash2", ["--size=64M", "--discard-dirty"])] {
        let pond = failed_with_dirty_data();
        pond.mount_places("origin", "mnt", flash, &more).ok();
        assert!(!pond.origin().join(".headpond/obsolete-pool").exists());
        assert!(fs::read(pond.mnt().join("left")).unwrap() == pattern(1 << 20, 1));
        write_and_sync(&pond.mnt().join("new"), b"new");
        pond.unmount(&["--keep-dirty"]).ok();
        pond.mount_places("origin", "mnt", flash, &[]).ok();
        assert_eq!(fs::read(pond.mnt().join("new")).unwrap(), b"new");
        pond.unmount(&[]).ok();
    }
}

#[test]
fn a_failed_pool_whose_data_is_all_at_the_origin_is_refused_until_it_is_made_anew() {
    let pond = pond_with_files("write-back", 1);
    pond.fault("write-errors=0").ok();
    write_and_sync_with_patience(&pond, "after", &pattern(1 << 20, 9));
    pond.unmount(&[]).ok();
    assert_eq!(pond.marker(), None);
    let refused = pond.mount(&[]);
    refused.refused(40, &["failed while in use", "--format"]);
    pond.mount_places("origin", "mnt", "flash2", &["--size", SIZE]).ok();
    assert!(fs::read(pond.mnt().join("after")).unwrap() == pattern(1 << 20, 9));
    pond.unmount(&[]).ok();
    assert!(!pond.origin().join(".headpond").exists(), "another pool has taken over: no note is needed");
}

#[test]
fn a_note_that_was_cut_short_does_not_stand_in_the_way_of_a_new_pool() {
    let pond = pond_with_files("write-back", 1);
    pond.unmount(&[]).ok();
    fs::create_dir(pond.origin().join(".headpond")).unwrap();
    fs::write(pond.origin().join(".headpond/obsolete-pool"), "").unwrap();
    pond.mount(&[]).refused(40, &["--format"]);
    pond.mount(&["--format"]).ok();
    pond.unmount(&[]).ok();
    assert!(!pond.origin().join(".headpond").exists());
}
