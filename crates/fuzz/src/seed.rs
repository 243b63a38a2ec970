//! Random numbers from a seed: the same seed, the same choices (SplitMix64).

/// The state.
#[derive(Clone, Debug)]
pub(crate) struct Seed(pub(crate) u64);

impl Seed {
    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, which is not 0.
    pub(crate) const fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// An index below `end`, which is not 0.
    #[allow(clippy::cast_possible_truncation)] // below an index
    pub(crate) const fn index(&mut self, end: usize) -> usize {
        self.below(end as u64) as usize
    }

    pub(crate) const fn one_in(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }

    /// Bytes that no other seed gives.
    pub(crate) fn fill(&mut self, bytes: &mut [u8]) {
        for piece in bytes.chunks_mut(8) {
            piece.copy_from_slice(&self.next().to_le_bytes()[..piece.len()]);
        }
    }
}
