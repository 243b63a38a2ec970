//! Long sequential runs bypass the cache: a program that reads or writes a file from one end to the other once would
//! push out what others come back to.
//!
//! A run that bypasses is a treatment like any other ([`Handling::Bypass`]), decided before the request is looked
//! at, so nothing about what is served, dropped or ordered is different from a rule's bypass.
//!
//! Invariants:
//! - A run never makes a file's writes wait for long: one bypasses only if the file has nothing dirty, or little that
//!   lies together, and it did not go to and fro lately.
//! - Writes that are synced as they go are no run, however long: a database's log wants its place on flash.

use headpond_base::{BLOCK_U64, Block, Nanos, ObjectId};
use headpond_policy::{ProcessId, SequentialRuns, Transfer};

use crate::store::object::Object;
use crate::treatment::{Handling, Treatment};

/// What a file has dirty goes to the origin before writes bypass. So many runs at most: the sequential run's own
/// beginning, and little else. Scattered writes would gain more from waiting for others beside them than it does from
/// bypassing.
const SWITCH_RUNS: u64 = 8;

/// A file whose writes were made to bypass, and are cached again since, or which has too much scattered to, is left
/// alone for this long.
const SWITCH_PAUSE: Nanos = Nanos(10 * Nanos::SECOND.0);

/// The sequential runs under way.
pub(crate) struct Sequential {
    cutoff: Option<u64>,
    runs: SequentialRuns,
    /// Writes that were found to be part of one, and bypass the pool.
    bypassed_writes: u64,
}

impl Sequential {
    /// Runs longer than `cutoff` bytes bypass; with `None`, none do.
    pub(crate) fn new(cutoff: Option<u64>) -> Self {
        Self { cutoff, runs: SequentialRuns::new(cutoff), bypassed_writes: 0 }
    }

    /// Changes the cut-off; the runs under way go on counting.
    pub(crate) const fn set_cutoff(&mut self, cutoff: Option<u64>) {
        self.cutoff = cutoff;
        self.runs.set_cutoff(cutoff);
    }

    /// A request waited for the object's writes to be durable.
    pub(crate) fn synced(&mut self, object: ObjectId) {
        self.runs.synced(object);
    }

    /// Whether a read is part of a long run.
    pub(crate) fn has_read(&mut self, object: ObjectId, offset: u64, len: u64, how: Treatment) -> bool {
        let transfer = Transfer { object, process: ProcessId(how.process), write: false, offset, len };
        how.handling != Handling::Bypass && self.runs.passes_by(transfer)
    }

    /// Whether a write is part of a long run.
    pub(crate) fn has_write(&mut self, object: ObjectId, offset: u64, len: u64, how: Treatment) -> bool {
        let transfer = Transfer { object, process: ProcessId(how.process), write: true, offset, len };
        let decided = matches!(how.handling, Handling::Bypass | Handling::ReadOnly | Handling::Whole);
        !decided && self.runs.passes_by(transfer)
    }

    /// Whether writes of an object may go to the origin from now on without others waiting long for theirs.
    pub(crate) fn may_switch(&self, known: &mut Object, now: Nanos) -> bool {
        if !known.data_dirty() {
            return true;
        }
        let some = 2 * self.cutoff.unwrap_or(0) / BLOCK_U64;
        let paused = known.switched_at.is_none_or(|at| now.since(at) >= SWITCH_PAUSE);
        if known.dirty_blocks() > some || !paused {
            return false;
        }
        // Looking costs a walk over what is dirty: not for each write that stays.
        known.switched_at = Some(now);
        let dirty: Vec<_> = known.map().dirty_from(Block(0)).map(|(block, _)| block).collect();
        let runs = dirty.chunk_by(|one, next| one.next() == *next).count();
        runs as u64 + known.zeros().extents() <= SWITCH_RUNS
    }

    /// A write of a long run bypasses the pool.
    pub(crate) const fn note_bypassed_write(&mut self) {
        self.bypassed_writes += 1;
    }

    /// Writes that bypassed the pool so far.
    pub(crate) const fn bypassed_writes(&self) -> u64 {
        self.bypassed_writes
    }
}
