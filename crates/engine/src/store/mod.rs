//! The store: the log and the objects' maps, changed together.
//!
//! Invariants:
//! - A segment's `live` and `dirty` counts, those of kept blocks and of each class's, are what walking all maps would
//!   count.
//! - Every change to a map that a crash must not lose is an entry of the log first.
//! - A block has a slot, or is one of an object's zeros, or neither.
//! - Only this folder changes the log, the maps and the sums. Others read them, and ask for changes by name.

mod append;
mod contents;
mod differing;
mod entries;
mod flash_read;
mod memory;
pub(crate) mod object;
pub(crate) mod objects;
mod replay;
mod room;

pub(crate) use contents::{Contents, FOOTER_GUESS};
pub(crate) use flash_read::{ReadBack, Stretch, Unpacked};
pub(crate) use room::{ADMIT_RESERVE, MOVE_RESERVE, PACKED_MOST, WRITE_RESERVE, held_free};

use headpond_base::{
    BLOCK, Block, Buf, BufMut, Class, Compression, Location, Nanos, ObjectId, SegmentId, Sequence, Stream, UnixNanos,
};
use headpond_format::{Entry, Identity};
use headpond_log::{DataRecord, Durability, Log, Segment};
use headpond_map::{Slot, Zeros};

use crate::dirty_age::DirtyAges;
use crate::identities::Identities;
use crate::locks::Span;
use crate::memory_window::MemoryWindow;
use crate::packing::Packing;
use crate::renames::{Followed, Renames, RenamesSeen, kept_path};
use crate::store::object::Object;
use crate::store::objects::Objects;
use crate::sums::Sums;

/// The most blocks without a slot that the policy hears of at once; it finds the others by itself.
const GONE_MAX: usize = 1 << 16;

/// The log, the objects, and the sums over them.
pub(crate) struct Store {
    log: Log,
    objects: Objects,
    /// Renames that not all paths have seen.
    renames: Renames,
    identities: Identities,
    sums: Sums,
    packing: Packing,
    /// A block of zeros.
    zeros: Buf,
    /// Clean blocks that have no slot.
    window: MemoryWindow,
    /// Blocks that have lost their slots, or their place in memory, and the policy has not been told.
    gone: Vec<(ObjectId, Block)>,
    /// Objects that the log has an entry of.
    persisted_objects: u64,
    ages: DirtyAges,
    /// When all was last asked to be durable for its age alone.
    sync_asked_at: Nanos,
}

impl Store {
    pub(crate) fn new(log: Log, next_object: ObjectId) -> Self {
        Self {
            ages: DirtyAges::new(log.segments().len()),
            log,
            objects: Objects::default(),
            renames: Renames::default(),
            identities: Identities::new(next_object),
            sums: Sums::default(),
            packing: Packing::default(),
            zeros: BufMut::zeroed(BLOCK).freeze(),
            window: MemoryWindow::default(),
            gone: Vec::new(),
            persisted_objects: 0,
            sync_asked_at: Nanos(0),
        }
    }

    /// The log, to be read.
    pub(crate) const fn log(&self) -> &Log {
        &self.log
    }

    /// Whether the flash takes writes. Once it does not, nothing is appended any more.
    pub(crate) const fn takes_writes(&self) -> bool {
        self.log.takes_writes()
    }

    /// The objects, to be read.
    pub(crate) const fn objects(&self) -> &Objects {
        &self.objects
    }

    /// What the pool holds in all.
    pub(crate) const fn sums(&self) -> &Sums {
        &self.sums
    }

    /// Which object is which file.
    pub(crate) const fn identities(&self) -> &Identities {
        &self.identities
    }

    /// How records are packed.
    pub(crate) const fn packing(&self) -> &Packing {
        &self.packing
    }

    /// Clean blocks in memory, to be read.
    pub(crate) const fn window(&self) -> &MemoryWindow {
        &self.window
    }

    pub(crate) fn get(&self, object: ObjectId) -> Option<&Object> {
        self.objects.get(&object)
    }

    pub(crate) fn get_mut(&mut self, object: ObjectId) -> Option<&mut Object> {
        self.objects.get_mut(&object)
    }

