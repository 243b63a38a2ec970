//! What the kernel keeps of a file's bytes is what the file holds, also after writes that went past it.
//!
//! A direct write that is asynchronous (AIO, io_uring) is made here by a flash device of headpond's own over a file of
//! the mount.
#![allow(clippy::unwrap_used, reason = "a test ends where its ground gives way")]

mod bench;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use bench::Bench;
use bench::straight::Straight;
use headpond_base::{BufMut, MemberId, ObjectId, Result};
use headpond_device::{Backend, DiskOp, End, Flash, Tag, TrimPolicy, start_reactor};
use headpond_engine::{Namespace, Request};
use headpond_mount::{Done, Operation, Pond};

/// Bytes of the file and of a write.
const FILE: usize = 64 << 10;
const PAGE: usize = 4096;

type Held = Box<dyn FnOnce() + Send>;

/// Holds writes before they are made, and answers of reads, for as long as the test says.
struct Holding {
    straight: Arc<Straight>,
    writes: Mutex<Option<Sender<Held>>>,
    reads: Mutex<Option<Sender<Held>>>,
}

impl Holding {
    fn new() -> Arc<Self> {
        Arc::new(Self { straight: Straight::start(), writes: Mutex::default(), reads: Mutex::default() })
    }

    /// The next write is given here instead of being made.
    fn hold_write(&self) -> Receiver<Held> {
        let (send, held) = channel();
        *self.writes.lock().unwrap() = Some(send);
        held
    }

    /// The next read is made, and its answer is given here.
    fn hold_read(&self) -> Receiver<Held> {
        let (send, held) = channel();
        *self.reads.lock().unwrap() = Some(send);
        held
    }
}

impl Pond for Holding {
    fn submit(&self, request: Request, done: Done) {
        let held = match &request {
            Request::Write { .. } => self.writes.lock().unwrap().take(),
            Request::Read { .. } => {
                if let Some(send) = self.reads.lock().unwrap().take() {
                    let late = move |reply| send.send(Box::new(move || done(reply))).unwrap();
                    return self.straight.submit(request, Box::new(late));
                }
                None
            }
            _ => None,
        };
        match held {
            Some(send) => {
                let straight = self.straight.clone();
                send.send(Box::new(move || straight.submit(request, done))).unwrap();
            }
            None => self.straight.submit(request, done),
        }
    }

    fn namespace(&self, change: Option<Namespace>, operation: Operation) -> Result<()> {
        self.straight.namespace(change, operation)
    }

    fn attach(&self, object: ObjectId, file: File) {
        self.straight.attach(object, file);
    }

    fn sync_origin(&self, object: ObjectId) -> Result<()> {
        self.straight.sync_origin(object)
    }
}

/// A mount with a file full of `a`.
fn mount() -> (Bench, Arc<Holding>) {
    Bench::over(|origin| {
        fs::write(origin.join("file"), [b'a'; FILE]).unwrap();
        Holding::new()
    })
}

/// Begins an asynchronous direct write of one page, and waits for its end on a thread of its own.
fn write_directly(path: &Path, at: u64, byte: u8) -> Option<JoinHandle<()>> {
    let flash = Flash::open(path).unwrap();
    let Ok(mut disks) = start_reactor(vec![(MemberId(0), flash)], Backend::Uring, TrimPolicy::Off) else {
        assert!(std::env::var_os("HEADPOND_TEST_ALL").is_none(), "io_uring is not allowed here");
        eprintln!("NOT TESTED without io_uring");
        return None;
    };
    let data = BufMut::copy_of(&[byte; PAGE]).freeze();
    Some(std::thread::spawn(move || {
        disks.submit(MemberId(0), DiskOp::Write { tag: Tag(1), offset: at, data });
        let mut done = Vec::new();
        while done.is_empty() {
            disks.wait(&mut done, None).unwrap();
        }
        assert!(matches!(done[0].end, End::Write(Ok(()))), "{done:?}");
    }))
}

fn byte_at(file: &File, at: u64) -> u8 {
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    byte[0]
}

#[test]
fn a_page_that_was_read_while_a_direct_write_was_under_way_is_not_kept() {
    let (bench, pond) = mount();
    let path = bench.mountpoint.join("file");
    let reader = File::open(&path).unwrap();
    let held = pond.hold_write();
    let Some(writer) = write_directly(&path, 0, b'b') else { return };
    let write = held.recv().unwrap();
    assert_eq!(byte_at(&reader, 0), b'a', "it is not made yet");
    write();
    writer.join().unwrap();
    assert_eq!(byte_at(&reader, 0), b'b', "once it is done, whoever reads sees it");
    assert_eq!(byte_at(&File::open(&path).unwrap(), 0), b'b');
}

#[test]
fn an_old_answer_that_comes_late_is_not_kept_and_nobody_waits_for_ever() {
    let (bench, pond) = mount();
    let path = bench.mountpoint.join("file");
    let reader = File::open(&path).unwrap();
    let held_write = pond.hold_write();
    let Some(writer) = write_directly(&path, 0, b'b') else { return };
    let write = held_write.recv().unwrap();
    let held_read = pond.hold_read();
    let reading = std::thread::spawn(move || (byte_at(&reader, 0), reader));
    let late = held_read.recv().unwrap();
    // The write is made, and the old bytes are on their way: the kernel holds their page until they are there.
    write();
    late();
    // It was asked before, and may see either: the kernel asks again for a page that it has dropped.
    let (_, reader) = reading.join().unwrap();
    writer.join().unwrap();
    assert_eq!(byte_at(&reader, 0), b'b');
}

#[test]
fn a_buffered_write_before_the_direct_one_is_made_is_not_what_stays() {
    let (bench, pond) = mount();
    let path = bench.mountpoint.join("file");
    let other = File::options().read(true).write(true).open(&path).unwrap();
    let held = pond.hold_write();
    let Some(writer) = write_directly(&path, 0, b'b') else { return };
    let write = held.recv().unwrap();
    other.write_all_at(&[b'c'; PAGE], 0).unwrap();
    write();
    writer.join().unwrap();
    assert_eq!(byte_at(&other, 0), b'b', "it was made last");
}

#[test]
fn pages_are_forgotten_also_long_after_the_last_reader_and_for_the_next_one() {
    let (bench, pond) = mount();
    let path = bench.mountpoint.join("file");
    let reader = File::open(&path).unwrap();
    for round in 0..3 {
        assert_eq!(byte_at(&reader, 8 * PAGE as u64), b'a', "another page is kept all the time");
        for byte in 0..100 {
            let Some(writer) = write_directly(&path, 0, byte) else { return };
            writer.join().unwrap();
        }
        let held = pond.hold_write();
        let Some(writer) = write_directly(&path, 0, b'b') else { return };
        let write = held.recv().unwrap();
        assert_eq!(byte_at(&reader, 0), 99, "round {round}");
        write();
        writer.join().unwrap();
        assert_eq!(byte_at(&reader, 0), b'b', "round {round}");
    }
}
