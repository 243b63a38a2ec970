//! One cache with a window, a main queue and names of evicted blocks. The policies that [`super::Adaptive`] chooses
//! among are settings of it, so a change of policy moves nothing.
//!
//! A block comes into the young part of the window. That part is in memory, if the owner can hold it there. Then the
//! block moves to the window's part on flash, if the window is larger than the memory for it. At its end it moves to
//! the main queue or leaves; [`WindowGate`] decides. The main queue is a CLOCK: blocks used since they last came by go
//! round again. A block that may not go when its turn comes is put aside. Once it may, it goes; if it was used
//! meanwhile, it moves to the main queue.
//!
//! Time is counted in blocks that left and are remembered. Names grow old by that clock, so the age of a name and the
//! age of a block in the main queue can be compared.

use super::tuning::{Tuning, WindowGate};
use crate::ghosts::Ghosts;
use crate::queues::{Queues, State};
use crate::{Admitted, Evicted, Host, Insertion, Key};

/// The newest part of the window: in memory if clean.
const YOUNG: u8 = 0;
/// The rest of the window, on flash.
const WINDOW: u8 = 1;
const MAIN: u8 = 2;
/// Blocks that could not go when their turn came.
const HELD: u8 = 3;
/// Blocks that were held and can go now. They go first.
const FIRST: u8 = 4;

/// References in which the window's bound moves one block towards its setting. Slow: a short change of the setting
/// must not drop what took long to gather.
const EASE: u32 = 5;

/// Names remembered for each block kept. With two, the policy knows a loop of up to three times the cache's size when
/// it comes round again.
const NAMES: usize = 2;

/// How long a returning block may go to the main queue: until as many others have left as this share of the cache, in
/// 1024ths ([`WindowGate::Returning`], [`WindowGate::Either`]). Each such block costs a flash write. With the whole
/// cache, moving hot spots would gain 0.003 of miss ratio and cost a fifth more writes.
const REACH: usize = 192;

/// How many blocks that were put aside are looked at again when no others are left.
const HELD_SEARCH: usize = 64;

pub(super) struct AdaptiveCore {
    queues: Queues,
    ghosts: Ghosts,
    capacity: usize,
    tuning: Tuning,
    /// The most blocks that the window should have now.
    window: usize,
    since_eased: u32,
    /// The most blocks that may be only in memory.
    memory: usize,
    /// Ageing that is due, in slots and in buckets of names, times the period.
    owed: (usize, usize),
    hands: (usize, usize),
}

/// What happened to the block at the window's end.
enum Step {
    /// This block goes: the one at the window's end, or one of the main queue in its place.
    Goes(Key),
    /// The block moved, or was put aside. Look again.
    Again,
    /// The block may not go, and cannot be put aside.
    Stuck,
}

impl AdaptiveCore {
    pub(super) fn new(capacity: usize, memory: usize, tuning: Tuning) -> Self {
        let mut core = Self {
            queues: Queues::new(capacity),
            ghosts: Ghosts::new(capacity * NAMES),
            capacity,
            tuning,
            window: 0,
            since_eased: 0,
            memory,
            owed: (0, 0),
            hands: (0, 0),
        };
        core.window = core.window_wanted();
        core
    }

    pub(super) const fn capacity(&self) -> usize {
        self.capacity
    }

    pub(super) fn memory(&self) -> usize {
        self.queues.memory() + self.ghosts.memory()
    }

    pub(super) const fn tune(&mut self, tuning: Tuning) {
        self.tuning = tuning;
    }

    fn window_wanted(&self) -> usize {
        (self.capacity * usize::from(self.tuning.window) / 1024).clamp(1, (self.capacity - 1).max(1))
    }

    const fn main_most(&self) -> usize {
        self.capacity - self.window
    }

    pub(super) fn len(&self) -> usize {
        (YOUNG..=FIRST).map(|queue| self.queues.len(queue)).sum()
    }

    /// Blocks of the main queue with those put aside, which come from there or go there.
    fn main_len(&self) -> usize {
        self.queues.len(MAIN) + self.queues.len(HELD)
    }

