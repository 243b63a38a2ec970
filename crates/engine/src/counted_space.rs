//! What is promised on an origin that cannot keep space for a file: dirty blocks are added up against what it has free.
//!
//! Invariant: no change is accepted into the log unless, at the last look,
//!
//! ```text
//! 2 x (dirty blocks + blocks past the pool, not synced) + blocks given since it settled + margin <= blocks free
//! ```
//!
//! Twice, because the file system's own trees may need as much again: an indirect block for each data block in the
//! worst case, copies of leaves where nothing is written in place.
//!
//! There are two kinds of looks. A glance takes the figure as it is. That of btrfs or ZFS has nothing of what was
//! written, not even of what was synced by file, before the next transaction is complete, half a minute later. So what
//! the origin was given counts until a look that settles: it has the file system complete its transaction first. Price:
//! what is in the figure already counts twice, and a write that would not fit for that reason alone waits for the
//! settling.
//!
//! ```text
//! Enough -> accepted    Unknown -> waits for a look    Short -> waits for destage    Full -> goes to the origin itself
//! ```
//!
//! Price: five looks a second while something is written. A write waits for one only where there is no plenty, or if
//! nothing was written for a while.

use headpond_base::{BLOCK_U64, Errno, Nanos};

use crate::effect::Room;

/// A look counts for so long.
const FRESH: Nanos = Nanos(200 * Nanos::MILLISECOND.0);
/// And for so long while twice what is needed is there.
const FRESH_WITH_PLENTY: Nanos = Nanos::SECOND;
/// Who waits for space looks as often as this.
const AGAIN: Nanos = Nanos(50 * Nanos::MILLISECOND.0);
/// What is left to others who write to the origin between two looks, and to errors of its own figure.
const MARGIN_BLOCKS_MAX: u64 = (64 << 20) / BLOCK_U64;
const MARGIN_SHARE: u64 = 16;
/// What a dirty block may need.
const EACH: u64 = 2;

/// Owned by the engine.
#[derive(Default)]
pub(crate) struct CountedSpace {
    counts: bool,
    /// There is dirty data of an earlier use, and nobody has said yet whether it has to be counted.
    unsure: bool,
    look: Option<Look>,
    /// When the look under way was asked for, and whether it settles the figure.
    looking: Option<(Nanos, bool)>,
    wanted: bool,
    /// Blocks that the origin has for good since the last look that settled was asked for: the figure may have them or
    /// not.
    spent: u64,
    /// The same since the look under way was asked for.
    spent_since: u64,
    /// Blocks that went past the pool and are not synced: they are in no figure.
    past: u64,
    /// Destage found no space: others took more than the margin.
    broken: bool,
}

#[derive(Clone, Copy)]
struct Look {
    /// The origin answered.
    answered: bool,
    free: u64,
    blocks: u64,
    at: Nanos,
}

impl Look {
    /// Free blocks, without what is left to others.
    fn left(self) -> u64 {
        self.free.saturating_sub((self.blocks / MARGIN_SHARE).min(MARGIN_BLOCKS_MAX))
    }
}

/// Whether a change fits what the origin has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Balance {
    Enough,
    /// The origin has to be looked at first.
    Unknown,
    /// Not before something is destaged.
    Short,
    /// Nothing is left to be destaged: only the origin itself can tell.
    Full,
    /// Destage gets no space.
    Broken,
}

impl CountedSpace {
    /// There is dirty data of an earlier use.
    pub(crate) const fn have_earlier_ones(&mut self) {
        self.unsure = true;
    }

    /// Whether a look would tell what may go to the origin.
    pub(crate) const fn look(&self) -> bool {
        self.counts || self.unsure
    }

    /// Whether a change at the origin that takes so many blocks there leaves those that are dirty what they were
    /// promised. If not it waits for destage; where nothing is dirty, nobody but the origin has a say.
    pub(crate) fn leaves(&self, blocks: u64, dirty: u64, now: Nanos) -> bool {
        if dirty == 0 || !self.look() || self.look.is_some_and(|look| !look.answered) {
            return true;
        }
        !self.unsure && matches!(self.balance(dirty + blocks, dirty, now), Balance::Enough | Balance::Broken)
    }

