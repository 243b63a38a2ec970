//! A hash for tables of numbers that count up.

use std::hash::Hasher;

/// Spreads numbers that count up, which nobody outside chooses: one multiplication (Knuth, The Art of
/// Computer Programming, volume 3, section 6.4).
#[derive(Default)]
pub(crate) struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        // Tables take the low bits for the place, and only the high bits of a product depend on all of both.
        self.0.rotate_left(32)
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}
