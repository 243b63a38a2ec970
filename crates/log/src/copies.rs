//! The members of the log: which have copies of what, and what the loss of one means.
//!
//! Invariants:
//! - A host segment that is opened while two members work has a copy on another member; with members that have copies
//!   only, on each of these, two at most. Each batch goes to all of them, and a sync waits for all.
//! - When a member is lost, no request hears that something is durable until the list without it is: else the lost
//!   member could be believed at the next start, alone. Meanwhile the log goes on.
//! - A segment is *weak* if its dirty blocks have fewer copies than they could have. Reclaim empties it.

use headpond_base::{Errno, Location, MemberId, Redundancy, SegmentId, Stream};
use headpond_format::{Address, HostCopies, Member, SegmentState};
use smallvec::SmallVec;

use crate::log::Log;
use crate::mutation::Mutation;
use crate::rows::ReadFrom;
use crate::sides::Durability;

/// Reads of so many blocks of a segment go to one of its copies, those of the next to the other: 256 KiB.
const READS_SPAN: u64 = 64;

impl Log {
    /// A pool that can open no more segments than this, or pairs of them, has no room for data beside its reserves.
    pub const SEGMENTS_LEAST: usize = 12;

    /// A loss must leave so many segments that can be opened: it seals what is open, so one takes the next entries, and
    /// another those until a checkpoint has freed more.
    pub const LEFT_BY_A_LOSS: usize = 2;

    /// Sets how many members have each host batch, from the next segment on.
    pub fn set_redundancy(&mut self, redundancy: Redundancy) {
        if self.redundancy != redundancy {
            self.may_have_weak |= self.has_had_several_members();
            self.redundancy = redundancy;
            self.leave_lone_segments();
        }
    }

    /// Whether the pool has, or has had, several members.
    #[must_use]
    pub const fn has_had_several_members(&self) -> bool {
        !self.segments.addresses().is_of_one_member()
    }

    /// Host batches go to segments with all copies that they are to have, where the open ones have fewer.
    fn leave_lone_segments(&mut self) {
        if !self.mirrors() {
            return;
        }
        let wanted = self.copies_to_make(self.redundancy);
        let lacks = |id: &SegmentId| !self.copies_of(*id).reach(wanted);
        let lone: Vec<SegmentId> = self.open_of(Stream::Host).filter(lacks).collect();
        if !lone.is_empty() {
            self.close(Stream::Host);
            for open in self.open.take_these(Stream::Host, &lone) {
                self.seal(&open);
            }
        }
    }

    /// The superblock that a crash would leave may say that host batches have so many copies.
    pub fn claim_copies(&mut self, claimed: HostCopies) {
        self.claimed_copies = claimed;
        self.untold_copies = self.untold_copies.filter(|untold| !untold.reach(claimed));
    }

    /// A host segment is opened. If it has fewer copies than a superblock says, nobody hears that what is in it is
    /// durable until another one says so: a start without its members would not know.
    pub(crate) fn note_copies(&mut self, id: SegmentId) {
        let copies = self.copies_of(id);
        self.may_have_weak |= self.mirrors() && !copies.reach(self.copies_to_make(self.redundancy));
        if !copies.reach(self.claimed_copies) && !Mutation::CopiesUntold.is_planted(self.mutation) {
            self.untold_copies = Some(self.untold_copies.map_or(copies, |untold| untold.min(copies)));
            // What such a superblock says of members apart matters to a start without this host.
            let lacks_apart = self.claimed_copies.are_apart();
            self.hold(if lacks_apart { Durability::Everywhere } else { Durability::Here });
        }
    }

    /// Whether a superblock may say more copies of host batches than there are.
    #[must_use]
    pub const fn has_untold_copies(&self) -> bool {
        self.untold_copies.is_some()
    }

