//! Which full segment is emptied next.
//!
//! While what is kept or dirty fits, by what a segment gives for its price, and for how long: the share of it that is
//! freed, times its age, by what that costs (the cost-benefit rule of Rosenblum and Ousterhout, 1992). It costs a read
//! of it, a write of what moves on, and for some of what lingers and is dropped a read of the origin, later: of as many
//! as were asked for lately before they went. So a pool that still fills with what nobody has asked for moves more, and
//! lets less of that go, than one in which what lingers is what the policy gave up; and on an origin that answers as
//! soon as flash, nothing is moved for it.
//!
//! Where it does not fit for a while, the oldest segments with the least dirty data go.

use headpond_base::SegmentId;
use headpond_format::{BLOCK_UNITS, SegmentState};
use headpond_policy::OriginCost;

use super::Reclaiming;

/// Moving a block costs as much as this much of the origin's time: flash that is written by reclaim at 128 MB a second
/// would be worth all of it.
const MOVE_NANOS: f64 = 32_000.0;
/// An I/O of the origin is worth so many moved blocks at most.
const READ_MOST: f64 = 256.0;
/// What is thought of blocks that linger before any were seen to go: one of 16 is asked for, as if of so many.
const FIRST: f64 = 256.0;
const FIRST_SHARE: f64 = 1.0 / 16.0;
/// As many as this share of the pool's blocks count, the older ones less.
const REMEMBERED_SHARE: u64 = 16;

/// How it went with blocks that lingered: fading counts of those that were asked for, and of those that were dropped.
pub(super) struct Lingered {
    asked_for: f64,
    dropped: f64,
    most: f64,
}

impl Lingered {
    /// In a pool of so many blocks.
    pub(super) fn new(blocks: u64) -> Self {
        let most = (blocks / REMEMBERED_SHARE) as f64;
        Self { asked_for: FIRST * FIRST_SHARE, dropped: FIRST * (1.0 - FIRST_SHARE), most: most.max(2.0 * FIRST) }
    }

    /// A block was asked for, and does not linger any more.
    pub(super) fn was_asked_for(&mut self) {
        self.asked_for += 1.0;
        self.fade();
    }

    /// A block was dropped.
    pub(super) fn was_dropped(&mut self) {
        self.dropped += 1.0;
        self.fade();
    }

    fn fade(&mut self) {
        if self.asked_for + self.dropped > self.most {
            self.asked_for /= 2.0;
            self.dropped /= 2.0;
        }
    }

    /// What dropping a block is likely to cost, in moved blocks.
    fn price(&self, read: OriginCost) -> f64 {
        let share = self.asked_for / (self.asked_for + self.dropped);
        share * (read.each.0 as f64 / MOVE_NANOS).min(READ_MOST)
    }
}

/// What emptying a segment of `all` units gives for what it costs, if so many of them move on, others linger, at
/// `price` each, and so many segments are younger.
fn worth(all: u32, moved: u32, lingering: u32, price: f64, younger: usize) -> f64 {
    let freed = f64::from(all.saturating_sub(moved)) * (younger as f64 + 1.0);
    freed / (f64::from(all) + f64::from(moved) + f64::from(lingering) * price)
}

