//! The real engine in virtual time, on an origin that takes as long as a modelled volume: for questions of
//! pace, which histories with random delays cannot answer. Nothing fails here, and all bytes are checked.
//!
//! Invariants: the same load gives the same report, to the last nanosecond; a request is counted when it is
//! answered; at the end of a run the origin is flushed and every page compared with what was written last.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use headpond_base::{Buf, BufMut, CacheMode, Errno, Nanos, ObjectId, PoolId, Result, UnixNanos};
use headpond_engine::{
    Config, Effect, Engine, FlashRead, OpenFile, Outcome, Reply, Request, RequestId, Stats, Ticket, format_pool,
    recover,
};
use headpond_format::{Geometry, Stamp};
use headpond_models::Network;

use crate::card::{ModelledCard, OnCard};
use crate::rng::Rng;

/// A page: what a database writes at a time.
pub const PAGE: u64 = 16 << 10;
/// Flash of the modelled pool: 0.1 ms for each I/O, and a nanosecond for each byte.
const FLASH: Nanos = Nanos(Nanos::MILLISECOND.0 / 10);

/// How requests come.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Arrival {
    /// So many are always under way.
    Depth(u32),
    /// So many a second, however long they take.
    PerSecond(f64),
}

/// What is asked of the engine.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PagedLoad {
    /// The pool's size in bytes.
    pub pool: u64,
    /// The file's size in bytes.
    pub file: u64,
    /// How writes of random pages come.
    pub arrival: Arrival,
    /// For how many seconds.
    pub seconds: u64,
    /// The origin.
    pub origin: Network,
    /// The flash card that the pool lies on; without one each I/O of the flash takes the same time.
    pub card: Option<OnCard>,
    /// Where the random pages come from.
    pub seed: u64,
}

/// What came of it, second by second.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Report {
    /// Writes answered in each second.
    pub writes: Vec<u64>,
    /// The longest that a write took of those answered in that second, in nanoseconds.
    pub longest: Vec<u64>,
    /// Bytes that the origin was given in each second.
    pub origin_bytes: Vec<u64>,
    /// I/Os of the origin in each second.
    pub origin_ios: Vec<u64>,
    /// What the engine counted up to the end, before the last flush.
    pub stats: Stats,
    /// Pages that the card wrote for each that it was given; 0 without a card.
    pub amplification: f64,
}

impl Report {
    /// The mean of some seconds.
    #[must_use]
    pub fn mean(seconds: &[u64]) -> f64 {
        seconds.iter().sum::<u64>() as f64 / seconds.len().max(1) as f64
    }

    /// By how much the averages of 10 s differ: their standard deviation as a share of their mean.
    #[must_use]
    pub fn variation(seconds: &[u64]) -> f64 {
        let tens: Vec<f64> = seconds.chunks_exact(10).map(Self::mean).collect();
        let mean = tens.iter().sum::<f64>() / tens.len().max(1) as f64;
        let squares = tens.iter().map(|ten| (ten - mean) * (ten - mean)).sum::<f64>();
        (squares / tens.len().max(1) as f64).sqrt() / mean.max(1e-9)
    }
}

struct Flash(Vec<u8>);

impl FlashRead for Flash {
    fn read(&mut self, offset: u64, len: usize) -> Result<Buf> {
        let bytes = self.0.get(offset as usize..offset as usize + len).ok_or(Errno::IO)?;
        Ok(BufMut::copy_of(bytes).freeze())
    }
}

/// What happens at a moment.
enum Happening {
    Completion(Ticket, Outcome),
    Arrival,
}

struct World {
    engine: Engine,
    flash: Flash,
    card: Option<ModelledCard>,
    origin: Vec<u8>,
    network: Network,
    origin_free: Nanos,
    now: Nanos,
    heap: BinaryHeap<Reverse<(Nanos, u64)>>,
    happenings: BTreeMap<u64, Happening>,
    number: u64,
    report: Report,
    /// When each request was asked, and which page it writes.
    asked: BTreeMap<RequestId, (Nanos, Option<u64>)>,
    replies: Vec<(RequestId, Reply)>,
    versions: Vec<u32>,
    rng: Rng,
}

/// The bytes of a page's version, none of which is a block of zeros.
fn page(number: u64, version: u32) -> BufMut {
    let mut bytes = BufMut::zeroed(PAGE as usize);
    for (at, word) in bytes.chunks_exact_mut(8).enumerate() {
        let value = (number << 32 | u64::from(version)).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (at as u64 + 1);
        word.copy_from_slice(&value.to_le_bytes());
    }
    bytes
}

