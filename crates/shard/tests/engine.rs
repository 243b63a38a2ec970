//! The real engine in a real shard on real files.
#![allow(clippy::unwrap_used)]

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use headpond_base::{BufMut, CacheMode, MemberId, Nanos, ObjectId, PoolId, UnixNanos};
use headpond_device::{
    Backend, Completion, DiskOp, FaultPlan, Faults, Fill, Flash, Reactor, TrimPolicy, Waker, Withhold, start_reactor,
};
use headpond_engine::{Config, OpenFile, OpenObject, Reply, Request, Treatment, Verdict, format_pool, recover};
use headpond_format::{Geometry, MemberName, Stamp};
use headpond_shard::{FileOrigin, FlashReader, Handle, Limits, Origin, Shard};

const POOL: u64 = 128 << 20;

/// A directory with a pool and an origin in it.
struct Place {
    dir: tempfile::TempDir,
    backend: Backend,
    withhold: bool,
    mode: CacheMode,
}

impl Place {
    fn new(backend: Backend, withhold: bool, mode: CacheMode) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let flash = Flash::create(&dir.path().join("pool"), POOL, Fill::Reserved).unwrap();
        let geometry = Geometry::for_bytes(flash.bytes()).unwrap();
        for (offset, data) in format_pool(PoolId([7; 16]), MemberName([7; 16]), geometry, None, mode) {
            flash.write(offset, &data).unwrap();
        }
        flash.sync().unwrap();
        Self { dir, backend, withhold, mode }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// As a daemon starts: recovers, attaches what is dirty, starts the shard.
    fn start(&self, names: &[&str]) -> Handle {
        self.start_on(names, |device| device)
    }

    /// The same on what `change` makes of the device.
    fn start_on(&self, names: &[&str], change: impl FnOnce(Box<dyn Reactor>) -> Box<dyn Reactor>) -> Handle {
        let flash = Flash::open(&self.path("pool")).unwrap();
        let mut recovered = recover(&mut FlashReader(&flash), flash.bytes()).unwrap();
        let files = FileOrigin::below(File::open(self.dir.path()).unwrap().into()).unwrap();
        let origin = Arc::new(files);
        for object in recovered.objects() {
            let named = names.iter().map(|name| self.path(name)).filter(|path| path.exists());
            let inode = object.state.identity.file().map(|file| file.inode);
            let found = named.map(|path| open_file(&path)).find(|found| Some(found.inode) == inode);
            match recovered.reconcile(object.object, found.clone().map(OpenObject::from).as_ref()) {
                Verdict::Conflict(conflict) => panic!("{conflict:?}"),
                Verdict::Kept | Verdict::Dropped | Verdict::Doubted | Verdict::Forgotten => {}
            }
            if let Some(found) = found {
                let path = self.dir.path().join(String::from_utf8(found.path).unwrap());
                origin.attach(object.object, open(&path));
            }
        }
        let config = Config { mode: self.mode, ..Config::default() };
        let engine = recovered.into_engine(config, headpond_shard::now());
        let mut device = start_reactor(vec![(MemberId(0), flash)], self.backend, TrimPolicy::All).unwrap();
        if self.withhold {
            let withhold = Some(Withhold { early_per_mille: 200, seed: 5, ..Withhold::default() });
            device = Box::new(Faults::new(device, MemberId(0), FaultPlan { withhold, ..FaultPlan::default() }));
        }
        Shard::start(engine, change(device), origin, Limits::default()).unwrap()
    }

    fn open(&self, handle: &Handle, name: &str) -> ObjectId {
        let path = self.path(name);
        let file = open(&path);
        match handle.call(Request::Open(open_file(&path).into())) {
            Reply::Opened { object, .. } => {
                handle.origin().attach(object, file);
                object
            }
            other => panic!("not opened: {other:?}"),
        }
    }
}

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

fn open_file(path: &Path) -> OpenFile {
    let metadata = std::fs::metadata(path).unwrap();
    let nanos = |seconds: i64, nanos: i64| UnixNanos(seconds * 1_000_000_000 + nanos);
    OpenFile {
        inode: metadata.ino(),
        birth: UnixNanos(0),
        path: path.file_name().unwrap().as_encoded_bytes().to_vec(),
        stamp: Stamp {
            size: metadata.len(),
            mtime: nanos(metadata.mtime(), metadata.mtime_nsec()),
            ctime: nanos(metadata.ctime(), metadata.ctime_nsec()),
        },
        created: false,
        allocated: 0,
    }
}

