//! Pools of several modelled devices, in virtual time: how fast they take writes, how long a synced write takes, and how
//! it goes while a second copy is made anew. The engine is the real one. Nothing is destaged but while too few devices are
//! left for two copies, or where a pool is short of room: the origin is [`Network::VOLUME_200`].
//!
//! Keeps true: the same load gives the same figures, to the nanosecond. A request counts when it is answered, and each
//! answer must be right: nothing fails here but the device that is lost, and no request may notice that.

use std::collections::BTreeMap;

use headpond_base::{BLOCK_U64, MemberId, Nanos, ObjectId, Redundancy, UnixNanos};
use headpond_engine::{MembersChange, Reply, Request, RequestId, Treatment};
use headpond_format::{Geometry, Member};
use headpond_measure::Latency;
use headpond_models::Network;
use headpond_timed::{
    Contents, DeviceModel, FlashModel, Machine, Parts, Rng, device_name, divided, held_dirty, some_data,
};

/// Bytes of a page: what is written and read at once, if nothing else is said.
const PAGE: u64 = 16 << 10;

/// A lost device is replaced after this.
const ADDED_AFTER: Nanos = Nanos(Nanos::SECOND.0 / 10);

/// How often it is looked whether all has two copies again.
const LOOK: Nanos = Nanos(1_000_000);

/// A pool of devices that are alike, of a file that is always cached whole.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct DevicePool {
    /// How many devices.
    pub devices: u8,
    /// Each of them.
    pub model: DeviceModel,
    /// Bytes of each of them.
    pub bytes: u64,
    /// How many have each dirty block.
    pub redundancy: Redundancy,
    /// Bytes of the file.
    pub file: u64,
    /// The syncs of the last device take so many times as long.
    pub last_slower: u64,
    /// Writes of the last device take so many times as long.
    pub last_writes_slower: u64,
    /// The seed of all that is random.
    pub seed: u64,
}

impl DevicePool {
    fn divided(&self) -> (Geometry, Vec<Member>) {
        divided(self.devices, self.bytes, None)
    }

    /// One of the devices, or one more that is like them.
    fn device(&self, index: u8) -> (Member, FlashModel) {
        let row = Member { name: device_name(index), ..self.divided().1[0] };
        let is_last = index + 1 == self.devices;
        let slower = |times: u64| if is_last { times } else { 1 };
        let model = DeviceModel {
            sync: Nanos(self.model.sync.0 * slower(self.last_slower)),
            write_rate: self.model.write_rate / slower(self.last_writes_slower) as f64,
            ..self.model
        };
        (row, FlashModel::of_device(model, self.seed, index))
    }
}

/// Requests that come at a rate of their own, however long they take: the time between two is random.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct MixedLoad {
    /// Reads of random pages a second.
    pub reads: f64,
    /// Writes of random pages a second, each of which is answered once it is durable.
    pub writes: f64,
}

/// How long the requests of a [`MixedLoad`] took.
#[derive(Clone, Debug, Default)]
pub struct LoadServed {
    /// Reads.
    pub reads: Latency,
    /// Synced writes.
    pub writes: Latency,
    /// Reads that the origin answered: what they read was destaged for want of room, and dropped.
    pub misses: u64,
}

/// How it went before and after a device was lost and another added.
#[derive(Clone, Debug, Default)]
pub struct Rebuild {
    /// With all devices.
    pub quiet: LoadServed,
    /// From the loss of one until the other was added.
    pub lost: LoadServed,
    /// From then until all had two copies again.
    pub copying: LoadServed,
    /// Bytes that had one copy after the loss.
    pub dirty_bytes: u64,
    /// From when the other device was added until all had two copies again.
    pub took: Nanos,
}

/// What a request is, for the counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Read,
    Write,
    Other,
}

/// A pool in use.
struct Bench {
    machine: Machine,
    redundancy: Redundancy,
    object: ObjectId,
    pages: u64,
    rng: Rng,
    asked: BTreeMap<RequestId, (Kind, Nanos)>,
    /// Reads of the file that the origin answered.
    misses: u64,
}

