//! What applications see of the files that the engine knows: the engine's size and times,
//! which the origin's may lag behind.
//!
//! Invariants
//! - What an application is told after its own change includes that change: the state is set
//!   on the shard's thread before the FUSE reply is sent.
//! - An answer to an earlier request never overwrites that of a later one, in whatever order
//!   answers arrive: each change takes a turn before it is submitted. (The kernel itself lets
//!   only one size change of a file be under way; turns matter for durable writes, whose
//!   answers come late.)
//! - The state outlives the kernel's interest in the inode, because the engine's does.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use headpond_base::{ObjectId, UnixNanos};
use headpond_engine::Attributes;

use crate::times;

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

/// The place of a change in the order in which changes of one file were submitted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Turn(u64);

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

struct State {
    view: View,
    turn: Turn,
}

/// One file that the engine knows.
pub(crate) struct Known {
    object: AtomicU64,
    turns: AtomicU64,
    state: Mutex<State>,
}

impl Known {
    fn new(object: ObjectId, attributes: Attributes, ctime: UnixNanos) -> Self {
        let view = View { size: attributes.size, mtime: attributes.mtime, ctime };
        Self {
            object: AtomicU64::new(object.0),
            turns: AtomicU64::new(0),
            state: Mutex::new(State { view, turn: Turn(0) }),
        }
    }

    /// The engine's name for the file.
    pub(crate) fn object(&self) -> ObjectId {
        ObjectId(self.object.load(Ordering::Acquire))
    }

    /// Takes the next turn, for a change that is about to be submitted.
    pub(crate) fn turn(&self) -> Turn {
        Turn(self.turns.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// The time of a change that happens now: never before an earlier change of the same file,
    /// some of which the origin's kernel stamps by a finer clock.
    pub(crate) fn now(&self) -> UnixNanos {
        times::now().max(self.view().ctime)
    }

    /// A change was done at `when`, and the object is now like this.
    pub(crate) fn changed(&self, turn: Turn, attributes: Attributes, when: UnixNanos) {
        let mut state = self.lock();
        state.view.ctime = state.view.ctime.max(when);
        if turn >= state.turn {
            state.turn = turn;
            state.view.size = attributes.size;
            state.view.mtime = attributes.mtime;
        }
    }

    /// Something that only the origin keeps (mode, owner, links) was changed at `when`.
    pub(crate) fn touched(&self, when: UnixNanos) {
        let mut state = self.lock();
        state.view.ctime = state.view.ctime.max(when);
    }

    /// Size and times now.
    pub(crate) fn view(&self) -> View {
        self.lock().view
    }

    fn opened(&self, turn: Turn, object: ObjectId, attributes: Attributes) {
        self.object.store(object.0, Ordering::Release);
        let mut state = self.lock();
        if turn >= state.turn {
            state.turn = turn;
            state.view.size = attributes.size;
            state.view.mtime = attributes.mtime;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while holding it; if something did, the copies inside are still whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A file that the pool brought back from before the mount, with content or attributes that
/// the origin has not got yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KnownObject {
    /// Its inode number at the origin.
    pub inode: u64,
    /// Its birth time at the origin, 0 where the file system has none.
    pub birth: UnixNanos,
    /// The engine's name for it.
    pub object: ObjectId,
    /// Its size and time as applications see them.
    pub attributes: Attributes,
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

    /// The engine opened the file: `ctime` is the origin's, used if the file was not known.
    /// `turn` is what [`Known::turn`] gave before the request, if it was known.
    pub(crate) fn opened(
        &self,
        key: FileKey,
        object: ObjectId,
        attributes: Attributes,
        ctime: UnixNanos,
        turn: Option<Turn>,
    ) -> Arc<Known> {
        let mut files = self.files.write().unwrap_or_else(PoisonError::into_inner);
        let known = files.entry(key).or_insert_with(|| Arc::new(Known::new(object, attributes, ctime)));
        if let Some(turn) = turn {
            known.opened(turn, object, attributes);
        } else {
            known.object.store(object.0, Ordering::Release);
        }
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
    fn a_late_answer_does_not_undo_a_later_change() {
        let files = KnownFiles::new(&[]);
        let key = FileKey { inode: 12, birth: UnixNanos(1) };
        let known = files.opened(key, ObjectId(5), attributes(100, 1), UnixNanos(1), None);
        let (durable_write, truncate) = (known.turn(), known.turn());
        known.changed(truncate, attributes(10, 3), UnixNanos(3));
        known.changed(durable_write, attributes(100, 2), UnixNanos(2));
        assert_eq!(known.view(), View { size: 10, mtime: UnixNanos(3), ctime: UnixNanos(3) });
    }

    #[test]
    fn a_file_opened_again_keeps_its_status_change_time() {
        let files = KnownFiles::new(&[]);
        let key = FileKey { inode: 12, birth: UnixNanos(1) };
        let known = files.opened(key, ObjectId(5), attributes(1, 1), UnixNanos(7), None);
        let turn = known.turn();
        known.changed(turn, attributes(1, 1), UnixNanos(9));
        let turn = known.turn();
        let again = files.opened(key, ObjectId(6), attributes(2, 2), UnixNanos(99), Some(turn));
        assert_eq!(again.view(), View { size: 2, mtime: UnixNanos(2), ctime: UnixNanos(9) });
        assert_eq!(known.object(), ObjectId(6));
    }
}