    fn windowed(&self) -> usize {
        self.queues.len(YOUNG) + self.queues.len(WINDOW)
    }

    pub(super) fn contains(&self, key: Key) -> bool {
        self.queues.find(key).is_some()
    }

    pub(super) fn touch(&mut self, key: Key) -> bool {
        self.pass_time();
        let Some(slot) = self.queues.find(key) else { return false };
        let state = self.queues.state(slot);
        let uses = (state.uses + 1).min(State::USES_MAX);
        let frequency = (state.frequency + 1).min(State::FREQUENCY_MAX);
        self.queues.set_state(slot, State { uses, frequency, ..state });
        true
    }

    /// Moves the window's bound and ages a share of the frequencies.
    fn pass_time(&mut self) {
        self.since_eased += 1;
        if self.since_eased == EASE {
            self.since_eased = 0;
            let wanted = self.window_wanted();
            self.window = self.window + usize::from(self.window < wanted) - usize::from(self.window > wanted);
        }
        let period = self.capacity * usize::from(self.tuning.halving);
        self.owed.0 += self.queues.slots();
        while self.owed.0 >= period {
            self.owed.0 -= period;
            self.queues.age(self.hands.0);
            self.hands.0 = if self.hands.0 + 1 == self.queues.slots() { 0 } else { self.hands.0 + 1 };
        }
        self.owed.1 += self.ghosts.buckets();
        while self.owed.1 >= period {
            self.owed.1 -= period;
            self.ghosts.age(self.hands.1);
            self.hands.1 = if self.hands.1 + 1 == self.ghosts.buckets() { 0 } else { self.hands.1 + 1 };
        }
    }

    pub(super) fn admit(&mut self, key: Key, insertion: Insertion, host: &mut dyn Host) -> Admitted {
        let remembered = self.ghosts.remove(key);
        let frequency = (remembered.map_or(0, |it| it.frequency) + 1).min(State::FREQUENCY_MAX);
        let has_room = self.len() < self.capacity;
        while self.len() >= self.capacity || self.queues.is_full() {
            if self.evict(host).is_none() {
                self.remember(key, frequency);
                return Admitted::Refused;
            }
        }
        let returns = remembered.is_some_and(|it| self.soon_enough(it.since));
        // A cache with room keeps new blocks, but the window must not get all the room.
        let to_main = returns || has_room && self.windowed() >= self.window;
        let in_memory = insertion == Insertion::Read && !to_main && self.memory > 0;
        if insertion == Insertion::Read && !in_memory && !host.fill(key) {
            self.remember(key, frequency);
            return Admitted::Refused;
        }
        let queue = if to_main { MAIN } else { YOUNG };
        self.queues.push(key, State { queue, uses: 0, frequency, in_memory });
        self.bound_young(host);
        match self.queues.find(key).map(|slot| self.queues.state(slot).in_memory) {
            Some(true) => Admitted::Memory,
            Some(false) => Admitted::Flash,
            None => Admitted::Refused,
        }
    }

    fn remember(&mut self, key: Key, frequency: u8) {
        self.queues.tick();
        self.ghosts.insert(key, frequency);
    }

    /// Whether a returning block belongs into the main queue. `since` others left since it did.
    fn soon_enough(&mut self, since: usize) -> bool {
        match self.tuning.gate {
            WindowGate::Contest { .. } => false,
            WindowGate::Returning | WindowGate::Either => since < self.capacity * REACH / 1024,
            WindowGate::Recency => {
                // Afterwards the block at the tail has no use since it last came by: its age is that of its last use.
                self.next_of_main();
                let unused = self.queues.age_of_tail(MAIN).unwrap_or(u32::MAX);
                // The block was used before it came through the window, hence `windowed`. And a quarter more, because
                // the ages are rough and a mistake costs a flash write. Without it the blocks of a loop would change
                // places for nothing.
                since + since / 4 + self.windowed() < unused as usize
            }
        }
    }

