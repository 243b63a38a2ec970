//! How much of a pool may be dirty, with copies here and on another host.

#![allow(clippy::unwrap_used)] // helpers outside of #[test] functions are tests, too

mod world;

use headpond_base::{BufMut, MemberId, ObjectId, UnixNanos};
use headpond_engine::{Config, Reply, Request, Treatment};
use world::World;

const PIECE: usize = 64 << 10;

/// Nothing goes to the origin before dirty data has come to its limit.
fn config() -> Config {
    Config {
        flush_period: Config::OFF,
        dirty_threshold: 0,
        idle_flush: None,
        sequential_cutoff: None,
        ..Config::default()
    }
}

fn limit(world: &World) -> u64 {
    world.engine.stats().dirty_blocks_max
}

/// The piece that is written in this turn: what was written before is written over now and then.
fn offset(turn: u64) -> u64 {
    let pieces = if turn.is_multiple_of(3) { turn / 3 } else { turn };
    pieces * PIECE as u64
}

fn write(object: ObjectId, turn: u64) -> Request {
    let data = BufMut::copy_of(&[turn as u8; PIECE]).freeze();
    let (offset, how) = (offset(turn), Treatment::default());
    Request::Write { object, offset, data, mtime: UnixNanos(7), durable: false, how }
}

#[test]
fn a_copy_on_another_host_takes_no_room_for_dirty_data_here() {
    let mut world = World::new(config());
    let alone = limit(&world);
    world.join_copy(MemberId(1));
    assert_eq!(limit(&world), alone);
    let file = world.open(1, &[]);
    world.hold_writes = true;
    let mut turn = 0;
    let waits = loop {
        let asked = world.begin(write(file, turn));
        (0..40).for_each(|_| world.sleep(50));
        turn += 1;
        if world.replies.remove(&asked).is_none() {
            break asked;
        }
    };
    // What is written over is packed together as long as that gives room.
    assert!(world.engine.stats().dirty_blocks * 20 > alone * 19, "{:?}", world.engine.stats());
    assert!(matches!(world.ask(Request::sync(file)), Reply::Done));
    (0..100).for_each(|_| world.sleep(50));
    assert_eq!(world.engine.exposed_blocks(), 0, "all of it is on both");
    world.answer_writes();
    assert!(matches!(world.reply(waits), Reply::Changed(_)));
    let last = |at: u64| (0..turn).filter(|turn| offset(*turn) == at).max();
    for at in (0..turn).map(offset) {
        assert_eq!(world.read(file, at, 1)[0], last(at).unwrap() as u8, "at {at}");
    }
}

#[test]
fn a_copy_on_another_device_of_this_host_takes_as_much_as_the_data() {
    let one = limit(&World::new(config()));
    let two = limit(&World::mirrored(config()));
    assert!(two.abs_diff(one) <= one / 20, "{two} of two devices, {one} of one");
}
