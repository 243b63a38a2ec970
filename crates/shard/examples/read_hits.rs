//! Random 4 KiB reads that all hit, through a shard and straight from the flash, in turns:
//! what the shard and the engine cost.
//!
//!     cargo run --release -p headpond-shard --example read_hits -- FLASH [SECONDS]
//!
//! FLASH is a file that is created, used and removed.

use std::error::Error;
use std::fs::OpenOptions;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use headpond_base::{BLOCK, BLOCK_U64, BufMut, CacheMode, ObjectId, PoolId, UnixNanos};
use headpond_device::{Backend, Device, Fill, Flash, Op, Tag, TrimPolicy, start_device};
use headpond_engine::{Config, OpenFile, Reply, Request, format_pool, recover};
use headpond_format::{Geometry, Stamp};
use headpond_shard::{FileOrigin, FlashReader, Handle, Limits, Origin, Shard, now};

/// Large enough that neither the disk's own cache nor luck matters much.
const POOL: u64 = 1 << 30;
const DATA: u64 = 512 << 20;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("which file?")?;
    let seconds = arguments.next().map_or(Ok(3), |text| text.parse())?;
    let path = Path::new(&path);
    let result = measure(path, Duration::from_secs(seconds));
    std::fs::remove_file(path)?;
    let _ = std::fs::remove_file(origin_of(path));
    result
}

fn origin_of(path: &Path) -> std::path::PathBuf {
    path.with_extension("origin")
}

fn measure(path: &Path, time: Duration) -> Outcome<()> {
    format(path)?;
    let (handle, object) = start(path, Limits::default())?;
    let mut offset = 0;
    while offset < DATA {
        let data = BufMut::copy_of(&[offset as u8; 1 << 16]).freeze();
        let write = Request::Write { object, offset, data, mtime: UnixNanos(1), durable: false };
        if let Reply::Failed(errno) = handle.call(write) {
            return Err(errno.into());
        }
        offset += 1 << 16;
    }
    end(handle)?;
    println!("{:24}{:>12}{:>12}", "", "depth 1", "depth 32");
    for _ in 0..2 {
        let raw = |depth| raw(path, depth, time);
        println!("{:24}{:>12.0}{:>12.0}", "flash, io_uring", raw(1)?, raw(32)?);
        for (name, spin) in [("shard", 0), ("shard, spinning 20 us", 20)] {
            let limits = Limits { spin: Duration::from_micros(spin), ..Limits::default() };
            let (handle, object) = start(path, limits)?;
            println!("{name:24}{:>12.0}{:>12.0}", hits(&handle, object, 1, time), hits(&handle, object, 32, time));
            let stats = handle.stats();
            let per = stats.turns as f64 / stats.answered as f64;
            println!("    {per:.2} turns for each answer; {:?}", stats.latency.read_hit.summary());
            end(handle)?;
        }
    }
    Ok(())
}

fn format(path: &Path) -> Outcome<()> {
    let flash = Flash::create(path, POOL, Fill::Reserved)?;
    for (offset, data) in format_pool(PoolId([1; 16]), Geometry::for_bytes(flash.bytes())?, None, CacheMode::WriteBack)
    {
        flash.write(offset, &data)?;
    }
    Ok(flash.sync()?)
}

fn start(path: &Path, limits: Limits) -> Outcome<(Handle, ObjectId)> {
    let flash = Flash::open(path)?;
    let engine = recover(&mut FlashReader(&flash), flash.bytes())?;
    let config = Config { flush_period: headpond_base::Nanos(1 << 50), dirty_threshold: 70, ..Config::default() };
    let engine = engine.into_engine(config, now());
    let origin = Arc::new(FileOrigin::new());
    let device = start_device(flash, Backend::Auto, TrimPolicy::Off)?;
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(origin_of(path))?;
    let metadata = file.metadata()?;
    let handle = Shard::start(engine, device, origin.clone(), limits)?;
    let stamp = Stamp { size: metadata.len(), mtime: UnixNanos(0), ctime: UnixNanos(0) };
    let birth = UnixNanos(0);
    let open = OpenFile { inode: metadata.ino(), birth, path: b"x".to_vec(), stamp, created: false, allocated: DATA };
    let Reply::Opened { object, .. } = handle.call(Request::Open(open)) else { return Err("not opened".into()) };
    origin.attach(object, file);
    Ok((handle, object))
}