    /// How many copies a host segment gets that is opened now, with this redundancy and the one before.
    #[must_use]
    pub fn copies_to_make(&self, redundancy: Redundancy) -> HostCopies {
        if !self.mirrors() || !self.is_to_mirror(redundancy) {
            return HostCopies::ONE;
        }
        let apart = self.segments.apart();
        let members = self.segments.members_apart();
        if self.segments.members_apart().count() > apart {
            // More than a segment can have copies on: nobody knows which get each.
            return HostCopies::of(1 + apart, []);
        }
        HostCopies::of(1 + usize::from(apart == 0), members)
    }

    /// How many copies each host batch has from now on, with this redundancy and the one before.
    #[must_use]
    pub fn host_copies(&self, redundancy: Redundancy) -> HostCopies {
        if !self.mirrors() {
            return HostCopies::ONE;
        }
        let open = self.open_of(Stream::Host).map(|id| self.copies_of(id));
        open.chain(self.untold_copies).fold(self.copies_to_make(redundancy), HostCopies::min)
    }

    /// How many members that work have the bytes of a segment.
    fn copies_of(&self, id: SegmentId) -> HostCopies {
        let keepers = || self.segments.keepers(id).filter(|keeper| self.is_on_working(*keeper));
        let own = keepers().filter(|keeper| !self.segments.lies_apart(*keeper)).count();
        let apart = keepers().filter(|keeper| self.segments.lies_apart(*keeper));
        HostCopies::of(own, apart.map(|keeper| self.segments.addresses().home(keeper).member))
    }

    /// Whether the loss of any member loses no host batch, be it durable or not, and leaves room to go on.
    #[must_use]
    pub fn is_double(&self) -> bool {
        let unsynced = self.buffers.unsynced_places().map(|at| self.geometry.segment_of(at));
        let unsynced = unsynced.filter(|id| self.segments.get(*id).stream == Stream::Host);
        let has_all = |id: SegmentId| self.copies_of(id).reach(self.copies_that_count());
        self.segments.without_any_one() >= Self::SEGMENTS_LEAST
            && self.segments.free_without_any_one(false) >= Self::LEFT_BY_A_LOSS
            && self.open_of(Stream::Host).chain(unsynced).all(has_all)
    }

    /// Whether more segments must become free so that the loss of any member leaves some that can be opened. With copies
    /// apart all that are free may be on one member. `soon`: those that wait for a checkpoint count.
    #[must_use]
    pub fn lacks_room_for_a_loss(&self, soon: bool) -> bool {
        self.mirrors()
            && self.segments.copies_apart()
            && self.segments.without_any_one() >= Self::SEGMENTS_LEAST
            && self.segments.free_without_any_one(soon) < Self::LEFT_BY_A_LOSS
    }

    /// Whether host segments get a copy.
    #[must_use]
    pub fn mirrors(&self) -> bool {
        self.is_to_mirror(self.redundancy)
    }

    /// Whether host segments would get a copy with this redundancy.
    #[must_use]
    pub fn is_to_mirror(&self, redundancy: Redundancy) -> bool {
        redundancy.survives_a_loss() && self.segments.pairs() >= Self::SEGMENTS_LEAST
    }

    /// How many segments could be open or full at once, of whichever stream.
    #[must_use]
    pub fn segments_to_open(&self) -> usize {
        if self.mirrors() { self.segments.pairs() } else { self.segments.usable() }
    }

    /// Whether too few members work for a copy of each host segment, if the pool is to have one.
    #[must_use]
    pub fn lacks_members(&self) -> bool {
        self.redundancy.survives_a_loss() && !self.mirrors()
    }

    /// The most blocks that can hold data: all of the members that take new segments.
    #[must_use]
    pub fn data_blocks(&self) -> u64 {
        self.segments.usable() as u64 * u64::from(self.geometry.segment_blocks() - 1)
    }

    /// The most blocks that can be dirty: those that have a place for each copy that they are to have.
    #[must_use]
    pub fn dirty_blocks(&self) -> u64 {
        self.segments_to_open() as u64 * u64::from(self.geometry.segment_blocks() - 1)
    }

