//! Space at the origin for changes through the log: asked for, or counted, before they are accepted, so that "no space"
//! is told then and not at the flush. `space.rs` has what is known of one object, `counted_space.rs` the count.
//!
//! File systems take a reservation for a change of the file, and the shard puts the time back. Killed in between, it
//! leaves a file that others seem to have changed. So the log durably says before that the origin's file is changing,
//! as it does for destage (`stamp_trust.rs`), and a while after the last reservation that it is not. Price: a sync of
//! the log for the first of a number of reservations.
//!
//! Invariant: while the origin is asked for space of an object that the log knows, what is durable of the log says that
//! the object's file is changing.

use std::collections::BTreeSet;

use headpond_base::{BLOCK_U64, Block, Errno, Nanos, ObjectId, blocks_for};

use crate::counted_space::Balance;
use crate::effect::{Effect, Outcome};
use crate::engine::Engine;
use crate::locks::OpId;
use crate::op::{Change, Op, Stage, Work};
use crate::purpose::Purpose;
use crate::request::FlushScope;
use crate::space::{Bytes, Wish};
use crate::store::object::Object;
use crate::treatment::Handling;

/// In a file that grows, space is asked for as much ahead as the file is long, up to this: appends ask a slow origin
/// seldom. It is given back when nobody appends any more.
const AHEAD_MAX: u64 = 16 << 20;

/// So long after the last reservation the log says that the file is not changing any more.
const SAID_FOR: Nanos = Nanos::SECOND;

impl Engine {
    /// Whether an object's dirty data needs space at the origin that other programs may take. A volume has its own.
    pub(super) fn takes_space(&self, object: ObjectId) -> bool {
        self.store.get(object).is_some_and(Object::is_file)
    }

    /// Whether a change may be made as far as space is known; if not it is to ask for some.
    pub(super) fn has_space(&mut self, op: &Op, change: &Change) -> bool {
        let counts = self.origin_space.counted.counts();
        if !self.takes_space(op.object) {
            return true;
        }
        let known = self.store.known(op.object);
        match change {
            Change::Allocate { .. } if !known.space.keeps() => op.allocated,
            // Blocks of which a part becomes zeros have their space, unless the origin writes nothing in place. The
            // first request that asks learns which it is.
            Change::Zero { offset, len, .. } => {
                counts || known.space.has_answered() || edges(*offset, *len, known.state.size).next().is_none()
            }
            _ => ranges(change).all(|range| known.space.has(range)),
        }
    }

    /// Whether a change may ask the origin for space now; if not it waits for the log, and is stepped again.
    pub(super) fn may_reserve(&mut self, id: OpId, op: &mut Op) -> bool {
        let log_works = self.store.takes_writes();
        let known = self.store.known(op.object);
        if !op.reserving {
            op.reserving = true;
            let says = known.trust.begins_reserving();
            known.status_moved();
            self.origin_space.goes_on(op.object);
            if says && log_works && known.persisted {
                self.store.persist(op.object);
            }
        }
        let said_at = self.store.known(op.object).trust.said_at();
        !log_works || said_at.is_none_or(|at| self.store.log().durable() >= at) || self.wait_durable(id)
    }

    /// A change does not ask for space any more.
    pub(crate) fn reserve_over(&mut self, op: &mut Op) {
        if !std::mem::take(&mut op.reserving) {
            return;
        }
        let known = self.store.known(op.object);
        known.status_moved();
        if known.trust.ends_reserving() {
            self.origin_space.note_said(op.object, self.now);
        }
    }

    /// Has files that grow give back what they have ahead, for a change that the origin refused for want of space.
    /// `false` where that was done before, or where there is none. The change is stepped again when it is done.
    pub(super) fn make_room(&mut self, id: OpId, op: &mut Op, errno: Errno) -> bool {
        if !errno.is_no_space() || self.life.is_ending() || std::mem::replace(&mut op.made_room, true) {
            return false;
        }
        let has_tail =
            |object: &ObjectId| self.store.get(*object).is_some_and(|known| known.space.has_tail(known.state.size));
        let grown: BTreeSet<ObjectId> = self.destage.noted().filter(has_tail).collect();
        if grown.is_empty() {
            return false;
        }
        self.reserve_over(op);
        op.stage = Stage::MakingRoom;
        self.begin_flush(id, None, &FlushScope::Objects(grown));
        true
    }

    /// Says that the files are not changing any more for which nobody has asked for a while.
    fn unsay(&mut self) {
        let (ending, now) = (self.life.is_ending(), self.now);
        while let Some(object) = self.origin_space.next_unsaid(|since| ending || now.since(since) >= SAID_FOR) {
            let log_works = self.store.takes_writes();
            let Some(known) = self.store.get_mut(object).filter(|known| !known.job.is_running()) else { continue };
            if known.trust.settle_reservations() && log_works && known.persisted {
                self.store.persist(object);
            }
        }
    }

