//! The second tail of the log: host batches in memory that outlives the process.
//!
//! A process may die at any instruction, while flash goes on. What it acknowledged is then either in a write that
//! flash completed, or here. The next process writes what is here to its place on flash ([`left_by`]), syncs, and
//! recovers as always.
//!
//! No byte is copied for this. A host batch is filled in a slot of that memory, and its flash write reads the slot. A
//! row of words beside the slots says what each holds (`rows.rs`):
//!
//! ```text
//!  Free ── Log::take_io ──> Filling ── Log::close ──> Closed ── Log::wrote ──> Free
//!                            |   ^
//!                            +---+ more was appended; or the batch has moved to a larger slot
//! ```
//!
//! Invariants:
//! - A row's state is stored last, and freed first. So between any two stores the rows name only bytes that are there.
//! - What a row names is whole requests: rows change in `Log::take_io` and `Log::close`, which come between
//!   requests, or name what they named before.
//! - A slot is lent anew only after its row is free. A row is freed only once flash completed the write, or another slot
//!   has the same batch.
//! - Host batches are a chain, and one that is missing ends it. A batch that found no slot is therefore a hole in the
//!   cover of all that follows, until it is written: [`SecondTail::covers_all`] is false, and the engine answers
//!   nothing.
//!
//! What needs no cover, and why. A death of the process with the rows redone leaves flash as some power cut could: one
//! that kept all completed writes and these host batches, and of the other writes what it liked. Recovery accepts that,
//! because each rule for it waits for a sync and not for a write:
//! - **Heads of segments.** The first batch of a host segment tells its life as well (`lives.rs`), and it is
//!   completed or redone. A copy is known by its head alone, so nothing is covered before that is written.
//! - **Footers.** Without one the segment is walked.
//! - **Hot and cold streams.** They hold copies of what the origin has. Dirty records that reclaim moves go to the host
//!   stream, and the segment that they leave is reused only after they are durable (`segments.rs`).
//! - **Checkpoints and superblocks.** The old ones count until the new ones are durable.
//! - **Trims, and the reuse of a segment.** They follow the sync of what emptied the segment. A row never names a
//!   segment that is reused: its write is not completed, and keeps the segment.
//!
//! The price: a few stores and a fence for each batch, and a second copy of each entry, 40 bytes for a block.

mod acknowledged;
mod left;
mod rows;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering, fence};

use headpond_base::{BLOCK, BatchNumber, Buf, BufMut, Lender};
use headpond_format::{Address, BatchHead};

use crate::buffers::Buffers;
use crate::mutation::Mutation;
use crate::open::OpenBatch;
use crate::start::WriteId;
pub use acknowledged::LastAcknowledged;
pub use left::{LeftBehind, LeftError, LeftWrite, left_by};
pub use rows::TailSlots;
use rows::{LAYOUT, NUMBER, RowState, TITLE_WORDS, facts_of, state_word};

/// Slots that are not batches under way when a change begins: it may need two, and another entry one.
const SPARE: usize = 3;

/// The row of the open batch, as it was published last.
struct OpenRow {
    slot: usize,
    facts: [u64; rows::FACTS],
    state: RowState,
}

/// The writer's side of the second tail. The log owns it.
pub struct SecondTail {
    words: &'static [AtomicU64],
    lender: Lender,
    slots: usize,
    open: Option<OpenRow>,
    /// Batches whose writes are not completed. They keep their slots.
    under_way: BTreeMap<WriteId, Buf>,
    /// Batches that found no slot, until they are written.
    uncovered: BTreeSet<WriteId>,
    /// The last host batch of which this log has published something, or had to write it first.
    last: Option<LastAcknowledged>,
    /// What the title names.
    acknowledged: Option<LastAcknowledged>,
    mutation: Option<Mutation>,
    before_store: Option<Box<dyn Fn() + Send>>,
}

