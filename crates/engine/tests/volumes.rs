//! Volumes: objects that keep their size and have no times, known again by what their door says of them.

#![allow(clippy::unwrap_used)]

mod world;

use headpond_base::{CacheMode, Errno, ObjectId, UnixNanos};
use headpond_engine::{
    Config, Handling, Namespace, OpenFile, OpenObject, OpenVolume, Policy, RecoverError, Reply, Request, Treatment,
    Verdict, recover,
};
use headpond_format::{Damage, Identity, Stamp, VolumeId, VolumeWitness, decode_batch, encode_batch};
use world::{Memory, POOL, World};

const ID: VolumeId = VolumeId(*b"a volume's name.");
const BYTES: usize = 1 << 20;
/// What is at the origin in the beginning.
const OLD: u8 = 7;

const fn found(size: u64, generation: u64) -> OpenVolume {
    OpenVolume { id: ID, witness: VolumeWitness { size, generation } }
}

const LEFT: OpenVolume = found(BYTES as u64, 3);

fn open(world: &mut World, volume: OpenVolume) -> Result<ObjectId, Errno> {
    match world.ask(Request::Open(OpenObject::Volume(volume))) {
        Reply::Opened { object, attributes } => {
            assert_eq!(attributes.size, volume.witness.size);
            assert_eq!((attributes.mtime, attributes.ctime), (UnixNanos(0), UnixNanos(0)), "it has no times");
            world.files.entry(object).or_insert_with(|| vec![OLD; BYTES]);
            world.durable.entry(object).or_insert_with(|| vec![OLD; BYTES]);
            Ok(object)
        }
        Reply::Failed(errno) => Err(errno),
        other => panic!("an open is answered with {other:?}"),
    }
}

fn world(mode: CacheMode) -> (World, ObjectId) {
    let mut world = World::new(Config { mode, ..Config::default() });
    // So that the origin keeps what it has synced apart.
    world.loses_unsynced = true;
    let volume = open(&mut world, LEFT).unwrap();
    (world, volume)
}

fn zero(object: ObjectId, offset: u64, len: u64) -> Request {
    Request::Zero { object, offset, len, extend: false, mtime: UnixNanos(9) }
}

/// What the next start makes of the volume, of which the door says this.
fn verdict(flash: &Memory, now: Option<OpenVolume>) -> (Verdict, u64) {
    let mut recovered = recover(&mut Memory(flash.0.clone()), POOL).unwrap();
    let objects = recovered.objects();
    assert_eq!(objects.len(), 1);
    assert_eq!(objects[0].state.identity, Identity::Volume(ID));
    let verdict = recovered.reconcile(objects[0].object, now.map(OpenObject::from).as_ref());
    (verdict, recovered.blocks(objects[0].object).count() as u64)
}

/// The engine of the next start, which finds this.
fn start_again(world: &mut World, now: OpenVolume, config: Config) -> Verdict {
    let mut recovered = recover(&mut world.flash, POOL).unwrap();
    let object = recovered.objects()[0].object;
    let verdict = recovered.reconcile(object, Some(&now.into()));
    world.engine = recovered.into_engine(config, headpond_base::Nanos(world.now));
    world.run();
    verdict
}

/// Bytes as they must be, by the first byte that is not.
fn assert_bytes(what: &str, found: &[u8], expected: &[u8]) {
    let at = found.iter().zip(expected).position(|(one, other)| one != other);
    assert!(at.is_none() && found.len() == expected.len(), "{what}: differs at byte {at:?} of {}", found.len());
}

/// Writes, zeros and a look at everything; what the volume holds then.
fn use_it(world: &mut World, volume: ObjectId) -> Vec<u8> {
    let mut expected = vec![OLD; BYTES];
    for (at, len, byte) in [(0, 4096, 1), (5000, 300, 2), (65_536, 131_072, 3), (BYTES - 512, 512, 4)] {
        world.write(volume, at as u64, &vec![byte; len]);
        expected[at..at + len].fill(byte);
    }
    for (at, len) in [(8192, 16_384), (70_000, 50_000)] {
        let reply = world.ask(zero(volume, at as u64, len as u64));
        assert!(matches!(reply, Reply::Changed(_)), "{reply:?}");
        expected[at..at + len].fill(0);
    }
    assert_bytes("read", &world.read(volume, 0, BYTES as u32), &expected);
    expected
}

