//! The log, for all outside of the store: they read it, and what they change of it they change here.
//!
//! Invariants:
//! - Every entry is appended by the store. An entry that makes a map differ is appended in the step in which the map
//!   changes.
//! - A segment is emptied only once no map names a block in it.

use headpond_base::{
    Block, Errno, Location, MemberId, Nanos, ObjectId, OwnerNumber, Redundancy, SegmentId, Sequence, Stream, UnixNanos,
};
use headpond_format::{Entry, HostCopies, Member, OBJECT_PATH_MAX, SegmentState};
use headpond_log::{ChosenRow, CommitSide, Durability, FillPolicy, LogIo, MemberSpeed, SecondTail, WriteId};

use crate::locks::Span;
use crate::outbox::Outbox;
use crate::store::Store;

/// The largest number of blocks that an entry names: all of an object.
const ALL_BLOCKS: u64 = 1 << 50;

impl Store {
    /// Says that the log's version of these blocks no longer counts.
    pub(crate) fn say_dropped(&mut self, object: ObjectId, span: Span) {
        self.log.append(&Entry::Drop { object, first: span.first, blocks: span.blocks().min(ALL_BLOCKS) });
    }

    /// Says that the origin has these blocks.
    pub(crate) fn say_clean(&mut self, object: ObjectId, first: Block, blocks: u64) {
        self.log.append(&Entry::Clean { object, first, blocks });
    }

    /// Says an object's new size.
    pub(crate) fn say_size(&mut self, object: ObjectId, size: u64, mtime: UnixNanos) {
        self.log.append(&Entry::Truncate { object, size, mtime });
    }

    /// Makes blocks zeros, and says so.
    pub(crate) fn make_zeros(&mut self, object: ObjectId, first: Block, blocks: u64, mtime: UnixNanos) {
        self.log.append(&Entry::Zero { object, first, blocks, mtime });
        self.zero_range(object, first, first.plus(blocks));
    }

    /// Gives all objects at or below a path their new one. The log gets an entry if it works and the paths fit one.
    pub(crate) fn rename(&mut self, from: &[u8], to: &[u8]) {
        self.rename_paths(from, to);
        if from.len().max(to.len()) <= OBJECT_PATH_MAX && self.takes_writes() {
            self.log.append(&Entry::Rename { from: from.to_vec(), to: to.to_vec() });
        }
    }

    /// Makes sure that what is appended next, entries of so many bytes with so many blocks, lies in one batch.
    pub(crate) fn keep_together(&mut self, entry_bytes: usize, blocks: u32) {
        self.log.together(Stream::Host, entry_bytes, blocks);
    }

    /// What changes append from here on goes into another batch.
    pub(crate) fn close_host_batch(&mut self) {
        self.log.close(Stream::Host);
    }

    /// Leaves all open segments, behind an entry that a replay may begin with.
    pub(crate) fn mark_and_seal(&mut self) {
        self.log.mark();
        self.log.seal_all();
    }

    /// Host batches lie in memory that outlives the process from now on.
    pub(crate) fn survive_in(&mut self, second_tail: SecondTail) {
        self.log.survive_in(second_tail);
    }

    /// What is written from now on says that it is this owner's.
    pub(crate) fn owned_by(&mut self, owner: OwnerNumber) {
        self.log.owned_by(owner);
    }

    /// The host stream may fill at least so many segments at once from now on.
    pub(crate) fn widen(&mut self, host_segments: usize) {
        self.log.widen(host_segments);
    }

    /// How the log fills its segments.
    pub(crate) fn fill(&mut self, filling: FillPolicy) {
        self.log.fill(filling);
    }

    /// Wants what changes appended up to now to be durable everywhere.
    pub(crate) fn want_sync(&mut self) {
        self.want_sync_in(Durability::Everywhere);
    }

    /// The same, durable there.
    pub(crate) fn want_sync_in(&mut self, durability: Durability) {
        self.log.want_sync(durability);
    }

