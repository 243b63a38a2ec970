//! Ranges of zeros cost what they are made of, one range, and not what they cover.

#![allow(clippy::unwrap_used)] // helpers outside of #[test] functions are tests, too

mod world;

use headpond_base::{Block, ObjectId, UnixNanos};
use headpond_engine::{Config, Reply, Request, recover};
use headpond_format::Entry;
use headpond_log::{Scanned, scan};
use headpond_map::Zeros;
use world::{Memory, POOL, World};

const BLOCK: u64 = 4096;
const GIB: u64 = 1 << 30;
/// The most zeros in one request of the origin.
const PART: u64 = 64 << 20;
const TIB: u64 = 1 << 40;

/// Nothing goes to the origin but by a flush.
fn patient() -> Config {
    Config { flush_period: Config::OFF, dirty_threshold: 0, ..Config::default() }
}

fn zero(world: &mut World, object: ObjectId, offset: u64, len: u64) {
    let reply = world.ask(Request::Zero { object, offset, len, extend: false, mtime: UnixNanos(9) });
    assert!(matches!(reply, Reply::Changed(_)), "{reply:?}");
}

fn sync(world: &mut World, object: ObjectId) {
    assert!(matches!(world.ask(Request::sync(object)), Reply::Done));
}

fn flush(world: &mut World) {
    let reply = world.ask(Request::flush_all(1));
    assert!(matches!(reply, Reply::Done), "{reply:?}");
}

/// What a start finds on the flash now.
fn found(world: &World) -> Scanned {
    scan(&mut Memory(world.flash.0.clone()), POOL, None).unwrap()
}

/// Blocks that a start finds dirty.
fn dirty_at_start(world: &World) -> u64 {
    recover(&mut Memory(world.flash.0.clone()), POOL).unwrap().dirty_blocks()
}

fn extents(zeros: &Zeros) -> Vec<(u64, u64)> {
    zeros.within(Block(0), Block(u64::MAX)).map(|(first, end)| (first.0 * BLOCK, end.0 * BLOCK)).collect()
}

#[test]
fn a_discard_of_a_tebibyte_is_one_entry_of_the_log_and_a_request_of_the_origin_for_each_64_mebibytes() {
    let mut world = World::new(patient());
    let file = world.open_sparse(1, &[7; 8192], 2 * TIB);
    sync(&mut world, file);
    let before = (world.flash_written, world.engine.stats().map_bytes);
    zero(&mut world, file, 4096, TIB);
    sync(&mut world, file);
    let stats = world.engine.stats();
    assert_eq!((stats.dirty_blocks, stats.cached_blocks), (1, 1), "a range counts as one block");
    assert!(stats.map_bytes <= before.1 + 100, "{} bytes of memory", stats.map_bytes);
    assert!(world.flash_written - before.0 <= 2 * BLOCK, "{} bytes of flash", world.flash_written - before.0);
    let tail = found(&world).tail;
    let zeros: Vec<_> = tail.iter().filter(|tail| matches!(tail.entry, Entry::Zero { .. })).collect();
    assert!(
        matches!(&zeros[..], [tail] if matches!(tail.entry, Entry::Zero { first: Block(1), blocks, .. } if blocks == TIB / BLOCK))
    );
    assert_eq!(dirty_at_start(&world), 1);

    flush(&mut world);
    assert_eq!(world.zero_ranges.len() as u64, TIB / PART);
    let goes_on = |pair: &[(u64, u64)]| pair[0].1 == pair[1].0;
    assert!(world.zero_ranges.windows(2).all(goes_on) && world.zero_ranges.iter().all(|(from, to)| to - from <= PART));
    assert_eq!((world.zero_ranges[0].0, world.zero_ranges.last().unwrap().1), (4096, 4096 + TIB));
    assert_eq!((world.written, world.engine.stats().dirty_blocks), (0, 0));
    sync(&mut world, file);
    assert_eq!(dirty_at_start(&world), 0);
    assert_eq!(world.read(file, 4000, 200), [&[7; 96][..], &[0; 104]].concat());
}

#[test]
fn a_start_finds_a_range_as_it_was_by_the_checkpoint_alone() {
    let mut world = World::new(patient());
    let file = world.open_sparse(1, &[], 2 * TIB);
    zero(&mut world, file, GIB, TIB);
    world.write(file, 5 * GIB, &[3; 100]);
    assert!(matches!(world.ask(Request::Stop), Reply::Done));
    let found = found(&world);
    assert!(!found.tail.iter().any(|tail| matches!(tail.entry, Entry::Zero { .. })), "nothing is left to be replayed");
    let expected = [(GIB, 5 * GIB), (5 * GIB + BLOCK, GIB + TIB)];
    assert_eq!(extents(&found.objects[0].zeros), expected);
    assert_eq!(dirty_at_start(&world), 3);
}