fn done(reply: &Reply) -> bool {
    matches!(reply, Reply::Done | Reply::Changed(_))
}

fn write(object: ObjectId, offset: u64, bytes: &[u8]) -> Request {
    let data = BufMut::copy_of(bytes).freeze();
    Request::Write {
        object,
        offset,
        data,
        mtime: UnixNanos(1_700_000_000_000_000_000),
        durable: false,
        how: Treatment::default(),
    }
}

fn read(handle: &Handle, object: ObjectId, offset: u64, len: u32) -> Vec<u8> {
    match handle.call(Request::Read { object, offset, len, how: Treatment::default() }) {
        Reply::Data(pieces, _) => pieces.iter().flat_map(|piece| piece.to_vec()).collect(),
        other => panic!("not data: {other:?}"),
    }
}

fn stop(handle: Handle) {
    assert!(done(&handle.call(Request::Stop)));
    handle.stop().unwrap();
}

/// Bytes that tell where they belong and when they were written.
fn pattern(offset: u64, len: usize, version: u8) -> Vec<u8> {
    (0..len as u64).map(|at| ((offset + at) / 512) as u8 ^ version.wrapping_mul(37)).collect()
}

#[test]
fn in_every_mode_data_survives_a_clean_stop_and_a_flush_completes_the_origin() {
    for backend in [Backend::Auto, Backend::Psync] {
        for mode in CacheMode::ALL {
            let place = Place::new(backend, false, mode);
            std::fs::write(place.path("data"), pattern(0, 1 << 20, 1)).unwrap();
            let mut expected = pattern(0, 3 << 20, 1);
            expected.truncate(1 << 20);

            let handle = place.start(&["data"]);
            let object = place.open(&handle, "data");
            assert_eq!(read(&handle, object, 1000, 5000), expected[1000..6000]);
            for (version, offset) in [0, 5000, 300_000, (1 << 20) - 100].into_iter().enumerate() {
                let bytes = pattern(offset, 20_000, version as u8 + 2);
                assert!(done(&handle.call(write(object, offset, &bytes))));
                let end = offset as usize + bytes.len();
                expected.resize(expected.len().max(end), 0);
                expected[offset as usize..end].copy_from_slice(&bytes);
            }
            assert!(done(&handle.call(Request::sync(object))));
            assert_eq!(read(&handle, object, 0, 1 << 20), expected[..1 << 20], "{mode}");
            stop(handle);

            let handle = place.start(&["data"]);
            let object = place.open(&handle, "data");
            assert_eq!(read(&handle, object, 0, 1 << 20), expected[..1 << 20], "{mode}: after a stop");
            assert!(done(&handle.call(Request::flush_all(1))));
            assert_eq!(handle.stats().engine.dirty_blocks, 0, "{mode}");
            assert!(std::fs::read(place.path("data")).unwrap() == expected, "{mode}: the origin by itself");
            assert!(done(&handle.call(Request::Close { object })));
            stop(handle);
        }
    }
}

#[test]
fn what_was_synced_survives_the_loss_of_everything_unsynced() {
    for backend in [Backend::Auto, Backend::Psync] {
        let place = Place::new(backend, true, CacheMode::WriteBack);
        std::fs::write(place.path("data"), vec![0; 4 << 20]).unwrap();
        let mut synced = vec![0u8; 4 << 20];
        for round in 0..6u8 {
            let handle = place.start(&["data"]);
            let object = place.open(&handle, "data");
            for number in 0..30u64 {
                let offset = (u64::from(round) * 7919 + number * 104_729) % 1000 * 4096;
                let bytes = pattern(offset, 4096 * (1 + number as usize % 4), round + 1);
                assert!(done(&handle.call(write(object, offset, &bytes))));
                synced[offset as usize..offset as usize + bytes.len()].copy_from_slice(&bytes);
            }
            assert!(done(&handle.call(Request::sync(object))));
            // Later ones may be lost: to the same blocks, so that a loss of order would show.
            assert!(done(&handle.call(write(object, 3 << 20, &pattern(0, 100, 99)))));
            let kept = synced[3 << 20..(3 << 20) + 100].to_vec();
            // No stop of the engine: as a crash.
            handle.stop().unwrap();

            let handle = place.start(&["data"]);
            let object = place.open(&handle, "data");
            let found: Vec<_> = (0..4).flat_map(|mib| read(&handle, object, mib << 20, 1 << 20)).collect();
            let torn = &found[3 << 20..(3 << 20) + 100];
            assert!(torn == kept || torn == pattern(0, 100, 99), "round {round}: neither old nor new");
            synced[3 << 20..(3 << 20) + 100].copy_from_slice(torn);
            assert!(found == synced, "round {round}");
            stop(handle);
        }
    }
}

