//! Threads for the origin's blocking calls, in lanes that do not wait for each other.
//!
//! - `reads`: reads for applications. They never wait behind destage.
//! - `changes`: destage's writes and syncs, which may take long.
//! - `directories`: rename, unlink and other changes of names.
//! - `closes`: closes of files. A change may wait for the space of a removed file (`removed.rs`), so its close never
//!   waits behind a change.
//!
//! A lane starts a thread when work comes and none is idle, up to its limit. The thread then stays. The shard bounds
//! the lane's queue: it takes no new requests while too much is under way.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use headpond_base::{Buf, Errno, ObjectId, Result, UnixNanos};
use headpond_device::Waker;
use headpond_engine::{Outcome, Ticket};

use crate::operation::Operation;
use crate::origin::Remains;
use crate::{Limits, Origin, clock};

/// A thread only calls the kernel, or runs a door's directory operation.
const STACK_BYTES: usize = 256 << 10;

/// Work at the origin.
pub(crate) enum Job {
    Read { object: ObjectId, offset: u64, len: u32 },
    Seek { object: ObjectId, offset: u64, data: bool },
    Reserve { object: ObjectId, ranges: Vec<(u64, u64)>, user: u32, insists: bool },
    Free { object: ObjectId, settles: bool },
    Write { object: ObjectId, offset: u64, data: Vec<Buf>, user: u32, written_out: bool },
    Zero { object: ObjectId, offset: u64, len: u64, keep_space: bool },
    Resize { object: ObjectId, size: u64 },
    Sync { object: ObjectId },
    Stamp { object: ObjectId, mtime: UnixNanos },
    PoolFailed,
    MembersChanged(u64),
    Close(Remains),
    Directory(Operation),
}

/// The end of a job.
pub(crate) struct Finished {
    pub(crate) ticket: Ticket,
    pub(crate) outcome: Outcome,
    /// Whether it was a read.
    pub(crate) read: bool,
    /// Whether it was a change of the origin.
    pub(crate) changed: bool,
}

impl Job {
    /// Whether it changes what the origin shows. A reservation of space, and a sync, do not.
    const fn changes_origin(&self) -> bool {
        matches!(
            self,
            Self::Write { .. } | Self::Zero { .. } | Self::Resize { .. } | Self::Stamp { .. } | Self::Directory(_)
        )
    }
}

/// All lanes.
pub(crate) struct Lanes {
    reads: Lane,
    changes: Lane,
    directories: Lane,
    closes: Lane,
    shared: Arc<Shared>,
    /// Changes that threads have, or that are queued for them.
    changes_under_way: usize,
    /// While the origin stands still: the changes that wait for the end of that. They take no thread.
    held: Option<Vec<(Option<Ticket>, Job)>>,
}

struct Shared {
    origin: Arc<dyn Origin>,
    finished: Mutex<Vec<Finished>>,
    waker: Waker,
}

struct Lane {
    name: &'static str,
    threads_max: usize,
    threads: Vec<LaneThread>,
    queue: Arc<Queue>,
}

struct LaneThread {
    thread: JoinHandle<()>,
    /// When its present call began, by [`clock::now`]; [`IDLE`] without one.
    since: Arc<AtomicU64>,
}

const IDLE: u64 = u64::MAX;

#[derive(Default)]
struct Queue {
    inner: Mutex<QueueInner>,
    work: Condvar,
}

#[derive(Default)]
struct QueueInner {
    jobs: VecDeque<(Option<Ticket>, Job)>,
    idle: usize,
    stop: bool,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Lanes {
    /// Starts one thread in each lane, so a lane always has one.
    pub(crate) fn start(origin: Arc<dyn Origin>, waker: Waker, limits: &Limits) -> io::Result<Self> {
        let lane = |name, threads_max: usize| Lane {
            name,
            threads_max: threads_max.max(1),
            threads: Vec::new(),
            queue: Arc::default(),
        };
        let mut lanes = Self {
            reads: lane("origin-read", limits.origin_readers),
            changes: lane("origin-change", limits.origin_writers),
            directories: lane("origin-dir", limits.origin_directories),
            closes: lane("origin-close", limits.origin_directories),
            shared: Arc::new(Shared { origin, finished: Mutex::default(), waker }),
            changes_under_way: 0,
            held: None,
        };
        for lane in [&mut lanes.reads, &mut lanes.changes, &mut lanes.directories, &mut lanes.closes] {
            lane.spawn(&lanes.shared)?;
        }
        Ok(lanes)
    }

    /// Gives a job to its lane. The end of a job without a ticket is not reported.
    pub(crate) fn push(&mut self, ticket: Option<Ticket>, job: Job) {
        if job.changes_origin() {
            if let Some(held) = &mut self.held {
                return held.push((ticket, job));
            }
            self.changes_under_way += 1;
        }
        let lane = match job {
            Job::Read { .. } | Job::Seek { .. } | Job::Reserve { .. } | Job::Free { settles: false, .. } => {
                &mut self.reads
            }
            Job::Directory(_) => &mut self.directories,
            Job::Close(_) => &mut self.closes,
            _ => &mut self.changes,
        };
        lane.push(ticket, job, &self.shared);
    }

    /// Holds changes back from now on, or lets those go that were held back.
    pub(crate) fn hold(&mut self, holds: bool) {
        if holds {
            self.held.get_or_insert_default();
        } else {
            for (ticket, job) in self.held.take().into_iter().flatten() {
                self.push(ticket, job);
            }
        }
    }

    /// Notes that a change has ended.
    pub(crate) const fn change_ended(&mut self) {
        self.changes_under_way -= 1;
    }

    /// How many changes are under way, without those held back.
    pub(crate) const fn changes_under_way(&self) -> usize {
        self.changes_under_way
    }

    /// How long the oldest call under way has been at the origin.
    pub(crate) fn longest(&self) -> Option<Duration> {
        let lanes = [&self.reads, &self.changes, &self.directories, &self.closes];
        let threads = lanes.into_iter().flat_map(|lane| &lane.threads);
        let since = threads.map(|thread| thread.since.load(Ordering::Relaxed)).min().filter(|since| *since != IDLE)?;
        Some(Duration::from_nanos(clock::now().0.saturating_sub(since)))
    }

    /// Takes the file of an object from the origin now, and closes it on a lane.
    pub(crate) fn release(&mut self, object: ObjectId) {
        if let Some(remains) = self.shared.origin.release(object) {
            self.push(None, Job::Close(remains));
        }
    }

    /// Takes the jobs that have ended since the last call.
    pub(crate) fn take_finished(&self, into: &mut Vec<Finished>) {
        let mut finished = locked(&self.shared.finished);
        if into.is_empty() {
            std::mem::swap(&mut *finished, into);
        } else {
            into.append(&mut finished);
        }
    }
}

impl Lane {
    fn push(&mut self, ticket: Option<Ticket>, job: Job, shared: &Arc<Shared>) {
        let mut inner = locked(&self.queue.inner);
        inner.jobs.push_back((ticket, job));
        let short = inner.idle < inner.jobs.len();
        drop(inner);
        self.queue.work.notify_one();
        if short && self.threads.len() < self.threads_max {
            // If no thread starts, the present ones do the work.
            let _ = self.spawn(shared);
        }
    }

