//! What is asked of the engine four times a second costs the same however many objects there are (promise 10): objects
//! that were looked at are counted, not time. That the numbers are right is asserted in every turn of the simulator.

#![allow(clippy::unwrap_used)] // helpers outside of #[test] functions are tests, too

mod world;

use headpond_base::{Nanos, ObjectId};
use headpond_engine::{Config, FlushId, FlushScope, Namespace, Reply, Request, RequestId, recover};

use world::{POOL, World};

fn config() -> Config {
    Config { flush_period: Config::OFF, dirty_threshold: 0, idle_flush: None, ..Config::default() }
}

fn with_files(count: u64) -> World {
    let mut world = World::new(config());
    for inode in 1..=count {
        let file = world.open_at(inode, &format!("all/d{}/f{inode}", inode % 10), &[5; 4096]);
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
    // Four times as many as each of two rankings reports.
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

fn rename(world: &mut World, moved: Option<ObjectId>, from: &str, to: &str) {
    let change = Namespace::Rename { moved, replaced: None, from: from.into(), to: to.into(), exchange: false };
    assert!(matches!(world.ask(Request::Namespace(change)), Reply::Done));
}

#[test]
fn a_rename_looks_at_no_object_and_a_start_at_each_once_however_many_renames_there_were() {
    for count in [100, 1000] {
        let mut world = with_files(count);
        let file = world.open_at(count, "all/d0/f", &[5; 4096]);
        (0..40).for_each(|_| world.sleep(50));
        let renames = |world: &mut World| {
            rename(world, Some(file), "all/d0/f", "all/d0/g");
            for round in 0..150 {
                rename(world, None, &format!("all/d{}", round % 10), &format!("all/e{}", round % 10));
                rename(world, None, "all", "new");
                rename(world, None, &format!("new/e{}", round % 10), &format!("new/d{}", round % 10));
                rename(world, None, "new", "all");
            }
            rename(world, None, "all/d0", "d0");
        };
        assert_eq!(visited(&mut world, renames), 0, "{count} files");
        let shown = world.engine.holdings(1000);
        let path = |inode: u64| {
            shown
                .iter()
                .find(|held| held.identity.file().is_some_and(|file| file.inode == inode))
                .map(|held| held.path.clone())
        };
        assert_eq!(path(count).as_deref(), Some(&b"d0/g"[..]), "{count} files");
        assert_eq!(path(count - 10), Some(format!("d0/f{}", count - 10).into_bytes()), "{count} files");
        assert!(matches!(world.ask(Request::sync(file)), Reply::Done));
        let recovered = recover(&mut world.flash, POOL).unwrap();
        for object in recovered.objects() {
            let inode = object.state.identity.file().unwrap().inode;
            let shown = String::from_utf8(object.state.path).unwrap();
            let expected = match inode % 10 {
                _ if inode == count => "d0/g".to_owned(),
                0 => format!("d0/f{inode}"),
                directory => format!("all/d{directory}/f{inode}"),
            };
            assert_eq!(shown, expected);
        }
        let started = recovered.into_engine(config(), Nanos(world.now));
        assert!(started.objects_visited() <= 10 * count, "{count} files: {}", started.objects_visited());
    }
}
