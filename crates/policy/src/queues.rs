//! Blocks in several FIFO queues. Nine bytes a block, and less than five in the index.
//!
//! A queue is a chain of pages of 64 slots. Blocks are appended at its head and taken from its tail, so a block needs
//! no links. A block that leaves from the middle leaves a hole.
//!
//! Invariants:
//! - A block is in exactly one queue. Its slot says which, and the index says where.
//! - A page without blocks is free. Two neighbouring pages become one when their blocks fit into one. So every queue,
//!   without its ends, is at least half full, and each step costs at most 64 moves. While holes take up pages,
//!   [`Queues::is_full`] returns true before all slots are in use. Then the caller evicts until a page is free.

use crate::Key;
use crate::index::Index;

/// Slots in a page. With more, the ends of queues would waste more room. With fewer, the links of the chains would
/// count.
const PAGE: usize = 64;
/// No page.
const NIL: u32 = u32::MAX;
/// The most queues.
const QUEUES: usize = 5;

/// What is known of a block, in one byte: its queue and a mark, and two counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct State {
    /// The block's queue.
    pub(crate) queue: u8,
    /// Uses since it came into its queue, up to 3.
    pub(crate) uses: u8,
    /// How often the block was used recently, up to 7. Remembered when the block goes.
    pub(crate) frequency: u8,
    /// The block is only in memory.
    pub(crate) in_memory: bool,
}

impl State {
    pub(crate) const USES_MAX: u8 = 3;
    pub(crate) const FREQUENCY_MAX: u8 = 7;

    /// Places are numbered from 1, so a zero byte is a hole. Only queue 0 needs the mark for memory, so the mark is a
    /// place of its own.
    const fn pack(self) -> u8 {
        let place = if self.in_memory { 1 } else { self.queue + 2 };
        place | self.uses << 3 | self.frequency << 5
    }

    const fn unpack(byte: u8) -> Self {
        let place = byte & 7;
        Self {
            queue: place.saturating_sub(2),
            uses: byte >> 3 & Self::USES_MAX,
            frequency: byte >> 5,
            in_memory: place == 1,
        }
    }
}

#[derive(Clone, Copy)]
struct Page {
    newer: u32,
    older: u32,
    /// Slots handed out.
    filled: u8,
    /// Slots with a block.
    live: u8,
    queue: u8,
    /// The clock when the page was begun.
    begun: u32,
}

#[derive(Clone, Copy)]
struct Queue {
    head: u32,
    tail: u32,
    len: usize,
}

pub(crate) struct Queues {
    keys: Vec<u64>,
    states: Vec<u8>,
    pages: Vec<Page>,
    queues: [Queue; QUEUES],
    /// The first free page. `older` chains the free pages.
    free: u32,
    free_pages: usize,
    /// Counts what the owner counts, and wraps.
    clock: u32,
    index: Index,
}

const fn slot_of(page: u32, at: u8) -> u32 {
    page * PAGE as u32 + at as u32
}

const fn page_of(slot: u32) -> u32 {
    slot / PAGE as u32
}

impl Queues {
    /// Makes queues for `blocks` blocks. Each queue may have a page just begun and one not used up. As many pages are
    /// kept free, so that an append always finds one.
    pub(crate) fn new(blocks: usize) -> Self {
        let pages = blocks.div_ceil(PAGE) + 3 * QUEUES;
        assert!(blocks > 0 && pages * PAGE < NIL as usize, "a policy keeps between one block and 2^32");
        let page = |older| Page { newer: NIL, older, filled: 0, live: 0, queue: 0, begun: 0 };
        let chain = (1..=pages).map(|next| page(u32::try_from(next).expect("counted above")));
        let mut pages: Vec<_> = chain.collect();
        if let Some(last) = pages.last_mut() {
            last.older = NIL;
        }
        Self {
            keys: vec![0; pages.len() * PAGE],
            states: vec![0; pages.len() * PAGE],
            queues: [Queue { head: NIL, tail: NIL, len: 0 }; QUEUES],
            free: 0,
            free_pages: pages.len(),
            clock: 0,
            pages,
            index: Index::new(blocks),
        }
    }

    pub(crate) fn memory(&self) -> usize {
        self.keys.len() * 9 + self.pages.len() * size_of::<Page>() + self.index.memory()
    }

    pub(crate) fn slots(&self) -> usize {
        self.keys.len()
    }

    /// Whether an append to any queue might find no page.
    pub(crate) const fn is_full(&self) -> bool {
        self.free_pages < QUEUES
    }

    /// Whether there is a page for a move that need not happen. The move leaves room behind.
    pub(crate) const fn has_page(&self) -> bool {
        self.free_pages > 1
    }

    pub(crate) const fn len(&self, queue: u8) -> usize {
        self.queues[queue as usize].len
    }

