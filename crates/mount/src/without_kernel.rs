//! The name layer without a kernel before it. These tests do what a kernel never does at will: it forgets a file, or
//! sends two requests at once that its own locks keep apart.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::Duration;

use headpond_base::{ObjectId, Result, UnixNanos};
use headpond_engine::{Attributes, Namespace, OpenObject, Reply, Request};
use headpond_format::Stamp;
use headpond_names::KnownObject;
use rustix::fs::{Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::beside::Beside;
use crate::front::Front;
use crate::handles::{ContentWay, OpenHandle};
use crate::pond::{Done, Operation, Pond};
use crate::reached::{Reached, pin};
use crate::tree::Inode;

/// A pond that answers at once, notes its requests, and runs a race before the origin's directories change.
#[derive(Default)]
pub(crate) struct Told {
    changes: Mutex<Vec<Namespace>>,
    first: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    objects: Mutex<HashMap<(u64, UnixNanos), ObjectId>>,
    /// The status change time that the engine has of each object.
    stamped: Mutex<HashMap<ObjectId, UnixNanos>>,
    opens: AtomicU32,
    syncs: AtomicU32,
    directories: Mutex<Vec<(ObjectId, u64)>>,
    let_go: OnceLock<Box<dyn Fn(ObjectId) + Send + Sync>>,
}

impl Pond for Told {
    fn submit(&self, request: Request, done: Done) {
        done(match request {
            Request::Open(OpenObject::File(file)) => {
                let mut objects = self.objects.lock().unwrap();
                let next = ObjectId(objects.len() as u64 + 1);
                let object = *objects.entry((file.inode, file.birth)).or_insert(next);
                self.stamped.lock().unwrap().entry(object).or_insert(file.stamp.ctime);
                self.opens.fetch_add(1, Ordering::SeqCst);
                let Stamp { size, mtime, ctime } = file.stamp;
                Reply::Opened { object, attributes: Attributes { size, mtime, ctime } }
            }
            Request::Restamp { object, stamp, .. } => {
                self.stamped.lock().unwrap().insert(object, stamp.ctime);
                Reply::Done
            }
            _ => Reply::Done,
        });
    }

    fn namespace(&self, change: Option<Namespace>, operation: Operation) -> Result<()> {
        let moved = match &change {
            Some(Namespace::Rename { moved, .. }) => *moved,
            _ => None,
        };
        self.changes.lock().unwrap().extend(change);
        let first = self.first.lock().unwrap().take();
        first.into_iter().for_each(|first| first());
        let stamp = operation()?;
        self.stamped.lock().unwrap().extend(moved.zip(stamp.map(|stamp| stamp.ctime)));
        Ok(())
    }

    fn attach(&self, _: ObjectId, _: File) {}

    fn sync_origin(&self, _: ObjectId) -> Result<()> {
        self.syncs.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn name_changed(&self, object: ObjectId, directory: OwnedFd) {
        self.directories.lock().unwrap().push((object, File::from(directory).metadata().unwrap().ino()));
    }

    fn when_let_go(&self, tell: Box<dyn Fn(ObjectId) + Send + Sync>) {
        let _ = self.let_go.set(tell);
    }
}

struct Bench {
    front: Arc<Front>,
    pond: Arc<Told>,
    directory: tempfile::TempDir,
}

impl Bench {
    /// A bench over an origin with two directories, which remembers `files` files.
    fn remembering(files: usize) -> Self {
        let directory = tempfile::tempdir().unwrap();
        for name in ["one", "other"] {
            fs::create_dir(directory.path().join(name)).unwrap();
        }
        let pond = Arc::new(Told::default());
        let root = rustix::fs::open(directory.path(), OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let front = Front::remembering(root, false, pond.clone(), &[], Beside::default(), Some(files)).unwrap();
        Self { front: Arc::new(front), pond, directory }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }

    fn file(&self, name: &str) -> Arc<Inode> {
        fs::write(self.path(name), "content").unwrap();
        self.look_up(name)
    }

    fn look_up(&self, path: &str) -> Arc<Inode> {
        let mut inode = self.front.names.root().clone();
        for name in Path::new(path) {
            inode = self.front.look_up(&inode, name).unwrap().0;
        }
        inode
    }

    fn open(&self, inode: &Arc<Inode>) -> OpenHandle {
        drop(self.front.open_for_change(inode).unwrap());
        let known = inode.known().unwrap();
        OpenHandle::new(pin(inode, false).unwrap(), ContentWay::Pond { object: known.object(), known }, true, 0)
    }

    fn remove(&self, directory: &str, name: &str) {
        self.front.remove(&self.look_up(directory), OsStr::new(name)).unwrap();
    }

    fn rename(&self, from: (&str, &str), to: (&str, &str), flags: RenameFlags) {
        let [from_directory, to_directory] = [from.0, to.0].map(|path| self.look_up(path));
        let [from, to] = [from.1, to.1].map(OsStr::new);
        self.front.rename(&from_directory, from, &to_directory, to, flags).unwrap();
    }

    fn object(&self, inode: &Inode) -> ObjectId {
        self.pond.objects.lock().unwrap()[&(inode.key.inode, inode.key.birth)]
    }

    fn changes(&self) -> Vec<Namespace> {
        self.pond.changes.lock().unwrap().clone()
    }

    /// Runs `race` when `change` is about to change the origin's directories, and lets it run as far as it can then.
    fn race(&self, change: impl FnOnce(), race: impl FnOnce() + Send + 'static) {
        let racer = Arc::new(Mutex::new(None));
        let started = racer.clone();
        let start = move || {
            let thread = thread::spawn(race);
            for _ in 0..30 {
                thread::sleep(Duration::from_millis(2));
                if thread.is_finished() {
                    break;
                }
            }
            *started.lock().unwrap() = Some(thread);
        };
        *self.pond.first.lock().unwrap() = Some(Box::new(start));
        change();
        let thread = racer.lock().unwrap().take().unwrap();
        thread.join().unwrap();
    }

    /// Whether the engine knows the file by the origin's present status. If not, it would later take its own change
    /// for another's.
    fn is_known_as_it_is(&self, inode: &Inode) -> bool {
        let stamp = inode.stat().unwrap().stamp();
        self.pond.stamped.lock().unwrap()[&self.object(inode)] == stamp.ctime
    }
}

/// An open that may come too late, and its outcome. Afterwards the engine knows that the file is gone, or has not
/// heard of it.
fn opens(front: &Arc<Front>, inode: &Arc<Inode>) -> (Arc<OnceLock<Errno>>, impl FnOnce() + Send + 'static) {
    let (front, inode, refused) = (front.clone(), inode.clone(), Arc::new(OnceLock::new()));
    let told = refused.clone();
    let open = move || {
        if let Err(error) = front.open_for_change(&inode) {
            told.set(error).unwrap();
        }
    };
    (refused, open)
}

#[test]
fn a_file_that_is_opened_while_it_is_removed_is_known_to_be_gone() {
    let bench = Bench::remembering(9);
    let inode = bench.file("one/file");
    let (refused, open) = opens(&bench.front, &inode);
    bench.race(|| bench.remove("one", "file"), open);
    match refused.get() {
        // The kernel looks up again what has this name.
        Some(error) => assert_eq!((*error, bench.changes()), (Errno::STALE, vec![])),
        None => assert_eq!(bench.changes(), [Namespace::Unlink { object: bench.object(&inode) }]),
    }
}

/// An application that only named the file keeps it at the origin. The engine has dropped the data that it alone had.
#[test]
fn a_file_that_lost_its_last_name_and_what_the_pool_had_of_it_is_not_opened_any_more() {
    let bench = Bench::remembering(9);
    let inode = bench.file("file");
    drop(bench.open(&inode));
    let named = pin(&inode, false).unwrap();
    bench.remove("", "file");
    let mut objects = bench.pond.objects.lock().unwrap();
    *objects = HashMap::from([((0, UnixNanos(0)), ObjectId(1))]);
    drop(objects);
    assert_eq!(bench.front.open_for_change(&inode).err(), Some(Errno::STALE));
    drop(named);
}

#[test]
fn a_file_that_is_opened_while_another_is_renamed_over_it_is_known_to_be_gone() {
    let bench = Bench::remembering(9);
    let (moved, replaced) = (bench.file("one/file"), bench.file("other/file"));
    let (refused, open) = opens(&bench.front, &replaced);
    bench.race(|| bench.rename(("one", "file"), ("other", "file"), RenameFlags::empty()), open);
    if let Some(error) = refused.get() {
        assert_eq!((*error, bench.changes()), (Errno::STALE, vec![]));
    } else {
        let object = bench.object(&replaced);
        let told = |change: &Namespace| match change {
            Namespace::Unlink { object: gone } => *gone == object,
            Namespace::Rename { replaced, .. } => *replaced == Some(object),
        };
        assert!(bench.changes().iter().any(told), "{:?}", bench.changes());
    }
    assert_eq!(fs::metadata(bench.path("other/file")).unwrap().ino(), moved.key.inode);
}

#[test]
fn a_file_that_is_opened_while_it_is_renamed_or_exchanged_is_known_by_its_new_stamp() {
    for flags in [RenameFlags::empty(), RenameFlags::EXCHANGE] {
        let bench = Bench::remembering(9);
        let moved = bench.file("one/file");
        let other = (!flags.is_empty()).then(|| bench.file("other/name"));
        // File systems stamp by a coarse clock.
        thread::sleep(Duration::from_millis(20));
        let (front, files) = (bench.front.clone(), [Some(moved), other]);
        let opened = files.clone();
        let rename = || bench.rename(("one", "file"), ("other", "name"), flags);
        bench.race(rename, move || {
            opened.iter().flatten().for_each(|inode| drop(front.open_for_change(inode).unwrap()));
        });
        assert!(files.iter().flatten().all(|inode| bench.is_known_as_it_is(inode)), "{flags:?}");
    }
}

#[test]
fn of_two_names_that_are_removed_at_once_one_is_the_last() {
    let bench = Bench::remembering(9);
    let inode = bench.file("one/file");
    fs::hard_link(bench.path("one/file"), bench.path("other/name")).unwrap();
    drop(bench.open(&inode));
    let (front, directory) = (bench.front.clone(), bench.look_up("other"));
    let race = move || front.remove(&directory, OsStr::new("name")).unwrap();
    bench.race(|| bench.remove("one", "file"), race);
    assert_eq!(bench.changes(), [Namespace::Unlink { object: bench.object(&inode) }]);
}

#[test]
fn a_name_that_is_made_while_the_last_other_one_goes_is_not_forgotten() {
    let bench = Bench::remembering(9);
    let inode = bench.file("one/file");
    drop(bench.open(&inode));
    let (front, directory) = (bench.front.clone(), bench.look_up("other"));
    let linked = inode.clone();
    let race = move || {
        let _ = front.link(&linked, &directory, OsStr::new("name"));
    };
    bench.race(|| bench.remove("one", "file"), race);
    let gone = bench.changes() == [Namespace::Unlink { object: bench.object(&inode) }];
    assert_eq!(gone, !bench.path("other/name").exists(), "the engine was told that its last name goes");
}

#[test]
fn a_change_at_the_origin_outlives_the_kernels_memory_of_the_file() {
    let bench = Bench::remembering(0);
    let inode = bench.file("one/file");
    bench.front.link(&inode, &bench.look_up("other"), OsStr::new("name")).unwrap();
    let node = inode.node;
    drop(inode);
    bench.front.forget(node, 2);
    bench.front.names.inodes.forget_all();
    assert!(bench.front.names.inodes.get(node).is_err(), "the kernel has forgotten it");
    let file = bench.open(&bench.look_up("one/file"));
    bench.front.sync_attributes(&file).unwrap();
    assert_eq!(bench.pond.syncs.load(Ordering::SeqCst), 1);
    bench.front.sync_attributes(&file).unwrap();
    assert_eq!(bench.pond.syncs.load(Ordering::SeqCst), 1, "once");
}

#[test]
fn what_the_engine_holds_is_removed_in_order_with_the_log_however_many_files_there_are() {
    const FILES: usize = 20;
    let bench = Bench::remembering(3);
    for number in 0..FILES {
        let inode = bench.file(&format!("one/{number}"));
        drop(bench.open(&inode));
        let node = inode.node;
        drop(inode);
        bench.front.forget(node, 1);
    }
    bench.front.names.inodes.forget_all();
    for number in 0..FILES {
        bench.look_up(&format!("one/{number}"));
        bench.remove("one", &number.to_string());
    }
    assert_eq!(bench.changes().len(), FILES);
}

#[test]
fn what_the_engine_lets_go_of_is_forgotten_when_there_is_much_of_it() {
    const FILES: u64 = 20;
    let bench = Bench::remembering(3);
    for number in 0..FILES {
        let inode = bench.file(&format!("one/{number}"));
        drop(bench.open(&inode));
        let (node, object) = (inode.node, bench.object(&inode));
        drop(inode);
        bench.pond.let_go.get().unwrap()(object);
        bench.front.forget(node, 1);
    }
    let mut known = 0;
    bench.front.names.known.each(|_, _| known += 1);
    assert_eq!(known, 3);
}

#[test]
fn each_directory_in_which_a_known_file_gets_or_loses_a_name_is_told() {
    let bench = Bench::remembering(9);
    let inode = bench.file("one/file");
    drop(bench.open(&inode));
    let object = bench.object(&inode);
    let told = || -> Vec<u64> {
        let told = std::mem::take(&mut *bench.pond.directories.lock().unwrap());
        assert!(told.iter().all(|(of, _)| *of == object));
        told.into_iter().map(|(_, directory)| directory).collect()
    };
    let [one, other] = ["one", "other"].map(|name| fs::metadata(bench.path(name)).unwrap().ino());
    bench.front.link(&inode, &bench.look_up("other"), OsStr::new("name")).unwrap();
    assert_eq!(told(), [other]);
    bench.rename(("one", "file"), ("other", "file"), RenameFlags::empty());
    assert_eq!(told(), [one, other]);
    bench.remove("other", "name");
    assert_eq!(told(), [other]);
    bench.file("one/unknown");
    bench.rename(("one", "unknown"), ("other", "file"), RenameFlags::EXCHANGE);
    assert_eq!(told(), [one, other]);
    bench.rename(("other", "file"), ("one", "unknown"), RenameFlags::empty());
    assert_eq!(told(), [one], "it was replaced");
}

#[test]
fn a_file_whose_name_others_removed_is_found_by_the_one_by_which_it_is_looked_up_next() {
    let bench = Bench::remembering(9);
    let inode = bench.file("one/file");
    fs::hard_link(bench.path("one/file"), bench.path("other/name")).unwrap();
    drop(inode.slot.close_unused().unwrap());
    fs::remove_file(bench.path("one/file")).unwrap();
    assert_eq!(inode.stat().unwrap_err(), Errno::STALE);
    // A kernel does the same after this answer.
    assert!(Arc::ptr_eq(&inode, &bench.look_up("other/name")));
    assert_eq!(inode.stat().unwrap().links, 1);
}

/// After a start with dirty data the pool does not know when applications last changed the file. But destage must not
/// change the time that they see.
#[test]
fn the_status_change_time_of_a_file_that_the_pool_brought_back_stays_while_the_origin_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    fs::write(&path, "content").unwrap();
    let root = rustix::fs::open(directory.path(), OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
    let found = crate::stat::stat(&root, "file").unwrap();
    let (key, ctime) = (found.key(), UnixNanos(77));
    let brought_back = KnownObject {
        inode: key.inode,
        birth: key.birth,
        object: ObjectId(1),
        attributes: Attributes { size: 9, mtime: UnixNanos(7), ctime },
        path: b"file".to_vec(),
    };
    let front = Front::new(root, false, Arc::new(Told::default()), &[brought_back], Beside::default()).unwrap();
    let (inode, seen) = front.look_up(front.names.root(), OsStr::new("file")).unwrap();
    assert_eq!(seen.ctime, crate::times::system_time(ctime));
    fs::write(&path, "destaged").unwrap();
    drop(front.open_for_change(&inode).unwrap());
    assert_eq!(front.attributes(&inode).unwrap().ctime, seen.ctime);
}
