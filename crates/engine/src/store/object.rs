//! One object: what is remembered of it, and what is going on with it.

use headpond_base::{Block, Compression, Nanos, Sequence, UnixNanos, blocks_for};
use headpond_format::{Identity, ObjectFlags, ObjectState, Stamp, Witness};
use headpond_map::{ObjectMap, Zeros};

use crate::alternation::Alternation;
use crate::counted::ObjectCounts;
use crate::dropped::Dropped;
use crate::last_name::LastName;
use crate::locks::Locks;
use crate::object_job::ObjectJob;
use crate::origin_size::OriginSize;
use crate::past_pool::PastPool;
use crate::renames::{RenamesSeen, kept_path};
use crate::request::{Attributes, OpenObject};
use crate::space::ObjectSpace;
use crate::stamp_trust::StampTrust;
use crate::status::ObjectStatus;

/// No object is longer: block numbers and checkpoints rely on it.
pub(crate) const OBJECT_BYTES_MAX: u64 = 1 << 52;

/// Bytes that a checkpoint has for an object's path, on average: one that would take more of what is left goes without,
/// and its file is found by inode number.
pub(crate) const PATH_ROOM: u64 = 128;

/// Owned by the engine's store. `state`, `map` and `zeros` are what the log remembers; the rest lives
/// only as long as the engine.
pub(crate) struct Object {
    /// What the sums over all objects have of it.
    pub(in crate::store) counted: ObjectCounts,
    pub(crate) state: ObjectState,
    /// The renames that the path in `state` has seen: see [`crate::store::Store::settle_path`].
    pub(in crate::store) path_seen: RenamesSeen,
    /// Changed by the store alone, which counts what it holds.
    pub(in crate::store) map: ObjectMap,
    /// Blocks of zeros that the origin has not got. None of them has a slot. Changed by the store alone.
    pub(in crate::store) zeros: Zeros,
    /// The log has an entry with this object's state.
    pub(crate) persisted: bool,
    /// Handles that are open.
    pub(crate) opens: u32,
    /// The shard has the origin's file.
    pub(crate) attached: bool,
    /// Requests under way.
    pub(crate) active: u32,
    pub(crate) locks: Locks,
    pub(crate) alternation: Alternation,
    /// When a sequential run last made its writes go to the origin while some of it was dirty.
    pub(crate) switched_at: Option<Nanos>,
    /// Its space at the origin.
    pub(crate) space: ObjectSpace,
    /// The latest status change time that a reservation left at the origin.
    pub(crate) seen_ctime: UnixNanos,
    /// What goes to the origin's file past the pool.
    pub(crate) past: PastPool,
    /// Whether the stamp tells a change by others. Flags in `state` that say the same are of no account: see
    /// [`Object::said`].
    pub(crate) trust: StampTrust,
    /// The size of the origin's file now.
    pub(crate) origin_size: OriginSize,
    /// What its blocks take on flash, in units of 512 bytes.
    pub(crate) stored_units: u64,
    /// How the last request that said so wants it to be packed.
    pub(crate) compression: Option<Compression>,
    /// Blocks of it that are in memory only.
    pub(crate) in_memory: u32,
    /// A replay could bring back blocks of it, even if the map has none.
    pub(crate) traces: bool,
    /// Where a replay brings nothing back.
    pub(crate) dropped: Dropped,
    /// The last entry that changed its size or made blocks of it zeros: destage may not carry
    /// that out before it is durable.
    pub(crate) shaped_at: Sequence,
    /// What destage does with it.
    pub(crate) job: ObjectJob,
    /// How often headpond did what moves the status change time of the origin's file, but for what a job does before
    /// its stamp.
    pub(crate) status_moves: u64,
    /// The stamp has the status change time that the origin's file has now.
    pub(crate) status_known: bool,
    /// Whether the stamp's is the latest that headpond gave it, and what the log says of that.
    pub(crate) status: ObjectStatus,
    /// Size or time changed since the origin was last given them.
    pub(crate) changed_in_stamp: bool,
    /// Whether its file still has a name at the origin.
    pub(crate) name: LastName,
    /// Last change of size or time, so that a busy file is not stamped again and again.
    pub(crate) changed_at: Nanos,
}

impl Object {
    /// An object nobody has heard of before.
    pub(crate) fn new(found: &OpenObject) -> Self {
        let (identity, witness) = (found.identity(), found.witness());
        let new_nameless = found.is_created() && identity.lacks_birth();
        let state = ObjectState {
            identity,
            made_at: if new_nameless { witness.ctime() } else { UnixNanos(0) },
            // Whether a file's name is durable is not known: it may have been made, closed and opened
            // again a moment ago. The first sync makes sure.
            flags: ObjectFlags { unanchored: identity.file().is_some(), ..ObjectFlags::default() },
            size: witness.size(),
            origin_valid: u64::MAX,
            mtime: witness.mtime(),
            ctime: witness.ctime(),
            witness,
            path: kept_path(found.path()),
        };
        let mut object = Self::from_state(state, ObjectMap::default(), Zeros::default());
        object.persisted = false;
        object.traces = false;
        object.status.note_seen();
        object
    }

