//! What every policy promises, on random histories: never more than its capacity, what may not go
//! stays, only what may be written is written, and a change of policy loses nothing. FIFO and LRU
//! are held against lists.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use headpond_policy::{Admission, Admitted, Cache, Host, Insertion, Key, Policy};
use proptest::prelude::*;

/// Follows the policy's answers, and so knows which blocks are kept.
#[derive(Default)]
struct Model {
    kept: BTreeSet<Key>,
    in_memory: BTreeSet<Key>,
    stays: BTreeSet<Key>,
    evicted: Vec<Key>,
    asked: usize,
    no_fills: bool,
}

impl Host for Model {
    fn evictable(&mut self, key: Key) -> bool {
        self.asked += 1;
        !self.stays.contains(&key)
    }

    fn fill(&mut self, key: Key) -> bool {
        if !self.no_fills {
            self.in_memory.remove(&key);
        }
        !self.no_fills
    }

    fn evicted(&mut self, key: Key) {
        assert!(!self.stays.contains(&key), "{key:?} may not go");
        assert!(self.kept.remove(&key), "{key:?} was not kept");
        self.in_memory.remove(&key);
        self.evicted.push(key);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Read(u64),
    /// Written, and dirty from then on.
    Write(u64),
    Clean(u64),
    Forget(u64),
    Change(Policy),
    Fills(bool),
    Evict,
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0..60_u64).prop_map(Step::Read),
        4 => (0..60_u64).prop_map(Step::Write),
        4 => (0..60_u64).prop_map(Step::Clean),
        2 => (0..60_u64).prop_map(Step::Forget),
        1 => (0..5_usize).prop_map(|at| Step::Change(Policy::ALL[at])),
        1 => any::<bool>().prop_map(Step::Fills),
        1 => Just(Step::Evict),
    ]
}

fn admit(cache: &mut Cache, model: &mut Model, key: Key, insertion: Insertion) {
    model.kept.insert(key);
    match cache.admit(key, insertion, model) {
        Admitted::Flash => {
            model.in_memory.remove(&key);
        }
        Admitted::Memory => {
            assert_eq!(insertion, Insertion::Read);
            model.in_memory.insert(key);
        }
        Admitted::Refused => {
            // It may have been told of as evicted already.
            model.kept.remove(&key);
            model.in_memory.remove(&key);
        }
    }
}

fn run(policy: Policy, admission: Admission, capacity: usize, memory: usize, steps: &[Step], changes: bool) {
    let mut cache = Cache::new(policy, admission, capacity, memory);
    let mut model = Model::default();
    for step in steps {
        match *step {
            Step::Read(key) => {
                let key = Key(key);
                if !cache.touch(key, &mut model) {
                    admit(&mut cache, &mut model, key, Insertion::Read);
                }
            }
            Step::Write(key) => {
                let key = Key(key);
                if cache.touch(key, &mut model) {
                    cache.wrote(key);
                    model.in_memory.remove(&key);
                } else {
                    admit(&mut cache, &mut model, key, Insertion::OnFlash);
                }
                if model.kept.contains(&key) {
                    model.stays.insert(key);
                }
            }
            Step::Clean(key) => {
                if model.stays.remove(&Key(key)) {
                    cache.release(Key(key));
                }
            }
            Step::Forget(key) => {
                let key = Key(key);
                model.stays.remove(&key);
                model.kept.remove(&key);
                model.in_memory.remove(&key);
                cache.forget(key);
            }
            Step::Change(policy) if changes => cache.set_policy(policy, &mut model),
            Step::Change(_) => {}
            Step::Fills(yes) => model.no_fills = !yes,
            Step::Evict => {
                let before = model.evicted.len();
                let evicted = cache.evict(&mut model);
                assert_eq!(model.evicted.get(before).copied(), evicted);
                if evicted.is_none() && !changes {
                    let may_go = model.kept.iter().any(|key| !model.stays.contains(key));
                    assert!(!may_go || model.no_fills, "{policy}: nothing went, although something could");
                }
            }
        }
        assert!(cache.len() <= capacity, "{} of {capacity}", cache.len());
        let kept: BTreeSet<_> = (0..60).map(Key).filter(|key| cache.contains(*key)).collect();
        // While contents move over, a block that may not go can become unknown; none may appear.
        if changes {
            assert!(kept.is_subset(&model.kept), "{kept:?} {:?}", model.kept);
            model.kept.clone_from(&kept);
        }
        assert_eq!(kept, model.kept, "{policy} after {step:?}");
        assert_eq!(cache.len(), kept.len());
    }
}

proptest! {
    #[test]
    fn every_policy_keeps_what_may_not_go_and_never_more_than_its_capacity(
        steps in proptest::collection::vec(any_step(), 0..400),
        policy in 0..5_usize, capacity in 1..40_usize, memory in 0..10_usize, returning: bool,
    ) {
        let admission = if returning { Admission::Returning } else { Admission::Always };
        run(Policy::ALL[policy], admission, capacity, memory.min(capacity), &steps, false);
    }

    #[test]
    fn policies_that_change_while_in_use_keep_the_same_promises(
        steps in proptest::collection::vec(any_step(), 0..400), capacity in 1..40_usize, memory in 0..10_usize,
    ) {
        run(Policy::Adaptive, Admission::Always, capacity, memory.min(capacity), &steps, true);
    }

    #[test]
    fn fifo_and_lru_are_what_a_list_is(keys in proptest::collection::vec(0..30_u64, 0..500), capacity in 1..25_usize, lru: bool) {
        let mut cache = Cache::new(if lru { Policy::Lru } else { Policy::Fifo }, Admission::Always, capacity, 0);
        let (mut model, mut list) = (Model::default(), VecDeque::new());
        for key in keys.into_iter().map(Key) {
            let hit = list.contains(&key);
            prop_assert_eq!(cache.touch(key, &mut model), hit);
            if hit && lru {
                list.retain(|other| *other != key);
                list.push_back(key);
            } else if !hit {
                if list.len() == capacity {
                    list.pop_front();
                }
                list.push_back(key);
                admit(&mut cache, &mut model, key, Insertion::Read);
            }
            prop_assert_eq!(&model.kept, &list.iter().copied().collect::<BTreeSet<_>>());
        }
    }
}

