//! What pins and shares promise, on random histories beside every policy: a pinned block stays while its class is
//! within its quota, a share's clean blocks never outnumber its own, nothing dirty goes, and the pool keeps no more
//! than it may. The oracle is a list of blocks that counts for itself.

use std::collections::BTreeMap;

use headpond_base::Class;
use headpond_policy::{Admission, Admitted, BlockOwner, Cache, ClassLimit, Host, Insertion, Key, Policy, Quotas};
use proptest::prelude::*;

const KEYS: u64 = 80;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Block {
    class: Class,
    dirty: bool,
    kept: bool,
}

/// The pool: every block that it has.
#[derive(Default)]
struct Pool {
    blocks: BTreeMap<Key, Block>,
    pinned: u16,
}

impl Pool {
    fn is_pinned(&self, class: Class) -> bool {
        self.pinned >> class.number() & 1 == 1
    }

    fn count(&self, counts: impl Fn(&Block) -> bool) -> u64 {
        self.blocks.values().filter(|block| counts(block)).count() as u64
    }
}

impl Host for Pool {
    fn evictable(&mut self, key: Key) -> bool {
        self.blocks.get(&key).is_none_or(|block| !block.dirty && !self.is_pinned(block.class))
    }

    fn fill(&mut self, _: Key) -> bool {
        true
    }

    fn evicted(&mut self, key: Key) {
        assert!(self.evictable(key), "{key:?} may not go");
        if let Some(block) = self.blocks.get_mut(&key) {
            block.kept = false;
        }
    }
}

impl BlockOwner for Pool {
    fn class(&self, key: Key) -> Option<Class> {
        self.blocks.get(&key).map(|block| block.class)
    }

    fn held(&self, class: Class) -> u64 {
        self.count(|block| block.class == class)
    }

    fn is_clean(&self, key: Key) -> bool {
        self.blocks.get(&key).is_none_or(|block| !block.dirty)
    }

    fn give_up(&mut self, key: Key) {
        let block = self.blocks.remove(&key).unwrap_or_else(|| panic!("{key:?} is not there"));
        assert!(!block.dirty && !self.is_pinned(block.class), "{key:?} {block:?} may not go");
    }
}

#[derive(Clone, Debug)]
enum Step {
    Read(u64, u8),
    Write(u64, u8),
    Clean(u64),
    Lose(u64),
    Limit(u8, ClassLimit),
    Change(Policy),
}

fn any_limit() -> impl Strategy<Value = ClassLimit> {
    prop_oneof![
        1 => Just(ClassLimit::default()),
        4 => (0..30_u64, any::<bool>()).prop_map(|(blocks, pinned)| ClassLimit { blocks, pinned }),
    ]
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0..KEYS, 0..5_u8).prop_map(|(key, class)| Step::Read(key, class)),
        5 => (0..KEYS, 0..5_u8).prop_map(|(key, class)| Step::Write(key, class)),
        6 => (0..KEYS).prop_map(Step::Clean),
        2 => (0..KEYS).prop_map(Step::Lose),
        1 => (1..5_u8, any_limit()).prop_map(|(class, limit)| Step::Limit(class, limit)),
        1 => (0..5_usize).prop_map(|at| Step::Change(Policy::ALL[at])),
    ]
}

/// The three together, driven as an engine does.
struct Whole {
    cache: Cache,
    quotas: Quotas,
    pool: Pool,
}

impl Whole {
    /// The block is there, and a request of class `by` uses it; it had class `now`, unless it is new.
    fn count(&mut self, key: Key, now: Option<Class>, by: Class) {
        let class = self.quotas.after_use(now, by, &self.pool);
        let Some(block) = self.pool.blocks.get(&key) else { return };
        let class = if block.kept || block.dirty { class } else { self.quotas.unkept(class) };
        self.become_one_of(key, class);
    }

