//! The engine on a flash and an origin in memory that do everything at once and never fail:
//! what an application sees when nothing goes wrong. Faults are the simulator's.

#![allow(clippy::unwrap_used)] // helpers outside of #[test] functions are tests, too

use std::collections::BTreeMap;

use headpond_base::{Buf, BufMut, CacheMode, Errno, Nanos, ObjectId, PoolId, Result, UnixNanos};
use headpond_engine::{
    Config, Effect, Engine, FlashRead, OpenFile, Outcome, Reply, Request, RequestId, Verdict, format_pool, recover,
};
use headpond_format::{Geometry, Stamp};

struct Memory(Vec<u8>);

impl FlashRead for Memory {
    fn read(&mut self, offset: u64, len: usize) -> Result<Buf> {
        let bytes = self.0.get(offset as usize..offset as usize + len).ok_or(Errno::IO)?;
        Ok(BufMut::copy_of(bytes).freeze())
    }
}

struct World {
    engine: Engine,
    flash: Memory,
    files: BTreeMap<ObjectId, Vec<u8>>,
    stamps: BTreeMap<ObjectId, Stamp>,
    now: u64,
    next: u64,
    replies: BTreeMap<RequestId, Reply>,
}

const POOL: u64 = 48 << 20;

fn geometry() -> Geometry {
    Geometry::with_segment_bytes(POOL, 2 << 20)
}

impl World {
    fn new(config: Config) -> Self {
        let mut flash = Memory(vec![0; POOL as usize]);
        for (offset, bytes) in format_pool(PoolId([1; 16]), geometry(), None, CacheMode::WriteBack) {
            flash.0[offset as usize..offset as usize + bytes.len()].copy_from_slice(&bytes);
        }
        let engine = recover(&mut flash, POOL).unwrap().into_engine(config, Nanos(0));
        let mut world = Self {
            engine,
            flash,
            files: BTreeMap::new(),
            stamps: BTreeMap::new(),
            now: 0,
            next: 0,
            replies: BTreeMap::new(),
        };
        world.run();
        world
    }

    fn run(&mut self) {
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
        let (ticket, outcome) = match effect {
            Effect::FlashRead { ticket, offset, len } => {
                (ticket, Outcome::Bytes(self.flash.read(offset, len as usize).unwrap()))
            }
            Effect::FlashWrite { ticket, offset, data } => {
                self.flash.0[offset as usize..offset as usize + data.len()].copy_from_slice(&data);
                (ticket, Outcome::Done)
            }
            Effect::OriginRead { ticket, object, offset, len } => {
                let file = &self.files[&object];
                let start = (offset as usize).min(file.len());
                let end = (start + len as usize).min(file.len());
                (ticket, Outcome::Bytes(BufMut::copy_of(&file[start..end]).freeze()))
            }
            Effect::OriginWrite { ticket, object, offset, data } => {
                let file = self.files.get_mut(&object).unwrap();
                let bytes: Vec<u8> = data.iter().flat_map(|piece| piece.to_vec()).collect();
                let end = offset as usize + bytes.len();
                if file.len() < end {
                    file.resize(end, 0);
                }
                file[offset as usize..end].copy_from_slice(&bytes);
                (ticket, Outcome::Done)
            }
            Effect::OriginZero { ticket, object, offset, len } => {
                self.files.get_mut(&object).unwrap()[offset as usize..(offset + len) as usize].fill(0);
                (ticket, Outcome::Done)
            }
            Effect::OriginResize { ticket, object, size } => {
                self.files.get_mut(&object).unwrap().resize(size as usize, 0);
                (ticket, Outcome::Done)
            }
            Effect::OriginStamp { ticket, object, mtime } => {
                let size = self.files[&object].len() as u64;
                let stamp = Stamp { size, mtime, ctime: mtime };
                self.stamps.insert(object, stamp);
                (ticket, Outcome::Stamp(stamp))
            }
            Effect::FlashSync { ticket }
            | Effect::PoolFailed { ticket }
            | Effect::OriginReserve { ticket, .. }
            | Effect::OriginSync { ticket, .. }
            | Effect::OriginNamespace { ticket, .. } => (ticket, Outcome::Done),
            Effect::OriginSeek { ticket, .. } => (ticket, Outcome::Offset(0)),
            Effect::FlashTrim { .. } | Effect::OriginRelease { .. } => return,
            Effect::Reply { request, reply } => {
                self.replies.insert(request, reply);
                return;
            }
        };
        self.engine.complete(ticket, outcome);
    }

