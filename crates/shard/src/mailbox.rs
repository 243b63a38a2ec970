//! Requests on their way to the shard.
//!
//! Invariants:
//! - At most `limit` requests are under way, from [`Mailbox::send`] to their answer. The sender of one more waits
//!   (promise 9), so nothing grows, and no request is refused.
//! - Every request is answered once: by the shard, or, after the mailbox is closed, here.
//! - A sender wakes the shard only if it sleeps: see [`Waker`].

use std::sync::mpsc::SyncSender;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use headpond_base::{Errno, MemberId, Result};
use headpond_device::{Flash, Waker};
use headpond_door::{Door, DoorId};
use headpond_engine::{Reply, Request};

use crate::ShardStats;
use crate::hold::Hold;
use crate::operation::Operation;
use crate::recorder::Recorder;

/// Called with the answer, on the shard's thread.
pub(crate) type Answer = Box<dyn FnOnce(Reply) + Send>;

/// A request on its way.
pub(crate) struct Item {
    pub(crate) request: Request,
    pub(crate) answer: Answer,
    /// The directory operation that comes with [`Request::Namespace`].
    pub(crate) operation: Option<Operation>,
    pub(crate) since: Instant,
}

/// A change of the doors that the shard serves, of what comes through them, of who notes that, or of the disks below.
pub(crate) enum ShardChange {
    Admit(DoorId, Box<dyn Door>),
    Withdraw(DoorId),
    Hold(Hold),
    Record(Option<Box<Recorder>>),
    Disk(MemberId, DiskChange, SyncSender<Result<u64>>),
}

/// What becomes of a disk.
pub(crate) enum DiskChange {
    Join(Flash),
    Leave,
    Measure,
}

/// Doors and other callers put requests here, and the shard takes them.
pub(crate) struct Mailbox {
    inner: Mutex<Inner>,
    room: Condvar,
    waker: Waker,
    limit: usize,
}

struct Inner {
    items: Vec<Item>,
    probes: Vec<SyncSender<ShardStats>>,
    changes: Vec<ShardChange>,
    next_door: DoorId,
    under_way: usize,
    waiting: usize,
    closed: Option<Errno>,
    stop: bool,
    last: ShardStats,
}

impl Mailbox {
    pub(crate) fn new(waker: Waker, limit: usize) -> Self {
        let inner = Inner {
            items: Vec::with_capacity(limit),
            probes: Vec::new(),
            changes: Vec::new(),
            next_door: DoorId(1),
            under_way: 0,
            waiting: 0,
            closed: None,
            stop: false,
            last: ShardStats::default(),
        };
        Self { inner: Mutex::new(inner), room: Condvar::new(), waker, limit }
    }

    fn locked(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request. Waits while too many are under way. If the shard has ended, this thread answers the request at
    /// once.
    pub(crate) fn send(&self, item: Item) {
        let mut inner = self.locked();
        while inner.under_way >= self.limit && inner.closed.is_none() {
            inner.waiting += 1;
            inner = self.room.wait(inner).unwrap_or_else(PoisonError::into_inner);
            inner.waiting -= 1;
        }
        if let Some(errno) = inner.closed {
            drop(inner);
            (item.answer)(Reply::Failed(errno));
            return;
        }
        inner.under_way += 1;
        let first = inner.items.is_empty();
        inner.items.push(item);
        drop(inner);
        // The sender of the first request wakes the shard for all.
        if first {
            self.waker.wake();
        }
    }

    /// Asks for a snapshot. Returns the last one if the shard has ended.
    pub(crate) fn probe(&self, answer: SyncSender<ShardStats>) -> Option<ShardStats> {
        let mut inner = self.locked();
        if inner.closed.is_some() {
            return Some(inner.last.clone());
        }
        inner.probes.push(answer);
        drop(inner);
        self.waker.wake();
        None
    }

    /// Gives the shard a door to serve. Returns the door's name. Drops the door if the shard has ended.
    pub(crate) fn admit(&self, door: Box<dyn Door>) -> DoorId {
        let mut inner = self.locked();
        let id = inner.next_door;
        inner.next_door = DoorId(id.0 + 1);
        self.change(inner, ShardChange::Admit(id, door));
        id
    }

    /// Ends the service of a door.
    pub(crate) fn withdraw(&self, id: DoorId) {
        self.change(self.locked(), ShardChange::Withdraw(id));
    }

    /// Sets what waits from now on.
    pub(crate) fn hold(&self, hold: Hold) {
        self.change(self.locked(), ShardChange::Hold(hold));
    }

    /// Sets who notes requests from now on.
    pub(crate) fn record(&self, recorder: Option<Recorder>) {
        self.change(self.locked(), ShardChange::Record(recorder.map(Box::new)));
    }

    /// Changes a disk. The answer has its size. It does not come if the shard has ended.
    pub(crate) fn change_disk(&self, disk: MemberId, change: DiskChange, answer: SyncSender<Result<u64>>) {
        self.change(self.locked(), ShardChange::Disk(disk, change, answer));
    }

    fn change(&self, mut inner: MutexGuard<'_, Inner>, change: ShardChange) {
        if inner.closed.is_some() {
            drop(inner);
            // Outside the lock: a drop of the door may do anything.
            drop(change);
            return;
        }
        inner.changes.push(change);
        drop(inner);
        self.waker.wake();
    }

    /// Asks the shard to end.
    pub(crate) fn stop(&self) {
        self.locked().stop = true;
        self.waker.wake();
    }

    /// For the shard: `answered` requests are done. New requests go to `items` (empty; its memory is used again),
    /// unless `take` is false. Probes go to `probes`. Doors and disks that come and go are in `changes`, in order. True: end.
    pub(crate) fn exchange(
        &self,
        answered: usize,
        take: bool,
        items: &mut Vec<Item>,
        probes: &mut Vec<SyncSender<ShardStats>>,
        changes: &mut Vec<ShardChange>,
    ) -> bool {
        let mut inner = self.locked();
        inner.under_way -= answered;
        if take && items.is_empty() {
            std::mem::swap(&mut inner.items, items);
        }
        probes.append(&mut inner.probes);
        changes.append(&mut inner.changes);
        let wake = answered.min(inner.waiting);
        let stop = inner.stop;
        drop(inner);
        for _ in 0..wake {
            self.room.notify_one();
        }
        stop
    }

    /// Closes the mailbox: all requests in it, and all later ones, fail with `errno`.
    pub(crate) fn close(&self, errno: Errno, last: ShardStats) {
        let mut inner = self.locked();
        inner.closed = Some(errno);
        inner.last = last;
        let items = std::mem::take(&mut inner.items);
        // The threads that asked find the sender gone.
        inner.probes.clear();
        // Drop outside the lock, as in `change`.
        let changes = std::mem::take(&mut inner.changes);
        drop(inner);
        drop(changes);
        self.room.notify_all();
        for item in items {
            (item.answer)(Reply::Failed(errno));
        }
    }

    /// The last snapshot of a shard that has ended.
    pub(crate) fn last(&self) -> ShardStats {
        self.locked().last.clone()
    }
}
