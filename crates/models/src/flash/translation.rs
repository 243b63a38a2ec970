//! The map of a flash card from a user's pages to pages of flash, with greedy cleaning.
//!
//! Invariants:
//! - a page of flash is written once between two erases of its block;
//! - every mapped page is where the map says, and no two share a place;
//! - one erased block is always kept for the copies of cleaning, so cleaning never gets stuck.

/// No page. For a page that was never written, or trimmed; and for a place without a valid page.
const NONE: u32 = u32::MAX;

/// The flash work of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cost {
    /// Pages written, the user's own included.
    pub programs: u64,
    /// Pages read to copy them.
    pub reads: u64,
    /// Blocks erased.
    pub erases: u64,
}

impl Cost {
    /// The sum of both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            programs: self.programs + other.programs,
            reads: self.reads + other.reads,
            erases: self.erases + other.erases,
        }
    }
}

/// The map.
#[derive(Clone, Debug)]
pub struct Translation {
    pages_per_block: u32,
    /// The place of each page.
    places: Vec<u32>,
    /// The page of each place.
    pages: Vec<u32>,
    /// The number of valid places in each block.
    valid: Vec<u32>,
    /// Full blocks in lists by their number of valid pages: the first of each list, and the neighbours of each block.
    first: Vec<u32>,
    after: Vec<u32>,
    before: Vec<u32>,
    erased: Vec<u32>,
    open: u32,
    /// How many places of the open block are written.
    written: u32,
}

impl Translation {
    /// A fresh card that exports `exported` pages, with `spare` times that on top. At least two blocks must be spare:
    /// one of them is kept for cleaning.
    #[must_use]
    pub fn new(exported: u32, spare: f64, pages_per_block: u32) -> Self {
        let physical = (f64::from(exported) * (1.0 + spare)) as u32;
        let blocks = physical / pages_per_block;
        assert!(
            blocks > exported.div_ceil(pages_per_block) + 1,
            "{spare} spare of {exported} pages is too little to clean in"
        );
        let open = 0;
        Self {
            pages_per_block,
            places: vec![NONE; exported as usize],
            pages: vec![NONE; (blocks * pages_per_block) as usize],
            valid: vec![0; blocks as usize],
            first: vec![NONE; pages_per_block as usize + 1],
            after: vec![NONE; blocks as usize],
            before: vec![NONE; blocks as usize],
            erased: (1..blocks).rev().collect(),
            open,
            written: 0,
        }
    }

    /// How many pages the card exports.
    #[must_use]
    pub fn exported(&self) -> u32 {
        self.places.len() as u32
    }

    /// Writes a page.
    pub fn write(&mut self, page: u32) -> Cost {
        let mut cost = Cost::default();
        // A card that was filled to its end without spare space has no block to clean.
        while self.written == self.pages_per_block {
            cost = cost.and(self.open_block());
        }
        self.forget(page);
        self.put(page);
        cost.programs += 1;
        cost
    }

    /// Tells the card that a page's data is no longer needed.
    pub fn trim(&mut self, page: u32) {
        self.forget(page);
        self.places[page as usize] = NONE;
    }

    fn forget(&mut self, page: u32) {
        let place = self.places[page as usize];
        if place == NONE {
            return;
        }
        self.pages[place as usize] = NONE;
        let block = place / self.pages_per_block;
        if block == self.open {
            self.valid[block as usize] -= 1;
        } else {
            self.unlist(block);
            self.valid[block as usize] -= 1;
            self.list(block);
        }
    }

    /// Writes a page to the next place of the open block. That block has room.
    fn put(&mut self, page: u32) {
        let place = self.open * self.pages_per_block + self.written;
        self.written += 1;
        self.pages[place as usize] = page;
        self.places[page as usize] = place;
        self.valid[self.open as usize] += 1;
    }

    /// Opens an erased block. If it is the last one, first copies into it what is valid in the block with the fewest
    /// valid pages.
    fn open_block(&mut self) -> Cost {
        self.list(self.open);
        let last = self.erased.len() == 1;
        // Not empty: cleaning returns a block for the one that it takes.
        self.open = self.erased.pop().unwrap_or(NONE);
        assert!(self.open != NONE, "a block is kept for cleaning");
        self.written = 0;
        if last { self.clean() } else { Cost::default() }
    }