    /// A change waits for space; it is stepped when the origin has answered.
    pub(super) fn ask_for_space(&mut self, id: OpId, op: &Op, change: &Change) {
        let object = op.object;
        let known = self.store.known(object);
        let insists = matches!(change, Change::Allocate { .. });
        let edges = match change {
            Change::Zero { offset, len, .. } => Some(edges(*offset, *len, known.state.size)),
            _ => None,
        };
        let need = ranges(change).chain(edges.into_iter().flatten());
        let need: Vec<Bytes> = need.flat_map(|range| lacking(&known.space, range)).collect();
        let ahead = ahead(change, known.state.size).filter(|range| known.space.keeps() && !known.space.has(*range));
        known.space.wish(Wish { op: id, need, ahead, user: op.how.user, insists, alone: false });
        self.origin_space.wants(object);
    }

    /// Asks the origin for what changes wait for, and looks at what it has free if a request waits for that.
    pub(crate) fn pump_space(&mut self) {
        self.unsay();
        for object in self.origin_space.wanted() {
            let Some(known) = self.store.get_mut(object) else {
                self.origin_space.wants_none(object);
                continue;
            };
            if let Some(question) = known.space.question() {
                let crate::space::Question { ranges, user, insists } = question;
                let effect = |ticket| Effect::OriginReserve { ticket, object, ranges, user, insists };
                self.start(Purpose::Space(object), effect);
            } else if !known.space.is_waited_for() {
                self.origin_space.wants_none(object);
            }
        }
        let waiting = self.requests.first_for_room();
        let asker = waiting.and_then(|op| self.requests.get(op)).map(|op| op.object);
        let asker = asker
            .or(self.origin_space.looks_for())
            .filter(|object| self.store.get(*object).is_some_and(|it| it.attached && it.is_file()));
        if let Some(object) = asker
            && let Some(settles) = self.origin_space.counted.begin_look(self.now, waiting.is_some())
        {
            self.start(Purpose::Look, |ticket| Effect::OriginSpace { ticket, object, settles });
        }
    }

    /// The origin said how much it has free.
    pub(crate) fn looked_at_origin(&mut self, outcome: &Outcome) {
        let found = if let Outcome::Free(room) = outcome { Some(*room) } else { None };
        self.origin_space.counted.looked(found);
    }

    /// The origin answered a question.
    pub(crate) fn space_answered(&mut self, object: ObjectId, outcome: Outcome) {
        let known = self.store.known(object);
        match outcome {
            Outcome::Failed(errno) => {
                known.status.note_lost();
                // A refusal may have moved the file's time. It is known again once destage has given the file a stamp.
                known.trust.loses_time();
                known.owes_attributes();
                let refused = known.space.refused();
                self.stats.origin_errors += 1;
                self.destage.note(object);
                if let Some(op) = refused {
                    self.requests.has_outcome(op, Outcome::Failed(errno));
                }
            }
            Outcome::Space(space) => {
                if let Some(stamp) = space.stamp {
                    known.was_seen(stamp);
                }
                let granted = known.space.granted(&space.found, !space.keeps_none);
                if space.counts || space.keeps_none {
                    self.origin_space.counted.count();
                }
                granted.into_iter().for_each(|op| self.requests.has_outcome(op, Outcome::Done));
            }
            _ => unreachable!("a question for space is answered with space"),
        }
        self.origin_space.wants(object);
    }

    /// How a change stands with what is counted of the origin's space.
    pub(super) fn balance(&self, object: ObjectId, change: &Change) -> Balance {
        if !self.origin_space.counted.counts() || !self.store.takes_writes() {
            return Balance::Enough;
        }
        if !self.takes_space(object) || !self.makes_dirty_data(object, change) {
            return Balance::Enough;
        }
        let (after, dirty) = (self.dirty_after(object, change), self.store.sums().dirty_blocks());
        self.origin_space.counted.balance(after, dirty, self.now)
    }

    /// Whether a change leaves data that destage has to write: no cut, no allocation, no zeroing of whole blocks.
    fn makes_dirty_data(&self, object: ObjectId, change: &Change) -> bool {
        let size = self.store.get(object).map_or(0, |known| known.state.size);
        match change {
            Change::Truncate { .. } | Change::Allocate { .. } => false,
            Change::Zero { offset, len, .. } => edges(*offset, *len, size).next().is_some(),
            Change::Write { .. } | Change::Together { .. } => true,
        }
    }

    /// Whether a change adds to dirty data that met a quota on its way to the origin, where only destage meets it.
    fn is_over_quota(&self, object: ObjectId, change: &Change) -> bool {
        let met = self.store.get(object).is_some_and(|known| known.space.is_over_quota() && known.is_dirty());
        met && self.origin_space.counted.counts() && self.store.takes_writes() && self.makes_dirty_data(object, change)
    }

