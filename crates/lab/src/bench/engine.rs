//! The engine and its shard alone, without a front door: reads that always hit, and synced writes.
//!
//! The clients ask again from within their answers, so that no other thread takes part.

use std::fs::OpenOptions;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use headpond_base::{BLOCK, BLOCK_U64, BufMut, CacheMode, MemberId, Nanos, ObjectId, PoolId, UnixNanos};
use headpond_device::{Backend, Fill, Flash, TrimPolicy, start_reactor};
use headpond_engine::{Config, OpenFile, Reply, Request, Treatment, format_pool, recover};
use headpond_format::{Geometry, MemberName, Stamp};
use headpond_shard::{FileOrigin, FlashReader, Handle, Limits, Origin, Shard, now};

use super::Outcome;

/// The pool, and the data in it: as much as the raw file that it is compared with.
const POOL: u64 = 2 << 30;
const DATA: u64 = 1 << 30;

/// An engine with data in its pool.
pub struct Filled {
    handle: Handle,
    object: ObjectId,
}

impl Filled {
    /// Formats a pool at `flash`, fills it, and starts anew, so that nothing is in memory.
    pub fn start(flash: &Path, backend: Backend) -> Outcome<Self> {
        format(flash)?;
        let filling = start(flash, backend)?;
        let mut offset = 0;
        while offset < DATA {
            let data = BufMut::copy_of(&[offset as u8; 1 << 16]).freeze();
            let write = Request::Write {
                object: filling.object,
                offset,
                data,
                mtime: UnixNanos(1),
                durable: false,
                how: Treatment::default(),
            };
            if let Reply::Failed(errno) = filling.handle.call(write) {
                return Err(errno.into());
            }
            offset += 1 << 16;
        }
        filling.end()?;
        start(flash, backend)
    }

    /// Stops it in good order.
    pub fn end(self) -> Outcome<()> {
        match self.handle.call(Request::Stop) {
            Reply::Failed(errno) => Err(errno.into()),
            _ => Ok(self.handle.stop()?),
        }
    }

    /// Does this for a while, with so many requests under way. Returns requests a second.
    pub fn rate(&self, what: EngineLoad, depth: u64, time: Duration) -> f64 {
        let (ended, all_ended) = channel();
        let shared = Arc::<Shared>::default();
        for number in 0..depth {
            let random = 88_172_645_463_325_252 + number;
            let (handle, object) = (self.handle.clone(), self.object);
            let (shared, ended) = (shared.clone(), ended.clone());
            ask(Box::new(Client { what, handle, object, random, shared, _ended: ended }));
        }
        drop(ended);
        std::thread::sleep(time);
        let count = shared.count.load(Ordering::Relaxed) as f64;
        shared.stop.store(true, Ordering::Relaxed);
        // Ends when the last client does.
        let _ = all_ended.recv();
        count / time.as_secs_f64()
    }
}

fn origin_of(path: &Path) -> std::path::PathBuf {
    path.with_extension("origin")
}

fn format(path: &Path) -> Outcome<()> {
    let flash = Flash::create(path, POOL, Fill::Reserved)?;
    for (offset, data) in format_pool(
        PoolId([1; 16]),
        MemberName([1; 16]),
        Geometry::for_bytes(flash.bytes())?,
        None,
        CacheMode::WriteBack,
    ) {
        flash.write(offset, &data)?;
    }
    Ok(flash.sync()?)
}

fn start(path: &Path, backend: Backend) -> Outcome<Filled> {
    let flash = Flash::open(path)?;
    let engine = recover(&mut FlashReader(&flash), flash.bytes())?;
    // Nothing goes to the origin meanwhile, and data that was written in order stays.
    let config =
        Config { flush_period: Nanos(1 << 50), dirty_threshold: 70, sequential_cutoff: None, ..Config::default() };
    let engine = engine.into_engine(config, now());
    let origin = Arc::new(FileOrigin::new());
    let reactor = start_reactor(vec![(MemberId(0), flash)], backend, TrimPolicy::Off)?;
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(origin_of(path))?;
    let metadata = file.metadata()?;
    let handle = Shard::start(engine, reactor, origin.clone(), Limits::default())?;
    let stamp = Stamp { size: metadata.len(), mtime: UnixNanos(0), ctime: UnixNanos(0) };
    let birth = UnixNanos(0);
    let open = OpenFile { inode: metadata.ino(), birth, path: b"x".to_vec(), stamp, created: false, allocated: DATA };
    let Reply::Opened { object, .. } = handle.call(Request::Open(open.into())) else { return Err("not opened".into()) };
    origin.attach(object, file);
    Ok(Filled { handle, object })
}

fn place(random: &mut u64) -> u64 {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    (*random >> 11) % (DATA / BLOCK_U64) * BLOCK_U64
}

/// What clients ask for: 4 KiB at a random place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EngineLoad {
    /// They are read.
    Read,
    /// They are written, and durable when that is answered.
    SyncedWrite,
}

/// One of the clients that keep a number of requests under way. Asking from within an answer may be done only because
/// the shard takes many more requests than there are clients; else it could wait for itself.
struct Client {
    what: EngineLoad,
    handle: Handle,
    object: ObjectId,
    random: u64,
    shared: Arc<Shared>,
    /// Gone when this is.
    _ended: Sender<()>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    count: AtomicU64,
}

fn ask(mut client: Box<Client>) {
    let (object, offset, how) = (client.object, place(&mut client.random), Treatment::default());
    let request = match client.what {
        EngineLoad::Read => Request::Read { object, offset, len: BLOCK as u32, how },
        EngineLoad::SyncedWrite => {
            let data = BufMut::copy_of(&[offset as u8; BLOCK]).freeze();
            Request::Write { object, offset, data, mtime: UnixNanos(1), durable: true, how }
        }
    };
    let handle = client.handle.clone();
    let answer = move |reply: Reply| {
        assert!(!matches!(reply, Reply::Failed(_)), "{reply:?}");
        client.shared.count.fetch_add(1, Ordering::Relaxed);
        if !client.shared.stop.load(Ordering::Relaxed) {
            ask(client);
        }
    };
    handle.submit(request, Box::new(answer));
}
