//! What the pool keeps, and what it lets in: the engine's side of `headpond-policy`.
//!
//! A policy names the blocks worth keeping. Their slots say so (`Slot::kept`), which is all that reclaim asks: it
//! moves what is kept or dirty, and drops the rest. A block that the policy gives up *lingers*: it is served until
//! its segment is reclaimed, and a hit brings it back without a flash write. What comes along with a miss, and nobody
//! asked for, lingers from the start while flash has room to spare, and else waits in memory (`memory_window.rs`).
//!
//! Invariants:
//! - The policy only decides what is worth its place. Whatever it forgets, names twice or names wrongly, no dirty
//!   block is dropped and none is served that the map has not got.
//! - Clean blocks that are kept are known to the policy, but for those that an earlier life of the engine kept:
//!   these are learned a few at a time ([`Keeping::learn`]).
//! - No more blocks are kept than fit into [`KEEP_PERCENT`] of the pool by what one takes on the average, dirty ones
//!   that the policy refused left out.
//! - Clean blocks of a pinned class are kept, and no policy is let evict one; a share's are at most its quota
//!   (`quotas.rs` in headpond-policy), but for those that an earlier life kept, or that a changed limit found: the same
//!   walk learns them.
//! - Reclaim always finds something: where nothing lingers, the policy gives up some ([`Keeping::keep_less`]).

use headpond_base::{BLOCK, BLOCK_U64, Block, Class, Nanos, ObjectId};
use headpond_format::{BLOCK_UNITS, Geometry};
use headpond_map::Slot;
use headpond_policy::{
    Adaptive, Admitted, BlockOwner, Cache, FlashBudget, Host, Insertion, Key, Quotas, Reach, Regrets,
};

use crate::config::Config;
use crate::key::{block_of, key_of};
use crate::stats::Stats;
use crate::store::{PACKED_MOST, Store, held_free};

/// The share of the pool that is kept: the rest is what reclaim works with. At 80 % reclaim moves about two blocks for
/// each one that it frees, if they are freed at random.
const KEEP_PERCENT: u64 = 80;

/// The share of a small pool that is kept, of what is left when some segments are free and some are being filled.
const USABLE_PERCENT: u64 = 90;

/// The share of what is kept that may be pinned: the rest is for what comes and goes, dirty data above all.
const PINNED_PERCENT: u64 = 75;

/// The share of what is kept that may wait in memory without anybody having asked for it, and no more than so many
/// blocks: 64 MiB.
const UNASKED_SHARE: usize = 10;
const UNASKED_MAX: usize = (64 << 20) / BLOCK;

/// How far what is kept may be from what would fit before that is changed, as a fraction: each change costs the policy
/// what it remembers of blocks that it does not keep.
const CAPACITY_STEP: u64 = 8;

/// Reclaim empties a few segments more than it needs: that is no room yet.
const ROOM_SEGMENTS: usize = 4;

/// Blocks given up each time that the engine learns the time while more is kept than fits.
const FIT_STEP: u32 = 2048;

/// Slots looked at each time that the engine learns the time, until it knows the kept ones of an earlier life. They
/// take under a millisecond.
const LEARN_STEP: usize = 2048;

/// The policy, and what it needs to know. Owned by the engine.
pub(crate) struct Keep {
    cache: Cache,
    quotas: Quotas,
    budget: FlashBudget,
    /// What a larger pool would have kept.
    reach: Reach,
    /// Blocks that are kept where none is packed.
    plain: u64,
    /// Blocks that may wait in memory without anybody having asked for them.
    unasked_most: usize,
    /// Where learning goes on.
    learn_from: Option<(ObjectId, Block)>,
}

/// How many blocks are kept of those that hold data, and of those of segments that are not held free.
fn kept_of(data_blocks: u64, usable: u64) -> u64 {
    (data_blocks * KEEP_PERCENT / 100).min(usable * USABLE_PERCENT / 100).max(16)
}

