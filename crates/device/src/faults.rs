//! A layer that makes one disk of a reactor as bad as a real one may be. The other disks work as before. Several
//! layers make several disks bad.
//!
//! - **Withheld writes**: like a volatile cache in the device. A write completes in memory, and reaches the disk below
//!   with the next sync. So a killed process loses exactly its unsynced writes; a kill alone never loses them. A seed
//!   chooses a share of the blocks that go down early, whole or in part. Then the loss is not a clean prefix, and
//!   writes are torn.
//! - **Lies**: syncs that are acknowledged and not carried out. No promise holds on such a device. A test that does
//!   not fail on it tests nothing.
//! - **Faults**: the n-th operation of a kind, and more after it, end with a chosen error.
//! - **Delay**: the shortest time that every operation takes.
//! - **A cut** ([`FaultHandle::cut`]): from then on nothing works, and withheld writes are gone.
//!
//! Invariants:
//! - A read finds the last completed write, withheld or not.
//! - A sync completes when the disk below has synced all that was withheld at its start. Syncs go one after the other.
//! - Early bytes never overwrite newer ones. A drain starts when no early write is under way, and what it drains does
//!   not go down early.
//! - Bounded: withheld writes beyond [`Withhold::bytes_max`] go down without a sync.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use headpond_base::{BLOCK, BLOCK_U64, Buf, BufMut, Errno, MemberId, Result};

use crate::reactor::no_such_disk;
use crate::{Completion, DiskOp, End, Flash, Reactor, Tag, Waker, WatchToken};

/// Bytes that a device writes whole or not at all.
const SECTOR: usize = 512;

/// A kind of operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum OpKind {
    Read,
    Write,
    Sync,
}

/// How writes are withheld.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Withhold {
    /// How many of 1,000 written blocks also go down at once.
    pub early_per_mille: u16,
    /// How many of 1,000 of those go down torn: with a random choice of their sectors of 512 bytes.
    pub torn_per_mille: u16,
    /// Decides which blocks and sectors.
    pub seed: u64,
    /// Acknowledge syncs without carrying them out.
    pub lies: bool,
    /// The most withheld bytes.
    pub bytes_max: u64,
}

impl Default for Withhold {
    fn default() -> Self {
        // The cache of a large flash drive.
        Self { early_per_mille: 0, torn_per_mille: 0, seed: 1, lies: false, bytes_max: 256 << 20 }
    }
}

/// Operations that fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The kind of the operations.
    pub kind: OpKind,
    /// The first that fails, counted from 0 since the reactor started.
    pub first: u64,
    /// How many fail.
    pub count: u64,
    /// The error.
    pub errno: Errno,
}

/// The faults of one disk.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FaultPlan {
    /// Whether and how unsynced writes are withheld.
    pub withhold: Option<Withhold>,
    /// The operations that fail.
    pub faults: Vec<Fault>,
    /// The shortest time that every operation takes.
    pub delay: Duration,
    /// Not a fault of the disk: recovery takes torn batches of the log for whole. So a test can show that it finds
    /// torn batches on such a disk.
    pub accept_torn_batch: bool,
}

/// Changes the faults while the disk is in use, from any thread.
#[derive(Clone)]
pub struct FaultHandle {
    shared: Arc<Mutex<Shared>>,
    waker: Waker,
}

struct Shared {
    faults: Vec<Fault>,
    delay: Duration,
    cut: bool,
    counts: [u64; 3],
}

/// A reactor with faults on one disk.
pub struct Faults<R> {
    inner: R,
    disk: MemberId,
    shared: Arc<Mutex<Shared>>,
    withhold: Option<Withhold>,
    random: u64,
    /// Withheld blocks: the newest bytes of each.
    held: BTreeMap<u64, Buf>,
    /// Blocks on their way down with the present sync.
    draining: BTreeMap<u64, Buf>,
    drain: Option<Drain>,
    syncs: VecDeque<Option<Tag>>,
    /// How many early writes are under way.
    early: usize,
    below: HashMap<Tag, Below>,
    next_tag: u64,
    finished: Vec<Completion>,
    /// Ends of a disk that was removed: they wait for nothing.
    last: Vec<Completion>,
    /// Ends that wait for their time.
    late: VecDeque<(Instant, Completion)>,
    buffer: Vec<Completion>,
}