    fn become_one_of(&mut self, key: Key, class: Class) {
        let Some(block) = self.pool.blocks.get_mut(&key) else { return };
        if block.class != class {
            self.quotas.leaves(key, block.class);
            block.class = class;
            self.cache.release(key);
        }
        if !self.quotas.joins(key, class, &mut self.pool) && !self.pool.blocks[&key].dirty {
            self.pool.give_up(key);
            self.cache.forget(key);
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Read(key, class) => {
                let (key, by) = (Key(key), Class::from_bits(class));
                let known = self.cache.touch(key, &mut self.pool);
                let now = self.pool.class(key);
                if !known {
                    let insertion = if now.is_some() { Insertion::OnFlash } else { Insertion::Read };
                    let kept = self.cache.admit(key, insertion, &mut self.pool) != Admitted::Refused;
                    if now.is_none() && !kept {
                        return;
                    }
                    let new = Block { class: Class::EVERYBODY, dirty: false, kept: false };
                    self.pool.blocks.entry(key).or_insert(new).kept |= kept;
                } else if now.is_none() {
                    // Lost, and the policy has not heard.
                    self.pool.blocks.insert(key, Block { class: Class::EVERYBODY, dirty: false, kept: true });
                }
                self.count(key, now, by);
            }
            Step::Write(key, class) => {
                let (key, by) = (Key(key), Class::from_bits(class));
                let now = self.pool.class(key);
                self.pool.blocks.insert(key, Block { class: now.unwrap_or_default(), dirty: true, kept: true });
                if self.cache.touch(key, &mut self.pool) {
                    self.cache.wrote(key);
                } else {
                    self.cache.admit(key, Insertion::OnFlash, &mut self.pool);
                }
                self.count(key, now, by);
            }
            Step::Clean(key) => self.clean(Key(key)),
            Step::Lose(key) => {
                if self.pool.blocks.get(&Key(key)).is_some_and(|block| !block.dirty) {
                    self.pool.blocks.remove(&Key(key));
                    self.cache.forget(Key(key));
                    self.quotas.gone(Key(key));
                }
            }
            Step::Limit(class, limit) => {
                let mut limits = self.quotas.limits();
                limits[usize::from(class)] = limit;
                self.quotas.set(limits);
                self.pool.pinned = self.quotas.pins();
                self.learn();
            }
            Step::Change(policy) => {
                self.cache.set_policy(policy, &mut self.pool);
                self.learn();
            }
        }
    }

    fn clean(&mut self, key: Key) {
        let Some(block) = self.pool.blocks.get_mut(&key).filter(|block| block.dirty) else { return };
        block.dirty = false;
        let class = block.class;
        if !self.quotas.cleaned(key, class, &mut self.pool) {
            self.cache.forget(key);
            return self.pool.give_up(key);
        }
        let kept =
            self.cache.contains(key) || self.cache.admit(key, Insertion::OnFlash, &mut self.pool) != Admitted::Refused;
        self.cache.release(key);
        self.kept(key, kept);
    }

    fn kept(&mut self, key: Key, kept: bool) {
        if let Some(block) = self.pool.blocks.get_mut(&key) {
            let class = if kept { block.class } else { self.quotas.unkept(block.class) };
            *block = Block { kept, class, ..*block };
        }
    }

    /// Every block is looked at again.
    fn learn(&mut self) {
        for key in self.pool.blocks.keys().copied().collect::<Vec<_>>() {
            let Some(class) = self.pool.class(key) else { continue };
            let class = self.quotas.belongs(class, &self.pool);
            let block = self.pool.blocks[&key];
            let class = if block.kept || block.dirty { class } else { self.quotas.unkept(class) };
            self.become_one_of(key, class);
            let Some(block) = self.pool.blocks.get(&key).copied().filter(|block| block.kept) else { continue };
            if !self.cache.contains(key) {
                let kept = self.cache.admit(key, Insertion::OnFlash, &mut self.pool) != Admitted::Refused;
                self.kept(key, kept || block.dirty);
            }
        }
    }
}

