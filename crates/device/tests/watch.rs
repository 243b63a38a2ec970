//! A device may wait for a descriptor of its owner along with the flash.
#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::os::fd::OwnedFd;
use std::time::Duration;

use headpond_device::{Backend, Device, Fill, Flash, Memory, Op, Tag, TrimPolicy, start_device};

fn uring() -> (Box<dyn Device>, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let flash = Flash::create(&dir.path().join("flash"), 1 << 20, Fill::Reserved).unwrap();
    (start_device(flash, Backend::Uring, TrimPolicy::Off).unwrap(), dir)
}

/// Waits for what the test will bring about, however often the wait ends early.
fn wait_readable(device: &mut dyn Device) {
    let mut done = Vec::new();
    while !device.take_readable() {
        device.wait(&mut done, Some(Duration::from_secs(5))).unwrap();
    }
}

#[test]
fn each_time_that_the_descriptor_becomes_readable_a_wait_ends() {
    let (mut device, _dir) = uring();
    let (reader, mut writer) = std::io::pipe().unwrap();
    assert!(device.watch(OwnedFd::from(reader.try_clone().unwrap())));
    // What was there before the watch is to be looked for once.
    assert!(device.take_readable());
    for _ in 0..3 {
        writer.write_all(b"x").unwrap();
        wait_readable(&mut *device);
        assert!(!device.take_readable(), "told once");
    }
    let mut late = writer.try_clone().unwrap();
    let thread = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        late.write_all(b"x").unwrap();
    });
    wait_readable(&mut *device);
    thread.join().unwrap();
}

#[test]
fn a_descriptor_that_breaks_ends_a_wait_too() {
    let (mut device, _dir) = uring();
    let (reader, writer) = std::io::pipe().unwrap();
    assert!(device.watch(OwnedFd::from(reader)));
    assert!(device.take_readable());
    drop(writer);
    wait_readable(&mut *device);
}

#[test]
fn what_is_not_watched_any_more_is_let_go() {
    let (mut device, _dir) = uring();
    let (reader, mut writer) = std::io::pipe().unwrap();
    assert!(device.watch(OwnedFd::from(reader)));
    let mut done = Vec::new();
    device.wait(&mut done, Some(Duration::ZERO)).unwrap();
    device.unwatch();
    // The flash goes on as before, and the kernel closes the last end of the pipe.
    device.submit(Op::Sync { tag: Tag(1) });
    while done.is_empty() {
        device.wait(&mut done, None).unwrap();
    }
    assert!(!device.take_readable());
    while writer.write_all(b"x").is_ok() {
        device.wait(&mut done, Some(Duration::from_millis(1))).unwrap();
    }
}

#[test]
fn a_device_without_means_for_it_says_so() {
    let (reader, _writer) = std::io::pipe().unwrap();
    let mut device = Memory::new(1 << 20);
    assert!(!device.watch(OwnedFd::from(reader)));
    assert!(!device.take_readable());
}