    /// Whether some segment may be weak. It is worth a look at all of them.
    #[must_use]
    pub const fn may_have_weak(&self) -> bool {
        self.may_have_weak
    }

    /// A look found none.
    pub const fn has_no_weak(&mut self) {
        self.may_have_weak = false;
    }

    /// How many segments can be opened now, of whichever stream.
    #[must_use]
    pub fn free_segments(&self) -> usize {
        if self.mirrors() { self.segments.free_pairs() } else { self.segments.free() }
    }

    /// Whether the pool takes writes. Once it does not, nothing new becomes durable.
    #[must_use]
    pub const fn takes_writes(&self) -> bool {
        self.health.takes_writes()
    }

    /// The members that refused nothing.
    #[must_use]
    pub fn working(&self) -> Vec<MemberId> {
        self.health.working()
    }

    /// Whether a member refused nothing.
    #[must_use]
    pub fn works(&self, member: MemberId) -> bool {
        self.health.works(member)
    }

    /// How many members were lost so far: from one loss to the next, a read has the same places in the same order.
    #[must_use]
    pub const fn losses(&self) -> u32 {
        self.health.losses()
    }

    /// Where a read of this location should go, the `attempt`-th, from 0. `None`: no further place is worth a try.
    ///
    /// A place on a member that works comes first, and of those a member that has not only copies: that one is near. Of
    /// two alike each has its turn, so that both members share the reads. What is in a row is read in its home, else out
    /// of the row. A lone place is tried twice.
    ///
    /// # Panics
    /// When the location is in no segment.
    #[must_use]
    pub fn place_to_read(&self, location: Location, attempt: usize) -> Option<ReadFrom> {
        let id = self.geometry.segment_of(location);
        let most = if self.leaves_its_copy(id) { 1 } else { usize::MAX };
        let places = self.segments.places(id, location).take(most);
        let mut places: SmallVec<[Address; 3]> = places.filter(|place| self.health.can_be_read(place.member)).collect();
        let row = || self.rest_of_row(id, location).map(ReadFrom::Row);
        match places[..] {
            [] => row().filter(|_| attempt < 2),
            [first] => match row() {
                None => (attempt < 2).then_some(ReadFrom::Place(first)),
                Some(row) => {
                    let row_first = !self.health.works(first.member) && self.rest_of_row_works(id);
                    let from = if row_first { [row, ReadFrom::Place(first)] } else { [ReadFrom::Place(first), row] };
                    from.into_iter().nth(attempt)
                }
            },
            _ => {
                if location.0 / READS_SPAN % 2 == 1 {
                    places.swap(0, 1);
                }
                places.sort_by_key(|place| {
                    (!self.health.works(place.member), self.segments.has_copies_only(place.member))
                });
                places.get(attempt).copied().map(ReadFrom::Place)
            }
        }
    }

    /// The last attempt at a read of this location, from 0: the second, or one for each of three copies that can be read.
    ///
    /// # Panics
    /// When the location is in no segment.
    #[must_use]
    pub fn last_attempt(&self, location: Location) -> usize {
        if self.place_to_read(location, 2).is_some() { 2 } else { 1 }
    }

    /// The same for a read that must go somewhere: where no place is worth a try, to one that refuses it or has other bytes.
    ///
    /// # Panics
    /// When the location is in no segment.
    #[must_use]
    pub fn address_to_read(&self, location: Location, attempt: usize) -> ReadFrom {
        let refuses = || self.segments.places(self.geometry.segment_of(location), location).next();
        let place = self.place_to_read(location, attempt).or_else(|| refuses().map(ReadFrom::Place));
        place.unwrap_or_else(|| ReadFrom::Place(self.segments.addresses().of(location)))
    }