    /// An object that a request under way keeps alive.
    pub(crate) fn known(&mut self, object: ObjectId) -> &mut Object {
        self.objects.get_mut(&object).expect("an object lives while a request on it is under way")
    }

    /// All objects, to note something at each.
    pub(crate) fn objects_mut(&mut self) -> impl Iterator<Item = &mut Object> {
        self.objects.values_mut()
    }

    /// Counts what changed of objects since the last call.
    pub(crate) fn settle_objects(&mut self) {
        self.objects.settle();
    }

    /// A new object's identifier.
    pub(crate) const fn draw_object(&mut self) -> ObjectId {
        self.identities.draw()
    }

    /// The origin has given an inode number to a new file.
    pub(crate) fn note_inode_reused(&mut self, identity: Identity) {
        self.identities.note_reused(identity);
    }

    /// Says how records are packed: where the settings ask for it, from so many stored units on, and if the format
    /// allows it.
    pub(crate) const fn set_packing(&mut self, compression: Compression, from_units: u64, allowed: bool) {
        self.packing.set(compression, from_units, allowed);
    }

    /// Adds an object with a path that is right now, and with its slots and zeros, and counts them.
    pub(crate) fn adopt(&mut self, id: ObjectId, object: Object) {
        let mut object = object;
        object.path_seen = self.renames.now();
        object.stored_units = 0;
        for (_, slot) in object.map.range(Block(0), Block(u64::MAX)) {
            object.stored_units += u64::from(slot.units());
            self.sums.found(slot);
            count_in_segment(&mut self.log, slot, 1);
        }
        self.sums.zeros_changed(0, object.zeros.extents());
        self.persisted_objects += u64::from(object.persisted);
        self.identities.is(id, object.state.identity);
        self.objects.insert(id, object);
    }

    /// A block's slot.
    pub(crate) fn slot(&self, object: ObjectId, block: Block) -> Option<Slot> {
        self.get(object)?.map.get(block)
    }

    /// The class of a block that has a slot; everybody's of one that has none.
    pub(crate) fn class_of(&self, object: ObjectId, block: Block) -> Class {
        self.slot(object, block).map_or(Class::EVERYBODY, |slot| slot.class)
    }

    /// Says whether a block is worth keeping.
    pub(crate) fn keep(&mut self, object: ObjectId, block: Block, kept: bool) {
        if let Some(slot) = self.slot(object, block).filter(|slot| slot.kept != kept) {
            self.set_slot(object, block, Slot { kept, ..slot });
        }
    }

    /// Says whose share of the pool a block uses.
    pub(crate) fn set_class(&mut self, object: ObjectId, block: Block, class: Class) {
        if let Some(slot) = self.slot(object, block).filter(|slot| slot.class != class) {
            self.set_slot(object, block, Slot { class, ..slot });
        }
    }

    /// Gives a block a slot.
    pub(crate) fn set_slot(&mut self, id: ObjectId, block: Block, slot: Slot) {
        let Some(object) = self.objects.get_mut(&id) else { return };
        let geometry = *self.log.geometry();
        object.traces = true;
        object.dropped.appended(block);
        if !object.zeros.is_empty() {
            change_zeros(object, &mut self.sums, |zeros| zeros.remove(block, block.next()));
        }
        let old = object.map.insert(block, slot);
        self.sums.changed(old, Some(slot));
        object.stored_units += u64::from(slot.units());
        object.stored_units -= u64::from(old.map_or(0, |old| old.units()));
        let segment = geometry.segment_of(slot.location);
        if slot.dirty && self.log.segments().get(segment).dirty == 0 {
            self.ages.begins(segment);
        }
        count_in_segment(&mut self.log, slot, 1);
        if let Some(old) = old {
            self.leaves_segment(old);
        }
    }

    /// Takes a block's slot away.
    pub(crate) fn clear_slot(&mut self, id: ObjectId, block: Block) -> Option<Slot> {
        let object = self.objects.get_mut(&id)?;
        let old = object.map.remove(block)?;
        self.sums.changed(Some(old), None);
        object.stored_units -= u64::from(old.units());
        self.leaves_segment(old);
        if old.kept || old.dirty || old.class != Class::EVERYBODY {
            self.note_gone(id, block);
        }
        Some(old)
    }

