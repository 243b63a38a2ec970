//! The engine on a flash and an origin in memory that do everything at once and never fail:
//! what an application sees when nothing goes wrong. Faults are the simulator's.

#![allow(clippy::unwrap_used)] // helpers outside of #[test] functions are tests, too

mod world;

use std::collections::BTreeSet;

use headpond_base::{BufMut, CacheMode, Errno, Nanos, ObjectId, UnixNanos};
use headpond_engine::{
    Attributes, Config, FlushId, FlushScope, Handling, Namespace, OpenFile, Reply, Request, RequestId, Treatment,
    Verdict, recover,
};
use headpond_format::{FileIdentity, Stamp};
use world::{Memory, POOL, World};

fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[test]
fn what_was_written_is_read_and_reaches_the_origin_with_the_flush() {
    let mut world = World::new(Config::default());
    let file = world.open(1, &[5; 10_000]);
    world.write(file, 3, b"hello");
    world.write(file, 9_998, b"tail beyond");
    assert_eq!(world.read(file, 0, 10), [5, 5, 5, b'h', b'e', b'l', b'l', b'o', 5, 5]);
    assert_eq!(world.read(file, 9_996, 100), b"\x05\x05tail beyond");
    assert_eq!(world.files[&file], [5; 10_000], "nothing reached the origin yet");
    assert!(matches!(world.ask(Request::sync(file)), Reply::Done));
    assert!(matches!(world.ask(Request::flush_all(1)), Reply::Done));
    assert_eq!(&world.files[&file][..9], b"\x05\x05\x05hello\x05");
    assert_eq!(world.files[&file].len(), 10_009);
    assert_eq!(world.engine.stats().dirty_blocks, 0);
}

#[test]
fn long_random_use_of_a_small_pool_agrees_with_a_plain_file_in_every_mode() {
    for seed in 1..=12_u64 {
        let mode = CacheMode::ALL[(seed % 4) as usize];
        let mut world = World::new(Config { mode, flush_period: Nanos::SECOND, ..Config::default() });
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut model = vec![1_u8; 5 << 20];
        let file = world.open(1, &model.clone());
        for step in 0..1500 {
            let offset = random(&mut state) % (30 << 20);
            let len = match random(&mut state) % 10 {
                0 => random(&mut state) % (1 << 20) + 1,
                1..=4 => 4096 * (random(&mut state) % 16 + 1),
                _ => random(&mut state) % 9000 + 1,
            } as usize;
            let offset = if random(&mut state).is_multiple_of(2) { offset / 4096 * 4096 } else { offset };
            match random(&mut state) % 20 {
                0 => {
                    let size = offset % (20 << 20);
                    let reply = world.ask(Request::Truncate { object: file, size, mtime: UnixNanos(8) });
                    assert!(matches!(reply, Reply::Changed(now) if now.size == size), "{reply:?}");
                    model.resize(size as usize, 0);
                }
                1 => {
                    let len = len as u64 * 3;
                    let reply =
                        world.ask(Request::Zero { object: file, offset, len, extend: false, mtime: UnixNanos(8) });
                    assert!(matches!(reply, Reply::Changed(_)), "{reply:?}");
                    let (from, to) = ((offset as usize).min(model.len()), (offset + len) as usize);
                    let to = to.min(model.len());
                    model[from..to].fill(0);
                }
                2 => assert!(matches!(world.ask(Request::sync(file)), Reply::Done)),
                3 if step % 5 == 0 => {
                    assert!(matches!(world.ask(Request::flush_all(1)), Reply::Done));
                    assert_eq!(world.files[&file].len(), model.len(), "seed {seed} step {step}");
                    assert!(world.files[&file] == model, "seed {seed} step {step}: origin differs after a flush");
                }
                4 => world.sleep(random(&mut state) % 3000),
                5..=11 => {
                    let bytes: Vec<u8> = (0..len).map(|at| (at as u64 ^ random(&mut state)) as u8).collect();
                    let end = offset as usize + len;
                    world.write(file, offset, &bytes);
                    if model.len() < end {
                        model.resize(end, 0);
                    }
                    model[offset as usize..end].copy_from_slice(&bytes);
                }
                _ => {
                    let read = world.read(file, offset, len as u32);
                    let from = (offset as usize).min(model.len());
                    let to = (offset as usize + len).min(model.len());
                    assert!(read == model[from..to], "seed {seed} step {step}: read of {len} at {offset} differs");
                }
            }
        }
        assert!(matches!(world.ask(Request::Stop), Reply::Done));
        let mut recovered = recover(&mut world.flash, POOL).unwrap();
        let stamp = world.stamps.get(&file).copied().unwrap_or_default();
        let stamp = Stamp { size: world.files[&file].len() as u64, ..stamp };
        for object in recovered.objects() {
            let found =
                OpenFile { inode: 1, birth: UnixNanos(0), path: b"f".to_vec(), stamp, created: false, allocated: 0 };
            if let Verdict::Conflict(conflict) = recovered.reconcile(object.object, Some(&found.clone().into())) {
                panic!("seed {seed}: {conflict:?}");
            }
        }
        world.engine = recovered.into_engine(Config { mode, ..Config::default() }, Nanos(world.now));
        world.run();
        let at_origin = world.files[&file].clone();
        let again = world.open(1, &at_origin);
        for offset in (0..model.len() as u64).step_by(1 << 20) {
            let to = (offset as usize + (1 << 20)).min(model.len());
            assert!(
                world.read(again, offset, 1 << 20) == model[offset as usize..to],
                "seed {seed}: at {offset} after restart"
            );
        }
    }
}