/// How many blocks a pool of so many bytes keeps, if none is packed. `None` for a size that no pool has.
#[must_use]
pub fn blocks_kept_by(pool_bytes: u64, host_segments: usize) -> Option<u64> {
    let geometry = Geometry::for_bytes(pool_bytes).ok()?;
    let segments = usize::try_from(geometry.segments).expect("the table of segments is in memory");
    Some(kept_of(geometry.data_blocks(), usable_blocks(&geometry, segments, host_segments)))
}

/// Blocks of those of so many segments that are not held free.
pub(crate) fn usable_blocks(geometry: &Geometry, segments: usize, host_segments: usize) -> u64 {
    segments.saturating_sub(held_free(segments, host_segments)) as u64 * u64::from(geometry.segment_blocks())
}

impl Keep {
    /// `usable` blocks are those of segments that are not held free.
    pub(crate) fn new(config: &Config, data_blocks: u64, usable: u64, now: Nanos) -> Self {
        let capacity = kept_of(data_blocks, usable);
        let blocks = usize::try_from(capacity).unwrap_or(usize::MAX);
        Self {
            cache: Cache::new(config.policy, config.admission, blocks, Adaptive::memory_for(blocks)),
            quotas: Quotas::new(config.classes, data_blocks, capacity * PINNED_PERCENT / 100),
            budget: FlashBudget::new(config.flash_write_limit, now),
            reach: Reach::new(blocks),
            plain: capacity,
            unasked_most: unasked_most(capacity),
            learn_from: Some((ObjectId(0), Block(0))),
        }
    }

    /// The pool has another size now.
    pub(crate) fn resize(&mut self, data_blocks: u64, usable: u64) {
        self.plain = kept_of(data_blocks, usable);
        self.unasked_most = unasked_most(self.plain);
    }

    pub(crate) fn tick(&mut self, now: Nanos) {
        self.budget.tick(now);
    }

    /// Whether something can come in that nothing has to go for: more is free than reclaim holds free.
    pub(crate) fn has_spare_room(&self, store: &Store) -> bool {
        let keeps_more = self.cache.len() < self.cache.capacity();
        keeps_more && store.log().free_segments() > store.free_wanted() + ROOM_SEGMENTS
    }

    /// Blocks that may wait in memory without anybody having asked for them.
    pub(crate) const fn unasked_most(&self) -> usize {
        self.unasked_most
    }

    /// Whether clean blocks of a class are pinned.
    pub(crate) const fn is_pinned(&self, class: Class) -> bool {
        self.quotas.is_pinned(class)
    }

    /// Blocks that are pinned now.
    pub(crate) fn pinned_blocks(&self, store: &Store) -> u64 {
        self.quotas.pinned(|class| store.sums().blocks_of(class))
    }

    /// More than this must not be dirty: reclaim needs clean blocks to live on.
    pub(crate) fn dirty_blocks_max(&self, store: &Store, config: &Config) -> u64 {
        let percent = if config.dirty_threshold == 0 { 75 } else { u64::from(config.dirty_threshold) + 10 };
        let blocks = store.dirty_room();
        // What is pinned stays: dirty data has the rest of what the pool can keep.
        let beside_pins = (blocks * KEEP_PERCENT / 100).saturating_sub(self.pinned_blocks(store));
        // A pool that has grown beyond its checkpoint areas: what is dirty must fit there.
        let in_checkpoint = store.log().geometry().map_slots_sure() * 7 / 8;
        (blocks * percent.min(75) / 100).min(beside_pins).min(in_checkpoint).max(1)
    }

    /// The classes that blocks have before they are written to; none of any, where no class has a limit.
    pub(crate) fn classes_before(
        &self,
        store: &Store,
        object: ObjectId,
        first: Block,
        blocks: u64,
    ) -> Vec<Option<Class>> {
        let counts = if self.quotas.in_use() { blocks } else { 0 };
        let class = |at| store.slot(object, first.plus(at)).map(|slot| slot.class);
        (0..counts).map(class).collect()
    }

