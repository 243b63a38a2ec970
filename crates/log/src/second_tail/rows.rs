//! The words of the second tail, one by one. docs/format.md draws them.
//!
//! ```text
//!  title: 16 words   0 layout   1 slots (usual in the upper half, largest in the lower)
//!    2-4 the last acknowledged batch (`acknowledged.rs`)
//!  then a row of 16 words for each slot:
//!    0 state   1 place   2 place of the copy   3-4 pool   5 epoch   6 segment   7 generation   8 number
//!    9 previous_host   10 owner   11 synced_through   12 synced_host   13 place of the second copy
//! ```
//!
//! A place is one word, the member's number plus 1 above 48 bits of its block, so that no store leaves half of one. 0 is
//! no place. A state is `kind` in its upper byte. Free: 0. Filling: 1, bytes of entries in bits 32 to 55, units of
//! payload below. Closed: 2, blocks of the batch in the lower half.

use headpond_base::{
    BLOCK, BLOCK_U64, BatchNumber, Epoch, Generation, MemberId, OwnerNumber, PoolId, SegmentId, Stream,
};
use headpond_format::{Address, BATCH_PAYLOAD_BLOCKS_MAX, BatchHead};

use crate::open::BUFFER_BLOCKS;

/// The layout of words and slots. A program that does not know it must leave them alone.
pub(super) const LAYOUT: u64 = u64::from_be_bytes(*b"HPtail\0\x04");

/// Words before the first row.
pub(super) const TITLE_WORDS: usize = 16;

/// Words of a row: two lines of a processor's cache.
pub(super) const ROW_WORDS: usize = 16;

/// Facts of a row: its words without the state.
pub(super) const FACTS: usize = 13;

/// The fact that is the batch's number.
pub(super) const NUMBER: usize = 7;

/// Blocks of a slot for usual batches.
const USUAL_BLOCKS: usize = BUFFER_BLOCKS;

/// Blocks of a slot for the largest batch.
const LARGEST_BLOCKS: usize = 1 + BATCH_PAYLOAD_BLOCKS_MAX;

/// How many slots of each size there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TailSlots {
    /// Slots for usual batches, 128 KiB each.
    pub usual: u32,
    /// Slots for the largest batch, 1 MiB and two blocks each.
    pub largest: u32,
}

impl TailSlots {
    /// 64 MiB: as much as the log holds that is not synced. Memory that was never used is not there.
    pub const USUAL: Self = Self { usual: 256, largest: 32 };

    /// Words that the rows take.
    #[must_use]
    pub const fn words(self) -> usize {
        TITLE_WORDS + (self.usual + self.largest) as usize * ROW_WORDS
    }

    /// Bytes that the slots take.
    #[must_use]
    pub const fn bytes(self) -> usize {
        (self.usual as usize * USUAL_BLOCKS + self.largest as usize * LARGEST_BLOCKS) * BLOCK
    }

    fn sizes(self) -> impl Iterator<Item = usize> {
        let usual = std::iter::repeat_n(USUAL_BLOCKS * BLOCK, self.usual as usize);
        usual.chain(std::iter::repeat_n(LARGEST_BLOCKS * BLOCK, self.largest as usize))
    }

    /// Divides memory into the slots. What is too much is left out.
    ///
    /// # Panics
    /// When it has fewer than [`TailSlots::bytes`].
    #[must_use]
    pub fn split(self, memory: &mut [u8]) -> Vec<&mut [u8]> {
        assert!(memory.len() >= self.bytes(), "{self:?} need {} bytes, here are {}", self.bytes(), memory.len());
        let mut rest = memory;
        let mut next = |size| {
            let (slot, behind) = std::mem::take(&mut rest).split_at_mut(size);
            rest = behind;
            slot
        };
        self.sizes().map(&mut next).collect()
    }

    /// Whether these are such slots.
    pub(super) fn are(self, memory: &[impl AsRef<[u8]>]) -> bool {
        self.sizes().eq(memory.iter().map(|slot| slot.as_ref().len()))
    }

    /// Both numbers as a word.
    pub(super) const fn number(self) -> u64 {
        (self.usual as u64) << 32 | self.largest as u64
    }

    pub(super) const fn from_number(number: u64) -> Self {
        #[allow(clippy::cast_possible_truncation)] // the two halves
        let (usual, largest) = ((number >> 32) as u32, number as u32);
        Self { usual, largest }
    }
}

/// What a slot holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RowState {
    Free,
    /// A batch whose head is still to be made.
    Filling {
        entry_bytes: u32,
        units: u32,
    },
    /// A batch as flash gets it.
    Closed {
        blocks: u32,
    },
}

const FILLING: u64 = 1 << 56;
const CLOSED: u64 = 2 << 56;

pub(super) const fn state_word(state: RowState) -> u64 {
    match state {
        RowState::Free => 0,
        RowState::Filling { entry_bytes, units } => FILLING | (entry_bytes as u64) << 32 | units as u64,
        RowState::Closed { blocks } => CLOSED | blocks as u64,
    }
}

/// The state that a word says, if it says one.
pub(super) fn state_of(word: u64) -> Option<RowState> {
    #[allow(clippy::cast_possible_truncation)] // the lower half
    let low = word as u32;
    #[allow(clippy::cast_possible_truncation)] // 24 bits
    let state = match word & 0xff << 56 {
        0 => RowState::Free,
        FILLING => RowState::Filling { entry_bytes: (word >> 32 & 0xff_ffff) as u32, units: low },
        CLOSED => RowState::Closed { blocks: low },
        _ => return None,
    };
    (state_word(state) == word).then_some(state)
}

