//! Rows of sealed segments with a parity: which there are, and how far each is.
//!
//! ```text
//!  New ── a checkpoint is begun ──> Listed ── it counts ──> Counts ── nothing dirty, or of no use ──> Leaving
//!   │                                                                                                    │
//!   └── the same ──> Gone <── it counts ── Unlisted <── a checkpoint is begun ───────────────────────────┘
//! ```
//!
//! Invariants:
//! - A segment of a row is not released, and the home that has the parity stays lent, until the row is gone: so while a
//!   checkpoint names it that counts, or is being written, no slot of it is written.
//! - Copies of its segments are given up once it counts, and not before.
//! - Once it is gone, nothing more is read out of it; once it counts, nothing more in a copy, but by a scrub. So both end
//!   with the reads that are under way then, however closely others follow.
//! - A segment of a row that was emptied is free, and waits for the row's end.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use headpond_base::{MemberId, SegmentId, Sequence};
use headpond_format::{Address, Layout, ParityRow, SegmentState};

use super::Segments;
use crate::health::Health;
use crate::mutation::Mutation;

/// Rows that are looked at in one go: there may be a thousand, and it is asked often.
const SETTLED_AT_ONCE: usize = 16;

/// Names a row while the pool is in use.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct RowId(u32);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    New,
    Listed,
    Counts,
    Leaving,
    Unlisted,
    /// It ends once no read out of it is under way.
    Gone,
}

/// A row.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) segments: Vec<SegmentId>,
    /// The segment that lends its home to the parity.
    pub(crate) parity: SegmentId,
    stage: Stage,
    /// No segment of it has given up its copy.
    copied: bool,
    /// Dirty units of it that lay once when it was looked at last.
    once: u64,
}

impl Row {
    /// Whether a start would find it, whenever a crash comes.
    pub(crate) const fn is_found(&self) -> bool {
        matches!(self.stage, Stage::Counts | Stage::Leaving | Stage::Unlisted)
    }

    /// Whether no checkpoint names it, nor one that is being written.
    pub(crate) const fn is_new(&self) -> bool {
        matches!(self.stage, Stage::New | Stage::Gone)
    }

    /// Whether a checkpoint names it that counts, and none without it is begun.
    pub(crate) const fn counts(&self) -> bool {
        matches!(self.stage, Stage::Counts)
    }

    /// Whether it stays as it is until something changes.
    pub(crate) const fn stays(&self) -> bool {
        matches!(self.stage, Stage::New | Stage::Listed | Stage::Counts)
    }

    /// Those whose homes have its bytes, with that of the parity.
    pub(crate) fn keepers(&self) -> impl Iterator<Item = SegmentId> + '_ {
        self.segments.iter().copied().chain([self.parity])
    }
}

/// All rows.
#[derive(Debug, Default)]
pub(super) struct Rows {
    rows: BTreeMap<RowId, Row>,
    /// Those that do not simply count: few, and asked for often.
    unsettled: BTreeSet<RowId>,
    given: u32,
    /// Dirty units of all of them that lie once, as of the last looks, and in how many rows.
    once: (u64, usize),
    /// The row that was looked at last.
    looked_at: u32,
    /// A planted bug: copies are given up before a checkpoint says so.
    pub(super) hasty: bool,
    /// A planted bug: segments of rows are released as any others.
    pub(super) forgotten: bool,
}

impl Rows {
    fn unsettled(&self) -> impl Iterator<Item = &Row> {
        self.unsettled.iter().filter_map(|id| self.rows.get(id))
    }

    /// Of those that do not simply count, each gets the stage that comes next, if one does.
    fn step(&mut self, next: impl Fn(RowId, Stage) -> Stage) {
        for id in std::mem::take(&mut self.unsettled) {
            let Some(row) = self.rows.get_mut(&id) else { continue };
            row.stage = next(id, row.stage);
            if row.stage != Stage::Counts {
                self.unsettled.insert(id);
            }
        }
    }
}

/// What is known of the places of a row.
pub(crate) struct RowHealth {
    /// Each is on a member that works, and has what it must have.
    pub(crate) whole: bool,
    /// How many cannot be read.
    pub(crate) unreadable: usize,
}

impl Segments {
    /// Plants a bug.
    pub(crate) fn plant(&mut self, mutation: Option<Mutation>) {
        self.rows.hasty = Mutation::CopiesGoEarly.is_planted(mutation);
        self.rows.forgotten = Mutation::RowOpenedAgain.is_planted(mutation);
    }