#[test]
fn a_file_closed_and_opened_again_while_others_work_keeps_its_origin() {
    let place = Place::new(Backend::Auto, false, CacheMode::WriteBack);
    for name in ["a", "b", "c", "d"] {
        std::fs::write(place.path(name), pattern(0, 256 << 10, name.as_bytes()[0])).unwrap();
    }
    let handle = place.start(&[]);
    std::thread::scope(|scope| {
        for name in ["a", "b", "c", "d"] {
            let (handle, place) = (&handle, &place);
            scope.spawn(move || {
                for round in 0..60u64 {
                    let object = place.open(handle, name);
                    let offset = round * 4096;
                    let expected = pattern(offset, 4096, name.as_bytes()[0]);
                    assert_eq!(read(handle, object, offset, 4096), expected);
                    if round % 3 == 0 {
                        assert!(done(&handle.call(write(object, offset, &expected))));
                        assert!(done(&handle.call(Request::flush_all(1))));
                    }
                    assert!(done(&handle.call(Request::Close { object })));
                }
            });
        }
    });
    let stats = handle.stats();
    assert_eq!((stats.engine.origin_errors, stats.engine.failing_objects), (0, 0));
    stop(handle);
}

#[test]
fn many_threads_under_a_small_pool_read_what_they_wrote() {
    let place = Place::new(Backend::Auto, false, CacheMode::WriteBack);
    File::create(place.path("data")).unwrap().set_len(256 << 20).unwrap();
    let handle = place.start(&["data"]);
    let object = place.open(&handle, "data");
    std::thread::scope(|scope| {
        for thread in 0..6u64 {
            let handle = &handle;
            scope.spawn(move || {
                // Each has its own 40 MiB: together more than the pool.
                let start = thread * (40 << 20);
                for round in 0..40u64 {
                    let offset = start + round * (1 << 20);
                    assert!(done(&handle.call(write(object, offset, &pattern(offset, 1 << 20, thread as u8)))));
                    if round % 10 == 9 {
                        assert!(done(&handle.call(Request::sync(object))));
                    }
                }
                for round in 0..40u64 {
                    let offset = start + round * (1 << 20) + round * 4096;
                    assert_eq!(read(handle, object, offset, 8192), pattern(offset, 8192, thread as u8), "{thread}");
                }
            });
        }
    });
    let (sender, ended) = channel();
    handle.submit(Request::flush_all(1), Box::new(move |reply| sender.send(reply).unwrap()));
    assert!(done(&ended.recv().unwrap()));
    let stats = handle.stats();
    assert!(stats.engine.segments_reclaimed > 0 && stats.engine.dirty_blocks == 0, "{:?}", stats.engine);
    assert!(headpond_shard::now() > Nanos(0));
    let origin = File::open(place.path("data")).unwrap();
    for offset in (0..6 * (40 << 20)).step_by(1 << 20) {
        let mut bytes = vec![0; 1 << 20];
        origin.read_exact_at(&mut bytes, offset).unwrap();
        assert!(bytes == pattern(offset, 1 << 20, (offset / (40 << 20)) as u8), "at {offset} of the origin");
    }
    stop(handle);
}

