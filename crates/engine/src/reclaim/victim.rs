//! Which full segment is emptied next.
//!
//! What lingers in a segment moves on or is dropped. While what is kept or dirty fits, that is a question of price.
//! Emptying a segment costs a read of it, a write of what moves on, and for some of what is dropped a read of the
//! origin, later: of as many as were asked for lately before they went. On an origin that answers as soon as flash,
//! nothing is moved for it.
//!
//! - A segment is *packed*, and all that lives in it moves, if that frees a block for less than dropping does. Among
//!   those, the one that gives most for its price, and for how long: what is freed, times its age, by the cost (the
//!   cost-benefit rule of Rosenblum and Ousterhout, 1992).
//! - Else what lingers is dropped, in the segment that gives most by the same rule.
//!
//! The age must not decide between the two: what lingers is mostly older than what was overwritten, so it would go
//! before any dead room. A dropped block has a highest price, so what moves has a bound, too.
//!
//! Where it does not fit for a while, the oldest segments with the least dirty data go.

use headpond_base::SegmentId;
use headpond_format::{BLOCK_UNITS, SegmentState};
use headpond_policy::OriginCost;

use super::Reclaiming;

/// Moving a block costs as much as this much of the origin's time: flash that is written by reclaim at 128 MB a second
/// would be worth all of it.
const MOVE_NANOS: f64 = 32_000.0;
/// Dropping a block costs as much as moving so many, at most: a segment is packed only if more than a fifth of it is
/// dead. So for each block that is freed four move, at worst.
const PRICE_MOST: f64 = 8.0;
/// If more of a segment moves, emptying it gives next to nothing.
const MOVED_MOST: f64 = 15.0 / 16.0;
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
        (share * read.each.0 as f64 / MOVE_NANOS).min(PRICE_MOST)
    }
}

/// The segment to be emptied next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Choice {
    pub(super) segment: SegmentId,
    /// What lingers in it moves on rather than be dropped.
    pub(super) packs: bool,
}

impl Choice {
    const fn dropping(segment: SegmentId) -> Self {
        Self { segment, packs: false }
    }
}

/// A segment that could be emptied. Sizes are in units.
#[derive(Clone, Copy)]
struct Candidate {
    segment: SegmentId,
    all: u32,
    /// What moves on in any case.
    moved: u32,
    lingering: u32,
    /// 1 for the youngest.
    age: u32,
}

impl Candidate {
    /// What it gives for what it costs if what lingers moves on; none if that is next to nothing.
    fn packed(&self) -> Option<f64> {
        gain(self.all, self.moved + self.lingering, 0.0)
    }

    /// The same if what lingers is dropped, at `price` a block.
    fn dropped(&self, price: f64) -> Option<f64> {
        gain(self.all, self.moved, f64::from(self.lingering) * price)
    }

    /// What counts of such a gain among several.
    fn lasting(&self, gain: f64) -> f64 {
        gain * f64::from(self.age)
    }
}

/// What emptying a segment of `all` units gives for its price, if so many of them move on and `lost` is paid beside;
/// none if that is next to nothing.
fn gain(all: u32, moved: u32, lost: f64) -> Option<f64> {
    let (all, moved) = (f64::from(all), f64::from(moved));
    (moved < all * MOVED_MOST).then(|| (all - moved) / (all + moved + lost))
}

/// Which of these is emptied for the least, if any gives enough.
fn cheapest(candidates: &[Candidate], price: f64) -> Option<Choice> {
    let best = |gain: &dyn Fn(&Candidate) -> Option<f64>| {
        let gains = candidates.iter().filter_map(|one| Some((one, gain(one)?)));
        gains.max_by(|(one, gain), (other, more)| one.lasting(*gain).total_cmp(&other.lasting(*more)))
    };
    let dropping = best(&|one| one.dropped(price).filter(|_| one.lingering > 0));
    let least = dropping.map_or(0.0, |(_, gain)| gain);
    let packing = best(&|one| one.packed().filter(|gain| *gain > least));
    let packing = packing.map(|(one, _)| Choice { segment: one.segment, packs: true });
    packing.or(dropping.map(|(one, _)| Choice::dropping(one.segment)))
}

