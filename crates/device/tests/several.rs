//! One reactor drives several disks: operations and their ends name the disk, and no disk waits for another.
#![allow(clippy::unwrap_used)]

mod of_several;

use std::time::Duration;

use headpond_base::{BLOCK, BLOCK_U64, Errno, MemberId};
use headpond_device::{
    Backend, Completion, DiskOp, End, Fault, FaultPlan, Faults, Fill, Flash, MemoryDisks, MemoryImage, OpKind, Reactor,
    Tag, TrimPolicy, Withhold, start_reactor,
};

use self::of_several::{block, wait_for};

/// As in a pool that once had others: names need not follow each other.
const SMALL: MemberId = MemberId(2);
const LARGE: MemberId = MemberId(7);
const SMALL_BYTES: u64 = 1 << 20;
const LARGE_BYTES: u64 = 4 << 20;

type Made = (Box<dyn Reactor>, Option<tempfile::TempDir>);

fn on_files(backend: Backend) -> Made {
    let dir = tempfile::tempdir().unwrap();
    let flash = |name: &str, bytes| Flash::create(&dir.path().join(name), bytes, Fill::Reserved).unwrap();
    let flashes = vec![(SMALL, flash("small", SMALL_BYTES)), (LARGE, flash("large", LARGE_BYTES))];
    (start_reactor(flashes, backend, TrimPolicy::All).unwrap(), Some(dir))
}

fn in_memory() -> MemoryDisks {
    let image = |bytes: u64| MemoryImage::zeroed(bytes as usize);
    MemoryDisks::on(vec![(SMALL, image(SMALL_BYTES)), (LARGE, image(LARGE_BYTES))])
}

