//! The real engine, with a flash and an origin as slow as modelled volumes, in virtual time.
//!
//! Keeps true: the same requests give the same history, to the nanosecond. Nothing fails. The histories with faults
//! (`sim.rs`) check what is right; this is about how much and how fast.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use headpond_base::{BLOCK_U64, Buf, BufMut, MemberId, Nanos, ObjectId, PoolId, RECORD_BYTES_MAX, UnixNanos};
use headpond_engine::{
    Config, Device, Effect, Engine, MembersChange, OpenFile, Outcome, Present, Reply, Request, RequestId, Room, Space,
    Stats, Ticket, format_members, recover_members,
};
use headpond_format::{Address, Geometry, Member, MemberName, Members, Stamp};
use headpond_models::Network;

use crate::card::ModelledCard;
use crate::modelled_flash::{FlashModel, ModelledFlash, Queue};

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

/// The bytes of an origin.
pub enum Contents {
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
pub struct Parts {
    /// How the pool is divided.
    pub geometry: Geometry,
    /// The devices of the pool.
    pub members: Vec<(Member, FlashModel)>,
    /// How fast the origin is.
    pub origin: Network,
    /// The bytes of the origin.
    pub contents: Contents,
    /// The origin serves the misses of a request one block at a time, as for a cache that fetches each by itself.
    pub by_block: bool,
}

/// The one device of a pool.
pub fn one_member(geometry: &Geometry, model: FlashModel) -> Vec<(Member, FlashModel)> {
    vec![(geometry.member(MemberName([4; 16])), model)]
}

impl Parts {
    /// The hardware, with a pool divided as a user's.
    ///
    /// # Panics
    /// If the pool is too small.
    pub fn of(hardware: Hardware) -> Self {
        let geometry = Geometry::for_bytes(hardware.pool).unwrap_or_else(|error| panic!("a pool for a test: {error}"));
        let contents = Contents::Alike(some_data());
        let members = one_member(&geometry, FlashModel::Volume(hardware.flash));
        Self { geometry, members, origin: hardware.origin, contents, by_block: false }
    }
}

/// The work of the origin in a second.
#[derive(Clone, Copy, Default)]
pub struct Traffic {
    /// I/Os that it began.
    pub ios: u64,
    /// Bytes of writes that ended.
    pub written: u64,
    /// Nanoseconds of work that it was given.
    pub busy: u64,
}

/// Data of the largest request.
pub fn some_data() -> Buf {
    let mut data = BufMut::zeroed(RECORD_BYTES_MAX);
    data.fill(0xA5);
    data.freeze()
}

/// The largest miss. A larger read is destage's, of the blocks between dirty ones.
const MISS_MAX: u64 = 16 << 10;

/// An engine, its devices, and its clock.
pub struct Machine {
    engine: Engine,
    /// By the number of the member.
    flash: Vec<ModelledFlash>,
    contents: Contents,
    by_block: bool,
    sizes: BTreeMap<ObjectId, u64>,
    /// By second.
    traffic: Vec<Traffic>,
    origin_queue: Queue,
    now: Nanos,
    coming: BinaryHeap<Reverse<(Nanos, u64)>>,
    outcomes: BTreeMap<u64, (Ticket, Outcome)>,
    number: u64,
    replies: Vec<(RequestId, Reply)>,
}

impl Machine {
    /// An engine on an empty pool.
    pub fn new(parts: Parts, config: Config) -> Self {
        let Parts { geometry, members, .. } = parts;
        let (first, others) = members.split_first().expect("a pool has a device");
        let longer = |list: Members, (row, _): &(Member, _)| list.with(*row).expect("so many numbers there are").0;
        let list = others.iter().fold(Members::first(first.0), longer);
        let mut flash: Vec<_> = members.iter().map(|(row, model)| ModelledFlash::new(*model, row.bytes)).collect();
        for (at, bytes) in format_members(PoolId([4; 16]), &list, geometry, None, config.mode) {
            flash[usize::from(at.member.0)].put(at.offset, &bytes);
        }
        let devices = flash.iter_mut().zip(&members).map(|(flash, (row, _))| Device { flash, bytes: row.bytes });
        let present = Present::muster(devices.collect());
        let recovered = present.and_then(|mut present| recover_members(&mut present, None));
        let recovered = recovered.unwrap_or_else(|error| panic!("an empty pool: {error}"));
        let mut machine = Self {
            engine: recovered.into_engine(config, Nanos(1)),
            flash,
            contents: parts.contents,
            by_block: parts.by_block,
            sizes: BTreeMap::new(),
            traffic: Vec::new(),
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

    /// The time.
    pub const fn now(&self) -> Nanos {
        self.now
    }

    /// The engine's counters.
    pub fn stats(&self) -> Stats {
        self.engine.stats()
    }

    /// The work of the origin in each second, up to the last one with any.
    pub fn traffic(&self) -> &[Traffic] {
        &self.traffic
    }

    /// The card under the pool, if there is one.
    pub fn card(&self) -> Option<&ModelledCard> {
        self.flash.first().and_then(ModelledFlash::card)
    }

    /// Pages that the cards under the pool wrote for each page that they got. `None` without cards.
    pub fn amplification(&self) -> Option<f64> {
        ModelledFlash::amplification(&self.flash)
    }

    /// A device is lost.
    pub fn lose(&mut self, member: MemberId) {
        self.flash_of(member).lose();
    }

    /// Asks for another device to be taken into the pool.
    pub fn add(&mut self, row: Member, model: FlashModel) -> RequestId {
        let member = MemberId(self.flash.len() as u16);
        self.flash.push(ModelledFlash::new(model, row.bytes));
        self.ask(Request::ChangeMembers(MembersChange::Add { member, row, instead_of: None }))
    }

    fn flash_of(&mut self, member: MemberId) -> &mut ModelledFlash {
        &mut self.flash[usize::from(member.0)]
    }

    /// The origin's present content.
    pub const fn contents(&self) -> &Contents {
        &self.contents
    }

    /// Opens a file of this size at the origin.
    pub fn open(&mut self, size: u64) -> ObjectId {
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
    pub fn ask(&mut self, request: Request) -> RequestId {
        self.number += 1;
        let id = RequestId(self.number);
        self.engine.submit(id, request);
        self.pump();
        id
    }

    /// Sends a request and lets time pass until its answer. Other answers that come meanwhile are kept.
    pub fn ask_and_wait(&mut self, request: Request) -> Reply {
        let id = self.ask(request);
        loop {
            if let Some(at) = self.replies.iter().position(|(of, _)| *of == id) {
                return self.replies.remove(at).1;
            }
            assert!(self.step(Nanos(u64::MAX)), "a request is answered");
        }
    }

    /// The answers since the last call.
    pub fn take_replies(&mut self) -> Vec<(RequestId, Reply)> {
        std::mem::take(&mut self.replies)
    }

    /// Makes the next event happen if it comes before `end`; otherwise only time passes. `false` if no event follows.
    pub fn step(&mut self, end: Nanos) -> bool {
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

    fn origin_takes(&mut self, bytes: u64) -> Nanos {
        let (start, end) = self.origin_queue.serve(self.now, bytes);
        let busy = self.origin_queue.pace(bytes).0;
        self.second(start).ios += 1;
        self.second(self.now).busy += busy;
        end
    }

    fn origin_reads(&mut self, bytes: u64) -> Nanos {
        let pieces = if self.by_block && bytes <= MISS_MAX { bytes.div_ceil(BLOCK_U64) } else { 1 };
        (0..pieces).fold(self.now, |_, _| self.origin_takes(bytes / pieces))
    }

    fn carry_out(&mut self, effect: Effect) {
        let now = self.now;
        let (when, ticket, outcome) = match effect {
            Effect::FlashRead { ticket, at: Address { member, offset }, len } => {
                let (when, outcome) = self.flash_of(member).read_at(now, offset, len);
                (when, ticket, outcome)
            }
            Effect::FlashWrite { ticket, at: Address { member, offset }, data } => {
                let (when, outcome) = self.flash_of(member).write_at(now, offset, &data);
                (when, ticket, outcome)
            }
            Effect::FlashSync { ticket, member } => {
                let (when, outcome) = self.flash_of(member).sync_at(now);
                (when, ticket, outcome)
            }
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
            Effect::FlashTrim { at, len } => return self.flash_of(at.member).trim(at.offset, len),
            Effect::OriginRelease { .. } | Effect::OriginLost { .. } => return,
            Effect::Reply { request, reply } => return self.replies.push((request, reply)),
        };
        self.number += 1;
        self.coming.push(Reverse((when, self.number)));
        self.outcomes.insert(self.number, (ticket, outcome));
    }
}
