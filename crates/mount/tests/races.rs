//! What others do to a file at the origin between the mount's look at it and the engine's answer.
#![allow(clippy::unwrap_used, reason = "a test ends where its ground gives way")]

mod bench;

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::{Arc, Mutex};

use bench::Bench;
use bench::straight::Straight;
use headpond_base::{ObjectId, Result};
use headpond_engine::{Namespace, OpenObject, Request};
use headpond_format::Stamp;
use headpond_mount::{Done, Operation, Pond};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

type Racer = Box<dyn FnOnce() + Send>;

/// The requests that the engine gets in a race.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Told {
    Open(Stamp),
    Close,
    Restamp(Stamp),
    Unlink,
}

/// Lets something happen at the origin at the next open, after the mount has looked, or before the next change of
/// names.
struct Racing {
    straight: Arc<Straight>,
    racer: Mutex<Option<Racer>>,
    before_names: Mutex<Option<Racer>>,
    told: Mutex<Vec<Told>>,
}

impl Racing {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            straight: Straight::start(),
            racer: Mutex::default(),
            before_names: Mutex::default(),
            told: Mutex::default(),
        })
    }

    fn race(&self, racer: impl FnOnce() + Send + 'static) {
        self.told.lock().unwrap().clear();
        *self.racer.lock().unwrap() = Some(Box::new(racer));
    }

    fn told(&self) -> Vec<Told> {
        self.told.lock().unwrap().clone()
    }
}

impl Pond for Racing {
    fn submit(&self, request: Request, done: Done) {
        let told = match &request {
            Request::Open(OpenObject::File(file)) => Some(Told::Open(file.stamp)),
            Request::Close { .. } => Some(Told::Close),
            Request::Restamp { stamp, .. } => Some(Told::Restamp(*stamp)),
            _ => None,
        };
        if let Request::Open(_) = request
            && let Some(racer) = self.racer.lock().unwrap().take()
        {
            racer();
        }
        self.told.lock().unwrap().extend(told);
        self.straight.submit(request, done);
    }

    fn namespace(&self, change: Option<Namespace>, operation: Operation) -> Result<()> {
        if let Some(Namespace::Unlink { .. }) = change {
            self.told.lock().unwrap().push(Told::Unlink);
        }
        let racer = self.before_names.lock().unwrap().take();
        racer.into_iter().for_each(|racer| racer());
        self.straight.namespace(change, operation)
    }

    fn attach(&self, object: ObjectId, file: File) {
        self.straight.attach(object, file);
    }

    fn sync_origin(&self, object: ObjectId) -> Result<()> {
        self.straight.sync_origin(object)
    }
}

fn stamp(path: &Path) -> Stamp {
    use std::os::unix::fs::MetadataExt;
    let found = fs::metadata(path).unwrap();
    let time = |seconds: i64, nanos: i64| headpond_base::UnixNanos(seconds * 1_000_000_000 + nanos);
    Stamp {
        size: found.len(),
        mtime: time(found.mtime(), found.mtime_nsec()),
        ctime: time(found.ctime(), found.ctime_nsec()),
    }
}

/// A mount with a file that the kernel knows, and the engine's requests when it is opened while `racer` runs.
fn opened_while(racer: impl FnOnce(&Path) + Send + 'static) -> (Bench, Arc<Racing>, Vec<Told>) {
    let (bench, pond) = Bench::over(|origin| {
        fs::write(origin.join("file"), "content").unwrap();
        Racing::new()
    });
    fs::metadata(bench.mountpoint.join("file")).unwrap();
    let origin = bench.origin.clone();
    pond.race(move || racer(&origin));
    let file = File::open(bench.mountpoint.join("file")).unwrap();
    let told = pond.told();
    drop(file);
    (bench, pond, told)
}

#[test]
fn an_open_that_meets_nobody_is_told_once() {
    let (bench, _, told) = opened_while(|_| {});
    assert_eq!(told, [Told::Open(stamp(&bench.origin.join("file")))]);
}

#[test]
fn the_engine_is_told_when_the_last_name_of_a_file_goes_while_it_is_opened() {
    let (_bench, _, told) = opened_while(|origin| fs::remove_file(origin.join("file")).unwrap());
    assert_eq!(told[1..], [Told::Unlink]);
}

#[test]
fn the_engine_is_told_of_the_stamp_that_a_rename_gave_a_file_while_it_is_opened() {
    let (bench, _, told) = opened_while(|origin| {
        // Time has to move on: file systems stamp by a coarse clock.
        std::thread::sleep(std::time::Duration::from_millis(20));
        fs::rename(origin.join("file"), origin.join("other")).unwrap();
    });
    assert_eq!(told[1..], [Told::Restamp(stamp(&bench.origin.join("other")))]);
}

#[test]
fn a_file_that_is_written_while_it_is_opened_is_opened_again_as_it_is_now() {
    let (bench, pond, told) = opened_while(|origin| fs::write(origin.join("file"), "something longer").unwrap());
    let now = stamp(&bench.origin.join("file"));
    assert_eq!(told[1..], [Told::Close, Told::Open(now)]);
    // For a second the kernel believes the size that it was told before.
    let whole = || fs::read_to_string(bench.mountpoint.join("file")).unwrap() == "something longer";
    assert!(soon(whole), "what is read is what is there now");
    // The kernel gives handles back a moment after the close.
    assert!(soon(|| pond.straight.open_handles() == 0), "each open is given back");
}

/// What is seen of that without a kernel is in `src/without_kernel.rs`.
#[test]
fn an_open_waits_for_the_removal_of_the_file_and_the_engine_knows_that_it_is_gone() {
    // On a busy machine the open may come after the removal.
    let (_bench, pond, file) = (0..20).find_map(|_| opened_during_removal()).expect("an open comes before the removal");
    assert_eq!(pond.told().last(), Some(&Told::Unlink), "{:?}", pond.told());
    assert_eq!(std::io::read_to_string(&file).unwrap(), "content");
}

/// A file that was opened while its removal waited. `None` if it was removed first.
fn opened_during_removal() -> Option<(Bench, Arc<Racing>, File)> {
    let (bench, pond) = Bench::over(|origin| {
        fs::write(origin.join("file"), "content").unwrap();
        Racing::new()
    });
    let path = bench.mountpoint.join("file");
    // By a descriptor: a look-up would wait for the removal in the kernel.
    let held = rustix::fs::open(&path, OFlags::PATH, Mode::empty()).unwrap();
    let name = format!("/proc/self/fd/{}", held.as_raw_fd());
    let opened = Arc::new(Mutex::new(None));
    let opening = opened.clone();
    *pond.before_names.lock().unwrap() = Some(Box::new(move || {
        let thread = std::thread::spawn(move || File::open(name));
        std::thread::sleep(std::time::Duration::from_millis(50));
        *opening.lock().unwrap() = Some(thread);
    }));
    fs::remove_file(&path).unwrap();
    let file = opened.lock().unwrap().take().unwrap().join().unwrap();
    if file.as_ref().is_err_and(|error| error.raw_os_error() == Some(Errno::STALE.raw_os_error())) {
        return None;
    }
    Some((bench, pond, file.unwrap()))
}

/// Whether something comes true before patience ends.
fn soon(is_so: impl Fn() -> bool) -> bool {
    (0..1000).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        is_so()
    })
}
