//! Requests that are sent again, without a kernel: one process carries each out and its answer is lost; the next one
//! gets the request again, with bit 63 of its number set.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use fuser::{BackgroundSession, Config, SessionACL};
use headpond_door::Workers;
use headpond_ledger::{LedgerRoom, MountLedger};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};

use crate::beside::Beside;
use crate::caller::Caller;
use crate::file_system::FileSystem;
use crate::front::Front;
use crate::front::asked_again::Asked;
use crate::front::ioctl::{ATOMIC_WRITE_SET, COMMIT_ATOMIC_WRITE, START_ATOMIC_WRITE};
use crate::fuse::answer::Answer;
use crate::fuse::relay::{self, Socket};
use crate::fuse::wire::{ANSWER_HEAD, Create, HEAD, RequestHead};
use crate::lasting::{DescriptorKeeper, LastingMount};
use crate::without_kernel::Told;

const AGAIN: u64 = 1 << 63;
const ROOM: LedgerRoom = LedgerRoom { inodes: 64, handles: 16 };

mod opcode {
    pub(super) const LOOKUP: u32 = 1;
    pub(super) const FORGET: u32 = 2;
    pub(super) const SYMLINK: u32 = 6;
    pub(super) const MKNOD: u32 = 8;
    pub(super) const MKDIR: u32 = 9;
    pub(super) const UNLINK: u32 = 10;
    pub(super) const RMDIR: u32 = 11;
    pub(super) const RENAME: u32 = 12;
    pub(super) const LINK: u32 = 13;
    pub(super) const OPEN: u32 = 14;
    pub(super) const RELEASE: u32 = 18;
    pub(super) const SETXATTR: u32 = 21;
    pub(super) const REMOVEXATTR: u32 = 24;
    pub(super) const OPENDIR: u32 = 27;
    pub(super) const IOCTL: u32 = 39;
    pub(super) const RELEASEDIR: u32 = 29;
    pub(super) const CREATE: u32 = 35;
    pub(super) const RENAME2: u32 = 45;
}

/// Keeps descriptors as a process above this one would.
#[derive(Default)]
struct Kept(Mutex<BTreeMap<u64, OwnedFd>>, AtomicBool);

impl DescriptorKeeper for Kept {
    fn keep(&self, number: u64, file: BorrowedFd<'_>) -> io::Result<()> {
        if self.1.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.0.lock().unwrap().insert(number, file.try_clone_to_owned()?);
        Ok(())
    }

    fn let_go(&self, number: u64) {
        self.0.lock().unwrap().remove(&number);
    }
}

/// What an answer has for an error if the process ended before it.
const DIED: i32 = -1;

/// A process that ends before one of its stores to the ledger.
struct Death {
    left: AtomicU64,
    has_come: AtomicBool,
}

impl Death {
    fn after(stores: u64) -> &'static Self {
        Box::leak(Box::new(Self { left: AtomicU64::new(stores), has_come: AtomicBool::new(false) }))
    }

    /// Whether the process lives. If not, its thread stops here.
    fn lives(&self) -> bool {
        if self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() {
            return true;
        }
        self.has_come.store(true, Ordering::SeqCst);
        loop {
            std::thread::park();
        }
    }
}

/// A process that serves.
struct Life {
    death: Option<&'static Death>,
    front: Arc<Front>,
    socket: Socket,
    workers: Workers,
    device: Arc<OwnedFd>,
    kernel: OwnedFd,
    _serving: BackgroundSession,
}

/// An origin, and what outlives the processes.
struct Mount {
    directory: tempfile::TempDir,
    words: &'static [AtomicU64],
    keeper: Arc<Kept>,
    life: Life,
}

/// What a request got.
#[derive(PartialEq, Eq, Debug)]
struct Got {
    error: i32,
    body: Vec<u8>,
}

