//! Requests on their way to the shard.
//!
//! Invariants:
//! - At most `limit` requests are under way, from [`Mailbox::send`] to their answer. The sender of
//!   one more waits (promise 9): nothing grows, and no request is refused.
//! - Every request is answered once: by the shard, or, after the mailbox is closed, here.
//! - The shard is woken only if it sleeps: see [`Waker`].

use std::sync::mpsc::SyncSender;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use headpond_base::Errno;
use headpond_device::Waker;
use headpond_door::{Door, DoorId};
use headpond_engine::{Reply, Request};

use crate::ShardStats;
use crate::operation::Operation;

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

/// A change of the doors that the shard serves.
pub(crate) enum DoorChange {
    Admit(DoorId, Box<dyn Door>),
    Withdraw(DoorId),
}

/// Where front doors put requests and the shard takes them.
pub(crate) struct Mailbox {
    inner: Mutex<Inner>,
    room: Condvar,
    waker: Waker,
    limit: usize,
}

struct Inner {
    items: Vec<Item>,
    probes: Vec<SyncSender<ShardStats>>,
    doors: Vec<DoorChange>,
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
            doors: Vec::new(),
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

    /// Sends a request; waits while too many are under way. If the shard has ended it is answered at
    /// once, on this thread.
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
        // The sender of the first one wakes the shard for all.
        if first {
            self.waker.wake();
        }
    }

    /// Asks for a snapshot; `None` answers it from the last one if the shard has ended.
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

    /// Gives the shard a door to serve, and the door its name. Drops it if the shard has ended.
    pub(crate) fn admit(&self, door: Box<dyn Door>) -> DoorId {
        let mut inner = self.locked();
        let id = inner.next_door;
        inner.next_door = DoorId(id.0 + 1);
        self.change(inner, DoorChange::Admit(id, door));
        id
    }

    /// Has the shard serve a door no more.
    pub(crate) fn withdraw(&self, id: DoorId) {
        self.change(self.locked(), DoorChange::Withdraw(id));
    }

    fn change(&self, mut inner: MutexGuard<'_, Inner>, change: DoorChange) {
        if inner.closed.is_some() {
            drop(inner);
            // Outside the lock, as what a door does then is its own affair.
            drop(change);
            return;
        }
        inner.doors.push(change);
        drop(inner);
        self.waker.wake();
    }

    /// Asks the shard to end.
    pub(crate) fn stop(&self) {
        self.locked().stop = true;
        self.waker.wake();
    }

    /// For the shard: `answered` requests are done. What has come since goes to `items` (empty, and
    /// its memory is used again), unless `take` is false. Probes go to `probes`, doors that come and
    /// go to `doors`, in order. True: end.
    pub(crate) fn exchange(
        &self,
        answered: usize,
        take: bool,
        items: &mut Vec<Item>,
        probes: &mut Vec<SyncSender<ShardStats>>,
        doors: &mut Vec<DoorChange>,
    ) -> bool {
        let mut inner = self.locked();
        inner.under_way -= answered;
        if take && items.is_empty() {
            std::mem::swap(&mut inner.items, items);
        }
        probes.append(&mut inner.probes);
        doors.append(&mut inner.doors);
        let wake = answered.min(inner.waiting);
        let stop = inner.stop;
        drop(inner);
        for _ in 0..wake {
            self.room.notify_one();
        }
        stop
    }

    /// Nothing goes through any more: what is here, and what will come, fails with `errno`.
    pub(crate) fn close(&self, errno: Errno, last: ShardStats) {
        let mut inner = self.locked();
        inner.closed = Some(errno);
        inner.last = last;
        let items = std::mem::take(&mut inner.items);
        // Those who asked find the sender gone.
        inner.probes.clear();
        // Dropped outside the lock, as in `change`.
        let doors = std::mem::take(&mut inner.doors);
        drop(inner);
        drop(doors);
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