    /// Whether a change that goes to the origin directly leaves what is dirty the space that it was promised.
    pub(super) fn leaves_what_is_promised(&self, object: ObjectId, change: &Change) -> bool {
        let size = self.store.get(object).map_or(0, |known| known.state.size);
        let takes = match change {
            Change::Zero { offset, len, .. } => edges(*offset, *len, size).count() as u64,
            _ => ranges(change).map(|(start, end)| (end - start) / BLOCK_U64).sum(),
        };
        takes == 0
            || !self.takes_space(object)
            || !self.store.takes_writes()
            || self.origin_space.counted.leaves(takes, self.store.sums().dirty_blocks(), self.now)
    }

    /// Whether nobody but the origin can tell whether there is space for a change: it goes there.
    pub(super) fn only_origin_can_tell(&self, op: &Op) -> bool {
        let Work::Change(change) = &op.work else { return false };
        self.origin_space.counted.counts()
            && (self.balance(op.object, change) == Balance::Full || self.quota_fills_pool(op.object, change))
    }

    /// Whether a change would wait for dirty data to go that a quota keeps here, perhaps for good.
    fn quota_fills_pool(&self, object: ObjectId, change: &Change) -> bool {
        let stays = |object: ObjectId| {
            self.store.get(object).is_some_and(|known| known.space.is_over_quota() && known.map().dirty() > 0)
        };
        self.store.takes_writes() && !self.has_room_for_dirt(object, change) && self.destage.noted().any(stays)
    }

    /// Why a change through the log is refused for want of space: it would be whole there or not at all, and only the
    /// origin could take it; or destage finds no space as it is, or meets a quota.
    pub(super) fn refused_for_space(&self, op: &Op, change: &Change) -> Option<Errno> {
        if self.is_over_quota(op.object, change) {
            return self.config.behaviour_for(op.how).log_writes.then_some(Errno::DQUOT);
        }
        let whole = change.needs_the_log() || op.how.handling == Handling::Whole;
        let refused = match self.balance(op.object, change) {
            Balance::Broken => true,
            _ => whole && self.only_origin_can_tell(op),
        };
        (refused && self.config.behaviour_for(op.how).log_writes).then_some(Errno::NOSPC)
    }
}

/// The blocks for which a change needs space at the origin.
fn ranges(change: &Change) -> impl Iterator<Item = Bytes> {
    let (one, pieces) = match change {
        Change::Write { offset, data, .. } => (Some((*offset, offset + data.len() as u64)), None),
        Change::Allocate { offset, len, .. } => (Some((*offset, offset + len)), None),
        Change::Together { pieces, .. } => (None, Some(pieces)),
        Change::Truncate { .. } | Change::Zero { .. } => (None, None),
    };
    let pieces = pieces.into_iter().flat_map(|pieces| pieces.iter());
    let bytes = one.into_iter().chain(pieces.map(|(offset, data)| (*offset, offset + data.len() as u64)));
    bytes.map(|(start, end)| (Block::holding(start).byte(), Block(blocks_for(end)).byte()))
}

/// The blocks of a file of this size of which a part becomes zeros, and the rest stays.
fn edges(offset: u64, len: u64, size: u64) -> impl Iterator<Item = Bytes> {
    let end = offset.saturating_add(len).min(size);
    let block = |at: u64| (Block::holding(at).byte(), Block::holding(at).plus(1).byte());
    let first = (!offset.is_multiple_of(BLOCK_U64)).then(|| block(offset));
    let last = (!end.is_multiple_of(BLOCK_U64) && end < size).then(|| block(end));
    let last = last.filter(|last| first != Some(*last));
    first.into_iter().chain(last).filter(move |_| offset < end)
}

/// The parts of a range that the origin is not known to have.
fn lacking(space: &crate::space::ObjectSpace, (start, end): Bytes) -> Vec<Bytes> {
    if !space.keeps() {
        return vec![(start, end)];
    }
    let mut lacking = Vec::new();
    let mut at = space.next(start, false);
    while at < end {
        let to = space.next(at, true).min(end);
        lacking.push((at, to));
        at = space.next(to, false);
    }
    lacking
}

/// What a write that makes the file longer would like behind it: as much again. One that leaves a hole does not go on
/// from where the file ended, and a first write says nothing of a second.
fn ahead(change: &Change, size: u64) -> Option<Bytes> {
    let Change::Write { offset, data, .. } = change else { return None };
    let end = offset + data.len() as u64;
    let goes_on = *offset <= size && end > size;
    let start = Block(blocks_for(end)).byte();
    let len = Block(blocks_for(size.min(AHEAD_MAX))).byte();
    (goes_on && len > 0).then_some((start, start + len))
}