    /// Moves the oldest young blocks to the window's part on flash.
    fn bound_young(&mut self, host: &mut dyn Host) {
        while self.queues.len(YOUNG) > self.memory.max(1)
            && let Some(slot) = self.queues.tail(YOUNG)
        {
            self.settle(slot, WINDOW, host);
        }
    }

    /// Moves a block to a queue on flash. If it may not be written to flash, the block is dropped and its key
    /// returned.
    fn settle(&mut self, slot: u32, queue: u8, host: &mut dyn Host) -> Option<Key> {
        let (key, state) = (self.queues.key(slot), self.queues.state(slot));
        if state.in_memory && !host.fill(key) {
            self.queues.remove(slot);
            self.remember(key, state.frequency);
            host.evicted(key);
            return Some(key);
        }
        let uses = if queue == MAIN { 0 } else { state.uses };
        self.queues.move_to(slot, State { queue, uses, in_memory: false, ..state });
        None
    }

    pub(super) fn evict(&mut self, host: &mut dyn Host) -> Option<Key> {
        if let Some(key) = self.next_of_held(host) {
            return Some(key);
        }
        loop {
            if let Some(slot) = self.queues.tail(FIRST) {
                if let Some(key) = self.drop_or_hold(slot, host) {
                    return Some(key);
                }
                continue;
            }
            if self.queues.len(MAIN) > 0 && (self.main_len() > self.main_most() || self.windowed() == 0) {
                let slot = self.next_of_main()?;
                if self.tuning.gate == WindowGate::Recency && self.windowed() > 0 {
                    let state = self.queues.state(slot);
                    self.queues.move_to(slot, State { queue: WINDOW, ..state });
                    continue;
                }
                if let Some(key) = self.drop_or_hold(slot, host) {
                    return Some(key);
                }
                continue;
            }
            // As in S3-FIFO, a move to the main queue does not end the turn.
            loop {
                let slot = self.queues.tail(WINDOW).or_else(|| self.queues.tail(YOUNG));
                let Some(slot) = slot else {
                    if self.queues.len(MAIN) == 0 && self.queues.len(FIRST) == 0 {
                        return self.search_held(host);
                    }
                    break;
                };
                match self.step_window(slot, host) {
                    Step::Goes(key) => return Some(key),
                    Step::Again => {}
                    Step::Stuck => return None,
                }
            }
        }
    }

    /// Handles the block at the window's end.
    fn step_window(&mut self, slot: u32, host: &mut dyn Host) -> Step {
        let state = self.queues.state(slot);
        let next = match self.tuning.gate {
            WindowGate::Returning | WindowGate::Either | WindowGate::Recency if state.uses >= self.tuning.uses => None,
            WindowGate::Contest { .. } | WindowGate::Either
                if self.main_len() < self.main_most() && state.frequency > 1 =>
            {
                None
            }
            WindowGate::Contest { .. } | WindowGate::Either if self.main_len() >= self.main_most() => {
                match self.next_of_main() {
                    Some(next) if self.tuning.gate.prefers(state.frequency, self.queues.state(next).frequency) => {
                        Some(next)
                    }
                    _ => return self.drop_window(slot, host),
                }
            }
            _ => return self.drop_window(slot, host),
        };
        if let Some(next) = next {
            let (key, frequency) = (self.queues.key(next), self.queues.state(next).frequency);
            if !host.evictable(key) {
                self.hold(next);
                return Step::Again;
            }
            if let Some(dropped) = self.settle(slot, MAIN, host) {
                return Step::Goes(dropped);
            }
            // `settle` may have moved blocks.
            if let Some(next) = self.queues.find(key) {
                self.queues.remove(next);
            }
            self.remember(key, frequency);
            host.evicted(key);
            return Step::Goes(key);
        }
        self.settle(slot, MAIN, host).map_or(Step::Again, Step::Goes)
    }

