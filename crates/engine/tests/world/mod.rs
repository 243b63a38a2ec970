//! An engine on a flash and an origin in memory that do everything at once and never fail. Shared by the tests
//! of what an application sees when nothing goes wrong.

#![allow(dead_code)] // each test program uses a part of it

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use headpond_base::{Buf, BufMut, CacheMode, Errno, MemberId, Nanos, ObjectId, PoolId, Result, UnixNanos};
use headpond_engine::{
    Config, Device, Effect, Engine, FlashRead, Handling, MembersChange, OpenFile, Outcome, Present, Reply, Request,
    RequestId, Room, Served, Space, Ticket, Treatment, Verdict, format_members, format_pool, recover, recover_members,
};
use headpond_format::{Address, Geometry, Member, MemberName, Members, Stamp};

pub struct Memory(pub Vec<u8>);

impl FlashRead for Memory {
    fn read(&mut self, offset: u64, len: usize) -> Result<Buf> {
        let bytes = self.0.get(offset as usize..offset as usize + len).ok_or(Errno::IO)?;
        Ok(BufMut::copy_of(bytes).freeze())
    }
}

pub struct World {
    pub engine: Engine,
    pub flash: Memory,
    /// The devices after the first.
    pub others: Vec<Memory>,
    /// The member that each device is.
    pub members: Vec<MemberId>,
    /// A member that fails all reads.
    pub refuses_reads: Option<MemberId>,
    /// Reads of this byte of a member fail.
    pub bad_sector: Option<(MemberId, u64)>,
    /// The next read of this member waits for [`World::answer_reads`]. Until then nothing may change what it reads.
    pub hold_a_read_of: Option<MemberId>,
    pub held_reads: Vec<(Ticket, Address, u32)>,
    /// A member that fails all writes.
    pub refuses_writes: Option<MemberId>,
    pub files: BTreeMap<ObjectId, Vec<u8>>,
    /// How long those are of which only the front is in `files`: a hole behind it.
    pub sparse: BTreeMap<ObjectId, u64>,
    pub stamps: BTreeMap<ObjectId, Stamp>,
    pub now: u64,
    pub next: u64,
    pub replies: BTreeMap<RequestId, Reply>,
    /// The flash as it was when the origin was asked for space.
    pub at_reserve: Vec<Memory>,
    pub keep_at_reserve: bool,
    /// The origin has no space to reserve.
    pub full: bool,
    /// It has some as soon as a file is cut.
    pub cuts_make_room: bool,
    pub full_says: Errno,
    /// What the origin was asked to keep, and for whom.
    pub asked: Vec<(Vec<(u64, u64)>, u32)>,
    /// Sizes that files at the origin were given.
    pub cuts: Vec<u64>,
    /// The origin cannot keep space, and has so much.
    pub keeps_none: bool,
    pub free: u64,
    /// The flash takes nothing more, and that cannot be written down at the origin.
    pub broken: bool,
    /// It can be written down.
    pub notes: bool,
    /// The origin refuses this many stamps.
    pub refuse_stamps: u32,
    /// The origin carries out so many writes, and reports errors for them.
    pub refuse_writes: u32,
    pub refuse_writes_as: Errno,
    /// It refuses all writes but those of this file.
    pub refuse_writes_but_of: Option<ObjectId>,
    /// The origin refuses one write, after so many.
    pub refuse_writes_after: Option<u32>,
    /// The origin refuses every n-th write.
    pub refuse_every: Option<u64>,
    /// The origin refuses writes of this byte of a file.
    pub refuse_at: Option<u64>,
    pub writes: u64,
    /// Writes to the origin wait for [`World::answer_writes`].
    pub hold_writes: bool,
    pub held_writes: Vec<Effect>,
    /// The origin refuses this many changes of size.
    pub refuse_resizes: u32,
    /// The origin refuses this many syncs.
    pub refuse_syncs: u32,
    /// With a sync that it refuses, the origin loses what the file got since its last good sync.
    pub loses_unsynced: bool,
    /// Syncs of the origin wait for [`World::answer_a_sync`].
    pub hold_syncs: bool,
    pub held_syncs: VecDeque<(Ticket, ObjectId)>,
    /// Files as that origin synced them last.
    pub durable: BTreeMap<ObjectId, Vec<u8>>,
    /// Files whose size was set, and not synced since.
    pub resized: BTreeSet<ObjectId>,
    /// Of each write to the origin, whether its file was one of those.
    pub written_resized: Vec<bool>,
    /// Bytes that were written to the origin, and bytes that it was to make zeros by itself.
    pub written: u64,
    pub zeroed: u64,
    /// The ranges of those, one for each time that it was asked.
    pub zero_ranges: Vec<(u64, u64)>,
    /// Bytes that were written to flash.
    pub flash_written: u64,
    /// Where each of those writes began, and how long it was.
    pub flash_writes: Vec<(Address, u64)>,
    /// More than that is a loop without end.
    pub flash_written_most: u64,
    /// How many times the flash was synced.
    pub flash_syncs: u64,
    /// How many times the origin was read.
    pub origin_reads: u64,
    /// Writes to flash below this byte are done, and their completion waits for [`World::release`].
    pub hold_below: u64,
    pub held: Vec<Ticket>,
    /// Reads of the origin from this byte on wait for [`World::serve`].
    pub starve: Option<u64>,
    /// Files that the origin was asked to sync.
    pub synced: Vec<ObjectId>,
    /// Files that the engine let go of.
    pub released: Vec<ObjectId>,
    pub starved: Vec<(Ticket, ObjectId, u64, u32)>,
    /// How many devices have joined.
    joined: u8,
    /// Files of which the origin may have lost something, each with the number of answers that there were by then.
    pub lost: Vec<(ObjectId, usize)>,
}