    fn spawn(&mut self, shared: &Arc<Shared>) -> io::Result<()> {
        let name = format!("{}-{}", self.name, self.threads.len());
        let (queue, shared) = (self.queue.clone(), shared.clone());
        let thread = std::thread::Builder::new().name(name).stack_size(STACK_BYTES);
        let since = Arc::new(AtomicU64::new(IDLE));
        let own = since.clone();
        self.threads.push(LaneThread { thread: thread.spawn(move || serve(&queue, &shared, &own))?, since });
        Ok(())
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        locked(&self.queue.inner).stop = true;
        self.queue.work.notify_all();
        for thread in self.threads.drain(..) {
            // Jobs catch their panics.
            let _ = thread.thread.join();
        }
    }
}

/// The loop of each thread, until its lane is dropped and its queue is empty.
fn serve(queue: &Queue, shared: &Shared, since: &AtomicU64) {
    loop {
        let mut inner = locked(&queue.inner);
        let (ticket, job) = loop {
            if let Some(job) = inner.jobs.pop_front() {
                break job;
            }
            if inner.stop {
                return;
            }
            inner.idle += 1;
            inner = queue.work.wait(inner).unwrap_or_else(PoisonError::into_inner);
            inner.idle -= 1;
        };
        drop(inner);
        let (read, changed) = (matches!(job, Job::Read { .. }), job.changes_origin());
        since.store(clock::now().0, Ordering::Relaxed);
        let outcome = catch_unwind(AssertUnwindSafe(|| carry_out(&*shared.origin, job)));
        since.store(IDLE, Ordering::Relaxed);
        let outcome = outcome.unwrap_or(Outcome::Failed(Errno::IO));
        let Some(ticket) = ticket else { continue };
        locked(&shared.finished).push(Finished { ticket, outcome, read, changed });
        shared.waker.wake();
    }
}

fn carry_out(origin: &dyn Origin, job: Job) -> Outcome {
    let done = |result: Result<()>| result.map(|()| Outcome::Done);
    let result = match job {
        Job::Read { object, offset, len } => origin.read(object, offset, len as usize).map(Outcome::Bytes),
        Job::Seek { object, offset, data } => origin.seek(object, offset, data).map(Outcome::Offset),
        Job::Reserve { object, ranges, user, insists } => {
            origin.reserve(object, &ranges, user, insists).map(Outcome::Space)
        }
        Job::Free { object, settles } => origin.free(object, settles).map(Outcome::Free),
        Job::Write { object, offset, data, user, written_out } => {
            done(origin.write(object, offset, &data, user, written_out))
        }
        Job::Zero { object, offset, len, keep_space } => done(origin.zero(object, offset, len, keep_space)),
        Job::Resize { object, size } => done(origin.resize(object, size)),
        Job::Sync { object } => done(origin.sync(object)),
        Job::PoolFailed => done(origin.pool_failed()),
        Job::MembersChanged(generation) => done(origin.members_changed(generation)),
        Job::Stamp { object, mtime } => origin.stamp(object, mtime).map(Outcome::Stamp),
        Job::Close(remains) => {
            drop(remains);
            Ok(Outcome::Done)
        }
        Job::Directory(operation) => {
            origin.may_change().and_then(|()| operation()).map(|stamp| stamp.map_or(Outcome::Done, Outcome::Stamp))
        }
    };
    result.unwrap_or_else(Outcome::Failed)
}
