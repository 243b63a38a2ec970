//! The origin refuses to sync what went there directly, and has lost it: the pool shows nothing that the origin has not
//! got, and no request hears "done".
#![allow(clippy::unwrap_used)] // helpers outside of #[test] functions are tests, too

mod world;

use headpond_base::{BufMut, CacheMode, Errno, Nanos, ObjectId, UnixNanos};
use headpond_engine::{Config, Handling, OpenFile, Reply, Request, Treatment, Verdict, recover};
use headpond_format::{Geometry, Stamp};
use headpond_policy::Policy;
use world::{Memory, POOL, World};

const BLOCKS: u64 = 64;
const BYTES: usize = BLOCKS as usize * 4096;

fn config(mode: CacheMode) -> Config {
    Config { mode, flush_period: Config::OFF, dirty_threshold: 0, policy: Policy::Lru, ..Config::default() }
}

/// A pool that write-through leaves with the bytes of direct writes, at an origin that refuses one sync and loses them.
fn losing(mode: CacheMode) -> (World, ObjectId) {
    let mut world = World::new(config(mode));
    let mut recovered = recover(&mut Memory(world.flash.0.clone()), POOL).unwrap();
    recovered.booted([1; 16]);
    world.engine = recovered.into_engine(config(mode), Nanos(world.now));
    world.run();
    let file = world.open(1, &[3; BYTES]);
    for block in 0..BLOCKS {
        world.write(file, block * 4096, &[4; 4096]);
    }
    (world.refuse_syncs, world.loses_unsynced) = (1, true);
    (world, file)
}

fn sync(world: &mut World, object: ObjectId) -> Option<Errno> {
    match world.ask(Request::sync(object)) {
        Reply::Done => None,
        Reply::Failed(errno) => Some(errno),
        other => panic!("{other:?}"),
    }
}

fn flush(world: &mut World, id: u64) -> Option<Errno> {
    match world.ask(Request::flush_all(id)) {
        Reply::Done => None,
        Reply::Failed(errno) => Some(errno),
        other => panic!("{other:?}"),
    }
}

fn found_with(stamp: Stamp) -> OpenFile {
    OpenFile { inode: 1, birth: UnixNanos(0), path: b"f".to_vec(), stamp, created: false, allocated: 0 }
}

/// A write that goes to the origin directly.
fn direct(object: ObjectId, offset: u64, bytes: &[u8]) -> Request {
    let (data, how) = (BufMut::copy_of(bytes).freeze(), Treatment::default());
    Request::Write { object, offset, data, mtime: UnixNanos(7), durable: false, how }
}

/// What a start reads of the file, after a crash that leaves this flash and the running origin.
fn after_a_crash(mode: CacheMode, flash: &Memory, at_origin: &[u8], stamp: Stamp) -> Vec<u8> {
    let mut flash = Memory(flash.0.clone());
    let mut recovered = recover(&mut flash, POOL).unwrap();
    recovered.booted([1; 16]);
    let found = found_with(stamp);
    for object in recovered.objects() {
        let verdict = recovered.reconcile(object.object, Some(&found.clone().into()));
        assert!(!matches!(verdict, Verdict::Conflict(_)), "{verdict:?}");
    }
    let mut world = World::new(config(mode));
    world.flash = flash;
    for object in (1..20).map(ObjectId) {
        world.files.insert(object, at_origin.to_vec());
    }
    world.engine = recovered.into_engine(config(mode), Nanos(world.now));
    world.run();
    let Reply::Opened { object, .. } = world.ask(Request::Open(found.into())) else { panic!("not opened") };
    world.files.insert(object, at_origin.to_vec());
    world.read(object, 0, BYTES as u32)
}

#[test]
fn what_the_origin_lost_is_not_read_from_the_pool_now_or_after_a_crash() {
    for mode in [CacheMode::WriteThrough, CacheMode::WriteAround] {
        let (mut world, file) = losing(mode);
        if mode == CacheMode::WriteAround {
            // Read back before the sync, and so cached.
            world.read(file, 0, BYTES as u32);
        }
        assert!(world.engine.stats().cached_blocks > 0, "{mode:?}: the pool has some of it");
        assert_eq!(sync(&mut world, file), Some(Errno::IO));
        let at_origin = world.files[&file].clone();
        assert!(at_origin == [3; BYTES], "the origin lost it");
        let stamp = world.stamps[&file];
        assert!(after_a_crash(mode, &world.flash, &at_origin, stamp) == at_origin, "{mode:?}, after a crash");
        assert!(world.read(file, 0, BYTES as u32) == at_origin, "{mode:?}");
        assert_eq!(sync(&mut world, file), Some(Errno::IO), "{mode:?}: the error sticks");
    }
}

