//! Requests that were taken and not answered, in memory that outlives the process. For kernels that cannot send them
//! again (Linux before 6.9): without this, their callers would wait for ever when the process dies.
//!
//! ```text
//!  kernel ── read ──> landing ── copied ──> slot ── answered ──> free
//! ```
//!
//! Invariants:
//! - A request is in the landing or in a slot from the moment when the kernel hands it over until its answer is sent.
//!   The landing is empty as long as its first word, the length, is 0.
//! - A slot counts once its word has the request's number, which is stored last, and is free once that is 0.
//! - A request that is in both, or whose answer was sent and not noted, is handled a second time. The kernel refuses a
//!   second answer.
//! - The last word counts the requests that found no slot and wait for an answer. If the process dies meanwhile, nobody
//!   knows them, so nobody may go on: callers get an error rather than wait for ever.
//!
//! The price, on these kernels alone: each request is copied twice.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use headpond_base::BLOCK;

use crate::fuse::buffers::DATA_BYTES;
use crate::fuse::wire::{HEAD, RequestHead, WRITE_HEAD, opcode};

/// Bytes of a request at most.
const REQUEST_MAX: usize = (WRITE_HEAD + DATA_BYTES).next_multiple_of(BLOCK);

/// How many slots there are. A request that finds none is answered as ever; only if the process dies meanwhile, the mount
/// ends ([`RequestJournal::unknown`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JournalRoom {
    /// Slots for requests of up to a block with their heads: all but large writes.
    pub small: usize,
    /// Slots for the largest requests.
    pub large: usize,
}

/// Bytes of a small slot: a write of 16 KiB, the page of most databases, with its head.
const SMALL: usize = 5 * BLOCK;

impl JournalRoom {
    /// Four times as many small ones as the kernel has under way in the background. Memory that was never used is not
    /// there; what was used once stays, so the large ones come to 130 MiB at most.
    pub const USUAL: Self = Self { small: 2048, large: 128 };

    /// Words for the slots, and one for the requests without.
    #[must_use]
    pub const fn words(self) -> usize {
        self.slots() + 1
    }

    const fn slots(self) -> usize {
        self.small + self.large
    }

    /// Bytes for landing and slots.
    #[must_use]
    pub const fn bytes(self) -> usize {
        REQUEST_MAX + self.small * SMALL + self.large * REQUEST_MAX
    }
}

/// The journal of one mount, for the door that writes it.
pub struct RequestJournal {
    landing: &'static mut [u8],
    slots: Vec<&'static mut [u8]>,
    answered: Arc<AnsweredInJournal>,
    left: Vec<Vec<u8>>,
    unknown: u64,
}

/// The journal's side for answers, which come from any thread.
pub(crate) struct AnsweredInJournal {
    words: &'static [AtomicU64],
    small: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The slot of each request that waits, if it has one.
    of: HashMap<u64, Option<usize>>,
    free_small: Vec<usize>,
    free_large: Vec<usize>,
}

impl RequestJournal {
    /// The journal in this memory, with what a process before this one left in it.
    ///
    /// # Panics
    /// When there is less memory than `room` needs.
    #[must_use]
    pub fn over(words: &'static [AtomicU64], bytes: &'static mut [u8], room: JournalRoom) -> Self {
        let (landing, mut rest) = bytes.split_at_mut(REQUEST_MAX);
        let mut slots = Vec::with_capacity(room.slots());
        for number in 0..room.slots() {
            let len = if number < room.small { SMALL } else { REQUEST_MAX };
            let (slot, behind) = rest.split_at_mut(len);
            slots.push(slot);
            rest = behind;
        }
        let mut state = State::default();
        let mut left: Vec<Vec<u8>> = Vec::new();
        for (number, slot) in slots.iter().enumerate().rev() {
            let unique = words[number].load(Ordering::Acquire);
            // Memory that was never used is not touched.
            match Some(&**slot).filter(|_| unique != 0).and_then(message) {
                Some(request) => {
                    state.of.insert(unique, Some(number));
                    left.push(request.to_vec());
                }
                None => {
                    words[number].store(0, Ordering::Release);
                    if number < room.small { &mut state.free_small } else { &mut state.free_large }.push(number);
                }
            }
        }
        let landed =
            message(landing).filter(|request| number_of(request).is_some_and(|unique| !state.of.contains_key(&unique)));
        left.extend(landed.map(<[u8]>::to_vec));
        // Numbers grow, so the oldest comes first.
        left.sort_by_key(|request| number_of(request));
        let answered = Arc::new(AnsweredInJournal { words, small: room.small, state: Mutex::new(state) });
        let unknown = answered.unkept().load(Ordering::Acquire);
        let mut journal = Self { landing, slots, answered, left, unknown };
        let landed = message(journal.landing).map(|request| (request.len(), number_of(request)));
        match landed {
            // The process died between the last two stores of `keep`. A second slot would never be free again.
            Some((_, Some(unique))) if journal.answered.state().of.contains_key(&unique) => journal.empty_landing(),
            Some((len, _)) => journal.keep(len),
            None => {}
        }
        journal
    }

