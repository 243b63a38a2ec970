//! A disk's volatile cache: unflushed writes, and what a power cut leaves of them.
//!
//! Invariants
//! - It is pure: it holds sectors and decides by a seed. Its owner has the medium.
//! - A read after a write sees the write, flushed or not.
//! - A cut cannot lose what a flush handed over.
//! - A cut may keep any of the writes, in any order, and any sectors of a torn one, but no byte that no writer wrote.

use crate::random::{below, next};
use std::collections::{HashMap, VecDeque};
use std::ops::Range;

/// What a disk writes as a whole.
pub const SECTOR: usize = 512;
/// So much is held back. Beyond it the oldest goes to the medium without a flush, as in a real disk.
const HELD_MAX: usize = 32 << 20;

/// Bytes for the medium.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Piece {
    /// The first sector.
    pub sector: u64,
    /// Whole sectors.
    pub bytes: Vec<u8>,
    /// Whether a trim dropped them. They then read as zeros, and do not count as a write.
    pub trim: bool,
}

impl Piece {
    fn sectors(&self) -> Range<u64> {
        self.sector..self.sector + (self.bytes.len() / SECTOR) as u64
    }
}

/// The share of unflushed writes that a cut leaves, in thousandths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Odds {
    /// Of the writes: those that reach the medium, whole or in part.
    pub kept: u64,
    /// Of those: the ones of which only some sectors do.
    pub torn: u64,
}

impl Odds {
    /// One cut in four loses everything; the others keep some, and tear some of that.
    #[must_use]
    pub fn choose(random: &mut u64) -> Self {
        match below(random, 4) {
            0 => Self { kept: 0, torn: 0 },
            _ => Self { kept: 100 + below(random, 800), torn: below(random, 1000) },
        }
    }
}

/// What a cut met.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Unflushed {
    /// Pieces that were trimmed. Those, too, are kept, dropped and torn.
    pub trims: u64,
    /// Writes.
    pub writes: u64,
    /// Their sectors.
    pub sectors: u64,
    /// Writes of which nothing is left.
    pub dropped: u64,
    /// Writes of which a part is left.
    pub torn: u64,
}

/// Writes that were answered and not flushed.
pub struct VolatileCache {
    /// Sectors that the medium writes together, at multiples of that: no tear goes through them.
    atom: u64,
    writes: VecDeque<Piece>,
    /// The number of the first of `writes`; the others follow.
    first: u64,
    /// For each sector, the number of its last write.
    latest: HashMap<u64, u64>,
    held: usize,
}

impl VolatileCache {
    /// An empty cache of a medium that writes so many sectors together.
    #[must_use]
    pub fn new(atom: u64) -> Self {
        Self { atom, writes: VecDeque::new(), first: 0, latest: HashMap::new(), held: 0 }
    }

    /// Takes a write, and hands over what there is no room for.
    #[must_use = "what there is no room for belongs on the medium"]
    pub fn write(&mut self, piece: Piece) -> Vec<Piece> {
        assert!(piece.bytes.len().is_multiple_of(SECTOR), "a disk writes whole sectors");
        let number = self.first + self.writes.len() as u64;
        self.latest.extend(piece.sectors().map(|sector| (sector, number)));
        self.held += piece.bytes.len();
        self.writes.push_back(piece);
        let mut over = Vec::new();
        while self.held > HELD_MAX
            && let Some(oldest) = self.writes.pop_front()
        {
            self.held -= oldest.bytes.len();
            for sector in oldest.sectors() {
                if self.latest.get(&sector) == Some(&self.first) {
                    self.latest.remove(&sector);
                }
            }
            self.first += 1;
            over.push(oldest);
        }
        over
    }

    /// Puts the cached sectors over the bytes that were read from the medium.
    pub fn overlay(&self, first: u64, bytes: &mut [u8]) {
        for (index, target) in bytes.chunks_mut(SECTOR).enumerate() {
            let sector = first + index as u64;
            if let Some(number) = self.latest.get(&sector) {
                let write = &self.writes[(number - self.first) as usize];
                let from = (sector - write.sector) as usize * SECTOR;
                target.copy_from_slice(&write.bytes[from..from + SECTOR]);
            }
        }
    }

    /// Hands over everything, in the order in which it was written.
    #[must_use = "what is flushed belongs on the medium"]
    pub fn flush(&mut self) -> Vec<Piece> {
        let all = std::mem::replace(self, Self::new(self.atom));
        all.writes.into()
    }

    /// Writes that are held.
    #[must_use]
    pub fn unflushed(&self) -> u64 {
        self.writes.iter().filter(|piece| !piece.trim).count() as u64
    }

    /// The cut: what of it reached the medium all the same, in the order in which it did.
    #[must_use = "what reached the medium belongs there"]
    pub fn cut(&mut self, odds: Odds, random: &mut u64) -> (Vec<Piece>, Unflushed) {
        let mut writes: Vec<Piece> = self.flush();
        for last in (1..writes.len()).rev() {
            writes.swap(last, below(random, last as u64 + 1) as usize);
        }
        let mut met = Unflushed::default();
        let mut left = Vec::new();
        for write in writes {
            let sectors = write.bytes.len() / SECTOR;
            let counts = u64::from(!write.trim);
            met.trims += 1 - counts;
            met.writes += counts;
            met.sectors += counts * sectors as u64;
            if below(random, 1000) >= odds.kept {
                met.dropped += counts;
            } else if below(random, 1000) < odds.torn
                && let Some(parts) = torn(&write, self.atom, random)
            {
                met.torn += counts;
                left.extend(parts);
            } else {
                left.push(write);
            }
        }
        (left, met)
    }
}