pub const POOL: u64 = 48 << 20;

pub fn geometry() -> Geometry {
    Geometry::with_segment_bytes(POOL, 2 << 20)
}

impl World {
    pub fn new(config: Config) -> Self {
        Self::on(geometry(), config)
    }

    /// On a new pool that is divided like this.
    pub fn on(geometry: Geometry, config: Config) -> Self {
        let mut flash = Memory(vec![0; geometry.pool_bytes as usize]);
        for (offset, bytes) in format_pool(PoolId([1; 16]), MemberName([1; 16]), geometry, None, CacheMode::WriteBack) {
            flash.0[offset as usize..offset as usize + bytes.len()].copy_from_slice(&bytes);
        }
        let engine = recover(&mut flash, geometry.pool_bytes).unwrap().into_engine(config, Nanos(0));
        let mut world = Self::of(engine, flash, Vec::new(), vec![MemberId(0)]);
        world.run();
        world
    }

    /// On a new pool of two members of [`POOL`] bytes.
    pub fn mirrored(config: Config) -> Self {
        Self::of_members(2, config)
    }

    /// On a new pool of so many members of [`POOL`] bytes.
    pub fn of_members(count: u8, config: Config) -> Self {
        let devices: Vec<_> = (1..=count).map(|name| (MemberName([name; 16]), POOL)).collect();
        let (geometry, rows) = Geometry::for_members(&devices, Some(2 << 20)).unwrap();
        let longer = |list: Members, row| list.with(row).unwrap().0;
        let members = rows[1..].iter().copied().fold(Members::first(rows[0]), longer);
        let mut flashes: Vec<_> = devices.iter().map(|_| Memory(vec![0; POOL as usize])).collect();
        for (at, bytes) in format_members(PoolId([1; 16]), &members, geometry, None, CacheMode::WriteBack) {
            let offset = at.offset as usize;
            flashes[usize::from(at.member.0)].0[offset..offset + bytes.len()].copy_from_slice(&bytes);
        }
        Self::start(flashes, config)
    }

    /// On what these devices hold.
    pub fn start(flashes: Vec<Memory>, config: Config) -> Self {
        let mut world = Self::about_to_start(flashes, config);
        world.run();
        world
    }

    /// The same, before anything is done there.
    pub fn about_to_start(mut flashes: Vec<Memory>, config: Config) -> Self {
        let devices = flashes.iter_mut().map(|flash| Device { flash, bytes: POOL }).collect();
        let mut present = Present::muster(devices).unwrap();
        let engine = recover_members(&mut present, config.mutation).unwrap().into_engine(config, Nanos(0));
        let members = (0..).map_while(|device| present.member_of(device)).collect();
        let first = flashes.remove(0);
        Self::of(engine, first, flashes, members)
    }