    /// Whether each class is within its quota, as far as its blocks may go.
    pub(crate) fn quotas_hold(&self, store: &Store, config: &Config) -> bool {
        let pinned = |class: &Class| self.quotas.is_pinned(*class);
        (0..).map_while(Class::new).filter(|class| pinned(class) || self.quotas.is_share(*class)).all(|class| {
            let dirty = if pinned(&class) { 0 } else { store.sums().dirty_blocks() };
            store.sums().blocks_of(class) <= config.classes[class.index()].blocks.saturating_add(dirty)
        })
    }

    /// A block is not in the pool any more.
    pub(crate) fn forget(&mut self, key: Key) {
        self.cache.forget(key);
    }

    /// Keeps so many blocks as fit, if one takes so many units of flash on the average.
    fn fit(&mut self, blocks: u64, units: u64) {
        let all = self.plain * u64::from(BLOCK_UNITS);
        // Of few blocks nobody knows yet what the others will be like.
        let fits = if blocks < self.plain / CAPACITY_STEP { self.plain } else { all * blocks / units.max(1) };
        let fits = fits.clamp(self.plain, self.plain * PACKED_MOST);
        let now = self.cache.capacity() as u64;
        if fits.abs_diff(now) > now / CAPACITY_STEP || fits == self.plain && now != fits {
            let blocks = usize::try_from(fits).unwrap_or(usize::MAX);
            if self.cache.resize(blocks, Adaptive::memory_for(blocks)) {
                self.reach.resize(blocks);
            }
        }
    }

    /// Misses of blocks that the policy had evicted.
    pub(crate) const fn regrets(&self) -> Regrets {
        self.reach.regrets()
    }

    /// Blocks that are kept at most.
    pub(crate) fn kept_most(&self) -> u64 {
        self.cache.capacity() as u64
    }

    /// Bytes of memory that it takes at its capacity.
    pub(crate) fn memory(&self) -> u64 {
        (self.cache.memory() + self.quotas.memory() + self.reach.memory()) as u64
    }

    /// Whether there is still something of an earlier life to learn.
    pub(crate) const fn is_learning(&self) -> bool {
        self.learn_from.is_some()
    }
}

/// Blocks of so many kept ones that may wait in memory unasked.
fn unasked_most(capacity: u64) -> usize {
    (usize::try_from(capacity).unwrap_or(usize::MAX) / UNASKED_SHARE).min(UNASKED_MAX)
}

/// The pool, as a policy sees it.
struct Pool<'a> {
    store: &'a mut Store,
    budget: &'a mut FlashBudget,
    reach: &'a mut Reach,
    pinned: u16,
    evicted: &'a mut u64,
}

impl Host for Pool<'_> {
    fn evictable(&mut self, key: Key) -> bool {
        let (object, block) = block_of(key);
        let pinned = |class: Class| self.pinned >> class.number() & 1 == 1;
        self.store.slot(object, block).is_none_or(|slot| !slot.dirty && !pinned(slot.class))
    }

    fn fill(&mut self, key: Key) -> bool {
        let granted = self.budget.spend(BLOCK_U64);
        if granted {
            self.store.moves_on(key);
        }
        granted
    }

    fn evicted(&mut self, key: Key) {
        let (object, block) = block_of(key);
        self.reach.evicted(key);
        self.store.keep(object, block, false);
        self.store.let_go(key);
    }
}

impl BlockOwner for Pool<'_> {
    fn class(&self, key: Key) -> Option<Class> {
        let (object, block) = block_of(key);
        self.store.slot(object, block).map(|slot| slot.class)
    }

    fn held(&self, class: Class) -> u64 {
        self.store.sums().blocks_of(class)
    }

    fn is_clean(&self, key: Key) -> bool {
        let (object, block) = block_of(key);
        self.store.slot(object, block).is_none_or(|slot| !slot.dirty)
    }

    fn give_up(&mut self, key: Key) {
        let (object, block) = block_of(key);
        *self.evicted += u64::from(self.store.clear_slot(object, block).is_some());
    }
}