    /// Notes that a request asked for such a sync and found everything durable.
    pub(crate) fn found_durable(&mut self, durability: Durability) {
        self.log.found_durable(durability);
    }

    /// Wants all that was appended up to now to be durable, clean blocks included.
    pub(crate) fn want_sync_of_all(&mut self) {
        self.log.want_sync_of_all();
    }

    /// Wants all to be durable, if something is not and the last time is as long ago as this.
    pub(crate) fn sync_each(&mut self, interval: Nanos, now: Nanos) {
        if self.log.has_unsynced() && now.since(self.sync_asked_at) >= interval {
            self.sync_asked_at = now;
            self.log.want_sync_of_all();
        }
    }

    /// What the log asks of the flash.
    pub(crate) fn take_log_io(&mut self) -> Vec<LogIo> {
        self.log.take_io()
    }

    /// A member has written a batch of the log.
    pub(crate) fn wrote(&mut self, id: WriteId, member: MemberId) {
        self.log.wrote(id, member);
    }

    /// The members of this side have synced what the log wrote.
    pub(crate) fn synced(&mut self, side: CommitSide) {
        self.log.synced(side);
    }

    /// A member refused a write or a sync.
    pub(crate) fn refused(&mut self, member: MemberId, errno: Errno) {
        self.log.refused(member, errno);
    }

    /// A segment is empty: it is free once what said so is durable and no checkpoint needs what it held.
    pub(crate) fn empty_segment(&mut self, segment: SegmentId) {
        let next = self.log.next_sequence();
        self.log.segments_mut().empty(segment, next);
    }

    /// Frees emptied segments that no checkpoint needs: a replay begins at one of these.
    pub(crate) fn release_segments(
        &mut self,
        outbox: &Outbox,
        replay_from: Sequence,
        checkpoint_begun: Option<Sequence>,
    ) {
        let bytes = u64::from(self.log.geometry().segment_bytes);
        self.log.release(replay_from, checkpoint_begun, |slot| outbox.is_reading(slot, bytes));
    }

    /// A checkpoint is begun, which says what the rows are.
    pub(crate) fn checkpoint_begins(&mut self) {
        self.log.checkpoint_begins();
    }

    /// It counts.
    pub(crate) fn checkpoint_counts(&mut self) {
        self.log.checkpoint_counts();
    }

    /// Chooses segments for a row, and the home for its parity.
    pub(crate) fn choose_row(&mut self, narrow: bool, is_free_for_it: impl Fn(SegmentId) -> bool) -> Option<ChosenRow> {
        self.log.choose_row(narrow, is_free_for_it)
    }

    /// The parity of a row is written, and all of the row durable.
    pub(crate) fn add_row(&mut self, chosen: ChosenRow) {
        self.log.add_row(chosen);
    }

    /// No row is made of these.
    pub(crate) fn let_go_of_row(&mut self, chosen: &ChosenRow) {
        self.log.let_go_of_row(chosen);
    }

    /// Host batches get so many copies, from the next segment on.
    pub(crate) fn set_redundancy(&mut self, redundancy: Redundancy) {
        self.log.set_redundancy(redundancy);
    }

    /// That list will never be beside the origin: nothing becomes durable any more.
    pub(crate) fn give_up(&mut self) {
        self.log.give_up();
    }

    /// The list of members without those that were lost is durable, here and at the origin.
    pub(crate) fn go_on_without_lost_members(&mut self) {
        self.log.go_on_without();
    }

    /// Members are not here: nothing is told to be durable before the list without them is.
    pub(crate) fn begins_without_members(&mut self) {
        self.log.hold(Durability::Here);
    }

    /// The superblock that a crash would leave may say that host batches have so many copies.
    pub(crate) fn claim_copies(&mut self, claimed: HostCopies) {
        self.log.claim_copies(claimed);
    }

    /// Whether second copies are made anew.
    pub(crate) const fn restore_copies(&mut self, restores: bool) {
        self.log.restore_copies(restores);
    }

