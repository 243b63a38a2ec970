//! Priorities at the origin: misses before destage, and work that no request waits for beside both.

#![allow(clippy::unwrap_used)] // helpers outside of #[test] functions are tests, too

mod world;

use headpond_base::{BufMut, Errno, Nanos, ObjectId, UnixNanos};
use headpond_engine::{Config, Handling, Namespace, OpenFile, Outcome, Reply, Request, RequestId, Treatment};
use headpond_format::Stamp;
use world::World;

const BLOCK: u64 = 4096;
const FILE: usize = 128 << 20;

fn read(object: ObjectId, block: u64) -> Request {
    Request::Read { object, offset: block * BLOCK, len: BLOCK as u32, how: Treatment::default() }
}

#[test]
fn destage_stands_back_for_a_miss_that_waits_too_long_and_goes_on_once_it_is_answered() {
    let mut world = World::new(Config { flush_period: Nanos(4 * Nanos::SECOND.0), ..Config::default() });
    let file = world.open(1, &vec![0; FILE]);
    for block in 0..600 {
        world.write(file, block * 50 * BLOCK, &[7; BLOCK as usize]);
    }
    let written = |world: &mut World, milliseconds: u64| {
        let before = world.written;
        (0..milliseconds / 10).for_each(|_| world.sleep(10));
        world.written - before
    };
    assert!(written(&mut world, 500) > 0, "what is dirty goes by and by");
    // Not what destage reads over gaps.
    world.starve = Some(30_500 * BLOCK);
    world.engine.submit(RequestId(900_000), read(file, 31_000));
    world.run();
    assert_eq!(world.starved.len(), 1);
    written(&mut world, 150);
    assert_eq!(written(&mut world, 500), 0, "one that has waited for a tenth of a second, where they take no time, is");
    world.serve();
    assert!(matches!(world.replies.remove(&RequestId(900_000)), Some(Reply::Data(..))));
    assert!(written(&mut world, 500) > 0);
    assert!(matches!(world.ask(Request::flush_all(1)), Reply::Done));
    assert_eq!(world.engine.stats().dirty_blocks, 0);
}

/// A clean file that was closed with work under way that no request waits for: appends that end inside a block, to an
/// origin that takes 10 ms for a read.
fn closed_with_something_on_its_way() -> (World, ObjectId) {
    let mut world = World::new(Config { sequential_cutoff: None, ..Config::default() });
    let file = world.open(1, &vec![1; FILE]);
    for piece in 0..2000 {
        world.starve = Some(0);
        let (id, data) = (RequestId(900_000 + piece), BufMut::copy_of(&[9; 3000]).freeze());
        let (offset, mtime, how) = (piece * 3000, UnixNanos(7), Treatment::default());
        world.engine.submit(id, Request::Write { object: file, offset, data, mtime, durable: false, how });
        world.run();
        if world.replies.contains_key(&id) && !world.starved.is_empty() {
            assert!(matches!(world.ask(Request::flush_all(1)), Reply::Done));
            assert!(matches!(world.ask(Request::Close { object: file }), Reply::Done));
            return (world, file);
        }
        world.sleep(10);
        world.serve();
        assert!(matches!(world.replies.remove(&id), Some(Reply::Changed(_))));
    }
    panic!("nothing is brought ahead of a log");
}

#[test]
fn what_was_on_its_way_when_a_file_was_closed_is_not_taken_for_what_somebody_else_wrote_since() {
    let (mut world, file) = closed_with_something_on_its_way();
    let (old, (ticket, object, offset, len)) = (world.files[&file].clone(), world.starved[0]);
    assert_eq!(object, file);
    let from = offset as usize;
    world.files.get_mut(&file).unwrap()[from..from + len as usize].fill(2);
    let mtime = UnixNanos(1 << 40);
    let stamp = Stamp { size: FILE as u64, mtime, ctime: mtime };
    let again = OpenFile { inode: 1, birth: UnixNanos(0), path: b"f".to_vec(), stamp, created: false, allocated: 0 };
    let Reply::Opened { object, .. } = world.ask(Request::Open(again.into())) else { panic!("not opened") };
    assert_eq!(object, file, "it is known, as what is on its way needs it");
    // The origin's answer is of before.
    let bytes = BufMut::copy_of(&old[from..from + len as usize]).freeze();
    world.starved.clear();
    world.starve = None;
    world.engine.complete(ticket, Outcome::Bytes(bytes));
    world.run();
    assert_eq!(world.read(file, offset, len), vec![2; len as usize]);
}

#[test]
fn a_file_is_let_go_of_only_when_nothing_of_it_is_on_its_way_any_more() {
    let (mut world, file) = closed_with_something_on_its_way();
    // Nor does anything else keep it: that it is clean is durable.
    assert!(matches!(world.ask(Request::SyncAll), Reply::Done));
    assert_eq!(world.released, []);
    world.serve();
    assert_eq!(world.released, [file]);
}

