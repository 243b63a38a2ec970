//! Another kernel tells when a file was born where the one before did not, or does not where that one did: NFS, ZFS, a
//! copy that another host goes on with. What is dirty was refused as missing at the origin, and the operator could only drop it.

#![allow(clippy::unwrap_used)] // helpers outside of #[test] functions are tests, too

mod world;

use headpond_base::{CacheMode, Nanos, ObjectId, UnixNanos};
use headpond_engine::{Config, Namespace, OpenFile, Recovered, Reply, Request, Verdict, recover};
use headpond_format::{FileIdentity, Identity, Stamp};
use world::{Memory, POOL, World};

const LEFT: Stamp = Stamp { size: 4096, mtime: UnixNanos(50), ctime: UnixNanos(50) };

fn config() -> Config {
    Config { mode: CacheMode::WriteBack, flush_period: Config::OFF, dirty_threshold: 0, ..Config::default() }
}

fn file(birth: i64) -> OpenFile {
    OpenFile { inode: 1, birth: UnixNanos(birth), path: b"f".to_vec(), stamp: LEFT, created: false, allocated: 1 << 20 }
}

/// A pool with a dirty file that was born then.
fn dirty(birth: i64) -> (World, ObjectId) {
    let mut world = World::new(config());
    let Reply::Opened { object, .. } = world.ask(Request::Open(file(birth).into())) else { panic!("not opened") };
    world.files.insert(object, vec![1; 4096]);
    world.write(object, 0, &[7; 4096]);
    assert!(matches!(world.ask(Request::sync(object)), Reply::Done));
    (world, object)
}

fn start(world: &World) -> Recovered {
    recover(&mut Memory(world.flash.0.clone()), POOL).unwrap()
}

fn identity(recovered: &Recovered) -> Identity {
    let [object] = &recovered.objects()[..] else { panic!("one object") };
    object.state.identity
}

#[test]
fn a_dirty_file_is_itself_although_it_tells_its_birth_only_now_or_no_more() {
    for (before, now) in [(0, 5), (5, 0)] {
        let (mut world, object) = dirty(before);
        let mut recovered = start(&world);
        assert_eq!(recovered.reconcile(object, Some(&file(now).into())), Verdict::Kept);
        let known = Identity::File(FileIdentity { inode: 1, birth: UnixNanos(now) });
        assert_eq!(identity(&recovered), known);
        // From now on it is known by what the origin tells now: to who opens it, and to the next start.
        world.engine = recovered.into_engine(config(), Nanos(world.now));
        world.run();
        let Reply::Opened { object: opened, .. } = world.ask(Request::Open(file(now).into())) else {
            panic!("not opened")
        };
        assert_eq!(opened, object);
        assert_eq!(world.read(object, 0, 4096), [7; 4096]);
        let again = start(&world);
        assert_eq!(identity(&again), known);
    }
}

/// headpond was writing at the origin when it was stopped, so the file's times say nothing.
#[test]
fn after_a_crash_in_the_midst_of_destage_a_file_is_itself_and_a_removed_one_is_not_believed() {
    for (before, now, removed) in [(0, 5, false), (5, 0, false), (5, 0, true)] {
        let mut world = World::new(config());
        // The engine asks the origin for its space, which may move the times.
        let there = OpenFile { allocated: 0, ..file(before) };
        let Reply::Opened { object, .. } = world.ask(Request::Open(there.into())) else { panic!("not opened") };
        world.files.insert(object, vec![1; 4096]);
        world.write(object, 0, &[7; 4096]);
        assert!(matches!(world.ask(Request::sync(object)), Reply::Done));
        if removed {
            assert!(matches!(world.ask(Request::Namespace(Namespace::Unlink { object })), Reply::Done));
            assert!(matches!(world.ask(Request::SyncAll), Reply::Done));
        }
        let found = OpenFile { stamp: Stamp { mtime: UnixNanos(51), ..LEFT }, ..file(now) };
        let verdict = start(&world).reconcile(object, Some(&found.into()));
        assert_eq!(verdict == Verdict::Kept, !removed, "{before}, {now}, {removed}: {verdict:?}");
    }
}

#[test]
fn another_file_with_its_number_or_its_birth_is_not_taken_for_it() {
    for (before, found) in [(5, file(6)), (0, OpenFile { inode: 2, ..file(5) })] {
        let (world, object) = dirty(before);
        let mut recovered = start(&world);
        let missing = recovered.reconcile(object, None);
        assert_eq!(start(&world).reconcile(object, Some(&found.clone().into())), missing, "{before}, {found:?}");
        assert_ne!(missing, Verdict::Kept);
    }
}

#[test]
fn a_file_that_was_changed_meanwhile_is_a_conflict_whether_it_tells_its_birth_or_not() {
    let longer = Stamp { size: 4097, ..LEFT };
    let touched = Stamp { mtime: UnixNanos(51), ..LEFT };
    for (before, now, stamp) in [(0, 5, longer), (5, 0, touched)] {
        let (world, object) = dirty(before);
        let verdict = start(&world).reconcile(object, Some(&OpenFile { stamp, ..file(now) }.into()));
        let Verdict::Conflict(conflict) = &verdict else { panic!("{before}, {now}: {verdict:?}") };
        assert!(conflict.found.is_some(), "it is there: {verdict:?}");
    }
}