    /// No segment is weak.
    pub(crate) const fn has_no_weak(&mut self) {
        self.log.has_no_weak();
    }

    /// A read of a block found it otherwise in one of its places.
    pub(crate) fn note_differing(&mut self, location: Location) {
        self.log.note_differing(location);
    }

    /// A member has new slots, which are the homes of new segments, or is new itself.
    pub(crate) fn extend_member(&mut self, id: MemberId, member: &Member) {
        self.log.extend(id, member);
        self.ages.extend(self.log.segments().len());
    }

    /// New segments may be opened in the first slots of a member. Returns whether it works.
    pub(crate) fn admit_member(&mut self, member: MemberId, slots: u32) -> bool {
        self.log.admit(member, slots)
    }

    /// How long each member takes: batches go where they are written first.
    pub(crate) fn set_speeds(&mut self, speeds: Vec<MemberSpeed>) {
        self.log.set_speeds(speeds);
    }

    /// New segments are opened on all members but this one.
    pub(crate) fn set_aside(&mut self, member: Option<MemberId>) {
        self.log.set_aside(member);
    }

    /// No segment is opened on a member any more but in its first slots.
    pub(crate) fn empty_member(&mut self, member: MemberId, slots: u32) {
        self.log.empty_member(member, slots);
    }

    /// The number of this member, which is gone, is to be given again.
    pub(crate) fn want_number(&mut self, member: Option<MemberId>) {
        self.log.want_number(member);
    }

    /// A member has so many slots left: those behind hold nothing, and are given back.
    pub(crate) fn give_back(&mut self, member: MemberId, used: u32) {
        self.log.give_back(member, used);
    }

    /// Nothing more is appended in slots that are to be emptied.
    pub(crate) fn leave_closed_slots(&mut self) {
        self.log.leave_closed_slots();
    }

    /// Bytes of all members.
    pub(crate) const fn set_pool_bytes(&mut self, bytes: u64) {
        self.log.set_pool_bytes(bytes);
    }

    /// A member that holds nothing leaves the pool.
    pub(crate) fn let_go_of_member(&mut self, member: MemberId) {
        self.log.let_go_of(member);
    }

    /// Drops the clean blocks of segments that no member here has. If a block of one is dirty: a member that has such,
    /// and how many there are in all.
    ///
    /// If none that counts is missing, such a block was lost with members that the pool went on without, and told as an
    /// error to who read it. It stays one: until it is overwritten or its file removed, reads of it fail.
    pub(crate) fn drop_what_no_member_has(&mut self, missing: bool) -> Option<(MemberId, u64)> {
        let segments = self.log.segments();
        let can_be_read = |id: SegmentId| {
            let first = self.log.geometry().first_location(id);
            segments.keepers(id).next().is_some() || self.log.place_to_read(first, 0).is_some()
        };
        let is_nowhere = |id: SegmentId| segments.get(id).state != SegmentState::Free && !can_be_read(id);
        let nowhere: Vec<bool> = segments.iter().map(|(id, _)| is_nowhere(id)).collect();
        if !nowhere.contains(&true) {
            return None;
        }
        let mut gone: Vec<(ObjectId, Block)> = Vec::new();
        let mut lost: Option<(MemberId, u64)> = None;
        for (object, known) in self.objects.iter() {
            for (block, slot) in known.map().range(Block(0), Block(u64::MAX)) {
                let id = self.segment_of(slot.location);
                if !nowhere[id.0 as usize] || slot.is_blank() {
                    continue;
                }
                if slot.dirty && missing {
                    let member = segments.addresses().home(id).member;
                    lost = Some((member, lost.map_or(1, |(_, blocks)| blocks + 1)));
                } else if !slot.dirty {
                    gone.push((*object, block));
                }
            }
        }
        if lost.is_none() {
            for (object, block) in gone {
                self.clear_slot(object, block);
            }
        }
        lost
    }
}
