//! Long sequential streams pass by the cache: whoever reads or writes a file from one end to the other once would
//! push out what others come back to.
//!
//! A stream that passes by is a treatment like any other ([`Handling::Bypass`]), decided before the request is looked
//! at, so nothing about what is served, dropped or ordered is different from a rule's bypass.
//!
//! Invariants:
//! - A stream never makes a file's writes wait for long: one passes by only if the file has nothing dirty, or little that
//!   lies together, and it did not go to and fro lately.
//! - Writes that are synced as they go are no stream, however long: a database's log wants its place on flash.

use headpond_base::{BLOCK_U64, Block, Nanos, ObjectId};
use headpond_policy::{Process, Transfer};

use crate::engine::Engine;
use crate::treatment::{Handling, Treatment};

/// What a file has dirty goes to the origin before writes pass by. So many runs at most: the stream's own beginning, and
/// little else. Scattered writes would gain more from waiting for others beside them than the stream does from passing by.
const SWITCH_RUNS: usize = 8;

/// A file whose writes were made to pass by, and are cached again since, or which has too much scattered to, is left alone
/// for this long.
const SWITCH_PAUSE: Nanos = Nanos(10 * Nanos::SECOND.0);

impl Engine {
    /// How a read is treated: passing by if it belongs to a long stream.
    pub(crate) fn read_in_stream(&mut self, object: ObjectId, offset: u64, len: u64, how: Treatment) -> Treatment {
        let transfer = Transfer { object, process: Process(how.process), write: false, offset, len };
        let passes = how.handling != Handling::Bypass && self.streams.passes_by(transfer) && !self.is_pinned(how);
        if passes { Treatment { handling: Handling::Bypass, ..how } } else { how }
    }

    /// How a write is treated.
    pub(crate) fn write_in_stream(
        &mut self,
        object: ObjectId,
        offset: u64,
        len: u64,
        durable: bool,
        how: Treatment,
    ) -> Treatment {
        let transfer = Transfer { object, process: Process(how.process), write: true, offset, len };
        let decided = matches!(how.handling, Handling::Bypass | Handling::ReadOnly | Handling::Whole);
        if decided || !self.streams.passes_by(transfer) || durable || !self.store.takes_writes() || self.is_pinned(how)
        {
            return how;
        }
        let logged = self.rules_for(how).log_writes;
        if logged && !self.may_switch_to_origin(object) {
            return how;
        }
        self.streamed_writes += 1;
        Treatment { handling: Handling::Bypass, ..how }
    }

    /// What is pinned has its place in the pool, however it is read.
    const fn is_pinned(&self, how: Treatment) -> bool {
        self.keep.is_pinned(how.class)
    }

    /// Whether writes of an object may go to the origin from now on without others waiting long for theirs.
    fn may_switch_to_origin(&mut self, object: ObjectId) -> bool {
        let now = self.now;
        let some = 2 * self.config.sequential_cutoff.unwrap_or(0) / BLOCK_U64;
        let Some(known) = self.store.get_mut(object) else { return false };
        if !known.data_dirty() {
            return true;
        }
        let paused = known.switched_at.is_none_or(|at| now.since(at) >= SWITCH_PAUSE);
        if known.map().dirty() > some || !paused {
            return false;
        }
        // Looking costs a walk over what is dirty: not for each write that stays.
        known.switched_at = Some(now);
        let dirty: Vec<_> = known.map().dirty_from(Block(0)).map(|(block, _)| block).collect();
        let runs = dirty.chunk_by(|one, next| one.next() == *next).count();
        runs <= SWITCH_RUNS
    }
}