#[test]
fn in_each_mode_a_volume_reads_as_it_was_written_and_a_flush_leaves_it_so_at_the_origin() {
    for mode in CacheMode::ALL {
        let (mut world, volume) = world(mode);
        let expected = use_it(&mut world, volume);
        assert!(matches!(world.ask(Request::sync(volume)), Reply::Done));
        assert!(matches!(world.ask(Request::flush_all(1)), Reply::Done));
        assert_bytes(&format!("{mode}: the origin"), &world.files[&volume], &expected);
        assert_bytes(&format!("{mode}: what the origin has synced"), &world.durable[&volume], &expected);
        assert!(world.stamps.is_empty(), "{mode}: its times were set");
        assert!(world.cuts.is_empty(), "{mode}: it was cut, or made longer");
        assert!(world.asked.is_empty(), "{mode}: the origin was asked for space");
        assert_eq!(world.engine.stats().dirty_blocks, 0, "{mode}");
        assert!(matches!(world.ask(Request::Close { object: volume }), Reply::Done));
        assert!(matches!(world.ask(Request::Stop), Reply::Done), "{mode}");
        if recover(&mut world.flash, POOL).unwrap().objects().is_empty() {
            assert!(!matches!(mode, CacheMode::WriteBack), "{mode}: what was written through the log is cached");
        } else {
            assert_eq!(verdict(&world.flash, Some(LEFT)).0, Verdict::Kept, "{mode}");
        }
    }
}

#[test]
fn what_was_synced_survives_a_crash_and_goes_to_the_origin_later() {
    let (mut world, volume) = world(CacheMode::WriteBack);
    let expected = use_it(&mut world, volume);
    assert!(matches!(world.ask(Request::sync(volume)), Reply::Done));
    assert!(world.files[&volume].iter().all(|byte| *byte == OLD), "nothing is at the origin yet");
    assert!(world.synced.is_empty(), "and nothing asked it to sync: a volume has no name that could be lost");

    assert_eq!(start_again(&mut world, LEFT, Config::default()), Verdict::Kept);
    let again = open(&mut world, LEFT).unwrap();
    assert_eq!(again, volume);
    assert_bytes("read after the crash", &world.read(volume, 0, BYTES as u32), &expected);
    assert!(matches!(world.ask(Request::flush_all(1)), Reply::Done));
    assert_bytes("the origin", &world.files[&volume], &expected);
}

#[test]
fn dirty_data_of_a_volume_that_others_changed_is_a_conflict_and_clean_data_is_dropped() {
    let others = [found(BYTES as u64, 4), found(2 * BYTES as u64, 3)];
    let (mut world, volume) = world(CacheMode::WriteBack);
    world.write(volume, 0, &[1; 8192]);
    assert!(matches!(world.ask(Request::sync(volume)), Reply::Done));
    for other in others {
        let (verdict, blocks) = verdict(&world.flash, Some(other));
        assert!(matches!(verdict, Verdict::Conflict(_)), "{verdict:?}");
        assert_eq!(blocks, 2, "nothing is dropped before somebody has decided");
    }
    assert!(matches!(verdict(&world.flash, None).0, Verdict::Conflict(_)), "its door does not know of it any more");
    assert!(matches!(world.ask(Request::flush_all(1)), Reply::Done));
    assert!(matches!(world.ask(Request::SyncAll), Reply::Done));
    assert_eq!(verdict(&world.flash, Some(LEFT)), (Verdict::Kept, 2));
    for other in others {
        assert_eq!(verdict(&world.flash, Some(other)), (Verdict::Dropped, 0));
    }
    assert_eq!(verdict(&world.flash, None).0, Verdict::Forgotten);
}

/// Of a file the stamp proves nothing while destage works there. A volume's witness is not moved by that.
#[test]
fn a_change_by_others_shows_also_where_a_crash_came_in_the_midst_of_destage() {
    let (mut world, volume) = world(CacheMode::WriteBack);
    world.write(volume, 0, &[1; 8192]);
    world.hold_syncs = true;
    world.begin(Request::flush_all(1));
    assert_eq!(world.held_syncs.len(), 1, "destage waits for the origin");
    assert_eq!(verdict(&world.flash, Some(LEFT)), (Verdict::Kept, 2));
    assert!(matches!(verdict(&world.flash, Some(found(BYTES as u64, 4))).0, Verdict::Conflict(_)));
}

