//! What rows with a parity mean for the log: of which segments one can be made, what it protects, and what is read of
//! it.
//!
//! Invariants:
//! - Nothing that is open, or not durable, is in a row.
//! - A row protects its segments only while a start would find it, each of its places is on a member that works, and
//!   none was found damaged.

use headpond_base::{Location, MemberId, Redundancy, SegmentId, Stream};
use headpond_format::{Address, BLOCK_UNITS, PLACES_MAX, SegmentState};

use crate::log::Log;
use crate::mutation::Mutation;
use crate::segments::Segment;

/// At least one in so many units of a segment must be dirty for it to be worth a place in a row.
const DIRTY_SHARE: u32 = 16;

/// Where something is read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReadFrom {
    /// There.
    Place(Address),
    /// Out of the same bytes of all others of a row: what is wanted is their combination.
    Row(Vec<Address>),
}

/// Segments of which a row is to be made, and the one that lends its home to their parity.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChosenRow {
    /// On a member each.
    pub segments: Vec<SegmentId>,
    /// On another one.
    pub parity: SegmentId,
}

impl Log {
    /// Whether rows with a parity are to be made, as far as members and settings go.
    #[must_use]
    pub fn makes_rows(&self) -> bool {
        self.wants_rows() && self.mirrors() && self.members_for_rows().count() > 2
    }

    /// Whether the settings ask for rows. None are made while members with copies only work: a row would take away what
    /// they are there for.
    fn wants_rows(&self) -> bool {
        self.redundancy == Redundancy::Parity && !self.segments.copies_apart()
    }

    fn members_for_rows(&self) -> impl Iterator<Item = MemberId> {
        self.health
            .working()
            .into_iter()
            .filter(|member| self.segments.takes_new(*member) && !self.segments.is_aside(*member))
    }

    /// Chooses segments for a row, and takes the home for its parity. `narrow`: it may have fewer segments than there
    /// are members for it.
    pub fn choose_row(&mut self, narrow: bool, is_free_for_it: impl Fn(SegmentId) -> bool) -> Option<ChosenRow> {
        let members: Vec<MemberId> = self.members_for_rows().collect();
        let mut best: Vec<(u32, MemberId, SegmentId)> = Vec::new();
        for (id, segment) in self.segments.iter() {
            if !self.is_ripe(id, segment) || !is_free_for_it(id) {
                continue;
            }
            let member = self.segments.addresses().home(id).member;
            match best.iter_mut().find(|(_, other, _)| *other == member) {
                Some(known) if known.0 < segment.dirty_units => *known = (segment.dirty_units, member, id),
                Some(_) => {}
                None => best.push((segment.dirty_units, member, id)),
            }
        }
        best.sort_unstable_by_key(|(dirty, ..)| std::cmp::Reverse(*dirty));
        let most = (members.len() - 1).min(PLACES_MAX - 1);
        let width = |parity: MemberId| best.iter().filter(|(_, member, _)| *member != parity).count().min(most);
        let with_room = members.iter().filter(|member| self.segments.free_on(**member) > 0);
        let parity = with_room.max_by_key(|member| (width(**member), self.segments.free_on(**member)))?;
        let segments: Vec<SegmentId> =
            best.iter().filter(|(_, member, _)| member != parity).take(most).map(|(.., id)| *id).collect();
        if segments.len() < 2 || segments.len() < most && !narrow {
            return None;
        }
        let parity = self.segments.lend_to_parity(*parity)?;
        Some(ChosenRow { segments, parity })
    }

    /// Whether a segment can be in a row, and is worth it.
    fn is_ripe(&self, id: SegmentId, segment: &Segment) -> bool {
        self.may_be_in_row(id, segment) && segment.dirty_units * DIRTY_SHARE >= self.segment_units()
    }

    const fn segment_units(&self) -> u32 {
        self.geometry.segment_blocks() * BLOCK_UNITS
    }

    fn may_be_in_row(&self, id: SegmentId, segment: &Segment) -> bool {
        segment.state == SegmentState::Sealed
            && segment.stream == Stream::Host
            && segment.row.is_none()
            && segment.home
            && !segment.copies_differ
            && self.segments.keepers(id).count() > 1
            && self.segments.keepers(id).all(|keeper| self.segments.is_open_slot(keeper) && self.is_on_working(keeper))
            && segment.last_sequence <= self.synced_sequence()
            && !self.is_being_written(id)
    }

    /// Whether a row can still be made of these.
    #[must_use]
    pub fn may_be_row(&self, chosen: &ChosenRow) -> bool {
        let fits = |id: &SegmentId| self.may_be_in_row(*id, self.segments.get(*id));
        self.wants_rows()
            && chosen.segments.iter().all(fits)
            && self.is_on_working(chosen.parity)
            && self.segments.is_open_slot(chosen.parity)
    }

    /// The parity is written, and all of the row durable.
    ///
    /// # Panics
    /// When [`Log::may_be_row`] says no.
    pub fn add_row(&mut self, chosen: ChosenRow) {
        assert!(self.may_be_row(&chosen), "a row of segments that cannot be in one");
        self.segments.add_row(chosen.segments, chosen.parity);
    }

