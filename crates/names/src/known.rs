//! What applications see of the files that the engine knows: the engine's size and times. Those of the origin may lag
//! behind.
//!
//! Invariants
//! - After its own change, an application sees that change: the state is set in the order of the
//!   engine's answers, before the answer goes on.
//! - The state never goes back. An answer has the file's state at that moment, all answers come on one thread, in
//!   order, and only this thread sets the state: so the last one is right.
//! - The state lives as long as the engine holds the object, even if the kernel forgets the inode. The engine holds
//!   an object from the answer to an open, or from the start, until it releases it. From then on the origin has all
//!   of the file.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockWriteGuard};

use headpond_base::{ObjectId, UnixNanos};
use headpond_engine::Attributes;

use crate::FileKey;

/// How many states may outlive both their inodes and the engine's interest, only for their status change time. Each
/// takes about 200 bytes.
const REMEMBERED: usize = 1 << 16;

/// Size and times as applications see them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct View {
    /// Size in bytes.
    pub size: u64,
    /// Modification time.
    pub mtime: UnixNanos,
    /// Status change time. It does not move when data is destaged, though the origin's does.
    pub ctime: UnixNanos,
}

/// One file that the engine knows, with what the front door keeps of it.
#[derive(Debug)]
pub struct Known<X> {
    object: AtomicU64,
    view: Mutex<View>,
    /// The name that it had when it was opened or renamed last.
    path: Mutex<Vec<u8>>,
    /// How often the path has changed.
    renames: AtomicU32,
    /// The mount promised a program that its writes are whole.
    whole: AtomicBool,
    /// It is in the queue of states that may be dropped.
    idle: AtomicBool,
    /// What the front door keeps.
    pub beside: X,
}

impl<X: Default> Known<X> {
    fn new(object: ObjectId, attributes: Attributes) -> Self {
        let view = View { size: attributes.size, mtime: attributes.mtime, ctime: attributes.ctime };
        Self {
            object: AtomicU64::new(object.0),
            view: Mutex::new(view),
            path: Mutex::default(),
            renames: AtomicU32::new(0),
            whole: AtomicBool::new(false),
            idle: AtomicBool::new(false),
            beside: X::default(),
        }
    }
}

impl<X> Known<X> {
    /// The engine's name for the file.
    pub fn object(&self) -> ObjectId {
        ObjectId(self.object.load(Ordering::Acquire))
    }

    /// The time of a change at `now`: never before an earlier change of the same file. The origin's kernel stamps
    /// some of these by a finer clock.
    pub fn not_before(&self, now: UnixNanos) -> UnixNanos {
        now.max(self.view().ctime)
    }

    /// A change was made at `when`, and gave the object these attributes. Call it only in order with the engine's
    /// answers.
    pub fn changed(&self, attributes: Attributes, when: UnixNanos) {
        let mut view = self.lock();
        view.size = attributes.size;
        view.mtime = attributes.mtime;
        view.ctime = view.ctime.max(when);
    }

    /// Something that only the origin keeps (mode, owner, links) changed at `when`.
    pub fn touched(&self, when: UnixNanos) {
        let mut view = self.lock();
        view.ctime = view.ctime.max(when);
    }

    /// Size and times now.
    pub fn view(&self) -> View {
        *self.lock()
    }

    /// Whether the mount promised a program that its writes are whole.
    pub fn is_whole(&self) -> bool {
        self.whole.load(Ordering::Acquire)
    }

    /// Sets that promise, or ends it when no program relies on it any more.
    pub fn set_whole(&self, whole: bool) {
        self.whole.store(whole, Ordering::Release);
    }

    /// The file has this path from now on.
    pub(crate) fn rename(&self, path: Vec<u8>) {
        *self.named() = path;
        self.renames.fetch_add(1, Ordering::Release);
    }

    /// The last known path. Empty if it is unknown.
    pub fn path(&self) -> Vec<u8> {
        self.named().clone()
    }

    /// How often its path has changed. What depends on an earlier path is out of date. Ask this before the path.
    pub fn renames(&self) -> u32 {
        self.renames.load(Ordering::Acquire)
    }

    fn named(&self) -> MutexGuard<'_, Vec<u8>> {
        // Each change is one assignment.
        self.path.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn opened(&self, object: ObjectId, attributes: Attributes) {
        self.object.store(object.0, Ordering::Release);
        let mut view = self.lock();
        view.size = attributes.size;
        view.mtime = attributes.mtime;
    }

