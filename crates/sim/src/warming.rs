//! How fast a cold pool becomes warm, in virtual time. The origin is a volume with limits on I/Os and bytes a second.
//! Pages of 8 KiB are asked for at random, some much more often than others.
//!
//! Keeps true: the same load and settings give the same figures, on any machine. Each page of the file has a
//! popularity of its own, whatever lies beside it. So if neighbours help here, they help because they are there, not
//! because they are alike.

use headpond_base::{Buf, Nanos, ObjectId, UnixNanos};
use headpond_engine::{Config, Reply, Request, Stats, Treatment};
use headpond_format::Geometry;
use headpond_models::Network;
use headpond_timed::{Contents, FlashModel, Machine, Parts, QUICK_FLASH, Rng, mix, one_member, some_data};

const PAGE: u64 = 8 << 10;
const SECOND: u64 = Nanos::SECOND.0;

/// A load, and its length.
#[derive(Clone, Copy, Debug)]
pub struct Warming {
    /// The pool's size in bytes. The file is three times as large.
    pub pool: u64,
    /// Seconds of virtual time.
    pub seconds: u64,
    /// Requests under way.
    pub depth: u64,
    /// Reads in a hundred requests.
    pub reads: u64,
    /// The exponent of the popularity of pages. 0: all alike.
    pub zipf: f64,
    /// Ranks are hashed to pages, as fio does it: some pages have several, and others are never asked for.
    pub hashed: bool,
    /// The origin.
    pub origin: Network,
    /// The origin serves the misses of a request one block of 4 KiB at a time, as for a cache that fetches each by
    /// itself.
    pub by_block: bool,
    /// The seed.
    pub seed: u64,
}

/// The counts of a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Second {
    /// Requests answered.
    pub requests: u64,
    /// Blocks that reads got from flash or memory.
    pub hits: u64,
    /// Blocks that reads got from the origin.
    pub misses: u64,
    /// Nanoseconds of work that the origin was given.
    pub origin_busy: u64,
    /// The engine's counters at the end of this second.
    pub stats: Stats,
}

impl Second {
    fn answered(&mut self, reply: &Reply) {
        self.requests += 1;
        match reply {
            Reply::Data(_, served) => {
                self.hits += u64::from(served.hit_blocks);
                self.misses += u64::from(served.miss_blocks);
            }
            Reply::Changed(_) => {}
            other => panic!("answered with {other:?}"),
        }
    }
}

impl Warming {
    /// The share of hits, in percent, with a pool that always holds the most popular pages.
    #[must_use]
    pub fn best(&self) -> f64 {
        let sums = popularity(self.pool * 3 / PAGE, self.zipf);
        sums[(self.pool / PAGE) as usize - 1] * 100.0 / sums[sums.len() - 1]
    }
}

/// Runs a load from cold.
///
/// # Panics
/// If the engine answers with an error: nothing fails here.
#[must_use]
pub fn warm_up(load: &Warming, config: Config) -> Vec<Second> {
    let geometry = Geometry::with_segment_bytes(load.pool, 2 << 20);
    let parts = Parts {
        geometry,
        members: one_member(&geometry, FlashModel::Volume(QUICK_FLASH)),
        origin: load.origin,
        contents: Contents::Alike(some_data()),
        by_block: load.by_block,
    };
    let mut machine = Machine::new(parts, config);
    let size = load.pool * 3 / PAGE * PAGE;
    let object = machine.open(size);
    let popularity = popularity(size / PAGE, load.zipf);
    let places = if load.hashed { hashed(size / PAGE) } else { places(size / PAGE, load.seed) };
    let mut rng = Rng::new(load.seed);
    let page = some_data().slice(0..PAGE as usize);
    let mut seconds = vec![Second::default(); load.seconds as usize];
    let end = Nanos(load.seconds * SECOND);
    let mut under_way = 0;
    while machine.now() < end {
        while under_way < load.depth {
            under_way += 1;
            machine.ask(some_request(&mut rng, (&popularity, &places), load, object, &page));
        }
        let before = (machine.now().0 / SECOND) as usize;
        machine.step(end);
        let now = (machine.now().0 / SECOND) as usize;
        if now > before {
            let stats = machine.stats();
            seconds[before..now].iter_mut().for_each(|second| second.stats = stats);
        }
        for (_, reply) in machine.take_replies() {
            under_way -= 1;
            if let Some(second) = seconds.get_mut(now) {
                second.answered(&reply);
            }
        }
    }
    for (second, traffic) in seconds.iter_mut().zip(machine.traffic()) {
        second.origin_busy = traffic.busy;
    }
    seconds
}

/// Sums of the popularity of the pages by rank.
fn popularity(pages: u64, zipf: f64) -> Vec<f64> {
    let mut sum = 0.0;
    (1..=pages)
        .map(|rank| {
            sum += (rank as f64).powf(-zipf);
            sum
        })
        .collect()
}

/// The place of the page of each rank: each somewhere else, at random.
fn places(pages: u64, seed: u64) -> Vec<u32> {
    let mut places: Vec<u32> = (0..).take(pages as usize).collect();
    places.sort_by_key(|page| mix(seed ^ mix(u64::from(*page))));
    places
}

/// The same as fio has it: a rank times a constant, in 64 bits, modulo the pages. Some pages have several ranks.
fn hashed(pages: u64) -> Vec<u32> {
    (0..pages).map(|rank| (rank.wrapping_mul(0x61C8_8646_80B5_83EB) % pages) as u32).collect()
}

fn some_request(
    rng: &mut Rng,
    (popularity, places): (&[f64], &[u32]),
    load: &Warming,
    object: ObjectId,
    page: &Buf,
) -> Request {
    let all = popularity[popularity.len() - 1];
    let draw = (rng.next() >> 11) as f64 / (1_u64 << 53) as f64 * all;
    let rank = popularity.partition_point(|sum| *sum < draw);
    let (offset, how) = (u64::from(places[rank]) * PAGE, Treatment::default());
    if rng.below(100) < load.reads {
        Request::Read { object, offset, len: PAGE as u32, how }
    } else {
        Request::Write { object, offset, data: page.clone(), mtime: UnixNanos(1), durable: false, how }
    }
}
