//! A start after a crash that left a batch on one of two members.

#![allow(clippy::unwrap_used)] // helpers outside of #[test] functions are tests, too

mod world;

use headpond_base::{Compression, MemberId, ObjectId, Redundancy};
use headpond_engine::{Config, Device, FlashRead, Mutation, Present, Recovered, Reply, Request, recover_members};
use headpond_format::{Address, SUPERBLOCK_SLOTS};
use world::{Memory, POOL, World};

const BLOCK: usize = 4096;

/// Write-back; nothing goes to the origin unless something waits for it.
fn config(compression: Compression) -> Config {
    let config = Config { flush_period: Config::OFF, dirty_threshold: 0, sequential_cutoff: None, ..Config::default() };
    let config = Config { compression, compression_from: 0, idle_flush: None, ..config };
    Config { redundancy: Redundancy::Mirror, ..config }
}

fn write_and_sync(world: &mut World, file: ObjectId, block: u64, byte: u8, blocks: usize) {
    world.write(file, block * BLOCK as u64, &vec![byte; blocks * BLOCK]);
    assert!(matches!(world.ask(Request::sync(file)), Reply::Done));
}

fn devices(world: &World) -> [Memory; 2] {
    [&world.flash, &world.others[0]].map(|flash| Memory(flash.0.clone()))
}

/// The devices of a pool with some blocks on both, and some more on the second alone, or on the first.
fn torn_apart(config: Config, newer: usize) -> Vec<Memory> {
    let mut world = World::mirrored(config);
    let file = world.open(1, &[]);
    write_and_sync(&mut world, file, 0, 1, 4);
    write_and_sync(&mut world, file, 4, 2, 5);
    let before = devices(&world);
    // Over some of the others, and behind them.
    write_and_sync(&mut world, file, 3, 3, 4);
    write_and_sync(&mut world, file, 20, 4, 9);
    let mut left: Vec<Memory> = devices(&world).into();
    left[1 - newer] = before.into_iter().nth(1 - newer).unwrap();
    left
}

/// The devices as soon as the first superblock of a start with both is on them.
fn started(left: Vec<Memory>, config: Config) -> [Memory; 2] {
    let mut world = World::about_to_start(left, config);
    world.hold_below = SUPERBLOCK_SLOTS[1] + BLOCK as u64;
    world.run();
    assert!(!world.held.is_empty());
    devices(&world)
}

/// A start that finds one device alone.
fn alone(mut device: Memory) -> (Recovered, Memory) {
    let given = vec![Device { flash: &mut device, bytes: POOL }];
    let recovered = recover_members(&mut Present::muster(given).unwrap(), None).unwrap();
    (recovered, device)
}

/// Dirty blocks that it finds, and those of them that the device has not got as they were written.
fn found_and_lacking((recovered, mut device): (Recovered, Memory), member: MemberId) -> (u64, u64) {
    let read = |at: Address, len| {
        assert_eq!(at.member, member, "another device is not here");
        device.read(at.offset, len).ok()
    };
    (recovered.dirty_blocks(), recovered.lacking_blocks(read))
}

#[test]
fn each_member_has_what_a_crash_left_on_one_before_the_pool_says_that_it_has_it() {
    for compression in [Compression::Off, Compression::Lz4] {
        for newer in [0, 1] {
            let left = torn_apart(config(compression), newer);
            let older = left.iter().map(|device| Memory(device.0.clone())).nth(1 - newer).unwrap();
            let (before, lacking) = found_and_lacking(alone(older), MemberId(1 - newer as u16));
            assert_eq!((before, lacking), (9, 0), "alone it is what was there before");
            let devices = started(left, config(compression));
            for (device, member) in devices.into_iter().zip([MemberId(0), MemberId(1)]) {
                let (dirty, lacking) = found_and_lacking(alone(device), member);
                assert_eq!((dirty, lacking), (18, 0), "{member:?}, {compression:?}, newer on {newer}");
            }
        }
    }
}

#[test]
fn what_lies_beside_a_bad_sector_is_not_written_over() {
    let config = config(Compression::Off);
    let left = torn_apart(config, 1);
    let ones = |at: &usize| left[0].0[*at..*at + BLOCK].iter().all(|byte| *byte == 1);
    let bad = (0..POOL as usize).step_by(BLOCK).find(ones).unwrap() as u64;
    let mut world = World::about_to_start(left, config);
    world.bad_sector = Some((MemberId(0), bad));
    world.hold_below = SUPERBLOCK_SLOTS[1] + BLOCK as u64;
    world.run();
    let covers =
        |at: &Address, len: u64, byte| at.member == MemberId(0) && (at.offset..at.offset + len).contains(&byte);
    let written = |byte| world.flash_writes.iter().filter(|(at, len)| covers(at, *len, byte)).count();
    assert_eq!([0, 1, 2].map(|block| written(bad + block * BLOCK as u64)), [1, 0, 0]);
}

#[test]
fn with_the_bug_planted_the_older_member_lacks_blocks() {
    for compression in [Compression::Off, Compression::Lz4] {
        let planted = Config { mutation: Some(Mutation::LeaveDiffering), ..config(compression) };
        let [older, _] = started(torn_apart(planted, 1), planted);
        let (dirty, lacking) = found_and_lacking(alone(older), MemberId(0));
        assert_eq!((dirty, lacking), (18, 13), "{compression:?}");
    }
}
