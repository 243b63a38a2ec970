//! Histories that broke a promise in the simulator, built by hand: the seed of a history is another history as soon as
//! the simulator draws anything else. Each test says what it was. Seeds of which no such test can be made are in
//! `crates/sim/tests/random_histories.rs`.

#![allow(clippy::unwrap_used)] // helpers outside of #[test] functions are tests, too

mod world;

use headpond_base::{BufMut, CacheMode, Errno, Nanos, ObjectId, UnixNanos};
use headpond_engine::{
    Config, Effect, Handling, Mutation, Namespace, OpenFile, Outcome, Reply, Request, RequestId, Treatment, Verdict,
    recover,
};
use headpond_format::Stamp;
use world::{Memory, POOL, World};

/// Write-back; nothing goes to the origin unless something waits for it.
fn write_back() -> Config {
    Config { flush_period: Config::OFF, dirty_threshold: 0, sequential_cutoff: None, ..Config::default() }
}

fn write_request(object: ObjectId, offset: u64, bytes: &[u8], handling: Handling) -> Request {
    let (data, how) = (BufMut::copy_of(bytes).freeze(), Treatment { handling, ..Treatment::default() });
    Request::Write { object, offset, data, mtime: UnixNanos(7), durable: false, how }
}

/// A write in pass-through failed at the origin and was there all the same, and so was the cut that would have set it
/// right; then the mode changed, and a write through the log made the file longer: the failed bytes showed in the
/// middle.
#[test]
fn what_a_failed_write_left_behind_the_end_never_shows() {
    let mut world = World::new(Config { mode: CacheMode::PassThrough, ..write_back() });
    let file = world.open(1, &[5; 4096]);
    (world.refuse_writes, world.refuse_resizes) = (1, 1);
    let failed = write_request(file, 300_000, &[6; 32_768], Handling::Cache);
    assert!(matches!(world.ask(failed), Reply::Failed(Errno::IO)));
    assert_eq!(world.files[&file].len(), 332_768, "it is there, and so is a hole before it");
    assert!(matches!(world.ask(Request::sync(file)), Reply::Done));
    assert!(matches!(world.ask(Request::SetMode(CacheMode::WriteBack)), Reply::Done));
    world.write(file, 1_500_000, &[7; 4096]);
    assert_eq!(world.read(file, 300_000, 32_768), [0; 32_768]);
    assert!(matches!(world.ask(Request::flush_all(1)), Reply::Done));
    assert_eq!(world.files[&file][300_000..332_768], [0; 32_768], "nor at the origin");
    assert_eq!(world.read(file, 300_000, 32_768), [0; 32_768]);
}

/// A write of destage failed, so that the size of the origin's file was unknown; the file was cut to nothing, and the
/// pool left. The stamp that was taken said that nothing was lacking, and the pool still called the file dirty.
#[test]
fn a_file_that_lacks_nothing_when_the_pool_is_left_is_not_dirty_in_it() {
    let mut world = World::new(Config { flush_period: Nanos::SECOND, ..write_back() });
    let file = world.open(1, &[]);
    world.write(file, 5000, &[6; 4096]);
    world.refuse_writes = u32::MAX;
    (0..40).for_each(|_| world.sleep(50));
    assert!(world.refuse_writes < u32::MAX, "destage has tried");
    world.files.get_mut(&file).unwrap().clear();
    assert!(matches!(world.ask(Request::Truncate { object: file, size: 0, mtime: UnixNanos(9) }), Reply::Changed(_)));
    assert!(matches!(world.ask(Request::Stop), Reply::Done));
    let left = recover(&mut world.flash, POOL).unwrap().objects();
    assert_eq!(left.len(), 1);
    assert!(!left[0].dirty, "{left:?}");
}

/// A write to the origin waits until what is dirty of its file is there. The origin took none of it, for ever, and the
/// write was never answered.
#[test]
fn a_write_that_waits_for_what_the_origin_refuses_is_told_so() {
    let mut world = World::new(write_back());
    let file = world.open(1, &[5; 4096]);
    world.write(file, 0, &[6; 4096]);
    world.refuse_writes = 1;
    world.write_as(file, 8192, &[7; 4096], Handling::Bypass);
    assert_eq!(world.files[&file][8192], 7, "what passes is waited for");
    world.refuse_writes = u32::MAX;
    world.write(file, 0, &[8; 4096]);
    let waits = write_request(file, 16_384, &[9; 4096], Handling::Bypass);
    assert!(matches!(world.ask(waits), Reply::Failed(Errno::IO)));
    world.refuse_writes = 0;
    world.write_as(file, 16_384, &[9; 4096], Handling::Bypass);
    assert_eq!((world.files[&file][0], world.files[&file][16_384]), (8, 9));
}

