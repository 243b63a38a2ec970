//! What the pool keeps, and what it lets in: the engine's side of `headpond-policy`.
//!
//! A policy names the blocks worth keeping. Their slots say so (`Slot::kept`), which is all that reclaim asks: it
//! moves what is kept or dirty, and drops the rest. A block that the policy gives up *lingers*: it is served until
//! its segment is reclaimed, and a hit brings it back without a flash write. What comes along with a miss, and nobody
//! asked for, lingers from the start.
//!
//! Invariants:
//! - The policy only decides what is worth its place. Whatever it forgets, names twice or names wrongly, no dirty
//!   block is dropped and none is served that the map has not got.
//! - Clean blocks that are kept are known to the policy, but for those that an earlier life of the engine kept:
//!   these are learned a few at a time ([`Engine::learn_kept`]).
//! - No more blocks are kept than [`KEEP_PERCENT`] of the pool, dirty ones that the policy refused left out.
//! - Reclaim always finds something: where nothing lingers, the policy gives up some ([`Engine::keep_less`]).

use headpond_base::{BLOCK_U64, Block, Location, Nanos, ObjectId};
use headpond_map::Slot;
use headpond_policy::{Adaptive, Admitted, Cache, FlashBudget, Host, Key, Kind};

use crate::config::Config;
use crate::engine::Engine;
use crate::store::Store;

/// The share of the pool that is kept: the rest is what reclaim works with. At 80 % packing costs about two moved
/// blocks for each one freed at random.
const KEEP_PERCENT: u64 = 80;

/// The share of a small pool that is kept, of what is left when some segments are free and some are being filled.
const USABLE_PERCENT: u64 = 90;

/// Slots looked at in each turn with the time while the kept ones of an earlier life are learned: under a millisecond.
const LEARN_STEP: usize = 2048;

/// Blocks that lost their slots, as far as the policy is told; of more at once it finds out by itself.
const GONE_MAX: usize = 1 << 16;

/// The policy, and what it needs to know. Owned by the engine.
pub(crate) struct Keep {
    cache: Cache,
    budget: FlashBudget,
    capacity: u64,
    /// Where learning goes on.
    learn_from: Option<(ObjectId, Block)>,
}

impl Keep {
    /// `usable` blocks are those of segments that are not held free.
    pub(crate) fn new(config: &Config, data_blocks: u64, usable: u64, now: Nanos) -> Self {
        let capacity = (data_blocks * KEEP_PERCENT / 100).min(usable * USABLE_PERCENT / 100).max(16);
        let blocks = usize::try_from(capacity).unwrap_or(usize::MAX);
        Self {
            cache: Cache::new(config.policy, config.admission, blocks, Adaptive::memory_for(blocks)),
            budget: FlashBudget::new(config.flash_write_limit, now),
            capacity,
            learn_from: Some((ObjectId(0), Block(0))),
        }
    }

    pub(crate) fn tick(&mut self, now: Nanos) {
        self.budget.tick(now);
    }

    /// Whether more can be kept without anything going for it.
    pub(crate) fn has_room(&self) -> bool {
        (self.cache.len() as u64) < self.capacity
    }

    /// Bytes of memory that it takes at its capacity.
    pub(crate) fn memory(&self) -> u64 {
        self.cache.memory() as u64
    }

    /// Whether there is still something of an earlier life to learn.
    pub(crate) const fn is_learning(&self) -> bool {
        self.learn_from.is_some()
    }
}

/// A block's name for the policy. `None` beyond four billion objects or 16 TiB of one: such a block is not kept.
pub(crate) fn key_of(object: ObjectId, block: Block) -> Option<Key> {
    let (object, block) = (u32::try_from(object.0).ok()?, u32::try_from(block.0).ok()?);
    Some(Key(u64::from(object) << 32 | u64::from(block)))
}

pub(crate) const fn block_of(key: Key) -> (ObjectId, Block) {
    (ObjectId(key.0 >> 32), Block(key.0 & u32::MAX as u64))
}