    fn of(engine: Engine, flash: Memory, others: Vec<Memory>, members: Vec<MemberId>) -> Self {
        Self {
            engine,
            flash,
            others,
            members,
            refuses_reads: None,
            bad_sector: None,
            flash_writes: Vec::new(),
            hold_a_read_of: None,
            held_reads: Vec::new(),
            refuses_writes: None,
            files: BTreeMap::new(),
            sparse: BTreeMap::new(),
            stamps: BTreeMap::new(),
            now: 0,
            next: 0,
            replies: BTreeMap::new(),
            at_reserve: Vec::new(),
            keep_at_reserve: false,
            full: false,
            cuts_make_room: false,
            full_says: Errno::NOSPC,
            asked: Vec::new(),
            cuts: Vec::new(),
            keeps_none: false,
            free: 0,
            broken: false,
            notes: false,
            refuse_stamps: 0,
            refuse_writes: 0,
            refuse_writes_as: Errno::IO,
            refuse_writes_but_of: None,
            refuse_writes_after: None,
            refuse_every: None,
            refuse_at: None,
            writes: 0,
            hold_writes: false,
            held_writes: Vec::new(),
            refuse_resizes: 0,
            refuse_syncs: 0,
            loses_unsynced: false,
            hold_syncs: false,
            held_syncs: VecDeque::new(),
            durable: BTreeMap::new(),
            flash_written: 0,
            flash_written_most: u64::MAX,
            flash_syncs: 0,
            resized: BTreeSet::new(),
            written_resized: Vec::new(),
            written: 0,
            zeroed: 0,
            zero_ranges: Vec::new(),
            origin_reads: 0,
            hold_below: 0,
            held: Vec::new(),
            starve: None,
            released: Vec::new(),
            synced: Vec::new(),
            starved: Vec::new(),
            lost: Vec::new(),
            joined: 0,
        }
    }

    /// What a start finds that sees the file of an object with this time at the origin.
    pub fn found_at_start(&self, flash: &mut Memory, object: ObjectId, mtime: UnixNanos) -> Vec<Verdict> {
        let mut recovered = recover(flash, POOL).unwrap();
        let stamp = Stamp { size: self.files[&object].len() as u64, mtime, ctime: mtime };
        let file = OpenFile { inode: 1, birth: UnixNanos(0), path: b"f".to_vec(), stamp, created: false, allocated: 0 };
        let objects = recovered.objects();
        objects.iter().map(|object| recovered.reconcile(object.object, Some(&file.clone().into()))).collect()
    }

    /// A device that keeps the copy on another host joins the pool, as this member.
    pub fn join_copy(&mut self, member: MemberId) {
        self.join(member, true);
    }

    /// A device joins the pool, as this member.
    pub fn join(&mut self, member: MemberId, copies_only: bool) {
        let device = Memory(vec![0; POOL as usize]);
        match self.members.iter().position(|here| *here == member) {
            Some(0) => self.flash = device,
            // Under the number of one that is gone.
            Some(other) => self.others[other - 1] = device,
            None => {
                self.others.push(device);
                self.members.push(member);
            }
        }
        let geometry = geometry();
        let slots = ((POOL - geometry.segments_start) / geometry.segment_bytes as u64) as u32;
        self.joined += 1;
        let name = MemberName([10 + self.joined; 16]);
        let row = Member { copies_only, ..Member::in_use(name, slots, POOL, geometry.segments_start) };
        let added = self.ask(Request::ChangeMembers(MembersChange::Add { member, row, instead_of: None }));
        assert!(matches!(added, Reply::Done), "{added:?}");
    }

