//! Any origin, made as slow as a modelled disk. This part waits.
//!
//! Each read, write and sync really happens on the origin below, and takes at least the time of the model. Sizes,
//! reservations, times and holes are matters of the file system and cost nothing. In every cache mode all calls pass
//! here, so comparisons are fair.
//!
//! Invariants:
//! - A disk with an arm serves one access at a time. When the arm is free, the [`Elevator`] chooses the next.
//! - Modelled time does not drift: a waiting access starts when the last one ends by the model, not when a thread
//!   wakes up.

use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;
use std::time::{Duration, Instant};

use headpond_base::{Buf, Nanos, ObjectId, Result, UnixNanos};
use headpond_engine::{Room, Space};
use headpond_format::Stamp;
use headpond_models::{DiskAccess, DiskModel, Elevator, Head, Network, Spindle};
use headpond_shard::{LeavingDescriptor, Origin, Remains, RemovedFile, Reopen};
use serde::{Deserialize, Serialize};

use crate::layout::ObjectLayout;

/// An origin behind a modelled disk.
pub struct ModelDisk<O> {
    below: O,
    model: DiskModel,
    state: Mutex<State>,
}

/// Counts of a modelled disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct DiskCounts {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Syncs.
    pub syncs: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Modelled time that the disk was busy, in nanoseconds.
    pub busy_nanos: u64,
}

struct State {
    layout: ObjectLayout,
    head: Head,
    queue: Elevator<Waiter>,
    /// Syncs have no address. They take turns with accesses.
    syncs: VecDeque<Waiter>,
    synced_last: bool,
    serving: bool,
    free_at: Instant,
    turns: PlatterTurns,
    counts: DiskCounts,
}

/// Deterministic numbers from 0 to 1: the turn of the platter before each access.
pub(crate) struct PlatterTurns(u64);

impl PlatterTurns {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number (SplitMix64).
    pub(crate) fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// A request to the disk.
#[derive(Clone, Copy)]
enum Ask {
    Read(ObjectId, u64, u64),
    Write(ObjectId, u64, u64),
    Sync,
}

/// A thread that waits for the arm.
struct Waiter {
    thread: Thread,
    ask: Ask,
    since: Instant,
    /// When its access ends; set when the access is chosen.
    until: Arc<OnceLock<Instant>>,
}

impl<O: Origin> ModelDisk<O> {
    /// Puts a disk before an origin. Equal seeds turn the platter equally.
    pub fn new(below: O, model: DiskModel, seed: u64) -> Self {
        let state = State {
            layout: ObjectLayout::default(),
            head: Head::default(),
            queue: Elevator::default(),
            syncs: VecDeque::new(),
            synced_last: false,
            serving: false,
            free_at: Instant::now(),
            turns: PlatterTurns::new(seed),
            counts: DiskCounts::default(),
        };
        Self { below, model, state: Mutex::new(state) }
    }

    /// The counts so far.
    pub fn counts(&self) -> DiskCounts {
        self.locked().counts
    }

    /// The model of the disk.
    pub const fn model(&self) -> DiskModel {
        self.model
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does `work`, and takes the time of the disk for `ask`.
    fn take_time<T>(&self, ask: Ask, work: impl FnOnce() -> T) -> T {
        match self.model {
            DiskModel::Network(network) => {
                let until = self.locked().pace(&network, ask);
                let result = work();
                sleep_until(until);
                result
            }
            DiskModel::Spindle(spindle) => {
                let until = self.get_arm(&spindle, ask);
                let arm = Arm { disk: self, spindle };
                let result = work();
                arm.hold_until(until);
                result
            }
        }
    }

    /// Waits for the arm. Returns when the access ends.
    fn get_arm(&self, spindle: &Spindle, ask: Ask) -> Instant {
        let until = Arc::new(OnceLock::new());
        let waiter = Waiter { thread: std::thread::current(), ask, since: Instant::now(), until: until.clone() };
        let mut state = self.locked();
        match ask {
            Ask::Read(object, offset, _) | Ask::Write(object, offset, _) => {
                let address = state.layout.address(object, offset);
                state.queue.push(address, waiter);
            }
            Ask::Sync => state.syncs.push_back(waiter),
        }
        if !state.serving {
            state.serve_next(spindle);
        }
        drop(state);
        loop {
            if let Some(until) = until.get() {
                return *until;
            }
            std::thread::park();
        }
    }
}

/// The access that has the arm holds this. Its drop passes the arm on, also after a panic.
struct Arm<'a, O: Origin> {
    disk: &'a ModelDisk<O>,
    spindle: Spindle,
}

impl<O: Origin> Arm<'_, O> {
    fn hold_until(self, until: Instant) {
        let now = Instant::now();
        if now > until {
            // The real disk was slower than the model.
            self.disk.locked().free_at = now;
        } else {
            sleep_until(until);
        }
    }
}

impl<O: Origin> Drop for Arm<'_, O> {
    fn drop(&mut self) {
        self.disk.locked().serve_next(&self.spindle);
    }
}

impl State {
    fn count(&mut self, ask: Ask, busy: Nanos) {
        let counts = &mut self.counts;
        match ask {
            Ask::Read(_, _, bytes) => (counts.reads, counts.read_bytes) = (counts.reads + 1, counts.read_bytes + bytes),
            Ask::Write(_, _, bytes) => {
                (counts.writes, counts.write_bytes) = (counts.writes + 1, counts.write_bytes + bytes);
            }
            Ask::Sync => counts.syncs += 1,
        }
        counts.busy_nanos += busy.0;
    }