    /// There are files for which the origin cannot keep space.
    pub(crate) const fn count(&mut self) {
        self.counts = true;
    }

    /// Whether so many blocks more can be written there that nobody needs: only where there was plenty at the last
    /// look, whenever that was. What is written again where nothing is written in place takes new space.
    pub(crate) fn spare(&self, blocks: u64, dirty: u64) -> bool {
        !self.look()
            || self.look.is_some_and(|look| EACH * (dirty + self.past + blocks) + self.spent <= look.left() / 2)
    }

    /// Whether there are.
    pub(crate) const fn counts(&self) -> bool {
        self.counts
    }

    /// The origin has so many blocks more for good.
    pub(crate) const fn spend(&mut self, blocks: u64) {
        self.spent += blocks;
        self.spent_since += blocks;
    }

    /// So many blocks go past the pool.
    pub(crate) const fn pass(&mut self, blocks: u64) {
        self.past += blocks;
    }

    /// The origin has synced so many of those, or they are gone.
    pub(crate) const fn passed(&mut self, blocks: u64) {
        self.past -= blocks;
        self.spend(blocks);
    }

    /// Destage ended, and why if it failed.
    pub(crate) fn destaged(&mut self, failed: Option<Errno>) {
        self.broken = self.counts && failed.is_some_and(|errno| self.broken || errno.is_no_space());
    }

    /// Whether a change fits that makes so many blocks dirty of those that are so many now.
    pub(crate) fn balance(&self, dirty_after: u64, dirty: u64, now: Nanos) -> Balance {
        if !self.counts {
            return Balance::Enough;
        }
        let Some(look) = self.look else { return Balance::Unknown };
        let age = now.since(look.at);
        let free = look.left();
        let not_there = EACH * (dirty_after + self.past);
        let needed = not_there + self.spent;
        if needed <= free && age < if needed <= free / 2 { FRESH_WITH_PLENTY } else { FRESH } {
            Balance::Enough
        } else if age >= FRESH || self.spent > 0 && (not_there <= free || age >= AGAIN) {
            Balance::Unknown
        } else if self.broken {
            Balance::Broken
        } else if dirty > 0 {
            Balance::Short
        } else {
            Balance::Full
        }
    }

    /// Whether the origin is to be looked at now, for those who wait or those to come, and if so whether its figure is
    /// to be settled: the first one is, and one that is fresh and does not let those in who wait. To be followed by
    /// [`CountedSpace::looked`].
    pub(crate) fn begin_look(&mut self, now: Nanos, waiting: bool) -> Option<bool> {
        let age = self.look.map(|look| now.since(look.at));
        let is_old = age.is_none_or(|age| age >= FRESH);
        let settles = waiting && age.is_none_or(|age| age < FRESH && self.spent > 0 && age >= AGAIN);
        if !self.look() || self.looking.is_some() || !(settles || is_old && (waiting || self.wanted)) {
            return None;
        }
        self.looking = Some((now, settles));
        self.spent_since = 0;
        Some(settles)
    }

    /// Something was accepted: the next should not have to wait for a look.
    pub(crate) const fn want(&mut self) {
        self.wanted = self.look();
    }