    /// The row of a segment.
    pub(crate) fn row_of(&self, id: SegmentId) -> Option<&Row> {
        self.rows.rows.get(&self.get(id).row?)
    }

    /// The segment that lends its home to the parity of this one's row.
    #[must_use]
    pub fn parity_of(&self, id: SegmentId) -> Option<SegmentId> {
        self.row_of(id).map(|row| row.parity)
    }

    /// Of a segment in a row: those whose homes give it back. They are all others of the row, and the parity's.
    #[must_use]
    pub fn row_without(&self, id: SegmentId) -> Option<Vec<SegmentId>> {
        self.row_of(id).map(|row| row.keepers().filter(|keeper| *keeper != id).collect())
    }

    /// The same while something may be read out of the row.
    pub(crate) fn row_to_read(&self, id: SegmentId) -> Option<Vec<SegmentId>> {
        let may_be_read = self.row_of(id).is_some_and(|row| !matches!(row.stage, Stage::Gone));
        self.row_without(id).filter(|_| may_be_read)
    }

    /// How many rows there are.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows.rows.len()
    }

    /// Whether a segment stays in a row, emptied or not, until something changes.
    pub(super) fn is_kept_by_row(&self, id: SegmentId) -> bool {
        self.row_of(id).is_some_and(Row::stays)
    }

    /// Whether a segment must not be released.
    pub(super) fn is_held_by_row(&self, id: SegmentId) -> bool {
        self.get(id).row.is_some() && !self.rows.forgotten
    }

    /// Rows that wait for a checkpoint to be begun, which would free some of their slots.
    #[must_use]
    pub fn rows_for_checkpoint(&self) -> usize {
        self.rows.unsettled().filter(|row| matches!(row.stage, Stage::New | Stage::Leaving)).count()
    }

    /// Slots that rows give back with the next checkpoint, or with the one that is being written. The segments that were
    /// emptied in them are not counted: see [`Segments::waiting`].
    #[must_use]
    pub fn slots_of_rows(&self) -> usize {
        let gives = |row: &Row| match row.stage {
            Stage::New | Stage::Listed => row.segments.len(),
            Stage::Leaving | Stage::Unlisted | Stage::Gone => 1,
            Stage::Counts => 0,
        };
        self.rows.unsettled().map(gives).sum()
    }

    /// How many dirty units lie once, in rows, and in how many rows, as of the last looks at them.
    pub(crate) fn units_once(&self) -> (u64, usize) {
        self.rows.once
    }

    /// Counts what of a row lies once.
    fn note_once(&mut self, id: RowId) {
        let Some(row) = self.rows.rows.get(&id) else { return };
        let segments = || row.segments.iter().map(|id| self.get(*id));
        let lies_once = row.is_found() && segments().all(|segment| segment.lenders.are_none());
        let once = if lies_once { segments().map(|segment| u64::from(segment.dirty_units)).sum() } else { 0 };
        let (units, rows) = self.rows.once;
        let rows = rows - usize::from(row.once > 0) + usize::from(once > 0);
        self.rows.once = (units - row.once + once, rows);
        if let Some(row) = self.rows.rows.get_mut(&id) {
            row.once = once;
        }
    }

    /// The layout of a segment in a row, for a checkpoint that is begun.
    pub(super) fn row_layout(&self, id: SegmentId) -> Option<Layout> {
        let row = self.row_of(id).filter(|row| matches!(row.stage, Stage::Listed | Stage::Counts))?;
        let segments = row.segments.iter().map(|id| (*id, self.addresses.home(*id))).collect();
        Some(Layout::Parity(Box::new(ParityRow { segments, parity: self.addresses.home(row.parity) })))
    }

    /// Takes the home of a free segment for a parity, on another member than these.
    pub(crate) fn lend_to_parity(&mut self, on: MemberId) -> Option<SegmentId> {
        let id = self.free.get_mut(usize::from(on.0))?.pop_front()?;
        self.get_mut(id).lent = true;
        Some(id)
    }

    /// The home of this segment has a parity, or a copy, no more.
    pub(crate) fn take_back_home(&mut self, id: SegmentId) {
        self.get_mut(id).lent = false;
        self.make_free(id);
    }

    /// A row is durable on flash; no checkpoint names it yet.
    pub(crate) fn add_row(&mut self, segments: Vec<SegmentId>, parity: SegmentId) {
        self.insert_row(segments, parity, Stage::New);
    }

    /// A row that the checkpoint names with which the pool was started.
    pub(super) fn adopt_row(&mut self, segments: Vec<SegmentId>, parity: SegmentId) {
        for id in &segments {
            if self.get(*id).state == SegmentState::Free {
                self.waiting.push((*id, Sequence(0)));
            }
        }
        self.insert_row(segments, parity, Stage::Counts);
    }

    fn insert_row(&mut self, segments: Vec<SegmentId>, parity: SegmentId, stage: Stage) {
        let id = RowId(self.rows.given);
        self.rows.given += 1;
        for segment in &segments {
            assert!(self.get(*segment).row.is_none(), "segment {segment} in two rows");
            self.get_mut(*segment).row = Some(id);
        }
        assert!(self.get(parity).lent, "a parity in a home that is not lent");
        if stage != Stage::Counts {
            self.rows.unsettled.insert(id);
        }
        self.rows.rows.insert(id, Row { segments, parity, stage, copied: stage == Stage::New, once: 0 });
    }

    /// A checkpoint is begun: what it says of rows is what they are from here on.
    pub(crate) fn checkpoint_begins(&mut self, members: &Health) {
        let is_whole = |(id, row): (&RowId, &Row)| self.health_of(row, members).whole.then_some(*id);
        let new = self.rows.unsettled.iter().filter_map(|id| Some((id, self.rows.rows.get(id)?)));
        let whole: BTreeSet<RowId> = new.filter_map(is_whole).collect();
        self.rows.step(|id, stage| match stage {
            Stage::New if whole.contains(&id) => Stage::Listed,
            // The copies are what counts.
            Stage::New => Stage::Gone,
            Stage::Leaving => Stage::Unlisted,
            other => other,
        });
    }

    /// It counts.
    pub(crate) fn checkpoint_counts(&mut self) {
        self.rows.step(|_, stage| match stage {
            Stage::Listed => Stage::Counts,
            Stage::Unlisted => Stage::Gone,
            other => other,
        });
    }

    /// Whether some segment of this one's row is damaged in its home.
    pub(super) fn row_differs(&self, id: SegmentId) -> bool {
        self.row_of(id).is_some_and(|row| row.segments.iter().any(|id| self.get(*id).copies_differ))
    }

    /// How the places of a row are.
    pub(crate) fn health_of(&self, row: &Row, members: &Health) -> RowHealth {
        let member = |keeper: SegmentId| self.addresses.home(keeper).member;
        let differs = row.segments.iter().any(|id| self.get(*id).copies_differ);
        RowHealth {
            whole: !differs && row.keepers().all(|keeper| members.works(member(keeper))),
            unreadable: row.keepers().filter(|keeper| !members.can_be_read(member(*keeper))).count(),
        }
    }

    /// Goes on with some rows. Returns the segments whose homes nobody uses any more. `is_read`: whether a read of
    /// something in the slot that begins there is under way.
    pub(crate) fn settle_rows(&mut self, members: &Health, is_read: impl Fn(Address) -> bool) -> Vec<SegmentId> {
        let mut freed = Vec::new();
        for _ in 0..SETTLED_AT_ONCE.min(self.rows.rows.len()) {
            let later = (Bound::Excluded(RowId(self.rows.looked_at)), Bound::Unbounded);
            let next = self.rows.rows.range(later).next().or_else(|| self.rows.rows.iter().next());
            let Some((&id, row)) = next else { break };
            let health = self.health_of(row, members);
            let is_dirty = row.segments.iter().any(|id| self.get(*id).dirty > 0);
            // One that is not whole protects less than the copies do. Two lost places give back nothing.
            let ends = !is_dirty || health.unreadable > 1 || !health.whole && row.copied;
            let stage = match row.stage {
                Stage::New if ends => Stage::Gone,
                Stage::Counts if ends => Stage::Leaving,
                other => other,
            };
            let counts = stage == Stage::Counts || self.rows.hasty && stage == Stage::New;
            self.rows.looked_at = id.0;
            if let Some(row) = self.rows.rows.get_mut(&id) {
                row.stage = stage;
            }
            if stage != Stage::Counts {
                self.rows.unsettled.insert(id);
            }
            if stage == Stage::Gone {
                freed.extend(self.end_row(id, &is_read));
            } else if counts && health.whole {
                freed.extend(self.give_up_copies(id, &is_read));
            }
            self.note_once(id);
        }
        freed
    }

    /// Ends a row, if nothing is being read out of it: each such read is one of the parity, too, until all its parts have
    /// come. Returns who lent a home to that.
    fn end_row(&mut self, id: RowId, is_read: impl Fn(Address) -> bool) -> Option<SegmentId> {
        self.rows.rows.get(&id).filter(|row| !is_read(self.addresses.of_segment(row.parity)))?;
        let Row { segments, parity, once, .. } = self.rows.rows.remove(&id)?;
        self.rows.unsettled.remove(&id);
        self.rows.once = (self.rows.once.0 - once, self.rows.once.1 - usize::from(once > 0));
        segments.iter().for_each(|id| self.get_mut(*id).row = None);
        self.take_back_home(parity);
        Some(parity)
    }

    /// Gives up the copies of a row's segments that nobody reads. Returns who lent their homes.
    fn give_up_copies(&mut self, id: RowId, is_read: impl Fn(Address) -> bool) -> Vec<SegmentId> {
        let Some(row) = self.rows.rows.get_mut(&id) else { return Vec::new() };
        let mut freed = Vec::new();
        for id in &row.segments {
            let lenders = &mut self.table[id.0 as usize].lenders;
            let (read, unread) = lenders.split(|lender| is_read(self.addresses.of_segment(*lender)));
            if !unread.are_none() {
                *lenders = read;
                row.copied = false;
                freed.extend(unread.iter());
            }
        }
        for lender in &freed {
            self.take_back_home(*lender);
        }
        freed
    }
}