/// The word of a row's state.
pub(super) const fn state_at(slot: usize) -> usize {
    TITLE_WORDS + slot * ROW_WORDS
}

/// The word of a row's fact.
pub(super) const fn fact_at(slot: usize, fact: usize) -> usize {
    state_at(slot) + 1 + fact
}

/// What a row says of a batch besides its state.
pub(super) fn facts_of(places: &[Address], head: &BatchHead) -> [u64; FACTS] {
    let [pool_low, pool_high] = pool_words(head.pool);
    // A batch of a pool that takes no writes any more has no place, and is not covered.
    let place = |which: usize| places.get(which).map_or(0, place_word);
    [
        place(0),
        place(1),
        pool_low,
        pool_high,
        head.epoch.0,
        u64::from(head.segment.0),
        head.generation.0,
        head.number.0,
        head.previous_host.0,
        head.owner.0,
        head.synced_through.0,
        head.synced_host.0,
        place(2),
    ]
}

/// Bits of a place's word that name its block.
const BLOCK_BITS: u32 = 48;

const fn place_word(at: &Address) -> u64 {
    ((at.member.0 as u64 + 1) << BLOCK_BITS) | (at.offset / BLOCK_U64)
}

/// The place that a word names, if it names one.
fn place_of(word: u64) -> Option<Address> {
    let member = (word >> BLOCK_BITS).checked_sub(1)?;
    let block = word & ((1 << BLOCK_BITS) - 1);
    Some(Address { member: MemberId(member.try_into().ok()?), offset: block * BLOCK_U64 })
}

/// A pool's id as two words, the first eight bytes first.
pub(super) fn pool_words(pool: PoolId) -> [u64; 2] {
    let id = u128::from_le_bytes(pool.0);
    #[allow(clippy::cast_possible_truncation)] // the two halves
    [id as u64, (id >> 64) as u64]
}

/// The pool that two words name.
pub(super) fn pool_of([low, high]: [u64; 2]) -> PoolId {
    PoolId((u128::from(high) << 64 | u128::from(low)).to_le_bytes())
}

/// The places and the head that facts say, if they say some. A batch of the host stream without payload.
pub(super) fn head_of(facts: &[u64; FACTS]) -> Option<(Vec<Address>, BatchHead)> {
    let [at, copy, low, high, epoch, segment, generation, number, previous_host, owner, through, host, second] = *facts;
    let mut places = vec![place_of(at)?];
    // While a lost copy is struck, one place is named twice.
    for word in [copy, second].into_iter().filter(|word| *word != 0) {
        let place = place_of(word)?;
        if !places.contains(&place) {
            places.push(place);
        }
    }
    let head = BatchHead {
        pool: pool_of([low, high]),
        epoch: Epoch(epoch),
        segment: SegmentId(segment.try_into().ok()?),
        generation: Generation(generation),
        stream: Stream::Host,
        number: BatchNumber(number),
        previous_host: BatchNumber(previous_host),
        owner: OwnerNumber(owner),
        synced_through: BatchNumber(through),
        synced_host: BatchNumber(host),
        payload_blocks: 0,
    };
    Some((places, head))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_row_says_reads_back() {
        let head = BatchHead {
            pool: PoolId([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]),
            epoch: Epoch(2),
            segment: SegmentId(3),
            generation: Generation(4),
            stream: Stream::Host,
            number: BatchNumber(9),
            previous_host: BatchNumber(8),
            owner: OwnerNumber(7),
            synced_through: BatchNumber(6),
            synced_host: BatchNumber(5),
            payload_blocks: 0,
        };
        let at = Address { member: MemberId(1), offset: 5 * BLOCK as u64 };
        let copy = Address { member: MemberId(0), offset: 9 * BLOCK as u64 };
        let second = Address { member: MemberId(2), offset: 7 * BLOCK as u64 };
        for places in [&[at][..], &[at, copy], &[at, copy, second]] {
            assert_eq!(head_of(&facts_of(places, &head)), Some((places.to_vec(), head)));
        }
        let mut facts = facts_of(&[copy, at], &head);
        facts[0] = facts_of(&[at], &head)[0];
        assert_eq!(head_of(&facts), Some((vec![at], head)), "a place that is named twice is one");
        assert_eq!(head_of(&facts_of(&[], &head)), None, "a batch without a place");
    }

    #[test]
    fn a_state_reads_back_and_other_words_are_none() {
        let filling = RowState::Filling { entry_bytes: 3968, units: 257 * 8 };
        for state in [RowState::Free, filling, RowState::Closed { blocks: 258 }] {
            assert_eq!(state_of(state_word(state)), Some(state));
        }
        for word in [1, 3 << 56, CLOSED | 1 << 40, u64::MAX] {
            assert_eq!(state_of(word), None, "{word:x}");
        }
    }

    #[test]
    fn slots_take_the_memory_that_they_ask_for() {
        let slots = TailSlots { usual: 3, largest: 2 };
        let mut memory = vec![0; slots.bytes() + 1];
        let split = slots.split(&mut memory);
        assert!(slots.are(&split) && split.len() == 5);
        assert_eq!(TailSlots::from_number(slots.number()), slots);
        assert!(!TailSlots { usual: 2, largest: 2 }.are(&split));
    }
}
