//! Removal and rename of a file, and its descriptors.
//!
//! Invariants
//! - If a file loses its last name and no application has it open, all its descriptors close before the removal is
//!   answered, here and in the shard. So its space is free then, and on NFS its directory is empty: NFS hides an open
//!   file there under another name.
//! - Where the origin keeps no birth times, the engine closes a removed file only once its log says that the file is
//!   forgotten. Until then the next file must not get its number: after a crash nothing else would tell the two apart.
//!   NFS, which hides open files, is let off if no application has the file open. A crash while such a file's data was on
//!   its way to the origin may then give that data to a new file.
//! - A file that an application has open, and a directory, stays open here to its end.
//! - A change that fails leaves everything as it was.
//!
//! Writes under way at the origin for such a file (destage) end first; the removal waits some seconds at most. Later
//! ones are dropped.

use std::ffi::{OsStr, OsString};
use std::sync::Arc;
use std::time::Duration;

use headpond_base::{ObjectId, Result};

use crate::found::FileKey;
use crate::inode::{Inode, KnownIn};
use crate::names::Names;
use crate::places::{Home, NameInDirectory};
use crate::pond::Leaving;
use crate::slots::{Closed, PathHolder};
use crate::{ContentStore, FileKind, Found, RenameFlags, Tree};

/// How long a removal waits for closes, if the origin would hide an open file in its directory. An application that
/// has closed a file and removes it does not wait until the close has arrived here. If an application keeps the file
/// open, the removal takes this much longer.
const RELEASE: Duration = Duration::from_millis(200);

/// A name that is about to go, and what it names.
pub(crate) struct Going<T: Tree, P> {
    home: Arc<Home<T>>,
    pond: Arc<P>,
    directory: Arc<Inode<T>>,
    name: OsString,
    found: Option<Found>,
    inode: Option<Arc<Inode<T>>>,
    object: Option<ObjectId>,
    /// How long to wait for applications that have it open.
    patience: Duration,
}

/// The same after all preparations. Unless the name is [`gone`](Self::gone), everything stays as it was.
pub(crate) struct Prepared<'a, T: Tree, P> {
    going: &'a Going<T, P>,
    becomes: Option<Becomes<T>>,
}

enum Becomes<T: Tree> {
    /// Nothing: it has other names, or is unknown here.
    Same,
    /// Closed for good.
    Nothing { path: Option<Closed<T::Path, Inode<T>>>, file: Option<Box<dyn Leaving>> },
    /// Open to the end, without a name.
    Nameless,
    /// It has other names, and none of them is known.
    Elsewhere(NameInDirectory<T>),
}

/// Closes what an object was given. If its file `stays` with the engine, opens it instead, so that the engine closes it.
async fn leaving<T: Tree, P: ContentStore<T>>(
    pond: &P,
    object: Option<ObjectId>,
    stays: bool,
) -> Option<Box<dyn Leaving>> {
    if stays {
        pond.keep_open(object?).await;
        return None;
    }
    pond.leaving(object?).await
}

impl<T: Tree, P: ContentStore<T>> Names<T, P> {
    /// A name that is about to go, if it exists.
    pub(crate) fn going(
        &self,
        directory: &Arc<Inode<T>>,
        name: &OsStr,
        found: Option<&Found>,
        known: Option<&KnownIn<T>>,
    ) -> Going<T, P> {
        Going {
            home: self.inodes.home.clone(),
            pond: self.pond.clone(),
            directory: directory.clone(),
            name: name.to_owned(),
            found: found.copied(),
            inode: found.and_then(|found| self.inodes.find(found)),
            object: known.map(KnownIn::<T>::object),
            patience: if self.settings.hides_open_files { RELEASE } else { Duration::ZERO },
        }
    }

