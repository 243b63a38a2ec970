//! Whether a miss brings its neighbourhood along, and how much of it.
//!
//! The origin charges by the request more than by the byte. So while the pool has room a miss brings as many
//! neighbours as cost the origin about as much as the request itself. They linger (`keep.rs`): the first to go, until
//! they are asked for. Once the pool is full a neighbour on flash would push out something else that lingers and is as
//! likely to be asked for some day: so it waits in memory (`memory_window.rs`) and costs no flash. When memory is full,
//! too, it comes only where enough of those that came before were asked for soon after.
//!
//! Invariants:
//! - What is learned is a share of the last few neighbourhoods, each counted once, when it is old enough to tell.
//! - A miss brings its neighbourhood now and then whatever was learned, so that a change is seen; the longer that did
//!   not pay, the seldomer.
//! - While there is room, on flash or in memory, a miss comes alone now and then: from reads of one size nobody learns
//!   what a byte costs.

use std::collections::{HashMap, VecDeque};

use headpond_base::{BLOCK_U64, Block, ObjectId};
use headpond_policy::OriginCost;

/// One in so many misses brings its neighbourhood along to learn whether that pays, at first.
const TRY_FIRST: u64 = 64;
/// And after each that did not, one in twice as many, up to this: what is tried in vain is then no more than an eighth
/// of what misses themselves read.
const TRY_LAST: u64 = 1024;
/// One in so many misses comes alone although there is room.
const ALONE_EACH: u64 = 16;
/// Neighbours must save the origin so many times what they cost it.
const WORTH: f64 = 2.0;
/// At least one in so many is asked for soon: fewer are by chance, and push out of memory what is of use.
const ONE_IN: f64 = 24.0;
/// A neighbourhood counts this much less with each one after it.
const FORGET: f64 = 0.9;
/// A neighbourhood is old enough to tell after as many misses as this share of the pool's blocks. Of pages that are all
/// asked for alike, over three times the pool, 1 in 250 is asked for by then.
const TELLS_SHARE: u64 = 512;

/// A neighbourhood that came along.
struct Watched {
    since: u64,
    blocks: u32,
    asked_for: u32,
}

/// What is known of neighbours. Owned by `Gather`.
pub(crate) struct Neighbours {
    watched: HashMap<(ObjectId, u64), Watched>,
    order: VecDeque<(ObjectId, u64)>,
    /// Misses after which a neighbourhood is old enough to tell; as many are watched at once.
    tells_after: u64,
    /// Fading sums of neighbours that came, and of those that were asked for.
    came: f64,
    asked_for: f64,
    misses: u64,
    /// When the next is tried, and one in how many.
    try_at: u64,
    try_each: u64,
}

impl Neighbours {
    /// For a pool of so many blocks.
    pub(crate) fn new(blocks: u64) -> Self {
        Self {
            watched: HashMap::new(),
            order: VecDeque::new(),
            tells_after: (blocks / TELLS_SHARE).clamp(16, 4096),
            came: 0.0,
            asked_for: 0.0,
            misses: 0,
            try_at: TRY_FIRST,
            try_each: TRY_FIRST,
        }
    }

    /// The blocks to bring for a miss, its own included; a power of two, 1 to `most`.
    pub(crate) fn wanted(&mut self, cost: OriginCost, most: u64, has_room: bool) -> u64 {
        self.misses += 1;
        self.judge(cost);
        let window = cheap(cost, most);
        let comes = if has_room { !self.misses.is_multiple_of(ALONE_EACH) } else { self.pays(cost) || self.tries() };
        if comes { window } else { 1 }
    }

    fn tries(&mut self) -> bool {
        let due = self.misses >= self.try_at;
        if due {
            self.try_at = self.misses + self.try_each;
        }
        due
    }

    /// Counts those that are old enough to tell.
    fn judge(&mut self, cost: OriginCost) {
        while let Some(oldest) = self.order.front()
            && self.watched.get(oldest).is_none_or(|known| known.since + self.tells_after <= self.misses)
        {
            let known = self.watched.remove(oldest);
            self.order.pop_front();
            let Some(known) = known else { continue };
            self.came = self.came * FORGET + f64::from(known.blocks);
            self.asked_for = self.asked_for * FORGET + f64::from(known.asked_for);
            let paid = is_worth(cost, f64::from(known.asked_for) / f64::from(known.blocks));
            self.try_each = if paid { TRY_FIRST } else { (self.try_each * 2).min(TRY_LAST) };
            self.try_at = self.try_at.min(self.misses + self.try_each);
        }
    }