/// Kept blocks after a change of policy, once all has moved over.
fn after_change(from: Policy, to: Policy) -> (BTreeSet<Key>, BTreeSet<Key>) {
    let (mut cache, mut model) = (Cache::new(from, Admission::Always, 1000, 100), Model::default());
    for key in (0..900).map(Key) {
        cache.touch(key, &mut model);
        admit(&mut cache, &mut model, key, Insertion::Read);
    }
    let before = model.kept.clone();
    cache.set_policy(to, &mut model);
    assert_eq!(cache.policy(), to);
    for key in (0..900).map(Key) {
        cache.touch(key, &mut model);
    }
    (before, model.kept)
}

#[test]
fn a_change_of_policy_drops_nothing() {
    for from in Policy::ALL {
        for to in Policy::ALL {
            let (before, after) = after_change(from, to);
            assert_eq!(before, after, "{from} to {to}");
        }
    }
}

#[test]
fn a_pool_full_of_dirty_blocks_is_asked_about_each_once_and_not_for_every_miss() {
    for policy in Policy::ALL {
        let (mut cache, mut model) = (Cache::new(policy, Admission::Always, 1000, 0), Model::default());
        for key in (0..1000).map(Key) {
            cache.touch(key, &mut model);
            admit(&mut cache, &mut model, key, Insertion::OnFlash);
            model.stays.insert(key);
        }
        for key in (1000..3000).map(Key) {
            assert!(!cache.touch(key, &mut model));
            admit(&mut cache, &mut model, key, Insertion::Read);
        }
        let most = if policy == Policy::Adaptive { 2000 * 65 + 1000 } else { 3000 };
        assert!(model.asked <= most, "{policy}: {} questions", model.asked);
        assert_eq!(model.kept.len(), 1000);
        model.stays.remove(&Key(500));
        cache.release(Key(500));
        cache.touch(Key(5000), &mut model);
        admit(&mut cache, &mut model, Key(5000), Insertion::Read);
        assert_eq!(model.evicted, [Key(500)], "{policy}");
    }
}

#[test]
fn memory_is_bounded_and_the_default_takes_eighteen_bytes_a_block() {
    let most =
        BTreeMap::from([("fifo", 22.0), ("lru", 22.0), ("s3-fifo", 42.0), ("w-tinylfu", 26.0), ("adaptive", 18.0)]);
    let capacity = 1_000_000;
    for policy in Policy::ALL {
        let mut cache = Cache::new(policy, Admission::Always, capacity, 16384);
        let mut model = Model::default();
        let at_start = cache.memory();
        for key in 0..50_000 {
            cache.touch(Key(key), &mut model);
            cache.admit(Key(key), Insertion::OnFlash, &mut model);
        }
        assert_eq!(cache.memory(), at_start, "{policy} grew");
        let shadows = if policy == Policy::Adaptive { 510 << 10 } else { 0 };
        let each = (at_start - shadows) as f64 / capacity as f64;
        assert!(each <= most[policy.name()], "{policy}: {each:.2} bytes a block");
    }
}

/// Misses among the last third of references to pages of unequal popularity, one in three a write that stays for as
/// long as it takes to come by in the order of places: `dirty_for` references, or not at all.
fn late_misses(policy: Policy, capacity: u64, dirty_for: u64) -> u64 {
    let references = 100 * capacity;
    let mut cache = Cache::new(policy, Admission::Always, capacity as usize, capacity as usize / 10);
    let (mut model, mut at, mut random, mut misses) = (Model::default(), Key(0), 1_u64, 0);
    for number in 0..references {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        // Popular in inverse proportion to the rank, over four times the capacity; each rank anywhere.
        let share = (random >> 11) as f64 / (1_u64 << 53) as f64;
        let rank = ((4 * capacity) as f64).powf(share) as u64;
        let key = Key(rank.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32);
        let write = number.is_multiple_of(3);
        let insertion = if write { Insertion::OnFlash } else { Insertion::Read };
        if !cache.touch(key, &mut model) {
            misses += u64::from(number * 3 >= references * 2);
            admit(&mut cache, &mut model, key, insertion);
        } else if write {
            cache.wrote(key);
            model.in_memory.remove(&key);
        }
        if write && dirty_for > 0 && model.kept.contains(&key) {
            model.stays.insert(key);
        }
        if number % 64 == 0 {
            for _ in 0..model.stays.len() as u64 * 64 / dirty_for.max(64) {
                at = model.stays.range(at..).next().or_else(|| model.stays.first()).copied().unwrap_or(at);
                model.stays.remove(&at);
                cache.release(at);
            }
        }
    }
    misses
}

#[test]
fn blocks_that_may_not_go_for_a_while_cost_few_hits_however_long_it_goes_on() {
    for policy in Policy::ALL {
        let capacity = 20_000;
        let (never, for_a_while) = (late_misses(policy, capacity, 0), late_misses(policy, capacity, 2 * capacity));
        assert!(for_a_while * 10 < never * 11, "{policy}: {for_a_while} misses, and {never} if all may go");
    }
}
