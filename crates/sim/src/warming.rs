//! How fast a cold pool becomes warm, in virtual time: the real engine on a volume that serves so many I/Os and so many
//! bytes a second, and pages of 8 KiB asked for at random, some much more often than others.
//!
//! Keeps true: the same load and settings give the same figures, on any machine. Every page of the file has a popularity of
//! its own, and what lies beside a page says nothing about it: whatever neighbours are good for here, they are good for
//! because they are there, not because they are alike.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use headpond_base::{BLOCK_U64, Buf, BufMut, CacheMode, Errno, Nanos, ObjectId, PoolId, Result, UnixNanos};
use headpond_engine::{
    Config, Effect, Engine, FlashRead, OpenFile, Outcome, Reply, Request, RequestId, Stats, Ticket, Treatment,
    format_pool, recover,
};
use headpond_format::{Geometry, Stamp};
use headpond_models::Network;

use crate::pages::Pages;
use crate::rng::{Rng, mix};

const PAGE: u64 = 8 << 10;
const SECOND: u64 = Nanos::SECOND.0;
/// What does not read or write data at the origin.
const AWAY: u64 = Nanos::MILLISECOND.0;
/// Flash.
const FLASH: u64 = Nanos::MILLISECOND.0 / 10;

/// A load, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Warming {
    /// The pool's size in bytes. The file is three times as large.
    pub pool: u64,
    /// For how many seconds of virtual time.
    pub seconds: u64,
    /// Requests under way.
    pub depth: u64,
    /// Out of a hundred requests, reads.
    pub reads: u64,
    /// The exponent of the popularity of pages; 0: all are asked for alike.
    pub zipf: f64,
    /// The origin.
    pub origin: Network,
    /// The origin serves a read one block of 4 KiB at a time, as for a cache that fetches each by itself.
    pub by_block: bool,
    /// Where chance begins.
    pub seed: u64,
}

/// What was counted in each second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Second {
    /// Requests answered.
    pub requests: u64,
    /// Blocks that reads got from flash or memory.
    pub hits: u64,
    /// Blocks that reads got from the origin.
    pub misses: u64,
    /// Nanoseconds of its time that the origin was given to do.
    pub origin_busy: u64,
    /// What the engine had counted at the end of this second.
    pub stats: Stats,
}

impl Warming {
    /// The share of reads that a pool gives which always holds the pages most often asked for, in percent.
    #[must_use]
    pub fn best(&self) -> f64 {
        let sums = popularity(self.pool * 3 / PAGE, self.zipf);
        sums[(self.pool / PAGE) as usize - 1] * 100.0 / sums[sums.len() - 1]
    }
}

struct Flash(Pages);

impl FlashRead for Flash {
    fn read(&mut self, offset: u64, len: usize) -> Result<Buf> {
        if offset + len as u64 > self.0.len() as u64 {
            return Err(Errno::IO);
        }
        Ok(BufMut::copy_of(&self.0.read(offset, len)).freeze())
    }
}

struct World {
    engine: Engine,
    flash: Flash,
    now: u64,
    volume: Network,
    by_block: bool,
    origin_free: u64,
    coming: BinaryHeap<Reverse<(u64, u64)>>,
    outcomes: BTreeMap<u64, (Ticket, Outcome)>,
    number: u64,
    replies: Vec<Reply>,
    seconds: Vec<Second>,
}

impl World {
    fn new(load: &Warming, config: Config) -> Self {
        let geometry = Geometry::with_segment_bytes(load.pool, 2 << 20);
        let mut flash = Flash(Pages::zeroed(load.pool));
        for (offset, bytes) in format_pool(PoolId([2; 16]), geometry, None, CacheMode::WriteBack) {
            flash.0.write(offset, &bytes);
        }
        let recovered = recover(&mut flash, load.pool).unwrap_or_else(|error| panic!("an empty pool: {error}"));
        Self {
            engine: recovered.into_engine(config, Nanos(0)),
            flash,
            now: 0,
            volume: load.origin,
            by_block: load.by_block,
            origin_free: 0,
            coming: BinaryHeap::new(),
            outcomes: BTreeMap::new(),
            number: 0,
            replies: Vec::new(),
            seconds: vec![Second::default(); load.seconds as usize + 1],
        }
    }

    fn second(&mut self) -> &mut Second {
        &mut self.seconds[(self.now / SECOND) as usize]
    }

    /// When the origin is done with so many I/Os of so many bytes that come now.
    fn origin(&mut self, ios: u64, bytes: u64) -> u64 {
        let busy = ios * self.volume.pace(bytes).0;
        self.origin_free = self.origin_free.max(self.now) + busy;
        self.second().origin_busy += busy;
        self.origin_free + self.volume.access(bytes).0
    }

    fn origin_read(&mut self, bytes: u64) -> u64 {
        if self.by_block { self.origin(bytes / BLOCK_U64, BLOCK_U64) } else { self.origin(1, bytes) }
    }

