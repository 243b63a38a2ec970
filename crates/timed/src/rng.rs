//! The only source of chance: one seed decides every event of a run.
//!
//! xoshiro256++ (Blackman and Vigna, public domain), seeded by SplitMix64. The code is here so that a seed means the
//! same run on every machine and with every version of any library.

/// A stream of pseudo-random numbers.
#[derive(Clone)]
pub struct Rng {
    state: [u64; 4],
}

/// One step of SplitMix64: also a good mixing function.
pub const fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Rng {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Self {
        let mut word = seed;
        let state = std::array::from_fn(|_| {
            word = mix(word);
            word
        });
        Self { state }
    }

    /// A separate stream for the `index`-th part of a run. To leave one part out does not change what the others
    /// draw; this makes shrinking possible.
    pub fn for_part(seed: u64, index: u64) -> Self {
        Self::new(mix(seed) ^ mix(index.wrapping_mul(0x2545_f491_4f6c_dd1d).wrapping_add(1)))
    }

    /// Any number.
    #[expect(clippy::should_implement_trait, reason = "numbers are drawn one by one, and an iterator would never end")]
    pub fn next(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let result = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let (c, d) = (c ^ a, d ^ b);
        let (b, a) = (b ^ c, a ^ d);
        self.state = [a, b, c ^ (self.state[1] << 17), d.rotate_left(45)];
        result
    }

    /// A number below `bound`; 0 when that is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// True `per_mille` times out of a thousand.
    pub fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }

    /// One of `choices`.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len() as u64) as usize]
    }

    /// A number below one of `bounds`: mostly small, now and then large.
    pub fn below_one_of(&mut self, bounds: &[u64]) -> u64 {
        let bound = *self.pick(bounds);
        self.below(bound)
    }

    /// The index of one of `weights`, drawn as often as its weight says.
    pub fn weighted(&mut self, weights: &[u64]) -> usize {
        let mut left = self.below(weights.iter().sum());
        weights
            .iter()
            .position(|weight| {
                let here = left < *weight;
                left = left.saturating_sub(*weight);
                here
            })
            .unwrap_or(0)
    }

    /// A random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_draws_the_same_numbers_and_another_seed_others() {
        let draw = |seed| {
            let mut rng = Rng::new(seed);
            (0..100).map(|_| rng.next()).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn bounds_hold_and_every_value_comes() {
        let mut rng = Rng::new(1);
        let mut seen = [false; 6];
        for _ in 0..1000 {
            seen[rng.between(3, 5) as usize] = true;
        }
        assert_eq!(seen, [false, false, false, true, true, true]);
        assert!((0..1000).all(|_| rng.weighted(&[0, 5, 0]) == 1));
    }
}