/// The same for a write that waits for room when the use of the pool ends: the end waited for the write, and the write
/// for room that nothing makes any more.
#[test]
fn the_end_does_not_wait_for_writes_that_wait_for_room() {
    let mut world = World::new(Config { dirty_threshold: 1, ..write_back() });
    let file = world.open(1, &[]);
    world.refuse_writes = u32::MAX;
    let mut id = 900_000;
    loop {
        id += 1;
        let offset = (id - 900_000) << 20;
        world.engine.submit(RequestId(id), write_request(file, offset, &[1; 1 << 20], Handling::Cache));
        world.run();
        (0..40).for_each(|_| world.sleep(50));
        if world.replies.remove(&RequestId(id)).is_none() {
            break;
        }
        assert!(id < 900_100, "the pool is full long before");
    }
    world.engine.submit(RequestId(1 << 40), Request::Stop);
    world.run();
    (0..400).for_each(|_| world.sleep(50));
    let stopped = world.replies.remove(&RequestId(1 << 40));
    assert!(matches!(stopped, Some(Reply::Done | Reply::Failed(_))), "{stopped:?}");
    let told = world.replies.remove(&RequestId(id));
    assert!(matches!(told, Some(Reply::Failed(Errno::SHUTDOWN))), "{told:?}");
}

/// A file was removed; on an origin without birth times its inode number went to a new one before the log durably knew:
/// after a crash the new one got the old one's data. Its number is not free while it is open here.
#[test]
fn a_removed_file_without_a_birth_time_is_let_go_of_once_the_log_has_forgotten_it() {
    let mut world = World::new(write_back());
    let file = world.open(1, &[5; 4096]);
    world.write(file, 0, &[6; 4096]);
    assert!(matches!(world.ask(Request::sync(file)), Reply::Done));
    assert!(matches!(world.ask(Request::Namespace(Namespace::Unlink { object: file })), Reply::Done));
    world.hold_below = u64::MAX;
    assert!(matches!(world.ask(Request::Close { object: file }), Reply::Done));
    assert_eq!(world.released, [], "the log's word is on its way");
    world.release();
    world.sleep(50);
    assert_eq!(world.released, [file]);
    let recovered = recover(&mut Memory(world.flash.0.clone()), POOL).unwrap();
    assert!(recovered.objects().is_empty(), "{:?}", recovered.objects());
}

/// The last data of a closed file reached the origin, and the engine let go of the file before the log's word of that
/// was durable. A mount that remembers no more files then removes it without a word: after a crash a file with dirty
/// data was missing, and the mount refused.
#[test]
fn a_file_is_let_go_of_once_the_log_durably_says_that_the_origin_has_all_of_it() {
    let mut world = World::new(write_back());
    let file = world.open(1, &[5; 4096]);
    world.write(file, 0, &[6; 4096]);
    assert!(matches!(world.ask(Request::sync(file)), Reply::Done));
    assert!(matches!(world.ask(Request::Close { object: file }), Reply::Done));
    assert!(matches!(world.ask(Request::flush_all(1)), Reply::Done));
    let is_dirty = |world: &World| {
        let left = recover(&mut Memory(world.flash.0.clone()), POOL).unwrap().objects();
        left.iter().any(|object| object.dirty)
    };
    assert!(is_dirty(&world) && world.released.is_empty(), "{:?}", world.released);
    // Opened again meanwhile, it is not let go of when the log is durable.
    assert_eq!(world.open(1, &[6; 4096]), file);
    (0..40).for_each(|_| world.sleep(50));
    assert!(!is_dirty(&world) && world.released.is_empty(), "{:?}", world.released);
    // And not waited for again when it was only read.
    assert!(matches!(world.ask(Request::Close { object: file }), Reply::Done));
    assert_eq!(world.released, [file]);
}

/// The planted bug by which the simulator shows that it would find this does what it says.
#[test]
fn the_planted_bug_lets_go_of_a_file_that_is_dirty_in_the_log() {
    let mut world = World::new(Config { mutation: Some(Mutation::LetGoEarly), ..write_back() });
    let file = world.open(1, &[5; 4096]);
    world.write(file, 0, &[6; 4096]);
    assert!(matches!(world.ask(Request::sync(file)), Reply::Done));
    assert!(matches!(world.ask(Request::Close { object: file }), Reply::Done));
    assert!(matches!(world.ask(Request::flush_all(1)), Reply::Done));
    assert_eq!(world.released, [file]);
    assert!(recover(&mut Memory(world.flash.0.clone()), POOL).unwrap().objects()[0].dirty);
}