    fn lock(&self) -> MutexGuard<'_, View> {
        // Nothing panics while holding it. If something did, the copies inside would still be whole.
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A file that the pool brought back from before the mount, with content or attributes that the origin lacks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KnownObject {
    /// Its inode number at the origin.
    pub inode: u64,
    /// Its birth time at the origin, 0 if the file system has none.
    pub birth: UnixNanos,
    /// The engine's name for it.
    pub object: ObjectId,
    /// Its size and times as applications see them.
    pub attributes: Attributes,
    /// Its path below the origin's root. Empty if it is unknown.
    pub path: Vec<u8>,
}

/// All files that the engine may know better than the origin.
#[derive(Debug)]
pub struct KnownFiles<X> {
    table: RwLock<Table<X>>,
    /// How many files it remembers that neither the kernel nor the engine holds.
    remembered: usize,
}

#[derive(Debug)]
struct Table<X> {
    files: BTreeMap<FileKey, Arc<Known<X>>>,
    /// The files that the engine holds.
    held: BTreeMap<ObjectId, FileKey>,
    /// Files that the engine does not hold and the kernel may have forgotten. The oldest comes first.
    idle: VecDeque<FileKey>,
    /// Files of which the mount promised, before this process, that writes are whole.
    whole: BTreeSet<FileKey>,
}

impl<X: Default> KnownFiles<X> {
    /// Starts with the files that the pool brought back. The engine holds all of them.
    pub fn new(recovered: &[KnownObject]) -> Self {
        Self::remembering(recovered, REMEMBERED)
    }

    /// The same, with a limit on the files that it remembers.
    pub fn remembering(recovered: &[KnownObject], remembered: usize) -> Self {
        let mut table =
            Table { files: BTreeMap::new(), held: BTreeMap::new(), idle: VecDeque::new(), whole: BTreeSet::new() };
        for found in recovered {
            let key = FileKey { inode: found.inode, birth: found.birth };
            table.files.insert(key, Arc::new(Known::new(found.object, found.attributes)));
            table.held.insert(found.object, key);
        }
        Self { table: RwLock::new(table), remembered }
    }

    /// The file, if the engine knows it.
    pub fn find(&self, key: FileKey) -> Option<Arc<Known<X>>> {
        self.table.read().unwrap_or_else(PoisonError::into_inner).files.get(&key).cloned()
    }

    /// Shows all files that are known.
    pub fn each(&self, mut see: impl FnMut(FileKey, &Known<X>)) {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        table.files.iter().for_each(|(key, known)| see(*key, known));
    }

    /// The engine opened the file. If the file was not known, the engine's status change time counts. Call it only in
    /// order with the engine's answers.
    pub fn opened(&self, key: FileKey, object: ObjectId, attributes: Attributes) -> Arc<Known<X>> {
        let mut table = self.table();
        table.held.insert(object, key);
        let known = table.files.entry(key).or_insert_with(|| Arc::new(Known::new(object, attributes))).clone();
        known.opened(object, attributes);
        if table.whole.contains(&key) {
            known.set_whole(true);
        }
        known
    }

    /// The mount promised that writes to this file are whole, or nothing relies on that any more. It counts for the
    /// file whenever the engine opens it.
    pub fn keep_whole(&self, key: FileKey, whole: bool) {
        let mut table = self.table();
        if whole {
            table.whole.insert(key)
        } else {
            table.whole.remove(&key)
        };
        if let Some(known) = table.files.get(&key) {
            known.set_whole(whole);
        }
    }

    /// The engine lets go of an object. Call it only in order with the engine's answers.
    pub fn let_go(&self, object: ObjectId) {
        let mut table = self.table();
        let Some(key) = table.held.remove(&object) else { return };
        // Another file may have taken over the inode number since, where the origin keeps no birth times.
        if table.files.get(&key).is_some_and(|known| known.object() == object) {
            table.note_idle(key, self.remembered);
        }
    }

    /// The file of an object that the engine holds.
    pub fn of(&self, object: ObjectId) -> Option<FileKey> {
        self.table.read().unwrap_or_else(PoisonError::into_inner).held.get(&object).copied()
    }

    /// The file is gone from the origin, and closed.
    pub fn gone(&self, key: FileKey) {
        self.table().files.remove(&key);
    }

    /// The same of a file whose number may be another's by now.
    pub fn gone_unless_another(&self, key: FileKey, known: &Arc<Known<X>>) {
        let mut table = self.table();
        if table.files.get(&key).is_some_and(|there| Arc::ptr_eq(there, known)) {
            table.files.remove(&key);
        }
    }

    /// The kernel forgot the file.
    pub fn forgotten(&self, key: FileKey) {
        let mut table = self.table();
        if !table.is_held(key) {
            table.note_idle(key, self.remembered);
        }
    }