#[cfg(test)]
mod tests {
    use headpond_base::{Errno, Generation, Stream};
    use headpond_format::{Addresses, Geometry, Member, MemberName, Members};

    use crate::lenders::Lenders;

    use super::*;
    use crate::segments::Segment;

    const ALL: [MemberId; 3] = [MemberId(0), MemberId(1), MemberId(2)];

    /// Three members of four slots. Segment 0 is mirrored by 9, segment 4 by 1, and both are dirty; 8 has their parity.
    fn with_row() -> Segments {
        let segment_bytes = 2 << 20;
        let geometry = Geometry { segments: 12, ..Geometry::with_segment_bytes(64 << 20, segment_bytes) };
        let member = |name: u8| {
            let bytes = (4 << 20) + 4 * segment_bytes;
            Member::in_use(MemberName([name; 16]), 4, bytes, 4 << 20)
        };
        let members = Members::first(member(1)).with(member(2)).unwrap().0.with(member(3)).unwrap().0;
        let mut table = vec![Segment::new(Generation(0), SegmentState::Free, Stream::Host); 12];
        for (id, copy) in [(0, 9), (4, 1)] {
            table[id] = Segment::new(Generation(1), SegmentState::Sealed, Stream::Host);
            (table[id].live, table[id].dirty) = (5, 5);
            table[id].lenders = Lenders::from_iter([SegmentId(copy)]);
            table[copy as usize].lent = true;
        }
        let addresses = Addresses::of_empty(geometry, &members).unwrap();
        let mut segments = Segments::new(addresses, table, Vec::new(), &ALL.map(|member| (member, 4)), &[]);
        let parity = segments.lend_to_parity(MemberId(2)).unwrap();
        assert_eq!(parity, SegmentId(8));
        segments.add_row(vec![SegmentId(0), SegmentId(4)], parity);
        segments
    }