/// File systems take a reservation for a change of the file's time, and the daemon may be killed before it is put back.
#[test]
fn a_file_that_is_killed_while_it_grows_is_known_again_and_one_that_others_changed_is_not() {
    let mut world = World::new(Config::default());
    let file = world.open(1, &[5; 10_000]);
    world.write(file, 0, b"dirty");
    world.ask(Request::sync(file));
    world.keep_at_reserve = true;
    for mebibyte in 1..4 {
        world.write(file, mebibyte << 20, &[7; 4096]);
    }
    // After a while without requests for space the log says that the file is left alone.
    world.sleep(1100);
    world.ask(Request::sync(file));
    assert!(world.at_reserve.len() > 1);
    let changed = UnixNanos(77);
    for mut flash in std::mem::take(&mut world.at_reserve) {
        assert!(matches!(world.found_at_start(&mut flash, file, changed)[..], [Verdict::Kept]));
    }
    let mut flash = Memory(world.flash.0.clone());
    assert!(matches!(world.found_at_start(&mut flash, file, changed)[..], [Verdict::Conflict(_)]));
}

/// The same if there was no space, and so the time was not put back.
#[test]
fn a_new_file_with_the_number_of_a_removed_one_is_answered_for_once_the_log_tells_them_apart() {
    let mut world = World::new(Config::default());
    let old = world.open(1, &[]);
    world.write(old, 0, &[7; 4096]);
    assert!(matches!(world.ask(Request::sync(old)), Reply::Done));
    assert!(matches!(world.ask(Request::Close { object: old }), Reply::Done));
    assert!(matches!(world.ask(Request::Namespace(Namespace::Unlink { object: old })), Reply::Done));
    let new = world.open(1, &[]);
    assert_ne!(new, old);
    assert!(recover(&mut world.flash, POOL).unwrap().objects().is_empty(), "the new one would be taken for it");
    world.write(new, 0, b"new");
    assert_eq!(world.read(new, 0, 10), b"new");
}

#[test]
fn a_file_that_could_not_grow_is_known_again() {
    let mut world = World::new(Config::default());
    let file = world.open(1, &[5; 10_000]);
    world.write(file, 0, b"dirty");
    world.full = true;
    let data = BufMut::copy_of(&[7; 4096]).freeze();
    let how = Treatment::default();
    let write = Request::Write { object: file, offset: 9 << 20, data, mtime: UnixNanos(7), durable: false, how };
    assert!(matches!(world.ask(write), Reply::Failed(Errno::NOSPC)));
    world.ask(Request::sync(file));
    let mut flash = Memory(world.flash.0.clone());
    assert!(matches!(world.found_at_start(&mut flash, file, UnixNanos(77))[..], [Verdict::Kept]));
}

/// Then the origin must not be changed any more. Nobody may wait for that it is.
#[test]
fn a_pool_whose_failure_cannot_be_written_down_ends_flushes_and_switches_and_stops_with_an_error() {
    let mut world = World::new(Config::default());
    let file = world.open(1, &[5; 10_000]);
    world.write(file, 0, b"dirty");
    world.broken = true;
    assert!(matches!(world.ask(Request::sync(file)), Reply::Failed(Errno::IO)));
    assert!(matches!(world.ask(Request::flush_all(1)), Reply::Failed(Errno::IO)));
    assert!(matches!(world.ask(Request::SetMode(CacheMode::WriteThrough)), Reply::Failed(Errno::IO)));
    assert_eq!(world.files[&file], [5; 10_000]);
    assert!(matches!(world.ask(Request::Stop), Reply::Failed(Errno::IO)));
}