fn end(handle: Handle) -> Outcome<()> {
    match handle.call(Request::Stop) {
        Reply::Failed(errno) => Err(errno.into()),
        _ => Ok(handle.stop()?),
    }
}

fn place(random: &mut u64) -> u64 {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    (*random >> 11) % (DATA / BLOCK_U64) * BLOCK_U64
}

/// One of the readers that keep a number of reads under way: each asks again from within its answer,
/// so that no other thread has part in it. That may be done only because the shard takes many
/// more requests than there are readers; else it could wait for itself.
struct Reader {
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

fn ask(mut reader: Box<Reader>) {
    let read = Request::Read { object: reader.object, offset: place(&mut reader.random), len: BLOCK as u32 };
    let handle = reader.handle.clone();
    let answer = move |reply: Reply| {
        assert!(matches!(reply, Reply::Data(_)), "{reply:?}");
        reader.shared.count.fetch_add(1, Ordering::Relaxed);
        if !reader.shared.stop.load(Ordering::Relaxed) {
            ask(reader);
        }
    };
    handle.submit(read, Box::new(answer));
}

/// Reads for a while through a shard.
fn hits(handle: &Handle, object: ObjectId, depth: u64, time: Duration) -> f64 {
    let (ended, all_ended) = channel();
    let shared = Arc::<Shared>::default();
    for number in 0..depth {
        let random = 88_172_645_463_325_252 + number;
        let (handle, shared, ended) = (handle.clone(), shared.clone(), ended.clone());
        ask(Box::new(Reader { handle, object, random, shared, _ended: ended }));
    }
    drop(ended);
    let before = cpu_ticks();
    std::thread::sleep(time);
    let count = shared.count.load(Ordering::Relaxed) as f64;
    report_cpu(before, count);
    shared.stop.store(true, Ordering::Relaxed);
    // Ends when the last reader does.
    let _ = all_ended.recv();
    count / time.as_secs_f64()
}

/// User and system time of this process in hundredths of a second.
fn cpu_ticks() -> [f64; 2] {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let mut fields = stat.rsplit(')').next().unwrap_or_default().split_ascii_whitespace().skip(11);
    let mut next = || fields.next().and_then(|field| field.parse().ok()).unwrap_or(0.0);
    [next(), next()]
}

fn report_cpu(before: [f64; 2], count: f64) {
    let after = cpu_ticks();
    let micros = |index: usize| (after[index] - before[index]) * 10_000.0 / count.max(1.0);
    println!("    for each read: {:.1} us in user mode, {:.1} us in the kernel", micros(0), micros(1));
}

/// Reads for a while straight from the device.
fn raw(path: &Path, depth: usize, time: Duration) -> Outcome<f64> {
    let mut device = start_device(Flash::open(path)?, Backend::Auto, TrimPolicy::Off)?;
    let mut random = 88_172_645_463_325_252;
    let mut read = |tag| Op::Read { tag, offset: place(&mut random) + (64 << 20), len: BLOCK };
    (0..depth).for_each(|tag| device.submit(read(Tag(tag as u64))));
    let before = cpu_ticks();
    let (mut done, mut count, start) = (Vec::new(), 0u64, Instant::now());
    while start.elapsed() < time {
        device.wait(&mut done, None)?;
        for one in done.drain(..) {
            count += 1;
            device.submit(read(one.tag()));
        }
    }
    report_cpu(before, count as f64);
    Ok(count as f64 / start.elapsed().as_secs_f64())
}