impl SecondTail {
    /// Takes memory into use. What an earlier process left in it must be durable on flash: its rows are freed. The title
    /// goes on to name the last batch that was acknowledged, until this log publishes one.
    ///
    /// `memory` is what [`TailSlots::split`] made.
    ///
    /// # Panics
    /// When there are fewer words than [`TailSlots::words`], or other slots than `slots` names.
    #[must_use]
    pub fn new(words: &'static [AtomicU64], slots: TailSlots, memory: Vec<&'static mut [u8]>) -> Self {
        assert!(words.len() >= slots.words(), "{slots:?} need {} words, here are {}", slots.words(), words.len());
        assert!(slots.are(&memory), "the memory is not {slots:?}");
        let mut tail = Self {
            words,
            slots: memory.len(),
            lender: Lender::new(memory),
            open: None,
            under_way: BTreeMap::new(),
            uncovered: BTreeSet::new(),
            last: None,
            acknowledged: None,
            mutation: None,
            before_store: None,
        };
        (0..tail.slots).for_each(|slot| tail.free(slot));
        tail.store(1, slots.number());
        tail.acknowledged = LastAcknowledged::in_title(words);
        // The title counts once the layout is there.
        tail.store(0, LAYOUT);
        tail
    }

    /// Calls `before_store` before each store: for a simulator that lets the process die there.
    #[must_use]
    pub fn watched(self, before_store: Box<dyn Fn() + Send>) -> Self {
        Self { before_store: Some(before_store), ..self }
    }

    pub(crate) fn with_bug(self, mutation: Option<Mutation>) -> Self {
        Self { mutation, ..self }
    }

    /// The last host batch that a process before this one acknowledged. The log that this tail is given to must have it.
    #[must_use]
    pub const fn last_acknowledged(&self) -> Option<LastAcknowledged> {
        self.acknowledged
    }

    /// The lender of the slots.
    #[must_use]
    pub fn lender(&self) -> Lender {
        self.lender.clone()
    }

    /// Whether every host batch is in a slot, or written.
    pub(crate) fn covers_all(&self) -> bool {
        self.uncovered.is_empty()
    }

    /// Whether there are slots for another change.
    pub(crate) fn has_room(&self) -> bool {
        self.covers_all() && self.under_way.len() + SPARE <= self.slots
    }

    /// A slot of at least `len` bytes. Batches that need no slot any more leave theirs if need be.
    pub(crate) fn lend(&self, len: usize, buffers: &mut Buffers) -> Option<BufMut> {
        let counts = |slot| self.under_way.values().any(|data| data.slot() == Some(slot));
        self.lender.lend(len).or_else(|| buffers.leave_slots(counts, || self.lender.lend(len)))
    }

    /// Whether the row of the open batch says all that the batch holds, and `number` as its own. What it says was
    /// synced may be older.
    pub(crate) fn is_published(&self, batch: &OpenBatch, number: BatchNumber) -> bool {
        let said = |open: &OpenRow| open.state == filling(batch) && open.facts[NUMBER] == number.0;
        batch.entries.is_empty() || self.open.as_ref().is_some_and(|open| Some(open.slot) == batch.slot() && said(open))
    }

    /// Publishes what the open batch holds now.
    pub(crate) fn publish(&mut self, batch: &OpenBatch, places: &[Address], head: &BatchHead) {
        if let Some(slot) = batch.slot().filter(|_| !batch.entries.is_empty()) {
            self.show(slot, places, head, filling(batch));
            self.reach(places, head);
        }
    }

    /// The open batch has moved from the slot of `before` to another. What is published of it stays published.
    pub(crate) fn moved(&mut self, before: &BufMut, batch: &OpenBatch) {
        let Some((old, new)) = before.slot().zip(batch.slot()) else { return };
        let Some(open) = self.open.take_if(|open| open.slot == old) else { return };
        open.facts.iter().enumerate().for_each(|(fact, word)| self.store_fact(new, fact, *word));
        self.store_state(new, open.state);
        self.free(old);
        self.open = Some(OpenRow { slot: new, ..open });
    }

