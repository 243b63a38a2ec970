//! A modelled flash card below the engine. Its translation layer sees every write and every trim. Writes wait while
//! it copies pages to clean its blocks.
//!
//! The card is as small as the pool, and slower as well ([`OnCard::SLOWER`]). What counts is the spare share, and how
//! the log is written. Reads do not slow writes down: cards of this kind read and write at once, and the published
//! figures behind the model are of writes alone.
//!
//! Invariant: before the pool's first write, every page that the card exports was written once. So no run gains from
//! a new card.

use headpond_base::{BLOCK_U64, Nanos};
use headpond_models::flash::{Cost, Model, Translation};

/// Pages of an erase block: a quarter of a segment of the simulated pools.
const PAGES_PER_BLOCK: u32 = 64;
/// From a write's end on the bus to its answer.
const LATENCY: Nanos = Nanos(50_000);

/// Which card, and how much of it the pool takes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct OnCard {
    /// The card.
    pub model: Model,
    /// The share of the card's exported pages under the pool, more than 0 and up to 1.
    pub share: f64,
}

impl OnCard {
    /// How many times slower than the real card the model is. A pool of 64 MiB is then overwritten in 3 s. Otherwise
    /// that would take less time than destage needs to notice.
    pub const SLOWER: f64 = 40.0;
}

/// A card in use.
pub struct ModelledCard {
    model: Model,
    translation: Translation,
    free_at: Nanos,
    /// Pages given and pages written.
    written: u64,
    programs: u64,
}

impl ModelledCard {
    /// A card under a pool of so many bytes, each page of it written once.
    pub fn new(on: OnCard, pool: u64) -> Self {
        let pages = ((pool / BLOCK_U64) as f64 / on.share) as u32;
        let mut translation = Translation::new(pages, on.model.spare, PAGES_PER_BLOCK);
        // The rest of the card is trimmed: it is unused.
        (0..pages).for_each(|page| _ = translation.write(page));
        ((pool / BLOCK_U64) as u32..pages).for_each(|page| translation.trim(page));
        Self { model: on.model, translation, free_at: Nanos(0), written: 0, programs: 0 }
    }

    fn pages(offset: u64, len: u64) -> std::ops::Range<u32> {
        (offset / BLOCK_U64) as u32..((offset + len) / BLOCK_U64) as u32
    }

    /// Writes, and returns when the write is done.
    pub fn write(&mut self, now: Nanos, offset: u64, len: u64) -> Nanos {
        let pages = Self::pages(offset, len);
        let written = u64::from(pages.end - pages.start);
        let cost = pages.fold(Cost::default(), |cost, page| cost.and(self.translation.write(page)));
        let bytes_per_second = self.model.rate(written, cost) / OnCard::SLOWER * f64::from(1 << 20);
        self.free_at = self.free_at.max(now).plus(Nanos((len as f64 * 1e9 / bytes_per_second) as u64));
        (self.written, self.programs) = (self.written + written, self.programs + cost.programs);
        self.free_at.plus(LATENCY)
    }

    /// Tells the card that a range is not needed any more.
    pub fn trim(&mut self, offset: u64, len: u64) {
        Self::pages(offset, len).for_each(|page| self.translation.trim(page));
    }

    /// Pages that it got.
    pub(crate) const fn written(&self) -> u64 {
        self.written
    }

    /// Pages that its flash wrote.
    pub(crate) const fn programs(&self) -> u64 {
        self.programs
    }

    /// Pages that the card wrote for each page that it got.
    pub fn amplification(&self) -> f64 {
        self.programs as f64 / self.written.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use headpond_models::flash::amplification;

    /// The control: the same card, written at random without a log in between, is as slow as its raw figures.
    #[test]
    fn written_at_random_a_full_card_is_as_slow_as_without_headpond() {
        const PAGE: u64 = 16 << 10;
        let pool = 64 << 20;
        for model in Model::ALL {
            let expected = amplification(model.spare, 1.0);
            let mut rng = Rng::for_part(1, 0);
            let mut card = ModelledCard::new(OnCard { model, share: 1.0 }, pool);
            let mut go = |card: &mut ModelledCard| {
                (0..20_000).for_each(|_| _ = card.write(Nanos(0), rng.below(pool / PAGE) * PAGE, PAGE));
            };
            go(&mut card);
            (card.written, card.programs) = (0, 0);
            go(&mut card);
            let found = card.amplification();
            assert!((found / expected - 1.0).abs() < 0.25, "{}: {found}", model.name);
        }
    }
}
