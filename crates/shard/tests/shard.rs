//! What a shard promises whatever the engine: shown with an engine that does nearly nothing.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use headpond_base::{BLOCK, Buf, BufMut, CacheMode, Errno, MemberId, Nanos, ObjectId, UnixNanos};
use headpond_device::{
    Backend, Fault, FaultPlan, Faults, Fill, Flash, MemoryDisks, OpKind, Reactor, TrimPolicy, start_reactor,
};
use headpond_engine::{
    Attributes, Effect, Namespace, Outcome, Reply, Request, RequestId, Served, Space, Stats, Ticket, Treatment,
};
use headpond_format::{Address, Stamp};
use headpond_shard::{Core, Handle, Limits, Origin, Remains, Shard, StopError, Term};

/// Reads below this are of the flash; others of the origin.
const FLASH: ObjectId = ObjectId(1);
const ORIGIN: ObjectId = ObjectId(2);

/// A byte of the one disk.
fn on_flash(offset: u64) -> Address {
    Address { member: MemberId(0), offset }
}

/// Turns each request into one effect, and that one's end into the answer.
#[derive(Default)]
struct Plain {
    effects: Vec<Effect>,
    under_way: HashMap<Ticket, RequestId>,
    tickets: u64,
    held: Vec<RequestId>,
    release: Arc<AtomicBool>,
    now: Nanos,
    /// Gone when this is.
    _alive: Option<Sender<()>>,
}

impl Plain {
    fn start(&mut self, request: RequestId, effect: impl FnOnce(Ticket) -> Effect) {
        let ticket = Ticket(self.tickets);
        self.tickets += 1;
        self.under_way.insert(ticket, request);
        self.effects.push(effect(ticket));
    }

    fn answer(&mut self, request: RequestId, reply: Reply) {
        self.effects.push(Effect::Reply { request, reply });
    }
}

impl Core for Plain {
    fn advance(&mut self, now: Nanos) {
        assert!(now >= self.now, "time goes back");
        self.now = now;
        if self.release.load(Ordering::SeqCst) {
            for request in std::mem::take(&mut self.held) {
                self.answer(request, Reply::Done);
            }
        }
    }

    fn submit(&mut self, id: RequestId, request: Request) {
        match request {
            Request::Read { object: FLASH, offset, len, .. } => {
                self.start(id, |ticket| Effect::FlashRead { ticket, at: on_flash(offset), len });
            }
            Request::Read { object, offset, len, .. } => {
                self.start(id, |ticket| Effect::OriginRead { ticket, object, offset, len });
            }
            Request::Write { object: FLASH, offset, data, .. } => {
                self.start(id, |ticket| Effect::FlashWrite { ticket, at: on_flash(offset), data });
            }
            Request::Write { object, offset, data, .. } => {
                self.start(id, |ticket| Effect::OriginWrite {
                    ticket,
                    object,
                    offset,
                    data: vec![data],
                    user: 0,
                    written_out: false,
                });
            }
            Request::SyncAll => self.start(id, |ticket| Effect::FlashSync { ticket, member: MemberId(0) }),
            Request::Sync { object, .. } => self.start(id, |ticket| Effect::OriginSync { ticket, object }),
            Request::Seek { object, offset, data } => {
                self.start(id, |ticket| Effect::OriginSeek { ticket, object, offset, data });
            }
            Request::Namespace(Namespace::Unlink { object: ObjectId(0) }) => {
                self.answer(id, Reply::Failed(Errno::SHUTDOWN));
            }
            Request::Namespace(_) => self.start(id, |ticket| Effect::OriginNamespace { ticket, request: id }),
            Request::Flush { .. } => self.held.push(id),
            Request::SetMode(_) => panic!("a bug in the engine"),
            _ => self.answer(id, Reply::Done),
        }
    }