    fn carry_out(&mut self) {
        let mut effects = Vec::new();
        self.engine.take_effects(&mut effects);
        for effect in effects {
            let (ticket, at, outcome) = match effect {
                Effect::FlashRead { ticket, offset, len } => {
                    let bytes = self.flash.read(offset, len as usize).map_or_else(Outcome::Failed, Outcome::Bytes);
                    (ticket, self.now + FLASH, bytes)
                }
                Effect::FlashWrite { ticket, offset, data } => {
                    self.flash.0.write(offset, &data);
                    (ticket, self.now + FLASH, Outcome::Done)
                }
                Effect::FlashSync { ticket } => (ticket, self.now + FLASH, Outcome::Done),
                Effect::OriginRead { ticket, len, .. } => {
                    (ticket, self.origin_read(u64::from(len)), Outcome::Bytes(page(u64::from(len))))
                }
                Effect::OriginWrite { ticket, data, .. } => {
                    let bytes = data.iter().map(|piece| piece.len() as u64).sum();
                    (ticket, self.origin(1, bytes), Outcome::Done)
                }
                Effect::OriginStamp { ticket, mtime, .. } => {
                    (ticket, self.now + AWAY, Outcome::Stamp(Stamp { size: 0, mtime, ctime: mtime }))
                }
                Effect::OriginSeek { ticket, offset, .. } => (ticket, self.now + AWAY, Outcome::Offset(offset)),
                Effect::OriginZero { ticket, .. }
                | Effect::OriginResize { ticket, .. }
                | Effect::OriginReserve { ticket, .. }
                | Effect::OriginSync { ticket, .. }
                | Effect::OriginNamespace { ticket, .. }
                | Effect::PoolFailed { ticket } => (ticket, self.now + AWAY, Outcome::Done),
                Effect::FlashTrim { .. } | Effect::OriginRelease { .. } => continue,
                Effect::Reply { reply, .. } => {
                    self.replies.push(reply);
                    continue;
                }
            };
            self.number += 1;
            self.coming.push(Reverse((at, self.number)));
            self.outcomes.insert(self.number, (ticket, outcome));
        }
    }

    /// Lets the next thing happen.
    fn step(&mut self) {
        let wake = self.engine.next_wake().map_or(u64::MAX, |at| at.0);
        let next = self.coming.peek().map_or(u64::MAX, |Reverse((at, _))| *at);
        let to = self.now.max(wake.min(next));
        if to / SECOND > self.now / SECOND {
            let seconds = (self.now / SECOND) as usize..((to / SECOND) as usize).min(self.seconds.len());
            let stats = self.engine.stats();
            self.seconds[seconds].iter_mut().for_each(|second| second.stats = stats);
        }
        self.now = to;
        self.engine.advance(Nanos(self.now));
        if next <= wake
            && let Some(Reverse((_, number))) = self.coming.pop()
            && let Some((ticket, outcome)) = self.outcomes.remove(&number)
        {
            self.engine.complete(ticket, outcome);
        }
        self.carry_out();
    }
}

/// Runs a load from cold.
///
/// # Panics
/// When the engine answers with an error: nothing fails here.
#[must_use]
pub fn warm_up(load: &Warming, config: Config) -> Vec<Second> {
    let mut world = World::new(load, config);
    let size = load.pool * 3 / PAGE * PAGE;
    let stamp = Stamp { size, ..Stamp::default() };
    let file = OpenFile { inode: 1, birth: UnixNanos(0), path: b"f".to_vec(), stamp, created: false, allocated: size };
    world.engine.submit(RequestId(0), Request::Open(file));
    world.carry_out();
    let object = loop {
        match world.replies.pop() {
            Some(Reply::Opened { object, .. }) => break object,
            _ => world.step(),
        }
    };
    let popularity = popularity(size / PAGE, load.zipf);
    let places = places(size / PAGE, load.seed);
    let mut rng = Rng::new(load.seed);
    let mut asked = 0;
    let mut answered = 0;
    let page = page(PAGE);
    while world.now / SECOND < load.seconds {
        while asked - answered < load.depth {
            asked += 1;
            let request = some_request(&mut rng, (&popularity, &places), load, object, &page);
            world.engine.submit(RequestId(asked), request);
            world.carry_out();
        }
        if world.replies.is_empty() {
            world.step();
        }
        for reply in std::mem::take(&mut world.replies) {
            answered += 1;
            let second = world.second();
            second.requests += 1;
            match reply {
                Reply::Data(_, served) => {
                    second.hits += u64::from(served.hit_blocks);
                    second.misses += u64::from(served.miss_blocks);
                }
                Reply::Changed(_) => {}
                other => panic!("answered with {other:?}"),
            }
        }
    }
    world.seconds.truncate(load.seconds as usize);
    world.seconds
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

/// Data. Not zeros: those may be a hole, and destage does not write over holes.
fn page(bytes: u64) -> Buf {
    let mut page = BufMut::zeroed(bytes as usize);
    page.fill(0xA5);
    page.freeze()
}

/// Where the page of each rank lies: anywhere, each somewhere else.
fn places(pages: u64, seed: u64) -> Vec<u32> {
    let mut places: Vec<u32> = (0..).take(pages as usize).collect();
    places.sort_by_key(|page| mix(seed ^ mix(u64::from(*page))));
    places
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
