//! The real engine on devices and an origin in memory. Its effects are carried out at once. At a crash each unsynced
//! write of a device, by itself, may be lost or torn.

use std::collections::BTreeMap;

use headpond_base::{BLOCK, BLOCK_U64, Buf, BufMut, Nanos};
use headpond_engine::{
    Config, Effect, Engine, OpenObject, Outcome, Recovered, Reply, Request, RequestId, Room, Treatment, Verdict,
};

use crate::devices::Devices;
use crate::history::{Found, hash};
use crate::origin::Origin;
use crate::seed::Seed;

pub(crate) struct World {
    engine: Engine,
    pub(crate) devices: Devices,
    pub(crate) origin: Origin,
    now: u64,
    next: u64,
    replies: BTreeMap<RequestId, Reply>,
    /// The file that a request opens now.
    opening: Option<u64>,
}

fn joined(pieces: &[Buf]) -> Vec<u8> {
    let mut bytes = Vec::new();
    pieces.iter().for_each(|piece| bytes.extend_from_slice(piece));
    bytes
}

/// With more effects than this, a request counts as endless.
const EFFECTS_MAX: u32 = 200_000;

/// An answer never comes after this many sleeps of 50 ms: an hour of the engine's time.
const SLEEPS_MAX: u32 = 72_000;

/// Of a longer file only the start is read.
const LOOKED_AT: u64 = 1 << 20;

impl World {
    /// Takes a pool into use, as a mount does. If the origin's file is not as the pool left it, `decide` says whether
    /// the pool's data is kept. Returns those files, too.
    pub(crate) fn start(
        devices: Devices,
        mut origin: Origin,
        mut recovered: Recovered,
        config: Config,
        decide: &mut dyn FnMut() -> bool,
    ) -> Result<(Self, Vec<u64>), String> {
        let mut conflicts = Vec::new();
        origin.objects.clear();
        for object in recovered.objects() {
            // Only a forged log has volumes here, and no door knows them.
            let inode = object.state.identity.file().map(|file| file.inode);
            let found: Option<OpenObject> = inode.and_then(|inode| origin.describe(inode)).map(OpenObject::from);
            match (recovered.reconcile(object.object, found.as_ref()), &found) {
                (Verdict::Forgotten, _) => continue,
                (Verdict::Kept | Verdict::Dropped | Verdict::Doubted, _) => {}
                (Verdict::Conflict(_), found) => {
                    conflicts.extend(inode);
                    match found {
                        Some(found) if decide() => recovered.keep(object.object, found),
                        _ => {
                            recovered.discard(object.object);
                            continue;
                        }
                    }
                }
            }
            origin.objects.extend(inode.map(|inode| (object.object, inode)));
        }
        let engine = recovered.into_engine(config, Nanos(0));
        let replies = BTreeMap::new();
        let mut world = Self { engine, devices, origin, now: 0, next: 0, replies, opening: None };
        world.run(EFFECTS_MAX)?;
        Ok((world, conflicts))
    }

    /// Carries out effects, at most `most`, until there are none.
    fn run(&mut self, most: u32) -> Result<(), String> {
        let mut done = 0;
        loop {
            let mut effects = Vec::new();
            self.engine.take_effects(&mut effects);
            if effects.is_empty() {
                return Ok(());
            }
            for effect in effects {
                done += 1;
                if done > most {
                    return if most == EFFECTS_MAX { Err("effects without end".to_owned()) } else { Ok(()) };
                }
                self.carry_out(effect)?;
            }
        }
    }

    fn carry_out(&mut self, effect: Effect) -> Result<(), String> {
        let (ticket, outcome) = match effect {
            Effect::FlashRead { ticket, at, len } => {
                (ticket, self.devices.read(at, len as usize).map_or_else(Outcome::Failed, Outcome::Bytes))
            }
            Effect::FlashWrite { ticket, at, data } => {
                self.devices.write(at, &data)?;
                (ticket, Outcome::Done)
            }
            Effect::FlashSync { ticket, member } => {
                self.devices.sync(member);
                (ticket, Outcome::Done)
            }
            Effect::OriginRead { ticket, object, offset, len } => (ticket, self.origin.read(object, offset, len)),
            Effect::OriginWrite { ticket, object, offset, data, .. } => {
                (ticket, self.origin.write(object, offset, &data))
            }
            Effect::OriginZero { ticket, object, offset, len, .. } => (ticket, self.origin.zero(object, offset, len)),
            Effect::OriginResize { ticket, object, size } => (ticket, self.origin.resize(object, size)),
            Effect::OriginStamp { ticket, object, mtime } => (ticket, self.origin.stamp(object, mtime)),
            Effect::PoolFailed { ticket }
            | Effect::MembersChanged { ticket, .. }
            | Effect::OriginSync { ticket, .. }
            | Effect::OriginNamespace { ticket, .. } => (ticket, Outcome::Done),
            Effect::OriginReserve { ticket, .. } => (ticket, Outcome::Space(headpond_engine::Space::default())),
            Effect::OriginSpace { ticket, .. } => {
                (ticket, Outcome::Free(Room { free: 1 << 40, bytes: 1 << 40, counts: false }))
            }
            Effect::OriginSeek { ticket, offset, .. } => (ticket, Outcome::Offset(offset)),
            Effect::FlashTrim { .. } | Effect::OriginLost { .. } => return Ok(()),
            Effect::OriginRelease { object } => {
                self.origin.objects.remove(&object);
                return Ok(());
            }
            Effect::Reply { request, reply } => {
                if let Reply::Opened { object, .. } = &reply
                    && let Some(inode) = self.opening
                {
                    self.origin.objects.insert(*object, inode);
                }
                self.replies.insert(request, reply);
                return Ok(());
            }
        };
        self.engine.complete(ticket, outcome);
        Ok(())
    }