    fn leaves_segment(&mut self, old: Slot) {
        count_in_segment(&mut self.log, old, -1);
        if old.dirty {
            self.ages.over(self.segment_of(old.location), old);
        }
    }

    /// Takes all clean slots of an object away.
    pub(crate) fn clear_clean(&mut self, id: ObjectId) {
        let Some(object) = self.objects.get(&id) else { return };
        let all = object.map.range(Block(0), Block(u64::MAX));
        let clean: Vec<Block> = all.filter(|(_, slot)| !slot.dirty).map(|(block, _)| block).collect();
        for block in clean {
            self.clear_slot(id, block);
        }
    }

    /// Takes the slots of `first..end` away, and the zeros.
    pub(crate) fn clear_range(&mut self, id: ObjectId, first: Block, end: Block) {
        let Some(object) = self.objects.get(&id) else { return };
        let blocks: Vec<Block> = object.map.range(first, end).map(|(block, _)| block).collect();
        for block in blocks {
            self.clear_slot(id, block);
        }
        self.change_zeros(id, |zeros| zeros.remove(first, end));
    }

    /// Makes blocks zeros that the origin has not got, also where it has nothing that they hide: so a start that reads
    /// the log finds the same.
    fn zero_range(&mut self, id: ObjectId, first: Block, end: Block) {
        self.clear_range(id, first, end);
        self.change_zeros(id, |zeros| zeros.add(first, end));
        if let Some(object) = self.objects.get_mut(&id) {
            object.traces = true;
        }
    }

    fn change_zeros(&mut self, id: ObjectId, change: impl FnOnce(&mut Zeros)) {
        if let Some(object) = self.objects.get_mut(&id) {
            change_zeros(object, &mut self.sums, change);
        }
    }

    /// Of blocks that have a slot and are zeros, too, the slot counts: of forged pools alone, once the log was
    /// replayed.
    pub(crate) fn part_zeros(&mut self) {
        let with_zeros = self.objects.iter().filter(|(_, object)| !object.zeros.is_empty());
        let both = with_zeros.flat_map(|(id, object)| {
            let extents = object.zeros.within(Block(0), Zeros::END);
            let slots = extents.flat_map(|(first, end)| object.map.range(first, end));
            slots.map(|(block, _)| (*id, block))
        });
        for (id, block) in both.collect::<Vec<_>>() {
            self.change_zeros(id, |zeros| zeros.remove(block, block.next()));
        }
    }

    /// Counts a block as clean.
    pub(crate) fn mark_clean(&mut self, id: ObjectId, block: Block) {
        if let Some(slot) = self.slot(id, block).filter(|slot| slot.dirty) {
            self.set_slot(id, block, Slot { dirty: false, ..slot });
        }
    }

    /// Counts those of `first..end` as clean that are zeros: nothing is known of them any more. Gives them.
    pub(crate) fn mark_zeros_clean(&mut self, id: ObjectId, first: Block, end: Block) -> Vec<(Block, Block)> {
        let Some(object) = self.objects.get(&id) else { return Vec::new() };
        let clean: Vec<_> = object.zeros.within(first, end).collect();
        self.change_zeros(id, |zeros| zeros.remove(first, end));
        clean
    }

    /// Appends the object's state to the log, as it is now.
    pub(crate) fn persist(&mut self, id: ObjectId) {
        self.settle_path(id);
        if let Some(object) = self.objects.get_mut(&id) {
            object.state.flags.ctime_bounds = object.bounds_status();
            let state = object.said();
            self.persisted_objects += u64::from(!object.persisted);
            object.persisted = true;
            object.traces = true;
            self.log.append(&Entry::Object { object: id, state });
            let this = Sequence(self.log.next_sequence().0 - 1);
            object.trust.note_said(this);
            object.status.said(this, object.state.flags.ctime_bounds);
        }
    }

    /// The last entry of the log.
    pub(crate) fn last_entry(&self) -> Sequence {
        Sequence(self.log.next_sequence().0 - 1)
    }

    /// Wants all changes up to now to be durable. Returns the last entry so far.
    pub(crate) fn want_changes_durable(&mut self) -> Sequence {
        let last = self.last_entry();
        if self.log.durable() < last {
            self.log.want_sync(Durability::Everywhere);
        }
        last
    }

