//! A start with a device that refuses to make durable what it shows.

#![allow(clippy::unwrap_used)] // helpers outside of #[test] functions are tests, too

mod world;

use headpond_base::{MemberId, ObjectId, Redundancy};
use headpond_engine::{Config, Device, Present, Recovered, Reply, Request, recover_members};
use world::{Memory, POOL, World};

const BLOCK: usize = 4096;

/// Write-back; nothing goes to the origin unless something waits for it.
fn write_back(redundancy: Redundancy) -> Config {
    let config = Config { flush_period: Config::OFF, dirty_threshold: 0, sequential_cutoff: None, ..Config::default() };
    Config { redundancy, idle_flush: None, ..config }
}

fn write_and_sync(world: &mut World, file: ObjectId, block: u64) {
    world.write(file, block * BLOCK as u64, &[1; BLOCK]);
    assert!(matches!(world.ask(Request::sync(file)), Reply::Done));
}

fn devices(world: &World) -> Vec<Memory> {
    [&world.flash].into_iter().chain(&world.others).map(|flash| Memory(flash.0.clone())).collect()
}

/// What a start finds, and the member that each device is.
fn start(flashes: &mut [Memory], doubted: &[usize]) -> (Recovered, Vec<Option<MemberId>>) {
    let count = flashes.len();
    let devices = flashes.iter_mut().map(|flash| Device { flash, bytes: POOL }).collect();
    let mut present = Present::muster(devices).unwrap();
    doubted.iter().for_each(|device| present.doubt(*device));
    let recovered = recover_members(&mut present, None).unwrap();
    (recovered, (0..count).map(|device| present.member_of(device)).collect())
}

#[test]
fn what_only_a_doubted_device_has_does_not_count_if_the_others_suffice() {
    let mut world = World::mirrored(write_back(Redundancy::Mirror));
    let file = world.open(1, &[]);
    write_and_sync(&mut world, file, 0);
    let [first, _] = devices(&world).try_into().unwrap_or_else(|_| panic!("two devices"));
    write_and_sync(&mut world, file, 1);
    let [_, second] = devices(&world).try_into().unwrap_or_else(|_| panic!("two devices"));
    // The second block reached the cache of one device, and the daemon died.
    let mut left = [first, second];

    let (believed, members) = start(&mut left, &[]);
    assert_eq!((believed.dirty_blocks(), &members[..]), (2, &[Some(MemberId(0)), Some(MemberId(1))][..]));
    let (sure, members) = start(&mut left, &[1]);
    assert_eq!((sure.dirty_blocks(), &members[..]), (1, &[Some(MemberId(0)), None][..]));
    assert_eq!(sure.missing(), [MemberId(1)]);
    assert!(sure.last_host_batch() < believed.last_host_batch());
}

#[test]
fn a_doubted_device_is_read_if_the_others_do_not_suffice() {
    let mut world = World::of_members(2, write_back(Redundancy::None));
    let file = world.open(1, &[]);
    (0..600).for_each(|block| write_and_sync(&mut world, file, block));
    let mut left = devices(&world);
    for doubted in [&[0][..], &[1], &[0, 1]] {
        let (found, members) = start(&mut left, doubted);
        assert_eq!((found.dirty_blocks(), members.iter().flatten().count()), (600, 2), "{doubted:?}");
    }
}

#[test]
fn a_pool_went_on_without_the_devices_that_are_not_doubted() {
    let config = write_back(Redundancy::Mirror);
    let mut world = World::mirrored(config);
    let file = world.open(1, &[]);
    write_and_sync(&mut world, file, 0);
    world.refuses_writes = Some(MemberId(1));
    write_and_sync(&mut world, file, 1);
    (0..100).for_each(|_| world.sleep(50));
    let (found, members) = start(&mut devices(&world), &[0]);
    assert_eq!(members, [Some(MemberId(0)), None], "the other one is old");
    assert_eq!(found.missing(), []);
}
