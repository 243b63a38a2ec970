//! No space: in the pool, at the origin, or under the flash file.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use crate::loop_device::{Loop, make_ext4};
use crate::pond::{Pond, SIZE, pattern, run, tree, write_and_sync};

#[test]
fn a_pool_smaller_than_what_is_written_means_waiting_and_not_failure() {
    for mode in ["write-back", "write-through"] {
        let pond = Pond::new();
        pond.mount(&["--size", SIZE, "--mode", mode]).ok();
        let piece = pattern(1 << 20, 3);
        let mut file = File::create(pond.mnt().join("file")).unwrap();
        for number in 0..192_u8 {
            let mut piece = piece.clone();
            piece[0] = number;
            file.write_all(&piece).unwrap();
            if number % 16 == 0 {
                file.sync_all().unwrap();
            }
        }
        file.sync_all().unwrap();
        for number in [0_u8, 100, 191] {
            let mut there = vec![0; 1 << 20];
            File::open(pond.mnt().join("file")).unwrap().read_exact_at(&mut there, u64::from(number) << 20).unwrap();
            assert!(there[0] == number && there[1..] == piece[1..], "{mode}: {number}");
        }
        drop(file);
        let status = pond.status();
        assert_eq!((&status["flash_failed"], &status["lost_blocks"]), (&false.into(), &0.into()), "{mode}");
        pond.unmount(&[]).ok();
        assert_eq!(fs::metadata(pond.origin().join("file")).unwrap().len(), 192 << 20, "{mode}");
    }
}

#[test]
fn a_full_origin_is_told_at_the_write_and_what_was_acknowledged_reaches_it() {
    for mode in ["write-back", "write-through", "write-around", "pass-through"] {
        let pond = Pond::new();
        make_ext4(&pond.at("disk"), 32 << 20);
        let Some(mut disk) = Loop::over(&pond.at("disk")) else { return };
        disk.mount(&pond.origin(), "rw");
        pond.mount(&["--size", SIZE, "--mode", mode]).ok();
        write_and_sync(&pond.mnt().join("before"), &pattern(1 << 20, 1));
        let mut file = File::create(pond.mnt().join("large")).unwrap();
        let piece = pattern(256 << 10, 2);
        let mut written = 0;
        let error = loop {
            match file.write_all(&piece) {
                Ok(()) => written += 1,
                Err(error) => break error,
            }
            assert!(written < 200, "{mode}: the origin has 32 MiB only");
        };
        assert_eq!(error.raw_os_error(), Some(28), "{mode}: {error}");
        file.sync_all().unwrap();
        drop(file);
        pond.flush().ok();
        let there = fs::read(pond.origin().join("large")).unwrap();
        assert!(there.len() >= written * piece.len(), "{mode}");
        assert!(there.chunks(piece.len()).take(written).all(|chunk| chunk == piece), "{mode}");
        // Room again, and it goes on.
        fs::remove_file(pond.mnt().join("large")).unwrap();
        write_and_sync(&pond.mnt().join("after"), &pattern(4 << 20, 5));
        pond.unmount(&[]).ok();
        assert!(fs::read(pond.origin().join("before")).unwrap() == pattern(1 << 20, 1), "{mode}");
        assert!(fs::read(pond.origin().join("after")).unwrap() == pattern(4 << 20, 5), "{mode}");
    }
}

#[test]
fn the_space_of_a_file_is_there_as_soon_as_it_was_removed_replaced_or_closed_as_the_last_of_it() {
    for mode in ["write-back", "write-through"] {
        let pond = Pond::new();
        make_ext4(&pond.at("disk"), 32 << 20);
        let Some(mut disk) = Loop::over(&pond.at("disk")) else { return };
        disk.mount(&pond.origin(), "rw");
        pond.mount(&["--size", SIZE, "--mode", mode]).ok();
        let (large, small) = (pond.mnt().join("large"), pond.mnt().join("small"));
        let piece = pattern(1 << 20, 2);
        for round in 0..12 {
            File::create(&small).unwrap();
            let mut file = File::create(&large).unwrap();
            while file.write_all(&piece).is_ok() {}
            match round % 3 {
                0 => {
                    drop(file);
                    fs::remove_file(&large).unwrap();
                }
                1 => {
                    drop(file);
                    fs::rename(&small, &large).unwrap();
                }
                _ => {
                    fs::remove_file(&large).unwrap();
                    drop(file);
                }
            }
            write_and_sync(&pond.mnt().join("after"), &pattern(4 << 20, round));
            fs::remove_file(pond.mnt().join("after")).unwrap();
        }
        pond.unmount(&[]).ok();
    }
}

#[test]
fn a_flash_file_that_does_not_fit_is_refused_and_leaves_nothing() {
    let pond = Pond::new();
    make_ext4(&pond.at("disk"), 48 << 20);
    let Some(mut disk) = Loop::over(&pond.at("disk")) else { return };
    disk.mount(&pond.at("other"), "rw");
    let small = pond.at("other");
    let free = |small: &PathBuf| tree(small).len();
    pond.mount_places("origin", "mnt", "other/flash", &["--size", SIZE]).refused(35, &["no room", "64 MiB"]);
    assert_eq!(free(&small), 0);
    // One that is there and has holes, as a copy may have: its space cannot be had.
    File::create(small.join("flash")).unwrap().set_len(64 << 20).unwrap();
    pond.mount_places("origin", "mnt", "other/flash", &["--format"]).refused(35, &["no room"]);
    assert_eq!(fs::read_dir(pond.origin()).unwrap().count(), 0);
}

#[test]
fn flash_that_exists_and_is_too_small_is_refused_with_what_would_do() {
    let pond = Pond::new();
    fs::write(pond.flash(), pattern(10 << 20, 1)).unwrap();
    pond.mount(&["--format"]).refused(34, &["10 MiB", "at least 64 MiB"]);
    assert!(fs::read(pond.flash()).unwrap() == pattern(10 << 20, 1), "the file was touched");
    run(["status"]).ok();
}