    fn ask(&mut self, request: Request) -> Reply {
        let id = RequestId(self.next);
        self.next += 1;
        self.engine.submit(id, request);
        self.run();
        for _ in 0..100_000 {
            if let Some(reply) = self.replies.remove(&id) {
                return reply;
            }
            self.sleep(50);
        }
        panic!("request {id:?} was never answered: {:?}", self.engine.stats());
    }

    fn sleep(&mut self, milliseconds: u64) {
        self.now += milliseconds * 1_000_000;
        self.engine.advance(Nanos(self.now));
        self.run();
    }

    fn open(&mut self, inode: u64, content: &[u8]) -> ObjectId {
        let stamp = self.stamps.values().last().copied().unwrap_or_default();
        let stamp = Stamp { size: content.len() as u64, ..stamp };
        let file = OpenFile { inode, birth: UnixNanos(0), path: b"f".to_vec(), stamp, created: false, allocated: 0 };
        let Reply::Opened { object, .. } = self.ask(Request::Open(file)) else { panic!("not opened") };
        self.files.entry(object).or_insert_with(|| content.to_vec());
        object
    }

    fn write(&mut self, object: ObjectId, offset: u64, bytes: &[u8]) {
        let data = BufMut::copy_of(bytes).freeze();
        let reply = self.ask(Request::Write { object, offset, data, mtime: UnixNanos(7), durable: false });
        assert!(matches!(reply, Reply::Changed(_)), "{reply:?}");
    }

    fn read(&mut self, object: ObjectId, offset: u64, len: u32) -> Vec<u8> {
        match self.ask(Request::Read { object, offset, len }) {
            Reply::Data(pieces) => pieces.iter().flat_map(|piece| piece.to_vec()).collect(),
            other => panic!("read answered {other:?}"),
        }
    }
}

fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[test]
fn what_was_written_is_read_and_reaches_the_origin_with_the_flush() {
    let mut world = World::new(Config::default());
    let file = world.open(1, &[5; 10_000]);
    world.write(file, 3, b"hello");
    world.write(file, 9_998, b"tail beyond");
    assert_eq!(world.read(file, 0, 10), [5, 5, 5, b'h', b'e', b'l', b'l', b'o', 5, 5]);
    assert_eq!(world.read(file, 9_996, 100), b"\x05\x05tail beyond");
    assert_eq!(world.files[&file], [5; 10_000], "nothing reached the origin yet");
    assert!(matches!(world.ask(Request::Sync { object: file }), Reply::Done));
    assert!(matches!(world.ask(Request::Flush), Reply::Done));
    assert_eq!(&world.files[&file][..9], b"\x05\x05\x05hello\x05");
    assert_eq!(world.files[&file].len(), 10_009);
    assert_eq!(world.engine.stats().dirty_blocks, 0);
}