    fn complete(&mut self, ticket: Ticket, outcome: Outcome) {
        let request = self.under_way.remove(&ticket).expect("completed once");
        self.answer(
            request,
            match outcome {
                Outcome::Done | Outcome::Stamp(_) => Reply::Done,
                Outcome::Bytes(bytes) => Reply::Data(vec![bytes], Served::default()),
                Outcome::Offset(offset) => Reply::Offset(offset),
                Outcome::Space(_) | Outcome::Free(_) => Reply::Done,
                Outcome::Failed(errno) => Reply::Failed(errno),
            },
        );
    }

    fn take_effects(&mut self, out: &mut Vec<Effect>) {
        out.append(&mut self.effects);
    }

    fn next_wake(&self) -> Option<Nanos> {
        (!self.held.is_empty()).then(|| self.now.plus(Nanos::MILLISECOND))
    }

    fn stats(&self) -> Stats {
        Stats { reads: self.tickets, ..Stats::default() }
    }
}

/// An origin whose writes wait at a gate, and whose every read names its offset.
#[derive(Default)]
struct Gated {
    open: Mutex<bool>,
    changed: Condvar,
    writing: AtomicU64,
}

impl Gated {
    fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.changed.notify_all();
    }

    fn pass(&self) {
        self.writing.fetch_add(1, Ordering::SeqCst);
        let mut open = self.open.lock().unwrap();
        while !*open {
            open = self.changed.wait(open).unwrap();
        }
    }
}

impl Origin for Gated {
    fn read(&self, _: ObjectId, offset: u64, _: usize) -> Result<Buf, Errno> {
        match offset {
            666 => panic!("a bug in the origin"),
            13 => Err(Errno(71)),
            _ => Ok(BufMut::copy_of(&offset.to_le_bytes()).freeze()),
        }
    }
    fn write(&self, _: ObjectId, _: u64, _: &[Buf], _: u32, _: bool) -> Result<(), Errno> {
        self.pass();
        Ok(())
    }
    fn zero(&self, _: ObjectId, _: u64, _: u64, _: bool) -> Result<(), Errno> {
        Ok(())
    }
    fn resize(&self, _: ObjectId, _: u64) -> Result<(), Errno> {
        Ok(())
    }
    fn reserve(&self, _: ObjectId, _: &[(u64, u64)], _: u32, _: bool) -> Result<Space, Errno> {
        Ok(Space::default())
    }
    fn free(&self, _: ObjectId, _: bool) -> Result<headpond_engine::Room, Errno> {
        Ok(headpond_engine::Room { free: 0, bytes: 0, counts: false })
    }
    fn sync(&self, _: ObjectId) -> Result<(), Errno> {
        Err(Errno(122))
    }
    fn stamp(&self, _: ObjectId, _: UnixNanos) -> Result<Stamp, Errno> {
        Ok(Stamp::default())
    }
    fn members_changed(&self, _: u64) -> Result<(), Errno> {
        Ok(())
    }

    fn pool_failed(&self) -> Result<(), Errno> {
        Ok(())
    }

    fn seek(&self, _: ObjectId, _: u64, _: bool) -> Result<u64, Errno> {
        Err(Errno::NXIO)
    }
    fn attach(&self, _: ObjectId, _: std::fs::File) {}
    fn release(&self, _: ObjectId) -> Option<Remains> {
        None
    }
}

fn start_on(flash: Box<dyn Reactor>, limits: Limits) -> (Handle, Arc<Gated>) {
    let origin = Arc::new(Gated::default());
    (Shard::start(Plain::default(), flash, origin.clone(), limits).unwrap(), origin)
}

fn start(limits: Limits) -> (Handle, Arc<Gated>) {
    start_on(Box::new(MemoryDisks::new(4 << 20)), limits)
}

fn read(object: ObjectId, offset: u64) -> Request {
    Request::Read { object, offset, len: BLOCK as u32, how: Treatment::default() }
}

fn write(object: ObjectId, offset: u64, byte: u8) -> Request {
    let data = BufMut::copy_of(&[byte; BLOCK]).freeze();
    Request::Write { object, offset, data, mtime: UnixNanos(0), durable: false, how: Treatment::default() }
}

