//! Numbers that look random and are the same for the same seed, without a dependency.

/// The next of a row of numbers that looks random (SplitMix64).
#[must_use]
pub fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// A number below `limit`, which is not zero.
#[must_use]
pub fn below(state: &mut u64, limit: u64) -> u64 {
    next(state) % limit
}
