//! Origins: files as they are, and the same behind a modelled disk.
#![allow(clippy::unwrap_used)]

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

use headpond_base::{Buf, BufMut, Errno, ObjectId, UnixNanos};
use headpond_modelled::{DiskModel, ModelDisk, Spindle};
use headpond_shard::{FileOrigin, Gate, LookResult, Origin, OriginClaim};

const A: ObjectId = ObjectId(1);
const B: ObjectId = ObjectId(2);

/// A disk in a hurry: the same code, a thousandth of the time.
const QUICK: Spindle = Spindle {
    overhead: 100.0,
    a: 200.0,
    b: 3_000.0,
    c: 3_000.0,
    revolution: 4_000.0,
    outer_rate: 200e9,
    inner_rate: 100e9,
};

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

fn buf(bytes: &[u8]) -> Buf {
    BufMut::copy_of(bytes).freeze()
}

/// Every origin that there is, below a directory.
fn origins(dir: &Path) -> Vec<Box<dyn Origin>> {
    let below = || FileOrigin::below(File::open(dir).unwrap().into()).unwrap();
    let (hurry, cloud) = (DiskModel::Spindle(QUICK), "cloud".parse().unwrap());
    vec![
        Box::new(FileOrigin::new()),
        Box::new(below()),
        Box::new(ModelDisk::new(FileOrigin::new(), hurry, 1)),
        Box::new(ModelDisk::new(below(), cloud, 1)),
    ]
}

#[test]
fn what_is_written_is_read_and_the_file_ends_where_it_should() {
    let dir = tempfile::tempdir().unwrap();
    for origin in origins(dir.path()) {
        let path = dir.path().join("file");
        let _ = std::fs::remove_file(&path);
        origin.attach(A, open(&path));
        origin.write(A, 10, &[buf(b"one"), buf(b""), buf(b"two"), buf(&[7; 5000])], 0, true).unwrap();
        let many: Vec<_> = (0..3000u32).map(|number| buf(&number.to_le_bytes())).collect();
        origin.write(A, 10_000, &many, 0, true).unwrap();
        origin.write(A, 0, &[], 0, true).unwrap();
        assert_eq!(origin.read(A, 10, 8).unwrap()[..], *b"onetwo\x07\x07");
        assert_eq!(origin.read(A, 10_000 + 4 * 2999, 100).unwrap()[..], 2999u32.to_le_bytes());
        assert!(origin.read(A, 1 << 30, 100).unwrap().is_empty());
        origin.sync(A).unwrap();
        origin.resize(A, 12).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"\0\0\0\0\0\0\0\0\0\0on");
        origin.resize(A, 20).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 20);
    }
}

#[test]
fn zeros_and_reservations_never_change_the_size() {
    let dir = tempfile::tempdir().unwrap();
    for origin in origins(dir.path()) {
        let path = dir.path().join("file");
        std::fs::write(&path, vec![7; 100_000]).unwrap();
        origin.attach(A, open(&path));
        origin.zero(A, 100, 50_000, false).unwrap();
        origin.zero(A, 90_000, 1 << 20, false).unwrap();
        origin.zero(A, 200_000, 10, false).unwrap();
        origin.reserve(A, &[(0, 1 << 20)], 0, false).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let zeros = |range: std::ops::Range<usize>| bytes[range].iter().all(|byte| *byte == 0);
        assert_eq!(bytes.len(), 100_000);
        assert!(zeros(100..50_100) && zeros(90_000..100_000) && bytes[99] == 7 && bytes[50_100] == 7);
        assert!(std::fs::metadata(&path).unwrap().blocks() * 512 >= 1 << 20);
        let huge = origin.reserve(A, &[(0, 1 << 45)], 0, false);
        assert!(matches!(huge, Err(Errno::NOSPC | Errno::FBIG)), "{huge:?}");
        assert_eq!(origin.seek(A, 0, true), Ok(0));
        assert_eq!(origin.seek(A, 100_000, true), Err(Errno::NXIO));
        std::fs::remove_file(&path).unwrap();
        drop(origin.release(A));
    }
}

#[test]
fn a_stamp_is_the_time_that_was_set_and_what_the_file_says() {
    let dir = tempfile::tempdir().unwrap();
    for origin in origins(dir.path()) {
        let path = dir.path().join("file");
        std::fs::write(&path, b"12345").unwrap();
        origin.attach(A, open(&path));
        for time in [1_700_000_000_123_456_789, -1_500_000_000] {
            let stamp = origin.stamp(A, UnixNanos(time)).unwrap();
            let metadata = std::fs::metadata(&path).unwrap();
            assert_eq!((stamp.size, stamp.mtime), (5, UnixNanos(time)));
            assert_eq!(stamp.ctime.0, metadata.ctime() * 1_000_000_000 + metadata.ctime_nsec());
        }
    }
}

#[test]
fn a_file_for_reading_gives_way_to_one_for_writing_and_to_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    for origin in origins(dir.path()) {
        let file = |name: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, name).unwrap();
            path
        };
        let (first, second, third) = (file("first"), file("second"), file("third"));
        let now = |origin: &dyn Origin| String::from_utf8(origin.read(A, 0, 100).unwrap().to_vec()).unwrap();
        assert_eq!(origin.read(A, 0, 1).unwrap_err(), Errno::BADF);
        origin.attach(A, File::open(&first).unwrap());
        assert_eq!(origin.write(A, 0, &[buf(b"x")], 0, false), Err(Errno::BADF));
        origin.attach(A, File::open(&second).unwrap());
        assert_eq!(now(&*origin), "first");
        origin.attach(A, open(&second));
        assert_eq!(now(&*origin), "second");
        origin.attach(A, open(&third));
        origin.attach(A, File::open(&third).unwrap());
        assert_eq!(now(&*origin), "second");
        assert!(origin.release(A).is_some());
        assert!(origin.release(A).is_none());
        assert_eq!(origin.sync(A), Err(Errno::BADF));
    }
}