    /// Looks at the first block put aside. It may have become evictable while there was no page to move it to.
    /// Otherwise it and others would stay until all blocks were put aside.
    fn next_of_held(&mut self, host: &mut dyn Host) -> Option<Key> {
        let slot = self.queues.tail(HELD)?;
        let (key, state) = (self.queues.key(slot), self.queues.state(slot));
        let queue = match (host.evictable(key), state.uses) {
            (true, 0) => {
                self.queues.remove(slot);
                host.evicted(key);
                return Some(key);
            }
            (true, _) => MAIN,
            (false, _) => HELD,
        };
        if self.queues.has_page() {
            let uses = if queue == MAIN { 0 } else { state.uses };
            self.queues.move_to(slot, State { queue, uses, ..state });
        }
        None
    }

    /// All blocks are put aside. Looks through some, in case the owner can evict one without having released it.
    fn search_held(&mut self, host: &mut dyn Host) -> Option<Key> {
        (0..HELD_SEARCH.min(self.queues.len(HELD))).find_map(|_| {
            let slot = self.queues.tail(HELD)?;
            self.drop_or_hold(slot, host)
        })
    }

    /// Drops the block and remembers its name, if it may go.
    fn drop_window(&mut self, slot: u32, host: &mut dyn Host) -> Step {
        let (key, state) = (self.queues.key(slot), self.queues.state(slot));
        if host.evictable(key) {
            self.queues.remove(slot);
            self.remember(key, state.frequency);
            host.evicted(key);
            return Step::Goes(key);
        }
        if state.in_memory && !host.fill(key) {
            // The block is pinned or in use, and cannot go to flash. It stays, as the newest.
            self.queues.move_to(slot, state);
            return Step::Stuck;
        }
        self.hold(slot);
        Step::Again
    }

    fn drop_or_hold(&mut self, slot: u32, host: &mut dyn Host) -> Option<Key> {
        let key = self.queues.key(slot);
        if host.evictable(key) {
            self.queues.remove(slot);
            host.evicted(key);
            return Some(key);
        }
        self.hold(slot);
        None
    }

    fn hold(&mut self, slot: u32) {
        let state = self.queues.state(slot);
        self.queues.move_to(slot, State { queue: HELD, uses: 0, in_memory: false, ..state });
    }

    /// The block of the main queue that goes next.
    fn next_of_main(&mut self) -> Option<u32> {
        loop {
            let slot = self.queues.tail(MAIN)?;
            let state = self.queues.state(slot);
            if state.uses == 0 {
                return Some(slot);
            }
            // Where recency counts, all uses together give one round.
            let uses = if self.tuning.gate == WindowGate::Recency { 0 } else { state.uses - 1 };
            self.queues.move_to(slot, State { uses, ..state });
        }
    }

    pub(super) fn wrote(&mut self, key: Key) {
        if let Some(slot) = self.queues.find(key) {
            let state = self.queues.state(slot);
            self.queues.set_state(slot, State { in_memory: false, ..state });
        }
    }

    pub(super) fn release(&mut self, key: Key) {
        let Some(slot) = self.queues.find(key) else { return };
        let state = self.queues.state(slot);
        // Without a page to move to, the block stays, and `next_of_held` finds it.
        if state.queue == HELD && !self.queues.is_full() {
            // Used while it was held: it is worth the main queue.
            let queue = if state.uses > 0 { MAIN } else { FIRST };
            self.queues.move_to(slot, State { queue, uses: 0, ..state });
        }
    }

    pub(super) fn forget(&mut self, key: Key) -> Option<Evicted> {
        let slot = self.queues.find(key)?;
        Some(self.take_slot(slot))
    }

    pub(super) fn take(&mut self) -> Option<Evicted> {
        let slot = [FIRST, WINDOW, YOUNG, HELD, MAIN].into_iter().find_map(|queue| self.queues.tail(queue))?;
        Some(self.take_slot(slot))
    }

    fn take_slot(&mut self, slot: u32) -> Evicted {
        let in_memory = self.queues.state(slot).in_memory;
        Evicted { key: self.queues.remove(slot), in_memory }
    }
}
