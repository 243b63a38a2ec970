//! What the sums over all objects have of one, so that they follow its changes without a walk.

/// What the sums have of one object.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct ObjectCounts {
    /// Of its slots and its extents of zeros.
    pub(crate) map_bytes: u64,
    pub(crate) dirty: bool,
    pub(crate) failing: bool,
    pub(crate) blocks: Rank,
    pub(crate) dirty_blocks: Rank,
}

/// How much an object has of something, to an eighth: so that one that grows seldom changes its place among the others.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Rank(pub(crate) u32);

/// Up to here ranks are exact.
const EXACT: u64 = 16;

impl Rank {
    /// The rank of so much.
    pub(crate) const fn of(amount: u64) -> Self {
        if amount < EXACT {
            return Self(amount as u32);
        }
        let exponent = amount.ilog2();
        // The three bits behind the first: as many steps from one power of two to the next.
        Self((exponent << 3) + ((amount >> (exponent - 3)) & 7) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_grow_with_amounts_and_one_is_no_more_than_an_eighth_wide() {
        let mut amount = 0_u64;
        while amount < 1 << 40 {
            let next = amount + 1 + amount / 9;
            assert!(Rank::of(amount) <= Rank::of(next), "{amount}");
            assert!(amount < EXACT || Rank::of(amount) < Rank::of(amount + amount / 7 + 1), "{amount}");
            amount = next;
        }
        assert!(Rank::of(15) < Rank::of(16));
    }
}