/// What went to the origin directly has its size from there after a crash: so there must be nothing left of the log's.
#[test]
fn a_size_that_the_origin_has_not_synced_is_synced_before_a_write_goes_there_directly() {
    let mut world = World::new(Config::default());
    let file = world.open(1, &[5; 10_000]);
    world.ask(Request::Truncate { object: file, size: 5000, mtime: UnixNanos(7) });
    // As often as a flush tries.
    world.refuse_stamps = 4;
    assert!(matches!(world.ask(Request::flush_all(1)), Reply::Failed(Errno::IO)));
    assert!(world.files[&file].len() == 5000 && world.resized.contains(&file));
    world.write_as(file, 0, &[9; 4096], Handling::Bypass);
    assert_eq!(world.written_resized, [false]);
}

/// Kernels tell of data that they could not write once, and then forget it.
#[test]
fn a_sync_that_failed_for_destage_fails_for_who_wrote_past_the_pool_until_the_file_is_closed() {
    let mut world = World::new(Config::default());
    let file = world.open(1, &[5; 10_000]);
    world.write_as(file, 0, &[9; 4096], Handling::Bypass);
    world.refuse_syncs = 1;
    (0..100).for_each(|_| world.sleep(50));
    assert_eq!(world.refuse_syncs, 0, "destage had the origin sync the file");
    for _ in 0..2 {
        assert!(matches!(world.ask(Request::sync(file)), Reply::Failed(Errno::IO)));
        assert!(matches!(world.ask(Request::SyncAll), Reply::Failed(Errno::IO)));
    }
    let other = world.open(2, &[6; 10_000]);
    assert!(matches!(world.ask(Request::sync(other)), Reply::Done), "it concerns one file");
    assert!(matches!(world.ask(Request::Close { object: file }), Reply::Done));
    let at_origin = world.files[&file].clone();
    let again = world.open(1, &at_origin);
    assert!(matches!(world.ask(Request::sync(again)), Reply::Done));
}

#[test]
fn a_file_that_got_only_shorter_or_longer_is_so_at_the_origin_without_a_flush() {
    let mut world = World::new(Config::default());
    let (short, long) = (world.open(1, &[5; 10_000]), world.open(2, &[6; 10_000]));
    world.ask(Request::Truncate { object: short, size: 100, mtime: UnixNanos(7) });
    world.ask(Request::Truncate { object: long, size: 20_000, mtime: UnixNanos(7) });
    (0..200).for_each(|_| world.sleep(50));
    assert_eq!((world.files[&short].len(), world.files[&long].len()), (100, 20_000));
}

#[test]
fn more_files_than_the_pool_can_name_are_served_and_flushed() {
    const FILES: u64 = 4000;
    let mut world = World::new(Config { flush_period: Nanos::SECOND, ..Config::default() });
    for inode in 1..=FILES {
        let file = world.open(inode, &[]);
        world.write(file, 0, &inode.to_le_bytes());
        // Some stay open.
        if !inode.is_multiple_of(7) {
            assert!(matches!(world.ask(Request::Close { object: file }), Reply::Done));
        }
        if inode.is_multiple_of(100) {
            assert!(matches!(world.ask(Request::sync(file)), Reply::Done | Reply::Failed(Errno::BADF)));
            world.sleep(10);
        }
    }
    assert!(matches!(world.ask(Request::flush_all(1)), Reply::Done));
    let named = world.engine.stats().objects;
    assert!(named < FILES, "{named} objects are remembered: the pool is too large for this test");
    let written = world.files.values().filter(|bytes| bytes.len() == 8).count() as u64;
    assert_eq!(written, FILES, "files whose bytes reached the origin");
    for _ in 0..3 {
        // Checkpoints of as many objects as there may be.
        assert!(matches!(world.ask(Request::Stop), Reply::Done));
        let recovered = recover(&mut world.flash, POOL).unwrap();
        assert!(recovered.objects().len() as u64 <= FILES);
        world.engine = recovered.into_engine(Config::default(), Nanos(world.now));
        world.run();
    }
}