    /// The open batch is submitted as the write `id`.
    pub(crate) fn closed(&mut self, id: WriteId, places: &[Address], head: &BatchHead, data: &Buf) {
        let Some(slot) = data.slot() else {
            self.uncovered.insert(id);
            self.reach(places, head);
            return;
        };
        #[allow(clippy::cast_possible_truncation)] // a batch is bounded
        let blocks = (data.len() / BLOCK) as u32;
        self.show(slot, places, head, RowState::Closed { blocks });
        self.reach(places, head);
        self.open = None;
        self.under_way.insert(id, data.clone());
        if Mutation::FreeSlotEarly.is_planted(self.mutation) {
            self.free(slot);
        }
    }

    /// Nothing is covered before this write is completed.
    pub(crate) fn waits_for(&mut self, id: WriteId) {
        self.uncovered.insert(id);
    }

    /// Flash has completed a write.
    pub(crate) fn wrote(&mut self, id: WriteId) {
        if self.uncovered.remove(&id) {
            self.note_acknowledged();
        }
        if let Some(slot) = self.under_way.get(&id).and_then(Buf::slot) {
            self.free(slot);
            self.under_way.remove(&id);
        }
    }

    /// The log is published up to this batch. One without a place is of a pool that takes no writes any more.
    fn reach(&mut self, places: &[Address], head: &BatchHead) {
        if !places.is_empty() {
            self.last = Some(LastAcknowledged { pool: head.pool, number: head.number });
            self.note_acknowledged();
        }
    }

    /// Names the last batch in the title as soon as something of it may be answered. Its row is there by then, or flash
    /// has it.
    fn note_acknowledged(&mut self) {
        let due = self.last.filter(|_| self.covers_all()).filter(|last| self.acknowledged != Some(*last));
        if let Some(last) = due {
            last.follow(self.acknowledged, |word, value| self.store(word, value));
            self.acknowledged = Some(last);
        }
    }

    /// Stores what has changed of a row. Every state between is one of before, with later numbers in its head.
    fn show(&mut self, slot: usize, places: &[Address], head: &BatchHead, state: RowState) {
        let facts = facts_of(places, head);
        let before = self.open.take().filter(|open| open.slot == slot);
        for (fact, word) in facts.iter().enumerate() {
            if before.as_ref().is_none_or(|before| before.facts[fact] != *word) {
                self.store_fact(slot, fact, *word);
            }
        }
        if before.is_none_or(|before| before.state != state) {
            self.store_state(slot, state);
        }
        self.open = Some(OpenRow { slot, facts, state });
    }

    fn store_fact(&self, slot: usize, fact: usize, word: u64) {
        self.store(rows::fact_at(slot, fact), word);
    }

    fn store_state(&self, slot: usize, state: RowState) {
        self.store(rows::state_at(slot), state_word(state));
    }

    /// Frees a row. Nothing that comes later may be stored before this: the slot is filled anew.
    fn free(&self, slot: usize) {
        if self.words[rows::state_at(slot)].load(Ordering::Relaxed) != 0 {
            self.store_state(slot, RowState::Free);
            fence(Ordering::SeqCst);
        }
    }

    /// Every store is ordered behind all before it, which costs nothing where stores are in order anyway.
    fn store(&self, word: usize, value: u64) {
        debug_assert!(word < TITLE_WORDS + self.slots * rows::ROW_WORDS, "a word of a row");
        if let Some(before_store) = &self.before_store {
            before_store();
        }
        self.words[word].store(value, Ordering::Release);
    }
}

/// The state of the open batch's row.
#[allow(clippy::cast_possible_truncation)] // entries fit a block
const fn filling(batch: &OpenBatch) -> RowState {
    RowState::Filling { entry_bytes: batch.entries.len() as u32, units: batch.next_unit() }
}

