//! Whether a miss brings its neighbourhood along, and how much of it.
//!
//! The origin charges by the request more than by the byte. So while the pool has room a miss brings as many
//! neighbours as cost the origin about as much as the request itself. They linger (`keep.rs`): the first to go, until
//! they are asked for. Once the pool is full a neighbour pushes something else out, and comes only where that pays:
//! where enough of those that came before were asked for.
//!
//! Invariant: what is learned is a share of the last few hundred neighbourhoods, each counted once, when it is old
//! enough to tell. A few misses in a hundred bring theirs whatever was learned, so that a change is seen.

use std::collections::{HashMap, VecDeque};

use headpond_base::{BLOCK_U64, Block, ObjectId};
use headpond_policy::OriginCost;

/// Neighbourhoods that are watched at once.
const WATCHED: usize = 512;
/// One in so many misses brings its neighbourhood along to learn whether that pays.
const TRY_EACH: u64 = 64;
/// Neighbours must save the origin so many times what they cost it: they also cost the flash a write, and something else
/// its place. On scattered pages 2 let in twice as much as was ever asked for.
const WORTH: f64 = 8.0;
/// A neighbourhood counts this much less with each one after it.
const FORGET: f64 = 0.98;

/// A neighbourhood that came along.
struct Watched {
    blocks: u32,
    asked_for: u32,
}

/// What is known of neighbours. Owned by the engine.
#[derive(Default)]
pub(crate) struct Neighbours {
    watched: HashMap<(ObjectId, u64), Watched>,
    order: VecDeque<(ObjectId, u64)>,
    /// Fading sums of neighbours that came, and of those that were asked for.
    came: f64,
    asked_for: f64,
    misses: u64,
}

impl Neighbours {
    /// The blocks to bring for a miss, its own included; a power of two, 1 to `most`.
    pub(crate) fn wanted(&mut self, cost: OriginCost, most: u64, has_room: bool) -> u64 {
        self.misses += 1;
        // As much as costs no more than the request itself.
        let cheap = cost.gap_worth(headpond_base::Nanos(0)).clamp(1, most.max(1));
        let window = if cheap.is_power_of_two() { cheap } else { cheap.next_power_of_two() / 2 };
        let pays = has_room || self.pays(cost) || self.misses.is_multiple_of(TRY_EACH);
        if pays { window } else { 1 }
    }

    /// Whether neighbours save the origin more than they cost it.
    fn pays(&self, cost: OriginCost) -> bool {
        let block = cost.mebibyte.0 as f64 * BLOCK_U64 as f64 / f64::from(1 << 20);
        let saved = self.asked_for / self.came.max(1.0) * (cost.each.0 as f64 + block);
        saved > WORTH * block
    }

    /// A neighbourhood of `window` blocks came along, `blocks` of them unasked.
    pub(crate) fn came(&mut self, object: ObjectId, first: Block, window: u64, blocks: u32) {
        let place = (object, (first.0 / window.max(1)) << 8 | u64::from(window.trailing_zeros()));
        if blocks == 0 || self.watched.contains_key(&place) {
            return;
        }
        if self.order.len() >= WATCHED
            && let Some(oldest) = self.order.pop_front()
            && let Some(known) = self.watched.remove(&oldest)
        {
            self.came = self.came * FORGET + f64::from(known.blocks);
            self.asked_for = self.asked_for * FORGET + f64::from(known.asked_for);
        }
        self.watched.insert(place, Watched { blocks, asked_for: 0 });
        self.order.push_back(place);
    }

    /// A block that lingered was asked for.
    pub(crate) fn promoted(&mut self, object: ObjectId, block: Block, most: u64) {
        let windows = (1..=most.max(1).ilog2()).rev();
        for shift in windows {
            if let Some(known) = self.watched.get_mut(&(object, (block.0 >> shift) << 8 | u64::from(shift))) {
                known.asked_for = (known.asked_for + 1).min(known.blocks);
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_base::Nanos;

    /// 200 I/Os and 150 MiB a second: an I/O costs as much as 192 blocks.
    const ORIGIN: OriginCost =
        OriginCost { each: Nanos(5 * Nanos::MILLISECOND.0), mebibyte: Nanos(Nanos::SECOND.0 / 150) };

    /// After many neighbourhoods of which `asked` blocks of each were asked for: how often one more comes.
    fn share_after(asked: u64) -> f64 {
        let mut known = Neighbours::default();
        for number in 0..2000 {
            known.came(ObjectId(1), Block(number * 128), 128, 126);
            (0..asked).for_each(|at| known.promoted(ObjectId(1), Block(number * 128 + at), 128));
        }
        (0..640).filter(|_| known.wanted(ORIGIN, 128, false) > 1).count() as f64 / 640.0
    }

    #[test]
    fn with_room_a_miss_brings_what_costs_about_as_much_as_itself() {
        assert_eq!(Neighbours::default().wanted(ORIGIN, 128, true), 128);
        assert_eq!(Neighbours::default().wanted(ORIGIN, 1024, true), 128);
        let by_the_byte = OriginCost { each: Nanos(1000), mebibyte: Nanos::SECOND };
        assert_eq!(Neighbours::default().wanted(by_the_byte, 128, true), 1);
    }

    #[test]
    fn in_a_full_pool_neighbours_come_where_enough_of_them_were_asked_for() {
        assert!(share_after(0) < 0.05, "useless ones come only to learn");
        assert!(share_after(0) > 0.0);
        assert!(share_after(20) > 0.99);
    }
}
