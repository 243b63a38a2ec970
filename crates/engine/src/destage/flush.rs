//! Flushes: somebody waits until what is dirty now is at the origin.
//!
//! Invariants:
//! - A flush is over once, for each object of its scope, a whole pass has ended that began after
//!   everything dirty at its start was durable; or the object needs nothing, is gone at the origin for good, or failed.
//!   What is written meanwhile is not waited for, so a flush ends however busy the mount is.
//! - Each flush counts for itself, and what it has left never grows.
//! - One that is cancelled is answered so at once. The round under way ends as it would have:
//!   what it wrote is clean, the rest is dirty as before.

use std::collections::BTreeMap;

use headpond_base::{Block, Errno, Nanos, ObjectId, Sequence};

use super::ROUND_BLOCKS;
use super::job::{Job, JobId};
use crate::engine::Engine;
use crate::locks::OpId;
use crate::request::{FlushId, FlushScope};
use crate::store::Store;

/// A flush under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlushProgress {
    /// The name that it was given. `None`: a change of the cache mode waits for it.
    pub id: Option<FlushId>,
    /// Blocks that were dirty at its start and still are, about: what is written again meanwhile
    /// counts once.
    pub left_blocks: u64,
    /// Blocks of its scope that were dirty at its start.
    pub total_blocks: u64,
    /// Objects of its scope that are not done.
    pub left_objects: u64,
    /// For how long it has been running.
    pub running: Nanos,
}

/// A flush that somebody waits for.
pub(super) struct Flush {
    op: OpId,
    id: Option<FlushId>,
    since: Nanos,
    /// Objects that are not done.
    left: BTreeMap<ObjectId, Left>,
    /// What was dirty at the start was durable once this is.
    durable_at: Sequence,
    /// The first job begun after that: earlier ones may have picked before.
    first_job: Option<JobId>,
    total: u64,
}

/// What an object has still to do for a flush.
#[derive(Clone, Copy)]
struct Left {
    /// Where the pass over it goes on.
    next: Block,
    /// Blocks that were dirty at the start, but for those that became clean since.
    blocks: u64,
    /// Rounds that began there and had to leave just that block.
    left_again: u32,
}

/// A block is asked for in so many rounds before it counts as one that changes again and again: reclaim may have moved it
/// a moment ago, and that is no change.
const ROUNDS_FOR_ONE: u32 = 4;

impl Flush {
    fn progress(&self, store: &Store, now: Nanos) -> FlushProgress {
        let dirty = |object: &ObjectId| store.get(*object).map_or(0, |known| known.map.dirty());
        FlushProgress {
            id: self.id,
            left_blocks: self.left.iter().map(|(object, left)| left.blocks.min(dirty(object))).sum(),
            total_blocks: self.total,
            left_objects: self.left.len() as u64,
            running: now.since(self.since),
        }
    }

    /// Whether it waits for this object.
    pub(super) fn wants(&self, object: ObjectId) -> bool {
        self.left.contains_key(&object)
    }

    fn settled(&self, store: &Store) -> bool {
        self.durable_at <= store.log.durable() || store.log.failed()
    }
}

impl Engine {
    /// Starts a flush of what is dirty now; the request is stepped when it is over.
    pub(crate) fn begin_flush(&mut self, op: OpId, id: Option<FlushId>, scope: &FlushScope) {
        let store = &self.store;
        // What is being buried lacks data at the origin until that is over, and who asks for a flush counts what is left.
        let buried = store.objects.iter().filter(|(_, known)| known.burying).map(|(object, _)| object);
        let wanted = self.destage.noted.iter().chain(buried).filter(|object| scope.holds(**object));
        let left: BTreeMap<_, _> = wanted
            .map(|object| {
                let blocks = store.get(*object).map_or(0, |known| known.map.dirty());
                (*object, Left { next: Block(0), blocks, left_again: 0 })
            })
            .collect();
        let durable_at = Sequence(store.log.next_sequence().0 - 1);
        if store.log.durable() < durable_at {
            self.store.log.want_sync();
        }
        for object in left.keys() {
            // Somebody asks: what the origin refused a moment ago is tried now, not after a while.
            if let Some(known) = self.store.get_mut(*object) {
                known.failing = None;
            }
        }
        let total = left.values().map(|left| left.blocks).sum();
        self.destage.flushes.push(Flush { op, id, since: self.now, left, durable_at, first_job: None, total });
    }