fn bytes(reply: Reply) -> Vec<u8> {
    match reply {
        Reply::Data(pieces, _) => pieces.iter().flat_map(|piece| piece.to_vec()).collect(),
        other => panic!("not data: {other:?}"),
    }
}

fn failure(reply: &Reply) -> Option<Errno> {
    match reply {
        Reply::Failed(errno) => Some(*errno),
        _ => None,
    }
}

/// Every device that a shard may run on.
fn devices() -> Vec<(Box<dyn Reactor>, Option<tempfile::TempDir>)> {
    let on_file = |backend| {
        let dir = tempfile::tempdir().unwrap();
        let flash = Flash::create(&dir.path().join("flash"), 4 << 20, Fill::Reserved).unwrap();
        (start_reactor(vec![(MemberId(0), flash)], backend, TrimPolicy::Off).unwrap(), Some(dir))
    };
    vec![(Box::new(MemoryDisks::new(4 << 20)), None), on_file(Backend::Auto), on_file(Backend::Psync)]
}

#[test]
fn every_request_of_many_threads_is_answered_once_with_its_own_answer() {
    for spin in [Duration::ZERO, Duration::from_micros(50)] {
        for (device, _dir) in devices() {
            let name = device.name();
            let limits = Limits { requests: 16, spin, ..Limits::default() };
            let (handle, _) = start_on(device, limits);
            std::thread::scope(|scope| {
                for thread in 0..8u64 {
                    let handle = &handle;
                    scope.spawn(move || {
                        for round in 0..200u64 {
                            let (block, byte) = (thread * 100 + round % 100, (thread * 7 + round) as u8);
                            assert!(failure(&handle.call(write(FLASH, block * 4096, byte))).is_none());
                            assert_eq!(bytes(handle.call(read(FLASH, block * 4096))), [byte; BLOCK], "{name}");
                            if round % 20 == 0 {
                                assert!(matches!(handle.call(Request::SyncAll), Reply::Done));
                                let offset = round << 8 | thread;
                                assert_eq!(bytes(handle.call(read(ORIGIN, offset))), offset.to_le_bytes());
                            }
                        }
                    });
                }
            });
            let stats = handle.stats();
            assert_eq!(stats.latency.read_hit.count() + stats.latency.read_miss.count(), 8 * 210);
            assert_eq!((stats.latency.write.count(), stats.latency.sync.count()), (8 * 200, 8 * 10));
            assert!(stats.latency.read_miss.count() >= 80, "each origin read answers a miss");
            assert_eq!((stats.answered, stats.requests_under_way, stats.device), (8 * 420, 0, name));
            handle.stop().unwrap();
        }
    }
}

#[test]
fn one_request_too_many_waits_and_nothing_grows() {
    let origin = Arc::new(Gated::default());
    let core = Plain::default();
    let release = core.release.clone();
    let limits = Limits { requests: 4, ..Limits::default() };
    let handle = Shard::start(core, Box::new(MemoryDisks::new(1 << 20)), origin, limits).unwrap();
    let (sender, answers) = channel();
    let submit = |handle: &Handle| {
        let sender = sender.clone();
        handle.submit(Request::flush_all(1), Box::new(move |reply| sender.send(reply).unwrap()));
    };
    (0..4).for_each(|_| submit(&handle));
    let entered = Arc::new(AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..6 {
            let (handle, entered, submit) = (handle.clone(), entered.clone(), submit);
            scope.spawn(move || {
                submit(&handle);
                entered.fetch_add(1, Ordering::SeqCst);
            });
        }
        // The shard turns meanwhile, and still has only what it may.
        for _ in 0..20 {
            std::thread::sleep(Duration::from_millis(1));
            assert!(handle.stats().requests_under_way <= 4);
            assert_eq!(entered.load(Ordering::SeqCst), 0);
        }
        release.store(true, Ordering::SeqCst);
    });
    for _ in 0..10 {
        assert!(matches!(answers.recv().unwrap(), Reply::Done));
    }
    handle.stop().unwrap();
}