    /// Makes sure that the log knows the object and the worth of its status change time before it gets the object's
    /// blocks.
    pub(crate) fn introduce(&mut self, id: ObjectId) {
        if self.objects.get(&id).is_some_and(|object| !object.persisted || !object.status_is_said()) {
            self.persist(id);
        }
    }

    /// All objects at or below a path have their new one.
    fn rename_paths(&mut self, from: &[u8], to: &[u8]) {
        self.renames.add(from, to);
        if self.renames.are_many(self.objects.len()) {
            self.settle_paths();
        }
    }

    /// Brings the paths of all objects up to date.
    pub(crate) fn settle_paths(&mut self) {
        if self.renames.none() {
            return;
        }
        let mut followed = Followed::default();
        for (path, seen) in self.objects.paths_mut() {
            self.renames.follow(path, seen, &mut followed);
        }
        self.renames.forget();
    }

    /// Brings an object's path up to date. To be called before it is read from the object's state.
    pub(crate) fn settle_path(&mut self, id: ObjectId) {
        if let Some(object) = self.objects.get_mut(&id) {
            self.renames.follow(&mut object.state.path, &mut object.path_seen, &mut Followed::default());
        }
    }

    /// An object's path as it is now.
    pub(crate) fn path_of(&self, object: &Object) -> Vec<u8> {
        let (mut path, mut seen) = (object.state.path.clone(), object.path_seen);
        self.renames.follow(&mut path, &mut seen, &mut Followed::default());
        path
    }

    /// What a path has seen that is right now.
    pub(crate) const fn path_now(&self) -> RenamesSeen {
        self.renames.now()
    }

    /// An object was found under this path now.
    pub(crate) fn set_path(&mut self, id: ObjectId, path: &[u8]) {
        if let Some(object) = self.objects.get_mut(&id) {
            object.state.path = kept_path(path);
            object.path_seen = self.renames.now();
        }
    }

    /// The segment of a location.
    pub(crate) fn segment_of(&self, location: Location) -> SegmentId {
        self.log.geometry().segment_of(location)
    }

    /// Removes the object and all that the map has of it.
    pub(crate) fn forget(&mut self, id: ObjectId) {
        self.clear_range(id, Block(0), Block(u64::MAX));
        self.drop_from_memory(id, Span::from_byte(0));
        if let Some(object) = self.objects.remove(&id) {
            self.persisted_objects -= u64::from(object.persisted);
            let said = object.persisted.then(|| self.log.append(&Entry::Forget { object: id }));
            self.identities.let_go(id, &object.state, said, self.log.durable());
        }
    }

    /// Whether a crash may bring back what the log knew of an object before it was told to forget it.
    pub(crate) fn may_come_back(&mut self, identity: Identity) -> bool {
        self.identities.may_come_back(identity, self.log.durable())
    }

    /// Takes the object out of the log, with all blocks of it; it stays known as long as it is used.
    pub(crate) fn unname(&mut self, id: ObjectId) {
        self.clear_range(id, Block(0), Block(u64::MAX));
        if let Some(object) = self.objects.get_mut(&id) {
            object.traces = false;
            object.dropped.clear();
        }
        if self.unpersist(id) {
            let at = self.log.append(&Entry::Forget { object: id });
            if let Some(object) = self.objects.get(&id) {
                self.identities.note_forgotten(object.state.identity, at, self.log.durable());
            }
        }
    }

    /// Counts the object as one that the log does not name; `true` if it did.
    pub(crate) fn unpersist(&mut self, id: ObjectId) -> bool {
        let named = self.objects.get_mut(&id).is_some_and(|object| std::mem::take(&mut object.persisted));
        self.persisted_objects -= u64::from(named);
        named
    }

    /// Dirty blocks that had these slots were appended elsewhere: what they hold is no newer for that.
    pub(crate) fn keep_age(&mut self, from: &[Slot], object: ObjectId, first: Block) {
        let Some(known) = self.objects.get(&object) else { return };
        let geometry = self.log.geometry();
        for ((_, slot), was) in known.map.range(first, first.plus(from.len() as u64)).zip(from) {
            let since = self.ages.since(geometry.segment_of(was.location), *was);
            self.ages.moved_here(geometry.segment_of(slot.location), slot, since);
        }
    }

