//! A checkpoint of a pool that holds more blocks than there is room for in it, and that gets more while it is written:
//! the daemon goes on, and nothing that is dirty is left out.

#![allow(clippy::unwrap_used)] // helpers outside of #[test] functions are tests, too

mod world;

use headpond_base::{Nanos, ObjectId, UnixNanos};
use headpond_engine::{Compression, Config, OpenFile, Policy, Reply, Request, RequestId, Stats, Verdict, recover};
use headpond_format::{Geometry, SegmentRow, Stamp};
use world::World;

const BLOCK: u64 = 4096;
const POOL: u64 = 256 << 20;
/// One block in each chunk of the map: what takes the most of a checkpoint.
const STRIDE: u64 = 2 << 20;

/// As a pool of more than 50 GiB has it, where what is kept for objects is next to nothing: room for 16 bytes a block.
fn tight() -> Geometry {
    let usual = Geometry::with_segment_bytes(POOL, 2 << 20);
    let rows = u64::from(usual.segments) * SegmentRow::BYTES_MAX as u64;
    Geometry { area_bytes: (usual.map_bytes() + rows + (32 << 10)).next_multiple_of(BLOCK), ..usual }
}

fn config() -> Config {
    // All that is read comes in, and nothing that is written goes to the origin.
    let (compression, flush_period, dirty_threshold) = (Compression::Lz4, Config::OFF, 0);
    Config {
        compression,
        compression_from: 0,
        sequential_cutoff: None,
        policy: Policy::Lru,
        flush_period,
        dirty_threshold,
        ..Config::default()
    }
}

/// Fills the pool with clean blocks; then, while the first half of a checkpoint is under way, makes so many blocks of
/// another file zeros. What the engine says after that checkpoint, and after a start without another.
fn crowd(zeros: u64) -> (Stats, Stats) {
    let mut world = World::on(tight(), config());
    let clean = world.open(1, &vec![7; 240 << 20]);
    for at in (0..240 << 20).step_by(1 << 20) {
        world.read(clean, at, 1 << 20);
    }
    let size = zeros * STRIDE;
    let stamp = Stamp { size, ..Stamp::default() };
    let file = OpenFile { inode: 2, birth: UnixNanos(0), path: b"z".to_vec(), stamp, created: false, allocated: size };
    let Reply::Opened { object: sparse, .. } = world.ask(Request::Open(file.clone().into())) else {
        panic!("not opened")
    };
    world.files.insert(sparse, Vec::new());
    let before = world.engine.stats();
    world.hold_below = tight().segments_start;
    // The log grows until a checkpoint is due.
    let noise: Vec<u8> = (0..1_u32 << 18).flat_map(|word| word.wrapping_mul(0x9e37_79b9).to_le_bytes()).collect();
    let busy = world.open(3, &[]);
    while world.held.is_empty() {
        world.write(busy, 0, &noise);
    }
    assert_eq!(world.held.len(), 2, "as much of it as is written at once");
    let asked = |world: &mut World, number: u64| {
        let (offset, mtime) = (number * STRIDE, UnixNanos(7));
        let zero = Request::Zero { object: sparse, offset, len: BLOCK, mtime, extend: false };
        world.engine.submit(RequestId((1 << 32) + number), zero);
        world.run();
    };
    (0..zeros).for_each(|number| asked(&mut world, number));
    world.release();
    for _ in 0..100 {
        world.sleep(100);
    }
    let done = world.replies.values().filter(|reply| matches!(reply, Reply::Changed(_))).count();
    assert_eq!(done as u64, zeros, "each is answered");
    let after = world.engine.stats();
    assert!(after.checkpoints > before.checkpoints && after.dirty_blocks == zeros + 256, "{after:?}");
    assert!(matches!(world.ask(Request::sync(sparse)), Reply::Done));
    let mut recovered = recover(&mut world.flash, POOL).unwrap();
    let ids: Vec<ObjectId> = recovered.objects().iter().map(|object| object.object).collect();
    for id in ids {
        let (inode, size) = if id == sparse { (2, size) } else { (id.0, world.files[&id].len() as u64) };
        let found = OpenFile { inode, stamp: Stamp { size, ..Stamp::default() }, ..file.clone() };
        assert!(!matches!(recovered.reconcile(id, Some(&found.into())), Verdict::Conflict(_)));
    }
    world.engine = recovered.into_engine(config(), Nanos(world.now));
    world.run();
    (after, world.engine.stats())
}

#[test]
fn what_becomes_dirty_while_a_full_pool_is_written_down_has_room() {
    let (before, after) = crowd(32_000);
    assert_eq!(after.dirty_blocks, before.dirty_blocks);
}

#[test]
fn a_checkpoint_that_has_become_too_long_is_begun_again_with_what_is_dirty_alone() {
    let (before, after) = crowd(46_000);
    assert_eq!(after.dirty_blocks, before.dirty_blocks);
}