/// The same for a file that no program opens again: time alone must do it.
#[test]
fn an_idle_pool_lets_go_of_a_clean_file_within_the_sync_interval() {
    let mut world = World::new(write_back());
    let file = world.open(1, &[5; 4096]);
    world.write(file, 0, &[6; 4096]);
    assert!(matches!(world.ask(Request::Close { object: file }), Reply::Done));
    assert!(matches!(world.ask(Request::flush_all(1)), Reply::Done));
    while world.released.is_empty() {
        let next = world.engine.next_wake().unwrap_or_else(|| panic!("it is held, and nobody wakes the engine"));
        world.now = world.now.max(next.0);
        world.sleep(0);
    }
    assert_eq!(world.released, [file]);
}

/// What the operator decided at a start, and which files it found to be gone, was durable only some time after the
/// mount was there: a crash asked the operator again, and gave a new file the data of one that was gone. A mount waits
/// for this.
#[test]
fn what_a_start_decided_is_durable_once_a_sync_is_answered() {
    let mut world = World::new(write_back());
    let file = world.open(1, &[5; 4096]);
    world.write(file, 0, &[6; 4096]);
    assert!(matches!(world.ask(Request::Stop), Reply::Done));
    let mut recovered = recover(&mut world.flash, POOL).unwrap();
    let object = recovered.objects()[0].object;
    assert!(matches!(recovered.reconcile(object, None), Verdict::Conflict(_) | Verdict::Forgotten));
    recovered.discard(object);
    world.hold_below = u64::MAX;
    world.engine = recovered.into_engine(write_back(), Nanos(world.now));
    world.run();
    world.engine.submit(RequestId(900_000), Request::SyncAll);
    (0..40).for_each(|_| world.sleep(50));
    assert!(world.replies.is_empty(), "it waits for the first checkpoint");
    while !world.replies.contains_key(&RequestId(900_000)) {
        world.release();
        world.sleep(50);
    }
    assert!(recover(&mut Memory(world.flash.0.clone()), POOL).unwrap().objects().is_empty());
}

/// A file was made, a sync of everything asked for, and the file closed before the flash was through with it: as it had
/// no data it was forgotten, and its name at the origin never synced. It was gone after a power cut.
#[test]
fn a_new_file_without_data_that_is_closed_while_everything_is_synced_is_synced_too() {
    let mut world = World::new(write_back());
    let other = world.open(1, &[5; 4096]);
    world.write(other, 0, &[6; 4096]);
    let new = world.open(2, &[]);
    assert_eq!(world.synced, []);
    world.hold_below = u64::MAX;
    world.engine.submit(RequestId(900_000), Request::SyncAll);
    world.run();
    assert!(matches!(world.ask(Request::Close { object: new }), Reply::Done));
    world.release();
    world.sleep(50);
    assert!(matches!(world.replies.remove(&RequestId(900_000)), Some(Reply::Done)));
    assert!(world.synced.contains(&new), "{:?}", world.synced);
    assert!(world.released.contains(&new), "and let go of then");
}

/// After the flash had failed a rename went on without waiting for the log, and was woken by its failure all the same:
/// it was answered with an error while the origin carried it out.
#[test]
fn a_rename_after_the_flash_has_failed_is_answered_when_the_origin_has_answered() {
    let mut world = World::new(write_back());
    let file = world.open(1, &[5; 4096]);
    world.write(file, 0, &[6; 4096]);
    world.broken = true;
    assert!(matches!(world.ask(Request::sync(file)), Reply::Failed(Errno::IO)));
    let (from, to) = (b"f".to_vec(), b"g".to_vec());
    let rename = Namespace::Rename { moved: Some(file), replaced: None, from, to, exchange: false };
    let told = world.ask(Request::Namespace(rename));
    assert!(matches!(told, Reply::Done), "{told:?}");
}