    /// What a process before this one took and did not answer, oldest first.
    pub(crate) fn take_left(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.left)
    }

    /// How many requests a process before this one took, did not answer and could not keep.
    #[must_use]
    pub const fn unknown(&self) -> u64 {
        self.unknown
    }

    pub(crate) fn answered(&self) -> &Arc<AnsweredInJournal> {
        &self.answered
    }

    /// Where the kernel puts the next request.
    pub(crate) fn landing(&mut self) -> &mut [u8] {
        self.landing
    }

    /// The request of `len` bytes that has landed.
    pub(crate) fn landed(&self, len: usize) -> &[u8] {
        &self.landing[..len]
    }

    /// Keeps the request that has landed until it is answered, and empties the landing.
    pub(crate) fn keep(&mut self, len: usize) {
        if let Some(unique) = number_of(&self.landing[..len])
            && let Some(slot) = self.answered.slot_for(unique, len)
        {
            self.slots[slot][..len].copy_from_slice(&self.landing[..len]);
            self.answered.words[slot].store(unique, Ordering::Release);
        }
        self.empty_landing();
    }

    fn empty_landing(&mut self) {
        self.landing[..4].fill(0);
        // The next store to the landing is the kernel's.
        std::sync::atomic::fence(Ordering::SeqCst);
    }
}

impl AnsweredInJournal {
    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is one step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The count of requests that wait and found no slot.
    fn unkept(&self) -> &'static AtomicU64 {
        &self.words[self.words.len() - 1]
    }

    fn slot_for(&self, unique: u64, len: usize) -> Option<usize> {
        let mut state = self.state();
        let small = if len <= SMALL { state.free_small.pop() } else { None };
        let slot = small.or_else(|| state.free_large.pop());
        if slot.is_none() {
            self.unkept().fetch_add(1, Ordering::Release);
        }
        state.of.insert(unique, slot);
        slot
    }

    /// The answer to a request was sent.
    pub(crate) fn is_answered(&self, unique: u64) {
        let mut state = self.state();
        match state.of.remove(&unique) {
            None => {}
            Some(None) => drop(self.unkept().fetch_sub(1, Ordering::Release)),
            Some(Some(slot)) => {
                self.words[slot].store(0, Ordering::Release);
                if slot < self.small { &mut state.free_small } else { &mut state.free_large }.push(slot);
            }
        }
    }
}

/// The request in a landing or slot, if there is one.
fn message(memory: &[u8]) -> Option<&[u8]> {
    let head = RequestHead::parse(&memory[..WRITE_HEAD]).filter(|head| head.len >= HEAD)?;
    memory.get(..head.len)
}