impl World {
    fn new(load: &PagedLoad, config: Config) -> Self {
        let geometry = Geometry::with_segment_bytes(load.pool, 1 << 20);
        let mut flash = Flash(vec![0; load.pool as usize]);
        for (offset, bytes) in format_pool(PoolId([3; 16]), geometry, None, CacheMode::WriteBack) {
            flash.0[offset as usize..offset as usize + bytes.len()].copy_from_slice(&bytes);
        }
        let engine = recover(&mut flash, load.pool).expect("it was just made").into_engine(config, Nanos(1));
        let pages = load.file / PAGE;
        let mut origin = Vec::with_capacity(load.file as usize);
        (0..pages).for_each(|number| origin.extend_from_slice(&page(number, 0)));
        Self {
            engine,
            flash,
            card: load.card.map(|on| ModelledCard::new(on, load.pool)),
            origin,
            network: load.origin,
            origin_free: Nanos(0),
            now: Nanos(1),
            heap: BinaryHeap::new(),
            happenings: BTreeMap::new(),
            number: 0,
            report: Report::default(),
            asked: BTreeMap::new(),
            replies: Vec::new(),
            versions: vec![0; pages as usize],
            rng: Rng::for_part(load.seed, 0),
        }
    }

    fn at(&mut self, when: Nanos, what: Happening) {
        self.number += 1;
        self.heap.push(Reverse((when, self.number)));
        self.happenings.insert(self.number, what);
    }

    fn count(list: &mut Vec<u64>, now: Nanos, by: u64) {
        let second = (now.0 / Nanos::SECOND.0) as usize;
        if list.len() <= second {
            list.resize(second + 1, 0);
        }
        list[second] += by;
    }

    fn origin_time(&mut self, bytes: u64) -> Nanos {
        let start = self.origin_free.max(self.now);
        self.origin_free = start.plus(self.network.pace(bytes));
        Self::count(&mut self.report.origin_ios, start, 1);
        start.plus(self.network.access(bytes))
    }

    fn pump(&mut self) {
        loop {
            let mut effects = Vec::new();
            self.engine.take_effects(&mut effects);
            if effects.is_empty() {
                return;
            }
            for effect in effects {
                self.carry_out(effect);
            }
        }
    }

    fn carry_out(&mut self, effect: Effect) {
        let flash_time = |bytes: u64| self.now.plus(FLASH).plus(Nanos(bytes));
        let (when, ticket, outcome) = match effect {
            Effect::FlashRead { ticket, offset, len } => {
                let bytes = BufMut::copy_of(&self.flash.0[offset as usize..offset as usize + len as usize]);
                (flash_time(u64::from(len)), ticket, Outcome::Bytes(bytes.freeze()))
            }
            Effect::FlashWrite { ticket, offset, data } => {
                self.flash.0[offset as usize..offset as usize + data.len()].copy_from_slice(&data);
                let len = data.len() as u64;
                let when = flash_time(len);
                (self.card.as_mut().map_or(when, |card| card.write(self.now, offset, len)), ticket, Outcome::Done)
            }
            Effect::FlashSync { ticket } => (flash_time(0), ticket, Outcome::Done),
            Effect::OriginRead { ticket, offset, len, .. } => {
                let end = (offset as usize + len as usize).min(self.origin.len());
                let bytes = BufMut::copy_of(&self.origin[(offset as usize).min(end)..end]);
                (self.origin_time(u64::from(len)), ticket, Outcome::Bytes(bytes.freeze()))
            }
            Effect::OriginWrite { ticket, offset, data, .. } => {
                let mut at = offset as usize;
                for piece in &data {
                    self.origin[at..at + piece.len()].copy_from_slice(piece);
                    at += piece.len();
                }
                let bytes = at as u64 - offset;
                let when = self.origin_time(bytes);
                Self::count(&mut self.report.origin_bytes, when, bytes);
                (when, ticket, Outcome::Done)
            }
            Effect::OriginSync { ticket, .. } => (self.origin_time(0), ticket, Outcome::Done),
            Effect::OriginStamp { ticket, mtime, .. } => {
                let stamp = Stamp { size: self.origin.len() as u64, mtime, ctime: mtime };
                (self.now, ticket, Outcome::Stamp(stamp))
            }
            Effect::PoolFailed { ticket }
            | Effect::OriginReserve { ticket, .. }
            | Effect::OriginResize { ticket, .. }
            | Effect::OriginZero { ticket, .. }
            | Effect::OriginNamespace { ticket, .. } => (self.now, ticket, Outcome::Done),
            Effect::OriginSeek { ticket, .. } => (self.now, ticket, Outcome::Offset(0)),
            Effect::FlashTrim { offset, len } => {
                return self.card.iter_mut().for_each(|card| card.trim(offset, len));
            }
            Effect::OriginRelease { .. } => return,
            Effect::Reply { request, reply } => return self.replies.push((request, reply)),
        };
        self.at(when, Happening::Completion(ticket, outcome));
    }