    /// Records that a member refused a write or a sync, of the log or of another part. Either the pool goes on without
    /// it, and tells nobody that anything is durable before [`Log::go_on_without`]; or it takes no writes any more.
    pub fn refused(&mut self, member: MemberId, errno: Errno) {
        if !self.health.refused(member, errno) || !self.takes_writes() {
            return;
        }
        if self.redundancy == Redundancy::None || !self.host_batches_have_members() {
            self.health.fail();
            return;
        }
        let is_apart = self.segments.has_copies_only(member);
        self.segments.lose(member);
        // What is open is sealed: with no other segment the next entry would have no place. Where nothing is open, at a
        // start, the first checkpoint frees segments before there is an entry.
        let has_no_place = !self.segments.can_open() && !self.open.are_none(Stream::Host);
        if self.segments.usable() < Self::SEGMENTS_LEAST || has_no_place {
            self.health.fail();
            return;
        }
        self.may_have_weak = true;
        if !Mutation::LossUntold.is_planted(self.mutation) {
            self.hold(if is_apart { Durability::Everywhere } else { Durability::Here });
        }
        if !is_apart {
            self.lost_here();
        }
        self.leave_open_segments();
    }

    /// Whether each host batch that is not durable, and each open host segment, has a member that works.
    fn host_batches_have_members(&self) -> bool {
        let has = |id: SegmentId| self.works_somewhere(id);
        let open = self.open_of(Stream::Host);
        let unsynced = self.buffers.unsynced_places().map(|at| self.geometry.segment_of(at));
        let unsynced = unsynced.filter(|id| self.segments.get(*id).stream == Stream::Host);
        !self.health.working().is_empty() && open.chain(unsynced).all(has)
    }

    /// Whether a segment is at home on a member that works.
    pub(crate) fn is_on_working(&self, keeper: SegmentId) -> bool {
        self.health.works(self.segments.addresses().home(keeper).member)
    }

    /// Whether a member that works has the bytes of a segment, or such members have all else of its row.
    #[must_use]
    pub fn works_somewhere(&self, id: SegmentId) -> bool {
        self.segments.keepers(id).any(|keeper| self.is_on_working(keeper)) || self.rest_of_row_works(id)
    }

    /// How many copies make the dirty blocks of a segment safe.
    fn copies_that_count(&self) -> HostCopies {
        let wanted = self.copies_to_make(self.redundancy);
        if wanted.all() > 1 { wanted } else { HostCopies::TWO }
    }

    /// Whether this segment has one copy only, or may have; or lacks one apart.
    fn is_single(&self, id: SegmentId) -> bool {
        let skips = Mutation::RebuildSkips.is_planted(self.mutation);
        let (has, wanted) = (self.copies_of(id), self.copies_that_count());
        let has_all = has.reach(wanted) && !self.segments.get(id).copies_differ && self.copies_would_be_found(id);
        !skips && (!has_all && !self.is_protected_by_row(id) || !has.reach_apart(wanted))
    }

    /// Whether this segment has dirty blocks, or blocks that a start after a crash would find dirty.
    fn has_dirty(&self, id: SegmentId) -> bool {
        let segment = self.segments.get(id);
        segment.dirty > 0 || segment.dirty_until > self.synced_sequence().next() && self.has_unsynced()
    }

    /// Whether dirty blocks in this segment have one copy only, or may have. Blocks that a start after a crash would
    /// find dirty count as well.
    #[must_use]
    pub fn is_exposed(&self, id: SegmentId) -> bool {
        self.has_dirty(id) && self.is_single(id)
    }

    /// Whether this member alone has all dirty blocks, and room to go on without any other. Whether it has each host
    /// batch as well is for a superblock to say.
    #[must_use]
    pub fn is_enough(&self, member: MemberId) -> bool {
        let is_there = |id: SegmentId| {
            self.has_copy_on(id, member) && !self.segments.get(id).copies_differ && self.copies_would_be_found(id)
        };
        self.health.works(member)
            && self.segments.has_room_on(member, Self::SEGMENTS_LEAST, Self::LEFT_BY_A_LOSS)
            && self.segments.iter().all(|(id, _)| !self.has_dirty(id) || is_there(id))
    }