impl Got {
    /// The node of an entry.
    fn node(&self) -> u64 {
        if self.error == DIED {
            return 1;
        }
        assert_eq!(self.error, 0);
        u64::from_ne_bytes(self.body[..8].try_into().unwrap())
    }

    /// The handle of an open.
    fn handle(&self, at: usize) -> u64 {
        assert_eq!(self.error, 0, "{self:?}");
        u64::from_ne_bytes(self.body[at..at + 8].try_into().unwrap())
    }
}

impl Life {
    fn begin(directory: &Path, ledger: Arc<MountLedger>, keeper: Arc<Kept>, death: Option<&'static Death>) -> Self {
        let root = rustix::fs::open(directory, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let kept = std::mem::take(&mut *keeper.0.lock().unwrap());
        for (number, file) in &kept {
            keeper.keep(*number, file.as_fd()).unwrap();
        }
        let lasting = LastingMount { ledger, keeper, kept, journal: None };
        let pond = Arc::new(Told::default());
        let (front, inodes) = Front::lasting(root, false, pond, &[], Beside::default(), Some(lasting)).unwrap();
        front.whole.hold();
        assert_eq!(front.take_over(&inodes), 0);
        drop(inodes);
        let front = Arc::new(front);
        let flags = SocketFlags::CLOEXEC;
        let (kernel, device) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        let device = Arc::new(device);
        let mut config = Config::default();
        config.acl = SessionACL::All;
        config.n_threads = Some(1);
        let standstill = front.standstill.clone();
        let (socket, serving) =
            relay::start(FileSystem::new(front.clone()), &config, device.clone(), None, standstill).unwrap();
        Self { death, front, socket, workers: Workers::start(1).unwrap(), device, kernel, _serving: serving }
    }

    fn send(&self, opcode: u32, node: u64, unique: u64, body: &[u8]) {
        let mut message = RequestHead::message(opcode, unique, body);
        message[16..24].copy_from_slice(&node.to_ne_bytes());
        message[32..36].copy_from_slice(&std::process::id().to_ne_bytes());
        let asked = RequestHead::parse(&message).unwrap();
        let (head, body) = message.split_at(HEAD);
        self.socket.pass(&self.device, &asked, head, body, &self.workers);
    }

    fn has_died(&self) -> bool {
        self.death.is_some_and(|death| death.has_come.load(Ordering::SeqCst))
    }

    fn got(&self, unique: u64) -> Got {
        let mut watched = [PollFd::new(&self.kernel, PollFlags::IN)];
        let pause = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
        while self.death.is_some() && !poll(&mut watched, Some(&pause)).is_ok_and(|ready| ready > 0) {
            if self.has_died() {
                return Got { error: DIED, body: Vec::new() };
            }
        }
        let mut answer = vec![0; 4096];
        let (len, _) = rustix::net::recv(&self.kernel, &mut answer[..], RecvFlags::empty()).unwrap();
        assert_eq!(answer[8..16], unique.to_ne_bytes());
        let error = -i32::from_ne_bytes(answer[4..8].try_into().unwrap());
        Got { error, body: answer[ANSWER_HEAD..len].to_vec() }
    }

    fn ask(&self, opcode: u32, node: u64, unique: u64, body: &[u8]) -> Got {
        self.send(opcode, node, unique, body);
        self.got(unique)
    }

    fn ask_nameless(&self, unique: u64) -> Got {
        let create = Create { flags: OFlags::RDWR.bits(), mode: 0o600, umask: 0 };
        let caller = Caller { uid: me(), gid: rustix::process::getegid().as_raw(), pid: std::process::id() };
        let (front, answer) = (self.front.clone(), Answer::new(self.device.clone(), unique));
        self.workers.push(move || front.answer_tmpfile(1, create, caller, Asked::by(unique), answer));
        self.got(unique)
    }
}

fn me() -> u32 {
    rustix::process::geteuid().as_raw()
}

impl Mount {
    fn new() -> Self {
        Self::dying(None)
    }