    fn next(&mut self) -> Option<(u64, Waiter)> {
        let sync = if self.synced_last { None } else { self.syncs.pop_front() };
        let first = sync.map(|waiter| (self.head.address, waiter));
        let access = first.or_else(|| self.queue.next(self.head.address));
        access.or_else(|| self.syncs.pop_front().map(|waiter| (self.head.address, waiter)))
    }

    /// Gives the arm to the next waiting access.
    fn serve_next(&mut self, spindle: &Spindle) {
        let next = self.next();
        self.serving = next.is_some();
        let Some((address, waiter)) = next else { return };
        let turn = self.turns.next();
        self.synced_last = matches!(waiter.ask, Ask::Sync);
        let takes = match waiter.ask {
            Ask::Read(_, _, bytes) | Ask::Write(_, _, bytes) => {
                let access = DiskAccess { address, bytes };
                let takes = spindle.access(self.layout.span(), self.head, access, turn);
                self.head = Head { address: address + bytes, streaming: true };
                takes
            }
            Ask::Sync => {
                self.head.streaming = false;
                spindle.sync(turn)
            }
        };
        self.count(waiter.ask, takes);
        self.free_at = self.free_at.max(waiter.since) + Duration::from_nanos(takes.0);
        // Only this line sets it, once.
        let _ = waiter.until.set(self.free_at);
        waiter.thread.unpark();
    }

    /// The end of an access of a network volume that starts now.
    fn pace(&mut self, network: &Network, ask: Ask) -> Instant {
        let bytes = match ask {
            Ask::Read(_, _, bytes) | Ask::Write(_, _, bytes) => bytes,
            Ask::Sync => 0,
        };
        let (pace, takes) = (network.pace(bytes), network.access(bytes));
        self.count(ask, pace);
        let start = self.free_at.max(Instant::now());
        self.free_at = start + Duration::from_nanos(pace.0);
        start + Duration::from_nanos(takes.0)
    }
}

fn sleep_until(until: Instant) {
    let left = until.saturating_duration_since(Instant::now());
    if !left.is_zero() {
        std::thread::sleep(left);
    }
}

impl<O: Origin> Origin for ModelDisk<O> {
    fn read(&self, object: ObjectId, offset: u64, len: usize) -> Result<Buf> {
        self.take_time(Ask::Read(object, offset, len as u64), || self.below.read(object, offset, len))
    }

    fn write(&self, object: ObjectId, offset: u64, data: &[Buf], user: u32, written_out: bool) -> Result<()> {
        let bytes = data.iter().map(|piece| piece.len() as u64).sum();
        self.take_time(Ask::Write(object, offset, bytes), || self.below.write(object, offset, data, user, written_out))
    }

    fn zero(&self, object: ObjectId, offset: u64, len: u64, keep_space: bool) -> Result<()> {
        self.below.zero(object, offset, len, keep_space)
    }

    fn resize(&self, object: ObjectId, size: u64) -> Result<()> {
        self.below.resize(object, size)
    }

    fn reserve(&self, object: ObjectId, ranges: &[(u64, u64)], user: u32, insists: bool) -> Result<Space> {
        self.below.reserve(object, ranges, user, insists)
    }

    fn free(&self, object: ObjectId, settles: bool) -> Result<Room> {
        self.below.free(object, settles)
    }

    fn sync(&self, object: ObjectId) -> Result<()> {
        self.take_time(Ask::Sync, || self.below.sync(object))
    }

    fn stamp(&self, object: ObjectId, mtime: UnixNanos) -> Result<Stamp> {
        self.below.stamp(object, mtime)
    }

    fn pool_failed(&self) -> Result<()> {
        self.below.pool_failed()
    }

    fn members_changed(&self, generation: u64) -> Result<()> {
        self.below.members_changed(generation)
    }

    fn may_change(&self) -> Result<()> {
        self.below.may_change()
    }

    fn is_barred(&self) -> bool {
        self.below.is_barred()
    }

    fn seek(&self, object: ObjectId, offset: u64, data: bool) -> Result<u64> {
        self.below.seek(object, offset, data)
    }

    fn attach(&self, object: ObjectId, file: File) {
        let size = file.metadata().map_or(0, |metadata| metadata.len());
        self.locked().layout.grow(object, size);
        self.below.attach(object, file);
    }

    fn attach_lasting(&self, object: ObjectId, file: File, again: Arc<dyn Reopen>) {
        let size = file.metadata().map_or(0, |metadata| metadata.len());
        self.locked().layout.grow(object, size);
        self.below.attach_lasting(object, file, again);
    }

    fn keep_open(&self, object: ObjectId) {
        self.below.keep_open(object);
    }

    fn reopened_by(&self, object: ObjectId, again: Arc<dyn Reopen>) {
        self.below.reopened_by(object, again);
    }

    fn leaving(&self, object: ObjectId) -> Option<LeavingDescriptor> {
        self.below.leaving(object)
    }

    fn release(&self, object: ObjectId) -> Option<Remains> {
        self.locked().layout.release(object);
        self.below.release(object)
    }

    fn name_changed(&self, object: ObjectId, directory: OwnedFd) {
        self.below.name_changed(object, directory);
    }

    fn removed(&self, object: Option<ObjectId>) -> Option<RemovedFile> {
        self.below.removed(object)
    }
}
