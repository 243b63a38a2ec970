//! Opening, creating and closing regular files.
//!
//! Invariants
//! - Each open of a managed file is one `Open` of the engine, and each release one `Close`.
//! - While the engine opens a file, no other open of it runs, and its names do not change. While they change, no open runs
//!   (`file_locks.rs`).
//! - The engine has the origin's file before the application has its handle, and has it writable if possible. So
//!   destage can write what another handle wrote.

use std::ffi::OsStr;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use headpond_base::{Errno, ObjectId, Result};
use headpond_engine::{Namespace, OpenFile, Reply, Request};
use headpond_format::Stamp;

use crate::again::{Again, OWNERS, as_owner, open_as_may_be};
use crate::inode::{Inode, KnownIn};
use crate::names::Names;
use crate::places::Hold;
use crate::{ContentStore, Found, Tree};

/// How often one open tries again when the file changes meanwhile. After that a program must be writing to it through
/// the mount, and then the engine's view counts.
const OPENS_MAX: u32 = 3;

/// Counts on a file, so that it outlives its last name.
pub struct Pinned<T: Tree> {
    inode: Arc<Inode<T>>,
    writes: bool,
}

impl<T: Tree> Pinned<T> {
    /// One more use counts on it. Refused if it is gone: the kernel then looks up the name again.
    ///
    /// # Errors
    /// [`Errno::STALE`].
    pub async fn of(inode: &Arc<Inode<T>>) -> Result<Self> {
        if inode.slot.count_on().await { Ok(Self { inode: inode.clone(), writes: false }) } else { Err(Errno::STALE) }
    }

    /// The same, for a use that may write to it.
    ///
    /// # Errors
    /// As of [`of`](Self::of).
    pub async fn for_writing(inode: &Arc<Inode<T>>) -> Result<Self> {
        let mut pinned = Self::of(inode).await?;
        inode.writers.fetch_add(1, Ordering::AcqRel);
        pinned.writes = true;
        Ok(pinned)
    }
}

impl<T: Tree> Deref for Pinned<T> {
    type Target = Arc<Inode<T>>;

    fn deref(&self) -> &Arc<Inode<T>> {
        &self.inode
    }
}

impl<T: Tree> Drop for Pinned<T> {
    fn drop(&mut self) {
        if self.writes {
            self.inode.writers.fetch_sub(1, Ordering::AcqRel);
        }
        self.inode.slot.count_off();
    }
}

impl<T: Tree> fmt::Debug for Pinned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inode.fmt(f)
    }
}

/// An open file whose content goes through the engine. Give it to [`Names::release`] in the end.
pub struct FileHandle<T: Tree> {
    /// The file.
    pub inode: Pinned<T>,
    /// The engine's name for it.
    pub object: ObjectId,
    /// What applications see of it.
    pub known: Arc<KnownIn<T>>,
    /// It may be written by this handle.
    pub writes: bool,
}

impl<T: Tree> fmt::Debug for FileHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handle({:?}, {:?})", self.inode, self.object)
    }
}

/// A new file, and its handle.
pub struct Created<T: Tree> {
    /// The file, with one lookup.
    pub inode: Arc<Inode<T>>,
    /// Its attributes at the origin right after.
    pub found: Found,
    /// How its content is reached.
    pub content: Content<T>,
}

/// How the content of an open file is reached.
pub enum Content<T: Tree> {
    /// Through the engine.
    Pond(FileHandle<T>),
    /// Straight at the origin: a file on another file system, mounted below the origin.
    Straight(Pinned<T>, T::File),
}

/// One count of `Open` in the engine, given back when dropped.
pub struct Counted<'a, T: Tree, P: ContentStore<T>> {
    names: &'a Names<T, P>,
    object: ObjectId,
    kept: bool,
    _pinned: Pinned<T>,
}

impl<T: Tree, P: ContentStore<T>> Counted<'_, T, P> {
    /// The count goes over to a handle.
    fn keep(mut self) -> ObjectId {
        self.kept = true;
        self.object
    }
}

impl<T: Tree, P: ContentStore<T>> Drop for Counted<'_, T, P> {
    fn drop(&mut self) {
        if !self.kept {
            self.names.close(self.object);
        }
    }
}

impl<T: Tree, P: ContentStore<T>> fmt::Debug for Counted<'_, T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Counted({:?})", self.object)
    }
}

