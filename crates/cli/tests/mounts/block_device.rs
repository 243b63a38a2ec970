//! A block device as flash.

use std::fs;
use std::process::Command;

use crate::loop_device::{Loop, make_ext4, run};
use crate::pond::{Pond, Said, headpond, pattern, write_and_sync};

fn mount(pond: &Pond, flash: &Loop, more: &[&str]) -> Said {
    let mut command = headpond();
    command.arg("mount").arg(pond.origin()).arg(pond.mnt()).arg("--flash").arg(flash.device());
    Said::from(command.arg("--background").arg("--log").arg(pond.at("log")).args(more).output().unwrap())
}

#[test]
fn a_block_device_is_taken_with_format_only_and_serves_as_a_file_does() {
    let pond = Pond::new();
    make_ext4(&pond.at("device"), 80 << 20);
    let Some(flash) = Loop::over(&pond.at("device")) else { return };
    let before = fs::read(pond.at("device")).unwrap();
    mount(&pond, &flash, &[]).refused(32, &["ext4 file system", "--format", "Nothing was written"]);
    assert!(fs::read(pond.at("device")).unwrap() == before, "the device was touched");
    mount(&pond, &flash, &["--format", "--size", "1G"]).refused(34, &["80 MiB", "1 GiB"]);
    mount(&pond, &flash, &["--format"]).ok();
    assert_eq!(pond.status()["size_bytes"], 80 << 20);
    write_and_sync(&pond.mnt().join("file"), &pattern(1 << 20, 1));
    pond.unmount(&["--keep-dirty"]).ok();
    assert!(fs::read(pond.origin().join("file")).unwrap() != pattern(1 << 20, 1), "it is in the pool only");
    mount(&pond, &flash, &[]).ok();
    pond.unmount(&[]).ok();
    assert!(fs::read(pond.origin().join("file")).unwrap() == pattern(1 << 20, 1));
}

#[test]
fn a_block_device_that_holds_a_mounted_file_system_is_refused() {
    let pond = Pond::new();
    make_ext4(&pond.at("device"), 80 << 20);
    let Some(mut flash) = Loop::over(&pond.at("device")) else { return };
    flash.mount(&pond.at("other"), "rw");
    mount(&pond, &flash, &["--format", "--discard-dirty"]).refused(31, &["mounted as a file system"]);
    fs::write(pond.at("other/still"), "there").unwrap();
}

#[test]
fn a_block_device_that_became_smaller_is_refused() {
    let pond = Pond::new();
    fs::File::create(pond.at("device")).unwrap().set_len(80 << 20).unwrap();
    let Some(flash) = Loop::over(&pond.at("device")) else { return };
    mount(&pond, &flash, &["--format"]).ok();
    write_and_sync(&pond.mnt().join("file"), &pattern(1 << 20, 1));
    pond.unmount(&["--keep-dirty"]).ok();
    fs::OpenOptions::new().write(true).open(pond.at("device")).unwrap().set_len(72 << 20).unwrap();
    run(Command::new("losetup").arg("--set-capacity").arg(flash.device()));
    mount(&pond, &flash, &[]).refused(36, &["cut short", "Nothing was written"]);
}
