//! What the pool keeps: never more than it may, never less than what is dirty, whatever the policy and however often it
//! is changed.

#![allow(clippy::unwrap_used)] // helpers outside of #[test] functions are tests, too

mod world;

use headpond_base::Nanos;
use headpond_engine::{Admission, Config, FlashWriteLimit, Policy, Reply, Request};
use proptest::prelude::*;
use world::World;

const BLOCK: u64 = 4096;
/// Twice the pool.
const FILE_BLOCKS: u64 = 24 << 10;

#[derive(Clone, Debug)]
enum Step {
    Read(u64, u32),
    Write(u64, u64, u8),
    Sleep(u64),
    Set(Policy, Admission, Option<u64>),
    Flush,
}

fn any_step() -> impl Strategy<Value = Step> {
    let place = prop_oneof![0..FILE_BLOCKS - 256, 0..500_u64];
    let policy = proptest::sample::select(Policy::ALL.to_vec());
    let admission = prop_oneof![3 => Just(Admission::Always), 1 => Just(Admission::Returning)];
    let limit = prop_oneof![3 => Just(None), 1 => Just(Some(0)), 1 => Just(Some(1 << 30))];
    prop_oneof![
        12 => (place.clone(), 1..=256_u32).prop_map(|(at, blocks)| Step::Read(at, blocks)),
        8 => (place, 1..=256_u64, any::<u8>()).prop_map(|(at, blocks, byte)| Step::Write(at, blocks, byte)),
        2 => (0..2000_u64).prop_map(Step::Sleep),
        1 => (policy, admission, limit).prop_map(|(policy, admission, limit)| Step::Set(policy, admission, limit)),
        1 => Just(Step::Flush),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10, ..ProptestConfig::default() })]

    #[test]
    fn the_pool_never_keeps_more_than_it_may_and_never_drops_what_is_dirty(
        steps in proptest::collection::vec(any_step(), 1..250),
    ) {
        let mut config = Config { flush_period: Nanos::SECOND, ..Config::default() };
        let mut world = World::new(config);
        let file = world.open(1, &vec![0; (FILE_BLOCKS * BLOCK) as usize]);
        let mut expected = vec![0_u8; FILE_BLOCKS as usize];
        for step in steps {
            match step {
                Step::Read(at, blocks) => {
                    let bytes = world.read(file, at * BLOCK, blocks * BLOCK as u32);
                    for (block, bytes) in (at..).zip(bytes.chunks(BLOCK as usize)) {
                        prop_assert!(bytes.iter().all(|byte| *byte == expected[block as usize]), "block {block}");
                    }
                }
                Step::Write(at, blocks, byte) => {
                    world.write(file, at * BLOCK, &vec![byte; (blocks * BLOCK) as usize]);
                    expected[at as usize..(at + blocks) as usize].fill(byte);
                }
                Step::Sleep(milliseconds) => world.sleep(milliseconds),
                Step::Set(policy, admission, limit) => {
                    let flash_write_limit = limit.map(FlashWriteLimit);
                    config = Config { policy, admission, flash_write_limit, ..config };
                    prop_assert!(matches!(world.ask(Request::Configure(Box::new(config))), Reply::Done));
                }
                Step::Flush => prop_assert!(matches!(world.ask(Request::flush_all(1)), Reply::Done)),
            }
            let stats = world.engine.stats();
            prop_assert!(stats.kept_blocks <= stats.pool_blocks * 80 / 100, "{stats:?}");
            prop_assert!(stats.cached_blocks <= stats.pool_blocks, "{stats:?}");
        }
        prop_assert!(matches!(world.ask(Request::flush_all(1)), Reply::Done));
        for (block, bytes) in world.files[&file].chunks(BLOCK as usize).enumerate() {
            prop_assert!(bytes.iter().all(|byte| *byte == expected[block]), "block {block} at the origin");
        }
    }
}

#[test]
fn what_is_read_often_stays_while_much_more_is_read_once() {
    for policy in [Policy::S3Fifo, Policy::Adaptive] {
        let mut world = World::new(Config { policy, fetch_bytes: 4096, sequential_cutoff: None, ..Config::default() });
        let file = world.open(1, &vec![3; (4 * FILE_BLOCKS * BLOCK) as usize]);
        let favourites = 1000;
        for _ in 0..4 {
            (0..favourites).for_each(|at| drop(world.read(file, at * BLOCK, BLOCK as u32)));
        }
        for at in favourites..2 * FILE_BLOCKS {
            world.read(file, at * BLOCK, BLOCK as u32);
        }
        let before = world.engine.stats().read_miss_blocks;
        (0..favourites).for_each(|at| drop(world.read(file, at * BLOCK, BLOCK as u32)));
        let missed = world.engine.stats().read_miss_blocks - before;
        assert!(missed * 20 < favourites, "{policy}: {missed} of {favourites} were gone");
    }
}

#[test]
fn a_change_of_policy_drops_nothing_and_a_restart_stays_warm() {
    let mut world = World::new(Config { sequential_cutoff: None, ..Config::default() });
    let file = world.open(1, &vec![3; 4000 * BLOCK as usize]);
    (0..4000).for_each(|at| drop(world.read(file, at * BLOCK, BLOCK as u32)));
    let missed = world.engine.stats().read_miss_blocks;
    for policy in Policy::ALL {
        let config = Config { policy, sequential_cutoff: None, ..Config::default() };
        assert!(matches!(world.ask(Request::Configure(Box::new(config))), Reply::Done));
        world.sleep(50);
        (0..4000).for_each(|at| drop(world.read(file, at * BLOCK, BLOCK as u32)));
        assert_eq!(world.engine.stats().read_miss_blocks, missed, "{policy}");
    }
}