impl<T: Tree, P: ContentStore<T>> Names<T, P> {
    /// Opens a managed file for a use that counts on it already, and truncates it if asked.
    ///
    /// # Errors
    /// The origin's, and the engine's. [`Errno::STALE`] if it is gone: look its name up again.
    pub async fn open(&self, pinned: Pinned<T>, truncates: bool) -> Result<FileHandle<T>> {
        let file = self.open_at_origin(&pinned, pinned.writes || truncates).await?;
        let counted = self.open_in_engine(&pinned, file, false).await?;
        if truncates {
            self.truncate(&pinned, 0).await?;
        }
        let writes = pinned.writes;
        Self::handle(pinned, counted, writes)
    }

    /// Creates a file with this mode, and opens it.
    ///
    /// # Errors
    /// The origin's, and the engine's. [`Errno::STALE`] if something has this name by now.
    pub async fn create(
        &self,
        parent: &Arc<Inode<T>>,
        name: &OsStr,
        mode: u32,
        writes: bool,
        caller: &T::Caller,
    ) -> Result<Created<T>> {
        let directory = parent.reach().await?;
        // Exclusive: the kernel has looked and found nothing. If another program was faster, the permissions of its
        // file are unchecked, so the kernel must look again.
        let made = self.with_room(async || self.tree.create(&directory, name, mode, caller).await).await;
        let file = made.map_err(|error| if error == Errno::EXIST { Errno::STALE } else { error })?;
        let found = self.tree.look_at(&file).await?;
        // The file is there, whatever fails from here on.
        self.notice_new(&found).await?;
        let path = self.with_room(async || self.tree.path_of(&file).await).await?;
        let inode = self.take_in(path, &found, (parent, name)).await?;
        match self.open_created(&inode, file, writes).await {
            Ok(content) => Ok(Created { inode, found, content }),
            Err(error) => {
                self.forget(inode.node, 1).await;
                Err(error)
            }
        }
    }

    async fn open_created(&self, inode: &Arc<Inode<T>>, file: T::File, writes: bool) -> Result<Content<T>> {
        let pinned = Pinned::for_writing(inode).await?;
        if !inode.managed {
            return Ok(Content::Straight(pinned, file));
        }
        let counted = self.open_in_engine(inode, file, true).await?;
        Self::handle(pinned, counted, writes).map(Content::Pond)
    }

    /// Makes a new regular file known to the engine without keeping it open. So its first sync also makes its name
    /// durable.
    pub(crate) async fn introduce(&self, inode: &Arc<Inode<T>>) -> Result<()> {
        if inode.managed {
            let file = self.open_at_origin(inode, false).await?;
            self.open_in_engine(inode, file, true).await?;
        }
        Ok(())
    }