    pub(crate) fn find(&self, key: Key) -> Option<u32> {
        self.index.find(key, |slot| Key(self.keys[slot as usize]))
    }

    pub(crate) fn key(&self, slot: u32) -> Key {
        Key(self.keys[slot as usize])
    }

    pub(crate) fn state(&self, slot: u32) -> State {
        State::unpack(self.states[slot as usize])
    }

    /// Changes a block's counts or mark, not its queue.
    pub(crate) fn set_state(&mut self, slot: u32, state: State) {
        debug_assert_eq!(self.state(slot).queue, state.queue);
        self.states[slot as usize] = state.pack();
    }

    /// Halves the frequency of the block in a slot, if there is one.
    pub(crate) fn age(&mut self, slot: usize) {
        let state = &mut self.states[slot];
        *state = *state & 0x1f | (*state >> 1) & 0x60;
    }

    /// Appends a block that is in no queue.
    pub(crate) fn push(&mut self, key: Key, state: State) -> u32 {
        let queue = usize::from(state.queue);
        let mut page = self.queues[queue].head;
        if page == NIL || usize::from(self.pages[page as usize].filled) == PAGE {
            page = self.take_page(state.queue);
        }
        let entry = &mut self.pages[page as usize];
        let slot = slot_of(page, entry.filled);
        entry.filled += 1;
        entry.live += 1;
        self.queues[queue].len += 1;
        self.keys[slot as usize] = key.0;
        self.states[slot as usize] = state.pack();
        self.point(key, slot);
        slot
    }

    fn point(&mut self, key: Key, slot: u32) {
        let keys = &self.keys;
        self.index.set(key, slot, |slot| Key(keys[slot as usize]));
    }

    fn take_page(&mut self, queue: u8) -> u32 {
        let page = self.free;
        assert!(page != NIL, "room is made before blocks come in");
        let ends = &mut self.queues[usize::from(queue)];
        self.free = self.pages[page as usize].older;
        self.free_pages -= 1;
        self.pages[page as usize] = Page { newer: NIL, older: ends.head, filled: 0, live: 0, queue, begun: self.clock };
        match ends.head {
            NIL => ends.tail = page,
            head => self.pages[head as usize].newer = page,
        }
        ends.head = page;
        page
    }

    /// The oldest block of a queue.
    pub(crate) fn tail(&self, queue: u8) -> Option<u32> {
        let page = self.queues[usize::from(queue)].tail;
        let filled = self.pages.get(page as usize)?.filled;
        (0..filled).map(|at| slot_of(page, at)).find(|slot| self.states[*slot as usize] != 0)
    }

    /// Lets one tick of the clock pass.
    pub(crate) const fn tick(&mut self) {
        self.clock = self.clock.wrapping_add(1);
    }

    /// Ticks since the oldest block of a queue came into it, or a few more: the page has the time.
    pub(crate) fn age_of_tail(&self, queue: u8) -> Option<u32> {
        let page = self.pages.get(self.queues[usize::from(queue)].tail as usize)?;
        Some(self.clock.wrapping_sub(page.begun))
    }

    /// Moves a block to the head of a queue.
    pub(crate) fn move_to(&mut self, slot: u32, state: State) -> u32 {
        // In this order the index never points to a hole. A merge may reuse a hole.
        let new = self.push(self.key(slot), state);
        self.leave(slot);
        new
    }

    /// Removes a block. Returns its key.
    pub(crate) fn remove(&mut self, slot: u32) -> Key {
        let key = self.key(slot);
        let keys = &self.keys;
        self.index.remove(key, |slot| Key(keys[slot as usize]));
        self.leave(slot);
        key
    }

    /// Makes a block's slot a hole.
    fn leave(&mut self, slot: u32) {
        self.states[slot as usize] = 0;
        let number = page_of(slot);
        let page = &mut self.pages[number as usize];
        page.live -= 1;
        let Page { newer, older, live, queue, .. } = *page;
        self.queues[usize::from(queue)].len -= 1;
        let at_end = number == self.queues[usize::from(queue)].tail;
        if live == 0 {
            self.free_page(number);
        } else if number != self.queues[usize::from(queue)].head && !at_end {
            // Not the ends: the head's page is being filled, and the tail's is emptied in order.
            let live_of = |page: u32| usize::from(self.pages[page as usize].live);
            if older != NIL && live_of(older) + usize::from(live) <= PAGE {
                self.merge(older, number);
            } else if newer != self.queues[usize::from(queue)].head && live_of(newer) + usize::from(live) <= PAGE {
                self.merge(number, newer);
            }
        }
    }