#[test]
fn a_sync_finds_the_name_wherever_the_file_has_gone() {
    let dir = tempfile::tempdir().unwrap();
    let origin = FileOrigin::below(File::open(dir.path()).unwrap().into()).unwrap();
    std::fs::create_dir_all(dir.path().join("a/b")).unwrap();
    let path = dir.path().join("a/file");
    origin.attach(A, open(&path));
    std::fs::rename(&path, dir.path().join("a/b/moved")).unwrap();
    origin.sync(A).unwrap();
    origin.attach(B, open(&path));
    std::fs::remove_file(&path).unwrap();
    origin.sync(B).unwrap();
}

#[test]
fn a_modelled_disk_serves_many_at_once_and_counts_each() {
    let dir = tempfile::tempdir().unwrap();
    for model in [DiskModel::Spindle(QUICK), DiskModel::PRESETS[3].1] {
        let disk = Arc::new(ModelDisk::new(FileOrigin::new(), model, 5));
        for (object, name) in [(A, "a"), (B, "b")] {
            let file = open(&dir.path().join(name));
            file.set_len(1 << 20).unwrap();
            file.write_all_at(&[object.0 as u8; 4096], 4096).unwrap();
            disk.attach(object, file);
        }
        std::thread::scope(|scope| {
            for thread in 0..16u64 {
                let disk = disk.clone();
                scope.spawn(move || {
                    for round in 0..20 {
                        let object = if (thread + round) % 2 == 0 { A } else { B };
                        assert_eq!(disk.read(object, 4096, 4096).unwrap()[..], [object.0 as u8; 4096]);
                        disk.write(object, (2 + thread) * 4096, &[buf(&[9; 100])], 0, false).unwrap();
                        if round == 7 {
                            disk.sync(object).unwrap();
                        }
                    }
                });
            }
        });
        let counts = disk.counts();
        assert_eq!((counts.reads, counts.writes, counts.syncs), (320, 320, 16));
        assert_eq!((counts.read_bytes, counts.write_bytes), (320 * 4096, 32_000));
        assert!(counts.busy_nanos > 0);
    }
}

#[test]
fn equal_seeds_make_equal_disks() {
    let dir = tempfile::tempdir().unwrap();
    let busy = |seed| {
        let disk = ModelDisk::new(FileOrigin::new(), DiskModel::Spindle(QUICK), seed);
        let file = open(&dir.path().join("file"));
        file.set_len(1 << 20).unwrap();
        disk.attach(A, file);
        for round in 0..50u64 {
            drop(disk.read(A, (round * 7919 % 250) * 4096, 4096));
            if round % 5 == 0 {
                disk.sync(A).unwrap();
            }
        }
        disk.counts().busy_nanos
    };
    assert_eq!(busy(3), busy(3));
    assert_ne!(busy(3), busy(4));
}

/// A claim that another host takes over while changes are made.
struct TakenOver(std::sync::Mutex<LookResult>);

impl OriginClaim for TakenOver {
    fn look(&self) -> LookResult {
        self.0.lock().unwrap().clone()
    }
}

#[test]
fn once_the_claim_is_lost_no_change_reaches_the_origin() {
    let dir = tempfile::tempdir().unwrap();
    let claim = Arc::new(TakenOver(std::sync::Mutex::new(LookResult::Ours)));
    let origin = FileOrigin::below(File::open(dir.path()).unwrap().into()).unwrap();
    let gate = Arc::new(Gate::new(claim.clone()));
    origin.guard(gate.clone());
    origin.when_pool_fails(Box::new(|| panic!("the note is a change, too")));
    let path = dir.path().join("file");
    std::fs::write(&path, vec![7; 10_000]).unwrap();
    origin.attach(A, open(&path));
    origin.write(A, 0, &[buf(b"ours")], 0, false).unwrap();
    let left = || {
        let metadata = std::fs::metadata(&path).unwrap();
        (std::fs::read(&path).unwrap(), metadata.blocks(), metadata.mtime_nsec(), metadata.ctime_nsec())
    };
    let before = left();
    let all_refused = |errno: Errno| {
        assert_eq!(origin.write(A, 0, &[buf(b"late")], 0, true), Err(errno));
        assert_eq!(origin.zero(A, 0, 100, false), Err(errno));
        assert_eq!(origin.resize(A, 5), Err(errno));
        assert_eq!(origin.reserve(A, &[(0, 1 << 20)], 0, false).map(drop), Err(errno));
        assert_eq!(origin.stamp(A, UnixNanos(5)), Err(errno));
        assert_eq!(origin.sync(A), Err(errno));
        assert_eq!(origin.may_change(), Err(errno));
        assert_eq!(origin.pool_failed(), Err(errno));
    };
    // Not known whose it is: nothing is changed until it is.
    *claim.0.lock().unwrap() = LookResult::Unknown(Errno::IO);
    gate.doubt();
    all_refused(Errno::IO);
    *claim.0.lock().unwrap() = LookResult::Lost("to db2".to_owned());
    all_refused(Gate::BARRED);
    *claim.0.lock().unwrap() = LookResult::Ours;
    all_refused(Gate::BARRED);
    assert_eq!(left(), before);
    assert_eq!(origin.read(A, 0, 4).unwrap()[..], *b"ours", "reading goes on");
}