    /// No row is made, and nothing is written to the home of its parity any more.
    pub fn let_go_of_row(&mut self, chosen: &ChosenRow) {
        self.segments.take_back_home(chosen.parity);
    }

    /// Whether reads of this segment go to its home alone: its row counts, and the copy is about to be given up.
    pub(crate) fn leaves_its_copy(&self, id: SegmentId) -> bool {
        let has_copies = !self.segments.get(id).lenders.are_none();
        let row = self.segments.row_of(id).filter(|row| has_copies && row.counts());
        row.is_some_and(|row| self.segments.health_of(row, &self.health).whole)
    }

    /// Goes on with some rows. Returns the segments whose homes nobody uses any more.
    pub(crate) fn settle_rows(&mut self, is_read: impl Fn(Address) -> bool) -> Vec<SegmentId> {
        self.segments.settle_rows(&self.health, is_read)
    }

    /// Whether the loss of any one member leaves what is in this segment, for the row that it is in.
    pub(crate) fn is_protected_by_row(&self, id: SegmentId) -> bool {
        let row = self.segments.row_of(id).filter(|row| row.is_found());
        let skips = Mutation::RebuildSkipsRows.is_planted(self.mutation);
        row.is_some_and(|row| skips || self.segments.health_of(row, &self.health).whole)
    }

    /// Whether a start would find the copies of this segment, if it has some: not once a checkpoint says that it is in a
    /// row.
    pub(crate) fn copies_would_be_found(&self, id: SegmentId) -> bool {
        let row = self.segments.row_of(id).filter(|row| !row.is_new());
        row.is_none_or(|row| !row.is_found() && self.segments.health_of(row, &self.health).whole)
    }

    /// A checkpoint is begun: what it says of rows is what they are from here on.
    pub fn checkpoint_begins(&mut self) {
        self.segments.checkpoint_begins(&self.health);
    }

    /// It counts.
    pub fn checkpoint_counts(&mut self) {
        self.segments.checkpoint_counts();
        // The copies of a row that lost a place meanwhile count no more.
        self.may_have_weak |= self.segments.rows() > 0;
    }

    /// Whether all else of a segment's row is on members that work.
    #[must_use]
    pub fn rest_of_row_works(&self, id: SegmentId) -> bool {
        let rest = self.segments.row_to_read(id);
        rest.is_some_and(|rest| rest.iter().all(|keeper| self.is_on_working(*keeper)))
    }

    /// The places of a location in all else of its segment's row, if they can be read.
    pub(crate) fn rest_of_row(&self, id: SegmentId, location: Location) -> Option<Vec<Address>> {
        let rest = self.segments.row_to_read(id)?;
        let can_be_read = |keeper: &SegmentId| self.health.can_be_read(self.segments.addresses().home(*keeper).member);
        let at = |keeper: &SegmentId| self.segments.addresses().within(*keeper, location);
        rest.iter().all(can_be_read).then(|| rest.iter().map(at).collect())
    }

    /// Whether slots of a segment's row are to be emptied.
    pub(crate) fn row_is_to_go(&self, id: SegmentId) -> bool {
        self.segments.row_of(id).is_some_and(|row| row.keepers().any(|keeper| self.is_to_be_emptied(keeper)))
    }

    /// What moves if the slots of this segment are to be free, in units: dirty, and kept. In a row that is what moves of
    /// all of it, for each pair of slots.
    #[must_use]
    pub fn units_to_move(&self, id: SegmentId) -> (u32, u32) {
        let segment = self.segments.get(id);
        let Some(row) = self.segments.row_of(id).filter(|row| row.stays()) else {
            return (segment.dirty_units, segment.kept_units);
        };
        let slots = row.segments.len() as u32 + 1;
        let of_all =
            |units: fn(&Segment) -> u32| row.segments.iter().map(|id| units(self.segments.get(*id))).sum::<u32>();
        let of_pair = |units: u32| (2 * units).div_ceil(slots);
        (of_pair(of_all(|segment| segment.dirty_units)), of_pair(of_all(|segment| segment.kept_units)))
    }

    /// How many units of flash rows save, compared with a second copy of all that is dirty in them.
    #[must_use]
    pub fn units_saved_by_rows(&self) -> u64 {
        let (once, rows) = self.segments.units_once();
        once.saturating_sub(rows as u64 * u64::from(self.segment_units()))
    }

    /// Whether another segment of this one's row was emptied.
    #[must_use]
    pub fn is_in_begun_row(&self, id: SegmentId) -> bool {
        let is_empty = |id: &SegmentId| self.segments.get(*id).state == SegmentState::Free;
        self.segments.row_of(id).is_some_and(|row| row.stays() && row.segments.iter().any(is_empty))
    }

    /// Whether reads of this location come out of a row alone.
    #[must_use]
    pub fn is_read_out_of_row(&self, location: Location) -> bool {
        matches!(self.place_to_read(location, 0), Some(ReadFrom::Row(_)))
    }
}
