//! Disks that join a reactor, and leave it, while it runs.
#![allow(clippy::unwrap_used)]

mod of_several;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use headpond_base::{BLOCK, BLOCK_U64, Errno, MemberId};
use headpond_device::{
    Backend, DiskOp, End, FaultPlan, Faults, Fill, Flash, FlashError, Reactor, Tag, TrimPolicy, Withhold, start_reactor,
};
use tempfile::TempDir;

use self::of_several::{block, wait_for};

const FIRST: MemberId = MemberId(0);
const SECOND: MemberId = MemberId(1);
const BYTES: u64 = 1 << 20;

fn make(dir: &TempDir, name: &str) -> Flash {
    Flash::create(&dir.path().join(name), BYTES, Fill::Reserved).unwrap()
}

/// A reactor with the first disk, for each backend and for a disk that withholds.
fn table() -> Vec<(&'static str, Box<dyn Reactor>, TempDir)> {
    let start = |backend| {
        let dir = tempfile::tempdir().unwrap();
        (start_reactor(vec![(FIRST, make(&dir, "first"))], backend, TrimPolicy::All).unwrap(), dir)
    };
    let (psync, one) = start(Backend::Psync);
    let (uring, two) = start(Backend::Uring);
    let (below, three) = start(Backend::Uring);
    let plan = FaultPlan { withhold: Some(Withhold::default()), ..FaultPlan::default() };
    let layers = Faults::new(Faults::new(below, FIRST, plan.clone()), SECOND, plan);
    vec![("psync", psync, one), ("uring", uring, two), ("both withhold", Box::new(layers), three)]
}

fn write(reactor: &mut dyn Reactor, disk: MemberId, at: u64, byte: u8) -> End {
    reactor.submit(disk, DiskOp::Write { tag: Tag(9), offset: at * BLOCK_U64, data: block(byte) });
    wait_for(reactor, 1).remove(0).end
}

fn read(reactor: &mut dyn Reactor, disk: MemberId, at: u64) -> Vec<u8> {
    reactor.submit(disk, DiskOp::Read { tag: Tag(9), offset: at * BLOCK_U64, len: BLOCK });
    match wait_for(reactor, 1).remove(0).end {
        End::Read(Ok(bytes)) => bytes.to_vec(),
        other => panic!("{other:?}"),
    }
}

/// Opens a flash once its last user has let go of it.
fn open_again(path: &Path, reactor: &mut dyn Reactor) -> Flash {
    for _ in 0..3000 {
        match Flash::open(path) {
            Err(FlashError::InUse(_)) => reactor.wait(&mut Vec::new(), Some(Duration::from_millis(10))).unwrap(),
            opened => return opened.unwrap(),
        }
    }
    panic!("{} stays locked", path.display());
}

#[test]
fn a_disk_joins_while_the_first_one_is_busy_and_both_serve() {
    for (name, mut reactor, dir) in table() {
        // More than the backends carry out at once: the first disk has every slot, or every thread.
        for tag in 0..600 {
            reactor.submit(FIRST, DiskOp::Read { tag: Tag(tag), offset: tag % 256 * BLOCK_U64, len: BLOCK });
        }
        let mut done = Vec::new();
        reactor.wait(&mut done, Some(Duration::ZERO)).unwrap();
        reactor.add(SECOND, make(&dir, "second")).unwrap();
        assert_eq!(reactor.add(SECOND, make(&dir, "third")), Err(Errno::EXIST), "{name}");
        for tag in 0..600 {
            reactor.submit(SECOND, DiskOp::Write { tag: Tag(tag), offset: tag % 256 * BLOCK_U64, data: block(2) });
        }
        while done.len() < 1200 {
            reactor.wait(&mut done, Some(Duration::from_secs(30))).unwrap();
        }
        let ended: BTreeSet<_> = done.iter().map(|one| (one.disk, one.tag)).collect();
        assert_eq!(ended.len(), 1200, "{name}");
        assert_eq!(read(&mut *reactor, SECOND, 7), [2; BLOCK], "{name}");
        assert_eq!(reactor.bytes(SECOND), BYTES, "{name}");
    }
}

