//! Flushes: a request waits until what is dirty now is at the origin.
//!
//! Invariants:
//! - A flush is over once, for each object of its scope, a whole pass has ended that began after
//!   everything dirty at its start was durable; or the object needs nothing, is gone at the origin for good, or failed.
//!   What is written meanwhile is not waited for, so a flush ends however busy the mount is.
//! - What the origin failed to do is tried again before the flush fails: all that the job had written counts as not
//!   written, and is written again from flash. An error that says what a healthy origin says, too, is told at once.
//! - What the origin lost of that is beyond destage, as it went there directly: a flush that covers it waits for the
//!   rest, and fails.
//! - Each flush counts for itself, and what it has left never grows.
//! - What has nothing more to do is taken out as it changes: nothing walks over all that a flush has left but its
//!   start, and the moment in which what it is about is durable.
//! - One that is cancelled is answered so at once. The round under way ends as it would have:
//!   what it wrote is clean, the rest is dirty as before.

use std::collections::BTreeMap;

use headpond_base::{Block, Errno, Nanos, ObjectId, Sequence};

use super::job::Job;
use super::{Destage, Destaging, ROUND_BLOCKS};
use crate::locks::OpId;
use crate::losses::Losses;
use crate::purpose::JobId;
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

/// A flush that a request waits for.
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
    /// All its objects were looked at since it may end.
    looked_at: bool,
    total: u64,
    /// The sum of what its objects have left.
    left_blocks: u64,
    /// What it has to tell when it is over.
    lost: Losses,
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
    /// Jobs that the origin failed.
    failures: u32,
}

/// A block is asked for in so many rounds before it counts as one that changes again and again: reclaim may have moved
/// it a moment ago, and that is no change.
const ROUNDS_FOR_ONE: u32 = 4;

/// Jobs on an object that may fail before the flush does. A server that has restarted takes connections before it knows
/// what it exports, and gives errors for seconds.
const TRIES: u32 = 4;

/// Whether an error may be over in a moment.
fn may_pass(errno: Errno) -> bool {
    let lasting = [Errno::NOSPC, Errno::DQUOT, Errno::FBIG, Errno::ROFS, Errno::OPNOTSUPP, Errno::INVAL, Errno::BADF];
    !lasting.contains(&errno)
}

impl Flush {
    fn progress(&self, now: Nanos) -> FlushProgress {
        FlushProgress {
            id: self.id,
            left_blocks: self.left_blocks,
            total_blocks: self.total,
            left_objects: self.left.len() as u64,
            running: now.since(self.since),
        }
    }

    /// The origin lost some of this object; whether it tells.
    pub(crate) fn tells(&mut self, object: ObjectId, errno: Errno) -> bool {
        let tells = self.id.is_some() && self.wants(object);
        if tells {
            self.lost.add(object, errno);
        }
        tells
    }

    /// Whether it waits for this object.
    pub(super) fn wants(&self, object: ObjectId) -> bool {
        self.left.contains_key(&object)
    }

    /// An object has at most so many blocks left.
    fn has_at_most(&mut self, object: ObjectId, blocks: u64) {
        let Some(left) = self.left.get_mut(&object) else { return };
        let fewer = left.blocks.min(blocks);
        self.left_blocks -= left.blocks - fewer;
        left.blocks = fewer;
    }

    /// An object is done, or cannot be.
    fn take_out(&mut self, object: ObjectId) {
        self.has_at_most(object, 0);
        self.left.remove(&object);
    }

    fn settled(&self, store: &Store) -> bool {
        self.durable_at <= store.log().durable() || !store.takes_writes()
    }
}

impl Destage {
    /// The flushes under way, oldest first.
    pub(crate) fn flushes(&self, now: Nanos) -> impl Iterator<Item = FlushProgress> + '_ {
        self.flushes.iter().map(move |flush| flush.progress(now))
    }

    /// These objects changed in this cycle of the engine, and may have nothing more to do for a flush.
    pub(crate) fn have_changed(&mut self, touched: &[ObjectId]) {
        if !self.flushes.is_empty() {
            self.changed.extend_from_slice(touched);
        }
    }

    /// The origin could not make a removal durable.
    pub(crate) fn burial_failed(&mut self, object: ObjectId) {
        for left in self.flushes.iter_mut().filter_map(|flush| flush.left.get_mut(&object)) {
            left.failures += 1;
        }
    }
}