    /// Ends the flushes of that name early: whoever waits is told so. `false` when there are none.
    pub(crate) fn cancel_flush(&mut self, id: FlushId) -> bool {
        self.give_up(|flush| flush.id == Some(id), Errno::CANCELED)
    }

    /// The use of the pool ends: whoever waits for a flush is told so, and what is dirty stays.
    pub(crate) fn cancel_flushes(&mut self) {
        self.give_up(|_| true, Errno::SHUTDOWN);
    }

    /// Ends some flushes with an error; whether there were any.
    fn give_up(&mut self, which: impl Fn(&Flush) -> bool, error: Errno) -> bool {
        let before = self.destage.flushes.len();
        for flush in self.destage.flushes.extract_if(.., |flush| which(flush)) {
            if let Some(op) = self.ops.get_mut(&flush.op) {
                op.error = Some(error);
            }
            self.ready.push_back(flush.op);
        }
        self.destage.flushes.len() < before
    }

    /// The flushes under way, oldest first.
    #[must_use]
    pub fn flushes(&self) -> Vec<FlushProgress> {
        self.destage.flushes.iter().map(|flush| flush.progress(&self.store, self.now)).collect()
    }

    pub(super) fn start_flushes(&mut self) {
        let next_job = JobId(self.destage.next_job);
        let mut wanted = Vec::new();
        for flush in self.destage.flushes.iter_mut().filter(|flush| flush.settled(&self.store)) {
            flush.first_job.get_or_insert(next_job);
            wanted.extend(flush.left.iter().map(|(object, left)| (*object, left.next)));
        }
        for (object, next) in wanted {
            if self.destage.jobs.len() >= super::JOBS_MAX {
                break;
            }
            if self.may_start(object) {
                self.start_job(object, next, ROUND_BLOCKS, true);
            }
        }
    }

    /// Takes objects out of flushes that have nothing more to do, or cannot.
    pub(super) fn finish_flushes(&mut self) {
        let barred = self.origin_barred();
        let (store, ops, ready) = (&self.store, &mut self.ops, &mut self.ready);
        for flush in self.destage.flushes.iter_mut().filter(|flush| flush.settled(store)) {
            flush.left.retain(|object, _| {
                let Some(known) = store.get(*object) else { return false };
                if known.burying {
                    return true;
                }
                let failing = known.failing.map(|(errno, _)| errno).or(barred.filter(|_| known.is_dirty()));
                if let Some(errno) = failing.filter(|_| !known.in_job) {
                    if let Some(op) = ops.get_mut(&flush.op) {
                        op.error = op.error.or(Some(errno));
                    }
                    return false;
                }
                known.in_job || (known.is_dirty() || known.origin_unsynced) && !known.leaving()
            });
        }
        self.destage.flushes.retain(|flush| {
            let over = flush.left.is_empty() && flush.settled(store);
            if over {
                ready.push_back(flush.op);
            }
            !over
        });
    }

    /// A job ended.
    pub(super) fn count_for_flushes(&mut self, id: JobId, job: &Job, failed: bool) {
        let (object, from) = (job.object, job.from);
        // What changes again and again is passed by in the end: it came after the flush was asked for.
        let stuck = job.next == Some(from) && job.forward.is_some();
        for flush in &mut self.destage.flushes {
            let Some(left) = flush.left.get_mut(&object) else { continue };
            left.blocks = left.blocks.saturating_sub(job.cleaned);
            if flush.first_job.is_none_or(|first| id < first) || from > left.next {
                continue;
            }
            left.left_again = if stuck { left.left_again + 1 } else { 0 };
            let next = if left.left_again >= ROUNDS_FOR_ONE { job.forward } else { job.next };
            match next {
                Some(next) => left.next = next.max(left.next),
                None if !failed => {
                    // A whole pass: what is dirty now came after the flush was asked for.
                    flush.left.remove(&object);
                }
                None => {}
            }
        }
    }
}