/// A file's mode was changed through the mount and the daemon killed before the log had the new status change time: the
/// next start said that others had changed the file. Without a verdict of its own for what differs by that time alone,
/// it is `Dropped`.
#[test]
fn a_status_that_was_changed_just_before_a_kill_is_not_taken_for_a_change_by_others() {
    let mut world = World::new(write_back());
    let file = world.open(1, &[5; 8192]);
    world.write(file, 0, &[6; 8192]);
    assert!(matches!(world.ask(Request::flush_all(1)), Reply::Done));
    assert!(matches!(world.ask(Request::SyncAll), Reply::Done));
    let left = world.stamps[&file];
    let now = Stamp { ctime: UnixNanos(1000), ..left };
    let found = |flash: &Memory, stamp: Stamp| {
        let mut recovered = recover(&mut Memory(flash.0.clone()), POOL).unwrap();
        let object = recovered.objects()[0].object;
        let path = b"f".to_vec();
        let file = OpenFile { inode: 1, birth: UnixNanos(0), path, stamp, created: false, allocated: 0 };
        (recovered.reconcile(object, Some(&file.into())), recovered.blocks(object).count())
    };
    assert!(matches!(world.ask(Request::Restamp { object: file, stamp: now, seen: true }), Reply::Changed(_)));
    assert_eq!(
        found(&world.flash, now),
        (Verdict::Doubted, 0),
        "the log does not have it, and others could have done it"
    );
    assert_eq!(found(&world.flash, left), (Verdict::Kept, 2));
    let written = Stamp { mtime: UnixNanos(1000), ..now };
    assert_eq!(found(&world.flash, written), (Verdict::Dropped, 0));
    assert!(matches!(world.ask(Request::SyncAll), Reply::Done));
    assert_eq!(found(&world.flash, now), (Verdict::Kept, 2), "once the log has it the cache is warm");
}

/// The daemon was killed with a superblock in the device's cache alone. The next start reads it, and would write its
/// first checkpoint over the one that the superblock before it leads to: a loss of power then left neither.
#[test]
fn what_a_start_found_on_flash_is_durable_before_it_writes_anything() {
    let mut world = World::new(Config::default());
    let file = world.open(1, &[]);
    world.write(file, 0, &[7; 4096]);
    let mut recovered = recover(&mut world.flash, POOL).unwrap();
    let objects: Vec<ObjectId> = recovered.objects().iter().map(|object| object.object).collect();
    objects.into_iter().for_each(|object| recovered.discard(object));
    let mut engine = recovered.into_engine(Config::default(), Nanos(0));
    engine.advance(Nanos::SECOND);
    let mut effects = Vec::new();
    engine.take_effects(&mut effects);
    let [Effect::FlashSync { ticket, .. }] = effects[..] else { panic!("{effects:?}") };
    engine.complete(ticket, Outcome::Done);
    effects.clear();
    engine.take_effects(&mut effects);
    assert!(effects.iter().any(|effect| matches!(effect, Effect::FlashWrite { .. })), "{effects:?}");
}

/// After a crash the pool had the file again that it had been told to forget, with clean blocks of before, and called
/// what headpond had written there since a change by others.
#[test]
fn a_file_that_was_forgotten_a_moment_ago_is_written_past_the_pool_once_that_is_durable() {
    let mut world = World::new(Config::default());
    let open = |world: &mut World| {
        let (birth, stamp) = (UnixNanos(5), Stamp::default());
        let file = OpenFile { inode: 1, birth, path: b"f".to_vec(), stamp, created: false, allocated: 0 };
        let Reply::Opened { object, .. } = world.ask(Request::Open(file.into())) else { panic!("not opened") };
        world.files.insert(object, Vec::new());
        object
    };
    let file = open(&mut world);
    world.write(file, 0, &[7; 4096]);
    world.ask(Request::Truncate { object: file, size: 0, mtime: UnixNanos(8) });
    assert!(matches!(world.ask(Request::flush_all(1)), Reply::Done));
    world.ask(Request::Close { object: file });
    while world.engine.stats().objects > 0 {
        world.sleep(10);
    }
    let again = open(&mut world);
    assert!(again != file);
    let syncs = world.flash_syncs;
    world.write_as(again, 0, &[8; 4096], Handling::Bypass);
    assert_eq!(world.flash_syncs, syncs + 1, "the log may still name the file");
    world.write_as(again, 4096, &[8; 4096], Handling::Bypass);
    assert_eq!(world.flash_syncs, syncs + 1);
}