/// Why an operation of the disk below was submitted.
enum Below {
    /// A caller's read, with the withheld blocks that cover its bytes.
    Read { tag: Tag, from: u64, over: Vec<(u64, Buf)> },
    /// A caller's write.
    Write { tag: Tag },
    /// Part of a caller's write, on its way down early.
    Early(Early),
    /// A read of such a part's block before it is torn.
    Tear { early: Early, block: u64, newer: Buf, sectors: u64 },
    /// Part of a drain.
    Drain,
    /// The sync after a drain, or a caller's sync with nothing withheld.
    Sync { tag: Option<Tag> },
}

/// A caller's write with blocks that go down early. It is done when all of them are.
struct Early {
    tag: Tag,
    left: Arc<Mutex<usize>>,
}

/// A sync under way.
struct Drain {
    tag: Option<Tag>,
    writes_left: usize,
    failed: Option<Errno>,
}

impl FaultHandle {
    /// Cuts the power: withheld writes are lost, and every operation fails from now on.
    pub fn cut(&self) {
        self.locked().cut = true;
        self.waker.wake();
    }

    /// Adds operations that fail. `first` counts from now.
    pub fn fail(&self, mut fault: Fault) {
        let mut shared = self.locked();
        fault.first = fault.first.saturating_add(shared.counts[fault.kind as usize]);
        shared.faults.push(fault);
    }

    /// Ends all faults, except a cut.
    pub fn heal(&self) {
        let mut shared = self.locked();
        shared.faults.clear();
        shared.delay = Duration::ZERO;
    }

    /// Sets the shortest time of every operation submitted from now on.
    pub fn delay(&self, delay: Duration) {
        self.locked().delay = delay;
    }

    /// How many operations of a kind were submitted.
    #[must_use]
    pub fn count(&self, kind: OpKind) -> u64 {
        self.locked().counts[kind as usize]
    }

