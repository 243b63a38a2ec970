//! The real engine with a flash and an origin that take as long as modelled volumes do, in virtual time.
//!
//! Keeps true: the same requests give the same history, to the last nanosecond. Nothing fails, and all bytes are
//! alike, but no zeros, which could be holes: what is right is the business of the histories with faults (`sim.rs`); here it is how much and how fast.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use headpond_base::{Buf, BufMut, Errno, Nanos, ObjectId, PoolId, RECORD_BYTES_MAX, Result, UnixNanos};
use headpond_engine::{
    Config, Effect, Engine, FlashRead, OpenFile, Outcome, Reply, Request, RequestId, Stats, Ticket, format_pool,
    recover,
};
use headpond_format::{Geometry, Stamp};
use headpond_models::Network;

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

struct Flash(Vec<u8>);

impl FlashRead for Flash {
    fn read(&mut self, offset: u64, len: usize) -> Result<Buf> {
        let bytes = self.0.get(offset as usize..offset as usize + len).ok_or(Errno::IO)?;
        Ok(BufMut::copy_of(bytes).freeze())
    }
}

/// A device that serves one access after the other, each of which is answered some time later.
struct Queue {
    network: Network,
    free: Nanos,
}

impl Queue {
    fn serve(&mut self, now: Nanos, bytes: u64) -> Nanos {
        let start = self.free.max(now);
        self.free = start.plus(self.network.pace(bytes));
        start.plus(self.network.access(bytes))
    }
}

/// Data, as much as a request can have.
pub(crate) fn some_data() -> Buf {
    let mut data = BufMut::zeroed(RECORD_BYTES_MAX);
    data.fill(0xA5);
    data.freeze()
}

/// An engine, its devices, and its clock.
pub(crate) struct Machine {
    engine: Engine,
    flash: Flash,
    /// What the origin holds.
    bytes: Buf,
    flash_queue: Queue,
    origin_queue: Queue,
    now: Nanos,
    coming: BinaryHeap<Reverse<(Nanos, u64)>>,
    outcomes: BTreeMap<u64, (Ticket, Outcome)>,
    number: u64,
    files: u64,
    replies: Vec<(RequestId, Reply)>,
}

impl Machine {
    /// An engine on an empty pool.
    pub(crate) fn new(hardware: Hardware, config: Config) -> Self {
        let geometry = Geometry::for_bytes(hardware.pool).unwrap_or_else(|error| panic!("a pool for a test: {error}"));
        let mut flash = Flash(vec![0; hardware.pool as usize]);
        for (offset, bytes) in format_pool(PoolId([4; 16]), geometry, None, config.mode) {
            flash.0[offset as usize..offset as usize + bytes.len()].copy_from_slice(&bytes);
        }
        let recovered = recover(&mut flash, hardware.pool).unwrap_or_else(|error| panic!("an empty pool: {error}"));
        let mut machine = Self {
            engine: recovered.into_engine(config, Nanos(1)),
            flash,
            bytes: some_data(),
            flash_queue: Queue { network: hardware.flash, free: Nanos(0) },
            origin_queue: Queue { network: hardware.origin, free: Nanos(0) },
            now: Nanos(1),
            coming: BinaryHeap::new(),
            outcomes: BTreeMap::new(),
            number: 0,
            files: 0,
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

    /// Opens a file of the origin that is so long.
    pub(crate) fn open(&mut self, size: u64) -> ObjectId {
        self.files += 1;
        let stamp = Stamp { size, mtime: UnixNanos(1), ctime: UnixNanos(1) };
        let path = format!("file {}", self.files).into_bytes();
        let birth = UnixNanos(1);
        let file = OpenFile { inode: self.files, birth, path, stamp, created: false, allocated: size };
        match self.ask_and_wait(Request::Open(file)) {
            Reply::Opened { object, .. } => object,
            other => panic!("opening is answered with {other:?}"),
        }
    }

    /// Asks for something, to be answered some time.
    pub(crate) fn ask(&mut self, request: Request) -> RequestId {
        self.number += 1;
        let id = RequestId(self.number);
        self.engine.submit(id, request);
        self.pump();
        id
    }

    /// Asks for something and lets time pass until it is answered; what else is answered meanwhile is kept.
    pub(crate) fn ask_and_wait(&mut self, request: Request) -> Reply {
        let id = self.ask(request);
        loop {
            if let Some(at) = self.replies.iter().position(|(of, _)| *of == id) {
                return self.replies.remove(at).1;
            }
            assert!(self.step(Nanos(u64::MAX)), "a request is answered");
        }
    }

    /// Answers that came since.
    pub(crate) fn take_replies(&mut self) -> Vec<(RequestId, Reply)> {
        std::mem::take(&mut self.replies)
    }

    /// Lets the next thing happen, if it comes before `end`; else only time passes. `false` if nothing more will.
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

    fn carry_out(&mut self, effect: Effect) {
        let (when, ticket, outcome) = match effect {
            Effect::FlashRead { ticket, offset, len } => {
                let bytes = self.flash.read(offset, len as usize).map_or_else(Outcome::Failed, Outcome::Bytes);
                (self.flash_queue.serve(self.now, u64::from(len)), ticket, bytes)
            }
            Effect::FlashWrite { ticket, offset, data } => {
                self.flash.0[offset as usize..offset as usize + data.len()].copy_from_slice(&data);
                (self.flash_queue.serve(self.now, data.len() as u64), ticket, Outcome::Done)
            }
            Effect::FlashSync { ticket } => (self.flash_queue.serve(self.now, 0), ticket, Outcome::Done),
            Effect::OriginRead { ticket, len, .. } => {
                let bytes = Outcome::Bytes(self.bytes.slice(0..len as usize));
                (self.origin_queue.serve(self.now, u64::from(len)), ticket, bytes)
            }
            Effect::OriginWrite { ticket, data, .. } => {
                let bytes = data.iter().map(|piece| piece.len() as u64).sum();
                (self.origin_queue.serve(self.now, bytes), ticket, Outcome::Done)
            }
            Effect::OriginSync { ticket, .. } => (self.origin_queue.serve(self.now, 0), ticket, Outcome::Done),
            Effect::OriginStamp { ticket, mtime, .. } => {
                (self.now, ticket, Outcome::Stamp(Stamp { size: 0, mtime, ctime: mtime }))
            }
            Effect::OriginSeek { ticket, offset, .. } => (self.now, ticket, Outcome::Offset(offset)),
            Effect::PoolFailed { ticket }
            | Effect::OriginReserve { ticket, .. }
            | Effect::OriginResize { ticket, .. }
            | Effect::OriginZero { ticket, .. }
            | Effect::OriginNamespace { ticket, .. } => (self.now, ticket, Outcome::Done),
            Effect::FlashTrim { .. } | Effect::OriginRelease { .. } => return,
            Effect::Reply { request, reply } => return self.replies.push((request, reply)),
        };
        self.number += 1;
        self.coming.push(Reverse((when, self.number)));
        self.outcomes.insert(self.number, (ticket, outcome));
    }
}