    fn checkpoint(segments: &mut Segments) {
        segments.checkpoint_begins(&Health::new(&ALL));
        segments.checkpoint_counts();
    }

    fn clean(segments: &mut Segments, id: u32) {
        let segment = segments.get_mut(SegmentId(id));
        (segment.live, segment.dirty) = (0, 0);
        segments.empty(SegmentId(id), Sequence(1));
    }

    fn released(segments: &mut Segments, health: &Health) -> Vec<u32> {
        released_while(segments, health, None)
    }

    /// The same while something in the home of this segment is being read.
    fn released_while(segments: &mut Segments, health: &Health, read: Option<u32>) -> Vec<u32> {
        let read = read.map(|id| segments.addresses().of_segment(SegmentId(id)));
        let mut freed = segments.settle_rows(health, |slot| Some(slot) == read);
        freed.extend(segments.release(Sequence(9), Sequence(9), None));
        freed.iter().map(|id| id.0).collect()
    }

    #[test]
    fn copies_are_given_up_once_a_checkpoint_with_the_row_counts() {
        let (mut segments, health) = (with_row(), Health::new(&ALL));
        assert!(matches!(segments.row(SegmentId(0)).layout, Some(Layout::Mirror(_))));
        assert_eq!(released(&mut segments, &health), [], "no checkpoint names it");
        segments.checkpoint_begins(&health);
        assert!(matches!(segments.row(SegmentId(0)).layout, Some(Layout::Parity(_))));
        assert_eq!(released(&mut segments, &health), [], "it does not count yet");
        segments.checkpoint_counts();
        assert_eq!(released_while(&mut segments, &health, Some(1)), [9], "the copy of the other one is being read");
        // Reads in the homes go on and on, and do not matter.
        segments.get_mut(SegmentId(4)).under_way = 1;
        assert_eq!(released(&mut segments, &health), [1]);
    }

