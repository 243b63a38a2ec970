//! Space at the origin for changes through the log: asked for before they are accepted, so that "no space" is told then and
//! not at the flush.
//!
//! File systems take a reservation for a change of the file, and the shard puts the time back. Killed in between, it leaves
//! a file that somebody else seems to have changed. So the log durably says before that the origin's file is changing, as it
//! does for destage (`ObjectFlags::destaging`), and afterwards that it is not. Price: a sync of the log for each step of a
//! growing file.
//!
//! Invariant: while the origin is asked for space of an object that the log knows, what is durable of the log says that the
//! object's file is changing.

use headpond_base::ObjectId;

use crate::effect::Effect;
use crate::engine::{Engine, Pending};
use crate::locks::OpId;
use crate::op::{Change, Op};

/// Space at the origin is reserved at least this much at a time, and up to a quarter of the
/// file or [`RESERVE_MAX`]: appends ask a slow origin seldom.
const RESERVE_MIN: u64 = 1 << 20;
const RESERVE_MAX: u64 = 64 << 20;

impl Engine {
    /// The first bytes for which a change needs space that the origin is not known to have.
    pub(super) fn lacks_space(&mut self, object: ObjectId, change: &Change) -> Option<(u64, u64)> {
        let known = self.store.known(object);
        reserve_ranges(change).find(|(start, end)| !known.reserved.contains(*start, *end))
    }

    /// Whether a change may ask the origin for space now; if not it waits for the log, and is stepped again.
    pub(super) fn may_reserve(&mut self, id: OpId, op: &mut Op) -> bool {
        let log_works = !self.store.log.failed();
        let known = self.store.known(op.object);
        if !op.reserving {
            op.reserving = true;
            known.reserving += 1;
            known.status_moved();
            if !known.state.flags.destaging {
                known.state.flags.destaging = true;
                known.said_for_space = true;
                if log_works && known.persisted {
                    self.store.persist(op.object);
                }
            }
        }
        let said_at = self.store.known(op.object).said_at;
        !log_works || said_at.is_none_or(|at| self.store.log.durable() >= at) || self.wait_durable(id)
    }

    /// A change does not ask for space any more.
    pub(crate) fn reserve_over(&mut self, op: &mut Op) {
        if !std::mem::take(&mut op.reserving) {
            return;
        }
        let log_works = !self.store.log.failed();
        let known = self.store.known(op.object);
        known.reserving -= 1;
        known.status_moved();
        if known.reserving > 0 || !std::mem::take(&mut known.said_for_space) || known.time_adrift {
            return;
        }
        known.state.flags.destaging = false;
        if log_works && known.persisted {
            self.store.persist(op.object);
        }
    }

    /// The origin gave no space, and nobody has put the file's time back: it is known again once destage has given it a stamp.
    pub(super) fn reserve_failed(&mut self, object: ObjectId) {
        let known = self.store.known(object);
        known.time_adrift = true;
        known.state.flags.attributes_dirty = true;
        self.destage.note(object);
    }

    /// Asks the origin for space if it is not known to have it; `true` if it was asked.
    pub(super) fn reserve(&mut self, id: OpId, op: &mut Op, change: &Change, ahead: bool) -> bool {
        op.asked = None;
        let object = op.object;
        let Some((start, end)) = self.lacks_space(object, change) else { return false };
        let (start, end) = if ahead { widened(start, end, self.store.known(object).state.size) } else { (start, end) };
        let len = end - start;
        op.asked = Some((start, end));
        self.start(Pending::Op(id), |ticket| Effect::OriginReserve { ticket, object, offset: start, len });
        true
    }

    /// Whether destage gave space at the origin back since this change made sure of its own.
    pub(super) fn space_went_meanwhile(&mut self, op: &Op, change: &Change) -> bool {
        reserve_ranges(change).next().is_some() && self.store.known(op.object).space_lost != op.space_seen
    }
}

/// The bytes for which a change needs space at the origin.
fn reserve_ranges(change: &Change) -> impl Iterator<Item = (u64, u64)> {
    let (one, pieces) = match change {
        Change::Write { offset, data, .. } => (Some((*offset, offset + data.len() as u64)), None),
        Change::Allocate { offset, len, .. } => (Some((*offset, offset + len)), None),
        Change::Together { pieces, .. } => (None, Some(pieces)),
        Change::Truncate { .. } | Change::Zero { .. } => (None, None),
    };
    let pieces = pieces.into_iter().flat_map(|pieces| pieces.iter());
    one.into_iter().chain(pieces.map(|(offset, data)| (*offset, offset + data.len() as u64)))
}

/// What is reserved in the neighbourhood: whole steps, and further ahead in a growing file.
const fn widened(start: u64, end: u64, size: u64) -> (u64, u64) {
    let quarter = size / 4;
    let step = if quarter < RESERVE_MIN {
        RESERVE_MIN
    } else if quarter > RESERVE_MAX {
        RESERVE_MAX
    } else {
        quarter
    };
    let start = start / RESERVE_MIN * RESERVE_MIN;
    // Beyond the end ahead; inside only what the change touches.
    let end = if end >= size { end + step } else { end };
    (start, end.next_multiple_of(RESERVE_MIN))
}