/// An origin without birth times lost its power. With it went the removal of a file, and a new file with its number
/// that was not synced there. The pool took the older file for the new one. The same if the new one was closed without
/// data, and opened again.
#[test]
fn a_file_that_came_back_is_not_the_new_one_that_had_its_number() {
    let stamp = |time: i64| Stamp { size: 4096, mtime: UnixNanos(time), ctime: UnixNanos(time) };
    for opened_again in [false, true] {
        let mut world = World::new(write_back());
        let mut file = OpenFile {
            inode: 1,
            birth: UnixNanos(0),
            path: b"f".to_vec(),
            stamp: Stamp { size: 0, ..stamp(50) },
            created: true,
            allocated: 0,
        };
        let open = |world: &mut World, file: &OpenFile| {
            let Reply::Opened { object, .. } = world.ask(Request::Open(file.clone().into())) else {
                panic!("not opened")
            };
            world.files.insert(object, Vec::new());
            object
        };
        let mut object = open(&mut world, &file);
        if opened_again {
            world.ask(Request::Close { object });
            file.created = false;
            let again = open(&mut world, &file);
            assert!(again != object, "it was let go of");
            object = again;
        }
        world.write(object, 0, &[7; 4096]);
        assert!(matches!(world.ask(Request::SetMode(CacheMode::WriteBack)), Reply::Done));
        (0..40).for_each(|_| world.sleep(50));
        let verdict = |boot: u8, found: Stamp| {
            let mut recovered = recover(&mut Memory(world.flash.0.clone()), POOL).unwrap();
            let objects = recovered.objects();
            assert_eq!(objects.len(), 1);
            recovered.booted([boot; 16]);
            recovered.reconcile(objects[0].object, Some(&OpenFile { stamp: found, ..file.clone() }.into()))
        };
        assert_eq!(verdict(1, stamp(49)), Verdict::Forgotten, "it was changed last before the new one was made");
        assert_ne!(verdict(1, Stamp { size: 0, ..stamp(50) }), Verdict::Forgotten);
    }
}

/// The flash failed, and so did the note of that. A file was removed, another one got its inode number, and the next
/// start, which knew nothing of either, took the new one for the old one (seed 990040049).
#[test]
fn a_file_that_a_failed_pool_names_stays_until_the_origin_knows_of_the_failure() {
    let mut world = World::new(write_back());
    let (named, other) = (world.open(1, &[]), world.open(2, &[]));
    world.write(named, 0, &[7; 4096]);
    assert!(matches!(world.ask(Request::sync(named)), Reply::Done));
    world.broken = true;
    world.ask(write_request(named, 4096, &[8; 4096], Handling::Cache));
    assert!(matches!(world.ask(Request::sync(named)), Reply::Failed(_)));
    let unlink = |object| Request::Namespace(Namespace::Unlink { object });
    assert!(matches!(world.ask(unlink(named)), Reply::Failed(Errno::IO)));
    assert!(matches!(world.ask(unlink(other)), Reply::Done), "the pool knows nothing of this one");
}

/// The same, but that the file had lost its name before: with its last close its inode number went to another one,
/// which the next start took for it (seed 1000002010).
#[test]
fn a_removed_file_that_a_failed_pool_names_keeps_its_number_until_the_origin_knows_of_the_failure() {
    for (noted, released) in [(false, false), (true, true)] {
        let mut world = World::new(write_back());
        let file = world.open(1, &[]);
        world.write(file, 0, &[7; 4096]);
        assert!(matches!(world.ask(Request::sync(file)), Reply::Done));
        assert!(matches!(world.ask(Request::Namespace(Namespace::Unlink { object: file })), Reply::Done));
        (world.broken, world.notes) = (true, noted);
        world.ask(write_request(file, 4096, &[8; 4096], Handling::Cache));
        assert!(matches!(world.ask(Request::sync(file)), Reply::Failed(_)) || noted);
        assert!(matches!(world.ask(Request::Close { object: file }), Reply::Done));
        world.sleep(20_000);
        assert_eq!(world.released.contains(&file), released, "noted: {noted}");
    }
}

/// A write past the pool failed behind the end of a file, and was there all the same. The last block was read, with zeros
/// behind the end, and then another write made the file longer: the pool showed zeros, and the origin had bytes.
#[test]
fn what_a_failed_write_left_behind_the_end_is_the_same_in_the_pool_and_at_the_origin() {
    let mut world = World::new(write_back());
    let file = world.open(1, &[1; 100]);
    world.hold_writes = true;
    world.refuse_writes = 1;
    let fails = world.begin(write_request(file, 100, &[2; 100], Handling::Bypass));
    let longer = world.begin(write_request(file, 8192, &[3; 100], Handling::Bypass));
    world.answer_a_write();
    assert!(matches!(world.replies.remove(&fails), Some(Reply::Failed(Errno::IO))));
    assert_eq!(world.read(file, 0, 4096), [1; 100]);
    world.answer_writes();
    assert!(matches!(world.reply(longer), Reply::Changed(_)));
    let shown = world.read(file, 0, 8292);
    assert!(shown == world.files[&file], "{:?}", shown.iter().zip(&world.files[&file]).position(|(a, b)| a != b));
}