    /// What the origin said. `None`: nothing.
    pub(crate) fn looked(&mut self, found: Option<Room>) {
        let Some((at, settles)) = self.looking.take() else { return };
        self.unsure = false;
        self.counts |= found.is_some_and(|room| room.counts);
        let (free, bytes) = found.map_or((0, 0), |room| (room.free, room.bytes));
        self.look = Some(Look { answered: found.is_some(), free: free / BLOCK_U64, blocks: bytes / BLOCK_U64, at });
        if settles && found.is_some() {
            self.spent = self.spent_since;
        }
        self.wanted = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = Nanos::MILLISECOND.0;

    fn room(free_blocks: u64) -> Room {
        Room { free: free_blocks * BLOCK_U64, bytes: 1000 * BLOCK_U64, counts: true }
    }

    fn looked_at(free_blocks: u64, at: Nanos) -> CountedSpace {
        let mut counted = CountedSpace { counts: true, ..CountedSpace::default() };
        assert_eq!(counted.begin_look(at, true), Some(true));
        counted.looked(Some(room(free_blocks)));
        counted
    }

    #[test]
    fn a_block_counts_twice_and_a_sixteenth_is_left_to_others() {
        let counted = looked_at(262, Nanos(0));
        assert_eq!(counted.balance(100, 99, Nanos(1)), Balance::Enough);
        assert_eq!(counted.balance(101, 100, Nanos(1)), Balance::Short);
        assert_eq!(counted.balance(101, 0, Nanos(1)), Balance::Full);
    }

    #[test]
    fn what_became_clean_counts_until_a_look_that_was_asked_for_after_it() {
        let mut counted = looked_at(262, Nanos(0));
        counted.spend(50);
        assert_eq!(counted.balance(101, 0, Nanos(1)), Balance::Full);
        assert_eq!(counted.balance(76, 0, Nanos(1)), Balance::Unknown);
        assert_eq!(counted.begin_look(Nanos(60 * MS), true), Some(true));
        counted.spend(10);
        counted.looked(Some(room(212)));
        assert_eq!(counted.balance(70, 0, Nanos(61 * MS)), Balance::Enough);
        assert_eq!(counted.balance(71, 0, Nanos(61 * MS)), Balance::Unknown);
        assert_eq!(counted.balance(76, 0, Nanos(61 * MS)), Balance::Full);
    }

    /// The figure of btrfs has nothing of what was written before its transaction is complete.
    #[test]
    fn what_the_origin_was_given_counts_until_a_look_that_settles_the_figure() {
        let mut counted = looked_at(262, Nanos(0));
        counted.spend(50);
        assert_eq!(counted.begin_look(Nanos(250 * MS), true), Some(false));
        counted.looked(Some(room(262)));
        assert_eq!(counted.balance(75, 0, Nanos(251 * MS)), Balance::Enough);
        assert_eq!(counted.balance(76, 0, Nanos(251 * MS)), Balance::Unknown);
        assert_eq!(counted.begin_look(Nanos(260 * MS), true), None, "not more often than that");
        assert_eq!(counted.begin_look(Nanos(310 * MS), true), Some(true));
        counted.looked(Some(room(212)));
        assert_eq!(counted.balance(75, 0, Nanos(311 * MS)), Balance::Enough);
        assert_eq!(counted.balance(76, 0, Nanos(311 * MS)), Balance::Full);
    }

    #[test]
    fn an_old_look_counts_only_where_there_is_plenty() {
        let counted = looked_at(462, Nanos(0));
        assert_eq!(counted.balance(100, 0, Nanos(900 * MS)), Balance::Enough);
        assert_eq!(counted.balance(101, 0, Nanos(900 * MS)), Balance::Unknown);
        assert_eq!(counted.balance(1, 0, Nanos(1000 * MS)), Balance::Unknown);
    }

    #[test]
    fn what_goes_to_the_origin_itself_leaves_what_is_dirty_its_space() {
        let counted = looked_at(262, Nanos(0));
        assert!(counted.leaves(50, 50, Nanos(1)) && !counted.leaves(51, 50, Nanos(1)));
        assert!(counted.leaves(1000, 0, Nanos(1)), "the origin has the last word");
        let mut unsure = CountedSpace::default();
        assert!(unsure.leaves(1000, 1, Nanos(0)));
        unsure.have_earlier_ones();
        assert!(!unsure.leaves(1, 1, Nanos(0)));
        assert_eq!(unsure.begin_look(Nanos(0), true), Some(true));
        unsure.looked(Some(Room { counts: false, ..room(0) }));
        assert!(unsure.leaves(1000, 1, Nanos(1)), "it keeps what it was asked for");
    }

    #[test]
    fn an_origin_that_keeps_space_is_not_counted() {
        assert_eq!(CountedSpace::default().balance(u64::MAX / 4, 0, Nanos(0)), Balance::Enough);
    }
}