impl Bench {
    fn new(pool: &DevicePool) -> Self {
        let members = (0..pool.devices).map(|index| pool.device(index)).collect();
        let contents = Contents::Alike(some_data());
        let parts =
            Parts { geometry: pool.divided().0, members, origin: Network::VOLUME_200, contents, by_block: false };
        let mut machine = Machine::new(parts, held_dirty(pool.redundancy));
        let object = machine.open(pool.file);
        let rng = Rng::for_part(pool.seed, 0);
        let (redundancy, pages) = (pool.redundancy, pool.file / PAGE);
        Self { machine, redundancy, object, pages, rng, asked: BTreeMap::new(), misses: 0 }
    }

    fn note(&mut self, kind: Kind, request: Request) -> RequestId {
        let now = self.machine.now();
        let id = self.machine.ask(request);
        self.asked.insert(id, (kind, now));
        id
    }

    fn write(&mut self, offset: u64, bytes: u64, durable: bool) {
        let data = some_data().slice(0..bytes as usize);
        let (object, mtime, how) = (self.object, UnixNanos(9), Treatment::default());
        self.note(Kind::Write, Request::Write { object, offset, data, mtime, durable, how });
    }

    fn read(&mut self, offset: u64) {
        let (object, how) = (self.object, Treatment::default());
        self.note(Kind::Read, Request::Read { object, offset, len: PAGE as u32, how });
    }

    fn some_page(&mut self) -> u64 {
        self.rng.below(self.pages) * PAGE
    }

    /// The requests that were answered since the last call: what each was, when it was asked, and how long it took.
    fn answered(&mut self) -> Vec<(Kind, Nanos, Nanos)> {
        let now = self.machine.now();
        let replies = self.machine.take_replies();
        let of = |(id, reply): (RequestId, Reply)| {
            let (kind, since) = self.asked.remove(&id).expect("a request is answered once");
            let right = match (kind, &reply) {
                (Kind::Read, Reply::Data(_, served)) => {
                    self.misses += u64::from(served.miss_blocks > 0);
                    true
                }
                (Kind::Write, Reply::Changed(_)) | (Kind::Other, Reply::Done) => true,
                _ => false,
            };
            assert!(right, "{kind:?} is answered with {reply:?}");
            (kind, since, now.since(since))
        };
        replies.into_iter().map(of).collect()
    }

    /// Writes each page once, in random order.
    fn fill(&mut self, depth: usize) {
        let mut pages: Vec<u64> = (0..self.pages).collect();
        self.rng.shuffle(&mut pages);
        while !pages.is_empty() || !self.asked.is_empty() {
            while self.asked.len() < depth
                && let Some(page) = pages.pop()
            {
                self.write(page * PAGE, PAGE, false);
            }
            assert!(self.machine.step(Nanos(u64::MAX)), "a write is answered");
            self.answered();
        }
        let synced = self.machine.ask_and_wait(Request::SyncAll);
        assert!(matches!(synced, Reply::Done), "a sync is answered with {synced:?}");
    }

    /// Waits until no more rows with a parity are made.
    fn until_rows_are_made(&mut self) {
        if self.redundancy != Redundancy::Parity {
            return;
        }
        let mut known = None;
        while known != Some(self.machine.stats().rows_made) {
            known = Some(self.machine.stats().rows_made);
            let end = self.machine.now().plus(Nanos::SECOND);
            while self.machine.step(end) {}
        }
    }

    /// Reads each page of another file, of so many bytes, once.
    fn read_clean(&mut self, bytes: u64) {
        let (object, how) = (self.machine.open(bytes), Treatment::default());
        let mut pages: Vec<u64> = (0..bytes / PAGE).collect();
        self.rng.shuffle(&mut pages);
        for page in pages {
            let read = Request::Read { object, offset: page * PAGE, len: PAGE as u32, how };
            let reply = self.machine.ask_and_wait(read);
            assert!(matches!(reply, Reply::Data(..)), "a read is answered with {reply:?}");
        }
    }

    /// Lets the load come until `over`. It is asked once in [`LOOK`].
    fn under_load(&mut self, load: MixedLoad, mut over: impl FnMut(&Self) -> bool) -> LoadServed {
        let LoadServed { mut reads, mut writes, .. } = LoadServed::default();
        let misses = self.misses;
        let begun = self.machine.now();
        let (mut next_read, mut next_write, mut next_look) = (begun, begun, begun.plus(LOOK));
        loop {
            let now = self.machine.now();
            if now >= next_read {
                next_read = next_read.plus(self.pause(load.reads));
                let page = self.some_page();
                self.read(page);
            } else if now >= next_write {
                next_write = next_write.plus(self.pause(load.writes));
                let page = self.some_page();
                self.write(page, PAGE, true);
            } else if now >= next_look {
                next_look = now.plus(LOOK);
                if over(self) {
                    break;
                }
            } else {
                self.machine.step(next_read.min(next_write).min(next_look));
            }
            for (kind, since, took) in self.answered() {
                match kind {
                    Kind::Read if since >= begun => reads.record(took),
                    Kind::Write if since >= begun => writes.record(took),
                    _ => {}
                }
            }
        }
        LoadServed { reads, writes, misses: self.misses - misses }
    }

