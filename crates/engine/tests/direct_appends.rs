//! A writer past the pool pays for the flash once and not with each write, and no crash brings back what the pool had
//! before.

#![allow(clippy::unwrap_used)] // helpers outside of #[test] functions are tests, too

mod world;

use headpond_base::{Nanos, ObjectId, UnixNanos};
use headpond_engine::{Config, Handling, OpenFile, Reply, Request, Verdict, recover};
use headpond_format::Stamp;
use world::{Memory, POOL, World};

const CUTOFF: u64 = 1 << 20;

fn streaming() -> Config {
    Config { sequential_cutoff: Some(CUTOFF), flush_period: Config::OFF, dirty_threshold: 0, ..Config::default() }
}

/// Writes `count` pieces one behind the other, and answers how often the flash was synced meanwhile.
fn write_on(world: &mut World, file: ObjectId, from: u64, piece: &[u8], count: u64) -> u64 {
    let before = world.flash_syncs;
    (0..count).for_each(|at| world.write(file, from + at * piece.len() as u64, piece));
    world.flash_syncs - before
}

/// Reads all of a file, here and there, so that it is cached.
fn cache(world: &mut World, file: ObjectId, bytes: u64) {
    let pieces = bytes / 65_536;
    (0..pieces).for_each(|at| drop(world.read(file, at * 37 % pieces * 65_536, 65_536)));
    let cached = world.engine.stats().cached_blocks;
    assert!(cached * 4096 >= bytes / 2, "{cached} blocks are cached");
}

#[test]
fn appends_past_the_cutoff_sync_the_flash_once_in_all() {
    for piece in [4096, 100, 65_536] {
        let mut world = World::new(streaming());
        let file = world.open(1, &[]);
        let first = vec![1; 65_536];
        write_on(&mut world, file, 0, &first, 2 * CUTOFF / 65_536);
        let direct = world.engine.stats().bypassed_writes;
        assert!(direct > 0, "it has come past the cutoff");
        let syncs = write_on(&mut world, file, 2 * CUTOFF, &vec![2; piece], 1000);
        assert_eq!(world.engine.stats().bypassed_writes, direct + 1000);
        assert!(syncs <= 1, "{syncs} syncs for 1000 appends of {piece} bytes");
    }
}

#[test]
fn a_stream_over_what_is_cached_syncs_the_flash_a_few_times() {
    let mut world = World::new(streaming());
    let file = world.open(1, &vec![3; 24 << 20]);
    cache(&mut world, file, 24 << 20);
    let syncs = write_on(&mut world, file, 0, &[4; 16_384], (24 << 20) / 16_384);
    assert!(world.engine.stats().bypassed_writes > 1000);
    assert!(syncs < 30, "{syncs}");
    assert_eq!(world.read(file, 20 << 20, 4096), [4; 4096]);
}

#[test]
fn single_writes_past_the_pool_leave_the_rest_of_the_file_cached() {
    let mut world = World::new(streaming());
    let file = world.open(1, &vec![3; 4 << 20]);
    cache(&mut world, file, 4 << 20);
    let cached = world.engine.stats().cached_blocks;
    for block in [100_u64, 700, 701, 300] {
        world.write_as(file, block * 4096, &[4; 4096], Handling::Bypass);
    }
    let lost = cached - world.engine.stats().cached_blocks;
    assert!(lost <= 6, "{lost} blocks gone for 4 that were written");
}

/// What a start after a crash with this flash reads of the file, whose time the origin has moved on.
fn after_a_crash(flash: &Memory, at_origin: &[u8]) -> Vec<u8> {
    let mut flash = Memory(flash.0.clone());
    let mut recovered = recover(&mut flash, POOL).unwrap();
    recovered.booted([1; 16]);
    let stamp = Stamp { size: at_origin.len() as u64, mtime: UnixNanos(99), ctime: UnixNanos(99) };
    let found = OpenFile { inode: 1, birth: UnixNanos(0), path: b"f".to_vec(), stamp, created: false, allocated: 0 };
    for object in recovered.objects() {
        let verdict = recovered.reconcile(object.object, Some(&found.clone().into()));
        assert!(!matches!(verdict, Verdict::Conflict(_)), "{verdict:?}");
    }
    let mut world = World::new(streaming());
    world.flash = flash;
    world.engine = recovered.into_engine(streaming(), Nanos(world.now));
    world.run();
    // What is recovered may be destaged at once.
    let known: Vec<ObjectId> = (1..20).map(ObjectId).collect();
    known.iter().for_each(|object| drop(world.files.insert(*object, at_origin.to_vec())));
    let Reply::Opened { object, .. } = world.ask(Request::Open(found.into())) else { panic!("not opened") };
    world.files.insert(object, at_origin.to_vec());
    (0..at_origin.len() as u64).step_by(1 << 20).flat_map(|at| world.read(object, at, 1 << 20)).collect()
}

#[test]
fn no_crash_in_a_stream_brings_back_what_was_cached_before() {
    let mut world = World::new(streaming());
    // The boot during which the pool was used last is not known: clean blocks of a file that was being changed go. So
    // this start is of a pool whose origin stood.
    let mut recovered = recover(&mut Memory(world.flash.0.clone()), POOL).unwrap();
    recovered.booted([1; 16]);
    world.engine = recovered.into_engine(streaming(), Nanos(world.now));
    world.run();
    let file = world.open(1, &vec![3; 6 << 20]);
    cache(&mut world, file, 6 << 20);
    assert!(matches!(world.ask(Request::sync(file)), Reply::Done));
    for step in 0..48_u64 {
        let at = step * 131_072;
        write_on(&mut world, file, at, &[step as u8 + 10; 16_384], 4);
        // Some of what is ahead is read, and cached, again.
        let ahead = (at + 100_000).min(5 << 20) / 4096 * 4096;
        world.read(file, ahead, 8192);
        write_on(&mut world, file, at + 65_536, &[step as u8 + 10; 16_384], 4);
        if step % 14 == 13 {
            let expected = world.files[&file].clone();
            assert!(after_a_crash(&world.flash, &expected) == expected, "after {step} steps");
        }
    }
    assert!(world.engine.stats().bypassed_writes > 100);
}
