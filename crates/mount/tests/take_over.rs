//! A mount whose server ends where it is, and another one that goes on with the same kernel device: programs keep what
//! they have open.
#![allow(clippy::unwrap_used, reason = "a test ends where its ground gives way")]

#[path = "bench/keeper.rs"]
mod keeper;
#[path = "bench/straight.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod straight;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use headpond_base::{ObjectId, Result};
use headpond_door::Door;
use headpond_engine::{Namespace, Request};
use headpond_mount::{Beside, Done, MountLedger, MountOptions, Mounted, Operation, Pond, attach_to, mount_lasting};
use keeper::{Kept, ROOM};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Dir, Mode, OFlags};
use rustix::mount::UnmountFlags;
use straight::Straight;

/// The stand-in for the engine, on a thread that serves the mount until it dies.
struct Mortal {
    straight: Arc<Straight>,
    dead: Arc<AtomicBool>,
    serving: Mutex<Option<JoinHandle<()>>>,
}

impl Mortal {
    fn start() -> Arc<Self> {
        Arc::new(Self { straight: Straight::start(), dead: Arc::default(), serving: Mutex::default() })
    }

    /// From now on it takes no request, and closes nothing.
    fn dies(&self) {
        self.dead.store(true, Ordering::SeqCst);
        self.serving.lock().unwrap().take().unwrap().join().unwrap();
    }
}

impl Pond for Mortal {
    fn submit(&self, request: Request, done: Done) {
        self.straight.submit(request, done);
    }

