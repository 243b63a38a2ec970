//! What is asked of the engine four times a second costs the same however many objects there are (promise 10): objects
//! that were looked at are counted, not time. That the numbers are right is asserted in every turn of the simulator.

#![allow(clippy::unwrap_used)] // helpers outside of #[test] functions are tests, too

mod world;

use headpond_engine::{Config, FlushId, FlushScope, Reply, Request, RequestId};

use world::World;

fn with_files(count: u64) -> World {
    let config = Config { flush_period: Config::OFF, dirty_threshold: 0, idle_flush: None, ..Config::default() };
    let mut world = World::new(config);
    for inode in 1..=count {
        let file = world.open(inode, &[5; 4096]);
        let blocks = if inode % 100 == 0 { 3 } else { 1 };
        world.write(file, 0, &vec![6; blocks * 4096]);
    }
    world
}

fn visited(world: &mut World, what: impl Fn(&mut World)) -> u64 {
    let before = world.engine.objects_visited();
    what(world);
    world.engine.objects_visited() - before
}

#[test]
fn numbers_and_ticks_look_at_no_more_objects_when_there_are_more() {
    let [few, many] = [100, 1000].map(|count| {
        let mut world = with_files(count);
        let stats = world.engine.stats();
        assert_eq!((stats.objects, stats.dirty_objects), (count, count), "{stats:?}");
        assert!(stats.map_bytes > 0);
        let asked = visited(&mut world, |world| {
            assert_eq!(world.engine.stats().failing_objects, 0);
            assert!(world.engine.holdings(32).iter().filter(|held| held.blocks == 3).count() >= 1);
            assert!(world.engine.flushes().is_empty());
        });
        // A checkpoint looks at all of them, a piece at a time: not now.
        (0..40).for_each(|_| world.sleep(50));
        let ticked = visited(&mut world, |world| world.sleep(50));
        [asked, ticked]
    });
    // Four times as many as are told of, in each of two rankings.
    assert!(few[0] <= 2 * 4 * 32 && many[0] <= 2 * 4 * 32, "{few:?} {many:?}");
    assert_eq!((few[1], many[1]), (0, 0));
}

#[test]
fn a_flush_of_many_files_tells_how_much_is_left_without_a_walk() {
    let mut world = with_files(1000);
    let dirty = world.engine.stats().dirty_blocks;
    let (id, flush) = (RequestId(900_000), Request::Flush { id: FlushId(3), scope: FlushScope::All });
    world.hold_below = u64::MAX;
    world.engine.submit(id, flush);
    world.run();
    let walked = visited(&mut world, |world| {
        let told = world.engine.flushes()[0];
        assert_eq!((told.left_blocks, told.left_objects, told.total_blocks), (dirty, 1000, dirty));
    });
    assert_eq!(walked, 0);
    world.release();
    for _ in 0..1000 {
        if world.replies.contains_key(&id) {
            break;
        }
        let left = world.engine.flushes().first().map_or(0, |flush| flush.left_blocks);
        world.sleep(50);
        assert!(world.engine.flushes().first().map_or(0, |flush| flush.left_blocks) <= left);
    }
    assert!(matches!(world.replies.remove(&id), Some(Reply::Done)));
    let stats = world.engine.stats();
    assert_eq!((stats.dirty_blocks, stats.dirty_objects), (0, 0));
    assert!(world.files.values().all(|file| file[..4096] == [6; 4096]));
}
