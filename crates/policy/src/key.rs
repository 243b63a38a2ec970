//! Names of blocks as policies see them, and their one hash.

/// A block's name in 64 bits, for example object and position. The owner packs it; no two blocks share one. Policies
/// compare, hash and return keys, and read nothing out of them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key(pub u64);

impl Key {
    /// Spreads the key over 64 bits (the finaliser of SplitMix64). The same on every machine and in every run, so a
    /// simulated history can be repeated.
    #[must_use]
    pub(crate) const fn hash(self) -> u64 {
        let mut x = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }
}

/// Which of `count` places a hash falls on, without a division.
#[allow(clippy::cast_possible_truncation)] // the product's upper half is below `count`
pub(crate) const fn place(hash: u64, count: usize) -> usize {
    ((hash as u128 * count as u128) >> 64) as usize
}