#[test]
fn one_flush_tells_what_the_origin_lost() {
    for told_to_destage in [false, true] {
        let (mut world, file) = losing(CacheMode::WriteThrough);
        if !told_to_destage {
            assert_eq!(sync(&mut world, file), Some(Errno::IO));
        }
        world.sleep(2000);
        assert_eq!(flush(&mut world, 1), Some(Errno::IO));
        assert!(world.read(file, 0, BYTES as u32) == world.files[&file]);
        assert_eq!(flush(&mut world, 2), None, "told once");
        assert_eq!(sync(&mut world, file), Some(Errno::IO), "the error sticks for who has the file open");
    }
}

#[test]
fn a_flush_tells_of_a_file_that_was_closed_and_a_good_sync_after_another_open_ends_it() {
    for opened_again in [false, true] {
        let (mut world, file) = losing(CacheMode::WriteThrough);
        assert_eq!(sync(&mut world, file), Some(Errno::IO));
        world.ask(Request::Close { object: file });
        world.sleep(60_000);
        if opened_again {
            let again = world.open(1, &[3; BYTES]);
            assert_eq!(again, file);
            world.write(again, 0, &[5; 4096]);
            assert_eq!(sync(&mut world, again), None);
        }
        assert_eq!(flush(&mut world, 1), (!opened_again).then_some(Errno::IO));
        assert_eq!(flush(&mut world, 2), None);
    }
}

#[test]
fn the_end_of_the_pools_use_tells_what_the_origin_lost() {
    let (mut world, file) = losing(CacheMode::WriteThrough);
    assert_eq!(sync(&mut world, file), Some(Errno::IO));
    world.ask(Request::Close { object: file });
    world.sleep(60_000);
    assert!(matches!(world.ask(Request::Stop), Reply::Failed(Errno::IO)));
}

/// The origin lost the end of the file, too: it is as long there as it is here once a flush is over.
#[test]
fn a_file_that_lost_its_end_gets_its_size_back() {
    let mut world = World::new(config(CacheMode::WriteThrough));
    let file = world.open(1, &[]);
    world.write(file, 0, &[4; 8192]);
    (world.refuse_syncs, world.loses_unsynced) = (1, true);
    assert_eq!(sync(&mut world, file), Some(Errno::IO));
    assert_eq!(flush(&mut world, 1), Some(Errno::IO));
    assert!(world.files[&file] == [0; 8192]);
    assert!(world.read(file, 0, 8192) == [0; 8192]);
}

/// A file's sync for its new name takes what destage has just written there along, and is the only one that hears.
#[test]
fn what_destage_wrote_before_a_sync_that_another_was_refused_stays_dirty() {
    let mut world = World::new(config(CacheMode::WriteBack));
    let file = world.open(1, &[]);
    world.write(file, 0, &[4; 8192]);
    world.hold_syncs = true;
    let sync = world.begin(Request::sync(file));
    let flush = world.begin(Request::flush_all(1));
    world.sleep(1);
    assert_eq!(world.held_syncs.len(), 2, "the file's for its name, and destage's");
    (world.refuse_syncs, world.loses_unsynced) = (1, true);
    world.answer_a_sync();
    world.hold_syncs = false;
    world.answer_a_sync();
    assert!(matches!(world.reply(sync), Reply::Failed(Errno::IO)));
    assert!(matches!(world.reply(flush), Reply::Done));
    assert!(world.files[&file] == [4; 8192], "written again");
}

/// Half of a write arrives, or all of it, and the origin says that it did not.
#[test]
fn a_direct_write_that_fails_in_the_middle_leaves_nothing_stale_in_the_pool() {
    for handling in [Handling::Cache, Handling::Bypass] {
        let mut world = World::new(config(CacheMode::WriteThrough));
        let file = world.open(1, &[3; BYTES]);
        world.read(file, 0, BYTES as u32);
        world.refuse_writes = 1;
        let (data, how) = (BufMut::copy_of(&[5; 8192]).freeze(), Treatment { handling, ..Treatment::default() });
        let write = Request::Write { object: file, offset: 4096, data, mtime: UnixNanos(7), durable: false, how };
        assert!(matches!(world.ask(write), Reply::Failed(Errno::IO)));
        assert!(world.read(file, 0, BYTES as u32) == world.files[&file], "as the origin has it");
    }
}