impl Reclaiming<'_> {
    /// The full segment to be emptied next, if any is worth it.
    pub(super) fn choose_victim(&self) -> Option<SegmentId> {
        let all = self.store.log().geometry().segment_blocks() * BLOCK_UNITS;
        let mut full: Vec<_> = self
            .store
            .log()
            .segments()
            .iter()
            .filter(|(id, segment)| {
                segment.state == SegmentState::Sealed && segment.under_way == 0 && !self.reclaim.is_on(*id)
            })
            .map(|(id, segment)| (segment.generation, segment.dirty_units, segment.kept_units, id))
            .collect();
        let segment = |id: SegmentId| self.store.log().segments().get(id);
        if let Some((.., id)) = full.iter().find(|(.., id)| segment(*id).live == 0) {
            return Some(*id);
        }
        if self.store.is_short_of_segments() {
            // Only what needs no room itself; rather what nobody keeps.
            let clean = full.iter().filter(|(.., id)| segment(*id).dirty == 0);
            return clean.min_by_key(|(generation, _, kept, _)| (*kept, *generation)).map(|(.., id)| *id);
        }
        if self.moves_in_vain() {
            // Only what gives all its room: what is pinned would move, too.
            let pins = self.keep.pinned_blocks(self.store) > 0;
            let clean = full.iter().filter(|(.., kept, id)| segment(*id).dirty == 0 && !(pins && *kept > 0));
            return clean.min_by_key(|(generation, _, kept, _)| (*kept, *generation)).map(|(.., id)| *id);
        }
        full.sort_unstable();
        if self.store.is_roomy() {
            // What is worth it fits: pack the pool, and drop nothing of that.
            let price = self.reclaim.lingered.price(self.outbox.origin_costs().reads());
            let (mut best, mut found) = (0.0, None);
            for (younger, (_, dirty, kept, id)) in full.iter().rev().enumerate() {
                let moved = dirty + kept;
                let lingering = segment(*id).live_units.min(all).saturating_sub(moved);
                let worth = worth(all, moved, lingering, price, younger);
                if moved < all / 16 * 15 && worth > best {
                    (best, found) = (worth, Some(*id));
                }
            }
            return found;
        }
        let oldest = (full.len() / 4).max(4).min(full.len());
        // What is kept goes in part, but for what is pinned.
        let pins = self.keep.pinned_blocks(self.store) > 0;
        let least = |some: &[(_, u32, u32, SegmentId)]| {
            some.iter().map(|(_, dirty, kept, id)| (dirty + if pins { *kept } else { 0 }, *id)).min()
        };
        let (moved, id) = least(&full[..oldest])?;
        if moved <= all / 2 {
            return Some(id);
        }
        // The old ones are mostly dirty: moving those gains little. Whichever gains most, if any.
        least(&full).filter(|(moved, _)| *moved < all / 8 * 7).map(|(_, id)| id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_base::Nanos;

    const DISK: OriginCost = OriginCost { each: Nanos(8_000_000), mebibyte: Nanos(7_000_000) };
    const FLASH: OriginCost = OriginCost { each: Nanos(80_000), mebibyte: Nanos(1_000_000) };

    /// One of so many was asked for, the others were dropped.
    fn after(blocks: u32, one_in: u32) -> Lingered {
        let mut lingered = Lingered::new(1 << 18);
        for number in 0..blocks {
            if number % one_in == 0 { lingered.was_asked_for() } else { lingered.was_dropped() }
        }
        lingered
    }

    #[test]
    fn what_lingers_is_worth_as_much_as_was_asked_for_lately_of_what_went() {
        let price = |one_in| after(100_000, one_in).price(DISK);
        assert!((price(5) - 50.0).abs() < 1.0 && (price(50) - 5.0).abs() < 0.5, "{} {}", price(5), price(50));
        let mut lingered = after(100_000, 5);
        (0..100_000).for_each(|_| lingered.was_dropped());
        assert!(lingered.price(DISK) < 1.0, "what was is forgotten: {}", lingered.price(DISK));
    }

    #[test]
    fn for_an_origin_that_answers_as_soon_as_flash_hardly_anything_moves() {
        assert!(after(100_000, 5).price(FLASH) < 1.0);
    }

    #[test]
    fn half_dead_segments_are_emptied_before_what_lingers_goes_if_that_is_often_asked_for() {
        let emptied_first = |price| worth(4000, 2000, 0, price, 100) > worth(4000, 200, 3800, price, 500);
        assert!(emptied_first(16.0) && !emptied_first(2.0));
    }

    #[test]
    fn of_two_that_cost_the_same_the_older_goes_and_what_moves_whole_gives_nothing() {
        assert!(worth(4000, 1000, 1000, 8.0, 20) > worth(4000, 1000, 1000, 8.0, 10));
        assert!(worth(4000, 4000, 0, 8.0, 1000) <= 0.0);
    }
}
