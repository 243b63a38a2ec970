//! Reclaim in a pool that is full of dirty data, on an origin that takes none: it comes to rest, and goes on when it
//! can.
#![allow(clippy::unwrap_used)]

mod world;

use headpond_base::{BLOCK_U64, BufMut, UnixNanos};
use headpond_engine::{Config, Request, RequestId, Treatment};

use world::{POOL, World};

const MIB: u64 = 1 << 20;

/// A segment of 2 MiB holds one record of 1 MiB, and the second half of it nothing: each looks as if half of it could
/// be won, and is the same when its record has moved on.
#[test]
fn what_looks_half_empty_and_cannot_be_packed_does_not_move_for_ever() {
    let config = Config { dirty_threshold: 0, flush_period: Config::OFF, sequential_cutoff: None, ..Config::default() };
    let mut world = World::new(config);
    world.refuse_writes = u32::MAX;
    world.flash_written_most = 40 * POOL;
    let file = world.open(1, &[]);
    let (len, mtime, how) = (MIB, UnixNanos(7), Treatment::default());
    let waiting = (0..64).map(RequestId).map(|id| RequestId((1 << 32) + id.0)).find(|id| {
        let data = BufMut::copy_of(&vec![id.0 as u8 + 1; len as usize]).freeze();
        let offset = (id.0 - (1 << 32)) * (len + BLOCK_U64);
        world.engine.submit(*id, Request::Write { object: file, offset, data, mtime, durable: false, how });
        (0..100).for_each(|_| world.sleep(20));
        !world.replies.contains_key(id)
    });
    let waiting = waiting.unwrap();
    let written = world.flash_written;
    (0..1000).for_each(|_| world.sleep(50));
    assert_eq!(world.flash_written, written, "nothing changed meanwhile: {:?}", world.engine.stats());
    // The origin takes it, and everything goes on.
    world.refuse_writes = 0;
    (0..1000).for_each(|_| world.sleep(50));
    assert!(world.replies.contains_key(&waiting));
}