    /// A use of the pool begins. From its first checkpoint on headpond moves status change times itself, and a crash
    /// says nothing of that. Of what was dirty before, nobody knows since when.
    pub(crate) fn begins_use(&mut self, now: Nanos) {
        for object in self.objects.values_mut() {
            object.status_known = std::mem::take(&mut object.state.flags.ctime_counts);
            object.state.flags.ctime_bounds = object.bounds_status();
        }
        self.ages.start(now);
        self.sync_asked_at = now;
    }

    /// The time, for ages.
    pub(crate) fn advance(&mut self, now: Nanos) {
        self.ages.advance(now);
    }

    /// Objects that the log has an entry of.
    pub(crate) const fn persisted_objects(&self) -> u64 {
        self.persisted_objects
    }

    /// A block of zeros.
    pub(crate) fn zeros(&self) -> Buf {
        self.zeros.clone()
    }

    /// Remembers that a block has lost its slot, or its place in memory, for the policy to be told.
    pub(crate) fn note_gone(&mut self, object: ObjectId, block: Block) {
        if self.gone.len() < GONE_MAX {
            self.gone.push((object, block));
        }
    }

    /// Blocks that have lost their slots, or their places in memory, since the last call.
    pub(crate) fn take_gone(&mut self) -> Vec<(ObjectId, Block)> {
        std::mem::take(&mut self.gone)
    }

    /// When the dirty data of this block was written, at the earliest.
    pub(crate) fn dirty_since(&self, slot: Slot) -> Nanos {
        self.ages.since(self.log.geometry().segment_of(slot.location), slot)
    }

    /// How old the oldest dirty data on flash is, at most.
    pub(crate) fn oldest_dirty_age(&self) -> Nanos {
        self.ages.oldest(self.log.segments().iter().map(|(id, segment)| (id, segment.dirty)))
    }

    /// A record of clean data for a stream.
    pub(crate) const fn clean_record(stream: Stream, object: ObjectId, first: Block, blocks: u32) -> DataRecord {
        DataRecord { stream, object, first, blocks, dirty: false, grown: None, class: Class::EVERYBODY, whole: false }
    }

    /// A record of host data.
    pub(crate) const fn dirty_record(
        object: ObjectId,
        first: Block,
        blocks: u32,
        grown: Option<(u64, UnixNanos)>,
    ) -> DataRecord {
        DataRecord {
            stream: Stream::Host,
            object,
            first,
            blocks,
            dirty: true,
            grown,
            class: Class::EVERYBODY,
            whole: false,
        }
    }
}

/// Changes an object's zeros, and counts what they are then.
fn change_zeros(object: &mut Object, sums: &mut Sums, change: impl FnOnce(&mut Zeros)) {
    let before = object.zeros.extents();
    change(&mut object.zeros);
    sums.zeros_changed(before, object.zeros.extents());
}

/// Counts a slot in its segment; `by` is 1, or -1 for one that is no more.
fn count_in_segment(log: &mut Log, slot: Slot, by: i32) {
    let segment = log.geometry().segment_of(slot.location);
    // The entry that says so is the last one, or the next.
    let until = log.next_sequence().next();
    let segment = log.segments_mut().get_mut(segment);
    count_in(segment, slot, by);
    if slot.dirty && by < 0 {
        segment.dirty_until = until;
    }
}

fn count_in(segment: &mut Segment, slot: Slot, by: i32) {
    let units = by * slot.units().cast_signed();
    let change = |blocks: &mut u32, in_units: &mut u32, what: &str| {
        *blocks =
            blocks.checked_add_signed(by).unwrap_or_else(|| panic!("a segment's {what} blocks are counted exactly"));
        *in_units = in_units
            .checked_add_signed(units)
            .unwrap_or_else(|| panic!("a segment's {what} units are counted exactly"));
    };
    change(&mut segment.live, &mut segment.live_units, "live");
    if slot.dirty {
        change(&mut segment.dirty, &mut segment.dirty_units, "dirty");
    } else if slot.kept {
        change(&mut segment.kept, &mut segment.kept_units, "kept");
    }
}