type Row = (&'static str, fn() -> Made);

fn table() -> Vec<Row> {
    vec![
        ("memory", || (Box::new(in_memory()), None)),
        ("psync", || on_files(Backend::Psync)),
        ("uring", || on_files(Backend::Uring)),
        ("uring, one disk withholds", || {
            let (reactor, dir) = on_files(Backend::Uring);
            let plan = FaultPlan { withhold: Some(Withhold::default()), ..FaultPlan::default() };
            (Box::new(Faults::new(reactor, SMALL, plan)), dir)
        }),
    ]
}

fn read(reactor: &mut dyn Reactor, disk: MemberId, at: u64) -> Vec<u8> {
    reactor.submit(disk, DiskOp::Read { tag: Tag(1), offset: at * BLOCK_U64, len: BLOCK });
    match wait_for(reactor, 1).remove(0) {
        Completion { disk: of, end: End::Read(Ok(bytes)), .. } if of == disk => bytes.to_vec(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_same_place_and_the_same_tag_of_two_disks_are_two_places_and_two_operations() {
    for (name, make) in table() {
        let (mut reactor, _dir) = make();
        assert_eq!([SMALL, LARGE].map(|disk| reactor.bytes(disk)), [SMALL_BYTES, LARGE_BYTES], "{name}");
        for (disk, byte) in [(SMALL, 1), (LARGE, 2)] {
            reactor.submit(disk, DiskOp::Write { tag: Tag(5), offset: 0, data: block(byte) });
        }
        let mut ended: Vec<_> = wait_for(&mut *reactor, 2).iter().map(|done| (done.disk, done.tag)).collect();
        ended.sort_unstable();
        assert_eq!(ended, [(SMALL, Tag(5)), (LARGE, Tag(5))], "{name}");
        for disk in [SMALL, LARGE] {
            reactor.submit(disk, DiskOp::Sync { tag: Tag(6) });
        }
        assert!(wait_for(&mut *reactor, 2).iter().all(|done| matches!(done.end, End::Sync(Ok(())))), "{name}");
        assert_eq!(read(&mut *reactor, SMALL, 0), [1; BLOCK], "{name}");
        assert_eq!(read(&mut *reactor, LARGE, 0), [2; BLOCK], "{name}");
    }
}

#[test]
fn each_disk_has_its_own_end_and_a_disk_that_there_is_not_fails_by_itself() {
    for (name, make) in table() {
        let (mut reactor, _dir) = make();
        reactor.submit(SMALL, DiskOp::Write { tag: Tag(1), offset: SMALL_BYTES, data: block(1) });
        reactor.submit(LARGE, DiskOp::Write { tag: Tag(2), offset: SMALL_BYTES, data: block(2) });
        reactor.submit(MemberId(3), DiskOp::Sync { tag: Tag(3) });
        reactor.submit(MemberId(3), DiskOp::Trim { offset: 0, len: BLOCK_U64 });
        for done in wait_for(&mut *reactor, 3) {
            match (done.disk, done.tag, done.end) {
                (SMALL, Tag(1), End::Write(Err(Errno::INVAL))) | (LARGE, Tag(2), End::Write(Ok(()))) => {}
                (MemberId(3), Tag(3), End::Sync(Err(Errno::NXIO))) => {}
                other => panic!("{name}: {other:?}"),
            }
        }
        assert_eq!(reactor.bytes(MemberId(3)), 0);
    }
}

#[test]
fn more_at_once_than_any_depth_on_both_disks_all_ends_once() {
    for (name, make) in table() {
        let (mut reactor, _dir) = make();
        let mut count = 0;
        for tag in 0..1000 {
            for (disk, bytes) in [(SMALL, SMALL_BYTES), (LARGE, LARGE_BYTES)] {
                let offset = tag * BLOCK_U64 % bytes;
                reactor.submit(disk, DiskOp::Read { tag: Tag(tag), offset, len: BLOCK });
                count += 1;
            }
        }
        let done = wait_for(&mut *reactor, count);
        let ended: std::collections::HashSet<_> = done.iter().map(|done| (done.disk, done.tag)).collect();
        assert_eq!(ended.len(), count, "{name}");
    }
}

#[test]
fn a_trim_of_one_disk_holds_back_no_write_of_another() {
    for (name, make) in table() {
        let (mut reactor, _dir) = make();
        for version in 0..20 {
            reactor.submit(LARGE, DiskOp::Trim { offset: 0, len: LARGE_BYTES });
            reactor.submit(SMALL, DiskOp::Write { tag: Tag(1), offset: 0, data: block(version) });
            reactor.submit(LARGE, DiskOp::Write { tag: Tag(1), offset: 0, data: block(version + 100) });
            wait_for(&mut *reactor, 2);
            assert_eq!(read(&mut *reactor, SMALL, 0), [version; BLOCK], "{name}");
            assert_eq!(read(&mut *reactor, LARGE, 0), [version + 100; BLOCK], "{name}");
        }
    }
}

#[test]
fn a_disk_that_fails_or_is_slow_leaves_the_others_as_they_are() {
    let fail = Fault { kind: OpKind::Write, first: 0, count: u64::MAX, errno: Errno::NOSPC };
    let plan = FaultPlan { faults: vec![fail], delay: Duration::from_secs(3600), ..FaultPlan::default() };
    let mut reactor = Faults::new(in_memory(), SMALL, plan);
    let handle = reactor.handle();
    // It will not be told within the hour; the other disk's end comes all the same.
    reactor.submit(SMALL, DiskOp::Write { tag: Tag(1), offset: 0, data: block(1) });
    reactor.submit(LARGE, DiskOp::Write { tag: Tag(2), offset: 0, data: block(2) });
    let done = wait_for(&mut reactor, 1);
    assert!(matches!(&done[..], [Completion { disk: LARGE, tag: Tag(2), end: End::Write(Ok(())) }]), "{done:?}");
    handle.cut();
    assert_eq!(read(&mut reactor, LARGE, 0), [2; BLOCK]);
    assert_eq!(handle.count(OpKind::Write), 1, "what the other disk does is not this one's");
}

#[test]
fn two_disks_may_each_have_faults_of_their_own() {
    let plan =
        |kind| FaultPlan { faults: vec![Fault { kind, first: 0, count: 1, errno: Errno::IO }], ..FaultPlan::default() };
    let mut reactor = Faults::new(Faults::new(in_memory(), SMALL, plan(OpKind::Read)), LARGE, plan(OpKind::Sync));
    for disk in [SMALL, LARGE] {
        reactor.submit(disk, DiskOp::Read { tag: Tag(1), offset: 0, len: BLOCK });
        reactor.submit(disk, DiskOp::Sync { tag: Tag(2) });
    }
    let failed = |done: &Completion| matches!(done.end, End::Read(Err(_)) | End::Write(Err(_)) | End::Sync(Err(_)));
    let mut failed: Vec<_> =
        wait_for(&mut reactor, 4).iter().filter(|done| failed(done)).map(|done| (done.disk, done.tag)).collect();
    failed.sort_unstable();
    assert_eq!(failed, [(SMALL, Tag(1)), (LARGE, Tag(2))]);
}