    fn free_page(&mut self, page: u32) {
        let Page { newer, older, queue, .. } = self.pages[page as usize];
        let ends = &mut self.queues[usize::from(queue)];
        match newer {
            NIL => ends.head = older,
            newer => self.pages[newer as usize].older = older,
        }
        match older {
            NIL => ends.tail = newer,
            older => self.pages[older as usize].newer = newer,
        }
        self.pages[page as usize] = Page { newer: NIL, older: self.free, filled: 0, live: 0, queue: 0, begun: 0 };
        self.free = page;
        self.free_pages += 1;
    }

    /// Moves the blocks of a page behind those of the next older page, in order.
    fn merge(&mut self, older: u32, newer: u32) {
        let mut filled = 0;
        for page in [older, newer] {
            for at in 0..self.pages[page as usize].filled {
                let from = slot_of(page, at);
                let state = self.states[from as usize];
                if state == 0 {
                    continue;
                }
                let to = slot_of(older, filled);
                filled += 1;
                if from != to {
                    let key = self.key(from);
                    self.keys[to as usize] = key.0;
                    self.states[to as usize] = state;
                    self.point(key, to);
                    self.states[from as usize] = 0;
                }
            }
        }
        let entry = &mut self.pages[older as usize];
        (entry.filled, entry.live) = (filled, filled);
        self.pages[newer as usize].live = 0;
        self.free_page(newer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    const BLOCKS: usize = 600;

    fn state(queue: u8) -> State {
        State { queue, uses: 0, frequency: 0, in_memory: false }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Push(u8),
        Remove(usize),
        Move(usize, u8),
        Pop(u8),
    }

    fn any_step() -> impl Strategy<Value = Step> {
        prop_oneof![
            5 => (0..5_u8).prop_map(Step::Push),
            3 => (0..BLOCKS).prop_map(Step::Remove),
            1 => (0..BLOCKS, 0..5_u8).prop_map(|(at, queue)| Step::Move(at, queue)),
            2 => (0..5_u8).prop_map(Step::Pop),
        ]
    }

    proptest! {
        #[test]
        fn queues_agree_with_lists(steps in proptest::collection::vec(any_step(), 0..3000)) {
            let mut queues = Queues::new(BLOCKS);
            let mut lists: Vec<VecDeque<u64>> = vec![VecDeque::new(); QUEUES];
            let mut next = 0;
            let place = |lists: &[VecDeque<u64>], at: usize| {
                let all: Vec<_> = (0..QUEUES).flat_map(|queue| lists[queue].iter().map(move |key| (queue, *key))).collect();
                (!all.is_empty()).then(|| all[at % all.len()])
            };
            for step in steps {
                match step {
                    Step::Push(queue) => {
                        if !queues.is_full() && lists.iter().map(VecDeque::len).sum::<usize>() < BLOCKS {
                            queues.push(Key(next), state(queue));
                            lists[usize::from(queue)].push_back(next);
                            next += 1;
                        }
                    }
                    Step::Remove(at) => if let Some((queue, key)) = place(&lists, at) {
                        lists[queue].retain(|other| *other != key);
                        let slot = queues.find(Key(key)).unwrap();
                        prop_assert_eq!(queues.remove(slot), Key(key));
                    },
                    Step::Move(at, to) => if let Some((queue, key)) = place(&lists, at).filter(|_| !queues.is_full()) {
                        lists[queue].retain(|other| *other != key);
                        lists[usize::from(to)].push_back(key);
                        let slot = queues.find(Key(key)).unwrap();
                        queues.move_to(slot, state(to));
                    },
                    Step::Pop(queue) => {
                        let oldest = lists[usize::from(queue)].pop_front();
                        let slot = queues.tail(queue);
                        prop_assert_eq!(slot.map(|slot| queues.remove(slot).0), oldest);
                    }
                }
                for (queue, list) in (0..).zip(&lists) {
                    prop_assert_eq!(queues.len(queue), list.len());
                }
            }
            for (queue, list) in (0..).zip(&mut lists) {
                while let Some(slot) = queues.tail(queue) {
                    prop_assert_eq!(queues.state(slot).queue, queue);
                    prop_assert_eq!(Some(queues.remove(slot).0), list.pop_front());
                }
                prop_assert!(list.is_empty());
            }
            prop_assert_eq!(queues.free_pages, queues.pages.len());
        }
    }

    #[test]
    fn a_state_is_one_byte_and_comes_back_as_it_was() {
        for queue in 0..5 {
            for (uses, frequency) in [(0, 0), (3, 7), (1, 4)] {
                let state = State { queue, uses, frequency, in_memory: false };
                assert_eq!(State::unpack(state.pack()), state);
                assert_ne!(state.pack(), 0);
            }
        }
        let state = State { queue: 0, uses: 2, frequency: 5, in_memory: true };
        assert_eq!(State::unpack(state.pack()), state);
    }
}