    /// Lets the next thing happen. Answers with what came in.
    fn step(&mut self) -> Option<()> {
        let wake = self.engine.next_wake();
        let next = self.heap.peek().map(|Reverse((at, _))| *at);
        match (next, wake) {
            (None, None) => return None,
            (at, Some(wake)) if at.is_none_or(|at| wake < at) => {
                self.now = wake.max(self.now);
                self.engine.advance(self.now);
            }
            _ => {
                let Reverse((at, number)) = self.heap.pop()?;
                self.now = at.max(self.now);
                self.engine.advance(self.now);
                match self.happenings.remove(&number)? {
                    Happening::Completion(ticket, outcome) => self.engine.complete(ticket, outcome),
                    Happening::Arrival => self.write_some_page(),
                }
            }
        }
        self.pump();
        Some(())
    }

    fn ask(&mut self, request: Request, page: Option<u64>) -> RequestId {
        self.number += 1;
        let id = RequestId(self.number);
        self.asked.insert(id, (self.now, page));
        self.engine.submit(id, request);
        self.pump();
        id
    }

    fn ask_and_wait(&mut self, request: Request) -> Reply {
        let id = self.ask(request, None);
        loop {
            if let Some(at) = self.replies.iter().position(|(of, _)| *of == id) {
                return self.replies.remove(at).1;
            }
            self.step().expect("a request is answered");
        }
    }

    fn write_some_page(&mut self) {
        let number = self.rng.below(self.versions.len() as u64);
        self.versions[number as usize] += 1;
        let data = page(number, self.versions[number as usize]).freeze();
        let request = Request::Write {
            object: ObjectId(1),
            offset: number * PAGE,
            data,
            mtime: UnixNanos(9),
            durable: false,
            how: headpond_engine::Treatment::default(),
        };
        self.ask(request, Some(number));
    }
}

/// Runs a load.
///
/// # Panics
/// When a write fails, or the origin is not what was written at the end.
#[must_use]
pub fn run_paged(load: &PagedLoad, config: Config) -> Report {
    let mut world = World::new(load, config);
    world.pump();
    let stamp = Stamp { size: load.file, mtime: UnixNanos(1), ctime: UnixNanos(1) };
    let path = b"pages".to_vec();
    let file = OpenFile { inode: 5, birth: UnixNanos(1), path, stamp, created: false, allocated: load.file };
    let Reply::Opened { object, .. } = world.ask_and_wait(Request::Open(file)) else { panic!("it is not opened") };
    assert_eq!(object, ObjectId(1));
    let end = Nanos(load.seconds * Nanos::SECOND.0);
    match load.arrival {
        Arrival::Depth(depth) => (0..depth).for_each(|_| world.write_some_page()),
        Arrival::PerSecond(rate) => {
            let count = (load.seconds as f64 * rate) as u64;
            (0..count).for_each(|index| world.at(Nanos((index as f64 * 1e9 / rate) as u64), Happening::Arrival));
        }
    }
    while world.now < end {
        for (id, reply) in std::mem::take(&mut world.replies) {
            let Some((since, Some(_))) = world.asked.remove(&id) else { continue };
            assert!(matches!(reply, Reply::Changed(_)), "a write is answered with {reply:?}");
            World::count(&mut world.report.writes, world.now, 1);
            let second = (world.now.0 / Nanos::SECOND.0) as usize;
            world.report.longest.resize(second + 1, 0);
            let took = world.now.since(since).0;
            world.report.longest[second] = world.report.longest[second].max(took);
            if matches!(load.arrival, Arrival::Depth(_)) {
                world.write_some_page();
            }
        }
        if world.step().is_none() {
            break;
        }
    }
    world.report.stats = world.engine.stats();
    world.report.amplification = world.card.as_ref().map_or(0.0, ModelledCard::amplification);
    let mut report = std::mem::take(&mut world.report);
    for list in [&mut report.writes, &mut report.longest, &mut report.origin_bytes, &mut report.origin_ios] {
        list.resize(load.seconds as usize, 0);
    }
    loop {
        for (id, _) in std::mem::take(&mut world.replies) {
            world.asked.remove(&id);
        }
        if !world.asked.values().any(|(_, page)| page.is_some()) {
            break;
        }
        world.step().expect("a write is answered");
    }
    assert!(matches!(world.ask_and_wait(Request::flush_all(1)), Reply::Done));
    for (number, version) in (0..).zip(&world.versions) {
        let at = number as usize * PAGE as usize;
        assert!(world.origin[at..at + PAGE as usize] == page(number, *version)[..], "page {number} is not as written");
    }
    report
}