#[test]
fn an_object_is_told_to_be_let_go_once_it_is_closed_and_the_origin_has_all_of_it() {
    let place = Place::new(Backend::Auto, false, CacheMode::WriteBack);
    let handle = place.start(&[]);
    let let_go = Arc::new(Mutex::new(Vec::new()));
    let told = let_go.clone();
    handle.when_let_go(Box::new(move |object| told.lock().unwrap().push(object)));
    let (clean, dirty) = (place.open(&handle, "clean"), place.open(&handle, "dirty"));
    assert!(done(&handle.call(write(dirty, 0, &pattern(0, 70_000, 1)))));
    for object in [clean, dirty] {
        assert!(done(&handle.call(Request::Close { object })));
    }
    assert!(done(&handle.call(Request::SyncAll)));
    assert_eq!(*let_go.lock().unwrap(), [clean]);
    assert!(done(&handle.call(Request::flush_all(1))));
    // The report comes after the answer to the flush, and before the answer to the next request.
    assert!(done(&handle.call(Request::SyncAll)));
    assert_eq!(*let_go.lock().unwrap(), [clean, dirty]);
    stop(handle);
}

/// A device that counts syncs from the time it is armed, tells of the first, and holds it until the test lets it go on.
struct Gate {
    device: Box<dyn Reactor>,
    armed: Arc<AtomicBool>,
    syncs: Arc<AtomicU64>,
    begun: Sender<()>,
    go_on: Receiver<()>,
    held: Option<(MemberId, DiskOp)>,
}

impl Reactor for Gate {
    fn bytes(&self, disk: MemberId) -> u64 {
        self.device.bytes(disk)
    }

    fn remove(&mut self, disk: MemberId) {
        self.device.remove(disk);
    }

    fn name(&self) -> &'static str {
        self.device.name()
    }

    fn submit(&mut self, disk: MemberId, op: DiskOp) {
        let counts = matches!(op, DiskOp::Sync { .. }) && self.armed.load(Ordering::SeqCst);
        if counts && self.syncs.fetch_add(1, Ordering::SeqCst) == 0 {
            self.held = Some((disk, op));
            self.begun.send(()).unwrap();
        } else {
            self.device.submit(disk, op);
        }
    }

    fn wait(&mut self, done: &mut Vec<Completion>, timeout: Option<Duration>) -> std::io::Result<()> {
        if self.go_on.try_recv().is_ok()
            && let Some((disk, op)) = self.held.take()
        {
            self.device.submit(disk, op);
        }
        self.device.wait(done, timeout)
    }

    fn carry_out_alone(&mut self, writes: bool, done: &mut Vec<Completion>) -> bool {
        self.held.is_none() && self.device.carry_out_alone(writes, done)
    }

    fn waker(&self) -> Waker {
        self.device.waker()
    }
}

#[test]
fn all_that_ask_for_a_sync_while_the_flash_syncs_share_the_next_one() {
    for backend in [Backend::Auto, Backend::Psync] {
        let place = Place::new(backend, false, CacheMode::WriteBack);
        let (armed, syncs) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let ((begun, has_begun), (let_go, go_on)) = (channel(), channel());
        let (of_gate, counted) = (armed.clone(), syncs.clone());
        let handle = place.start_on(&[], |device| {
            Box::new(Gate { device, armed: of_gate, syncs: counted, begun, go_on, held: None })
        });
        let object = place.open(&handle, "file");
        // Its name and its space are durable from here on.
        assert!(done(&handle.call(write(object, 0, &[1; 9 * 4096]))));
        assert!(done(&handle.call(Request::sync(object))));
        armed.store(true, Ordering::SeqCst);
        let (answered, answers) = channel();
        let write_and_sync = |client: u64| {
            assert!(done(&handle.call(write(object, client * 4096, &[2; 4096]))));
            let answered = answered.clone();
            let answer = Box::new(move |reply| answered.send(done(&reply)).unwrap());
            handle.submit(Request::sync(object), answer);
        };
        write_and_sync(0);
        has_begun.recv().unwrap();
        (1..9).for_each(write_and_sync);
        let_go.send(()).unwrap();
        // Wakes the shard, so that it comes to its next wait.
        let _ = handle.stats();
        assert!(answers.iter().take(9).all(|done| done), "{backend:?}");
        assert_eq!(syncs.load(Ordering::SeqCst), 2, "{backend:?}: one for the first, one for the eight others");
        stop(handle);
    }
}