#[test]
fn a_flush_of_one_object_leaves_the_others_as_they_are() {
    let mut world = World::new(Config::default());
    let (one, other) = (world.open(1, &[1; 8192]), world.open(2, &[2; 8192]));
    world.write(one, 0, &[7; 4096]);
    world.write(other, 0, &[8; 4096]);
    let scope = FlushScope::Objects(BTreeSet::from([other, ObjectId(99)]));
    assert!(matches!(world.ask(Request::Flush { id: FlushId(5), scope }), Reply::Done));
    assert_eq!(world.files[&other][..4096], [8; 4096]);
    assert_eq!(world.files[&one][..4096], [1; 4096], "nobody asked for this one");
    assert_eq!(world.engine.stats().dirty_blocks, 1);
    assert!(world.engine.flushes().is_empty());
}

#[test]
fn a_cancelled_flush_is_answered_at_once_and_leaves_the_rest_dirty() {
    let mut world = World::new(Config { dirty_threshold: 70, ..Config::default() });
    let file = world.open(1, &[]);
    for index in 0..20 {
        world.write(file, index << 20, &vec![9; 1 << 20]);
    }
    let dirty = world.engine.stats().dirty_blocks;
    world.engine.submit(RequestId(1000), Request::flush_all(3));
    let flush = world.engine.flushes()[0];
    assert_eq!((flush.id, flush.left_blocks, flush.total_blocks), (Some(FlushId(3)), dirty, dirty));
    let cancelled = |world: &mut World| world.ask(Request::CancelFlush(FlushId(3)));
    world.engine.submit(RequestId(1001), Request::CancelFlush(FlushId(3)));
    assert!(world.engine.flushes().is_empty());
    assert_eq!(world.engine.stats().dirty_blocks, dirty, "nothing was done for it yet");
    world.run();
    assert!(matches!(world.replies.remove(&RequestId(1000)), Some(Reply::Failed(Errno::CANCELED))));
    assert!(matches!(world.replies.remove(&RequestId(1001)), Some(Reply::Done)));
    assert!(matches!(cancelled(&mut world), Reply::Failed(Errno::NOENT)), "there is none any more");
}

#[test]
fn the_age_of_the_oldest_dirty_data_is_told() {
    let mut world = World::new(Config { flush_period: Nanos(u64::MAX), ..Config::default() });
    let file = world.open(1, &[]);
    assert_eq!(world.engine.stats().oldest_dirty_age_nanos, 0);
    world.write(file, 0, &[1; 4096]);
    world.sleep(90_000);
    world.write(file, 8192, &[1; 4096]);
    let age = world.engine.stats().oldest_dirty_age_nanos;
    assert!((90_000..91_000).contains(&(age / 1_000_000)), "{age}");
    assert!(matches!(world.ask(Request::flush_all(1)), Reply::Done));
    assert_eq!(world.engine.stats().oldest_dirty_age_nanos, 0);
}

/// The kernel sends no sync after an asynchronous write that asks for durability itself.
#[test]
fn the_first_durable_write_of_a_new_file_makes_its_name_durable_and_those_after_it_leave_the_origin_alone() {
    let mut world = World::new(Config::default());
    let file = world.open(1, &[]);
    let how = Treatment::default();
    let write = |world: &mut World, offset| {
        let data = BufMut::copy_of(&[7; 4096]).freeze();
        world.ask(Request::Write { object: file, offset, data, mtime: UnixNanos(7), durable: true, how })
    };
    world.refuse_syncs = 1;
    assert!(matches!(write(&mut world, 0), Reply::Failed(Errno::IO)), "its name may be lost");
    assert_eq!(world.engine.stats().origin_syncs, 1);
    for block in 1..4 {
        assert!(matches!(write(&mut world, block * 4096), Reply::Changed(_)));
        assert_eq!(world.engine.stats().origin_syncs, 2, "once");
    }
    assert!(matches!(world.ask(Request::sync(file)), Reply::Done));
    assert_eq!(world.engine.stats().origin_syncs, 2);
}

/// What the next start says of the only object, whose file has this stamp now.
fn verdict_after(world: &mut World, found: Stamp) -> Verdict {
    let mut recovered = recover(&mut Memory(world.flash.0.clone()), POOL).unwrap();
    let objects = recovered.objects();
    assert_eq!(objects.len(), 1);
    let FileIdentity { inode, birth } = objects[0].state.identity.file().unwrap();
    let path = b"f".to_vec();
    let file = OpenFile { inode, birth, path, stamp: found, created: false, allocated: 0 };
    recovered.reconcile(objects[0].object, Some(&file.into()))
}