/// What went past the log and was not synced: a loss of power may take it back at the origin, and the pool may have it
/// still.
#[test]
fn what_the_pool_has_of_a_volume_written_past_the_log_counts_only_while_the_origin_stands() {
    let config = Config { policy: Policy::Lru, ..Config::default() };
    let mut world = World::new(config);
    let mut recovered = recover(&mut world.flash, POOL).unwrap();
    recovered.booted([1; 16]);
    world.engine = recovered.into_engine(config, headpond_base::Nanos(world.now));
    world.run();
    let volume = open(&mut world, LEFT).unwrap();
    world.write(volume, 65_536, &[1; 8192]);
    assert!(matches!(world.ask(Request::flush_all(1)), Reply::Done));
    assert!(matches!(world.ask(Request::SetMode(CacheMode::WriteThrough)), Reply::Done));
    world.hold_syncs = true;
    world.write(volume, 0, &[1; 4096]);
    // The log is synced first.
    world.begin(Request::SyncAll);
    assert!(!world.held_syncs.is_empty(), "the origin is asked to sync it, and does not answer");
    let after = |boot: u8| {
        let mut recovered = recover(&mut Memory(world.flash.0.clone()), POOL).unwrap();
        recovered.booted([boot; 16]);
        assert_eq!(recovered.blocks(volume).count(), 2, "the pool has copies of the first write");
        let verdict = recovered.reconcile(volume, Some(&LEFT.into()));
        (verdict, recovered.blocks(volume).count())
    };
    assert_eq!(after(1), (Verdict::Kept, 2), "the boot of the last use");
    assert_eq!(after(2), (Verdict::Dropped, 0), "another one");
}

#[test]
fn a_volume_keeps_its_size_and_whatever_only_files_have_is_refused() {
    for mode in [CacheMode::WriteBack, CacheMode::WriteThrough] {
        let (mut world, volume) = world(mode);
        let (mtime, end) = (UnixNanos(9), BYTES as u64);
        let stamp = Stamp::default();
        let (from, to) = (b"a".to_vec(), b"b".to_vec());
        let rename = |moved, replaced| {
            Request::Namespace(Namespace::Rename {
                moved,
                replaced,
                from: from.clone(),
                to: to.clone(),
                exchange: false,
            })
        };
        for request in [
            Request::Truncate { object: volume, size: 0, mtime },
            Request::Truncate { object: volume, size: 2 * end, mtime },
            Request::Allocate { object: volume, offset: 0, len: 4096, extend: false, mtime, user: 0 },
            Request::SetMtime { object: volume, mtime, ctime: mtime },
            Request::Restamp { object: volume, stamp, seen: true },
            Request::StatusBegins { object: volume },
            Request::StatusEnds { object: volume, stamp: Some(stamp) },
            Request::Namespace(Namespace::Unlink { object: volume }),
            rename(Some(volume), None),
            rename(None, Some(volume)),
        ] {
            let shown = format!("{request:?}");
            let reply = world.ask(request);
            assert!(matches!(reply, Reply::Failed(Errno::OPNOTSUPP)), "{mode}, {shown}: {reply:?}");
        }
        let data = headpond_base::BufMut::copy_of(&[1; 1024]).freeze();
        let (how, durable) = (Treatment::default(), false);
        for request in [
            Request::Write { object: volume, offset: end - 512, data: data.clone(), mtime, durable, how },
            Request::WriteTogether {
                object: volume,
                pieces: vec![(0, data.clone()), (end, data)],
                mtime,
                durable,
                how,
            },
            zero(volume, end - 512, 1024),
            Request::Zero { object: volume, offset: 0, len: 2 * end, extend: true, mtime },
        ] {
            let shown = format!("{request:?}");
            let reply = world.ask(request);
            assert!(matches!(reply, Reply::Failed(Errno::NOSPC)), "{mode}, {shown}: {reply:?}");
        }
        assert_bytes("nothing of all that", &world.read(volume, 0, BYTES as u32), &[OLD; BYTES]);
        assert!(matches!(world.ask(Request::flush_all(1)), Reply::Done));
        assert!(world.cuts.is_empty() && world.stamps.is_empty());
    }
}

/// A write that fails makes a file's size unknown, and destage sets that right. A volume's cannot be.
#[test]
fn writes_that_the_origin_refuses_leave_the_size_of_a_volume_alone() {
    for mode in [CacheMode::WriteBack, CacheMode::WriteThrough] {
        let (mut world, volume) = world(mode);
        world.refuse_writes = 1;
        let data = headpond_base::BufMut::copy_of(&[1; 8192]).freeze();
        let how = Treatment { handling: Handling::Cache, ..Treatment::default() };
        let write = Request::Write { object: volume, offset: 0, data, mtime: UnixNanos(9), durable: false, how };
        let refused = matches!(world.ask(write.clone()), Reply::Failed(Errno::IO));
        assert_eq!(refused, mode == CacheMode::WriteThrough);
        world.sleep(120_000);
        assert!(matches!(world.ask(write), Reply::Changed(_)));
        assert!(matches!(world.ask(Request::flush_all(1)), Reply::Done));
        assert_bytes("the origin", &world.files[&volume][..8192], &[1; 8192]);
        assert!(world.cuts.is_empty() && world.stamps.is_empty(), "{mode}");
        assert_eq!(world.files[&volume].len(), BYTES);
    }
}