    /// Whether this segment should be emptied, so that its dirty blocks get two copies again, or because its member
    /// shall have none.
    #[must_use]
    pub fn is_weak(&self, id: SegmentId) -> bool {
        let segment = self.segments.get(id);
        let alone = self.mirrors() && segment.dirty > 0 && self.is_single(id) && self.works_somewhere(id);
        segment.state == SegmentState::Sealed && (alone || self.is_leaving(id) || self.holds_number(id))
    }

    /// Whether the number that is wanted cannot be given, as this segment has a slot of the member that had it.
    fn holds_number(&self, id: SegmentId) -> bool {
        self.number_wanted.is_some_and(|member| self.has_slot_of(id, member))
    }

    fn has_slot_of(&self, id: SegmentId, member: MemberId) -> bool {
        self.is_slot_of(id, member) || self.has_copy_on(id, member)
    }

    /// Whether the bytes of a segment are on this member, be it lost or not.
    fn has_copy_on(&self, id: SegmentId, member: MemberId) -> bool {
        self.segments.keepers(id).any(|slot| self.is_slot_of(slot, member))
    }

    fn is_slot_of(&self, slot: SegmentId, member: MemberId) -> bool {
        self.segments.addresses().home(slot).member == member
    }

    /// Whether a segment with slots of this member has something that no member has any more. That is not found by
    /// emptying: each such block is dropped once it is asked for.
    #[must_use]
    pub fn has_unreadable_of(&self, member: MemberId) -> bool {
        let is_dead = |id: SegmentId| self.segments.get(id).live > 0 && !self.works_somewhere(id);
        self.segments.iter().any(|(id, _)| self.has_slot_of(id, member) && is_dead(id))
    }

    /// Whose number, of those that are gone, another member is to have: segments that have slots of it are emptied, so
    /// that it can be given.
    pub fn want_number(&mut self, member: Option<MemberId>) {
        self.number_wanted = member;
        self.may_have_weak |= member.is_some();
    }

    /// Whether what this segment has moves, because a slot of it, or of its row, is to have nothing.
    #[must_use]
    pub fn is_leaving(&self, id: SegmentId) -> bool {
        self.segments.keepers(id).any(|keeper| self.is_to_be_emptied(keeper))
            || self.segments.get(id).dirty > 0 && self.row_is_to_go(id)
    }

    /// Whether the slot where a segment is at home takes no new ones, and its member works: what it has moves.
    pub(crate) fn is_to_be_emptied(&self, keeper: SegmentId) -> bool {
        self.is_on_working(keeper) && !self.segments.is_open_slot(keeper)
    }

    /// A block that one place of its segment has is not what it must be there: the segment is emptied.
    pub fn note_differing(&mut self, location: Location) {
        let id = self.geometry.segment_of(location);
        let has_copy = self.segments.keepers(id).count() > 1 || self.segments.get(id).row.is_some();
        self.segments.get_mut(id).copies_differ |= has_copy;
        self.may_have_weak |= has_copy;
    }

    /// Host batches go to segments with copies on members that work, from now on. What other streams had open on a
    /// lost member is given up: the origin has it.
    fn leave_open_segments(&mut self) {
        self.close(Stream::Host);
        for open in self.open.take_all(Stream::Host) {
            self.seal(&open);
        }
        for stream in [Stream::Hot, Stream::Cold] {
            let lost: Vec<SegmentId> = self.open_of(stream).filter(|id| !self.works_somewhere(*id)).collect();
            for open in self.open.take_these(stream, &lost) {
                self.segments.get_mut(open.id).state = SegmentState::Sealed;
            }
        }
    }

    /// The open segments of a stream.
    fn open_of(&self, stream: Stream) -> impl Iterator<Item = SegmentId> {
        self.open.all().filter(move |open| open.stream == stream).map(|open| open.id)
    }

