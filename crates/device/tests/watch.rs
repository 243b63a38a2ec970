//! A reactor may wait for descriptors of its owner along with the disks.
#![allow(clippy::unwrap_used)]

use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use headpond_base::MemberId;
use headpond_device::{
    Backend, DiskOp, Fill, Flash, MemoryDisks, Reactor, Tag, TrimPolicy, WATCHES_MAX, WatchToken, start_reactor,
};

const DISK: MemberId = MemberId(0);

fn on_file(backend: Backend) -> (Box<dyn Reactor>, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let flash = Flash::create(&dir.path().join("flash"), 1 << 20, Fill::Reserved).unwrap();
    (start_reactor(vec![(DISK, flash)], backend, TrimPolicy::Off).unwrap(), dir)
}

/// Each of those that watch.
fn all() -> [(Box<dyn Reactor>, tempfile::TempDir); 2] {
    [on_file(Backend::Uring), on_file(Backend::Psync)]
}

/// Waits for what the test will bring about, however often the wait ends early.
fn wait_readable(reactor: &mut dyn Reactor) -> WatchToken {
    let mut done = Vec::new();
    loop {
        if let Some(watch) = reactor.take_readable() {
            return watch;
        }
        reactor.wait(&mut done, Some(Duration::from_secs(5))).unwrap();
    }
}

fn watched(reactor: &mut dyn Reactor, reader: &PipeReader) -> WatchToken {
    let watch = reactor.watch(reader.as_fd().try_clone_to_owned().unwrap()).unwrap();
    // The caller looks once for what was there before the watch.
    assert_eq!(reactor.take_readable(), Some(watch));
    watch
}

fn pipe() -> (PipeReader, PipeWriter) {
    std::io::pipe().unwrap()
}

#[test]
fn each_time_that_the_descriptor_becomes_readable_a_wait_ends() {
    for (mut reactor, _dir) in all() {
        let (reader, mut writer) = pipe();
        let watch = watched(&mut *reactor, &reader);
        for _ in 0..3 {
            writer.write_all(b"x").unwrap();
            assert_eq!(wait_readable(&mut *reactor), watch);
            assert_eq!(reactor.take_readable(), None, "told once");
        }
        let mut late = writer.try_clone().unwrap();
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            late.write_all(b"x").unwrap();
        });
        wait_readable(&mut *reactor);
        thread.join().unwrap();
    }
}

#[test]
fn of_two_descriptors_it_is_said_which_is_readable_and_neither_keeps_the_other_from_its_turn() {
    for (mut reactor, _dir) in all() {
        let ((mut left, mut to_left), (right, mut to_right)) = (pipe(), pipe());
        let (a, b) = (watched(&mut *reactor, &left), watched(&mut *reactor, &right));
        assert_ne!(a, b);
        to_right.write_all(b"x").unwrap();
        assert_eq!(wait_readable(&mut *reactor), b);
        to_left.write_all(b"x").unwrap();
        assert_eq!(wait_readable(&mut *reactor), a);
        // Both at once, and one of them again before the other was told of.
        to_left.write_all(b"x").unwrap();
        to_right.write_all(b"x").unwrap();
        let first = wait_readable(&mut *reactor);
        to_left.write_all(b"x").unwrap();
        to_right.write_all(b"x").unwrap();
        let second = wait_readable(&mut *reactor);
        assert_ne!(first, second);
        // The end of one is not the other's.
        left.read_exact(&mut [0; 3]).unwrap();
        reactor.unwatch(a);
        while let Some(watch) = reactor.take_readable() {
            assert_eq!(watch, b);
        }
        to_left.write_all(b"x").unwrap();
        to_right.write_all(b"x").unwrap();
        assert_eq!(wait_readable(&mut *reactor), b);
        assert_eq!(reactor.take_readable(), None);
    }
}

#[test]
fn a_watch_is_never_taken_for_one_that_is_gone() {
    for (mut reactor, _dir) in all() {
        let (reader, mut writer) = pipe();
        let gone = watched(&mut *reactor, &reader);
        writer.write_all(b"x").unwrap();
        // The kernel has the watch, and perhaps its answer is there already.
        reactor.wait(&mut Vec::new(), Some(Duration::ZERO)).unwrap();
        reactor.unwatch(gone);
        let (other, _to_other) = pipe();
        let watch = watched(&mut *reactor, &other);
        assert_ne!(watch, gone);
        for _ in 0..10 {
            reactor.wait(&mut Vec::new(), Some(Duration::from_millis(1))).unwrap();
            assert_eq!(reactor.take_readable(), None, "nothing came for this one");
        }
        reactor.unwatch(gone);
    }
}

#[test]
fn more_descriptors_than_a_reactor_watches_are_refused_and_room_comes_back() {
    for (mut reactor, _dir) in all() {
        let (reader, _writer) = pipe();
        let duplicate = || reader.as_fd().try_clone_to_owned().unwrap();
        let watches: Vec<_> = (0..WATCHES_MAX).map(|_| reactor.watch(duplicate()).unwrap()).collect();
        assert!(reactor.watch(duplicate()).is_none());
        reactor.unwatch(watches[7]);
        assert!(reactor.watch(duplicate()).is_some());
    }
}

#[test]
fn a_descriptor_that_breaks_ends_a_wait_too() {
    for (mut reactor, _dir) in all() {
        let (reader, writer) = pipe();
        watched(&mut *reactor, &reader);
        drop(writer);
        wait_readable(&mut *reactor);
    }
}

#[test]
fn what_is_not_watched_any_more_is_let_go() {
    for (mut reactor, _dir) in all() {
        let (reader, mut writer) = pipe();
        let watch = reactor.watch(OwnedFd::from(reader)).unwrap();
        let mut done = Vec::new();
        reactor.wait(&mut done, Some(Duration::ZERO)).unwrap();
        reactor.unwatch(watch);
        // The flash goes on as before, and the kernel closes the last end of the pipe.
        reactor.submit(DISK, DiskOp::Sync { tag: Tag(1) });
        while done.is_empty() {
            reactor.wait(&mut done, None).unwrap();
        }
        assert_eq!(reactor.take_readable(), None);
        while writer.write_all(b"x").is_ok() {
            reactor.wait(&mut done, Some(Duration::from_millis(1))).unwrap();
        }
    }
}

#[test]
fn a_reactor_without_means_for_it_says_so() {
    let mut reactor = MemoryDisks::new(1 << 20);
    let (reader, _writer) = pipe();
    assert_eq!(reactor.watch(OwnedFd::from(reader)), None);
    assert_eq!(reactor.take_readable(), None);
}
