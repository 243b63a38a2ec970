//! The real engine, with a flash and an origin as slow as modelled volumes, in virtual time.
//!
//! Keeps true: the same requests give the same history, to the nanosecond. Nothing fails. The histories with faults
//! (`sim.rs`) check what is right; this is about how much and how fast.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use headpond_base::{BLOCK_U64, Buf, BufMut, Errno, Nanos, ObjectId, PoolId, RECORD_BYTES_MAX, Result, UnixNanos};
use headpond_engine::{
    Config, Effect, Engine, FlashRead, OpenFile, Outcome, Reply, Request, RequestId, Room, Space, Stats, Ticket,
    format_pool, recover,
};
use headpond_format::{Geometry, MemberName, Stamp};
use headpond_models::Network;

use crate::card::ModelledCard;
use crate::pages::Pages;

/// A flash that is never the bottleneck: 0.1 ms for each access, and a nanosecond for each byte.
pub(crate) const QUICK_FLASH: Network = Network { iops: 1e9, rate: 1e9, latency: 0.1e6 };

/// What an engine runs on.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Hardware {
    /// The pool's size in bytes.
    pub pool: u64,
    /// How fast the flash is.
    pub flash: Network,
    /// How fast the origin is.
    pub origin: Network,
}

/// The bytes of the origin.
pub(crate) enum Contents {
    /// The same everywhere, even after writes. No zeros, which could be holes.
    Alike(Buf),
    /// The bytes of its only file.
    Kept(Vec<u8>),
}

impl Contents {
    fn read(&self, offset: u64, len: u32) -> Buf {
        match self {
            Self::Alike(bytes) => bytes.slice(0..len as usize),
            Self::Kept(bytes) => {
                let end = (offset as usize + len as usize).min(bytes.len());
                BufMut::copy_of(&bytes[(offset as usize).min(end)..end]).freeze()
            }
        }
    }

    fn write(&mut self, offset: u64, data: &[Buf]) {
        let Self::Kept(bytes) = self else { return };
        let mut at = offset as usize;
        for piece in data {
            bytes[at..at + piece.len()].copy_from_slice(piece);
            at += piece.len();
        }
    }
}

/// The hardware and options of an engine.
pub(crate) struct Parts {
    pub(crate) geometry: Geometry,
    pub(crate) flash: Network,
    pub(crate) origin: Network,
    pub(crate) contents: Contents,
    /// The origin serves the misses of a request one block at a time, as for a cache that fetches each by itself.
    pub(crate) by_block: bool,
    /// The card that times the flash's writes, if `flash` does not.
    pub(crate) card: Option<ModelledCard>,
}

impl Parts {
    /// The hardware, with a pool divided as a user's.
    ///
    /// # Panics
    /// If the pool is too small.
    pub(crate) fn of(hardware: Hardware) -> Self {
        let geometry = Geometry::for_bytes(hardware.pool).unwrap_or_else(|error| panic!("a pool for a test: {error}"));
        let contents = Contents::Alike(some_data());
        Self { geometry, flash: hardware.flash, origin: hardware.origin, contents, by_block: false, card: None }
    }
}

/// The work of the origin in a second.
#[derive(Clone, Copy, Default)]
pub(crate) struct Traffic {
    /// I/Os that it began.
    pub(crate) ios: u64,
    /// Bytes of writes that ended.
    pub(crate) written: u64,
    /// Nanoseconds of work that it was given.
    pub(crate) busy: u64,
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

/// A device that serves one access after the other. Each answer comes some time later.
struct Queue {
    network: Network,
    free: Nanos,
}

impl Queue {
    const fn of(network: Network) -> Self {
        Self { network, free: Nanos(0) }
    }

