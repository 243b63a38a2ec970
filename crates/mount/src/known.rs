//! What applications see of the files that the engine knows: the engine's size and times,
//! which the origin's may lag behind.
//!
//! Invariants
//! - What an application is told after its own change includes that change: the state is set
//!   on the shard's thread, before the answer goes on.
//! - The state never goes back. An answer says how the file is at that moment, all answers are
//!   given on one thread, in order, and they are taken over nowhere else: so the last one is right.
//! - The state outlives the kernel's interest in the inode, because the engine's does.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use headpond_base::{ObjectId, UnixNanos};
use headpond_engine::Attributes;
use headpond_rules::Mask;

use crate::live_rules::{InForce, Masked};
use crate::times;
use crate::usage::Tally;

/// How many states may outlive their inodes before those that equal the origin's are dropped.
/// About 100 bytes each.
const REMEMBERED: usize = 1 << 16;

/// A file of the origin's own device, for as long as the origin has it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct FileKey {
    /// Inode number.
    pub(crate) inode: u64,
    /// Birth time, which tells a reused inode number; 0 where the origin has none.
    pub(crate) birth: UnixNanos,
}

/// Size and times as applications see them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct View {
    /// Size in bytes.
    pub(crate) size: u64,
    /// Modification time.
    pub(crate) mtime: UnixNanos,
    /// Status change time: does not move when data is destaged, though the origin's does.
    /// [`UnixNanos`] of `i64::MIN` where only the origin knows.
    pub(crate) ctime: UnixNanos,
}

/// One file that the engine knows.
pub(crate) struct Known {
    object: AtomicU64,
    view: Mutex<View>,
    named: Mutex<Named>,
    /// Somebody was told that its writes are whole.
    whole: AtomicBool,
    /// What was done with it.
    pub(crate) tally: Tally,
}

/// The name that a file had when it was opened or renamed last, and the rules that match it.
#[derive(Default)]
struct Named {
    path: Vec<u8>,
    masked: Option<Masked>,
}

impl Known {
    fn new(object: ObjectId, attributes: Attributes, ctime: UnixNanos) -> Self {
        let view = View { size: attributes.size, mtime: attributes.mtime, ctime };
        Self {
            object: AtomicU64::new(object.0),
            view: Mutex::new(view),
            named: Mutex::default(),
            whole: AtomicBool::new(false),
            tally: Tally::default(),
        }
    }

    /// The engine's name for the file.
    pub(crate) fn object(&self) -> ObjectId {
        ObjectId(self.object.load(Ordering::Acquire))
    }

    /// The time of a change that happens now: never before an earlier change of the same file,
    /// some of which the origin's kernel stamps by a finer clock.
    pub(crate) fn now(&self) -> UnixNanos {
        times::now().max(self.view().ctime)
    }

    /// A change was done at `when`, and the object is now like this. Only to be called on the
    /// shard's thread.
    pub(crate) fn changed(&self, attributes: Attributes, when: UnixNanos) {
        let mut view = self.lock();
        view.size = attributes.size;
        view.mtime = attributes.mtime;
        view.ctime = view.ctime.max(when);
    }

    /// Something that only the origin keeps (mode, owner, links) was changed at `when`.
    pub(crate) fn touched(&self, when: UnixNanos) {
        let mut view = self.lock();
        view.ctime = view.ctime.max(when);
    }

    /// Size and times now.
    pub(crate) fn view(&self) -> View {
        *self.lock()
    }

    /// Whether somebody was told that its writes are whole.
    pub(crate) fn is_whole(&self) -> bool {
        self.whole.load(Ordering::Acquire)
    }

    /// Somebody was told so, or nobody counts on it any more.
    pub(crate) fn set_whole(&self, whole: bool) {
        self.whole.store(whole, Ordering::Release);
    }

    /// It is found by this path from now on.
    pub(crate) fn rename(&self, path: Vec<u8>) {
        *self.named() = Named { path, masked: None };
    }

    /// The path by which it was found last; empty if that is not known.
    pub(crate) fn path(&self) -> Vec<u8> {
        self.named().path.clone()
    }

    /// The rules that its path satisfies.
    pub(crate) fn mask(&self, rules: &InForce) -> Mask {
        let mut named = self.named();
        if let Some(masked) = named.masked.filter(|masked| masked.generation == rules.generation) {
            return masked.mask;
        }
        let mask = rules.set.for_path(&named.path);
        named.masked = Some(Masked { generation: rules.generation, mask });
        mask
    }

