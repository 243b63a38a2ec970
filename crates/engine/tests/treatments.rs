//! What single requests may be treated as, whatever the cache mode: nothing stale, nothing lost, and no request waits
//! for ever for one of another kind.

#![allow(clippy::unwrap_used)] // helpers outside of #[test] functions are tests, too

mod world;

use headpond_base::{BufMut, UnixNanos};
use headpond_engine::{Config, Handling, Reply, Request, RequestId, Served, Treatment};
use world::World;

const BLOCK: usize = 4096;

#[test]
fn a_write_that_bypasses_is_at_the_origin_and_what_the_pool_had_is_dropped() {
    let mut world = World::new(Config::default());
    let file = world.open(1, &[1; 8 * BLOCK]);
    assert_eq!(world.read(file, 0, BLOCK as u32), [1; BLOCK]);
    world.write(file, 4 * BLOCK as u64, &[2; BLOCK]);
    world.write_as(file, 0, &[3; 2 * BLOCK], Handling::Bypass);
    assert_eq!(world.files[&file][..2 * BLOCK], [3; 2 * BLOCK], "it is at the origin when it is answered");
    assert_eq!(world.files[&file][4 * BLOCK..5 * BLOCK], [2; BLOCK], "and what was dirty went there before");
    let (bytes, served) = world.read_as(file, 0, BLOCK as u32, Handling::Cache);
    assert_eq!((bytes, served.miss_blocks), (vec![3; BLOCK], 1));
    let stats = world.engine.stats();
    assert_eq!((stats.bypassed_writes, stats.bypassed_write_bytes), (1, 2 * BLOCK as u64));
}

#[test]
fn a_read_that_bypasses_sees_what_is_dirty_and_lets_nothing_in() {
    let mut world = World::new(Config::default());
    let file = world.open(1, &[1; 64 * BLOCK]);
    world.write(file, 0, &[2; BLOCK]);
    let all = 3 * BLOCK as u32;
    for _ in 0..2 {
        let (bytes, served) = world.read_as(file, 0, all, Handling::Bypass);
        assert_eq!(bytes, [[2; BLOCK], [1; BLOCK], [1; BLOCK]].concat());
        assert_eq!(served, Served { hit_blocks: 1, miss_blocks: 2, bypassed: true }, "the second time as the first");
    }
    let stats = world.engine.stats();
    assert_eq!((stats.admitted_blocks, stats.bypassed_reads), (0, 2));
    world.read(file, 0, all);
    assert_eq!(world.read_as(file, 0, all, Handling::Bypass).1.hit_blocks, 3, "what is there is served from there");
}

#[test]
fn read_only_lets_reads_in_and_write_through_keeps_what_it_writes() {
    let mut world = World::new(Config::default());
    let file = world.open(1, &[1; 8 * BLOCK]);
    world.write_as(file, 0, &[2; BLOCK], Handling::ReadOnly);
    assert_eq!(world.read_as(file, 0, BLOCK as u32, Handling::ReadOnly).1.miss_blocks, 1);
    assert_eq!(world.read_as(file, 0, BLOCK as u32, Handling::ReadOnly).1.hit_blocks, 1);
    world.write_as(file, 0, &[4; BLOCK], Handling::WriteThrough);
    assert_eq!(world.files[&file][..BLOCK], [4; BLOCK]);
    let (bytes, served) = world.read_as(file, 0, BLOCK as u32, Handling::Cache);
    assert_eq!((bytes, served.hit_blocks), (vec![4; BLOCK], 1));
    assert_eq!(world.engine.stats().dirty_blocks, 0);
}

#[test]
fn cached_and_bypassing_writes_of_one_file_take_turns() {
    let mut world = World::new(Config::default());
    let file = world.open(1, &[]);
    let mut expected = vec![0; 400 * BLOCK];
    for number in 0..400_u64 {
        let at = (number * 7 % 400) as usize * BLOCK;
        let data = BufMut::copy_of(&[number as u8 | 1; BLOCK]).freeze();
        expected[at..at + BLOCK].copy_from_slice(&data);
        let handling = if number % 3 == 0 { Handling::Bypass } else { Handling::Cache };
        let how = Treatment { handling, ..Treatment::default() };
        let write = Request::Write { object: file, offset: at as u64, data, mtime: UnixNanos(7), durable: false, how };
        world.engine.submit(RequestId(1000 + number), write);
    }
    world.run();
    for _ in 0..1000 {
        world.sleep(50);
    }
    let answered =
        (0..400).filter(|number| matches!(world.replies.remove(&RequestId(1000 + number)), Some(Reply::Changed(_))));
    assert_eq!(answered.count(), 400);
    assert_eq!(world.read(file, 0, 200 * BLOCK as u32), expected[..200 * BLOCK]);
    assert!(matches!(world.ask(Request::flush_all(1)), Reply::Done));
    assert_eq!(world.files[&file], expected);
}

/// Writes or reads 64 MiB from the start on, in pieces of 128 KiB.
fn pass_through_file(world: &mut World, file: headpond_base::ObjectId, write: bool) {
    const PIECE: u64 = 128 << 10;
    for at in (0..64 << 20).step_by(PIECE as usize) {
        if write {
            world.write(file, at, &[(at / PIECE) as u8 | 1; PIECE as usize]);
        } else {
            assert_eq!(world.read(file, at, PIECE as u32), [(at / PIECE) as u8 | 1; PIECE as usize]);
        }
    }
}

#[test]
fn a_long_stream_passes_by_and_what_others_use_stays() {
    let mut world = World::new(Config::default());
    let favourite = world.open(1, &[9; 1 << 20]);
    world.read(favourite, 0, 1 << 20);
    let backup = world.open(2, &[]);
    pass_through_file(&mut world, backup, true);
    pass_through_file(&mut world, backup, false);
    let stats = world.engine.stats();
    assert!(stats.bypassed_write_bytes > 50 << 20, "{stats:?}");
    assert!(stats.bypassed_read_bytes > 50 << 20, "{stats:?}");
    let (bytes, served) = world.read_as(favourite, 0, 1 << 20, Handling::Cache);
    assert_eq!((bytes, served.miss_blocks), (vec![9; 1 << 20], 0), "what was there before is still there");
    assert!(matches!(world.ask(Request::flush_all(1)), Reply::Done));
    assert_eq!(world.files[&backup].len(), 64 << 20);
}

#[test]
fn a_log_that_is_synced_as_it_grows_stays_on_flash_and_off_means_off() {
    let mut world = World::new(Config::default());
    let log = world.open(1, &[]);
    for at in (0..16_u64 << 20).step_by(64 << 10) {
        world.write(log, at, &[7; 64 << 10]);
        assert!(matches!(world.ask(Request::sync(log)), Reply::Done));
    }
    assert_eq!(world.engine.stats().bypassed_writes, 0);
    let mut world = World::new(Config { sequential_cutoff: None, ..Config::default() });
    let file = world.open(1, &[]);
    pass_through_file(&mut world, file, true);
    pass_through_file(&mut world, file, false);
    let stats = world.engine.stats();
    assert_eq!((stats.bypassed_writes, stats.bypassed_reads), (0, 0));
}