    fn pays(&self, cost: OriginCost) -> bool {
        self.came > 0.0 && is_worth(cost, self.asked_for / self.came)
    }

    /// A neighbourhood of `window` blocks came along, `blocks` of them unasked.
    pub(crate) fn came(&mut self, object: ObjectId, first: Block, window: u64, blocks: u32) {
        let place = (object, (first.0 / window.max(1)) << 8 | u64::from(window.trailing_zeros()));
        if window <= 1
            || blocks == 0
            || self.watched.contains_key(&place)
            || self.order.len() as u64 >= self.tells_after
        {
            return;
        }
        self.watched.insert(place, Watched { since: self.misses, blocks, asked_for: 0 });
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

/// As many blocks as cost the origin no more than the request itself; a power of two, 1 to `most`.
pub(crate) fn cheap(cost: OriginCost, most: u64) -> u64 {
    let cheap = cost.gap_worth(headpond_base::Nanos(0)).clamp(1, most.max(1));
    if cheap.is_power_of_two() { cheap } else { cheap.next_power_of_two() / 2 }
}

/// Whether neighbours of which this share is asked for are worth what the origin does for them.
fn is_worth(cost: OriginCost, share: f64) -> bool {
    let block = cost.mebibyte.0 as f64 * BLOCK_U64 as f64 / f64::from(1 << 20);
    share * (cost.each.0 as f64 + block) > WORTH * block && share * ONE_IN > 1.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_base::Nanos;

    /// 200 I/Os and 150 MiB a second: an I/O costs as much as 192 blocks.
    const ORIGIN: OriginCost =
        OriginCost { each: Nanos(5 * Nanos::MILLISECOND.0), mebibyte: Nanos(Nanos::SECOND.0 / 150) };
    const POOL: u64 = 1 << 17;

    /// Of the misses of a full pool, how many bring their neighbourhoods when `asked` blocks of each are asked for, so
    /// many misses later.
    fn share(known: &mut Neighbours, misses: u64, asked: u64, later: u64) -> f64 {
        let mut came = VecDeque::new();
        let mut wide = 0;
        for number in 0..misses {
            if known.wanted(ORIGIN, 128, false) > 1 {
                wide += 1;
                known.came(ObjectId(1), Block(number * 128), 128, 126);
                came.push_back(number);
            }
            while let Some(oldest) = came.front().copied().filter(|oldest| oldest + later <= number) {
                (0..asked).for_each(|at| known.promoted(ObjectId(1), Block(oldest * 128 + at), 128));
                came.pop_front();
            }
        }
        wide as f64 / misses as f64
    }

    #[test]
    fn with_room_a_miss_brings_what_costs_about_as_much_as_itself_but_for_a_few_that_tell_what_one_costs_alone() {
        let windows = |cost, most| {
            let mut known = Neighbours::new(POOL);
            (0..32).map(|_| known.wanted(cost, most, true)).collect::<Vec<_>>()
        };
        assert_eq!(windows(ORIGIN, 128).iter().filter(|window| **window == 128).count(), 30);
        assert_eq!(windows(ORIGIN, 1024)[..15], [128; 15]);
        let by_the_byte = OriginCost { each: Nanos(1000), mebibyte: Nanos::SECOND };
        assert_eq!(windows(by_the_byte, 128), [1; 32]);
    }

    #[test]
    fn in_a_full_pool_neighbours_come_where_enough_of_them_are_asked_for_soon() {
        assert!(share(&mut Neighbours::new(POOL), 20_000, 20, 10) > 0.9);
    }

    #[test]
    fn in_a_full_pool_neighbours_that_nobody_asks_for_soon_come_seldom_and_ever_seldomer() {
        let mut known = Neighbours::new(POOL);
        share(&mut known, 20_000, 0, 0);
        let useless = share(&mut known, 20_000, 0, 0);
        assert!(useless > 0.0 && useless < 0.002, "{useless}");
        let late = share(&mut known, 20_000, 100, 2 * POOL / TELLS_SHARE);
        assert!(late < 0.002, "who is there for long is asked for some day: {late}");
    }

    #[test]
    fn neighbours_that_have_become_useful_are_found_out() {
        let mut known = Neighbours::new(POOL);
        share(&mut known, 20_000, 0, 0);
        share(&mut known, 5_000, 20, 10);
        assert!(share(&mut known, 1_000, 20, 10) > 0.9);
        share(&mut known, 1_000, 0, 0);
        assert!(share(&mut known, 20_000, 0, 0) < 0.01, "and that they are no more");
    }
}