/// The pool, as a policy sees it.
struct Pool<'a> {
    store: &'a mut Store,
    budget: &'a mut FlashBudget,
}

impl Host for Pool<'_> {
    fn evictable(&mut self, key: Key) -> bool {
        let (object, block) = block_of(key);
        self.store.slot(object, block).is_none_or(|slot| !slot.dirty)
    }

    fn fill(&mut self, key: Key) -> bool {
        let granted = self.budget.spend(BLOCK_U64);
        if granted {
            self.store.window.moves_on(key);
        }
        granted
    }

    fn evicted(&mut self, key: Key) {
        let (object, block) = block_of(key);
        self.store.keep(object, block, false);
        self.store.let_go(key);
    }
}

/// Where blocks that were read from the origin go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// Not into the pool.
    Nowhere,
    /// Into memory, where it is already.
    Memory,
    /// Into the pool, to be the first to go.
    Lingers,
    /// Into the pool, to be kept.
    Kept,
}

impl Engine {
    /// A block that the pool has is used.
    pub(crate) fn used(&mut self, object: ObjectId, block: Block, slot: Slot) {
        let Some(key) = key_of(object, block) else { return };
        let mut pool = Pool { store: &mut self.store, budget: &mut self.keep.budget };
        if !self.keep.cache.touch(key, &mut pool)
            && self.keep.cache.admit(key, Kind::OnFlash, &mut pool) != Admitted::Refused
            && !slot.kept
        {
            self.store.keep(object, block, true);
            self.neighbours.promoted(object, block, u64::from(self.config.fetch_bytes) / BLOCK_U64);
        }
    }

    /// A block that is not on flash is asked for.
    pub(crate) fn touched(&mut self, object: ObjectId, block: Block) {
        let Some(key) = key_of(object, block) else { return };
        let mut pool = Pool { store: &mut self.store, budget: &mut self.keep.budget };
        self.keep.cache.touch(key, &mut pool);
    }

    /// A block was read from the origin, or written there, and may come in: because it was asked for, or along with
    /// one that was. Where it is to wait in memory, `bytes` go there.
    pub(crate) fn place(&mut self, object: ObjectId, block: Block, asked: bool, bytes: &[u8]) -> Place {
        let Some(key) = key_of(object, block) else { return Place::Nowhere };
        let mut pool = Pool { store: &mut self.store, budget: &mut self.keep.budget };
        if !asked {
            return if pool.fill(key) { Place::Lingers } else { Place::Nowhere };
        }
        if self.keep.cache.contains(key) {
            // It is known from before it was lost; on flash from now on, if it was in memory.
            self.keep.cache.wrote(key);
            return if pool.fill(key) { Place::Kept } else { Place::Nowhere };
        }
        match self.keep.cache.admit(key, Kind::Read, &mut pool) {
            Admitted::Refused => Place::Nowhere,
            Admitted::Flash => Place::Kept,
            Admitted::Memory => {
                self.store.hold(object, block, bytes);
                Place::Memory
            }
        }
    }

    /// Blocks were written, and have their slots.
    pub(crate) fn note_written(&mut self, object: ObjectId, first: Block, blocks: u64) {
        for block in (first.0..first.0 + blocks).map(Block) {
            let Some(key) = key_of(object, block) else { continue };
            let mut pool = Pool { store: &mut self.store, budget: &mut self.keep.budget };
            if self.keep.cache.touch(key, &mut pool) {
                self.keep.cache.wrote(key);
            } else {
                // Refused is no error: it is dirty, and the policy will hear of it again.
                self.keep.cache.admit(key, Kind::OnFlash, &mut pool);
            }
        }
    }