/// A request's number, if it waits for an answer.
fn number_of(request: &[u8]) -> Option<u64> {
    let head = RequestHead::parse(&request[..request.len().min(WRITE_HEAD)])?;
    let is_answered =
        !matches!(head.opcode, opcode::FORGET | opcode::BATCH_FORGET | opcode::INTERRUPT | opcode::DESTROY);
    (is_answered && head.unique != 0).then_some(head.unique)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: JournalRoom = JournalRoom { small: 2, large: 1 };

    /// A request of `len` bytes with this number.
    fn request(opcode: u32, unique: u64, len: usize) -> Vec<u8> {
        let mut request = vec![7; len];
        request[..4].copy_from_slice(&(len as u32).to_ne_bytes());
        request[4..8].copy_from_slice(&opcode.to_ne_bytes());
        request[8..16].copy_from_slice(&unique.to_ne_bytes());
        request
    }

    fn numbers(left: &[Vec<u8>]) -> Vec<u64> {
        left.iter().filter_map(|request| number_of(request)).collect()
    }

    #[test]
    fn what_was_taken_and_not_answered_is_left_in_order() {
        let words: &'static [AtomicU64] = Vec::leak((0..ROOM.words()).map(|_| AtomicU64::new(0)).collect());
        // One process after the other has the memory: a copy of it stands for that.
        let mut bytes = vec![0; ROOM.bytes()];
        let take = |bytes: &mut Vec<u8>| RequestJournal::over(words, Vec::leak(std::mem::take(bytes)), ROOM);
        let mut journal = take(&mut bytes);
        assert!(journal.take_left().is_empty());
        let land =
            |journal: &mut RequestJournal, request: &[u8]| journal.landing()[..request.len()].copy_from_slice(request);
        for (opcode, unique, len) in [(15, 20, 80), (16, 12, 70_000), (1, 14, 50), (opcode::FORGET, 16, 48)] {
            land(&mut journal, &request(opcode, unique, len));
            journal.keep(len);
        }
        journal.answered().is_answered(14);
        land(&mut journal, &request(3, 22, 56));
        // The process dies here.
        let mut bytes =
            [&*journal.landing, &journal.slots.iter().flat_map(|slot| slot.to_vec()).collect::<Vec<_>>()].concat();
        let mut journal = take(&mut bytes);
        let left = journal.take_left();
        assert_eq!(numbers(&left), [12, 20, 22]);
        assert!(left[0] == request(16, 12, 70_000) && left[1] == request(15, 20, 80));
        assert!(message(journal.landing).is_none(), "it is in a slot by now");
        for unique in [12, 20, 22] {
            journal.answered().is_answered(unique);
        }
        assert!(words.iter().all(|word| word.load(Ordering::Acquire) == 0));
    }

    #[test]
    fn a_request_that_is_in_the_landing_and_in_a_slot_is_there_once() {
        let words: &'static [AtomicU64] = Vec::leak((0..ROOM.words()).map(|_| AtomicU64::new(0)).collect());
        let request = request(15, 8, 80);
        // As the process left it that died between the two stores.
        let mut bytes = vec![0; ROOM.bytes()];
        bytes[..80].copy_from_slice(&request);
        bytes[REQUEST_MAX + SMALL..][..80].copy_from_slice(&request);
        words[1].store(8, Ordering::Release);
        let mut journal = RequestJournal::over(words, Vec::leak(bytes), ROOM);
        assert_eq!(numbers(&journal.take_left()), [8]);
        assert!(message(journal.landing).is_none());
        journal.answered().is_answered(8);
        assert!(words.iter().all(|word| word.load(Ordering::Acquire) == 0));
    }

    #[test]
    fn who_comes_after_knows_that_requests_without_a_slot_were_under_way() {
        let words: &'static [AtomicU64] = Vec::leak((0..ROOM.words()).map(|_| AtomicU64::new(0)).collect());
        let over = || RequestJournal::over(words, Vec::leak(vec![0; ROOM.bytes()]), ROOM);
        let mut journal = over();
        for unique in 1..=5 {
            let request = request(15, unique, 80);
            journal.landing()[..80].copy_from_slice(&request);
            journal.keep(80);
        }
        assert_eq!((over().unknown(), over().unknown()), (2, 2), "each one that comes after");
        journal.answered().is_answered(5);
        assert_eq!(over().unknown(), 1);
        // Its slot is for the next one.
        for answered in [4, 2, 2] {
            journal.answered().is_answered(answered);
        }
        assert_eq!(over().unknown(), 0);
        journal.landing()[..80].copy_from_slice(&request(15, 6, 80));
        journal.keep(80);
        assert_eq!(over().unknown(), 0);
    }
}