#[test]
fn a_flush_writes_again_what_an_origin_that_has_just_come_back_failed_to_keep() {
    let mut world = World::new(Config::default());
    let file = world.open(1, &vec![0; FILE]);
    world.write(file, 0, &[7; 8 * BLOCK as usize]);
    world.refuse_syncs = 2;
    let before = world.written;
    assert!(matches!(world.ask(Request::flush_all(1)), Reply::Done));
    assert_eq!(world.written - before, 3 * 8 * BLOCK, "nothing that a failed sync was for is believed to be there");
    assert_eq!((world.engine.stats().dirty_blocks, world.engine.stats().origin_errors), (0, 2));
}

#[test]
fn a_flush_tells_an_error_that_stays_and_goes_through_once_it_is_gone() {
    let mut world = World::new(Config::default());
    let file = world.open(1, &vec![0; FILE]);
    world.write(file, 0, &[7; 8 * BLOCK as usize]);
    world.refuse_syncs = u32::MAX;
    assert!(matches!(world.ask(Request::flush_all(1)), Reply::Failed(Errno::IO)));
    assert_eq!(world.engine.stats().dirty_blocks, 8);
    world.refuse_syncs = 0;
    assert!(matches!(world.ask(Request::flush_all(2)), Reply::Done));
    assert_eq!(world.files[&file][..8 * BLOCK as usize], [7; 8 * BLOCK as usize]);
}

#[test]
fn a_removal_that_the_origin_could_not_make_durable_is_tried_again_by_a_flush() {
    let mut world = World::new(Config::default());
    let file = world.open(1, &vec![0; FILE]);
    world.write(file, 0, &[7; 8 * BLOCK as usize]);
    assert!(matches!(world.ask(Request::sync(file)), Reply::Done));
    assert!(matches!(world.ask(Request::Namespace(Namespace::Unlink { object: file })), Reply::Done));
    world.refuse_syncs = 1;
    world.ask(Request::Close { object: file });
    world.serve();
    assert_eq!(world.engine.stats().dirty_objects, 1, "the origin may bring the file back, and it would want its data");
    assert!(matches!(world.ask(Request::flush_all(1)), Reply::Done));
    assert_eq!((world.engine.stats().dirty_objects, &world.released[..]), (0, &[file][..]));

    // While the origin refuses it, the flush says so.
    let file = world.open(2, &vec![0; FILE]);
    world.write(file, 0, &[7; 8 * BLOCK as usize]);
    assert!(matches!(world.ask(Request::sync(file)), Reply::Done));
    assert!(matches!(world.ask(Request::Namespace(Namespace::Unlink { object: file })), Reply::Done));
    world.refuse_syncs = u32::MAX;
    world.ask(Request::Close { object: file });
    assert!(matches!(world.ask(Request::flush_all(2)), Reply::Failed(Errno::IO)));
    world.refuse_syncs = 0;
    assert!(matches!(world.ask(Request::flush_all(3)), Reply::Done));
    assert_eq!(world.engine.stats().dirty_objects, 0);
}

/// A sync of everything keeps the removed file for a moment, in which a job sets it right: what the origin was asked
/// for first is still under way when no request needs the file.
#[test]
fn a_removed_file_is_not_let_go_of_while_the_origin_makes_its_removal_durable() {
    let mut world = World::new(Config::default());
    let file = world.open(1, &vec![0; FILE]);
    world.write(file, 0, &[7; BLOCK as usize]);
    assert!(matches!(world.ask(Request::flush_all(1)), Reply::Done));
    world.write_as(file, 0, &[8; BLOCK as usize], Handling::Bypass);
    assert!(matches!(world.ask(Request::Namespace(Namespace::Unlink { object: file })), Reply::Done));
    world.hold_syncs = true;
    world.ask(Request::Close { object: file });
    assert_eq!(world.held_syncs.len(), 1, "the origin is asked to make the removal durable");
    let [all, flush] = [Request::SyncAll, Request::flush_all(2)].map(|request| world.begin(request));
    world.run();
    let burial = world.held_syncs.pop_front().unwrap();
    assert!(!world.held_syncs.is_empty());
    while !world.held_syncs.is_empty() {
        world.answer_a_sync();
    }
    assert!(world.released.is_empty(), "it is the file that the origin syncs");
    world.held_syncs.push_front(burial);
    world.answer_a_sync();
    assert_eq!(world.released, [file]);
    assert!(matches!(world.reply(all), Reply::Done) && matches!(world.reply(flush), Reply::Done));
}

/// More than one round of writes, of which the origin refuses one: the way goes on behind it only once that is written,
/// too.
#[test]
fn a_flush_that_says_done_has_left_nothing_though_a_write_was_refused_once() {
    for refused in 0..40 {
        let mut world = World::new(Config { flush_period: Config::OFF, idle_flush: None, ..Config::default() });
        let file = world.open(1, &[]);
        for block in 0..300 {
            world.write(file, block * 40 * 4096, &[7; 4096]);
        }
        world.refuse_writes_after = Some(refused);
        assert!(matches!(world.ask(Request::flush_all(1)), Reply::Done));
        assert_eq!(world.engine.stats().dirty_blocks, 0, "write {refused}");
    }
}
