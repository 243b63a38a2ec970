//! Pseudo-random numbers, the same for the same seed.

/// SplitMix64: a full period of 2^64, and good enough to draw samples.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Equal seeds give equal sequences.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 up to but not including 1.
    pub fn share(&mut self) -> f64 {
        (self.draw() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A number below `limit`. `limit` must not be zero.
    pub fn below(&mut self, limit: usize) -> usize {
        // The high half of a wide product: as even as 64 bits allow, and no division.
        ((u128::from(self.draw()) * limit as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_published_generator() {
        // The reference output of SplitMix64 for the seed 1234567 (Vigna, prng.di.unimi.it; also on Rosetta Code).
        let mut random = Random::new(1_234_567);
        assert_eq!([random.draw(), random.draw()], [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
    }

    #[test]
    fn shares_and_limits_hold() {
        let mut random = Random::new(3);
        let shares: Vec<f64> = (0..10_000).map(|_| random.share()).collect();
        assert!(shares.iter().all(|share| (0.0..1.0).contains(share)));
        assert!((shares.iter().sum::<f64>() / 10_000.0 - 0.5).abs() < 0.01);
        let mut seen = [0; 6];
        (0..6_000).for_each(|_| seen[random.below(6)] += 1);
        assert!(seen.iter().all(|count| (900..1_100).contains(count)), "{seen:?}");
    }
}