    fn dying(death: Option<&'static Death>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let words: Vec<AtomicU64> = (0..ROOM.words()).map(|_| AtomicU64::new(0)).collect();
        let words = Box::leak(words.into_boxed_slice());
        let keeper = Arc::new(Kept::default());
        let ledger = match death {
            Some(death) => MountLedger::create_mortal(words, ROOM, Box::leak(Box::new(|| death.lives()))).unwrap(),
            None => MountLedger::create(words, ROOM).unwrap(),
        };
        let life = Life::begin(directory.path(), ledger, keeper.clone(), death);
        Self { directory, words, keeper, life }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }

    /// The process ends where it is, and another one goes on.
    fn dies(&mut self) {
        self.life.front.ledger.as_ref().unwrap().leave();
        // A copy: whatever is left of the dead process writes to its own words.
        let words = self.words.iter().map(|word| AtomicU64::new(word.load(Ordering::SeqCst))).collect();
        self.words = Box::leak(Vec::into_boxed_slice(words));
        let next =
            Life::begin(self.directory.path(), MountLedger::open(self.words).unwrap(), self.keeper.clone(), None);
        std::mem::replace(&mut self.life, next).socket.shut();
    }

    fn look_up(&self, name: &str, unique: u64) -> u64 {
        self.life.ask(opcode::LOOKUP, 1, unique, &text(&[name])).node()
    }

    fn open(&self, node: u64, unique: u64) -> u64 {
        self.life.ask(opcode::OPEN, node, unique, &body(&[OFlags::RDWR.bits(), 0], &[])).handle(0)
    }

    fn release(&self, node: u64, handle: u64, unique: u64) {
        let mut released = handle.to_ne_bytes().to_vec();
        released.resize(24, 0);
        assert_eq!(self.life.ask(opcode::RELEASE, node, unique, &released).error, 0);
    }

    fn ioctl(&self, node: u64, handle: u64, command: u32, unique: u64) -> i32 {
        let mut request = handle.to_ne_bytes().to_vec();
        // Flags, command, address, sizes, and the number 1.
        let numbers = [0, command, 0, 0, 4, 0, 1];
        request.extend(numbers.iter().flat_map(|number: &u32| number.to_ne_bytes()));
        self.life.ask(opcode::IOCTL, node, unique, &request).error
    }

    fn lookups(&self, node: u64) -> u64 {
        self.life.front.names.inodes.get(node).map_or(0, |inode| inode.lookups())
    }
}

fn text(names: &[&str]) -> Vec<u8> {
    names.iter().flat_map(|name| [name.as_bytes(), &[0]].concat()).collect()
}

fn body(numbers: &[u32], names: &[&str]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_ne_bytes()).chain(text(names)).collect()
}

/// A request, and what must be so once it was made, however often.
struct Row {
    what: &'static str,
    before: fn(&Path),
    ask: fn(&Mount, u64) -> Got,
    is_so: fn(&Path) -> bool,
}

const NOTHING: fn(&Path) = |_| {};