    /// An object as a scan found it.
    pub(crate) fn from_state(state: ObjectState, map: ObjectMap, zeros: Zeros) -> Self {
        Self {
            counted: ObjectCounts::default(),
            origin_size: OriginSize::Known(state.witness.size()),
            trust: StampTrust::from_flags(state.flags),
            state,
            path_seen: RenamesSeen::default(),
            map,
            zeros,
            persisted: true,
            opens: 0,
            attached: false,
            active: 0,
            locks: Locks::default(),
            alternation: Alternation::default(),
            switched_at: None,
            space: ObjectSpace::default(),
            seen_ctime: UnixNanos(0),
            past: PastPool::default(),
            stored_units: 0,
            compression: None,
            in_memory: 0,
            traces: true,
            dropped: Dropped::default(),
            shaped_at: Sequence(0),
            job: ObjectJob::default(),
            status_moves: 0,
            status_known: false,
            status: ObjectStatus::default(),
            changed_in_stamp: false,
            name: LastName::default(),
            changed_at: Nanos(0),
        }
    }

    /// Its blocks in the pool.
    pub(crate) const fn map(&self) -> &ObjectMap {
        &self.map
    }

    /// Its blocks of zeros that the origin has not got.
    pub(crate) const fn zeros(&self) -> &Zeros {
        &self.zeros
    }

    /// What the log is to say of the object.
    pub(crate) fn said(&self) -> ObjectState {
        ObjectState { flags: self.trust.flags_beside(self.state.flags), ..self.state.clone() }
    }

    pub(crate) const fn attributes(&self) -> Attributes {
        Attributes { size: self.state.size, mtime: self.state.mtime, ctime: self.state.ctime }
    }

    /// The origin's file was seen with this stamp, after a change of its status alone. Looks may be told of in another
    /// order than they were made, and status change times only grow.
    pub(crate) fn was_seen(&mut self, stamp: Stamp) {
        self.seen_ctime = self.seen_ctime.max(stamp.ctime);
        if let Witness::File(left) = self.state.witness {
            self.stamp_with(left);
        }
    }

    /// The origin's file has this stamp, or a later status change time that was seen.
    fn stamp_with(&mut self, stamp: Stamp) {
        self.state.witness = Witness::File(Stamp { ctime: stamp.ctime.max(self.seen_ctime), ..stamp });
    }

    /// headpond does, or has done, what moves the status change time of the origin's file: the stamp's is not known to
    /// be right before the next stamp.
    pub(crate) const fn status_moved(&mut self) {
        self.status_moves += 1;
        self.status_known = false;
    }

    /// Destage has synced the origin's file and left it with this stamp, before which its status had moved so often.
    pub(crate) fn left_with(&mut self, stamp: Stamp, status_moves: u64) {
        self.stamp_with(stamp);
        self.status_known = self.status_moves == status_moves && !self.trust.is_reserving();
        if self.status_moves == status_moves {
            self.status.note_seen();
        }
    }

    /// Nothing that headpond did, or is doing, has given the origin's file a later status change time than the stamp's.
    pub(crate) const fn bounds_status(&self) -> bool {
        self.is_file() && self.status.is_settled() && !self.trust.is_reserving() && self.trust.is_trusted()
    }

    /// The log says of that what is so.
    pub(crate) const fn status_is_said(&self) -> bool {
        self.state.flags.ctime_bounds == self.bounds_status()
    }

    /// Destage is through with the origin's file. Others may be asking for space there.
    pub(crate) const fn origin_is_left(&mut self) {
        self.state.flags.attributes_dirty |= self.trust.leave();
    }

    /// Blocks that the origin lacks. An extent of zeros counts as one, however long it is.
    pub(crate) fn dirty_blocks(&self) -> u64 {
        self.map.dirty() + self.zeros.extents()
    }

    /// Blocks that the pool has, counted alike.
    pub(crate) fn cached_blocks(&self) -> u64 {
        self.map.blocks() + self.zeros.extents()
    }

    /// Whether the pool has a block, or knows it to be zeros: nobody need ask the origin.
    pub(crate) fn has(&self, block: Block) -> bool {
        self.map.get(block).is_some() || self.zeros.has(block)
    }

    /// Whether the origin lacks anything: data, size or time.
    pub(crate) fn is_dirty(&self) -> bool {
        self.data_dirty() || self.state.flags.attributes_dirty
    }

    /// The origin lacks a size or a time that the object has here.
    pub(crate) const fn owes_attributes(&mut self) {
        self.state.flags.attributes_dirty = true;
    }

    /// The file's name is durable at the origin. Returns whether that was not known.
    pub(crate) const fn name_is_durable(&mut self) -> bool {
        std::mem::replace(&mut self.state.flags.unanchored, false)
    }

    /// Whether the origin lacks data or has too much or too little of it, or could in a power cut.
    pub(crate) fn data_dirty(&self) -> bool {
        self.data_dirty_against(self.origin_size.most()) || self.job.has_unsynced_size()
    }