    fn locked(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R: Reactor> Faults<R> {
    /// Puts faults on a disk.
    #[must_use]
    pub fn new(inner: R, disk: MemberId, plan: FaultPlan) -> Self {
        let shared = Shared { faults: plan.faults, delay: plan.delay, cut: false, counts: [0; 3] };
        Self {
            inner,
            disk,
            shared: Arc::new(Mutex::new(shared)),
            random: plan.withhold.map_or(0, |withhold| withhold.seed) | 1,
            withhold: plan.withhold,
            held: BTreeMap::new(),
            draining: BTreeMap::new(),
            drain: None,
            syncs: VecDeque::new(),
            early: 0,
            below: HashMap::new(),
            next_tag: 0,
            finished: Vec::new(),
            last: Vec::new(),
            late: VecDeque::new(),
            buffer: Vec::new(),
        }
    }

    /// Changes the faults from outside.
    #[must_use]
    pub fn handle(&self) -> FaultHandle {
        FaultHandle { shared: self.shared.clone(), waker: self.inner.waker() }
    }

    fn locked(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts an operation. Returns the error with which it must end, if any.
    fn verdict(&self, kind: OpKind) -> Option<Errno> {
        let mut shared = self.locked();
        let number = shared.counts[kind as usize];
        shared.counts[kind as usize] += 1;
        if shared.cut {
            return Some(Errno::IO);
        }
        let hit = |fault: &&Fault| fault.kind == kind && number >= fault.first && number - fault.first < fault.count;
        shared.faults.iter().find(hit).map(|fault| fault.errno)
    }

    fn pass(&mut self, below: Below, op: impl FnOnce(Tag) -> DiskOp) {
        let tag = Tag(self.next_tag);
        self.next_tag += 1;
        self.below.insert(tag, below);
        self.inner.submit(self.disk, op(tag));
    }

    fn read(&mut self, tag: Tag, offset: u64, len: usize) {
        let blocks = offset / BLOCK_U64..(offset + len as u64) / BLOCK_U64;
        // Draining blocks may not be there yet; withheld ones are newer still.
        let over = [&self.draining, &self.held].into_iter().flat_map(|map| map.range(blocks.clone()));
        let over = over.map(|(block, buf)| (*block, buf.clone())).collect();
        self.pass(Below::Read { tag, from: offset, over }, |tag| DiskOp::Read { tag, offset, len });
    }

    fn write(&mut self, tag: Tag, offset: u64, data: Buf) {
        let Some(withhold) = self.withhold else {
            self.pass(Below::Write { tag }, |tag| DiskOp::Write { tag, offset, data });
            return;
        };
        let mut early = Vec::new();
        for (index, start) in (0..data.len()).step_by(BLOCK).enumerate() {
            let block = offset / BLOCK_U64 + index as u64;
            let bytes = data.slice(start..start + BLOCK);
            let may = self.syncs.is_empty() && !self.draining.contains_key(&block);
            if self.chance() % 1000 < u64::from(withhold.early_per_mille) && may {
                let torn = self.chance() % 1000 < u64::from(withhold.torn_per_mille);
                early.push((block, bytes.clone(), torn.then(|| self.chance())));
            }
            self.held.insert(block, bytes);
        }
        let left = Arc::new(Mutex::new(early.len()));
        if early.is_empty() {
            self.finish(tag, End::Write(Ok(())));
        }
        self.early += early.len();
        for (block, data, torn) in early {
            let (early, offset) = (Early { tag, left: left.clone() }, block * BLOCK_U64);
            match torn {
                None => self.pass(Below::Early(early), |tag| DiskOp::Write { tag, offset, data }),
                Some(sectors) => {
                    let below = Below::Tear { early, block, newer: data, sectors };
                    self.pass(below, |tag| DiskOp::Read { tag, offset, len: BLOCK });
                }
            }
        }
        if self.held.len() as u64 * BLOCK_U64 > withhold.bytes_max && self.syncs.is_empty() {
            self.syncs.push_back(None);
        }
    }

    fn trim(&mut self, offset: u64, len: u64) {
        let blocks = offset / BLOCK_U64..(offset + len) / BLOCK_U64;
        self.held.retain(|block, _| !blocks.contains(block));
        // A trim of a draining block could destroy the bytes on their way down: drop it.
        if !self.draining.keys().any(|block| blocks.contains(block)) {
            self.inner.submit(self.disk, DiskOp::Trim { offset, len });
        }
    }

    /// Starts the next sync, if none is under way.
    fn next_sync(&mut self) {
        if self.drain.is_some() || self.early > 0 {
            return;
        }
        let Some(tag) = self.syncs.pop_front() else { return };
        self.draining = std::mem::take(&mut self.held);
        let runs = runs(&self.draining);
        self.drain = Some(Drain { tag, writes_left: runs.len(), failed: None });
        if runs.is_empty() {
            self.pass(Below::Sync { tag }, |tag| DiskOp::Sync { tag });
        }
        for (block, data) in runs {
            self.pass(Below::Drain, |tag| DiskOp::Write { tag, offset: block * BLOCK_U64, data });
        }
    }

    /// Handles the end of an operation of the disk below.
    fn done_below(&mut self, done: Completion) {
        let Some(below) = self.below.remove(&done.tag) else { return };
        let (bytes, result) = match done.end {
            End::Read(Ok(bytes)) => (Some(bytes), Ok(())),
            End::Read(Err(errno)) => (None, Err(errno)),
            End::Write(result) | End::Sync(result) => (None, result),
        };
        match below {
            Below::Read { tag, from, over } => {
                let result = result.map(|()| laid_over(bytes.unwrap_or_else(Buf::empty), from, &over));
                self.finish(tag, End::Read(result));
            }
            Below::Write { tag } => self.finish(tag, End::Write(result)),
            // Nothing is lost if it failed: all its bytes are withheld too.
            Below::Early(early) => self.early_done(&early),
            Below::Tear { early, block, newer, sectors } => match bytes {
                Some(older) => {
                    let (data, offset) = (torn(&older, &newer, sectors), block * BLOCK_U64);
                    self.pass(Below::Early(early), |tag| DiskOp::Write { tag, offset, data });
                }
                None => self.early_done(&early),
            },
            Below::Drain => {
                let Some(drain) = &mut self.drain else { return };
                drain.writes_left -= 1;
                drain.failed = drain.failed.or(result.err());
                if drain.writes_left == 0 {
                    let tag = drain.tag;
                    self.pass(Below::Sync { tag }, |tag| DiskOp::Sync { tag });
                }
            }
            Below::Sync { tag } => {
                let failed = self.drain.take().and_then(|drain| drain.failed);
                self.draining.clear();
                let result = failed.map_or(result, Err);
                if let Some(tag) = tag {
                    self.finish(tag, End::Sync(result));
                }
            }
        }
    }

    fn early_done(&mut self, early: &Early) {
        self.early -= 1;
        let mut left = early.left.lock().unwrap_or_else(PoisonError::into_inner);
        *left -= 1;
        let last = *left == 0;
        drop(left);
        if last {
            self.finish(early.tag, End::Write(Ok(())));
        }
    }

    fn finish(&mut self, tag: Tag, end: End) {
        self.finished.push(Completion { disk: self.disk, tag, end });
    }

    /// After a cut: withheld writes are gone, and operations that wait for them fail.
    fn lose(&mut self) {
        self.held.clear();
        self.draining.clear();
        // A sync that the disk below already has answers its caller itself. One that still drains fails here.
        let cut_short = self.drain.take_if(|drain| drain.writes_left > 0).and_then(|drain| drain.tag);
        for tag in std::mem::take(&mut self.syncs).into_iter().flatten().chain(cut_short) {
            self.finish(tag, End::Sync(Err(Errno::IO)));
        }
    }

    /// The disk is gone: what its owner still waits for ends, and nothing is withheld any more.
    fn forget(&mut self) {
        self.last.append(&mut self.finished);
        self.last.extend(self.late.drain(..).map(|(_, one)| one));
        // A write with several parts under way, and a sync with its drain, end once.
        let mut told = BTreeSet::new();
        let mut failed = Vec::new();
        for below in std::mem::take(&mut self.below).into_values() {
            let (tag, end) = match below {
                Below::Read { tag, .. } => (tag, End::Read(Err(Errno::NXIO))),
                Below::Write { tag }
                | Below::Early(Early { tag, .. })
                | Below::Tear { early: Early { tag, .. }, .. } => (tag, End::Write(Err(Errno::NXIO))),
                Below::Sync { tag: Some(tag) } => (tag, End::Sync(Err(Errno::NXIO))),
                Below::Sync { tag: None } | Below::Drain => continue,
            };
            failed.push((tag, end));
        }
        let syncs = std::mem::take(&mut self.syncs).into_iter().chain(self.drain.take().map(|drain| drain.tag));
        failed.extend(syncs.flatten().map(|tag| (tag, End::Sync(Err(Errno::NXIO)))));
        for (tag, end) in failed {
            if told.insert(tag) {
                self.last.push(Completion { disk: self.disk, tag, end });
            }
        }
        self.held.clear();
        self.draining.clear();
        self.early = 0;
    }

    /// xorshift64: good enough to choose blocks, and the same on every machine.
    fn chance(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random >> 11
    }
}

/// Joins neighbouring blocks to one write each.
fn runs(blocks: &BTreeMap<u64, Buf>) -> Vec<(u64, Buf)> {
    const RUN_MAX: usize = 256;
    let blocks: Vec<_> = blocks.iter().collect();
    let mut runs = Vec::new();
    let mut start = 0;
    for end in 1..=blocks.len() {
        let full = end - start == RUN_MAX;
        if end < blocks.len() && !full && *blocks[end].0 == *blocks[end - 1].0 + 1 {
            continue;
        }
        let mut bytes = BufMut::zeroed((end - start) * BLOCK);
        for (index, (_, block)) in blocks[start..end].iter().enumerate() {
            bytes[index * BLOCK..(index + 1) * BLOCK].copy_from_slice(block);
        }
        runs.push((*blocks[start].0, bytes.freeze()));
        start = end;
    }
    runs
}

/// A block whose sectors are newer where `sectors` has a bit.
fn torn(older: &Buf, newer: &Buf, sectors: u64) -> Buf {
    let mut mixed = BufMut::copy_of(older);
    for (index, start) in (0..BLOCK).step_by(SECTOR).enumerate() {
        if sectors >> index & 1 == 1 {
            mixed[start..start + SECTOR].copy_from_slice(&newer[start..start + SECTOR]);
        }
    }
    mixed.freeze()
}

/// `bytes`, read at `from`, covered with newer blocks.
fn laid_over(bytes: Buf, from: u64, over: &[(u64, Buf)]) -> Buf {
    if over.is_empty() {
        return bytes;
    }
    let mut mixed = BufMut::copy_of(&bytes);
    for (block, newer) in over {
        let start = (block * BLOCK_U64 - from) as usize;
        mixed[start..start + BLOCK].copy_from_slice(newer);
    }
    mixed.freeze()
}

impl<R: Reactor> Reactor for Faults<R> {
    fn bytes(&self, disk: MemberId) -> u64 {
        self.inner.bytes(disk)
    }

    fn add(&mut self, disk: MemberId, flash: Flash) -> Result<()> {
        if disk == self.disk {
            // Another device under the number of one that was pulled out.
            self.locked().cut = false;
        }
        self.inner.add(disk, flash)
    }

    fn remove(&mut self, disk: MemberId) {
        if disk == self.disk {
            self.forget();
        }
        self.inner.remove(disk);
    }

    fn measure(&mut self, disk: MemberId) -> Result<u64> {
        self.inner.measure(disk)
    }

    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn submit(&mut self, disk: MemberId, op: DiskOp) {
        if disk != self.disk {
            return self.inner.submit(disk, op);
        }
        let bytes = self.inner.bytes(disk);
        if bytes == 0 {
            self.finished.extend(no_such_disk(disk, &op));
            return;
        }
        let kind = match &op {
            DiskOp::Read { .. } => OpKind::Read,
            DiskOp::Write { .. } => OpKind::Write,
            DiskOp::Sync { .. } => OpKind::Sync,
            DiskOp::Trim { offset, len } => {
                if op.check(bytes).is_ok() && !self.locked().cut {
                    self.trim(*offset, *len);
                }
                return;
            }
        };
        if let Some(errno) = op.check(bytes).err().or_else(|| self.verdict(kind)) {
            self.finished.extend(op.failed(disk, errno));
            return;
        }
        match op {
            DiskOp::Read { tag, offset, len } => self.read(tag, offset, len),
            DiskOp::Write { tag, offset, data } => self.write(tag, offset, data),
            DiskOp::Sync { tag } if self.withhold.is_some_and(|withhold| withhold.lies) => {
                self.finish(tag, End::Sync(Ok(())));
            }
            DiskOp::Sync { tag } if self.withhold.is_some() => self.syncs.push_back(Some(tag)),
            DiskOp::Sync { tag } => self.pass(Below::Sync { tag: Some(tag) }, |tag| DiskOp::Sync { tag }),
            DiskOp::Trim { .. } => {}
        }
    }

    fn wait(&mut self, done: &mut Vec<Completion>, timeout: Option<Duration>) -> io::Result<()> {
        let (cut, delay) = {
            let shared = self.locked();
            (shared.cut, shared.delay)
        };
        if cut {
            self.lose();
        } else {
            self.next_sync();
        }
        let next = self.late.front().map(|(due, _)| due.saturating_duration_since(Instant::now()));
        let timeout = match (timeout, next) {
            _ if !self.finished.is_empty() || !self.last.is_empty() => Some(Duration::ZERO),
            (Some(timeout), Some(next)) => Some(timeout.min(next)),
            (timeout, next) => timeout.or(next),
        };
        let mut below = std::mem::take(&mut self.buffer);
        self.inner.wait(&mut below, timeout)?;
        for one in below.drain(..) {
            if one.disk == self.disk {
                self.done_below(one);
            } else {
                done.push(one);
            }
        }
        self.buffer = below;
        done.append(&mut self.last);
        if delay.is_zero() && self.late.is_empty() {
            done.append(&mut self.finished);
        } else {
            let due = Instant::now() + delay;
            self.late.extend(self.finished.drain(..).map(|one| (due, one)));
        }
        while self.late.front().is_some_and(|(due, _)| *due <= Instant::now()) {
            done.extend(self.late.pop_front().map(|(_, one)| one));
        }
        Ok(())
    }

    fn waker(&self) -> Waker {
        self.inner.waker()
    }

    fn watch(&mut self, descriptor: OwnedFd) -> Option<WatchToken> {
        self.inner.watch(descriptor)
    }

    fn unwatch(&mut self, watch: WatchToken) {
        self.inner.unwatch(watch);
    }

    fn take_readable(&mut self) -> Option<WatchToken> {
        self.inner.take_readable()
    }
}