    fn table(&self) -> RwLockWriteGuard<'_, Table<X>> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<X> Table<X> {
    fn is_held(&self, key: FileKey) -> bool {
        self.files.get(&key).is_some_and(|known| self.held.get(&known.object()) == Some(&key))
    }

    /// The engine does not hold this file. If there are too many of those, one that the kernel does not hold either
    /// is dropped.
    fn note_idle(&mut self, key: FileKey, most: usize) {
        if self.files.get(&key).is_some_and(|known| !known.idle.swap(true, Ordering::Relaxed)) {
            self.idle.push_back(key);
        }
        // More than one at a time: otherwise files in use would keep the others in.
        for _ in 0..2 {
            if self.idle.len() <= most {
                return;
            }
            let Some(first) = self.idle.pop_front() else { return };
            let Some(known) = self.files.get(&first) else { continue };
            if self.is_held(first) {
                // It comes back when the engine lets go of it.
                known.idle.store(false, Ordering::Relaxed);
            } else if Arc::strong_count(known) > 1 {
                self.idle.push_back(first);
            } else {
                self.files.remove(&first);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attributes(size: u64, mtime: i64) -> Attributes {
        Attributes { size, mtime: UnixNanos(mtime), ctime: UnixNanos(mtime) }
    }

    #[test]
    fn a_file_opened_again_keeps_its_status_change_time() {
        let files = KnownFiles::<()>::new(&[]);
        let key = FileKey { inode: 12, birth: UnixNanos(1) };
        let known = files.opened(key, ObjectId(5), attributes(1, 1));
        known.changed(attributes(1, 1), UnixNanos(9));
        let again = files.opened(key, ObjectId(6), attributes(2, 2));
        assert_eq!(again.view(), View { size: 2, mtime: UnixNanos(2), ctime: UnixNanos(9) });
        assert_eq!(known.object(), ObjectId(6));
    }

    #[test]
    fn what_was_brought_back_is_seen_before_anything_is_opened() {
        let found = KnownObject {
            inode: 7,
            birth: UnixNanos(3),
            object: ObjectId(1),
            attributes: attributes(77, 8),
            path: Vec::new(),
        };
        let files = KnownFiles::<()>::new(&[found]);
        let known = files.find(FileKey { inode: 7, birth: UnixNanos(3) }).unwrap();
        assert_eq!((known.view().size, known.view().mtime), (77, UnixNanos(8)));
        assert!(
            files.find(FileKey { inode: 7, birth: UnixNanos(4) }).is_none(),
            "a reused inode number is another file"
        );
    }

    #[test]
    fn what_the_engine_holds_stays_known_however_many_files_there_are() {
        let files = KnownFiles::<()>::remembering(&[], 2);
        let key = |inode| FileKey { inode, birth: UnixNanos(1) };
        let open = |inode| files.opened(key(inode), ObjectId(inode), attributes(1, 1));
        let known = |inode| files.find(key(inode)).is_some();
        // The kernel forgets ten files, of which the engine lets go of the last five.
        for inode in 0..10 {
            drop(open(inode));
            files.forgotten(key(inode));
        }
        assert!((0..10).all(known));
        (5..10).for_each(|inode| files.let_go(ObjectId(inode)));
        assert!((0..5).all(known), "held");
        assert_eq!((5..10).filter(|inode| known(*inode)).count(), 2);
        // A file that the kernel holds stays, whatever comes and goes.
        let used = open(20);
        files.let_go(ObjectId(20));
        for inode in 0..5 {
            files.let_go(ObjectId(inode));
        }
        assert!(known(20));
        drop(used);
        for inode in 30..40 {
            drop(open(inode));
            files.let_go(ObjectId(inode));
            files.forgotten(key(inode));
        }
        assert!(!known(20));
        let table = files.table();
        assert_eq!((table.files.len(), table.idle.len(), table.held.len()), (2, 2, 0));
    }

    #[test]
    fn an_object_that_is_let_go_late_is_not_taken_for_the_one_that_has_its_inode_number_now() {
        let files = KnownFiles::<()>::remembering(&[], 0);
        let key = FileKey { inode: 5, birth: UnixNanos(0) };
        files.opened(key, ObjectId(1), attributes(1, 1));
        files.gone(key);
        files.opened(key, ObjectId(2), attributes(1, 1));
        files.let_go(ObjectId(1));
        assert!(files.find(key).is_some());
        files.let_go(ObjectId(2));
        assert!(files.find(key).is_none());
    }
}