/// Others changed the file and put size and modification time back, with `touch -r`.
#[test]
fn a_change_by_others_that_puts_the_time_back_is_a_conflict_and_what_headpond_did_is_none() {
    let dirty = |world: &mut World| {
        let file = world.open(1, &[5; 10_000]);
        world.write(file, 0, b"dirty");
        world.ask(Request::sync(file));
        file
    };
    let moved = |stamp: Stamp| Stamp { ctime: UnixNanos(stamp.ctime.0 + 1000), ..stamp };
    let stopped = |world: &mut World, file| {
        assert!(matches!(world.ask(Request::Stop), Reply::Done));
        assert!(recover(&mut Memory(world.flash.0.clone()), POOL).unwrap().dirty_blocks() > 0, "the data stays");
        world.stamps[&file]
    };
    let mut world = World::new(Config::default());
    let file = dirty(&mut world);
    let left = stopped(&mut world, file);
    assert!(matches!(verdict_after(&mut world, left), Verdict::Kept));
    let verdict = verdict_after(&mut world, moved(left));
    assert!(matches!(verdict, Verdict::Conflict(_)), "{verdict:?}");

    // headpond's own changes of the status come before the stamp with which the pool is left.
    let own: [fn(ObjectId) -> Request; 2] = [
        |object| Request::Restamp { object, stamp: Stamp::default(), seen: true },
        |object| {
            let (from, to) = (b"f".to_vec(), b"g".to_vec());
            Request::Namespace(Namespace::Rename { moved: Some(object), replaced: None, from, to, exchange: false })
        },
    ];
    for change in own {
        let mut world = World::new(Config::default());
        let file = dirty(&mut world);
        assert!(matches!(world.ask(Request::flush_all(1)), Reply::Done));
        world.write(file, 0, b"again");
        let before = world.stamps.remove(&file);
        assert!(matches!(world.ask(change(file)), Reply::Done | Reply::Changed(_)));
        let left = stopped(&mut world, file);
        assert!(before.is_some(), "destage left one, and the end another");
        assert!(matches!(verdict_after(&mut world, moved(left)), Verdict::Conflict(_)));
    }
}

/// The daemon is killed, and others change the file and put its size and modification time back.
#[test]
fn after_a_crash_a_later_status_change_time_than_headponds_own_is_a_conflict_and_no_other() {
    let later = |stamp: Stamp, by: i64| Stamp { ctime: UnixNanos(stamp.ctime.0 + by), ..stamp };
    let is_conflict = |world: &mut World, found| {
        let verdict = verdict_after(world, found);
        assert!(matches!(verdict, Verdict::Kept | Verdict::Conflict(_)), "{verdict:?}");
        matches!(verdict, Verdict::Conflict(_))
    };
    let mut world = World::new(Config { flush_period: Nanos(u64::MAX), ..Config::default() });
    let file = world.open(1, &[5; 10_000]);
    world.write(file, 0, b"dirty");
    assert!(matches!(world.ask(Request::flush_all(1)), Reply::Done));
    world.write(file, 0, b"again");
    world.sleep(3000);
    world.ask(Request::sync(file));
    let left = world.stamps[&file];
    assert!(!is_conflict(&mut world, left));
    assert!(is_conflict(&mut world, later(left, 1000)));
    assert!(!is_conflict(&mut world, later(left, -1000)), "the origin lost its power, and what headpond did last");

    // The front door sets a mode. Killed anywhere in between it is no change by others.
    let syncs = |world: &World| world.engine.stats().flash_syncs;
    let before = syncs(&world);
    assert!(matches!(world.ask(Request::StatusBegins { object: file }), Reply::Done));
    assert_eq!(syncs(&world), before + 1, "the log says so first");
    assert!(!is_conflict(&mut world, later(left, 1000)));
    let left = later(left, 1000);
    assert!(matches!(world.ask(Request::StatusEnds { object: file, stamp: Some(left) }), Reply::Done));
    assert!(!is_conflict(&mut world, left));
    // And once more, at once: the log's word still stands.
    let before = syncs(&world);
    assert!(matches!(world.ask(Request::StatusBegins { object: file }), Reply::Done));
    assert_eq!(syncs(&world), before);
    let left = later(left, 1000);
    assert!(matches!(world.ask(Request::StatusEnds { object: file, stamp: Some(left) }), Reply::Done));
    // When it was quiet for a while, the time is a bound again.
    world.sleep(3000);
    world.ask(Request::SyncAll);
    assert!(!is_conflict(&mut world, left));
    assert!(is_conflict(&mut world, later(left, 1000)));
}