/// Copies above the engine, like a kernel's pages, would show what is lost.
#[test]
fn who_keeps_copies_hears_of_a_loss_before_anybody_hears_the_error() {
    let (mut world, file) = losing(CacheMode::WriteThrough);
    assert!(world.lost.is_empty());
    assert_eq!(sync(&mut world, file), Some(Errno::IO));
    assert_eq!(world.lost, [(file, 0)], "no answer was given yet");

    let (mut world, file) = losing(CacheMode::WriteThrough);
    assert_eq!(flush(&mut world, 1), Some(Errno::IO));
    assert_eq!(world.lost, [(file, 0)], "also if destage hears it");

    // What is dirty in the pool is not lost: it is what applications wrote.
    let mut world = World::new(config(CacheMode::WriteBack));
    let file = world.open(1, &[]);
    world.write(file, 0, &[4; 8192]);
    assert_eq!(sync(&mut world, file), None);
    (world.refuse_syncs, world.loses_unsynced) = (1, true);
    flush(&mut world, 1);
    flush(&mut world, 2);
    assert!(world.lost.is_empty());
    assert!(world.files[&file] == [4; 8192], "written again");
}

/// A write fails but reaches the origin, and makes the file longer there than the log knows. A read does not see it,
/// and a later sync counts on that.
#[test]
fn what_a_failed_write_left_behind_the_end_is_gone_after_a_crash_and_a_good_sync() {
    for mode in [CacheMode::PassThrough, CacheMode::WriteAround, CacheMode::WriteThrough] {
        for all in [false, true] {
            let mut world = World::new(config(mode));
            let file = world.open(1, &[3; 4096]);
            // Destage cannot set it right either.
            (world.refuse_writes, world.refuse_resizes) = (1, u32::MAX);
            assert!(matches!(world.ask(direct(file, 4096, &[5; 8192])), Reply::Failed(Errno::IO)));
            assert_eq!(world.files[&file].len(), 12_288, "it is there");
            assert!(world.read(file, 0, BYTES as u32) == [3; 4096]);
            let synced = world.ask(if all { Request::SyncAll } else { Request::sync(file) });
            assert!(matches!(synced, Reply::Done), "{synced:?}");
            let stamp = Stamp { size: 12_288, mtime: UnixNanos(9), ctime: UnixNanos(9) };
            let after = after_a_crash(mode, &world.flash, &world.files[&file], stamp);
            assert!(after == [3; 4096], "{mode:?}: {} bytes", after.len());
        }
    }
}

/// The same while another write is under way, which is answered later: that one stays.
#[test]
fn a_failed_write_beside_another_does_not_show_after_a_sync_and_a_crash() {
    let mode = CacheMode::WriteThrough;
    let mut world = World::new(config(mode));
    let file = world.open(1, &[3; 4096]);
    (world.hold_writes, world.refuse_writes, world.refuse_resizes) = (true, 1, u32::MAX);
    let fails = world.begin(direct(file, 12_288, &[5; 4096]));
    let slow = world.begin(direct(file, 4096, &[6; 4096]));
    world.answer_a_write();
    assert!(matches!(world.reply(fails), Reply::Failed(Errno::IO)));
    assert_eq!(sync(&mut world, file), None);
    let stamp = |size| Stamp { size, mtime: UnixNanos(9), ctime: UnixNanos(9) };
    let after = after_a_crash(mode, &world.flash, &world.files[&file], stamp(16_384));
    assert!(after == [3; 4096], "{} bytes before the other's answer", after.len());

    world.answer_a_write();
    assert!(matches!(world.reply(slow), Reply::Changed(_)));
    assert_eq!(sync(&mut world, file), None);
    let after = after_a_crash(mode, &world.flash, &world.files[&file], stamp(16_384));
    assert!(after == [[3; 4096], [6; 4096]].concat(), "{} bytes after it", after.len());
}