impl Reclaiming<'_> {
    /// The full segment to be emptied next, if any is worth it.
    pub(super) fn choose_victim(&self) -> Option<Choice> {
        let all = self.store.log().geometry().segment_blocks() * BLOCK_UNITS;
        let mut full: Vec<_> = self
            .store
            .log()
            .segments()
            .iter()
            .filter(|(id, segment)| {
                segment.state == SegmentState::Sealed
                    && segment.under_way == 0
                    && !self.reclaim.is_on(*id, segment.dirty)
                    && (segment.live == 0 || self.store.log().works_somewhere(*id))
            })
            .map(|(id, segment)| {
                let (dirty, kept) = self.store.log().units_to_move(id);
                (segment.generation, dirty, kept, id)
            })
            .collect();
        let log = self.store.log();
        let lacks_pairs = log.mirrors() && log.free_segments() < self.store.free_wanted();
        let mut for_a_loss = self.makes_room_for_a_loss();
        let segments = log.segments();
        let segment = |id: SegmentId| segments.get(id);
        if let Some((.., id)) = full.iter().find(|(.., id)| segment(*id).live == 0) {
            return Some(Choice::dropping(*id));
        }
        if lacks_pairs || for_a_loss {
            let is_scarce = |id: SegmentId| {
                lacks_pairs && segments.makes_for_a_pair(id) || for_a_loss && segments.is_on_a_scarce_member(id)
            };
            let scarce: Vec<_> = full.iter().copied().filter(|(.., id)| is_scarce(*id)).collect();
            for_a_loss &= !scarce.is_empty();
            if !scarce.is_empty() {
                full = scarce;
            } else if lacks_pairs && segments.copies_are_scarce() {
                // What makes for no pair would move round and round. What is weak moves once.
                full.retain(|(.., id)| self.store.log().is_weak(*id));
            }
        }
        if self.store.log().may_have_weak()
            && !self.store.is_short_of_segments()
            && let Some((.., id)) = full.iter().find(|(.., id)| self.store.log().is_weak(*id))
        {
            return Some(Choice::dropping(*id));
        }
        if !self.wants_segments() {
            // There is room for what moves, but not there.
            let least = full.iter().filter(|_| for_a_loss).min_by_key(|(_, dirty, kept, _)| dirty + kept);
            return least.map(|(.., id)| Choice::dropping(*id));
        }
        if self.store.is_short_of_segments() {
            // Only what needs no room itself; rather what nobody keeps.
            let clean = full.iter().filter(|(_, dirty, _, id)| *dirty == 0 && segment(*id).dirty == 0);
            return clean
                .min_by_key(|(generation, _, kept, _)| (*kept, *generation))
                .map(|(.., id)| Choice::dropping(*id));
        }
        if self.moves_in_vain() {
            // Only what gives all its room: what is pinned would move, too.
            let pins = self.keep.pinned_blocks(self.store) > 0;
            let is_clean = |dirty: u32, id: SegmentId| dirty == 0 && segment(id).dirty == 0;
            let clean = full.iter().filter(|(_, dirty, kept, id)| is_clean(*dirty, *id) && !(pins && *kept > 0));
            return clean
                .min_by_key(|(generation, _, kept, _)| (*kept, *generation))
                .map(|(.., id)| Choice::dropping(*id));
        }
        full.sort_unstable();
        if self.store.log().segments().rows() > 0 {
            let begun = full
                .iter()
                .filter(|(_, dirty, kept, id)| self.store.log().is_in_begun_row(*id) && dirty + kept < all / 8 * 7);
            if let Some((.., id)) = begun.min_by_key(|(_, dirty, kept, _)| dirty + kept) {
                return Some(Choice::dropping(*id));
            }
        }
        if self.store.is_roomy() {
            let candidates: Vec<_> = full
                .iter()
                .rev()
                .zip(1_u32..)
                .map(|((_, dirty, kept, id), age)| {
                    let moved = (dirty + kept).min(all);
                    let lingering = segment(*id).live_units.clamp(moved, all) - moved;
                    Candidate { segment: *id, all, moved, lingering, age }
                })
                .collect();
            return cheapest(&candidates, self.reclaim.lingered.price(self.outbox.origin_costs().reads()));
        }
        let oldest = (full.len() / 4).max(4).min(full.len());
        // What is kept goes in part, but for what is pinned.
        let pins = self.keep.pinned_blocks(self.store) > 0;
        let least = |some: &[(_, u32, u32, SegmentId)]| {
            some.iter().map(|(_, dirty, kept, id)| (dirty + if pins { *kept } else { 0 }, *id)).min()
        };
        let (moved, id) = least(&full[..oldest])?;
        if moved <= all / 2 {
            return Some(Choice::dropping(id));
        }
        // The old ones are mostly dirty: moving those gains little. Whichever gains most, if any.
        least(&full).filter(|(moved, _)| *moved < all / 8 * 7).map(|(_, id)| Choice::dropping(id))
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

    fn segment(number: u32, moved: u32, lingering: u32, age: u32) -> Candidate {
        Candidate { segment: SegmentId(number), all: 4000, moved, lingering, age }
    }

    fn chosen(candidates: &[Candidate], price: f64) -> Option<(u32, bool)> {
        cheapest(candidates, price).map(|choice| (choice.segment.0, choice.packs))
    }

    #[test]
    fn what_lingers_is_worth_as_much_as_was_asked_for_lately_of_what_went() {
        let price = |one_in| after(100_000, one_in).price(DISK);
        assert!((price(50) - 5.0).abs() < 0.5 && (price(100) - 2.5).abs() < 0.25, "{} {}", price(50), price(100));
        assert!(price(5) <= PRICE_MOST, "and has a bound: {}", price(5));
        let mut lingered = after(100_000, 5);
        (0..100_000).for_each(|_| lingered.was_dropped());
        assert!(lingered.price(DISK) < 1.0, "what was is forgotten: {}", lingered.price(DISK));
    }

    #[test]
    fn for_an_origin_that_answers_as_soon_as_flash_hardly_anything_moves() {
        assert!(after(100_000, 5).price(FLASH) < 1.0);
    }

    #[test]
    fn half_dead_segments_are_packed_before_older_ones_are_dropped_if_what_lingers_is_often_asked_for() {
        let both = [segment(1, 1000, 1000, 1), segment(2, 0, 4000, 500)];
        assert_eq!(chosen(&both, 8.0), Some((1, true)));
        assert_eq!(chosen(&both, 1.0), Some((2, false)));
    }

    #[test]
    fn of_what_lingers_and_is_dropped_the_oldest_goes() {
        let full = [segment(1, 200, 3800, 400), segment(2, 200, 3800, 500), segment(3, 3900, 100, 600)];
        assert_eq!(chosen(&full, 8.0), Some((2, false)));
    }

    #[test]
    fn at_the_highest_price_at_most_four_blocks_move_for_each_that_is_freed() {
        let packed = |dead| chosen(&[segment(1, 4000 - dead, 0, 1), segment(2, 0, 4000, 500)], PRICE_MOST);
        let first = (0..4000_u32).find(|dead| packed(*dead) == Some((1, true))).expect("all of it is dead at last");
        assert!((800..=810).contains(&first), "{first}");
    }

    #[test]
    fn of_two_that_cost_the_same_the_older_goes_and_what_moves_whole_gives_nothing() {
        assert_eq!(chosen(&[segment(1, 1000, 0, 20), segment(2, 1000, 0, 10)], 8.0), Some((1, true)));
        assert_eq!(chosen(&[segment(1, 4000, 0, 1000), segment(2, 3900, 0, 10)], 8.0), None);
    }
}