    #[test]
    fn a_row_that_is_over_ends_with_the_reads_out_of_it_however_closely_others_follow() {
        let (mut segments, health) = (with_row(), Health::new(&ALL));
        checkpoint(&mut segments);
        assert_eq!(released(&mut segments, &health), [9, 1]);
        for id in [0, 4] {
            segments.get_mut(SegmentId(id)).dirty = 0;
            segments.get_mut(SegmentId(id)).under_way = 1;
        }
        assert_eq!(released(&mut segments, &health), []);
        assert!(segments.row_to_read(SegmentId(0)).is_some(), "a checkpoint names it still");
        checkpoint(&mut segments);
        assert_eq!(released_while(&mut segments, &health, Some(8)), [], "something is being read out of it");
        assert_eq!(segments.row_to_read(SegmentId(0)), None, "and nothing more is");
        assert_eq!((released(&mut segments, &health), segments.rows()), (vec![8], 0));
    }

    #[test]
    fn what_is_dirty_in_a_row_counts_once_from_when_the_copies_are_gone_until_the_row_is() {
        let (mut segments, health) = (with_row(), Health::new(&ALL));
        (segments.get_mut(SegmentId(0)).dirty_units, segments.get_mut(SegmentId(4)).dirty_units) = (40, 30);
        assert_eq!((released(&mut segments, &health), segments.units_once()), (vec![], (0, 0)));
        assert_eq!((segments.rows_for_checkpoint(), segments.slots_of_rows()), (1, 2));
        checkpoint(&mut segments);
        assert_eq!((released_while(&mut segments, &health, Some(1)), segments.units_once()), (vec![9], (0, 0)));
        assert_eq!((released(&mut segments, &health), segments.units_once()), (vec![1], (70, 1)));
        assert_eq!((segments.rows_for_checkpoint(), segments.slots_of_rows()), (0, 0));
        (segments.get_mut(SegmentId(0)).dirty, segments.get_mut(SegmentId(0)).dirty_units) = (0, 0);
        assert_eq!((released(&mut segments, &health), segments.units_once()), (vec![], (30, 1)));
        (segments.get_mut(SegmentId(4)).dirty, segments.get_mut(SegmentId(4)).dirty_units) = (0, 0);
        released(&mut segments, &health);
        checkpoint(&mut segments);
        assert_eq!((released(&mut segments, &health), segments.units_once()), (vec![8], (0, 0)));
    }

    #[test]
    fn an_emptied_segment_waits_until_a_checkpoint_without_the_row_counts() {
        let (mut segments, health) = (with_row(), Health::new(&ALL));
        checkpoint(&mut segments);
        assert_eq!(released(&mut segments, &health), [9, 1]);
        clean(&mut segments, 0);
        checkpoint(&mut segments);
        assert_eq!(released(&mut segments, &health), [], "the other segment may need the parity");
        assert_eq!(segments.waiting(), 0, "and it is not on its way");
        clean(&mut segments, 4);
        assert_eq!(released(&mut segments, &health), []);
        assert_eq!((segments.waiting(), segments.wait_for_checkpoint(Sequence(9))), (2, 0));
        assert_eq!((segments.rows_for_checkpoint(), segments.slots_of_rows()), (1, 1));
        segments.checkpoint_begins(&health);
        assert_eq!(released(&mut segments, &health), [], "one that names it counts still");
        segments.checkpoint_counts();
        assert_eq!(released(&mut segments, &health), [8, 0, 4]);
        assert_eq!((segments.rows(), segments.free()), (0, 12));
    }

    #[test]
    fn a_row_that_loses_a_member_before_it_counts_is_given_up_and_the_copies_stay() {
        for listed in [false, true] {
            let (mut segments, mut health) = (with_row(), Health::new(&ALL));
            if listed {
                segments.checkpoint_begins(&health);
            }
            health.refused(MemberId(1), Errno::IO);
            assert_eq!(released(&mut segments, &health), if listed { vec![] } else { vec![8] });
            if listed {
                segments.checkpoint_counts();
                assert_eq!(released(&mut segments, &health), []);
                checkpoint(&mut segments);
                assert_eq!(released(&mut segments, &health), [8]);
            }
            assert_eq!(segments.keepers(SegmentId(0)).count(), 2);
        }
    }
}