    /// How many host segments may be filled at once.
    #[must_use]
    pub const fn host_segments(&self) -> usize {
        self.open.at_once(Stream::Host)
    }

    /// The list will never be beside the origin: another host has it. Nothing becomes durable any more.
    pub const fn give_up(&mut self) {
        self.health.fail();
    }

    /// New segments are opened on all members but this one, as long as others have some. What is open there is sealed.
    pub fn set_aside(&mut self, member: Option<MemberId>) {
        self.segments.set_aside(member);
        let is_there = |id: SegmentId| member.is_some_and(|member| self.has_copy_on(id, member));
        let there: Vec<SegmentId> = self.open.all().map(|open| open.id).filter(|id| is_there(*id)).collect();
        self.seal_these(&there);
        self.leave_lone_segments();
    }

    /// Seals these of the open segments.
    fn seal_these(&mut self, ids: &[SegmentId]) {
        if ids.is_empty() {
            return;
        }
        for stream in Stream::ALL {
            self.close(stream);
            for open in self.open.take_these(stream, ids) {
                self.seal(&open);
            }
        }
    }

    /// A member takes no new segments any more but in its first `slots` slots.
    pub fn empty_member(&mut self, member: MemberId, slots: u32) {
        if !self.health.works(member) {
            return;
        }
        self.may_have_weak = true;
        self.segments.admit(member, slots);
        self.leave_closed_slots();
    }

    /// Seals what is open in slots that take no new segments.
    pub fn leave_closed_slots(&mut self) {
        let is_closed = |id: SegmentId| !self.segments.keepers(id).all(|keeper| self.segments.is_open_slot(keeper));
        let closed: Vec<SegmentId> = self.open.all().map(|open| open.id).filter(|id| is_closed(*id)).collect();
        self.may_have_weak |= !closed.is_empty();
        self.seal_these(&closed);
    }

    /// Bytes of all members.
    pub const fn set_pool_bytes(&mut self, bytes: u64) {
        self.geometry.pool_bytes = bytes;
    }

    /// Whether nothing is left of a member that is gone, so that another device may have its number.
    #[must_use]
    pub fn is_spare(&self, member: MemberId) -> bool {
        !self.health.works(member) && self.segments.is_spare(member)
    }

    /// A member has new slots, or is new itself. They are the homes of new segments, which [`Log::admit`] opens to use.
    pub fn extend(&mut self, id: MemberId, member: &Member) {
        if self.is_spare(id) {
            // What another device refused under this number says nothing of this one.
            self.health.remove(id);
        }
        self.health.add(id);
        self.number_wanted = self.number_wanted.filter(|wanted| *wanted != id);
        self.segments.extend(id, member);
        self.geometry.segments = u32::try_from(self.segments.len()).expect("a location bounds it");
    }

    /// A checkpoint with all segments of a member counts: those in its first `slots` slots may be opened.
    ///
    /// Returns whether the member works: on a lost one nothing is opened.
    pub fn admit(&mut self, member: MemberId, slots: u32) -> bool {
        if !self.health.works(member) {
            return false;
        }
        self.may_have_weak |= self.has_had_several_members();
        self.segments.admit(member, slots);
        self.leave_lone_segments();
        true
    }

    /// Whether the slots of a member from `first` on hold no segment that is in use, nor one that waits to be free.
    #[must_use]
    pub fn is_empty(&self, member: MemberId, first: u32) -> bool {
        self.segments.hold_nothing(member, first)
    }

    /// A member has so many slots left: those behind hold nothing, and are given back.
    pub fn give_back(&mut self, member: MemberId, used: u32) {
        self.segments.give_back(member, used);
    }

    /// A member that holds nothing leaves the pool: nothing is written to it any more.
    pub fn let_go_of(&mut self, member: MemberId) {
        self.segments.take_none_on(member);
        self.health.remove(member);
    }
}
