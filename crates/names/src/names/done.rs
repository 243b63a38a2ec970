//! Changes of names that a process before this one may have made, and not answered. The kernel asks for them again, and
//! has held the directories' locks all the time. As only this mount changes the origin, what is there now tells whether
//! the change was made.
//!
//! Each function finds what the change left. If it was not made, the answer is what the change's own error was.

use std::ffi::OsStr;
use std::sync::Arc;

use headpond_base::{Errno, Result};
use headpond_engine::Namespace;

use crate::inode::Inode;
use crate::names::open::Created;
use crate::names::{Name, Names};
use crate::{Access, Content, ContentStore, FileKey, FileKind, Found, Pinned, RenameFlags, Tree};

impl<T: Tree, P: ContentStore<T>> Names<T, P> {
    /// What was made under this name. With one lookup.
    ///
    /// # Errors
    /// [`Errno::EXIST`] if something of another kind has the name.
    pub async fn was_made(
        &self,
        parent: &Arc<Inode<T>>,
        name: &OsStr,
        kind: FileKind,
    ) -> Result<(Arc<Inode<T>>, Found)> {
        let (inode, found) = self.look_up(parent, name).await?;
        let introduced = if found.kind != kind {
            Err(Errno::EXIST)
        } else if kind == FileKind::File {
            self.introduce_unknown(&inode).await
        } else {
            Ok(())
        };
        match introduced {
            Ok(()) => Ok((inode, found)),
            Err(error) => {
                self.forget(inode.node, 1).await;
                Err(error)
            }
        }
    }

    /// The file that was created under this name, opened. With one lookup.
    ///
    /// # Errors
    /// [`Errno::STALE`] if something else has the name; as of [`create`](Self::create).
    pub async fn was_created(&self, parent: &Arc<Inode<T>>, name: &OsStr, writes: bool) -> Result<Created<T>> {
        let (inode, found) = self.look_up(parent, name).await?;
        // No program has had it, so nothing was written to it.
        let opened = if found.kind == FileKind::File && found.size == 0 && found.links == 1 {
            self.open_made(&inode, writes).await
        } else {
            Err(Errno::STALE)
        };
        match opened {
            Ok(content) => Ok(Created { inode, found, content }),
            Err(error) => {
                self.forget(inode.node, 1).await;
                Err(error)
            }
        }
    }

    async fn open_made(&self, inode: &Arc<Inode<T>>, writes: bool) -> Result<Content<T>> {
        if !inode.managed {
            let file = inode.open_for(Access::Write).await?;
            return Ok(Content::Straight(Pinned::for_writing(inode).await?, file));
        }
        self.introduce_unknown(inode).await?;
        let pinned = if writes { Pinned::for_writing(inode).await? } else { Pinned::of(inode).await? };
        self.open(pinned, false).await.map(Content::Pond)
    }

    /// A new file's first sync makes its name durable, if the engine knows that it is new.
    async fn introduce_unknown(&self, inode: &Arc<Inode<T>>) -> Result<()> {
        if self.known.find(inode.key).is_some() { Ok(()) } else { self.introduce(inode).await }
    }

    /// The inode that got this name. With one more lookup.
    ///
    /// # Errors
    /// [`Errno::EXIST`] if something else has the name.
    pub async fn was_linked(&self, inode: &Arc<Inode<T>>, parent: &Arc<Inode<T>>, name: &OsStr) -> Result<Found> {
        let found = self.tree.look_in(&*parent.reach().await?, name).await?;
        if found.key() != inode.key || found.device != inode.device {
            return Err(Errno::EXIST);
        }
        self.inodes.look_up(&found).ok_or(Errno::STALE)?;
        inode.find_by(parent, name);
        self.changed_at_origin(inode).await;
        inode.look().await
    }

    /// What has this name: for [`was_renamed`](Self::was_renamed).
    ///
    /// # Errors
    /// The origin's.
    pub async fn key_at(&self, parent: &Arc<Inode<T>>, name: &OsStr) -> Result<FileKey> {
        self.tree.look_in(&*parent.reach().await?, name).await.map(|found| found.key())
    }

    /// Whether a rename was made: `moved`, or anything if nothing has the old name, has the new one. What moved is found
    /// by its new name from now on.
    ///
    /// # Errors
    /// The origin's.
    pub async fn was_renamed(
        &self,
        from: (&Arc<Inode<T>>, &OsStr),
        to: (&Arc<Inode<T>>, &OsStr),
        flags: RenameFlags,
        moved: Option<FileKey>,
    ) -> Result<bool> {
        let there = match self.tree.look_in(&*to.0.reach().await?, to.1).await {
            Ok(found) => found,
            Err(Errno::NOENT) => return Ok(false),
            Err(error) => return Err(error),
        };
        let left = match self.tree.look_in(&*from.0.reach().await?, from.1).await {
            Ok(found) => Some(found),
            Err(Errno::NOENT) => None,
            Err(error) => return Err(error),
        };
        if moved.map_or(left.is_some(), |moved| there.key() != moved) {
            return Ok(false);
        }
        self.is_found_by(&there, to).await;
        let moved = self.known_file(&there);
        if !flags.exchanges() && (moved.is_some() || there.kind == FileKind::Directory) {
            // The log may lack it. To say it twice is as to say it once.
            let change = Namespace::Rename {
                moved: moved.map(|known| known.object()),
                replaced: None,
                from: self.path_in(from.0, from.1).await,
                to: self.path_in(to.0, to.1).await,
                exchange: false,
            };
            let stamp = there.stamp();
            self.pond.namespace(Some(change), Box::pin(async move { Ok(Some(stamp)) })).await?;
        }
        if let Some(other) = left.filter(|_| flags.exchanges()) {
            self.is_found_by(&other, from).await;
        }
        Ok(true)
    }

    async fn is_found_by(&self, found: &Found, name: Name<'_, T>) {
        if let Some(inode) = self.inodes.find(found) {
            inode.set_place(name.0, name.1);
            inode.note_unsynced();
        }
        if let Some(known) = self.known_file(found) {
            known.rename(self.path_in(name.0, name.1).await);
        }
    }
}