#[test]
fn a_full_origin_holds_back_new_requests_until_it_moves() {
    let limits = Limits { operations: 2, requests: 64, ..Limits::default() };
    let (handle, origin) = start(limits);
    let (sender, answers) = channel();
    for _ in 0..2 {
        let sender = sender.clone();
        handle.submit(write(ORIGIN, 0, 1), Box::new(move |reply| sender.send((0, reply)).unwrap()));
    }
    while origin.writing.load(Ordering::SeqCst) < 2 {
        std::thread::yield_now();
    }
    handle.submit(read(ORIGIN, 5), Box::new(move |reply| sender.send((1, reply)).unwrap()));
    assert!(handle.stats().requests_under_way <= 2);
    origin.open();
    let order: Vec<_> = answers.iter().map(|(which, _)| which).collect();
    // Room for it came only with the end of one of those.
    assert_eq!((order.len(), order[0]), (3, 0));
    handle.stop().unwrap();
}

#[test]
fn errors_of_origin_and_flash_pass_through_and_a_panic_there_is_one() {
    let fault = Fault { kind: OpKind::Read, first: 1, count: 1, errno: Errno(61) };
    let flash =
        Faults::new(MemoryDisks::new(1 << 20), MemberId(0), FaultPlan { faults: vec![fault], ..FaultPlan::default() });
    let (handle, _) = start_on(Box::new(flash), Limits::default());
    assert_eq!(failure(&handle.call(read(FLASH, 0))), None);
    assert_eq!(failure(&handle.call(read(FLASH, 0))), Some(Errno(61)));
    assert_eq!(failure(&handle.call(read(FLASH, 1))), Some(Errno::INVAL));
    assert_eq!(failure(&handle.call(read(ORIGIN, 13))), Some(Errno(71)));
    assert_eq!(failure(&handle.call(Request::sync(ORIGIN))), Some(Errno(122)));
    let seek = Request::Seek { object: ORIGIN, offset: 0, data: true };
    assert_eq!(failure(&handle.call(seek)), Some(Errno::NXIO));
    assert_eq!(failure(&handle.call(read(ORIGIN, 666))), Some(Errno::IO));
    assert_eq!(failure(&handle.call(read(ORIGIN, 5))), None);
    handle.stop().unwrap();
}

#[test]
fn reads_and_directory_changes_do_not_wait_for_destage() {
    let limits = Limits { origin_writers: 2, origin_readers: 1, ..Limits::default() };
    let (handle, origin) = start(limits);
    let (sender, answers) = channel();
    for _ in 0..10 {
        let sender = sender.clone();
        handle.submit(write(ORIGIN, 0, 1), Box::new(move |reply| sender.send(reply).unwrap()));
    }
    while origin.writing.load(Ordering::SeqCst) < 2 {
        std::thread::yield_now();
    }
    assert_eq!(bytes(handle.call(read(ORIGIN, 7))), 7u64.to_le_bytes());
    handle.namespace(Namespace::Unlink { object: ORIGIN }, Box::new(|| Ok(None))).unwrap();
    assert!(answers.try_recv().is_err());
    assert_eq!(origin.writing.load(Ordering::SeqCst), 2);
    origin.open();
    (0..10).for_each(|_| drop(answers.recv().unwrap()));
    handle.stop().unwrap();
}

#[test]
fn a_directory_change_runs_off_the_shard_and_its_own_error_comes_back() {
    let (handle, _) = start(Limits::default());
    let unlink = |number| Namespace::Unlink { object: ObjectId(number) };
    let name = Arc::new(Mutex::new(String::new()));
    let seen = name.clone();
    let operation = move || {
        *seen.lock().unwrap() = std::thread::current().name().unwrap_or_default().to_owned();
        Ok(Some(Stamp::default()))
    };
    handle.namespace(unlink(1), Box::new(operation)).unwrap();
    assert!(name.lock().unwrap().starts_with("origin-dir"));
    assert_eq!(handle.namespace(unlink(1), Box::new(|| Err(Errno(39)))), Err(Errno(39)));
    assert_eq!(handle.namespace(unlink(1), Box::new(|| panic!("a bug"))), Err(Errno::IO));
    // Refused by the engine: never run.
    assert_eq!(handle.namespace(unlink(0), Box::new(|| unreachable!())), Err(Errno::SHUTDOWN));
    handle.stop().unwrap();
}