    /// Whether an open file, a request or destage needs it.
    pub(crate) const fn is_in_use(&self) -> bool {
        self.opens > 0 || self.active > 0 || self.job.is_running()
    }

    /// Gone at the origin, and nobody here has it open: nothing is worth writing to it.
    pub(crate) const fn leaving(&self) -> bool {
        self.is_nobodys() && self.active == 0
    }

    /// Gone at the origin, and no program has it open. A request for many files may still name it.
    pub(crate) const fn is_nobodys(&self) -> bool {
        self.name.is_gone() && self.opens == 0
    }

    /// The same for an origin's file of another size.
    pub(crate) fn data_dirty_against(&self, origin_size: u64) -> bool {
        self.dirty_blocks() > 0 || self.state.origin_valid < origin_size || origin_size != self.state.size
    }

    /// Up to here the origin's file counts; beyond, what has no slot is zeros, whether `zeros` has it or not. What a
    /// failed write may have left behind the object's end counts for nothing.
    pub(crate) fn origin_end(&self) -> u64 {
        self.state.origin_valid.min(self.origin_size.most()).min(self.state.size)
    }

    /// The origin says so much of which file it is. At an earlier start it may have told a birth time and none now, or the
    /// other way round.
    pub(crate) fn is_now(&mut self, identity: Identity) {
        self.state.identity = identity;
        if !identity.lacks_birth() {
            // It only stands in for a birth time.
            self.state.made_at = UnixNanos(0);
        }
    }

    /// The origin's file is like this now, and what is here goes over it: bytes that it has
    /// beyond the object's end count for nothing.
    pub(crate) fn meets(&mut self, found: Witness) {
        self.origin_size = OriginSize::Known(found.size());
        if found.size() > self.state.size {
            self.state.origin_valid = self.state.origin_valid.min(self.state.size);
        }
    }

    /// The same of a file that nobody but headpond has changed, as far as can be told.
    pub(crate) fn meets_own(&mut self, found: Witness) {
        self.state.ctime = self.state.ctime_at(found);
        self.meets(found);
    }

    /// The same of a file that is as it was left: whatever its status change time is, only a later one is news from
    /// here on.
    pub(crate) fn note_found(&mut self, found: Witness) {
        self.meets_own(found);
        self.state.witness = found;
        self.status.note_seen();
    }

    /// The first block in `from..to` that holds data which the origin has not got.
    pub(crate) fn first_data(&self, from: u64, to: u64) -> Option<Block> {
        let (first, end) = (Block(blocks_for(from)), Block(blocks_for(to)));
        self.map.range(first, end).find(|(_, slot)| slot.dirty).map(|(block, _)| block)
    }

    /// The next bytes in `from..end` over which nothing goes that is dirty: all reserved, or none. `from` is where such
    /// a range may begin.
    pub(crate) fn next_blank(&self, from: u64, end: u64) -> Option<(u64, u64)> {
        let mut from = from;
        while from < end {
            let block = Block::holding(from);
            if self.map.get(block).is_some_and(|slot| slot.dirty) {
                from = block.plus(1).byte();
                continue;
            }
            let reserved = self.space.is_reserved(block.byte(), block.plus(1).byte());
            let data = self.first_data(block.plus(1).byte(), end).map_or(end, Block::byte);
            let to = data.min(self.space.next(block.byte(), !reserved)).min(end);
            assert!(from < to, "the next range is empty: space of a part of {block:?}");
            return Some((from, to));
        }
        None
    }

    /// The next range of the origin's file that has space and holds nothing.
    pub(crate) fn next_idle(&mut self) -> Option<(u64, u64)> {
        let end = self.state.size.min(self.origin_size.most());
        while let Some((from, to)) = self.space.next_idle(end).filter(|_| self.job.cut().is_none()) {
            let (first, last) = (Block::holding(from), Block::holding(to));
            if self.map.range(first, last).next().is_none() {
                return Some((from, to));
            }
            self.space.not_idle((from, to));
        }
        None
    }

    /// Takes over what the origin says of an object that nobody has dirty.
    pub(crate) fn follow_origin(&mut self, found: Witness) {
        self.state.witness = found;
        self.status_known = false;
        self.status.note_seen();
        self.state.size = found.size();
        self.state.origin_valid = u64::MAX;
        self.state.mtime = found.mtime();
        self.state.ctime = found.ctime();
        self.origin_size = OriginSize::Known(found.size());
    }

    /// An application changed its status then.
    pub(crate) fn has_status_of(&mut self, ctime: UnixNanos) {
        self.state.ctime = self.state.ctime.max(ctime);
    }

    /// An application gave it this modification time, at the time `ctime`.
    pub(crate) fn touch(&mut self, mtime: UnixNanos, ctime: UnixNanos, now: Nanos) {
        self.changed_at = now;
        if self.is_file() {
            self.state.mtime = mtime;
            self.has_status_of(ctime);
            self.owes_attributes();
            self.changed_in_stamp = true;
        }
    }
}