#[test]
fn what_is_written_into_zeros_on_their_way_to_the_origin_stays_dirty_and_they_do_not() {
    let mut world = World::new(patient());
    let file = world.open_sparse(1, &[7; 16 * 4096], TIB);
    sync(&mut world, file);
    zero(&mut world, file, 0, TIB);
    world.hold_syncs = true;
    let flush = world.begin(Request::flush_all(1));
    (0..40).for_each(|_| world.sleep(50));
    assert_eq!(world.held_syncs.len(), 1, "the origin has some of the zeros, and has not synced them");
    assert!(world.zero_ranges[0] == (0, PART));
    world.write(file, 8 * 4096, &[9; 4096]);
    sync(&mut world, file);
    world.hold_syncs = false;
    world.answer_a_sync();
    assert!(matches!(world.reply(flush), Reply::Done));
    assert_eq!(world.files[&file][8 * 4096], 0, "written after the flush began");
    sync(&mut world, file);
    assert_eq!((world.engine.stats().dirty_blocks, dirty_at_start(&world)), (1, 1));
    assert_eq!(world.read(file, 8 * 4096 - 1, 3), [0, 9, 9]);
    self::flush(&mut world);
    assert_eq!(world.files[&file][8 * 4096 - 1..8 * 4096 + 1], [0, 9]);
    sync(&mut world, file);
    assert_eq!(dirty_at_start(&world), 0);
}

#[test]
fn zeros_are_read_beside_what_the_origin_still_has_and_are_not_brought_from_there() {
    let mut world = World::new(Config { fetch_bytes: 1 << 20, ..patient() });
    let file = world.open(1, &[7; 64 * 4096]);
    zero(&mut world, file, 3 * 4096 + 1, 10 * 4096);
    for block in [0, 20, 1, 2, 40] {
        world.read(file, block * 4096, 4096);
    }
    for (byte, at) in [(7, 3 * 4096), (0, 3 * 4096 + 1), (0, 5 * 4096), (0, 13 * 4096), (7, 13 * 4096 + 1)] {
        assert_eq!(world.read(file, at, 1), [byte], "{at}");
    }
    assert!(matches!(
        world.ask(Request::Truncate { object: file, size: 5 * 4096 + 1, mtime: UnixNanos(9) }),
        Reply::Changed(_)
    ));
    assert!(matches!(
        world.ask(Request::Truncate { object: file, size: 64 * 4096, mtime: UnixNanos(9) }),
        Reply::Changed(_)
    ));
    assert_eq!(world.read(file, 4 * 4096, 60 * 4096), [0; 60 * 4096]);
    flush(&mut world);
    assert!(world.files[&file][3 * 4096 + 1..].iter().all(|byte| *byte == 0) && world.files[&file][3 * 4096] == 7);
    sync(&mut world, file);
    assert_eq!(dirty_at_start(&world), 0);
}

#[test]
fn many_small_ranges_count_as_so_many_dirty_blocks_and_wait_for_destage() {
    let mut world = World::new(patient());
    let file = world.open_sparse(1, &[], TIB);
    let most = world.engine.stats().pool_blocks * 75 / 100;
    let mut highest = 0;
    for range in 0..2 * most {
        zero(&mut world, file, range * 2 * BLOCK, BLOCK);
        highest = highest.max(world.engine.stats().dirty_blocks);
    }
    assert!(highest <= most && highest + 10 >= most, "{highest} of {most}");
    assert!(world.engine.stats().map_bytes < 64 * most, "{} bytes of memory", world.engine.stats().map_bytes);
}

#[test]
fn zeros_behind_the_end_of_the_origins_file_cost_destage_nothing_however_many_they_are() {
    let mut world = World::new(patient());
    let file = world.open_sparse(1, &[7; 8192], 8192);
    let size = 4096 * TIB;
    assert!(matches!(world.ask(Request::Truncate { object: file, size, mtime: UnixNanos(8) }), Reply::Changed(_)));
    zero(&mut world, file, 0, size);
    flush(&mut world);
    assert_eq!(world.zero_ranges, [(0, 8192)]);
    assert!(world.synced.len() <= 2, "{} rounds", world.synced.len());
    assert_eq!((world.sparse[&file], world.engine.stats().dirty_blocks), (size, 0));
}