proptest! {
    #[test]
    fn pins_stay_shares_are_kept_to_and_dirty_blocks_are_never_dropped(
        steps in proptest::collection::vec(any_step(), 0..400),
        policy in 0..5_usize, capacity in 8..60_usize, limits in proptest::array::uniform4(any_limit()),
    ) {
        let mut all = [ClassLimit::default(); Class::COUNT];
        all[1..5].copy_from_slice(&limits);
        let pins_max = capacity as u64 * 3 / 4;
        let quotas = Quotas::new(all, KEYS, pins_max);
        let pool = Pool { pinned: quotas.pins(), ..Pool::default() };
        let mut whole = Whole { cache: Cache::new(Policy::ALL[policy], Admission::Always, capacity, 0), quotas, pool };
        for step in &steps {
            let before = whole.pool.blocks.clone();
            whole.step(step);
            let (pool, quotas) = (&whole.pool, &whole.quotas);
            prop_assert!(whole.cache.len() <= capacity);
            let mut pinned = 0;
            for class in (1..5).map(Class::from_bits) {
                let limit = quotas.limits()[class.index()];
                let (held, clean) = (pool.held(class), pool.count(|block| block.class == class && !block.dirty));
                if quotas.is_pinned(class) {
                    pinned += held;
                    prop_assert!(held <= limit.blocks, "{class:?} has {held} of {limit:?} after {step:?}");
                } else if quotas.is_share(class) {
                    prop_assert!(clean <= limit.blocks, "{class:?} has {clean} of {limit:?} after {step:?}");
                } else if matches!(step, Step::Limit(..)) {
                    prop_assert_eq!(held, 0, "{:?} is in use no more", class);
                }
            }
            prop_assert!(pinned <= pins_max);
            for (key, block) in before {
                let after = pool.blocks.get(&key);
                let gone = matches!(step, Step::Lose(lost) if *lost == key.0);
                let cleaned = matches!(step, Step::Clean(cleaned) if *cleaned == key.0);
                prop_assert!(!block.dirty || cleaned || after.is_some(), "{key:?} was dirty and went by {step:?}");
                let stays = quotas.is_pinned(block.class) && !gone && !matches!(step, Step::Limit(..));
                // A dirty one that the policy never knew may find no place among those it keeps once it is clean.
                if stays && !block.dirty {
                    prop_assert!(after.is_some_and(|after| after.class == block.class), "{key:?} {block:?} by {step:?}");
                }
            }
        }
    }
}

#[test]
fn of_two_who_use_a_block_it_counts_for_the_one_that_serves_it_better() {
    let [pin, other_pin, share, other_share, unused] = [1, 2, 3, 4, 5].map(Class::from_bits);
    let mut limits = [ClassLimit::default(); Class::COUNT];
    limits[1] = ClassLimit { blocks: 1, pinned: true };
    limits[2] = ClassLimit { blocks: 9, pinned: true };
    (limits[3].blocks, limits[4].blocks) = (9, 9);
    let quotas = Quotas::new(limits, 100, 50);
    let mut pool = Pool { pinned: quotas.pins(), ..Pool::default() };
    for (now, by, then) in [
        (None, pin, pin),
        (None, share, share),
        (None, unused, Class::EVERYBODY),
        (Some(Class::EVERYBODY), pin, pin),
        (Some(pin), Class::EVERYBODY, pin),
        (Some(pin), other_pin, pin),
        (Some(pin), share, pin),
        (Some(share), Class::EVERYBODY, Class::EVERYBODY),
        (Some(Class::EVERYBODY), share, Class::EVERYBODY),
        (Some(share), other_share, share),
        (Some(share), pin, pin),
        (Some(unused), share, Class::EVERYBODY),
    ] {
        assert_eq!(quotas.after_use(now, by, &pool), then, "{now:?} used by {by:?}");
    }
    pool.blocks.insert(Key(1), Block { class: pin, dirty: false, kept: true });
    for now in [None, Some(Class::EVERYBODY), Some(share)] {
        assert_eq!(quotas.after_use(now, pin, &pool), Class::EVERYBODY, "the pin is full, and {now:?} is used");
    }
}