impl std::fmt::Debug for SecondTail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SecondTail({} slots, {} batches under way)", self.slots, self.under_way.len())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use headpond_base::{Epoch, Generation, MemberId, OwnerNumber, PoolId, SegmentId, Stream};

    use super::*;

    const SLOTS: TailSlots = TailSlots { usual: 1, largest: 0 };

    fn head(number: u64) -> BatchHead {
        BatchHead {
            pool: PoolId([7; 16]),
            epoch: Epoch(1),
            segment: SegmentId(3),
            generation: Generation(4),
            stream: Stream::Host,
            number: BatchNumber(number),
            previous_host: BatchNumber(0),
            owner: OwnerNumber(0),
            synced_through: BatchNumber(0),
            synced_host: BatchNumber(0),
            payload_blocks: 0,
        }
    }

    fn words() -> &'static [AtomicU64] {
        (0..SLOTS.words()).map(|_| AtomicU64::new(0)).collect::<Vec<_>>().leak()
    }

    fn tail(words: &'static [AtomicU64]) -> SecondTail {
        let room = vec![0; SLOTS.bytes() + BLOCK].leak();
        let skip = room.as_ptr().align_offset(BLOCK);
        SecondTail::new(words, SLOTS, SLOTS.split(&mut room[skip..]))
    }

    #[test]
    fn between_two_stores_a_row_names_no_place_that_the_batch_never_had() {
        let at = |member, block: u64| Address { member: MemberId(member), offset: block * BLOCK as u64 };
        let (one, other) = (at(0, 5), at(1, 9));
        for left in [one, other] {
            let words = words();
            let seen = Arc::new(Mutex::new(Vec::new()));
            let see = seen.clone();
            let mut tail = tail(words).watched(Box::new(move || {
                let facts = std::array::from_fn(|fact| words[rows::fact_at(0, fact)].load(Ordering::Relaxed));
                see.lock().expect("one thread").extend(rows::head_of(&facts).map(|(places, _)| places));
            }));
            let filling = |units| RowState::Filling { entry_bytes: 40, units };
            tail.show(0, &[one, other], &head(8), filling(8));
            seen.lock().expect("one thread").clear();
            tail.show(0, &[left], &head(8), filling(16));
            let seen = seen.lock().expect("one thread");
            assert!(!seen.is_empty() && seen.iter().flatten().all(|place| [one, other].contains(place)), "{seen:?}");
            assert_eq!(seen.last(), Some(&vec![left]), "before the state is stored");
        }
    }

    #[test]
    fn the_last_batch_that_was_acknowledged_is_named_once_all_before_it_survive() {
        let words = words();
        let named = |tail: &SecondTail| tail.last_acknowledged().map(|last| last.number.0);
        let mut first = tail(words);
        assert_eq!(named(&first), None);
        let place = [Address { member: MemberId(0), offset: 0 }];
        first.reach(&place, &head(3));
        assert_eq!(named(&first), Some(3));
        first.waits_for(WriteId(1));
        first.reach(&place, &head(4));
        first.reach(&[], &head(5));
        assert_eq!(named(&first), Some(3), "a batch before it is in no slot; one without a place is nowhere");
        first.wrote(WriteId(1));
        assert_eq!(named(&first), Some(4));
        // A successor that publishes nothing leaves it for the next.
        assert_eq!(named(&tail(words)), Some(4));
        let last = tail(words).last_acknowledged().expect("it is named");
        assert!(last.is_lost_in(PoolId([7; 16]), BatchNumber(3)) && !last.is_lost_in(PoolId([7; 16]), BatchNumber(4)));
        assert!(!last.is_lost_in(PoolId([8; 16]), BatchNumber(3)), "another pool");
        // The number of one pool never stands beside the id of another.
        let seen = Arc::new(Mutex::new(Vec::new()));
        let see = seen.clone();
        let mut other = tail(words).watched(Box::new(move || {
            see.lock().expect("one thread").push(LastAcknowledged::in_title(words));
        }));
        other.reach(&place, &BatchHead { pool: PoolId([8; 16]), ..head(2) });
        let seen = seen.lock().expect("one thread");
        assert_eq!(seen[..], [Some(last), None, None, None]);
        assert_eq!(LastAcknowledged::in_title(words).map(|last| (last.pool.0[0], last.number.0)), Some((8, 2)));
    }
}
