//! Zeros where records are packed: they take no space on flash, and are data in every other respect.

#![allow(clippy::unwrap_used)] // helpers outside of #[test] functions are tests, too

mod world;

use headpond_base::{BLOCK, Nanos, ObjectId, UnixNanos};
use headpond_engine::{Compression, Config, OpenFile, Policy, Reply, Request, Verdict, recover};
use headpond_format::{Geometry, SUPERBLOCK_SLOTS, Stamp, decode_superblock, encode_superblock};
use world::{POOL, World};

const MIB: usize = 1 << 20;

fn config(compression: Compression) -> Config {
    let (sequential_cutoff, policy, flush_period) = (None, Policy::Lru, Config::OFF);
    Config { compression, compression_from: 0, sequential_cutoff, policy, flush_period, ..Config::default() }
}

fn noise(len: usize, mut state: u64) -> Vec<u8> {
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// Starts anew from what is on flash, as after a crash or a stop.
fn restart(world: &mut World, file: ObjectId, config: Config) -> ObjectId {
    let mut recovered = recover(&mut world.flash, POOL).unwrap();
    let stamp = world.stamps.get(&file).copied().unwrap_or_default();
    let stamp = Stamp { size: world.files[&file].len() as u64, ..stamp };
    for object in recovered.objects() {
        let found =
            OpenFile { inode: 1, birth: UnixNanos(0), path: b"f".to_vec(), stamp, created: false, allocated: 0 };
        assert!(!matches!(recovered.reconcile(object.object, Some(&found.clone().into())), Verdict::Conflict(_)));
    }
    world.engine = recovered.into_engine(config, Nanos(world.now));
    world.run();
    let at_origin = world.files[&file].clone();
    world.open(1, &at_origin)
}

fn says_blanks(world: &World) -> [bool; 2] {
    SUPERBLOCK_SLOTS
        .map(|at| decode_superblock(&world.flash.0[at as usize..at as usize + BLOCK]).unwrap().may_have_blanks)
}

#[test]
fn zeros_that_are_written_take_no_space_and_are_there_after_a_crash_and_a_stop() {
    let mut world = World::new(Config { fetch_bytes: BLOCK as u32, ..config(Compression::Lz4) });
    let file = world.open(1, &noise(3 * MIB, 1));
    world.write(file, 0, &vec![0; MIB]);
    world.write(file, MIB as u64, &[0; 3 * BLOCK]);
    world.write(file, 2 * MIB as u64 - 100, &vec![0; MIB]);
    let part = world.read(file, 2 * MIB as u64 - BLOCK as u64, BLOCK as u32);
    assert!(
        part[..BLOCK - 100] == world.files[&file][2 * MIB - BLOCK..2 * MIB - 100] && part[BLOCK - 100..] == [0; 100]
    );
    let stats = world.engine.stats();
    assert_eq!(stats.dirty_blocks, 256 + 3 + 257);
    // The block that is noise but for its end, with those that it was packed with, and the one with noise at its end.
    assert!((1..12 * 512).contains(&stats.stored_bytes) && stats.payload_bytes == stats.stored_bytes, "{stats:?}");
    let stored = stats.stored_bytes;
    assert!(matches!(world.ask(Request::sync(file)), Reply::Done));
    // As after a crash, with packing off from now on; then after a stop that leaves all of it dirty.
    for _ in 0..2 {
        let file = restart(&mut world, file, config(Compression::Off));
        let stats = world.engine.stats();
        assert_eq!((stats.dirty_blocks, stats.stored_bytes), (256 + 3 + 257, stored));
        let flash_reads = stats.flash_reads;
        assert!(world.read(file, 0, MIB as u32).iter().all(|byte| *byte == 0));
        assert!(world.read(file, 2 * MIB as u64 + BLOCK as u64 * 15, MIB as u32 / 2).iter().all(|byte| *byte == 0));
        assert_eq!(world.engine.stats().flash_reads, flash_reads, "nothing has to be read for them");
        assert!(matches!(world.ask(Request::Stop), Reply::Done));
    }
}

#[test]
fn zeros_that_come_from_the_origin_take_no_space_and_are_found_after_a_restart() {
    let mut world = World::new(config(Compression::Zstd(1)));
    let content = [vec![0; 4 * MIB], noise(MIB, 2)].concat();
    let mut file = world.open(1, &content);
    for round in 0..2 {
        let reads = world.origin_reads;
        for offset in (0..content.len()).step_by(64 << 10) {
            assert!(world.read(file, offset as u64, 64 << 10) == content[offset..offset + (64 << 10)]);
        }
        let stats = world.engine.stats();
        assert_eq!((stats.cached_blocks, stats.stored_bytes), (5 * 256, MIB as u64), "round {round}");
        assert_eq!(world.origin_reads == reads, round == 1, "all of it is a hit the second time");
        assert!(matches!(world.ask(Request::Stop), Reply::Done));
        file = restart(&mut world, file, config(Compression::Zstd(1)));
    }
}

#[test]
fn a_pool_with_nothing_but_zeros_holds_as_many_blocks_as_memory_may_be_used_for() {
    let mut world = World::new(config(Compression::Lz4));
    let blocks = world.engine.stats().pool_blocks;
    let file = world.open(1, &vec![0; 6 * POOL as usize]);
    for offset in (0..6 * POOL).step_by(256 << 10) {
        world.read(file, offset, 256 << 10);
        world.sleep(1);
    }
    for _ in 0..100 {
        world.sleep(50);
    }
    let stats = world.engine.stats();
    assert_eq!(stats.stored_bytes, 0);
    assert!((2 * blocks..=4 * blocks + 1024).contains(&stats.cached_blocks), "{} of {blocks}", stats.cached_blocks);
}

#[test]
fn the_origin_gets_zeros_that_were_written_and_no_hole() {
    let mut world = World::new(config(Compression::Lz4));
    let file = world.open(1, &noise(2 * MIB, 3));
    world.write(file, 0, &vec![0; MIB]);
    assert!(matches!(world.ask(Request::sync(file)), Reply::Done));
    assert!(matches!(world.ask(Request::flush_all(1)), Reply::Done));
    assert!(world.files[&file][..MIB].iter().all(|byte| *byte == 0));
    assert_eq!((world.written, world.zeroed), (MIB as u64, 0));
    let stats = world.engine.stats();
    assert_eq!((stats.dirty_blocks, stats.payload_bytes), (0, 0));
    assert!(world.read(file, 0, MIB as u32).iter().all(|byte| *byte == 0));
    assert_eq!(world.engine.stats().cached_blocks, 256, "clean, and still here");
}

#[test]
fn zeros_move_on_for_nothing_when_their_segment_is_reclaimed() {
    for (later, dirty) in [Compression::Lz4, Compression::Off].into_iter().flat_map(|way| [(way, true), (way, false)]) {
        let config = |way| Config { dirty_threshold: 70, ..config(way) };
        let mut world = World::new(config(Compression::Lz4));
        let (zeros, other) = (4 * MIB, noise(16 * MIB, 4));
        let file = world.open(1, &vec![0; zeros + other.len()]);
        for offset in (0..zeros as u64).step_by(64 << 10) {
            if dirty {
                world.write(file, offset, &vec![0; 64 << 10]);
            } else {
                world.read(file, offset, 64 << 10);
            }
        }
        assert!(matches!(world.ask(Request::Configure(Box::new(config(later)))), Reply::Done));
        for step in 0..4000_usize {
            // In no order, so that no segment is emptied by that alone.
            let offset = step.wrapping_mul(0x9e37_79b9_7f4a_7c15) / BLOCK % (other.len() / BLOCK) * BLOCK;
            let end = other.len().min(offset + (64 << 10));
            world.write(file, (zeros + offset) as u64, &other[offset..end]);
            // In use, so worth keeping where they are clean.
            let at = (step * BLOCK % zeros) as u64;
            assert!(world.read(file, at, BLOCK as u32) == [0; BLOCK]);
            world.sleep(1);
        }
        for offset in (0..other.len()).step_by(64 << 10) {
            world.write(file, (zeros + offset) as u64, &other[offset..offset + (64 << 10)]);
        }
        let stats = world.engine.stats();
        assert!(stats.segments_reclaimed > 20 && stats.moved_blocks > 0, "{later} {dirty}: {stats:?}");
        let held = world.engine.holdings(9);
        let stored: u64 = held.iter().map(|holding| holding.stored_bytes).sum();
        if dirty {
            assert_eq!(stats.dirty_blocks * BLOCK as u64, (zeros + other.len()) as u64);
        }
        assert!(stored <= other.len() as u64, "{later} {dirty}: {stored} bytes");
        assert!(matches!(world.ask(Request::sync(file)), Reply::Done));
        let file = restart(&mut world, file, config(later));
        assert!(world.read(file, 0, MIB as u32) == vec![0; MIB]);
        assert!(world.read(file, zeros as u64, MIB as u32) == other[..MIB]);
        assert!(matches!(world.ask(Request::flush_all(1)), Reply::Done));
        assert!(world.files[&file][..zeros].iter().all(|byte| *byte == 0) && world.files[&file][zeros..] == other);
    }
}

#[test]
fn segments_that_hold_nothing_but_entries_are_filled_closed_and_emptied() {
    for sync_each in [false, true] {
        let small = Geometry::with_segment_bytes(4 << 20, 128 << 10);
        let mut world = World::on(small, Config { dirty_threshold: 70, ..config(Compression::Lz4) });
        let file = world.open(1, &noise(4 * MIB, 5));
        let writes = if sync_each { 3000 } else { 60_000 };
        for write in 0..writes {
            // No two neighbours in one record.
            world.write(file, write % 300 * 2 * BLOCK as u64, &[0; BLOCK]);
            if sync_each {
                assert!(matches!(world.ask(Request::sync(file)), Reply::Done));
            }
        }
        let stats = world.engine.stats();
        assert_eq!((stats.dirty_blocks, stats.stored_bytes, stats.payload_bytes), (300, 0, 0));
        assert!(stats.segments_reclaimed > 20, "{stats:?}");
        assert!(matches!(world.ask(Request::sync(file)), Reply::Done));
        let file = restart(&mut world, file, config(Compression::Lz4));
        assert!(matches!(world.ask(Request::flush_all(1)), Reply::Done));
        for (block, bytes) in world.files[&file].chunks(BLOCK).enumerate() {
            let zeros = bytes.iter().all(|byte| *byte == 0);
            assert_eq!(zeros, block % 2 == 0 && block < 600, "block {block}");
        }
    }
}

#[test]
fn a_pool_of_a_headpond_without_blank_records_is_read_and_gets_the_feature_before_the_first() {
    let mut world = World::new(config(Compression::Lz4));
    let content = vec![b'x'; MIB];
    let mut file = world.open(1, &content);
    world.write(file, 0, &vec![b'y'; 64 << 10]);
    assert!(matches!(world.ask(Request::Stop), Reply::Done));
    assert!(world.engine.stats().packed_blocks > 0);
    for at in SUPERBLOCK_SLOTS.map(|at| at as usize) {
        let superblock = decode_superblock(&world.flash.0[at..at + BLOCK]).unwrap();
        let older = encode_superblock(&headpond_format::Superblock { may_have_blanks: false, ..superblock });
        world.flash.0[at..at + BLOCK].copy_from_slice(&older);
    }
    file = restart(&mut world, file, config(Compression::Off));
    assert!(world.read(file, 0, 64 << 10) == vec![b'y'; 64 << 10]);
    world.write(file, 0, &vec![0; MIB]);
    assert!(matches!(world.ask(Request::sync(file)), Reply::Done));
    assert_eq!((says_blanks(&world), world.engine.stats().stored_bytes), ([false; 2], MIB as u64), "off is off");
    assert!(matches!(world.ask(Request::Configure(Box::new(config(Compression::Lz4)))), Reply::Done));
    assert_eq!(says_blanks(&world), [true; 2], "at once: the older program must refuse the pool");
    world.write(file, 0, &vec![0; MIB]);
    assert_eq!(world.engine.stats().stored_bytes, 0);
}