    /// A handle of this file was closed, with its last descriptor. If the file has no name and that was the last
    /// handle, the file is gone, whatever the kernel remembers.
    pub async fn let_go(&self, inode: &Inode<T>) {
        let Some(removed) = inode.removed() else { return };
        removed.is_let_go();
        if inode.slot.users() == 0
            && let Ok(found) = inode.look().await
            && found.links == 0
        {
            inode.set_last_seen(&found);
            let known = inode.known();
            // The engine's descriptor, too: otherwise the engine's remaining work there would find no file.
            // Where another file may get its number, it closes later: see the head of this file.
            let stays = inode.key.birth == FileKey::NO_BIRTH;
            let file = leaving(&*self.pond, known.as_ref().map(|known| known.object()), stays).await;
            let ended = inode.slot.end_kept();
            if ended {
                inode.went();
            }
            if ended && let Some(known) = known {
                file.into_iter().for_each(Leaving::gone);
                // A new file may have its number by now.
                self.known.gone_unless_another(inode.key, &known);
            }
        }
    }
}

impl<T: Tree, P: ContentStore<T>> Going<T, P> {
    /// Call it right before the change at the origin.
    pub(crate) async fn prepare(&self) -> Prepared<'_, T, P> {
        Prepared { going: self, becomes: Some(self.becomes().await) }
    }

    async fn becomes(&self) -> Becomes<T> {
        let Some(found) = &self.found else { return Becomes::Same };
        let directory = found.kind == FileKind::Directory;
        let last = found.links == 1 || directory;
        let Some(inode) = &self.inode else {
            let file = self.leaving(self.object.filter(|_| last)).await;
            return Becomes::Nothing { path: None, file };
        };
        // Numbers on other file systems are the mount's own: a number in use never goes to another file.
        if last && !directory && inode.device == self.directory.device && self.may_be_let_go(inode) {
            // The name in its place may have gone before. If this name stays after all, the place leads to it.
            if !inode.is_found_by(&self.directory, &self.name) {
                inode.set_place(&self.directory, &self.name);
            }
            // The file before the inode: an operation that opens the file again asks for the inode's path, and this
            // waits for it.
            let file = self.leaving(inode.known().map(|known| known.object()).or(self.object)).await;
            if let Some(path) = Closed::of(|time| self.home.tree.pause(time), inode.clone(), self.patience).await {
                inode.set_last_seen(found);
                return Becomes::Nothing { path: Some(path), file };
            }
        }
        // If its place no longer leads to it, the last attributes must do.
        let Ok(open) = inode.reach().await else { return Becomes::Same };
        if last {
            inode.keep_path(&open);
            self.home.open.keep(inode, open);
            return Becomes::Nameless;
        }
        let leads_to_it = inode.is_found_by(&self.directory, &self.name);
        if leads_to_it {
            inode.keep_path(&open);
        }
        if leads_to_it && let Some(place) = self.home.open.hold(inode, open, || inode.take_place()) {
            return Becomes::Elsewhere(place);
        }
        Becomes::Same
    }

    async fn leaving(&self, object: Option<ObjectId>) -> Option<Box<dyn Leaving>> {
        leaving(&*self.pond, object, self.stays_with_the_engine()).await
    }

    /// Whether the file stays open until the log says that it is forgotten.
    fn stays_with_the_engine(&self) -> bool {
        let lacks_birth = self.found.is_some_and(|found| found.key().birth == FileKey::NO_BIRTH);
        lacks_birth && self.patience.is_zero()
    }

    /// Whether nothing counts on the inode, or there is time to wait for what does.
    fn may_be_let_go(&self, inode: &Inode<T>) -> bool {
        inode.slot.users() == 0 || !self.patience.is_zero()
    }
}

