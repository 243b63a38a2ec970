//! The real engine on a flash and an origin in memory. Its effects are carried out at once. At a crash each unsynced
//! write of the flash, by itself, may be lost or torn.

use std::collections::BTreeMap;

use headpond_base::{BLOCK, BLOCK_U64, Buf, BufMut, Errno, Nanos};
use headpond_engine::{
    Config, Effect, Engine, FlashRead, OpenObject, Outcome, Recovered, Reply, Request, RequestId, Room, Treatment,
    Verdict,
};
use headpond_format::Address;

use crate::history::{Found, hash};
use crate::origin::Origin;
use crate::seed::Seed;

/// A flash in memory.
#[derive(Clone, Debug)]
pub(crate) struct MemoryFlash(pub(crate) Vec<u8>);

impl FlashRead for MemoryFlash {
    fn read(&mut self, offset: u64, len: usize) -> headpond_base::Result<Buf> {
        let at = usize::try_from(offset).map_err(|_| Errno::IO)?;
        let bytes = at.checked_add(len).and_then(|end| self.0.get(at..end)).ok_or(Errno::IO)?;
        Ok(BufMut::copy_of(bytes).freeze())
    }
}

/// The unit that a device writes whole or not at all.
const SECTOR: usize = 512;

struct Unsynced {
    at: usize,
    before: Vec<u8>,
    data: Buf,
}

pub(crate) struct World {
    engine: Engine,
    pub(crate) flash: MemoryFlash,
    pub(crate) origin: Origin,
    unsynced: Vec<Unsynced>,
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
        flash: MemoryFlash,
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
        let (unsynced, replies) = (Vec::new(), BTreeMap::new());
        let mut world = Self { engine, flash, origin, unsynced, now: 0, next: 0, replies, opening: None };
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
                (ticket, self.flash.read(at.offset, len as usize).map_or_else(Outcome::Failed, Outcome::Bytes))
            }
            Effect::FlashWrite { ticket, at: Address { offset, .. }, data } => {
                let at = usize::try_from(offset).unwrap_or(usize::MAX);
                let place = at.checked_add(data.len()).and_then(|end| self.flash.0.get_mut(at..end));
                let place = place.ok_or_else(|| format!("a write of {} bytes at {offset}", data.len()))?;
                let before = place.to_vec();
                place.copy_from_slice(&data);
                self.unsynced.push(Unsynced { at, before, data });
                (ticket, Outcome::Done)
            }
            Effect::FlashSync { ticket, .. } => {
                self.unsynced.clear();
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

    /// Cuts the power. Each unsynced write is kept, dropped or torn.
    pub(crate) fn crash(mut self, seed: &mut Seed) -> (MemoryFlash, Origin) {
        for write in self.unsynced.iter().rev() {
            self.flash.0[write.at..write.at + write.before.len()].copy_from_slice(&write.before);
        }
        let kept = seed.below(5);
        for write in &self.unsynced {
            let (whole, torn) = (seed.below(4) < kept, seed.one_in(3));
            for (index, sector) in write.data.chunks(SECTOR).enumerate() {
                if whole && !(torn && seed.one_in(2)) {
                    let at = write.at + index * SECTOR;
                    self.flash.0[at..at + sector.len()].copy_from_slice(sector);
                }
            }
        }
        (self.flash, self.origin)
    }
}
