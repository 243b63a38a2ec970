//! What no door reaches: changes that wait inside the origin, and descriptors.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;

use super::*;
use crate::Origin as _;
use crate::claim::{LookResult, OriginClaim};

const A: ObjectId = ObjectId(1);

/// A claim that a test takes away; counts looks.
#[derive(Default)]
struct Claim {
    lost: AtomicBool,
    looks: AtomicUsize,
}

impl OriginClaim for Claim {
    fn look(&self) -> LookResult {
        self.looks.fetch_add(1, Ordering::SeqCst);
        if self.lost.load(Ordering::SeqCst) { LookResult::Lost("to db2".to_owned()) } else { LookResult::Ours }
    }
}

#[test]
fn a_write_that_waited_for_a_sync_until_the_claim_was_lost_does_not_begin() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    fs::write(&path, b"before").unwrap();
    let origin = FileOrigin::below(File::open(dir.path()).unwrap().into()).unwrap();
    let claim = Arc::new(Claim::default());
    let gate = Arc::new(Gate::new(claim.clone()));
    origin.guard(gate.clone());
    origin.attach(A, File::options().read(true).write(true).open(&path).unwrap());
    let attached = origin.get(A).unwrap();
    let (locked, is_locked) = mpsc::channel();
    let (end, may_end) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            attached.refused.sync(|| {
                locked.send(()).unwrap();
                may_end.recv().map_err(|_| Errno::IO)
            })
        });
        is_locked.recv().unwrap();
        gate.doubt();
        let looked = claim.looks.load(Ordering::SeqCst);
        let write = scope.spawn(|| origin.write(A, 0, &[BufMut::copy_of(b"late!!").freeze()], 0, true));
        // It looks at the gate, and then waits for the sync.
        while claim.looks.load(Ordering::SeqCst) == looked {
            std::thread::yield_now();
        }
        while !gate.is_open() {
            std::thread::yield_now();
        }
        claim.lost.store(true, Ordering::SeqCst);
        gate.doubt();
        end.send(()).unwrap();
        assert_eq!(write.join().unwrap(), Err(Gate::BARRED));
    });
    assert_eq!(fs::read(&path).unwrap(), b"before");
}

#[test]
fn the_directory_of_a_file_is_found_over_renames_of_the_origin_and_not_through_links() {
    let top = tempfile::tempdir().unwrap();
    let at = |name: &str| top.path().join(name);
    fs::create_dir_all(at("origin/db")).unwrap();
    fs::write(at("origin/db/file"), "").unwrap();
    let file = File::open(at("origin/db/file")).unwrap();
    let root = Root { directory: File::open(at("origin")).unwrap() };
    let inode = |file: &OwnedFd| rustix::fs::fstat(file).unwrap().st_ino;
    let db = fs::metadata(at("origin/db")).unwrap().ino();
    assert_eq!(root.parent_of(&file).as_ref().map(inode), Some(db));
    fs::rename(at("origin"), at("renamed")).unwrap();
    assert_eq!(root.parent_of(&file).as_ref().map(inode), Some(db), "its name is made durable as before");
    fs::rename(at("renamed/db"), at("outside")).unwrap();
    std::os::unix::fs::symlink(at("outside"), at("renamed/db")).unwrap();
    assert!(root.parent_of(&file).is_none());
}

/// Opens a file again, and counts.
struct Counting(std::path::PathBuf, AtomicU64);

impl Reopen for Counting {
    fn reopen(&self, _: bool) -> Result<File> {
        self.1.fetch_add(1, Ordering::SeqCst);
        Ok(File::options().read(true).write(true).open(&self.0)?)
    }
}

#[test]
fn a_file_that_could_not_be_opened_again_stays_open_however_many_there_are() {
    let top = tempfile::tempdir().unwrap();
    let path = top.path().join("file");
    fs::write(&path, "content").unwrap();
    let origin = FileOrigin::with(None, Budget { paths: 2, files: 2, handles: 0 });
    let open = || File::options().read(true).write(true).open(&path).unwrap();
    let others = || {
        for object in 10..90 {
            origin.attach_lasting(ObjectId(object), open(), Arc::new(Counting(path.clone(), AtomicU64::new(0))));
            let _ = origin.read(ObjectId(object), 0, 1).unwrap();
        }
    };
    let again = Arc::new(Counting(path.clone(), AtomicU64::new(0)));
    let opened = || again.1.load(Ordering::SeqCst);
    let look = || drop(origin.read(ObjectId(1), 0, 1).unwrap());
    origin.attach_lasting(ObjectId(1), open(), again.clone());
    others();
    look();
    assert_eq!(opened(), 1, "it was closed");
    others();
    origin.keep_open(ObjectId(1));
    assert_eq!(opened(), 2, "it is open");
    others();
    look();
    assert_eq!(opened(), 2, "and stays so");
    // From now on it can be opened again.
    origin.attach_lasting(ObjectId(1), open(), again.clone());
    others();
    look();
    assert_eq!(opened(), 3);
    // Another handle attached it without a way to open it again.
    others();
    origin.attach(ObjectId(1), open());
    others();
    look();
    assert_eq!(opened(), 3, "what was just opened is what stays open");
}