    fn for_some_time(&mut self, load: MixedLoad, time: Nanos) -> LoadServed {
        let end = self.machine.now().plus(time);
        self.under_load(load, |bench| bench.machine.now() >= end)
    }

    /// The time to the next of so many a second: up to twice the mean.
    fn pause(&mut self, per_second: f64) -> Nanos {
        Nanos(self.rng.below((2e9 / per_second) as u64))
    }

    /// Asks for one more device to be taken in.
    fn add_device(&mut self, pool: &DevicePool) -> RequestId {
        let (row, model) = pool.device(pool.devices);
        let now = self.machine.now();
        let id = self.machine.add(row, model);
        self.asked.insert(id, (Kind::Other, now));
        id
    }

    /// Asks for a device to be emptied, and let go.
    fn remove_device(&mut self, member: MemberId) -> RequestId {
        self.note(Kind::Other, Request::ChangeMembers(MembersChange::Remove(member)))
    }

    /// See [`write_rate`].
    fn write_rate(&mut self, depth: usize, bytes: u64) -> f64 {
        let begun = self.machine.now();
        let mut left = bytes / PAGE;
        while left > 0 || !self.asked.is_empty() {
            while left > 0 && self.asked.len() < depth {
                let page = self.some_page();
                self.write(page, PAGE, false);
                left -= 1;
            }
            assert!(self.machine.step(Nanos(u64::MAX)), "a write is answered");
            self.answered();
        }
        let synced = self.machine.ask_and_wait(Request::SyncAll);
        assert!(matches!(synced, Reply::Done), "a sync is answered with {synced:?}");
        bytes as f64 * 1e9 / self.machine.now().since(begun).0 as f64
    }

    /// Dirty bytes that have one copy.
    fn exposed(machine: &Machine) -> u64 {
        machine.stats().exposed_blocks * BLOCK_U64
    }
}

/// Bytes a second that random writes of pages come to, `depth` of them under way, until `bytes` are durable.
///
/// # Panics
/// If a write fails: none does here.
#[must_use]
pub fn write_rate(pool: &DevicePool, depth: usize, bytes: u64) -> f64 {
    Bench::new(pool).write_rate(depth, bytes)
}

/// The same after `more` devices were taken in, one after the other.
///
/// # Panics
/// If a write or a change of the members fails: none does here.
#[must_use]
pub fn write_rate_after_adding(pool: &DevicePool, more: u8, depth: usize, bytes: u64) -> f64 {
    let mut bench = Bench::new(pool);
    for devices in pool.devices..pool.devices + more {
        bench.add_device(&DevicePool { devices, ..*pool });
        while !bench.asked.is_empty() {
            assert!(bench.machine.step(Nanos(u64::MAX)), "a device is taken in");
            bench.answered();
        }
    }
    bench.write_rate(depth, bytes)
}

/// Bytes a second that random read hits of pages come to, `depth` of them under way, until `count` are answered.
///
/// # Panics
/// If a read fails, or goes to the origin: none does here.
#[must_use]
pub fn read_rate(pool: &DevicePool, depth: usize, count: u64) -> f64 {
    let mut bench = Bench::new(pool);
    bench.fill(64);
    let begun = bench.machine.now();
    let mut left = count;
    while left > 0 || !bench.asked.is_empty() {
        while left > 0 && bench.asked.len() < depth {
            let page = bench.some_page();
            bench.read(page);
            left -= 1;
        }
        assert!(bench.machine.step(Nanos(u64::MAX)), "a read is answered");
        bench.answered();
    }
    assert_eq!(bench.misses, 0, "reads go to the origin");
    (count * PAGE) as f64 * 1e9 / bench.machine.now().since(begun).0 as f64
}