    pub fn run(&mut self) {
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

    /// The bytes of a member.
    pub fn device(&mut self, member: MemberId) -> &mut Memory {
        match self.members.iter().position(|here| *here == member).expect("the member is here") {
            0 => &mut self.flash,
            other => &mut self.others[other - 1],
        }
    }

    fn carry_out(&mut self, effect: Effect) {
        let changed = match &effect {
            Effect::FlashWrite { at, data, .. } => Some((*at, data.len() as u64)),
            Effect::FlashTrim { at, len } => Some((*at, *len)),
            _ => None,
        };
        if let Some((at, len)) = changed {
            let meets = |(_, read, bytes): &(Ticket, Address, u32)| {
                let (end, read_end) = (at.offset + len, read.offset + u64::from(*bytes));
                at.member == read.member && at.offset < read_end && read.offset < end
            };
            assert!(!self.held_reads.iter().any(meets), "{effect:?} while a read there is under way");
        }
        let (ticket, outcome) = match effect {
            Effect::FlashRead { ticket, at, .. } if self.refuses_reads == Some(at.member) => {
                (ticket, Outcome::Failed(Errno::IO))
            }
            Effect::FlashRead { ticket, at, len }
                if self.bad_sector.is_some_and(|(member, byte)| {
                    member == at.member && (at.offset..at.offset + u64::from(len)).contains(&byte)
                }) =>
            {
                (ticket, Outcome::Failed(Errno::IO))
            }
            Effect::FlashRead { ticket, at, len } if self.hold_a_read_of == Some(at.member) => {
                self.hold_a_read_of = None;
                return self.held_reads.push((ticket, at, len));
            }
            Effect::FlashRead { ticket, at, len } => {
                (ticket, Outcome::Bytes(self.device(at.member).read(at.offset, len as usize).unwrap()))
            }
            Effect::FlashWrite { ticket, at, .. } if self.refuses_writes == Some(at.member) => {
                (ticket, Outcome::Failed(Errno::NODEV))
            }
            Effect::FlashWrite { ticket, .. } if self.broken => (ticket, Outcome::Failed(Errno::IO)),
            Effect::PoolFailed { ticket } if self.broken && !self.notes => (ticket, Outcome::Failed(Errno::IO)),
            Effect::FlashWrite { ticket, at, data } => {
                let offset = at.offset;
                self.device(at.member).0[offset as usize..offset as usize + data.len()].copy_from_slice(&data);
                self.flash_written += data.len() as u64;
                self.flash_writes.push((at, data.len() as u64));
                assert!(self.flash_written <= self.flash_written_most, "flash is written without end");
                if offset < self.hold_below {
                    return self.held.push(ticket);
                }
                (ticket, Outcome::Done)
            }
            Effect::OriginRead { ticket, object, offset, len } if self.starve.is_some_and(|from| offset >= from) => {
                return self.starved.push((ticket, object, offset, len));
            }
            Effect::OriginRead { ticket, object, offset, len } => {
                self.origin_reads += 1;
                let file = &self.files[&object];
                let start = (offset as usize).min(file.len());
                let end = (start + len as usize).min(file.len());
                let mut bytes = file[start..end].to_vec();
                let hole = self.sparse.get(&object).map_or(0, |size| size.saturating_sub(offset)).min(len.into());
                bytes.resize(bytes.len().max(hole as usize), 0);
                (ticket, Outcome::Bytes(BufMut::copy_of(&bytes).freeze()))
            }
            held @ Effect::OriginWrite { .. } if self.hold_writes => return self.held_writes.push(held),
            Effect::OriginWrite { ticket, object, offset, data, .. } => {
                let file = self.files.get_mut(&object).unwrap();
                let bytes: Vec<u8> = data.iter().flat_map(|piece| piece.to_vec()).collect();
                let end = offset as usize + bytes.len();
                if file.len() < end {
                    file.resize(end, 0);
                }
                file[offset as usize..end].copy_from_slice(&bytes);
                self.written_resized.push(self.resized.contains(&object));
                self.written += bytes.len() as u64;
                let now = self.refuse_writes_after.take_if(|left| *left == 0).is_some();
                self.refuse_writes_after = self.refuse_writes_after.map(|left| left - 1);
                let refused = self.refuse_writes > 0;
                self.refuse_writes -= u32::from(refused);
                self.writes += 1;
                let each = self.refuse_every.is_some_and(|every| self.writes.is_multiple_of(every));
                let here = self.refuse_at.is_some_and(|at| (offset..offset + bytes.len() as u64).contains(&at));
                let refused =
                    refused || now || each || here || self.refuse_writes_but_of.is_some_and(|other| other != object);
                (ticket, if refused { Outcome::Failed(self.refuse_writes_as) } else { Outcome::Done })
            }
            Effect::OriginZero { ticket, object, offset, len, .. } => {
                self.zeroed += len;
                self.zero_ranges.push((offset, offset + len));
                // As the shard does it: never past the end.
                let file = self.files.get_mut(&object).unwrap();
                let end = file.len().min((offset + len) as usize);
                file[end.min(offset as usize)..end].fill(0);
                (ticket, Outcome::Done)
            }
            Effect::OriginResize { ticket, .. } if self.refuse_resizes > 0 => {
                self.refuse_resizes -= 1;
                (ticket, Outcome::Failed(Errno::IO))
            }
            Effect::OriginResize { ticket, object, size } => {
                match self.sparse.get_mut(&object) {
                    Some(sparse) => *sparse = size,
                    None => self.files.get_mut(&object).unwrap().resize(size as usize, 0),
                }
                self.resized.insert(object);
                self.cuts.push(size);
                self.full &= !self.cuts_make_room;
                (ticket, Outcome::Done)
            }
            Effect::OriginStamp { ticket, .. } if self.refuse_stamps > 0 => {
                self.refuse_stamps -= 1;
                (ticket, Outcome::Failed(Errno::IO))
            }
            Effect::OriginStamp { ticket, object, mtime } => {
                let size = self.sparse.get(&object).copied().unwrap_or(self.files[&object].len() as u64);
                let stamp = Stamp { size, mtime, ctime: mtime };
                self.stamps.insert(object, stamp);
                (ticket, Outcome::Stamp(stamp))
            }
            Effect::OriginReserve { ticket, ranges, user, .. } => {
                self.asked.push((ranges, user));
                if self.keep_at_reserve {
                    self.at_reserve.push(Memory(self.flash.0.clone()));
                }
                let space = Space { keeps_none: self.keeps_none, ..Space::default() };
                (ticket, if self.full { Outcome::Failed(self.full_says) } else { Outcome::Space(space) })
            }
            Effect::OriginSync { ticket, object } if self.hold_syncs => {
                return self.held_syncs.push_back((ticket, object));
            }
            Effect::OriginSync { ticket, object } if self.refuse_syncs > 0 => {
                self.refuse_syncs -= 1;
                if self.loses_unsynced {
                    let kept = self.durable.get(&object).cloned().unwrap_or_default();
                    self.files.insert(object, kept);
                }
                (ticket, Outcome::Failed(Errno::IO))
            }
            Effect::OriginSync { ticket, object } => {
                self.resized.remove(&object);
                self.synced.push(object);
                if let Some(file) = self.files.get(&object).filter(|_| self.loses_unsynced) {
                    self.durable.insert(object, file.clone());
                }
                (ticket, Outcome::Done)
            }
            Effect::FlashSync { ticket, .. } => {
                self.flash_syncs += 1;
                (ticket, Outcome::Done)
            }
            Effect::PoolFailed { ticket }
            | Effect::MembersChanged { ticket, .. }
            | Effect::OriginNamespace { ticket, .. } => (ticket, Outcome::Done),
            Effect::OriginSpace { ticket, .. } => {
                (ticket, Outcome::Free(Room { free: self.free, bytes: 1 << 40, counts: self.keeps_none }))
            }
            Effect::OriginSeek { ticket, .. } => (ticket, Outcome::Offset(0)),
            Effect::OriginRelease { object } => return self.released.push(object),
            Effect::OriginLost { object } => return self.lost.push((object, self.replies.len())),
            Effect::FlashTrim { .. } => return,
            Effect::Reply { request, reply } => {
                self.replies.insert(request, reply);
                return;
            }
        };
        self.engine.complete(ticket, outcome);
    }

    /// Completes what was held, and holds nothing more.
    pub fn release(&mut self) {
        self.hold_below = 0;
        for ticket in std::mem::take(&mut self.held) {
            self.engine.complete(ticket, Outcome::Done);
        }
        self.run();
    }

    /// Flash answers the reads that waited.
    pub fn answer_reads(&mut self) {
        for (ticket, at, len) in std::mem::take(&mut self.held_reads) {
            self.carry_out(Effect::FlashRead { ticket, at, len });
        }
        self.run();
    }

    /// The reads of the origin that waited are served, and those that come.
    pub fn serve(&mut self) {
        self.starve = None;
        for (ticket, object, offset, len) in std::mem::take(&mut self.starved) {
            self.carry_out(Effect::OriginRead { ticket, object, offset, len });
        }
        self.run();
    }

    /// The origin answers the sync that has waited longest.
    pub fn answer_a_sync(&mut self) {
        let (ticket, object) = self.held_syncs.pop_front().unwrap();
        let holds = std::mem::replace(&mut self.hold_syncs, false);
        self.carry_out(Effect::OriginSync { ticket, object });
        self.hold_syncs = holds;
        self.run();
    }

    /// The origin answers the write that has waited longest.
    pub fn answer_a_write(&mut self) {
        let held = self.held_writes.remove(0);
        let holds = std::mem::replace(&mut self.hold_writes, false);
        self.carry_out(held);
        self.hold_writes = holds;
        self.run();
    }

    /// The origin answers the writes that waited, and those that come.
    pub fn answer_writes(&mut self) {
        self.hold_writes = false;
        for held in std::mem::take(&mut self.held_writes) {
            self.carry_out(held);
        }
        self.run();
    }

    pub fn ask(&mut self, request: Request) -> Reply {
        let id = self.begin(request);
        self.reply(id)
    }

    pub fn begin(&mut self, request: Request) -> RequestId {
        let id = RequestId(self.next);
        self.next += 1;
        self.engine.submit(id, request);
        self.run();
        id
    }

    pub fn reply(&mut self, id: RequestId) -> Reply {
        for _ in 0..100_000 {
            if let Some(reply) = self.replies.remove(&id) {
                return reply;
            }
            self.sleep(50);
        }
        panic!("request {id:?} was never answered: {:?}", self.engine.stats());
    }

    pub fn sleep(&mut self, milliseconds: u64) {
        self.now += milliseconds * 1_000_000;
        self.engine.advance(Nanos(self.now));
        self.run();
    }

    pub fn open(&mut self, inode: u64, content: &[u8]) -> ObjectId {
        self.open_at(inode, "f", content)
    }

    pub fn open_at(&mut self, inode: u64, path: &str, content: &[u8]) -> ObjectId {
        let stamp = self.stamps.values().last().copied().unwrap_or_default();
        let stamp = Stamp { size: content.len() as u64, ..stamp };
        let file = OpenFile { inode, birth: UnixNanos(0), path: path.into(), stamp, created: false, allocated: 0 };
        let Reply::Opened { object, .. } = self.ask(Request::Open(file.into())) else { panic!("not opened") };
        self.files.entry(object).or_insert_with(|| content.to_vec());
        self.durable.entry(object).or_insert_with(|| content.to_vec());
        object
    }

    /// Opens a file of this size that has these bytes and a hole behind them.
    pub fn open_sparse(&mut self, inode: u64, front: &[u8], size: u64) -> ObjectId {
        let stamp = Stamp { size, ..Stamp::default() };
        let file = OpenFile { inode, birth: UnixNanos(0), path: b"s".to_vec(), stamp, created: false, allocated: 0 };
        let Reply::Opened { object, .. } = self.ask(Request::Open(file.into())) else { panic!("not opened") };
        self.files.insert(object, front.to_vec());
        self.sparse.insert(object, size);
        object
    }

    pub fn write(&mut self, object: ObjectId, offset: u64, bytes: &[u8]) {
        self.write_as(object, offset, bytes, Handling::Cache);
    }

    pub fn write_as(&mut self, object: ObjectId, offset: u64, bytes: &[u8], handling: Handling) {
        self.write_treated(object, offset, bytes, Treatment { handling, ..Treatment::default() });
    }

    pub fn write_treated(&mut self, object: ObjectId, offset: u64, bytes: &[u8], how: Treatment) {
        let data = BufMut::copy_of(bytes).freeze();
        let reply = self.ask(Request::Write { object, offset, data, mtime: UnixNanos(7), durable: false, how });
        assert!(matches!(reply, Reply::Changed(_)), "{reply:?}");
    }

    pub fn read(&mut self, object: ObjectId, offset: u64, len: u32) -> Vec<u8> {
        self.read_as(object, offset, len, Handling::Cache).0
    }

    pub fn read_as(&mut self, object: ObjectId, offset: u64, len: u32, handling: Handling) -> (Vec<u8>, Served) {
        self.read_treated(object, offset, len, Treatment { handling, ..Treatment::default() })
    }

    pub fn read_treated(&mut self, object: ObjectId, offset: u64, len: u32, how: Treatment) -> (Vec<u8>, Served) {
        match self.ask(Request::Read { object, offset, len, how }) {
            Reply::Data(pieces, served) => (pieces.iter().flat_map(|piece| piece.to_vec()).collect(), served),
            other => panic!("read answered {other:?}"),
        }
    }
}