    /// Opens a managed file in the engine for a change by path. It stays open as long as the result lives.
    ///
    /// # Errors
    /// As of [`open`](Self::open).
    pub async fn open_for_change(&self, inode: &Arc<Inode<T>>) -> Result<Counted<'_, T, P>> {
        let file = self.open_at_origin(inode, true).await?;
        self.open_in_engine(inode, file, false).await
    }

    /// The last descriptor of a handle is gone.
    pub async fn release(&self, handle: FileHandle<T>) {
        self.close(handle.object);
        let inode = (*handle.inode).clone();
        drop(handle);
        self.let_go(&inode).await;
    }

    /// Gives back a handle's count in the engine.
    pub fn close(&self, object: ObjectId) {
        self.pond.tell(Request::Close { object });
    }

    /// Makes a file durable: all acknowledged changes, those at the origin alone included.
    ///
    /// # Errors
    /// As of fsync.
    pub async fn sync(&self, handle: &FileHandle<T>) -> Result<()> {
        self.sync_status(&handle.inode, handle.object).await?;
        match self.pond.ask(Request::sync(handle.object), Box::new(|_| {})).await {
            Reply::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// Syncs changes of mode, owner, links and extended attributes, which only the origin has. Only for these does an
    /// fsync wait for the origin.
    ///
    /// # Errors
    /// As of fsync.
    pub async fn sync_status(&self, inode: &Inode<T>, object: ObjectId) -> Result<()> {
        inode.settle_unsynced(self.pond.sync_origin(object)).await
    }

    fn handle(pinned: Pinned<T>, counted: Counted<'_, T, P>, writes: bool) -> Result<FileHandle<T>> {
        let known = pinned.known().ok_or(Errno::IO)?;
        Ok(FileHandle { inode: pinned, object: counted.keep(), known, writes })
    }

    /// Opens the origin's file.
    async fn open_at_origin(&self, inode: &Arc<Inode<T>>, writes: bool) -> Result<T::File> {
        if let Some(file) = open_as_may_be(inode, self.settings.read_only, writes).await? {
            return Ok(file);
        }
        let change = self.change_status(inode).await?;
        let opened = as_owner(inode).await;
        change.end().await;
        opened
    }

    /// Opens a file in the engine, with its attributes at the origin. If the file changes between that look and the
    /// engine's answer, the engine would later see a change by others. So this looks once more, and reports to the
    /// engine.
    async fn open_in_engine(&self, inode: &Arc<Inode<T>>, file: T::File, created: bool) -> Result<Counted<'_, T, P>> {
        // Other requests of the mount wait for the lock. Changes past the mount do not.
        let _turn = self.file_locks.open(inode.key).await;
        let mut tries = 0;
        loop {
            let before = self.tree.look_at(&file).await?;
            let counted = self.open_once(inode, &file, &before, created && tries == 0).await?;
            let after = self.tree.look_at(&file).await?;
            let (before, now) = (before.stamp(), after.stamp());
            tries += 1;
            let is_lost = inode.is_lost();
            if (before.size, before.mtime) != (now.size, now.mtime) && tries < OPENS_MAX && !is_lost {
                // The bytes may have changed too. The engine compares its own with the present stamp.
                continue;
            }
            if after.links == 0 {
                let change = Namespace::Unlink { object: counted.object };
                self.pond.namespace(Some(change), Box::pin(async { Ok(None) })).await?;
            } else if before.ctime != now.ctime {
                self.restamp(inode, counted.object, now).await;
            }
            let again = self.is_opened_untouched(&after).then(|| self.again(inode));
            self.pond.attach(counted.object, file, again).await;
            return if is_lost { Err(Errno::STALE) } else { Ok(counted) };
        }
    }

    /// Reports the present stamp of an open file to the engine. The one at the open may show a state in the midst of
    /// destage.
    async fn restamp(&self, inode: &Inode<T>, object: ObjectId, stamp: Stamp) {
        let known = inode.known();
        let taken_over = move |answer: &Reply| {
            if let (Reply::Changed(attributes), Some(known)) = (answer, known) {
                known.changed(*attributes, attributes.ctime);
            }
        };
        self.pond.ask(Request::Restamp { object, stamp, seen: false }, Box::new(taken_over)).await;
    }

    async fn open_once(
        &self,
        inode: &Arc<Inode<T>>,
        file: &T::File,
        found: &Found,
        created: bool,
    ) -> Result<Counted<'_, T, P>> {
        let path = self.path_of(inode).await;
        let opening = OpenFile {
            inode: inode.key.inode,
            birth: inode.key.birth,
            path: path.clone(),
            stamp: found.stamp(),
            created: created || inode.is_newcomer(),
            // Only a file that is new to the engine is asked about.
            allocated: if inode.known().is_some() { 0 } else { self.tree.allocated(file, found).await },
        };
        let pinned = Pinned::of(inode).await?;
        let (files, opened) = (self.known.clone(), inode.clone());
        let is_gone = found.links == 0;
        let taken_over = move |answer: &Reply| {
            if let Reply::Opened { object, attributes } = answer {
                // Its last name went while it was not open, and with that what only the engine had of it.
                if is_gone && files.find(opened.key).is_some_and(|earlier| earlier.object() != *object) {
                    opened.set_lost();
                }
                let known = files.opened(opened.key, *object, *attributes);
                known.rename(path);
                opened.set_known(&known);
                opened.set_settled();
            }
        };
        match self.pond.ask(Request::Open(opening.into()), Box::new(taken_over)).await {
            Reply::Opened { object, .. } => Ok(Counted { names: self, object, kept: false, _pinned: pinned }),
            other => Err(unexpected(&other)),
        }
    }

    /// Whether a file can open again without a change of its mode, which would move its status change time.
    pub(crate) fn is_opened_untouched(&self, found: &Found) -> bool {
        self.tree.user() == 0 || found.mode & OWNERS == OWNERS
    }

    /// The way to open an inode again that the kernel holds at this moment.
    pub(crate) fn again(&self, inode: &Arc<Inode<T>>) -> Again<T> {
        Again::new(Hold::of(inode), self.inodes.home.clone(), self.settings.read_only)
    }
}

/// An answer of a kind that the request cannot have: the engine and the name layer disagree.
pub(crate) const fn unexpected(reply: &Reply) -> Errno {
    match reply {
        Reply::Failed(error) => *error,
        _ => Errno::IO,
    }
}
