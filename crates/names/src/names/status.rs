//! Changes of a file: of its status at the origin (mode, owner, attributes, links), and of its size and modification
//! time in the engine.
//!
//! A change of status moves the status change time. By this time the start after a crash sees changes by others to a
//! file with dirty data. So the layer asks the engine before, and reports after: see [`Request::StatusBegins`].
//!
//! Invariants
//! - During a change of a file's status no open in the engine runs: it would take the time before the change for the
//!   last.
//! - Each change that begins also ends, whatever its result.

use std::fmt;
use std::sync::Arc;

use headpond_base::{Errno, ObjectId, Result, UnixNanos};
use headpond_engine::{Reply, Request};

use crate::file_locks::Changing;
use crate::inode::{Inode, KnownIn};
use crate::names::Names;
use crate::names::open::unexpected;
use crate::{ContentStore, Found, Tree};

/// A change at the origin that the engine has allowed, until it [ends](Self::end). If it is only dropped, the engine
/// does not learn the file's new status.
#[must_use]
pub struct StatusChange<'a, T: Tree, P: ContentStore<T>> {
    names: &'a Names<T, P>,
    /// `None` if only the engine knows the file. Then the engine does not learn the file's new status.
    inode: Option<Arc<Inode<T>>>,
    object: Option<ObjectId>,
    lock: Option<Changing<'a>>,
}

impl<T: Tree, P: ContentStore<T>> Names<T, P> {
    /// Begins a change of the status of a file. It holds the lock on the file until it ends.
    ///
    /// # Errors
    /// The engine's reason to refuse.
    pub async fn change_status(&self, inode: &Arc<Inode<T>>) -> Result<StatusChange<'_, T, P>> {
        let lock = if inode.managed { Some(self.file_locks.change([Some(inode.key), None]).await) } else { None };
        let known = inode.known();
        let mut change = self.begin_status(known.as_deref(), Some(inode)).await?;
        change.lock = lock;
        Ok(change)
    }

    /// The same for an operation that holds the lock already.
    pub(crate) async fn begin_status(
        &self,
        known: Option<&KnownIn<T>>,
        inode: Option<&Arc<Inode<T>>>,
    ) -> Result<StatusChange<'_, T, P>> {
        let mut change = StatusChange { names: self, inode: inode.cloned(), object: None, lock: None };
        if let Some(known) = known {
            let object = known.object();
            match self.pond.ask(Request::StatusBegins { object }, Box::new(|_| {})).await {
                Reply::Done => change.object = Some(object),
                // The engine has let go of the file, so nothing of it is dirty.
                Reply::Failed(Errno::BADF) => {}
                other => return Err(unexpected(&other)),
            }
        }
        Ok(change)
    }

    /// The stamp after the change. If the file could not open again as it is now, this opens it while the log still
    /// says that its status changes. A later read would not note that in the log.
    async fn left(&self, inode: &Arc<Inode<T>>, object: ObjectId) -> Option<Found> {
        let found = inode.look().await.ok()?;
        if self.is_opened_untouched(&found) {
            return Some(found);
        }
        self.pond.keep_open(object).await;
        inode.look().await.ok()
    }

    /// Sets the permissions of a file.
    ///
    /// # Errors
    /// The origin's, and the engine's.
    pub async fn set_mode(&self, inode: &Arc<Inode<T>>, mode: u32) -> Result<()> {
        let change = self.change_status(inode).await?;
        let set = match inode.reach().await {
            Ok(path) => self.tree.set_mode(&path, mode).await,
            Err(error) => Err(error),
        };
        if set.is_ok() {
            self.changed_at_origin(inode).await;
        }
        change.end().await;
        set
    }

    /// Truncates a file that is open in the engine.
    ///
    /// # Errors
    /// The engine's.
    pub async fn truncate(&self, inode: &Inode<T>, size: u64) -> Result<()> {
        let known = inode.known().ok_or(Errno::BADF)?;
        let mtime = known.not_before(self.tree.now());
        if known.view().size == size {
            // There is nothing to cut off, but the times move.
            return self.set_mtime(inode, mtime).await;
        }
        self.change(known.clone(), Request::Truncate { object: known.object(), size, mtime }, mtime).await
    }

    /// Sets the modification time of a file that is open in the engine.
    ///
    /// # Errors
    /// The engine's.
    pub async fn set_mtime(&self, inode: &Inode<T>, mtime: UnixNanos) -> Result<()> {
        let known = inode.known().ok_or(Errno::BADF)?;
        let now = known.not_before(self.tree.now());
        self.change(known.clone(), Request::SetMtime { object: known.object(), mtime, ctime: now }, now).await
    }

    /// Makes the engine change a file, takes over the file's new state, and waits for both.
    async fn change(&self, known: Arc<KnownIn<T>>, change: Request, when: UnixNanos) -> Result<()> {
        let taken_over = move |answer: &Reply| {
            if let Reply::Changed(attributes) = answer {
                known.changed(*attributes, when);
            }
        };
        match self.pond.ask(change, Box::new(taken_over)).await {
            Reply::Changed(_) => Ok(()),
            other => Err(unexpected(&other)),
        }
    }
}

impl<T: Tree, P: ContentStore<T>> StatusChange<'_, T, P> {
    /// The change is made, or has failed. The engine gets the file's new status, and then the next operation gets
    /// the lock.
    pub async fn end(mut self) {
        if let Some(object) = self.object {
            let found = match &self.inode {
                Some(inode) => self.names.left(inode, object).await,
                None => None,
            };
            self.object = None;
            self.names.pond.tell(Request::StatusEnds { object, stamp: found.map(|found| found.stamp()) });
        }
    }
}

impl<T: Tree, P: ContentStore<T>> Drop for StatusChange<'_, T, P> {
    fn drop(&mut self) {
        if let Some(object) = self.object {
            self.names.pond.tell(Request::StatusEnds { object, stamp: None });
        }
    }
}

impl<T: Tree, P: ContentStore<T>> fmt::Debug for StatusChange<'_, T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StatusChange({:?})", self.object)
    }
}
