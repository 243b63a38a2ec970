//! Numbers of made-up loads: the same on every machine.

/// Xorshift (Marsaglia, 2003).
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((u128::from(self.0) * u128::from(bound)) >> 64) as u64
    }

    pub fn share(&mut self) -> f64 {
        self.below(1 << 53) as f64 / (1_u64 << 53) as f64
    }

    /// Of `keys` keys, the first ones most often: about as Zipf says, with this exponent below 1.
    pub fn zipf(&mut self, keys: u64, exponent: f64) -> u64 {
        (keys as f64 * self.share().powf(1.0 / (1.0 - exponent))) as u64
    }
}