#[test]
fn stop_joins_all_threads_and_nobody_is_left_waiting() {
    let (handle, origin) = start(Limits { requests: 3, ..Limits::default() });
    let (sender, answers) = channel();
    let submit = |request| {
        let sender = sender.clone();
        handle.submit(request, Box::new(move |reply| sender.send(reply).unwrap()));
    };
    // One that the engine never answers, one under way at the origin.
    submit(Request::flush_all(1));
    submit(write(ORIGIN, 0, 1));
    let other = handle.clone();
    while origin.writing.load(Ordering::SeqCst) < 1 {
        std::thread::yield_now();
    }
    let opening = origin.clone();
    let opener = std::thread::spawn(move || opening.open());
    handle.clone().stop().unwrap();
    opener.join().unwrap();
    let replies: Vec<_> = (0..2).map(|_| answers.recv().unwrap()).collect();
    assert!(replies.iter().any(|reply| failure(reply) == Some(Errno::SHUTDOWN)), "{replies:?}");
    assert_eq!(failure(&other.call(read(FLASH, 0))), Some(Errno::SHUTDOWN));
    assert_eq!(failure(&other.call(read(FLASH, 0))), Some(Errno::SHUTDOWN));
    assert!(other.stats().turns > 0);
    other.stop().unwrap();
    drop(handle);
    assert_eq!(Arc::strong_count(&origin), 1, "a thread still has the origin");
}

#[test]
fn a_disk_that_never_answers_is_taken_away_and_another_one_joins_while_the_shard_turns() {
    const NEVER: Duration = Duration::from_secs(3600);
    let dir = tempfile::tempdir().unwrap();
    let flash = |name: &str| Flash::create(&dir.path().join(name), 1 << 20, Fill::Reserved).unwrap();
    let below = start_reactor(vec![(MemberId(0), flash("first"))], Backend::Auto, TrimPolicy::Off).unwrap();
    let faults = Faults::new(below, MemberId(0), FaultPlan { delay: NEVER, ..FaultPlan::default() });
    let fault = faults.handle();
    let (handle, _) = start_on(Box::new(faults), Limits::default());
    let (sender, answers) = channel();
    handle.submit(read(FLASH, 0), Box::new(move |reply| sender.send(reply).unwrap()));
    while handle.stats().flash_under_way == 0 {
        std::thread::yield_now();
    }
    handle.remove_disk(MemberId(0)).unwrap();
    assert!(matches!(answers.recv().unwrap(), Reply::Failed(Errno::NXIO) | Reply::Data(..)), "it has an end");
    fault.delay(Duration::ZERO);
    assert_eq!(failure(&handle.call(read(FLASH, 0))), Some(Errno::NXIO));
    handle.add_disk(MemberId(0), flash("second")).unwrap();
    assert!(matches!(handle.call(write(FLASH, 4096, 7)), Reply::Done));
    assert_eq!(handle.add_disk(MemberId(0), flash("third")), Err(Errno::EXIST));
    let grown = std::fs::File::options().write(true).open(dir.path().join("second")).unwrap();
    grown.set_len(2 << 20).unwrap();
    assert_eq!(handle.measure_disk(MemberId(0)), Ok(2 << 20));
    assert!(matches!(handle.call(write(FLASH, 1 << 20, 7)), Reply::Done));
    let other = handle.clone();
    handle.stop().unwrap();
    assert_eq!(other.remove_disk(MemberId(0)), Err(Errno::SHUTDOWN));
}