/// The log names as many files as it can, and all of them have dirty data.
#[test]
fn a_sync_after_a_failed_write_fails_while_the_log_has_no_room_to_say_so() {
    let geometry = world::geometry();
    let rows = u64::from(geometry.segments) * headpond_format::SegmentRow::BYTES_MAX as u64;
    let area_bytes = (geometry.map_bytes() + rows + (8 << 10)).next_multiple_of(4096);
    let mut world = World::on(Geometry { area_bytes, ..geometry }, config(CacheMode::WriteBack));
    // Nothing gets to the origin.
    world.refuse_resizes = u32::MAX;
    let mut named = 1;
    while named == world.engine.stats().dirty_objects + 1 {
        named += 1;
        let file = world.open_at(named, &format!("{named}"), &[]);
        let data = BufMut::copy_of(&[4; 4096]).freeze();
        let how = Treatment::default();
        world.begin(Request::Write { object: file, offset: 4096, data, mtime: UnixNanos(7), durable: false, how });
        world.begin(Request::Truncate { object: file, size: 16_384, mtime: UnixNanos(7) });
    }
    assert!(named > 8, "{named}");
    let file = world.open(1, &[3; 4096]);
    world.refuse_writes = 1;
    let data = BufMut::copy_of(&[5; 8192]).freeze();
    let how = Treatment { handling: Handling::Bypass, ..Treatment::default() };
    let write = Request::Write { object: file, offset: 4096, data, mtime: UnixNanos(7), durable: false, how };
    assert!(matches!(world.ask(write), Reply::Failed(Errno::IO)));
    assert_eq!(sync(&mut world, file), Some(Errno::IO));
    assert!(matches!(world.ask(Request::SyncAll), Reply::Failed(Errno::IO)));
    world.refuse_resizes = 0;
    assert_eq!(flush(&mut world, 1), None);
    assert_eq!(world.files[&file], [3; 4096]);
    assert_eq!(sync(&mut world, file), None);
}

/// A job that sets a failed write right is interrupted before it has the file's stamp, and the pool is left.
#[test]
fn a_change_by_others_shows_at_the_next_start_of_a_file_at_which_a_write_had_failed() {
    let mut world = World::new(config(CacheMode::WriteThrough));
    let file = world.open(1, &[3; BYTES]);
    world.read(file, 0, BYTES as u32);
    (world.refuse_writes, world.refuse_stamps) = (1, 1);
    assert!(matches!(world.ask(direct(file, BYTES as u64, &[5; 8192])), Reply::Failed(Errno::IO)));
    world.sleep(100);
    assert_eq!((world.refuse_stamps, world.files[&file].len()), (0, BYTES), "it is set right, and has no stamp");
    assert!(matches!(world.ask(Request::Stop), Reply::Done));
    let left = world.stamps[&file];
    for (changed, verdict) in [(false, Verdict::Kept), (true, Verdict::Dropped)] {
        let mut recovered = recover(&mut Memory(world.flash.0.clone()), POOL).unwrap();
        recovered.booted([1; 16]);
        let objects = recovered.objects();
        assert!(objects.len() == 1 && objects[0].cached_blocks > 0, "{objects:?}");
        let mtime = if changed { UnixNanos(left.mtime.0 + 1) } else { left.mtime };
        let found = found_with(Stamp { mtime, ..left });
        assert_eq!(recovered.reconcile(objects[0].object, Some(&found.clone().into())), verdict);
    }
}

/// Destage made the file longer, and its sync failed: the origin had lost that. What was dirty then became zeros, which
/// need no bytes there, and the file stayed as short as the origin had it.
#[test]
fn a_size_that_destage_gave_a_file_is_given_again_if_the_sync_was_refused() {
    let mut world = World::new(Config { flush_period: Nanos::SECOND, ..config(CacheMode::WriteBack) });
    let file = world.open(1, &[]);
    world.write(file, 0, &[4; BYTES]);
    (world.refuse_syncs, world.loses_unsynced) = (1, true);
    while world.refuse_syncs > 0 {
        world.sleep(50);
    }
    assert!(world.files[&file].is_empty(), "it is lost there");
    let zero = Request::Zero { object: file, offset: 0, len: BYTES as u64, extend: false, mtime: UnixNanos(8) };
    assert!(matches!(world.ask(zero), Reply::Changed(_)));
    flush(&mut world, 1);
    assert_eq!(flush(&mut world, 2), None);
    assert!(world.files[&file] == [0; BYTES], "{} bytes", world.files[&file].len());
}