    fn clean(&mut self) -> Cost {
        let least = self.first.iter().copied().find(|block| *block != NONE).unwrap_or(NONE);
        assert!(least != NONE, "all blocks but the open one are full");
        self.unlist(least);
        let copied = self.valid[least as usize];
        assert!(copied < self.pages_per_block, "a card without spare space cannot be cleaned");
        let places = least * self.pages_per_block..(least + 1) * self.pages_per_block;
        for place in places {
            let page = std::mem::replace(&mut self.pages[place as usize], NONE);
            if page != NONE {
                self.put(page);
            }
        }
        self.valid[least as usize] = 0;
        self.erased.push(least);
        Cost { programs: u64::from(copied), reads: u64::from(copied), erases: 1 }
    }

    fn list(&mut self, block: u32) {
        let list = self.valid[block as usize] as usize;
        let next = self.first[list];
        self.after[block as usize] = next;
        self.before[block as usize] = NONE;
        if next != NONE {
            self.before[next as usize] = block;
        }
        self.first[list] = block;
    }

    fn unlist(&mut self, block: u32) {
        let (after, before) = (self.after[block as usize], self.before[block as usize]);
        if after != NONE {
            self.before[after as usize] = before;
        }
        if before == NONE {
            self.first[self.valid[block as usize] as usize] = after;
        } else {
            self.after[before as usize] = after;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::amplification;
    use super::*;
    use headpond_measure::Random;

    impl Translation {
        /// Checks everything, slowly.
        fn check(&self) {
            let mut valid = vec![0; self.valid.len()];
            for (page, place) in self.places.iter().enumerate().filter(|(_, place)| **place != NONE) {
                assert_eq!(self.pages[*place as usize], page as u32, "the map and the place agree");
                valid[(place / self.pages_per_block) as usize] += 1;
            }
            assert_eq!(self.pages.iter().filter(|page| **page != NONE).count() as u32, valid.iter().sum::<u32>());
            assert_eq!(valid, self.valid);
            assert!(!self.erased.is_empty());
            assert!(self.erased.iter().all(|block| valid[*block as usize] == 0));
        }
    }

    #[test]
    fn whatever_is_written_and_trimmed_the_map_stays_whole() {
        let mut card = Translation::new(1_000, 0.15, 16);
        let mut random = Random::new(4);
        for step in 0..30_000 {
            let page = random.below(1_000) as u32;
            if random.below(10) == 0 {
                card.trim(page);
            } else {
                card.write(page);
            }
            if step % 97 == 0 {
                card.check();
            }
        }
        let mapped = card.places.iter().filter(|place| **place != NONE).count();
        assert!((700..1_000).contains(&mapped), "{mapped}");
    }

    #[test]
    fn random_writes_are_amplified_as_the_formula_says_within_3_percent() {
        for (spare, fill) in [(0.10, 1.0), (0.28, 1.0), (0.28, 0.7)] {
            let mut card = Translation::new(131_072, spare, 128);
            let used = (131_072.0 * fill) as usize;
            (0..used as u32).for_each(|page| _ = card.write(page));
            let mut random = Random::new(8);
            let mut go = |card: &mut Translation, writes: usize| {
                (0..writes).fold(Cost::default(), |cost, _| cost.and(card.write(random.below(used) as u32)))
            };
            go(&mut card, used * 5);
            let cost = go(&mut card, used * 3);
            let found = cost.programs as f64 / (used * 3) as f64;
            let expected = amplification(spare, fill);
            assert!((found / expected - 1.0).abs() < 0.03, "spare {spare}, fill {fill}: {found} for {expected}");
        }
    }

    #[test]
    fn a_log_of_whole_blocks_that_is_trimmed_whole_is_hardly_amplified_even_when_full() {
        let (blocks, per_block) = (256, 64);
        let mut card = Translation::new(blocks * per_block, 0.07, per_block);
        let mut random = Random::new(6);
        let mut cost = Cost::default();
        let segment = 4 * per_block;
        // Segments of four blocks in any order. Each is trimmed whole and then written from start to end.
        for _ in 0..3_000 {
            let start = random.below((blocks / 4) as usize) as u32 * segment;
            (start..start + segment).for_each(|page| card.trim(page));
            cost = (start..start + segment).fold(cost, |cost, page| cost.and(card.write(page)));
        }
        let found = cost.programs as f64 / f64::from(3_000 * segment);
        assert!(found < 1.05, "{found}");
        assert!(amplification(0.07, 1.0) > 5.0);
    }
}