/// Some sectors of a write, neither none nor all: those before one of them, or each by itself. `None` if the medium
/// writes it whole.
fn torn(write: &Piece, atom: u64, random: &mut u64) -> Option<Vec<Piece>> {
    let (first, last) = (write.sector / atom, (write.sectors().end - 1) / atom);
    let atoms = last - first + 1;
    if atoms < 2 {
        return None;
    }
    let (one, start, scattered) = (below(random, atoms), below(random, atoms), below(random, 2) == 0);
    let mut stays: Vec<bool> =
        (0..atoms).map(|index| if scattered { next(random) & 1 == 0 } else { index < start }).collect();
    if stays.iter().all(|stays| *stays) {
        stays[one as usize] = false;
    }
    if !stays.contains(&true) {
        stays[one as usize] = true;
    }
    let sector = |(sector, bytes): (u64, &[u8])| Piece { sector, bytes: bytes.to_vec(), trim: write.trim };
    let sectors = write.sectors().zip(write.bytes.chunks(SECTOR));
    Some(sectors.filter(|(sector, _)| stays[(sector / atom - first) as usize]).map(sector).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn piece(sector: u64, sectors: usize, byte: u8) -> Piece {
        Piece { sector, bytes: vec![byte; sectors * SECTOR], trim: false }
    }

    fn put(medium: &mut [u8], pieces: &[Piece]) {
        for piece in pieces {
            let at = piece.sector as usize * SECTOR;
            medium[at..at + piece.bytes.len()].copy_from_slice(&piece.bytes);
        }
    }

    #[test]
    fn a_read_sees_the_last_write_of_each_sector() {
        let mut cache = VolatileCache::new(1);
        assert!(cache.write(piece(2, 4, 1)).is_empty() && cache.write(piece(4, 1, 2)).is_empty());
        let mut bytes = vec![9; 8 * SECTOR];
        cache.overlay(0, &mut bytes);
        let firsts: Vec<u8> = bytes.iter().step_by(SECTOR).copied().collect();
        assert_eq!(firsts, [9, 9, 1, 1, 2, 1, 9, 9]);
    }

    #[test]
    fn what_was_flushed_survives_every_cut() {
        for seed in 0..200 {
            let (mut cache, mut random, mut medium) = (VolatileCache::new(1), seed, vec![0; 16 * SECTOR]);
            put(&mut medium, &cache.write(piece(0, 8, 1)));
            put(&mut medium, &cache.flush());
            put(&mut medium, &cache.write(piece(8, 8, 2)));
            let odds = Odds::choose(&mut random);
            put(&mut medium, &cache.cut(odds, &mut random).0);
            assert!(medium[..8 * SECTOR].iter().all(|byte| *byte == 1), "seed {seed}");
        }
    }

    #[test]
    fn what_was_not_flushed_is_kept_dropped_torn_and_reordered() {
        let (mut whole, mut none, mut part, mut older) = (0, 0, 0, 0);
        for seed in 0..400 {
            let (mut cache, mut random, mut medium) = (VolatileCache::new(1), seed, vec![0; 8 * SECTOR]);
            let over = [cache.write(piece(0, 8, 1)), cache.write(piece(0, 8, 2))].concat();
            assert!(over.is_empty());
            let (left, met) = cache.cut(Odds { kept: 600, torn: 300 }, &mut random);
            assert_eq!((met.writes, met.sectors), (2, 16));
            put(&mut medium, &left);
            let there: HashSet<u8> = medium.iter().copied().collect();
            assert!(medium.chunks(SECTOR).all(|sector| sector.iter().all(|byte| *byte == sector[0])), "in sectors");
            whole += u32::from(there == HashSet::from([2]));
            none += u32::from(there == HashSet::from([0]));
            older += u32::from(there == HashSet::from([1]));
            part += u32::from(there.len() > 1);
        }
        assert!(whole > 0 && none > 0 && part > 0 && older > 0, "{whole} {none} {part} {older}");
    }

    #[test]
    fn a_torn_write_is_neither_there_nor_gone() {
        for seed in 0..500 {
            let mut random = seed;
            let left = torn(&piece(3, 2 + seed as usize % 7, 1), 1, &mut random).expect("several sectors").len();
            assert!(left > 0 && left < 2 + seed as usize % 7, "seed {seed}");
        }
    }

    #[test]
    fn no_tear_goes_through_what_the_medium_writes_together() {
        for seed in 0..200 {
            let mut random = seed;
            assert!(torn(&piece(8, 8, 1), 8, &mut random).is_none());
            let left = torn(&piece(6, 12, 1), 8, &mut random).expect("three of them");
            let there: HashSet<u64> = left.iter().map(|piece| piece.sector).collect();
            for atom in [6..8, 8..16, 16..18] {
                let kept = atom.clone().filter(|sector| there.contains(sector)).count();
                assert!(kept == 0 || kept == atom.count(), "seed {seed}: {there:?}");
            }
        }
    }

    #[test]
    fn a_full_cache_lets_the_oldest_go_and_still_reads_the_newest() {
        let mut cache = VolatileCache::new(1);
        let half = HELD_MAX / 2 / SECTOR;
        assert!(cache.write(piece(0, half, 1)).is_empty());
        assert!(cache.write(piece(0, 1, 2)).is_empty());
        let over = cache.write(piece(half as u64, half, 3));
        assert_eq!(over, [piece(0, half, 1)]);
        let mut bytes = vec![9; 2 * SECTOR];
        cache.overlay(0, &mut bytes);
        assert_eq!((bytes[0], bytes[SECTOR]), (2, 9), "the first is still held, the second is the medium's");
    }
}