fn content(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn two_files(path: &Path) {
    fs::write(path.join("one"), "one").unwrap();
    fs::write(path.join("other"), "other").unwrap();
}

fn rename(mount: &Mount, unique: u64, flags: u32) -> Got {
    mount.life.ask(opcode::RENAME2, 1, unique, &body(&[1, 0, flags, 0], &["one", "other"]))
}

fn set(mount: &Mount, unique: u64, flags: u32) -> Got {
    let node = mount.look_up("one", 1);
    mount.life.ask(opcode::SETXATTR, node, unique, &[body(&[5, flags], &["user.name"]), b"value".to_vec()].concat())
}

fn has_value(path: &Path) -> bool {
    let mut value = [0; 9];
    rustix::fs::getxattr(path.join("one"), "user.name", &mut value[..]).is_ok_and(|length| value[..length] == *b"value")
}

const ROWS: &[Row] = &[
    Row {
        what: "mkdir",
        before: NOTHING,
        ask: |mount, unique| mount.life.ask(opcode::MKDIR, 1, unique, &body(&[0o755, 0], &["one"])),
        is_so: |path| path.join("one").is_dir(),
    },
    Row {
        what: "mknod of a file",
        before: NOTHING,
        ask: |mount, unique| mount.life.ask(opcode::MKNOD, 1, unique, &body(&[0o100_644, 0, 0, 0], &["one"])),
        is_so: |path| path.join("one").is_file(),
    },
    Row {
        what: "mknod of a pipe",
        before: NOTHING,
        ask: |mount, unique| mount.life.ask(opcode::MKNOD, 1, unique, &body(&[0o010_644, 0, 0, 0], &["one"])),
        is_so: |path| fs::metadata(path.join("one")).is_ok_and(|found| found.file_type().is_fifo()),
    },
    Row {
        what: "symlink",
        before: NOTHING,
        ask: |mount, unique| mount.life.ask(opcode::SYMLINK, 1, unique, &text(&["one", "target"])),
        is_so: |path| fs::read_link(path.join("one")).is_ok_and(|target| target == Path::new("target")),
    },
    Row {
        what: "link",
        before: |path| fs::write(path.join("file"), "").unwrap(),
        ask: |mount, unique| {
            let node = mount.look_up("file", 1);
            let mut request = node.to_ne_bytes().to_vec();
            request.extend(text(&["one"]));
            mount.life.ask(opcode::LINK, 1, unique, &request)
        },
        is_so: |path| fs::metadata(path.join("one")).is_ok_and(|found| found.nlink() == 2),
    },
    Row {
        what: "unlink",
        before: two_files,
        ask: |mount, unique| mount.life.ask(opcode::UNLINK, 1, unique, &text(&["one"])),
        is_so: |path| !path.join("one").exists() && path.join("other").exists(),
    },
    Row {
        what: "rmdir",
        before: |path| fs::create_dir(path.join("one")).unwrap(),
        ask: |mount, unique| mount.life.ask(opcode::RMDIR, 1, unique, &text(&["one"])),
        is_so: |path| !path.join("one").exists(),
    },
    Row {
        what: "rename to a free name",
        before: |path| fs::write(path.join("one"), "one").unwrap(),
        ask: |mount, unique| {
            mount.life.ask(opcode::RENAME, 1, unique, &[&1_u64.to_ne_bytes()[..], &text(&["one", "other"])].concat())
        },
        is_so: |path| !path.join("one").exists() && content(&path.join("other")) == "one",
    },
    Row {
        what: "rename over a file",
        before: two_files,
        ask: |mount, unique| {
            mount.look_up("other", 1);
            rename(mount, unique, 0)
        },
        is_so: |path| !path.join("one").exists() && content(&path.join("other")) == "one",
    },
    Row {
        what: "rename that keeps what is there",
        before: |path| fs::write(path.join("one"), "one").unwrap(),
        ask: |mount, unique| rename(mount, unique, 1),
        is_so: |path| !path.join("one").exists() && content(&path.join("other")) == "one",
    },
    Row {
        what: "exchange",
        before: two_files,
        ask: |mount, unique| rename(mount, unique, 2),
        is_so: |path| content(&path.join("one")) == "other" && content(&path.join("other")) == "one",
    },
    Row {
        what: "setxattr",
        before: |path| fs::write(path.join("one"), "").unwrap(),
        ask: |mount, unique| set(mount, unique, 0),
        is_so: has_value,
    },
    Row {
        what: "setxattr that only creates",
        before: |path| fs::write(path.join("one"), "").unwrap(),
        ask: |mount, unique| set(mount, unique, 1),
        is_so: has_value,
    },
    Row {
        what: "removexattr",
        before: |path| {
            fs::write(path.join("one"), "").unwrap();
            let flags = rustix::fs::XattrFlags::empty();
            rustix::fs::setxattr(path.join("one"), "user.name", b"value", flags).unwrap();
        },
        ask: |mount, unique| {
            let node = mount.look_up("one", 1);
            mount.life.ask(opcode::REMOVEXATTR, node, unique, &text(&["user.name"]))
        },
        is_so: |path| !has_value(path),
    },
];

#[test]
fn what_was_done_and_not_answered_is_answered_as_done_when_it_is_sent_again() {
    for Row { what, before, ask, is_so } in ROWS {
        let mut mount = Mount::new();
        before(mount.directory.path());
        let first = ask(&mount, 100);
        assert_eq!(first.error, 0, "{what}");
        mount.dies();
        let again = ask(&mount, 100 | AGAIN);
        assert_eq!(again.error, 0, "{what}, again");
        assert!(is_so(mount.directory.path()), "{what}");
        if first.body.len() >= 8 {
            assert_eq!(again.node(), first.node(), "{what}");
            // Before each link the test looks the file up.
            let of_test = if *what == "link" { 2 } else { 0 };
            assert_eq!(mount.lookups(again.node()), 1 + of_test, "{what}: the kernel has one");
        }
        // Once more.
        mount.dies();
        assert_eq!(ask(&mount, 100 | AGAIN).error, 0, "{what}, a third time");
        assert!(is_so(mount.directory.path()), "{what}");
    }
}

/// Lets a process end before each of the stores that it makes for a request, and shows what the next one finds.
fn end_anywhere(
    begin: impl Fn(&'static Death) -> Mount,
    check: impl Fn(&mut Mount, Got, u64),
    ask: impl Fn(&Mount, u64) -> Got,
) {
    for stores in 0.. {
        let death = Death::after(u64::MAX);
        let mut mount = begin(death);
        death.left.store(stores, Ordering::SeqCst);
        let got = ask(&mount, 100);
        let died = mount.life.has_died();
        death.left.store(u64::MAX, Ordering::SeqCst);
        mount.dies();
        check(&mut mount, got, stores);
        if !died {
            return;
        }
        assert!(stores < 200, "it does not end");
    }
}

#[test]
fn a_process_may_end_before_any_of_its_stores() {
    for Row { what, before, ask, is_so } in ROWS {
        let begin = |death| {
            let mount = Mount::dying(Some(death));
            before(mount.directory.path());
            mount
        };
        let check = |mount: &mut Mount, _, stores| {
            for round in 0..2 {
                let again = ask(mount, 100 | AGAIN);
                assert_eq!(again.error, 0, "{what} after {stores} stores, round {round}");
                assert!(is_so(mount.directory.path()), "{what} after {stores} stores");
                if again.body.len() >= 8 {
                    let node = again.node();
                    assert!(mount.lookups(node) >= 1, "{what} after {stores} stores");
                    let inode = mount.life.front.names.inodes.get(node).unwrap();
                    let found = crate::reached::Reached::stat(&*inode).unwrap();
                    assert_eq!(found.inode, node, "{what} after {stores} stores");
                }
                mount.dies();
            }
        };
        end_anywhere(begin, check, ask);
    }
}

#[test]
fn what_was_taken_and_not_done_is_done_when_it_is_sent_again() {
    for Row { what, before, ask, is_so } in ROWS {
        let mut mount = Mount::new();
        before(mount.directory.path());
        mount.dies();
        assert_eq!(ask(&mount, 100 | AGAIN).error, 0, "{what}");
        assert!(is_so(mount.directory.path()), "{what}");
    }
}

#[test]
fn what_is_not_sent_again_fails_as_ever() {
    let mount = Mount::new();
    fs::create_dir(mount.path("one")).unwrap();
    let made = |unique| mount.life.ask(opcode::MKDIR, 1, unique, &body(&[0o755, 0], &["one"])).error;
    assert_eq!(made(5), Errno::EXIST.raw_os_error());
    let removed = mount.life.ask(opcode::UNLINK, 1, 6, &text(&["none"])).error;
    assert_eq!(removed, Errno::NOENT.raw_os_error());
    // Something else has the name: then it was not done.
    assert_eq!(
        mount.life.ask(opcode::SYMLINK, 1, 7 | AGAIN, &text(&["one", "target"])).error,
        Errno::EXIST.raw_os_error()
    );
}

#[test]
fn a_lookup_that_was_counted_and_not_answered_counts_once() {
    let mut mount = Mount::new();
    fs::write(mount.path("file"), "").unwrap();
    let node = mount.look_up("file", 7);
    mount.dies();
    assert_eq!(mount.lookups(node), 1);
    assert_eq!(mount.look_up("file", 7 | AGAIN), node);
    assert_eq!(mount.lookups(node), 1);
    mount.dies();
    assert_eq!(mount.look_up("file", 7 | AGAIN), node);
    assert_eq!(mount.look_up("file", 8), node);
    assert_eq!(mount.lookups(node), 2);
    mount.life.send(opcode::FORGET, node, 9, &2_u64.to_ne_bytes());
    mount.look_up("file", 10);
    assert_eq!(mount.lookups(node), 1, "the two were forgotten");
}

/// Where the handle stands in the answer to something that also enters.
const AFTER_ENTRY: usize = 128;
type Open = fn(&Mount, u64) -> Got;
const OPENS: [(&str, Open, usize, u32); 4] = [
    (
        "open",
        |mount, unique| {
            let node = mount.look_up("file", 1);
            mount.life.ask(opcode::OPEN, node, unique, &body(&[OFlags::RDWR.bits(), 0], &[]))
        },
        0,
        opcode::RELEASE,
    ),
    (
        "opendir",
        |mount, unique| {
            let node = mount.look_up("directory", 1);
            mount.life.ask(opcode::OPENDIR, node, unique, &body(&[0, 0], &[]))
        },
        0,
        opcode::RELEASEDIR,
    ),
    (
        "create",
        |mount, unique| {
            let flags = (OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL).bits();
            mount.life.ask(opcode::CREATE, 1, unique, &body(&[flags, 0o644, 0, 0], &["new"]))
        },
        AFTER_ENTRY,
        opcode::RELEASE,
    ),
    ("a file without a name", |mount, unique| mount.life.ask_nameless(unique), AFTER_ENTRY, opcode::RELEASE),
];

#[test]
fn no_handle_is_opened_twice_for_one_request() {
    for (what, open, at, release) in OPENS {
        let mut mount = Mount::new();
        fs::write(mount.path("file"), "").unwrap();
        fs::create_dir(mount.path("directory")).unwrap();
        let first = open(&mount, 50);
        mount.dies();
        let again = open(&mount, 50 | AGAIN);
        assert_eq!(again.handle(at), first.handle(at), "{what}");
        let open_now = || {
            let front = &mount.life.front;
            [front.files.is_empty(), front.directories.is_empty()].into_iter().filter(|is_empty| !is_empty).count()
        };
        assert_eq!((open_now(), mount.life.front.ledger.as_ref().unwrap().counts().1), (1, 1), "{what}");
        if at > 0 {
            assert_eq!(mount.lookups(again.node()), 1, "{what}");
        }
        let mut released = again.handle(at).to_ne_bytes().to_vec();
        released.resize(24, 0);
        for unique in [60, 60 | AGAIN] {
            assert_eq!(mount.life.ask(release, 1, unique, &released).error, 0, "{what}");
        }
        assert_eq!((open_now(), mount.life.front.ledger.as_ref().unwrap().counts().1), (0, 0), "{what}");
    }
}

#[test]
fn an_open_may_end_before_any_store_and_leaves_no_handle() {
    for (what, open, at, release) in OPENS {
        let begin = |death| {
            let mount = Mount::dying(Some(death));
            fs::write(mount.path("file"), "").unwrap();
            fs::create_dir(mount.path("directory")).unwrap();
            mount
        };
        let check = |mount: &mut Mount, _, stores| {
            let opened = open(mount, 100 | AGAIN);
            let handle = opened.handle(at);
            let handles = |mount: &Mount| mount.life.front.ledger.as_ref().unwrap().counts().1;
            assert_eq!(handles(mount), 1, "{what} after {stores} stores");
            mount.dies();
            let mut released = handle.to_ne_bytes().to_vec();
            released.resize(24, 0);
            assert_eq!(mount.life.ask(release, 1, 101, &released).error, 0);
            assert_eq!(handles(mount), 0, "{what} after {stores} stores");
        };
        end_anywhere(begin, check, open);
    }
}

#[test]
fn a_file_that_was_created_and_whose_handle_was_not_noted_is_opened() {
    let mut mount = Mount::new();
    fs::write(mount.path("new"), "").unwrap();
    mount.dies();
    let flags = (OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL).bits();
    let create = body(&[flags, 0o644, 0, 0], &["new"]);
    assert_eq!(mount.life.ask(opcode::CREATE, 1, 4, &create).error, Errno::STALE.raw_os_error(), "by another");
    let created = mount.life.ask(opcode::CREATE, 1, 5 | AGAIN, &create);
    assert_eq!((created.error, mount.lookups(created.node())), (0, 1));
}

#[test]
fn files_without_a_name_are_with_the_keeper_until_nothing_needs_them() {
    let mut mount = Mount::new();
    let kept = |mount: &Mount| mount.keeper.0.lock().unwrap().len();
    fs::write(mount.path("file"), "content").unwrap();
    let node = mount.look_up("file", 1);
    let handle = mount.open(node, 2);
    assert_eq!(kept(&mount), 0);
    assert_eq!(mount.life.ask(opcode::UNLINK, 1, 3, &text(&["file"])).error, 0);
    assert_eq!(kept(&mount), 1);
    mount.dies();
    let file = mount.life.front.files.get(handle).unwrap();
    assert_eq!(crate::reached::Reached::stat(&**file.inode).unwrap().links, 0);
    let mut content = String::new();
    let again = crate::reached::Reached::open(&**file.inode, OFlags::RDONLY).unwrap();
    io::Read::read_to_string(&mut fs::File::from(again), &mut content).unwrap();
    assert_eq!(content, "content");
    drop(file);
    mount.release(node, handle, 4);
    mount.life.send(opcode::FORGET, node, 5, &1_u64.to_ne_bytes());
    fs::write(mount.path("next"), "").unwrap();
    mount.look_up("next", 6);
    assert_eq!(kept(&mount), 0);
    assert_eq!(mount.life.front.ledger.as_ref().unwrap().counts(), (1, 0));
}

#[test]
fn a_name_is_found_where_it_is_after_a_rename_that_was_not_noted() {
    let mut mount = Mount::new();
    fs::create_dir(mount.path("directory")).unwrap();
    fs::write(mount.path("directory/file"), "").unwrap();
    let directory = mount.look_up("directory", 1);
    let node = mount.life.ask(opcode::LOOKUP, directory, 2, &text(&["file"])).node();
    // The process ends between the origin's rename and the note of it.
    fs::rename(mount.path("directory"), mount.path("moved")).unwrap();
    mount.dies();
    let request = [&1_u64.to_ne_bytes()[..], &text(&["directory", "moved"])].concat();
    assert_eq!(mount.life.ask(opcode::RENAME, 1, 3 | AGAIN, &request).error, 0);
    let inode = mount.life.front.names.inodes.get(node).unwrap();
    assert_eq!(crate::reached::Reached::stat(&*inode).unwrap().inode, node);
    assert_eq!(inode.place().unwrap().1, OsStr::from_bytes(b"file"));
}

#[test]
fn a_keeper_that_cannot_keep_a_file_stands_in_the_way_of_a_successor_while_the_file_is_in_use() {
    let mount = Mount::new();
    fs::write(mount.path("file"), "").unwrap();
    let node = mount.look_up("file", 1);
    let handle = mount.open(node, 2);
    mount.keeper.1.store(true, Ordering::SeqCst);
    assert_eq!(mount.life.ask(opcode::UNLINK, 1, 3, &text(&["file"])).error, 0, "the mount goes on");
    assert!(MountLedger::open(mount.words).is_err());
    mount.release(node, handle, 4);
    mount.life.send(opcode::FORGET, node, 5, &1_u64.to_ne_bytes());
    fs::write(mount.path("next"), "").unwrap();
    mount.look_up("next", 6);
    assert!(MountLedger::open(mount.words).is_ok());
}

#[test]
fn a_promise_of_whole_writes_outlives_the_process_that_made_it() {
    let mut mount = Mount::new();
    fs::write(mount.path("file"), "").unwrap();
    let node = mount.look_up("file", 1);
    let handle = mount.open(node, 2);
    let is_whole = |mount: &Mount, handle| mount.life.front.files.get(handle).unwrap().is_whole();
    assert!(!is_whole(&mount, handle));
    assert_eq!(mount.ioctl(node, handle, ATOMIC_WRITE_SET, 3), 0);
    mount.dies();
    assert!(is_whole(&mount, handle));
    let relies: Vec<u32> = mount.life.front.whole.files().iter().map(|file| file.process).collect();
    assert_eq!(relies, [std::process::id()]);
    // The program closes the file, opens it again and does not ask again. In between another process goes on.
    mount.release(node, handle, 4);
    mount.dies();
    let again = mount.open(node, 5);
    assert_ne!(again, handle);
    assert!(is_whole(&mount, again) && mount.life.front.whole.leave().is_err());
}

#[test]
fn an_atomic_write_whose_pieces_are_lost_fails_and_the_next_one_does_not() {
    let mut mount = Mount::new();
    fs::write(mount.path("file"), "").unwrap();
    let node = mount.look_up("file", 1);
    let handle = mount.open(node, 2);
    assert_eq!(mount.ioctl(node, handle, START_ATOMIC_WRITE, 3), 0);
    mount.dies();
    let file = mount.life.front.files.get(handle).unwrap();
    assert_eq!(file.atomic_writing.write(0, b"a later piece"), Some(Err(Errno::IO)));
    drop(file);
    assert_eq!(mount.ioctl(node, handle, COMMIT_ATOMIC_WRITE, 4), Errno::IO.raw_os_error());
    assert_eq!(mount.ioctl(node, handle, START_ATOMIC_WRITE, 5), 0);
    assert_eq!(mount.ioctl(node, handle, COMMIT_ATOMIC_WRITE, 6), 0);
    mount.dies();
    assert!(!mount.life.front.files.get(handle).unwrap().atomic_writing.is_open());
}

#[test]
fn what_was_not_synced_at_the_origin_is_synced_by_the_successor() {
    let mut mount = Mount::new();
    fs::write(mount.path("file"), "").unwrap();
    let node = mount.look_up("file", 1);
    let inode = |mount: &Mount| mount.life.front.names.inodes.get(node).unwrap();
    let mut request = node.to_ne_bytes().to_vec();
    request.extend(text(&["name"]));
    assert!(!inode(&mount).is_unsynced());
    assert_eq!(mount.life.ask(opcode::LINK, 1, 2, &request).error, 0);
    mount.dies();
    assert!(inode(&mount).is_unsynced());
    let handle = mount.open(node, 3);
    let file = mount.life.front.files.get(handle).unwrap();
    mount.life.front.sync_attributes(&file).unwrap();
    drop(file);
    mount.dies();
    assert!(!inode(&mount).is_unsynced(), "once");
}
