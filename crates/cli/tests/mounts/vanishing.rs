//! Flash that goes away in the middle of its use, or before the next.

use std::fs::{self, OpenOptions};
use std::io::{Seek, SeekFrom, Write};

use crate::loop_device::Loop;
use crate::pond::{Pond, SIZE, Said, headpond, pattern, write_and_sync};

#[test]
fn a_flash_file_removed_in_use_costs_nothing_that_was_flushed_or_is_still_open() {
    let pond = Pond::new();
    pond.mount(&["--size", SIZE]).ok();
    write_and_sync(&pond.mnt().join("before"), &pattern(1 << 20, 1));
    fs::remove_file(pond.flash()).unwrap();
    write_and_sync(&pond.mnt().join("after"), &pattern(1 << 20, 2));
    pond.unmount(&[]).ok();
    for (name, seed) in [("before", 1), ("after", 2)] {
        assert!(fs::read(pond.origin().join(name)).unwrap() == pattern(1 << 20, seed), "{name}");
    }
}

#[test]
fn a_flash_that_is_gone_at_the_next_mount_is_named_and_its_loss_is_the_operators_decision() {
    let pond = Pond::new();
    pond.mount(&["--size", SIZE]).ok();
    write_and_sync(&pond.mnt().join("file"), &pattern(1 << 20, 1));
    pond.unmount(&["--keep-dirty"]).ok();
    fs::rename(pond.flash(), pond.at("elsewhere")).unwrap();
    pond.mount(&[]).refused(30, &["does not exist"]);
    let flash = pond.flash();
    let named = flash.to_str().unwrap();
    pond.mount(&["--size", SIZE]).refused(12, &[named, "--discard-dirty"]);
    assert!(!flash.exists(), "a refused mount makes no pool");
    // Found again, under another name: nothing is lost.
    pond.mount_places("origin", "mnt", "elsewhere", &[]).ok();
    assert!(fs::read(pond.mnt().join("file")).unwrap() == pattern(1 << 20, 1));
    pond.unmount(&[]).ok();
}

#[test]
fn a_flash_file_cut_short_in_use_gives_no_wrong_bytes() {
    for mode in ["write-back", "write-through", "write-around", "pass-through"] {
        let pond = Pond::new();
        pond.mount(&["--size", SIZE, "--mode", mode]).ok();
        write_and_sync(&pond.mnt().join("clean"), &pattern(8 << 20, 1));
        pond.flush().ok();
        pond.unmount(&[]).ok();
        pond.mount(&[]).ok();
        OpenOptions::new().write(true).open(pond.flash()).unwrap().set_len(1 << 20).unwrap();
        // What the origin has is read from there, and what is new is written.
        assert!(fs::read(pond.mnt().join("clean")).unwrap() == pattern(8 << 20, 1), "{mode}");
        write_and_sync(&pond.mnt().join("new"), &pattern(2 << 20, 2));
        assert!(fs::read(pond.mnt().join("new")).unwrap() == pattern(2 << 20, 2), "{mode}");
        pond.unmount(&[]).ok();
        assert!(fs::read(pond.origin().join("clean")).unwrap() == pattern(8 << 20, 1), "{mode}");
        assert!(fs::read(pond.origin().join("new")).unwrap() == pattern(2 << 20, 2), "{mode}");
    }
}

#[test]
fn a_block_device_whose_backing_fails_is_no_error_of_applications() {
    let pond = Pond::new();
    fs::File::create(pond.at("device")).unwrap().set_len(80 << 20).unwrap();
    let Some(flash) = Loop::over(&pond.at("device")) else { return };
    let mount = |more: &[&str]| {
        let mut command = headpond();
        command.arg("mount").arg(pond.origin()).arg(pond.mnt()).arg("--flash").arg(flash.device());
        command.arg("--background").arg("--log").arg(pond.at("log")).args(more);
        Said::from(command.output().unwrap())
    };
    mount(&["--format"]).ok();
    write_and_sync(&pond.mnt().join("clean"), &pattern(8 << 20, 1));
    pond.unmount(&[]).ok();
    mount(&[]).ok();
    // Reads beyond the end of what is behind the device fail, as on a device that is gone.
    OpenOptions::new().write(true).open(pond.at("device")).unwrap().set_len(4096).unwrap();
    assert!(fs::read(pond.mnt().join("clean")).unwrap() == pattern(8 << 20, 1));
    write_and_sync(&pond.mnt().join("new"), &pattern(2 << 20, 2));
    let mut again = OpenOptions::new().write(true).open(pond.mnt().join("new")).unwrap();
    again.seek(SeekFrom::Start(0)).unwrap();
    again.write_all(&pattern(2 << 20, 3)).unwrap();
    drop(again);
    pond.unmount(&[]).ok();
    assert!(fs::read(pond.origin().join("clean")).unwrap() == pattern(8 << 20, 1));
    assert!(fs::read(pond.origin().join("new")).unwrap() == pattern(2 << 20, 3));
}