    /// Sends a request and waits for the answer.
    pub(crate) fn ask(&mut self, request: Request) -> Result<Reply, String> {
        let id = RequestId(self.next);
        self.next += 1;
        self.engine.submit(id, request.clone());
        self.run(EFFECTS_MAX)?;
        for _ in 0..SLEEPS_MAX {
            if let Some(reply) = self.replies.remove(&id) {
                return Ok(reply);
            }
            self.sleep(50)?;
        }
        Err(format!("never answered: {request:?}"))
    }

    /// Sends a request, and leaves before or after the answer.
    pub(crate) fn ask_and_leave(&mut self, request: Request, effects: u32) -> Result<(), String> {
        let id = RequestId(self.next);
        self.next += 1;
        self.engine.submit(id, request);
        self.run(effects)
    }

    pub(crate) fn sleep(&mut self, milliseconds: u64) -> Result<(), String> {
        self.now += milliseconds * Nanos::MILLISECOND.0;
        self.engine.advance(Nanos(self.now));
        self.run(EFFECTS_MAX)
    }

    /// Opens a file that the origin has.
    pub(crate) fn open(&mut self, inode: u64) -> Result<(headpond_base::ObjectId, u64), String> {
        let file = self.origin.describe(inode).ok_or("a file that the origin has not got")?;
        self.opening = Some(inode);
        let reply = self.ask(Request::Open(file.into()))?;
        self.opening = None;
        match reply {
            Reply::Opened { object, attributes } => Ok((object, attributes.size)),
            other => Err(format!("an open is answered with {other:?}")),
        }
    }

    /// Reads a file block by block.
    pub(crate) fn look(&mut self, inode: u64) -> Result<Found, String> {
        let (object, size) = self.open(inode)?;
        let mut blocks = Vec::new();
        for offset in (0..size.min(LOOKED_AT)).step_by(BLOCK) {
            let reply = self.ask(Request::Read { object, offset, len: BLOCK_U64 as u32, how: Treatment::default() })?;
            blocks.push(match reply {
                Reply::Data(pieces, _) => {
                    let bytes = joined(&pieces);
                    let wanted = (size - offset).min(BLOCK_U64);
                    if bytes.len() as u64 != wanted {
                        return Err(format!("a read of {wanted} bytes gave {}", bytes.len()));
                    }
                    Some(hash(&bytes))
                }
                Reply::Failed(_) => None,
                other => return Err(format!("a read is answered with {other:?}")),
            });
        }
        Ok(Found { size, blocks })
    }

    /// All of a file's bytes.
    pub(crate) fn read_whole(&mut self, inode: u64) -> Result<Vec<u8>, String> {
        let (object, size) = self.open(inode)?;
        let mut bytes = Vec::new();
        for offset in (0..size).step_by(BLOCK) {
            match self.ask(Request::Read { object, offset, len: BLOCK_U64 as u32, how: Treatment::default() })? {
                Reply::Data(pieces, _) => bytes.extend_from_slice(&joined(&pieces)),
                other => return Err(format!("a read is answered with {other:?}")),
            }
        }
        Ok(bytes)
    }

    /// Dirty blocks that one member has, where two should.
    pub(crate) fn exposed_blocks(&self) -> u64 {
        self.engine.exposed_blocks()
    }

    /// Reads all files.
    pub(crate) fn look_at_all(&mut self) -> Result<BTreeMap<u64, Found>, String> {
        self.origin.inodes().into_iter().map(|inode| Ok((inode, self.look(inode)?))).collect()
    }

    /// Uses a recovered pool: a write, a flush, a stop in order. Errors are answers, too.
    pub(crate) fn use_it(&mut self, seed: &mut Seed) -> Result<(), String> {
        for inode in self.origin.inodes() {
            let (object, size) = self.open(inode)?;
            let mut bytes = vec![0; 1 + seed.index(3 * BLOCK)];
            seed.fill(&mut bytes);
            let (offset, mtime) = (seed.below(size.clamp(1, 1 << 20)), self.origin.tick());
            let data = BufMut::copy_of(&bytes).freeze();
            self.ask(Request::Write {
                object,
                offset,
                data,
                mtime,
                durable: seed.one_in(2),
                how: Treatment::default(),
            })?;
        }
        self.sleep(2000)?;
        self.ask(Request::flush_all(1))?;
        self.ask(Request::Stop)?;
        Ok(())
    }

    /// Cuts the power. Each unsynced write is kept, dropped or torn.
    pub(crate) fn crash(mut self, seed: &mut Seed) -> (Devices, Origin) {
        self.devices.crash(seed);
        (self.devices, self.origin)
    }
}