#[test]
fn long_random_use_of_a_small_pool_agrees_with_a_plain_file_in_every_mode() {
    for seed in 1..=12_u64 {
        let mode = CacheMode::ALL[(seed % 4) as usize];
        let mut world = World::new(Config { mode, flush_period: Nanos::SECOND, ..Config::default() });
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut model = vec![1_u8; 5 << 20];
        let file = world.open(1, &model.clone());
        for step in 0..1500 {
            let offset = random(&mut state) % (30 << 20);
            let len = match random(&mut state) % 10 {
                0 => random(&mut state) % (1 << 20) + 1,
                1..=4 => 4096 * (random(&mut state) % 16 + 1),
                _ => random(&mut state) % 9000 + 1,
            } as usize;
            let offset = if random(&mut state).is_multiple_of(2) { offset / 4096 * 4096 } else { offset };
            match random(&mut state) % 20 {
                0 => {
                    let size = offset % (20 << 20);
                    let reply = world.ask(Request::Truncate { object: file, size, mtime: UnixNanos(8) });
                    assert!(matches!(reply, Reply::Changed(now) if now.size == size), "{reply:?}");
                    model.resize(size as usize, 0);
                }
                1 => {
                    let len = len as u64 * 3;
                    let reply =
                        world.ask(Request::Zero { object: file, offset, len, extend: false, mtime: UnixNanos(8) });
                    assert!(matches!(reply, Reply::Changed(_)), "{reply:?}");
                    let (from, to) = ((offset as usize).min(model.len()), (offset + len) as usize);
                    let to = to.min(model.len());
                    model[from..to].fill(0);
                }
                2 => assert!(matches!(world.ask(Request::Sync { object: file }), Reply::Done)),
                3 if step % 5 == 0 => {
                    assert!(matches!(world.ask(Request::Flush), Reply::Done));
                    assert_eq!(world.files[&file].len(), model.len(), "seed {seed} step {step}");
                    assert!(world.files[&file] == model, "seed {seed} step {step}: origin differs after a flush");
                }
                4 => world.sleep(random(&mut state) % 3000),
                5..=11 => {
                    let bytes: Vec<u8> = (0..len).map(|at| (at as u64 ^ random(&mut state)) as u8).collect();
                    let end = offset as usize + len;
                    world.write(file, offset, &bytes);
                    if model.len() < end {
                        model.resize(end, 0);
                    }
                    model[offset as usize..end].copy_from_slice(&bytes);
                }
                _ => {
                    let read = world.read(file, offset, len as u32);
                    let from = (offset as usize).min(model.len());
                    let to = (offset as usize + len).min(model.len());
                    assert!(read == model[from..to], "seed {seed} step {step}: read of {len} at {offset} differs");
                }
            }
        }
        assert!(matches!(world.ask(Request::Stop), Reply::Done));
        let mut recovered = recover(&mut world.flash, POOL).unwrap();
        let stamp = world.stamps.get(&file).copied().unwrap_or_default();
        let stamp = Stamp { size: world.files[&file].len() as u64, ..stamp };
        for object in recovered.objects() {
            let found =
                OpenFile { inode: 1, birth: UnixNanos(0), path: b"f".to_vec(), stamp, created: false, allocated: 0 };
            if let Verdict::Conflict(conflict) = recovered.reconcile(object.object, Some(&found)) {
                panic!("seed {seed}: {conflict:?}");
            }
        }
        world.engine = recovered.into_engine(Config { mode, ..Config::default() }, Nanos(world.now));
        world.run();
        let at_origin = world.files[&file].clone();
        let again = world.open(1, &at_origin);
        for offset in (0..model.len() as u64).step_by(1 << 20) {
            let to = (offset as usize + (1 << 20)).min(model.len());
            assert!(
                world.read(again, offset, 1 << 20) == model[offset as usize..to],
                "seed {seed}: at {offset} after restart"
            );
        }
    }
}

#[test]
fn more_files_than_the_pool_can_name_are_served_and_flushed() {
    const FILES: u64 = 4000;
    let mut world = World::new(Config { flush_period: Nanos::SECOND, ..Config::default() });
    for inode in 1..=FILES {
        let file = world.open(inode, &[]);
        world.write(file, 0, &inode.to_le_bytes());
        // Some stay open.
        if !inode.is_multiple_of(7) {
            assert!(matches!(world.ask(Request::Close { object: file }), Reply::Done));
        }
        if inode.is_multiple_of(100) {
            assert!(matches!(world.ask(Request::Sync { object: file }), Reply::Done | Reply::Failed(Errno::BADF)));
            world.sleep(10);
        }
    }
    assert!(matches!(world.ask(Request::Flush), Reply::Done));
    let named = world.engine.stats().objects;
    assert!(named < FILES, "{named} objects are remembered: the pool is too large for this test");
    let written = world.files.values().filter(|bytes| bytes.len() == 8).count() as u64;
    assert_eq!(written, FILES, "files whose bytes reached the origin");
    for _ in 0..3 {
        // Checkpoints of as many objects as there may be.
        assert!(matches!(world.ask(Request::Stop), Reply::Done));
        let recovered = recover(&mut world.flash, POOL).unwrap();
        assert!(recovered.objects().len() as u64 <= FILES);
        world.engine = recovered.into_engine(Config::default(), Nanos(world.now));
        world.run();
    }
}