impl Destaging<'_> {
    /// Starts a flush of what is dirty now; the request is stepped when it is over.
    pub(crate) fn begin_flush(&mut self, op: OpId, id: Option<FlushId>, scope: &FlushScope) {
        let store = &*self.store;
        // What is being buried lacks data at the origin until that is over, and who asks for a flush counts what is
        // left.
        let buried = store.objects().iter().filter(|(_, known)| known.name.is_being_buried()).map(|(object, _)| object);
        let wanted = self.destage.noted.iter().chain(buried).filter(|object| scope.holds(**object));
        let left: BTreeMap<_, _> = wanted
            .map(|object| {
                let blocks = store.get(*object).map_or(0, |known| known.dirty_blocks());
                (*object, Left { next: Block(0), blocks, left_again: 0, failures: 0 })
            })
            .collect();
        let durable_at = store.last_entry();
        if store.log().durable() < durable_at {
            self.store.want_sync();
        }
        for object in left.keys() {
            // A request asks: what the origin refused a moment ago is tried now, not after a while.
            if let Some(known) = self.store.get_mut(*object) {
                known.job.may_begin();
            }
        }
        let total = left.values().map(|left| left.blocks).sum();
        let (since, first_job, looked_at, left_blocks) = (self.now, None, false, total);
        // A change of the cache mode does not ask what is at the origin for good.
        let lost = if id.is_some() { self.destage.losses.take(scope) } else { Losses::default() };
        let flush = Flush { op, id, since, left, durable_at, first_job, looked_at, total, left_blocks, lost };
        self.destage.flushes.push(flush);
    }

    /// Ends flushes early, by their names, with this error for all that wait. Returns whether there were any.
    pub(crate) fn cancel_flushes_of(&mut self, which: impl Fn(Option<FlushId>) -> bool, error: Errno) -> bool {
        let before = self.destage.flushes.len();
        for flush in self.destage.flushes.extract_if(.., |flush| which(flush.id)) {
            self.destage.losses.take_back(flush.lost);
            self.requests.fail(flush.op, error);
        }
        self.destage.flushes.len() < before
    }

    pub(super) fn start_flushes(&mut self) {
        let next_job = JobId(self.destage.next_job);
        let room = super::JOBS_MAX.saturating_sub(self.destage.jobs.len());
        for flush in self.destage.flushes.iter_mut().filter(|flush| flush.settled(self.store)) {
            flush.first_job.get_or_insert(next_job);
        }
        if room == 0 {
            return;
        }
        let settled = self.destage.flushes.iter().filter(|flush| flush.settled(self.store));
        let wanted = settled.flat_map(|flush| flush.left.iter().map(|(object, left)| (*object, left.next)));
        // Few that are left cannot start now: jobs work on them, or changes go there directly.
        let wanted: Vec<_> = wanted.filter(|(object, _)| self.may_start(*object)).take(room).collect();
        for (object, next) in wanted {
            if self.may_start(object) {
                self.start_job(object, next, ROUND_BLOCKS, true);
            }
        }
    }

    /// Takes objects out of flushes that have nothing more to do, or cannot.
    pub(super) fn finish_flushes(&mut self) {
        let barred = self.origin_barred();
        let mut changed = std::mem::take(&mut self.destage.changed);
        if self.destage.flushes.is_empty() {
            return;
        }
        changed.extend_from_slice(self.store.objects().touched());
        changed.sort_unstable();
        changed.dedup();
        let (store, requests) = (&*self.store, &mut *self.requests);
        for flush in self.destage.flushes.iter_mut() {
            let settled = flush.settled(store);
            let all: Vec<ObjectId>;
            let look_at = if settled && (!flush.looked_at || barred.is_some()) {
                flush.looked_at = true;
                all = flush.left.keys().copied().collect();
                &all
            } else {
                &changed
            };
            for object in look_at.iter().filter(|object| flush.left.contains_key(object)).copied().collect::<Vec<_>>() {
                let Some(known) = store.get(object) else {
                    flush.take_out(object);
                    continue;
                };
                flush.has_at_most(object, known.dirty_blocks());
                if !settled || known.name.is_being_buried() {
                    continue;
                }
                if let Some(errno) = known.name.refused() {
                    if flush.left.get(&object).is_some_and(|left| left.failures < TRIES) && may_pass(errno) {
                        continue;
                    }
                    requests.note_error(flush.op, Some(errno));
                    flush.take_out(object);
                    continue;
                }
                let failing = known.job.failed().or(barred.filter(|_| known.is_dirty()));
                if let Some(errno) = failing.filter(|_| !known.job.is_running()) {
                    let failures = flush.left.get(&object).map_or(TRIES, |left| left.failures);
                    if barred.is_none() && failures < TRIES && may_pass(errno) {
                        continue;
                    }
                    requests.note_error(flush.op, Some(errno));
                    flush.take_out(object);
                } else if !known.job.is_running() && (!known.is_dirty() && !known.past.needs_sync() || known.leaving())
                {
                    flush.take_out(object);
                }
            }
        }
        self.destage.flushes.retain(|flush| {
            let over = flush.left.is_empty() && flush.settled(store);
            if over {
                requests.note_error(flush.op, flush.lost.first());
                requests.wake(flush.op);
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
            let Some(left) = flush.left.get(&object) else { continue };
            flush.has_at_most(object, left.blocks.saturating_sub(job.cleaned));
            let Some(left) = flush.left.get_mut(&object) else { continue };
            match job.error() {
                Some(_) => left.failures += 1,
                // Dirty data that flash does not give back: it will not the next time either.
                None if failed => left.failures = TRIES,
                None => {}
            }
            // What a job wrote that failed is written again: the pass does not go on behind it.
            if flush.first_job.is_none_or(|first| id < first) || from > left.next || job.error().is_some() {
                continue;
            }
            left.left_again = if stuck { left.left_again + 1 } else { 0 };
            let next = if left.left_again >= ROUNDS_FOR_ONE { job.forward } else { job.next };
            match next {
                Some(next) => left.next = next.max(left.next),
                None if !failed => {
                    // A whole pass: what is dirty now came after the flush was asked for.
                    flush.take_out(object);
                }
                None => {}
            }
        }
    }
}