#[test]
fn what_a_removed_disk_had_under_way_ends_once_and_the_other_goes_on() {
    for (name, mut reactor, dir) in table() {
        reactor.add(SECOND, make(&dir, "second")).unwrap();
        assert!(matches!(write(&mut *reactor, SECOND, 3, 7), End::Write(Ok(()))), "{name}");
        let mut done = Vec::new();
        for tag in 0..300 {
            reactor.submit(FIRST, DiskOp::Write { tag: Tag(tag), offset: tag % 256 * BLOCK_U64, data: block(1) });
            reactor.submit(SECOND, DiskOp::Write { tag: Tag(tag), offset: 0, data: block(2) });
            if tag == 150 {
                reactor.wait(&mut done, Some(Duration::ZERO)).unwrap();
            }
        }
        reactor.submit(FIRST, DiskOp::Sync { tag: Tag(300) });
        reactor.submit(FIRST, DiskOp::Trim { offset: 0, len: BYTES });
        reactor.remove(FIRST);
        while done.len() < 601 {
            reactor.wait(&mut done, Some(Duration::from_secs(30))).unwrap();
        }
        let ended: BTreeSet<_> = done.iter().map(|one| (one.disk, one.tag)).collect();
        assert_eq!((ended.len(), done.len()), (601, 601), "{name}: each once");
        assert!(done.iter().all(|one| one.disk == FIRST || matches!(one.end, End::Write(Ok(())))), "{name}");
        assert!(matches!(write(&mut *reactor, FIRST, 0, 1), End::Write(Err(Errno::NXIO))), "{name}");
        assert_eq!(reactor.bytes(FIRST), 0, "{name}");
        assert_eq!(read(&mut *reactor, SECOND, 3), [7; BLOCK], "{name}");
        let mut late = Vec::new();
        reactor.wait(&mut late, Some(Duration::ZERO)).unwrap();
        assert!(late.is_empty(), "{name}: {late:?}");
    }
}

#[test]
fn a_removed_disk_is_free_for_others_and_its_place_is_not_the_next_ones() {
    for (name, mut reactor, dir) in table() {
        reactor.add(SECOND, make(&dir, "second")).unwrap();
        reactor.submit(FIRST, DiskOp::Read { tag: Tag(1), offset: 0, len: BLOCK });
        reactor.remove(FIRST);
        assert_eq!(wait_for(&mut *reactor, 1)[0].disk, FIRST, "{name}");
        drop(open_again(&dir.path().join("first"), &mut *reactor));
        reactor.add(MemberId(2), make(&dir, "third")).unwrap();
        for (disk, byte) in [(SECOND, 4), (MemberId(2), 5)] {
            assert!(matches!(write(&mut *reactor, disk, 1, byte), End::Write(Ok(()))), "{name}");
        }
        reactor.submit(SECOND, DiskOp::Sync { tag: Tag(1) });
        wait_for(&mut *reactor, 1);
        assert_eq!(read(&mut *reactor, SECOND, 1), [4; BLOCK], "{name}");
        assert_eq!(read(&mut *reactor, MemberId(2), 1), [5; BLOCK], "{name}");
    }
}

#[test]
fn a_disk_that_grew_takes_writes_behind_its_old_end_once_it_is_measured() {
    for (name, mut reactor, dir) in table() {
        let end = BYTES / BLOCK_U64;
        assert!(matches!(write(&mut *reactor, FIRST, end, 1), End::Write(Err(Errno::INVAL))), "{name}");
        let file = std::fs::File::options().write(true).open(dir.path().join("first")).unwrap();
        file.set_len(2 * BYTES).unwrap();
        assert_eq!(reactor.measure(FIRST), Ok(2 * BYTES), "{name}");
        assert!(matches!(write(&mut *reactor, FIRST, end, 1), End::Write(Ok(()))), "{name}");
        assert_eq!(reactor.measure(SECOND), Err(Errno::NXIO), "{name}");
    }
}