    /// The start and the end of an access that comes now.
    fn serve(&mut self, now: Nanos, bytes: u64) -> (Nanos, Nanos) {
        let start = self.free.max(now);
        self.free = start.plus(self.network.pace(bytes));
        (start, start.plus(self.network.access(bytes)))
    }
}

/// Data of the largest request.
pub(crate) fn some_data() -> Buf {
    let mut data = BufMut::zeroed(RECORD_BYTES_MAX);
    data.fill(0xA5);
    data.freeze()
}

/// The largest miss. A larger read is destage's, of the blocks between dirty ones.
const MISS_MAX: u64 = 16 << 10;

/// An engine, its devices, and its clock.
pub(crate) struct Machine {
    engine: Engine,
    flash: Flash,
    contents: Contents,
    by_block: bool,
    card: Option<ModelledCard>,
    sizes: BTreeMap<ObjectId, u64>,
    /// By second.
    traffic: Vec<Traffic>,
    flash_queue: Queue,
    origin_queue: Queue,
    now: Nanos,
    coming: BinaryHeap<Reverse<(Nanos, u64)>>,
    outcomes: BTreeMap<u64, (Ticket, Outcome)>,
    number: u64,
    replies: Vec<(RequestId, Reply)>,
}

impl Machine {
    /// An engine on an empty pool.
    pub(crate) fn new(parts: Parts, config: Config) -> Self {
        let pool = parts.geometry.pool_bytes;
        let mut flash = Flash(Pages::zeroed(pool));
        for (offset, bytes) in format_pool(PoolId([4; 16]), MemberName([4; 16]), parts.geometry, None, config.mode) {
            flash.0.write(offset, &bytes);
        }
        let recovered = recover(&mut flash, pool).unwrap_or_else(|error| panic!("an empty pool: {error}"));
        let mut machine = Self {
            engine: recovered.into_engine(config, Nanos(1)),
            flash,
            contents: parts.contents,
            by_block: parts.by_block,
            card: parts.card,
            sizes: BTreeMap::new(),
            traffic: Vec::new(),
            flash_queue: Queue::of(parts.flash),
            origin_queue: Queue::of(parts.origin),
            now: Nanos(1),
            coming: BinaryHeap::new(),
            outcomes: BTreeMap::new(),
            number: 0,
            replies: Vec::new(),
        };
        machine.pump();
        machine
    }

    pub(crate) const fn now(&self) -> Nanos {
        self.now
    }

    pub(crate) fn stats(&self) -> Stats {
        self.engine.stats()
    }

    /// The work of the origin in each second, up to the last one with any.
    pub(crate) fn traffic(&self) -> &[Traffic] {
        &self.traffic
    }

    /// The card under the pool, if there is one.
    pub(crate) const fn card(&self) -> Option<&ModelledCard> {
        self.card.as_ref()
    }

    /// The origin's present content.
    pub(crate) const fn contents(&self) -> &Contents {
        &self.contents
    }

    /// Opens a file of this size at the origin.
    pub(crate) fn open(&mut self, size: u64) -> ObjectId {
        let number = self.sizes.len() as u64 + 1;
        let stamp = Stamp { size, mtime: UnixNanos(1), ctime: UnixNanos(1) };
        let path = format!("file {number}").into_bytes();
        let birth = UnixNanos(1);
        let file = OpenFile { inode: number, birth, path, stamp, created: false, allocated: size };
        match self.ask_and_wait(Request::Open(file.into())) {
            Reply::Opened { object, .. } => {
                self.sizes.insert(object, size);
                object
            }
            other => panic!("opening is answered with {other:?}"),
        }
    }

    /// Sends a request, to be answered some time.
    pub(crate) fn ask(&mut self, request: Request) -> RequestId {
        self.number += 1;
        let id = RequestId(self.number);
        self.engine.submit(id, request);
        self.pump();
        id
    }

    /// Sends a request and lets time pass until its answer. Other answers that come meanwhile are kept.
    pub(crate) fn ask_and_wait(&mut self, request: Request) -> Reply {
        let id = self.ask(request);
        loop {
            if let Some(at) = self.replies.iter().position(|(of, _)| *of == id) {
                return self.replies.remove(at).1;
            }
            assert!(self.step(Nanos(u64::MAX)), "a request is answered");
        }
    }

    /// The answers since the last call.
    pub(crate) fn take_replies(&mut self) -> Vec<(RequestId, Reply)> {
        std::mem::take(&mut self.replies)
    }

    /// Makes the next event happen if it comes before `end`; otherwise only time passes. `false` if no event follows.
    pub(crate) fn step(&mut self, end: Nanos) -> bool {
        let wake = self.engine.next_wake();
        let next = self.coming.peek().map(|Reverse((at, _))| *at);
        let Some(soonest) = wake.into_iter().chain(next).min().filter(|soonest| *soonest <= end) else {
            if end.0 < u64::MAX {
                self.now = self.now.max(end);
                self.engine.advance(self.now);
                self.pump();
            }
            return false;
        };
        self.now = self.now.max(soonest);
        self.engine.advance(self.now);
        if next.is_some_and(|next| next <= self.now)
            && let Some(Reverse((_, number))) = self.coming.pop()
            && let Some((ticket, outcome)) = self.outcomes.remove(&number)
        {
            self.engine.complete(ticket, outcome);
        }
        self.pump();
        true
    }