    fn named(&self) -> MutexGuard<'_, Named> {
        // Each change is one assignment.
        self.named.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn opened(&self, object: ObjectId, attributes: Attributes) {
        self.object.store(object.0, Ordering::Release);
        let mut view = self.lock();
        view.size = attributes.size;
        view.mtime = attributes.mtime;
    }

    fn lock(&self) -> MutexGuard<'_, View> {
        // Nothing panics while holding it; if something did, the copies inside are still whole.
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A file that the pool brought back from before the mount, with content or attributes that
/// the origin has not got yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KnownObject {
    /// Its inode number at the origin.
    pub inode: u64,
    /// Its birth time at the origin, 0 where the file system has none.
    pub birth: UnixNanos,
    /// The engine's name for it.
    pub object: ObjectId,
    /// Its size and time as applications see them.
    pub attributes: Attributes,
    /// Where it is below the origin's root; empty if that is not known.
    pub path: Vec<u8>,
}

/// All files that the engine may know better than the origin.
pub(crate) struct KnownFiles {
    files: RwLock<HashMap<FileKey, Arc<Known>>>,
}

impl KnownFiles {
    /// Starts with what the pool brought back.
    pub(crate) fn new(recovered: &[KnownObject]) -> Self {
        let files = recovered
            .iter()
            .map(|found| {
                let key = FileKey { inode: found.inode, birth: found.birth };
                (key, Arc::new(Known::new(found.object, found.attributes, UnixNanos(i64::MIN))))
            })
            .collect();
        Self { files: RwLock::new(files) }
    }

    /// The file, if the engine knows it.
    pub(crate) fn find(&self, key: FileKey) -> Option<Arc<Known>> {
        self.files.read().unwrap_or_else(PoisonError::into_inner).get(&key).cloned()
    }

    /// Shows all files that are known.
    pub(crate) fn each(&self, mut see: impl FnMut(FileKey, &Known)) {
        let files = self.files.read().unwrap_or_else(PoisonError::into_inner);
        files.iter().for_each(|(key, known)| see(*key, known));
    }

    /// The engine opened the file: `ctime` is the origin's, used if the file was not known. Only to
    /// be called on the shard's thread.
    pub(crate) fn opened(
        &self,
        key: FileKey,
        object: ObjectId,
        attributes: Attributes,
        ctime: UnixNanos,
    ) -> Arc<Known> {
        let mut files = self.files.write().unwrap_or_else(PoisonError::into_inner);
        let known = files.entry(key).or_insert_with(|| Arc::new(Known::new(object, attributes, ctime)));
        known.opened(object, attributes);
        known.clone()
    }

    /// The file is gone from the origin, and closed.
    pub(crate) fn gone(&self, key: FileKey) {
        self.files.write().unwrap_or_else(PoisonError::into_inner).remove(&key);
    }

    /// The kernel forgot the file, and the origin says `origin` of it now. Where that is also
    /// what applications see, nothing is lost by asking the origin from now on; it is kept all
    /// the same while there is room, since destage may be halfway.
    pub(crate) fn forgotten(&self, key: FileKey, origin: Attributes) {
        let mut files = self.files.write().unwrap_or_else(PoisonError::into_inner);
        if files.len() > REMEMBERED {
            let same = files.get(&key).is_some_and(|known| {
                let view = known.view();
                Arc::strong_count(known) == 1 && view.size == origin.size && view.mtime == origin.mtime
            });
            if same {
                files.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attributes(size: u64, mtime: i64) -> Attributes {
        Attributes { size, mtime: UnixNanos(mtime) }
    }

    #[test]
    fn a_file_opened_again_keeps_its_status_change_time() {
        let files = KnownFiles::new(&[]);
        let key = FileKey { inode: 12, birth: UnixNanos(1) };
        let known = files.opened(key, ObjectId(5), attributes(1, 1), UnixNanos(7));
        known.changed(attributes(1, 1), UnixNanos(9));
        let again = files.opened(key, ObjectId(6), attributes(2, 2), UnixNanos(99));
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
        let files = KnownFiles::new(&[found]);
        let known = files.find(FileKey { inode: 7, birth: UnixNanos(3) }).unwrap();
        assert_eq!((known.view().size, known.view().mtime), (77, UnixNanos(8)));
        assert!(
            files.find(FileKey { inode: 7, birth: UnixNanos(4) }).is_none(),
            "a reused inode number is another file"
        );
    }
}