/// How long writes of `bytes` take, one after the other, each followed by a sync that is waited for. Both count.
///
/// # Panics
/// If one fails: none does here.
#[must_use]
pub fn synced_writes(pool: &DevicePool, bytes: u64, count: usize) -> Latency {
    let mut bench = Bench::new(pool);
    let mut latencies = Latency::default();
    for _ in 0..count {
        let (page, since) = (bench.some_page(), bench.machine.now());
        bench.write(page, bytes, false);
        while !bench.asked.is_empty() {
            bench.machine.step(Nanos(u64::MAX));
            bench.answered();
        }
        let synced = bench.machine.ask_and_wait(Request::sync(bench.object));
        assert!(matches!(synced, Reply::Done), "a sync is answered with {synced:?}");
        latencies.record(bench.machine.now().since(since));
    }
    latencies
}

/// Makes the whole file dirty, and then reads pages of another, of `clean` bytes, which the origin has. Returns how many
/// bytes the pool has of that one in the end.
///
/// # Panics
/// If a request fails: none does here.
#[must_use]
pub fn room_for_clean(pool: &DevicePool, clean: u64) -> u64 {
    let mut bench = Bench::new(pool);
    bench.fill(64);
    bench.until_rows_are_made();
    bench.read_clean(clean);
    let stats = bench.machine.stats();
    assert_eq!(stats.dirty_blocks * BLOCK_U64, pool.file, "nothing is destaged");
    (stats.cached_blocks - stats.dirty_blocks) * BLOCK_U64
}

/// How a load is served for some time after the whole file was made dirty. With parity rows are made of it then.
///
/// # Panics
/// If a request fails: none does here.
#[must_use]
pub fn while_rows_are_made(pool: &DevicePool, load: MixedLoad, time: Nanos) -> LoadServed {
    let mut bench = Bench::new(pool);
    bench.fill(64);
    bench.for_some_time(load, time)
}

/// Makes the whole file dirty, reads another one of `clean` bytes, loses a device in the midst of a load, and adds
/// another.
///
/// # Panics
/// If a request fails: nobody must notice the loss.
#[must_use]
pub fn rebuild(pool: &DevicePool, clean: u64, load: MixedLoad, quiet: Nanos) -> Rebuild {
    let mut bench = Bench::new(pool);
    bench.fill(64);
    bench.until_rows_are_made();
    if clean > 0 {
        bench.read_clean(clean);
    }
    let quiet = bench.for_some_time(load, quiet);
    bench.machine.lose(MemberId(0));
    let lost = bench.for_some_time(load, ADDED_AFTER);
    let dirty_bytes = Bench::exposed(&bench.machine);
    let begun = bench.machine.now();
    bench.add_device(pool);
    let copying = bench.under_load(load, |bench| Bench::exposed(&bench.machine) == 0);
    Rebuild { quiet, lost, copying, dirty_bytes, took: bench.machine.now().since(begun) }
}

/// How it goes while a pool moves to another device.
#[derive(Clone, Debug)]
pub struct Moved {
    /// Before.
    pub quiet: LoadServed,
    /// Until the first device is empty.
    pub moving: LoadServed,
    /// How long that took.
    pub took: Nanos,
    /// Bytes that went to the origin in the second after that.
    pub destaged_bytes: u64,
    /// Dirty bytes that have one copy then, where two should be.
    pub exposed_bytes: u64,
}

/// Makes the whole file dirty, and moves the first device's part to another in the midst of a load.
///
/// # Panics
/// If a request fails: nobody must notice the move.
#[must_use]
pub fn move_away(pool: &DevicePool, load: MixedLoad, quiet: Nanos) -> Moved {
    let mut bench = Bench::new(pool);
    bench.fill(64);
    let quiet = bench.for_some_time(load, quiet);
    let begun = bench.machine.now();
    let added = bench.add_device(pool);
    bench.under_load(load, |bench| !bench.asked.contains_key(&added));
    let removed = bench.remove_device(MemberId(0));
    let moving = bench.under_load(load, |bench| !bench.asked.contains_key(&removed));
    let took = bench.machine.now().since(begun);
    let before = bench.machine.stats().destaged_blocks;
    bench.for_some_time(load, Nanos::SECOND);
    let destaged_bytes = (bench.machine.stats().destaged_blocks - before) * BLOCK_U64;
    Moved { quiet, moving, took, destaged_bytes, exposed_bytes: Bench::exposed(&bench.machine) }
}