    /// A block that was dirty is clean: it may go now.
    pub(crate) fn note_clean(&mut self, object: ObjectId, block: Block) {
        let Some(key) = key_of(object, block) else { return self.store.keep(object, block, false) };
        if self.store.slot(object, block).is_none() {
            return self.keep.cache.forget(key);
        }
        let mut pool = Pool { store: &mut self.store, budget: &mut self.keep.budget };
        let kept = if self.keep.cache.contains(key) {
            self.keep.cache.release(key);
            true
        } else {
            self.keep.cache.admit(key, Kind::OnFlash, &mut pool) != Admitted::Refused
        };
        self.store.keep(object, block, kept);
    }

    /// Gives up a few blocks, because reclaim finds no segment worth emptying; `false` if none may go.
    pub(crate) fn keep_less(&mut self, blocks: u32) -> bool {
        let mut pool = Pool { store: &mut self.store, budget: &mut self.keep.budget };
        (0..blocks).take_while(|_| self.keep.cache.evict(&mut pool).is_some()).count() > 0
    }

    /// A block is not in the pool any more.
    pub(crate) fn forget_kept(&mut self, key: Key) {
        self.keep.cache.forget(key);
    }

    /// Tells the policy of blocks that have lost their slots since.
    pub(crate) fn tell_gone(&mut self) {
        if self.store.gone.is_empty() {
            return;
        }
        for (object, block) in std::mem::take(&mut self.store.gone) {
            if self.store.slot(object, block).is_none()
                && !self.store.is_in_memory(object, block)
                && let Some(key) = key_of(object, block)
            {
                self.keep.cache.forget(key);
            }
        }
    }

    /// Changes what is kept from now on, and drops nothing.
    pub(crate) fn configure_keep(&mut self, config: &Config) {
        let mut pool = Pool { store: &mut self.store, budget: &mut self.keep.budget };
        self.keep.cache.set_policy(config.policy, &mut pool);
        self.keep.cache.set_admission(config.admission);
        self.keep.budget.set_limit(config.flash_write_limit);
        // What could not move over while it was dirty is found again.
        self.keep.learn_from = Some((ObjectId(0), Block(0)));
    }

    /// Tells the policy of some of the blocks that an earlier life of the engine kept.
    pub(crate) fn learn_kept(&mut self) {
        let Some((mut at, mut from)) = self.keep.learn_from.take() else { return };
        let mut left = LEARN_STEP;
        while left > 0 {
            let Some((&object, known)) = self.store.objects.range(at..).next() else { return };
            let first = if object == at { from } else { Block(0) };
            let slots: Vec<_> = known.map.range(first, Block(u64::MAX)).take(left).collect();
            left -= slots.len().max(1);
            (at, from) = match slots.last() {
                Some((last, _)) => (object, last.next()),
                None => (object.next(), Block(0)),
            };
            for (block, slot) in slots {
                self.learn(object, block, slot);
            }
        }
        self.keep.learn_from = Some((at, from));
    }

    fn learn(&mut self, object: ObjectId, block: Block, slot: Slot) {
        if slot.location == Location::ZERO || !slot.kept && !slot.dirty {
            return;
        }
        let Some(key) = key_of(object, block) else { return };
        let mut pool = Pool { store: &mut self.store, budget: &mut self.keep.budget };
        if !self.keep.cache.contains(key)
            && self.keep.cache.admit(key, Kind::OnFlash, &mut pool) == Admitted::Refused
            && !slot.dirty
        {
            self.store.keep(object, block, false);
        }
    }
}

impl Store {
    /// A block's slot.
    pub(crate) fn slot(&self, object: ObjectId, block: Block) -> Option<Slot> {
        self.get(object)?.map.get(block)
    }

    /// Says whether a block is worth keeping.
    pub(crate) fn keep(&mut self, object: ObjectId, block: Block, kept: bool) {
        if let Some(slot) = self.slot(object, block).filter(|slot| slot.kept != kept) {
            self.set_slot(object, block, Slot { kept, ..slot });
        }
    }

    /// Remembers that a block has lost its slot, for the policy to be told.
    pub(crate) fn note_gone(&mut self, object: ObjectId, block: Block) {
        if self.gone.len() < GONE_MAX {
            self.gone.push((object, block));
        }
    }
}