/// What a start shows of the only object, whose file has this stamp now.
fn seen_after(world: &World, found: Stamp) -> Attributes {
    let mut recovered = recover(&mut Memory(world.flash.0.clone()), POOL).unwrap();
    let objects = recovered.objects();
    assert_eq!(objects.len(), 1);
    let FileIdentity { inode, birth } = objects[0].state.identity.file().unwrap();
    let path = b"f".to_vec();
    let file = OpenFile { inode, birth, path, stamp: found, created: false, allocated: 0 };
    let verdict = recovered.reconcile(objects[0].object, Some(&file.into()));
    assert!(matches!(verdict, Verdict::Kept | Verdict::Dropped | Verdict::Doubted), "{verdict:?}");
    recovered.attributes(objects[0].object).unwrap()
}

#[test]
fn what_programs_see_of_a_file_is_the_same_after_a_start_unless_the_origins_status_tells_of_another_change() {
    let later = |stamp: Stamp, by: i64| Stamp { ctime: UnixNanos(stamp.ctime.0 + by), ..stamp };
    let mut world = World::new(Config { flush_period: Nanos(u64::MAX), ..Config::default() });
    let file = world.open(1, &[5; 10_000]);
    let opened = Stamp { size: 10_000, ..Stamp::default() };
    let (data, how) = (BufMut::copy_of(b"more").freeze(), Treatment::default());
    let write = Request::Write { object: file, offset: 20_000, data, mtime: UnixNanos(800), durable: false, how };
    let Reply::Changed(written) = world.ask(write) else { panic!("not written") };
    world.ask(Request::sync(file));
    world.sleep(3000);
    world.ask(Request::SyncAll);
    assert_eq!(
        (written.ctime, seen_after(&world, opened)),
        (written.mtime, written),
        "by what the log has of the write"
    );
    let set = Request::SetMtime { object: file, mtime: UnixNanos(5), ctime: UnixNanos(900) };
    let Reply::Changed(seen) = world.ask(set) else { panic!("not set") };
    assert_eq!((seen.mtime, seen.ctime), (UnixNanos(5), UnixNanos(900)));
    world.ask(Request::sync(file));
    assert_eq!(seen_after(&world, opened), seen, "dirty");
    assert_eq!(seen_after(&world, later(opened, -1)), seen, "the origin lost its power");

    assert!(matches!(world.ask(Request::flush_all(1)), Reply::Done));
    world.ask(Request::SyncAll);
    let left = world.stamps[&file];
    assert_ne!(left.ctime, seen.ctime, "destage has left its own");
    assert_eq!(seen_after(&world, left), seen, "clean");
    assert_eq!(seen_after(&world, later(left, 7000)).ctime, UnixNanos(left.ctime.0 + 7000), "others changed it");

    // A change of mode, by the front door: seen once it is over, and after a crash in the middle, too.
    world.write(file, 0, b"again");
    world.ask(Request::sync(file));
    let left = later(left, 5000);
    assert!(matches!(world.ask(Request::StatusBegins { object: file }), Reply::Done));
    assert_eq!(seen_after(&world, left).ctime, left.ctime);
    world.ask(Request::Restamp { object: file, stamp: left, seen: true });
    world.ask(Request::StatusEnds { object: file, stamp: Some(left) });
    assert_eq!(seen_after(&world, left).ctime, left.ctime);
    world.sleep(3000);
    world.ask(Request::SyncAll);
    assert_eq!(seen_after(&world, left).ctime, left.ctime);
    // What is none of the programs' business is not shown to them.
    let own = later(left, 5000);
    assert!(matches!(world.ask(Request::StatusBegins { object: file }), Reply::Done));
    world.ask(Request::StatusEnds { object: file, stamp: Some(own) });
    world.sleep(3000);
    world.ask(Request::SyncAll);
    assert_eq!(seen_after(&world, own).ctime, left.ctime);
    assert!(matches!(world.ask(Request::Stop), Reply::Done));
    let found = Stamp { ctime: own.ctime, ..world.stamps[&file] };
    assert_eq!(seen_after(&world, found).ctime, left.ctime, "after an orderly end");
}