    fn serve(&self, mut door: Box<dyn Door>) {
        let (straight, dead) = (self.straight.clone(), self.dead.clone());
        let serve = move || {
            let device = door.descriptor().unwrap();
            while !dead.load(Ordering::SeqCst) {
                let mut watched = [PollFd::new(&device, PollFlags::IN)];
                let _ = poll(&mut watched, Some(&Timespec { tv_sec: 0, tv_nsec: 2_000_000 }));
                let taken = door.take(1, &mut |request, done| straight.submit(request, done));
                if matches!(taken, headpond_door::Taken::Closed) {
                    return;
                }
            }
            std::mem::forget(door);
        };
        *self.serving.lock().unwrap() = Some(std::thread::spawn(serve));
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

struct Bench {
    _directory: tempfile::TempDir,
    options: MountOptions,
    words: &'static [AtomicU64],
    keeper: Arc<Kept>,
    pond: Arc<Mortal>,
    mounted: Option<Mounted>,
    ledger: Arc<MountLedger>,
}

impl Bench {
    fn new() -> Self {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let [origin, mountpoint] = ["origin", "mount"].map(|name| directory.path().join(name));
        fs::create_dir(&origin).unwrap();
        fs::create_dir(&mountpoint).unwrap();
        let options = MountOptions { origin, mountpoint, allow_other: false, threads: 2, read_only: false };
        let words = keeper::words();
        let (pond, keeper) = (Mortal::start(), Arc::new(Kept::default()));
        let ledger = MountLedger::create(words, ROOM).unwrap();
        let lasting = keeper::lasting(&ledger, &keeper);
        let root = File::open(&options.origin).unwrap().into();
        let beside = Beside::default();
        let mounted = mount_lasting(&options, root, pond.clone(), &[], beside, Some(lasting)).unwrap();
        Self { _directory: directory, options, words, keeper, pond, mounted: Some(mounted), ledger }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.options.mountpoint.join(name)
    }

    /// The server ends, and `meanwhile` happens. Then another one goes on.
    fn dies(&mut self, meanwhile: impl FnOnce(&OwnedFd)) {
        let mounted = self.mounted.take().unwrap();
        let device = mounted.device().unwrap();
        self.pond.dies();
        // Nothing of it is closed.
        std::mem::forget(mounted);
        std::mem::forget(self.pond.clone());
        self.ledger.leave();
        meanwhile(&device);
        self.words = keeper::copy_of(self.words);
        self.ledger = MountLedger::open(self.words).unwrap();
        self.pond = Mortal::start();
        let lasting = keeper::lasting(&self.ledger, &self.keeper);
        let root = File::open(&self.options.origin).unwrap().into();
        let beside = Beside::default();
        let attached = attach_to(device, &self.options, root, self.pond.clone(), &[], beside, lasting).unwrap();
        assert_eq!(attached.lost, 0);
        self.mounted = Some(attached.mounted);
        assert!(attached.sends_again, "this kernel cannot send requests again: the test needs Linux 6.9");
    }

    fn kept(&self) -> usize {
        self.keeper.count()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if let Some(mounted) = &mut self.mounted
            && let Err(error) = mounted.unmount()
        {
            eprintln!("{error}");
        }
        // Whatever a failed test left, what is below must not be deleted through the mount.
        let _ = rustix::mount::unmount(&self.options.mountpoint, UnmountFlags::DETACH);
    }
}

/// Whether something comes true before patience ends.
fn soon(is_so: impl Fn() -> bool) -> bool {
    (0..1000).any(|_| {
        std::thread::sleep(Duration::from_millis(5));
        is_so()
    })
}

fn read(file: &File) -> String {
    let mut content = vec![0; 100];
    let len = file.read_at(&mut content, 0).unwrap();
    String::from_utf8(content[..len].to_vec()).unwrap()
}

fn new(path: &Path, content: &str) -> File {
    let file = File::options().read(true).write(true).create_new(true).open(path).unwrap();
    file.write_all_at(content.as_bytes(), 0).unwrap();
    file
}

#[test]
fn programs_keep_what_they_have_open_when_another_server_goes_on() {
    let mut bench = Bench::new();
    let written = new(&bench.path("written"), "before");
    let removed = new(&bench.path("removed"), "removed");
    fs::remove_file(bench.path("removed")).unwrap();
    let renamed = new(&bench.path("old"), "renamed");
    fs::rename(bench.path("old"), bench.path("new")).unwrap();
    let replaced = new(&bench.path("replaced"), "replaced");
    let replacing = new(&bench.path("replacing"), "replacing");
    fs::rename(bench.path("replacing"), bench.path("replaced")).unwrap();
    let linked = new(&bench.path("one"), "linked");
    fs::hard_link(bench.path("one"), bench.path("other")).unwrap();
    fs::remove_file(bench.path("one")).unwrap();
    let flags = OFlags::RDWR | OFlags::TMPFILE;
    let nameless = File::from(rustix::fs::open(&bench.options.mountpoint, flags, Mode::RUSR | Mode::WUSR).unwrap());
    nameless.write_all_at(b"nameless", 0).unwrap();
    fs::create_dir_all(bench.path("deep/er")).unwrap();
    let below = new(&bench.path("deep/er/file"), "below");
    fs::rename(bench.path("deep"), bench.path("moved")).unwrap();
    fs::create_dir(bench.path("gone")).unwrap();
    let gone = File::open(bench.path("gone")).unwrap();
    fs::remove_dir(bench.path("gone")).unwrap();
    fs::create_dir(bench.path("many")).unwrap();
    let names: BTreeSet<String> = (0..2000).map(|number| format!("{number:0>60}")).collect();
    names.iter().for_each(|name| drop(File::create(bench.options.origin.join("many").join(name)).unwrap()));
    let mut many = Dir::new(File::open(bench.path("many")).unwrap()).unwrap();
    let mut next = || {
        let entry = many.read()?.unwrap();
        Some(entry.file_name().to_str().unwrap().to_owned())
    };
    let mut seen: BTreeSet<String> = (0..500).map(|_| next().unwrap()).collect();
    let before: Vec<(u64, u64)> = [&written, &removed, &renamed, &linked, &nameless, &gone]
        .iter()
        .map(|file| file.metadata().map(|found| (found.ino(), found.nlink())).unwrap())
        .collect();
    assert_eq!(bench.kept(), 5, "removed, replaced, without a known name, without a name, and the directory");

    for round in 0..2 {
        bench.dies(|_| {});
        let after: Vec<(u64, u64)> = [&written, &removed, &renamed, &linked, &nameless, &gone]
            .iter()
            .map(|file| file.metadata().map(|found| (found.ino(), found.nlink())).unwrap())
            .collect();
        assert_eq!(after, before, "round {round}");
        for (file, content) in [
            (&written, "before"),
            (&removed, "removed"),
            (&renamed, "renamed"),
            (&replaced, "replaced"),
            (&replacing, "replacing"),
            (&linked, "linked"),
            (&nameless, "nameless"),
            (&below, "below"),
        ] {
            assert_eq!(read(file), content, "round {round}");
            file.write_all_at(b"XY", 50).unwrap();
            file.sync_all().unwrap();
            file.set_len(content.len() as u64).unwrap();
        }
        assert_eq!(bench.kept(), 5, "round {round}");
    }
    seen.extend(std::iter::from_fn(&mut next));
    seen.retain(|name| !name.starts_with('.'));
    assert_eq!(seen, names);
    // Names go on.
    fs::rename(bench.path("new"), bench.path("newer")).unwrap();
    renamed.write_all_at(b"R", 0).unwrap();
    fs::remove_file(bench.path("written")).unwrap();
    assert_eq!((written.metadata().unwrap().nlink(), read(&written)), (0, "before".to_owned()));
    assert_eq!(fs::read_to_string(bench.options.origin.join("newer")).unwrap(), "Renamed");
    assert_eq!(fs::read_to_string(bench.path("moved/er/file")).unwrap(), "below");
    drop((written, removed, renamed, replaced, replacing, linked, nameless, below, gone, many));
    // The kernel gives back what it holds: a moment after the close, and when it is asked to.
    assert!(soon(|| bench.kept() == 1), "{} are kept", bench.kept());
    fs::remove_dir_all(bench.path("moved")).unwrap();
    for name in ["newer", "replaced", "other"] {
        fs::remove_file(bench.path(name)).unwrap();
    }
    bench.mounted.as_mut().unwrap().unmount().unwrap();
    assert_eq!((bench.kept(), bench.ledger.missing()), (0, 0));
    bench.mounted = None;
    assert!(soon(|| bench.ledger.counts() == (0, 0)), "{:?}", bench.ledger.counts());
}

#[test]
fn the_kernel_gives_back_every_lookup_and_handle() {
    let mut bench = Bench::new();
    let files: Vec<File> = (0..20).map(|number| new(&bench.path(&number.to_string()), "content")).collect();
    bench.dies(|_| {});
    (0..20).for_each(|number| assert!(fs::metadata(bench.path(&number.to_string())).is_ok()));
    bench.dies(|_| {});
    let again: Vec<File> = (0..20).map(|number| File::open(bench.path(&number.to_string())).unwrap()).collect();
    (0..20).for_each(|number| fs::remove_file(bench.path(&number.to_string())).unwrap());
    assert_eq!(bench.ledger.counts(), (20, 40));
    drop((files, again));
    // The last name and the last handle of each are gone, and with that the kernel forgets it.
    assert!(soon(|| bench.ledger.counts() == (0, 0)), "{:?}", bench.ledger.counts());
    assert_eq!(bench.kept(), 0);
}

/// Reads a request as a server would, past the one that has died. Returns its operation, number and name.
fn take(device: &OwnedFd) -> (u32, u64, Vec<u8>) {
    let mut request = vec![0; (1 << 20) + (1 << 16)];
    loop {
        let mut watched = [PollFd::new(device, PollFlags::IN)];
        let _ = poll(&mut watched, None);
        if let Ok(len) = rustix::io::read(device, &mut request[..]) {
            let opcode = u32::from_ne_bytes(request[4..8].try_into().unwrap());
            let unique = u64::from_ne_bytes(request[8..16].try_into().unwrap());
            return (opcode, unique, request[40..len].to_vec());
        }
    }
}

#[test]
fn callers_that_wait_while_no_server_is_there_get_their_answers() {
    const LOOKUP: u32 = 1;
    const MKDIR: u32 = 9;
    let mut bench = Bench::new();
    let (path, at_origin) = (bench.path("made"), bench.options.origin.join("made"));
    let file = new(&bench.path("file"), "content");
    // The kernel knows the directory for a second.
    fs::metadata(&bench.options.mountpoint).unwrap();
    let mut callers = Vec::new();
    bench.dies(|device| {
        callers.push(std::thread::spawn(move || fs::create_dir(path)));
        loop {
            let (opcode, unique, _) = take(device);
            if opcode == LOOKUP {
                let answer = [&16_u32.to_ne_bytes()[..], &(-2_i32).to_ne_bytes(), &unique.to_ne_bytes()].concat();
                rustix::io::write(device, &answer).unwrap();
            } else {
                assert_eq!(opcode, MKDIR);
                // A directory is made, and the server dies before it answers.
                fs::create_dir(&at_origin).unwrap();
                break;
            }
        }
        let reader = file.try_clone().unwrap();
        // Taken by nobody, and then taken and not answered.
        callers.push(std::thread::spawn(move || reader.set_len(3)));
        take(device);
    });
    for caller in callers {
        caller.join().unwrap().unwrap();
    }
    assert!(bench.path("made").is_dir());
    assert_eq!(read(&file), "con");
    drop(file);
    fs::remove_dir(bench.path("made")).unwrap();
    fs::remove_file(bench.path("file")).unwrap();
    assert!(soon(|| bench.ledger.counts() == (0, 0)), "{:?}", bench.ledger.counts());
}