    fn pump(&mut self) {
        let mut effects = Vec::new();
        self.engine.take_effects(&mut effects);
        for effect in effects {
            self.carry_out(effect);
        }
    }

    fn second(&mut self, at: Nanos) -> &mut Traffic {
        let second = (at.0 / Nanos::SECOND.0) as usize;
        if self.traffic.len() <= second {
            self.traffic.resize(second + 1, Traffic::default());
        }
        &mut self.traffic[second]
    }

    fn flash_takes(&mut self, bytes: u64) -> Nanos {
        self.flash_queue.serve(self.now, bytes).1
    }

    fn origin_takes(&mut self, bytes: u64) -> Nanos {
        let (start, end) = self.origin_queue.serve(self.now, bytes);
        let busy = self.origin_queue.network.pace(bytes).0;
        self.second(start).ios += 1;
        self.second(self.now).busy += busy;
        end
    }

    fn origin_reads(&mut self, bytes: u64) -> Nanos {
        let pieces = if self.by_block && bytes <= MISS_MAX { bytes.div_ceil(BLOCK_U64) } else { 1 };
        (0..pieces).fold(self.now, |_, _| self.origin_takes(bytes / pieces))
    }

    fn carry_out(&mut self, effect: Effect) {
        let (when, ticket, outcome) = match effect {
            Effect::FlashRead { ticket, at, len } => {
                let bytes = self.flash.read(at.offset, len as usize).map_or_else(Outcome::Failed, Outcome::Bytes);
                (self.flash_takes(u64::from(len)), ticket, bytes)
            }
            Effect::FlashWrite { ticket, at, data } => {
                self.flash.0.write(at.offset, &data);
                let (bytes, now) = (data.len() as u64, self.now);
                let when = match &mut self.card {
                    Some(card) => card.write(now, at.offset, bytes),
                    None => self.flash_takes(bytes),
                };
                (when, ticket, Outcome::Done)
            }
            Effect::FlashSync { ticket, .. } => (self.flash_takes(0), ticket, Outcome::Done),
            Effect::OriginRead { ticket, offset, len, .. } => {
                let bytes = Outcome::Bytes(self.contents.read(offset, len));
                (self.origin_reads(u64::from(len)), ticket, bytes)
            }
            Effect::OriginWrite { ticket, offset, data, .. } => {
                self.contents.write(offset, &data);
                let bytes = data.iter().map(|piece| piece.len() as u64).sum();
                let when = self.origin_takes(bytes);
                self.second(when).written += bytes;
                (when, ticket, Outcome::Done)
            }
            Effect::OriginSync { ticket, .. } => (self.origin_takes(0), ticket, Outcome::Done),
            Effect::OriginStamp { ticket, object, mtime } => {
                let size = self.sizes.get(&object).copied().unwrap_or(0);
                (self.now, ticket, Outcome::Stamp(Stamp { size, mtime, ctime: mtime }))
            }
            Effect::OriginReserve { ticket, .. } => (self.now, ticket, Outcome::Space(Space::default())),
            Effect::OriginSpace { ticket, .. } => {
                (self.now, ticket, Outcome::Free(Room { free: 1 << 50, bytes: 1 << 50, counts: false }))
            }
            Effect::OriginSeek { ticket, offset, .. } => (self.now, ticket, Outcome::Offset(offset)),
            Effect::PoolFailed { ticket }
            | Effect::MembersChanged { ticket, .. }
            | Effect::OriginResize { ticket, .. }
            | Effect::OriginZero { ticket, .. }
            | Effect::OriginNamespace { ticket, .. } => (self.now, ticket, Outcome::Done),
            Effect::FlashTrim { at, len } => {
                return self.card.iter_mut().for_each(|card| card.trim(at.offset, len));
            }
            Effect::OriginRelease { .. } | Effect::OriginLost { .. } => return,
            Effect::Reply { request, reply } => return self.replies.push((request, reply)),
        };
        self.number += 1;
        self.coming.push(Reverse((when, self.number)));
        self.outcomes.insert(self.number, (ticket, outcome));
    }
}