#[test]
fn while_this_host_is_not_the_owner_nothing_is_answered_and_once_it_was_deposed_everything_fails() {
    let (origin, term) = (Arc::new(Gated::default()), Arc::new(Term::default()));
    let disks = Box::new(MemoryDisks::new(1 << 20));
    let handle = Shard::start_for(Plain::default(), disks, origin.clone(), Limits::default(), term.clone()).unwrap();
    let ask = |request| {
        let (sender, answers) = channel();
        handle.submit(request, Box::new(move |reply| sender.send(reply).unwrap()));
        answers
    };
    let nothing_yet = |answers: &Receiver<Reply>| {
        // The daemon's own requests are answered, and by then the shard has looked.
        assert!(matches!(handle.call(Request::SyncAll), Reply::Done));
        assert!(matches!(answers.recv_timeout(Duration::from_millis(100)), Err(RecvTimeoutError::Timeout)));
    };
    for ends in [false, true] {
        term.lasts_until(Nanos(u64::MAX));
        let under_way = ask(write(ORIGIN, 0, 1));
        while handle.stats().origin_under_way == 0 {
            std::thread::yield_now();
        }
        term.lasts_until(Nanos(0));
        let later = ask(read(FLASH, 0));
        origin.open();
        nothing_yet(&later);
        nothing_yet(&under_way);
        if ends {
            term.end()
        } else {
            term.lasts_until(Nanos(u64::MAX))
        }
        for answers in [under_way, later] {
            let failed = failure(&answers.recv().unwrap());
            assert_eq!(failed, ends.then_some(Errno::STALE));
        }
        *origin.open.lock().unwrap() = false;
    }
    assert_eq!(failure(&handle.call(read(FLASH, 0))), Some(Errno::STALE));
    assert!(matches!(handle.call(Request::SyncAll), Reply::Done), "it can end");
    handle.stop().unwrap();
}

#[test]
fn the_last_handle_ends_the_shard_also_in_one_of_its_own_answers() {
    let (alive, ended) = channel::<()>();
    let core = Plain { _alive: Some(alive), ..Plain::default() };
    let origin = Arc::new(Gated::default());
    let handle = Shard::start(core, Box::new(MemoryDisks::new(1 << 20)), origin, Limits::default()).unwrap();
    let inside = handle.clone();
    handle.submit(
        read(FLASH, 0),
        Box::new(move |_| {
            assert_eq!(inside.clone().stop(), Err(StopError::Itself));
            drop(inside);
        }),
    );
    drop(handle);
    assert!(ended.recv().is_err());
}

#[test]
fn a_panic_of_the_engine_answers_everybody_with_an_error() {
    let (handle, _) = start(Limits { requests: 2, ..Limits::default() });
    let (sender, answers) = channel();
    let sent = sender.clone();
    handle.submit(Request::flush_all(1), Box::new(move |reply| sent.send(reply).unwrap()));
    assert_eq!(failure(&handle.call(Request::SetMode(CacheMode::WriteBack))), Some(Errno::IO));
    assert_eq!(failure(&answers.recv().unwrap()), Some(Errno::IO));
    assert_eq!(failure(&handle.call(Request::flush_all(1))), Some(Errno::IO));
    assert_eq!(handle.stop(), Err(StopError::Panicked));
}

#[test]
fn an_answer_may_come_while_others_are_sent() {
    // Many under way from one thread: each answer is for its own request.
    let (handle, _) = start(Limits { requests: 32, ..Limits::default() });
    let (sender, answers) = channel();
    for number in 0..5000u64 {
        let sender = sender.clone();
        let object = if number % 9 == 0 { ORIGIN } else { FLASH };
        let request = if object == ORIGIN { read(ORIGIN, number + 1000) } else { write(FLASH, number % 256 * 4096, 1) };
        handle.submit(request, Box::new(move |reply| sender.send((number, reply)).unwrap()));
    }
    drop(sender);
    let mut seen = BTreeSet::new();
    for (number, reply) in answers {
        assert!(seen.insert(number));
        if number % 9 == 0 {
            assert_eq!(bytes(reply), (number + 1000).to_le_bytes());
        } else {
            assert!(matches!(reply, Reply::Done));
        }
    }
    assert_eq!(seen.len(), 5000);
    let _ = Attributes::default();
    handle.stop().unwrap();
}