#[test]
fn a_volume_that_its_owner_made_larger_is_opened_once_nothing_here_would_go_over_that() {
    let (mut world, volume) = world(CacheMode::WriteBack);
    let larger = found(2 * BYTES as u64, 3);
    world.write(volume, 0, &[1; 8192]);
    assert_eq!(open(&mut world, larger), Err(Errno::STALE), "it is open, and dirty");
    assert!(matches!(world.ask(Request::Close { object: volume }), Reply::Done));
    assert_eq!(open(&mut world, larger), Err(Errno::STALE), "it is dirty");
    assert!(matches!(world.ask(Request::flush_all(1)), Reply::Done));
    world.files.get_mut(&volume).unwrap().resize(2 * BYTES, 8);
    assert_eq!(open(&mut world, larger), Ok(volume));
    assert_eq!(world.read(volume, 0, 4096), [1; 4096], "as the origin has it");
    world.write(volume, 2 * BYTES as u64 - 4096, &[5; 4096]);
    assert!(matches!(world.ask(Request::sync(volume)), Reply::Done));
    assert_eq!(verdict(&world.flash, Some(larger)).0, Verdict::Kept);
}

#[test]
fn what_an_operator_keeps_of_a_volume_that_was_made_shorter_ends_where_that_ends() {
    let (mut world, volume) = world(CacheMode::WriteBack);
    world.write(volume, 0, &[1; 8192]);
    world.write(volume, BYTES as u64 - 8192, &[2; 8192]);
    assert!(matches!(world.ask(Request::sync(volume)), Reply::Done));
    let shorter = found(BYTES as u64 / 2, 3);
    let mut recovered = recover(&mut world.flash, POOL).unwrap();
    assert!(matches!(recovered.reconcile(volume, Some(&shorter.into())), Verdict::Conflict(_)));
    recovered.keep(volume, &shorter.into());
    world.files.get_mut(&volume).unwrap().truncate(BYTES / 2);
    world.engine = recovered.into_engine(Config::default(), headpond_base::Nanos(world.now));
    world.run();
    assert_eq!(open(&mut world, shorter), Ok(volume));
    assert!(matches!(world.ask(Request::flush_all(1)), Reply::Done));
    assert_bytes("the origin", &world.files[&volume][..8192], &[1; 8192]);
    assert_eq!(world.files[&volume].len(), BYTES / 2, "nothing was written behind its end");
}

/// A volume's name and a file's inode number are different things, and renames of directories are none of a volume's.
#[test]
fn volumes_and_files_lie_side_by_side() {
    let (mut world, volume) = world(CacheMode::WriteBack);
    let file = world.open(1, &[9; 8192]);
    assert_ne!(file, volume);
    world.write(volume, 0, &[1; 4096]);
    world.write(file, 0, &[2; 4096]);
    assert!(matches!(world.ask(Request::SyncAll), Reply::Done));
    let mut recovered = recover(&mut Memory(world.flash.0.clone()), POOL).unwrap();
    let stamp = Stamp { size: 8192, ..Stamp::default() };
    let seen = OpenFile { inode: 1, birth: UnixNanos(0), path: b"f".to_vec(), stamp, created: false, allocated: 0 };
    assert_eq!(recovered.reconcile(file, Some(&seen.clone().into())), Verdict::Kept);
    assert!(
        matches!(recovered.reconcile(volume, Some(&seen.into())), Verdict::Conflict(_)),
        "a file is no volume, whatever it looks like"
    );
}

/// A batch with such an object is whole. A recovery that took it for torn would drop synced data.
#[test]
fn a_pool_whose_log_has_an_object_of_an_unknown_kind_is_refused_with_what_to_do() {
    const KIND: usize = 56 + 54;
    let (mut world, volume) = world(CacheMode::WriteBack);
    world.write(volume, 0, &[1; 4096]);
    assert!(matches!(world.ask(Request::sync(volume)), Reply::Done));
    let mut forged = 0;
    for block in world.flash.0.chunks_exact_mut(headpond_base::BLOCK) {
        let Ok((head, entries)) = decode_batch(block) else { continue };
        let mut entries = entries.to_vec();
        if entries.first() == Some(&1) {
            entries[KIND] = 9;
            encode_batch(&head, &entries, block);
            forged += 1;
        }
    }
    assert_eq!(forged, 1);
    let refused = recover(&mut world.flash, POOL).err().unwrap();
    assert!(matches!(refused, RecoverError::Damaged { damage: Damage::Unsupported(..), .. }), "{refused}");
    let said = refused.to_string();
    assert!(said.contains("Use the headpond that wrote it") && !said.contains("damaged"), "{said}");
}
