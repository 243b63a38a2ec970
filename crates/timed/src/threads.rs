//! Random pages over the number of threads: how much, and how long each waits.
//!
//! Keeps true:
//! - threads wait for each request before the next. As their own work takes no time, so many threads are the same as one
//!   with a queue so deep;
//! - what memory takes of writes counts only once it is on flash: a sync is waited for before a point, and in it;
//! - each point begins with a new array that has the file, and ends before a pool is full. A pool as small as a modelled
//!   one would be written over in a second, and no real one is. What that costs is the matter of `fill`.

use headpond_base::Nanos;

use crate::device_array::{ArraySide, DeviceArray};
use crate::page_store::{PageAccess, PageStore, RandomClient};
use crate::rng::Rng;

/// Requests before a point counts, and for each thread.
const SETTLE: u64 = 1000;
const SETTLE_FOR_EACH: u64 = 4;
/// Requests that count, at least; and for each thread, so that one in a thousand is some.
const COUNT: u64 = 10_000;
const COUNT_FOR_EACH: u64 = 20;
/// The percent of the space that the file has.
const FILE: u64 = 20;
/// Requests under way while the file is made.
const DEPTH: u64 = 256;

/// What the threads do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ThreadLoad {
    /// Reads of what the pool has.
    Reads,
    /// Writes, each answered once it is taken.
    Writes,
    /// Writes, each answered once it survives a loss of power.
    SyncedWrites,
    /// Three reads for two writes, answered once they are taken.
    Mixed,
}

impl ThreadLoad {
    fn draw(self, rng: &mut Rng) -> PageAccess {
        match self {
            Self::Reads => PageAccess::Read,
            Self::Writes => PageAccess::Write,
            Self::SyncedWrites => PageAccess::SyncedWrite,
            Self::Mixed if rng.below(5) < 3 => PageAccess::Read,
            Self::Mixed => PageAccess::Write,
        }
    }
}

/// A sweep.
#[derive(Clone, PartialEq, Debug)]
pub struct ThreadSweep {
    /// What serves.
    pub array: DeviceArray,
    /// What is asked.
    pub load: ThreadLoad,
    /// How many threads, in order.
    pub threads: Vec<u64>,
}

/// A point of a sweep.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ThreadPoint {
    /// How many threads.
    pub threads: u64,
    /// Bytes a second.
    pub rate: f64,
    /// How long the middle one of the requests took.
    pub median: Nanos,
    /// How long 95 of 100 took at most.
    pub p95: Nanos,
    /// How long 999 of 1,000 took at most.
    pub p999: Nanos,
}

/// Runs a sweep.
#[must_use]
pub fn sweep_threads(sweep: &ThreadSweep, side: ArraySide) -> Vec<ThreadPoint> {
    let mut kept = None;
    let mut point = |threads: &u64| {
        let mut store = kept.take().unwrap_or_else(|| with_a_file(&sweep.array, side));
        let found = at(sweep, &mut *store, side, *threads);
        // Reads leave everything as it was.
        kept = (sweep.load == ThreadLoad::Reads).then_some(store);
        found
    };
    sweep.threads.iter().map(&mut point).collect()
}

fn pages(array: &DeviceArray, side: ArraySide) -> u64 {
    array.pages(side) * FILE / 100
}

fn with_a_file(array: &DeviceArray, side: ArraySide) -> Box<dyn PageStore> {
    let mut store = array.made(side, false);
    RandomClient::new(&mut *store, array.seed).write_once(0..pages(array, side), DEPTH, side == ArraySide::Headpond);
    store.come_to_rest();
    store
}

fn at(sweep: &ThreadSweep, store: &mut dyn PageStore, side: ArraySide, threads: u64) -> ThreadPoint {
    let pages = pages(&sweep.array, side);
    let mut client = RandomClient::new(store, sweep.array.seed);
    let draw = |rng: &mut Rng| sweep.load.draw(rng);
    client.keep_asking(draw, threads, pages, SETTLE.max(threads * SETTLE_FOR_EACH));
    let stretch = client.ask_until_on_flash(draw, threads, pages, COUNT.max(threads * COUNT_FOR_EACH));
    client.drain();
    let percentile = |share| stretch.latency.percentile(share).unwrap_or_default();
    let (median, p95, p999) = (percentile(0.5), percentile(0.95), percentile(0.999));
    ThreadPoint { threads, rate: stretch.rate(), median, p95, p999 }
}