impl<T: Tree, P: ContentStore<T>> Prepared<'_, T, P> {
    /// The name is gone. Call it before the answer goes out.
    pub(crate) fn gone(mut self) {
        match self.becomes.take() {
            Some(Becomes::Nothing { path, file }) => {
                if self.going.stays_with_the_engine() {
                    // Programs that need space wait until the engine has closed it.
                    drop(self.going.pond.removed(self.going.object));
                }
                file.into_iter().for_each(Leaving::gone);
                path.into_iter().for_each(Closed::gone);
            }
            Some(Becomes::Nameless) => {
                if let Some(inode) = self.going.inode.as_ref().filter(|inode| inode.managed)
                    && let Some(removed) = self.going.pond.removed(self.going.object)
                {
                    // Programs that need space wait until the file is closed here.
                    inode.set_removed(removed);
                }
            }
            Some(Becomes::Elsewhere(_) | Becomes::Same) | None => {}
        }
    }
}

impl<T: Tree, P> Drop for Prepared<'_, T, P> {
    fn drop(&mut self) {
        let Some(inode) = &self.going.inode else { return };
        match self.becomes.take() {
            Some(Becomes::Nameless) => {
                inode.slot.stays();
                inode.let_go_of_kept();
            }
            Some(Becomes::Elsewhere(place)) => {
                drop(inode.put_place(place));
                inode.let_go_of_kept();
            }
            // The drop puts back what was leaving.
            Some(Becomes::Nothing { .. } | Becomes::Same) | None => {}
        }
    }
}

/// Removes a name, and closes what it named. Calls `noted` when the name is gone, and before anything depends on
/// that.
pub(crate) async fn unlink<T: Tree, P: ContentStore<T>>(
    going: &Going<T, P>,
    is_directory: bool,
    noted: impl FnOnce(),
) -> Result<()> {
    let directory = going.directory.reach().await?;
    let prepared = going.prepare().await;
    going.home.tree.unlink(&directory, &going.name, is_directory).await?;
    noted();
    prepared.gone();
    Ok(())
}

/// A rename that is about to be done.
pub(crate) struct Rename<T: Tree, P> {
    from: (Arc<Inode<T>>, OsString),
    to: (Arc<Inode<T>>, OsString),
    flags: RenameFlags,
    moved: Option<Arc<Inode<T>>>,
    /// What gets the old name in an exchange.
    exchanged: Option<Arc<Inode<T>>>,
    replaced: Going<T, P>,
}

impl<T: Tree, P: ContentStore<T>> Names<T, P> {
    /// A rename of `source`, over `target` or in exchange for it.
    pub(crate) fn renaming(
        &self,
        from: (&Arc<Inode<T>>, &OsStr),
        to: (&Arc<Inode<T>>, &OsStr),
        flags: RenameFlags,
        source: &Found,
        target: Option<&Found>,
        replaced: Going<T, P>,
    ) -> Rename<T, P> {
        Rename {
            from: (from.0.clone(), from.1.to_owned()),
            to: (to.0.clone(), to.1.to_owned()),
            flags,
            moved: self.inodes.find(source),
            exchanged: target.filter(|_| flags.exchanges()).and_then(|target| self.inodes.find(target)),
            replaced,
        }
    }
}

impl<T: Tree, P: ContentStore<T>> Rename<T, P> {
    /// Renames. Calls `noted` when that is done, and before anything depends on it.
    pub(crate) async fn carry_out(&self, noted: impl FnOnce()) -> Result<()> {
        let (from, to) = (self.from.0.reach().await?, self.to.0.reach().await?);
        let replaced = self.replaced.prepare().await;
        let home = &self.replaced.home;
        // From here on this operation asks for no path.
        let moving = home.moves.begin();
        home.tree.rename((&from, &self.from.1), (&to, &self.to.1), self.flags).await?;
        if let Some(moved) = &self.moved {
            moved.set_place(&self.to.0, &self.to.1);
        }
        if let Some(other) = &self.exchanged {
            other.set_place(&self.from.0, &self.from.1);
        }
        drop(moving);
        noted();
        replaced.gone();
        Ok(())
    }

    /// What has the new name now, at the origin.
    pub(crate) async fn look(&self) -> Result<Found> {
        self.replaced.home.tree.look_in(&*self.to.0.reach().await?, &self.to.1).await
    }
}