/// Where blocks that were read from the origin go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Destination {
    /// Not into the pool.
    Nowhere,
    /// Into memory, where it is already.
    Memory,
    /// The same, and nobody has asked for it.
    Unasked,
    /// Into the pool, to be the first to go.
    Lingers(Class),
    /// Into the pool, to be kept.
    Kept(Class),
}

/// What is kept, with what of the engine that has an effect on.
pub(crate) struct Keeping<'a> {
    pub(crate) keep: &'a mut Keep,
    pub(crate) store: &'a mut Store,
    pub(crate) stats: &'a mut Stats,
}

impl Keeping<'_> {
    fn parts(&mut self) -> (&mut Cache, &mut Quotas, Pool<'_>) {
        let Keep { cache, quotas, budget, reach, .. } = &mut *self.keep;
        let pinned = quotas.pins();
        let pool = Pool { store: &mut *self.store, budget, reach, pinned, evicted: &mut self.stats.evicted_blocks };
        (cache, quotas, pool)
    }

    /// A block that the pool has is used, by a request of class `by`. Gives whether it lingered until now, or was kept
    /// by an earlier life alone.
    pub(crate) fn used(&mut self, object: ObjectId, block: Block, slot: Slot, by: Class) -> bool {
        let Some(key) = key_of(object, block) else { return false };
        let (cache, _, mut pool) = self.parts();
        let comes_in =
            !cache.touch(key, &mut pool) && cache.admit(key, Insertion::OnFlash, &mut pool) != Admitted::Refused;
        let comes_back = comes_in && !slot.kept;
        if comes_back {
            self.store.keep(object, block, true);
        }
        self.count_for_class(object, block, Some(slot.class), by);
        comes_back
    }

    /// A block that has to come from the origin is asked for.
    pub(crate) fn missed(&mut self, object: ObjectId, block: Block) {
        if let Some(key) = key_of(object, block) {
            self.keep.reach.missed(key);
        }
        self.touched(object, block);
    }

    /// A block that is not on flash is asked for.
    pub(crate) fn touched(&mut self, object: ObjectId, block: Block) {
        let Some(key) = key_of(object, block) else { return };
        let (cache, _, mut pool) = self.parts();
        cache.touch(key, &mut pool);
    }

    /// A block was read from the origin, or written there, for a request of class `by`, and may come in: because it was
    /// asked for, or along with one that was. Where it is to wait in memory, `bytes` go there.
    pub(crate) fn place(
        &mut self,
        object: ObjectId,
        block: Block,
        by: Class,
        asked: bool,
        bytes: &[u8],
    ) -> Destination {
        let Some(key) = key_of(object, block) else { return Destination::Nowhere };
        let (cache, quotas, mut pool) = self.parts();
        let class = quotas.after_use(None, by, &pool);
        if !asked {
            // What comes along is not pinned; but it must not be a way around a share's quota.
            let class = if quotas.is_share(class) { class } else { Class::EVERYBODY };
            if !self.keep.has_spare_room(self.store) {
                self.store.hold_unasked(object, block, bytes, self.keep.unasked_most);
                return Destination::Unasked;
            }
            let (_, _, mut pool) = self.parts();
            return if pool.fill(key) { Destination::Lingers(class) } else { Destination::Nowhere };
        }
        if cache.contains(key) {
            // It is known from before it was lost; on flash from now on, if it was in memory.
            cache.wrote(key);
            return if pool.fill(key) { Destination::Kept(class) } else { Destination::Nowhere };
        }
        if quotas.is_pinned(class) {
            // Whatever the admission says: who pins it has said that it will be wanted.
            let comes = pool.fill(key) && cache.admit(key, Insertion::OnFlash, &mut pool) != Admitted::Refused;
            return if comes { Destination::Kept(class) } else { Destination::Nowhere };
        }
        match cache.admit(key, Insertion::Read, &mut pool) {
            Admitted::Refused => Destination::Nowhere,
            Admitted::Flash => Destination::Kept(class),
            Admitted::Memory if quotas.is_share(class) => {
                // What waits in memory has no class: a share's blocks are counted from the first.
                cache.wrote(key);
                if pool.fill(key) {
                    return Destination::Kept(class);
                }
                cache.forget(key);
                Destination::Nowhere
            }
            Admitted::Memory => {
                self.store.hold(object, block, bytes);
                Destination::Memory
            }
        }
    }

    /// The class for the record of a write by a request of class `by`.
    pub(crate) fn class_of_record(&mut self, before: &[Option<Class>], by: Class) -> Class {
        let Some(first) = before.first() else { return Class::EVERYBODY };
        let (_, quotas, pool) = self.parts();
        quotas.after_use(*first, by, &pool)
    }

    /// Blocks were written by a request of class `by`, and have their slots; before, they had these classes.
    pub(crate) fn note_written(
        &mut self,
        object: ObjectId,
        (first, blocks): (Block, u64),
        before: &[Option<Class>],
        by: Class,
    ) {
        // Counted as they were first: what they have among them already is not in their own way.
        for (block, class) in (first.0..).map(Block).zip(before) {
            self.store.set_class(object, block, class.unwrap_or_default());
        }
        for (index, block) in (first.0..first.0 + blocks).map(Block).enumerate() {
            let Some(key) = key_of(object, block) else { continue };
            let (cache, _, mut pool) = self.parts();
            if cache.touch(key, &mut pool) {
                cache.wrote(key);
            } else {
                // Refused is no error: it is dirty, and the policy will hear of it again.
                cache.admit(key, Insertion::OnFlash, &mut pool);
            }
            self.count_for_class(object, block, before.get(index).copied().flatten(), by);
        }
    }

    /// A block that was dirty is clean: it may go now.
    pub(crate) fn note_clean(&mut self, object: ObjectId, block: Block) {
        let Some(key) = key_of(object, block) else { return self.store.keep(object, block, false) };
        let (cache, quotas, mut pool) = self.parts();
        let Some(slot) = pool.store.slot(object, block) else { return cache.forget(key) };
        if !quotas.cleaned(key, slot.class, &mut pool) {
            return pool.give_up(key);
        }
        let kept = if cache.contains(key) {
            cache.release(key);
            true
        } else {
            cache.admit(key, Insertion::OnFlash, &mut pool) != Admitted::Refused
        };
        self.store.keep(object, block, kept);
        if !kept {
            self.unpin(object, block);
        }
    }

    /// A block that the policy does not keep cannot be pinned.
    fn unpin(&mut self, object: ObjectId, block: Block) {
        let class = self.keep.quotas.unkept(self.store.class_of(object, block));
        self.store.set_class(object, block, class);
    }

    /// A block that has its slot, and had class `now` before if it is not new, was used by a request of class `by`.
    pub(crate) fn count_for_class(&mut self, object: ObjectId, block: Block, now: Option<Class>, by: Class) {
        if !self.keep.quotas.in_use() {
            return;
        }
        let Some(key) = key_of(object, block) else { return };
        let (_, quotas, pool) = self.parts();
        let Some(slot) = pool.store.slot(object, block) else { return };
        let class = quotas.after_use(now, by, &pool);
        let class = if slot.kept || slot.dirty { class } else { quotas.unkept(class) };
        self.move_to_class(object, block, key, class);
    }

    /// Makes a block one of a class; a share that is full gives up another for it, or it goes itself.
    fn move_to_class(&mut self, object: ObjectId, block: Block, key: Key, class: Class) {
        let (cache, quotas, mut pool) = self.parts();
        let Some(slot) = pool.store.slot(object, block) else { return };
        if slot.class != class {
            quotas.leaves(key, slot.class);
            pool.store.set_class(object, block, class);
            if !quotas.is_pinned(class) {
                cache.release(key);
            }
        }
        if !quotas.joins(key, class, &mut pool) && !slot.dirty {
            pool.give_up(key);
        }
    }

    /// Gives up a few blocks, because reclaim finds no segment worth emptying; `false` if none may go.
    pub(crate) fn keep_less(&mut self, blocks: u32) -> bool {
        let (cache, _, mut pool) = self.parts();
        (0..blocks).take_while(|_| cache.evict(&mut pool).is_some()).count() > 0
    }

    /// Keeps as much as fits: more blocks where they are packed. Where what is kept takes more than it may, some goes.
    pub(crate) fn fit(&mut self) {
        // Zeros take no flash, packed or not: without packed records they are no reason to keep more.
        let blocks = if self.store.sums().packed_blocks() > 0 { self.store.sums().cached_blocks() } else { 0 };
        self.keep.fit(blocks, self.store.sums().stored_units());
        if self.store.sums().kept_units() > self.keep.plain * u64::from(BLOCK_UNITS) {
            self.keep_less(FIT_STEP);
        }
    }

    /// Tells the policy of blocks that have lost their slots since.
    pub(crate) fn tell_gone(&mut self) {
        for (object, block) in self.store.take_gone() {
            if self.store.slot(object, block).is_none()
                && !self.store.is_in_memory(object, block)
                && let Some(key) = key_of(object, block)
            {
                self.keep.cache.forget(key);
                self.keep.quotas.gone(key);
            }
        }
    }

    /// Changes what is kept from now on, and drops nothing.
    pub(crate) fn configure(&mut self, config: &Config) {
        let (cache, quotas, mut pool) = self.parts();
        quotas.set(config.classes);
        pool.pinned = quotas.pins();
        cache.set_policy(config.policy, &mut pool);
        cache.set_admission(config.admission);
        self.keep.budget.set_limit(config.flash_write_limit);
        // What could not move over while it was dirty is found again, and what changed limits say of each block.
        self.keep.learn_from = Some((ObjectId(0), Block(0)));
    }

    /// Tells the policy of some of the blocks that an earlier life of the engine kept.
    pub(crate) fn learn(&mut self) {
        let Some((mut at, mut from)) = self.keep.learn_from.take() else { return };
        let mut left = LEARN_STEP;
        while left > 0 {
            let Some((&object, known)) = self.store.objects().range(at..).next() else { return };
            let first = if object == at { from } else { Block(0) };
            let slots: Vec<_> = known.map().range(first, Block(u64::MAX)).take(left).collect();
            left -= slots.len().max(1);
            (at, from) = match slots.last() {
                Some((last, _)) => (object, last.next()),
                None => (object.next(), Block(0)),
            };
            for (block, _) in slots {
                self.learn_one(object, block);
            }
        }
        self.keep.learn_from = Some((at, from));
    }

    fn learn_one(&mut self, object: ObjectId, block: Block) {
        let Some(key) = key_of(object, block) else { return };
        let (_, quotas, pool) = self.parts();
        let Some(slot) = pool.store.slot(object, block) else { return };
        if slot.class != Class::EVERYBODY {
            let class = quotas.belongs(slot.class, &pool);
            let class = if slot.kept || slot.dirty { class } else { quotas.unkept(class) };
            if class != slot.class || !quotas.knows(key, class) {
                self.move_to_class(object, block, key, class);
            }
        }
        // What is left of it: a share may have given it up.
        let Some(slot) = self.store.slot(object, block) else { return };
        if !slot.kept && !slot.dirty {
            return;
        }
        let (cache, _, mut pool) = self.parts();
        if !cache.contains(key) && cache.admit(key, Insertion::OnFlash, &mut pool) == Admitted::Refused && !slot.dirty {
            self.store.keep(object, block, false);
            self.unpin(object, block);
        }
    }
}
