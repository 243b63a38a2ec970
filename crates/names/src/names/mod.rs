//! Names: looking them up, making, linking, renaming and removing them.
//!
//! Invariants
//! - The origin's directories change at once. If the engine knows the file, a rename or the removal of its last name
//!   runs when the engine says, in order with the log.
//! - A change holds the lock on the file (`file_locks.rs`) from its look at what the engine knows to its end. In
//!   between, no other operation opens the file or changes its names.
//! - What is made belongs to the caller.

mod adopt;
mod done;
mod open;
mod removal;
mod status;

pub use open::{Content, Counted, Created, FileHandle, Pinned};
pub use status::StatusChange;

use std::ffi::OsStr;
use std::fmt;
use std::sync::Arc;

use headpond_base::{Errno, Result};
use headpond_engine::{Namespace, Request};

use crate::file_locks::{Changing, FileLocks};
use crate::inode::{Inode, KnownIn};
use crate::inodes::{Inodes, ROOT};
use crate::known::{KnownFiles, KnownObject};
use crate::lasting::Lasting;
use crate::names::removal::Rename;
use crate::take_over::TakenOver;
use crate::{Access, ContentStore, FileKey, FileKind, Found, Freshness, Making, RenameFlags, Tree};

/// The properties of a mount.
#[derive(Clone, Copy, Debug)]
pub struct MountSettings {
    /// How many paths stay open.
    pub descriptors: usize,
    /// How many files it remembers that neither the kernel nor the engine holds. `None`: the usual number.
    pub remembered: Option<usize>,
    /// The mount allows no change.
    pub read_only: bool,
    /// A file that is removed while it is open stays in its directory at the origin, under another name.
    pub hides_open_files: bool,
}

/// The names of one mount.
pub struct Names<T: Tree, P> {
    /// The inodes that the kernel knows.
    pub inodes: Inodes<T>,
    /// The files that the engine may know better than the origin.
    pub known: Arc<KnownFiles<T::OfKnown>>,
    tree: Arc<T>,
    pond: Arc<P>,
    file_locks: FileLocks,
    settings: MountSettings,
}

/// A name in a directory.
type Name<'a, T> = (&'a Arc<Inode<T>>, &'a OsStr);

/// What is known of the age of what has a name.
#[derive(Clone, Copy)]
enum Age {
    /// It was just made here.
    New,
    Unknown,
}

/// What has a name, and what has the other one.
type Both = (Found, Option<Found>);

impl<T: Tree, P: ContentStore<T>> Names<T, P> {
    /// Over an origin's root. `recovered` are the files which the pool brought back with something that the origin has
    /// not got yet: see [`adopt`](Self::adopt).
    ///
    /// # Errors
    /// If the root cannot be looked at.
    pub async fn new(
        tree: Arc<T>,
        root: T::Path,
        pond: Arc<P>,
        recovered: &[KnownObject],
        settings: MountSettings,
    ) -> Result<Self> {
        Self::start(tree, root, pond, recovered, settings, None).await.map(|(names, _)| names)
    }

    /// The same of a mount that outlives this process. Returns what it took over from the process before.
    ///
    /// # Errors
    /// As of [`new`](Self::new).
    pub async fn lasting(
        tree: Arc<T>,
        root: T::Path,
        pond: Arc<P>,
        recovered: &[KnownObject],
        settings: MountSettings,
        lasting: Lasting<T::Path>,
    ) -> Result<(Self, TakenOver<T>)> {
        Self::start(tree, root, pond, recovered, settings, Some(lasting)).await
    }

    async fn start(
        tree: Arc<T>,
        root: T::Path,
        pond: Arc<P>,
        recovered: &[KnownObject],
        settings: MountSettings,
        lasting: Option<Lasting<T::Path>>,
    ) -> Result<(Self, TakenOver<T>)> {
        let known = Arc::new(match settings.remembered {
            Some(files) => KnownFiles::remembering(recovered, files),
            None => KnownFiles::new(recovered),
        });
        let files = known.clone();
        pond.when_let_go(Box::new(move |object| files.let_go(object)));
        let inodes = Inodes::new(tree.clone(), root, settings.descriptors).await?;
        let names = Self { inodes, known, tree, pond, file_locks: FileLocks::default(), settings };
        let taken_over = match lasting {
            Some(lasting) => names.take_over(lasting).await,
            None => TakenOver::new(),
        };
        Ok((names, taken_over))
    }

    async fn take_over(&self, lasting: Lasting<T::Path>) -> TakenOver<T> {
        self.inodes.last(&lasting);
        let all = self.inodes.take_over(lasting, |key| self.known.find(key)).await;
        for inode in all.values().filter(|inode| inode.managed && inode.slot.is_kept()) {
            if let Some(removed) = self.pond.removed(inode.known().map(|known| known.object())) {
                inode.set_removed(removed);
            }
        }
        all
    }

    /// The mount's root.
    pub fn root(&self) -> &Arc<Inode<T>> {
        self.inodes.root()
    }

    /// The origin.
    pub fn tree(&self) -> &Arc<T> {
        &self.tree
    }

    /// Looks a name up. The kernel then holds it: one more lookup.
    ///
    /// # Errors
    /// The origin's.
    pub async fn look_up(&self, parent: &Arc<Inode<T>>, name: &OsStr) -> Result<(Arc<Inode<T>>, Found)> {
        self.look_up_as(parent, name, Age::Unknown).await
    }

    async fn look_up_as(&self, parent: &Arc<Inode<T>>, name: &OsStr, age: Age) -> Result<(Arc<Inode<T>>, Found)> {
        let directory = parent.reach().await?;
        let found = self.tree.look_in(&directory, name).await?;
        if parent.node == ROOT && self.tree.hides(&found).await {
            return Err(Errno::NOENT);
        }
        match age {
            Age::New => self.notice_new(&found).await?,
            Age::Unknown => self.notice(&found).await?,
        }
        if let Some(inode) = self.inodes.look_up(&found) {
            inode.find_by(parent, name);
            if inode.kind == FileKind::Directory && inode.node != ROOT {
                let entered = match inode.reach().await {
                    Ok(path) => self.tree.may_enter(&directory, name, &path, &found).await,
                    Err(error) => Err(error),
                };
                if let Err(error) = entered {
                    self.forget(inode.node, 1).await;
                    return Err(error);
                }
            }
            self.recall(&inode);
            return Ok((inode, found));
        }
        let path = self.with_room(async || self.tree.find(&directory, name).await).await?;
        let found = self.tree.look(&path, Freshness::Usual).await?;
        if found.kind == FileKind::Directory {
            self.tree.may_enter(&directory, name, &path, &found).await?;
        }
        let inode = self.take_in(path, &found, (parent, name)).await?;
        Ok((inode, found))
    }

    /// To be called with what a name shows, before it is believed to be what has its number: where the origin keeps no
    /// birth times, a file that others removed, or a directory, may be held by that number.
    async fn notice(&self, found: &Found) -> Result<()> {
        let Some(gone) = self.inodes.replaced_by(found).await else { return Ok(()) };
        if gone.managed {
            let _lock = self.file_locks.change([Some(gone.key), None]).await;
            if gone.is_replaced() {
                // Another operation was faster: the number now belongs to the new file.
                return Ok(());
            }
            if let Some(known) = gone.known().or_else(|| self.known.find(gone.key)) {
                let change = Namespace::Unlink { object: known.object() };
                self.pond.namespace(Some(change), Box::pin(async { Ok(None) })).await?;
            }
            gone.set_replaced();
            self.known.gone(gone.key);
        } else {
            gone.set_replaced();
        }
        Ok(())
    }

    /// To be called with what was just made, before anything after that can fail. Where the origin keeps no birth
    /// times, its number may be that of a file that others removed: all that is held or known by the number is of that
    /// one.
    pub(crate) async fn notice_new(&self, found: &Found) -> Result<()> {
        let key = found.key();
        let may_be_held = key.birth == FileKey::NO_BIRTH && self.inodes.same_device(found);
        if !may_be_held || self.inodes.find(found).is_none() && self.known.find(key).is_none() {
            return Ok(());
        }
        let _lock = self.file_locks.change([Some(key), None]).await;
        // A removal through the mount that held the lock before has forgotten the file.
        let held = self.inodes.find(found);
        if let Some(known) = held.as_ref().and_then(|held| held.known()).or_else(|| self.known.find(key)) {
            let change = Namespace::Unlink { object: known.object() };
            self.pond.namespace(Some(change), Box::pin(async { Ok(None) })).await?;
        }
        if let Some(held) = held {
            held.set_replaced();
        }
        self.known.gone(key);
        Ok(())
    }

    /// Takes in what was found by a name, with one lookup by the kernel.
    pub(crate) async fn take_in(&self, path: T::Path, found: &Found, place: Name<'_, T>) -> Result<Arc<Inode<T>>> {
        self.notice(found).await?;
        self.inodes.take_in(path, found, (place.0, place.1), |key| self.known.find(key))
    }

    /// Looks up a node by its number alone, or the directory above it: what a file handle has, if the kernel has
    /// forgotten the inode. With one more lookup.
    ///
    /// # Errors
    /// [`Errno::STALE`] if it is not known any more; the origin's.
    pub async fn look_up_by_number(&self, node: u64, above: bool) -> Result<(Arc<Inode<T>>, Found)> {
        let inode = self.inodes.by_number(node)?;
        self.recall(&inode);
        let seen = if above { self.look_above(&inode).await } else { inode.look().await.map(|found| (inode, found)) };
        if above || seen.is_err() {
            self.forget(node, 1).await;
        }
        seen
    }

    async fn look_above(&self, inode: &Inode<T>) -> Result<(Arc<Inode<T>>, Found)> {
        let (parent, _) = inode.place().ok_or(Errno::STALE)?;
        let parent = self.inodes.by_number(parent.node)?;
        match parent.look().await {
            Ok(found) => Ok((parent, found)),
            Err(error) => {
                self.forget(parent.node, 1).await;
                Err(error)
            }
        }
    }

    /// The kernel gives back lookups.
    pub async fn forget(&self, node: u64, count: u64) {
        let Some(inode) = self.inodes.forget(node, count) else { return };
        if let Some(removed) = inode.removed() {
            removed.is_closing();
        }
        self.forget_known(&inode).await;
        self.inodes.home.remember(&inode);
    }

    async fn forget_known(&self, inode: &Inode<T>) {
        // One that is gone was forgotten when it went; its number may be another file's by now.
        if !inode.managed || inode.is_gone() || inode.known().is_none() {
            return;
        }
        let Ok(found) = inode.look().await else { return };
        let key = inode.key;
        if found.links == 0 {
            self.known.gone(key);
        } else {
            inode.forget_known();
            self.known.forgotten(key);
        }
    }

    /// An inode that the kernel had forgotten, and something else held, is as one that was just taken in.
    fn recall(&self, inode: &Inode<T>) {
        if inode.managed
            && inode.known().is_none()
            && let Some(known) = self.known.find(inode.key)
        {
            inode.set_known(&known);
        }
    }

    /// Makes a directory, a symbolic link, a device, or a file that is not opened. With one lookup.
    ///
    /// # Errors
    /// The origin's, and the engine's.
    pub async fn make(
        &self,
        parent: &Arc<Inode<T>>,
        name: &OsStr,
        what: &Making,
        caller: &T::Caller,
    ) -> Result<(Arc<Inode<T>>, Found)> {
        self.tree.make(&*parent.reach().await?, name, what, caller).await?;
        let (inode, found) = self.look_up_as(parent, name, Age::New).await?;
        if matches!(what, Making::Node { kind: FileKind::File, .. })
            && let Err(error) = self.introduce(&inode).await
        {
            self.forget(inode.node, 1).await;
            return Err(error);
        }
        Ok((inode, found))
    }

    /// Gives a file a further name. With one more lookup.
    ///
    /// # Errors
    /// The origin's, and the engine's.
    pub async fn link(&self, inode: &Arc<Inode<T>>, parent: &Arc<Inode<T>>, name: &OsStr) -> Result<Found> {
        let _lock = self.file_locks.change([inode.managed.then_some(inode.key), None]).await;
        let known = inode.known();
        let change = self.begin_status(known.as_deref(), Some(inode)).await?;
        let linked = self.link_in_turn(known.as_deref(), inode, parent, name).await;
        change.end().await;
        linked
    }

    async fn link_in_turn(
        &self,
        known: Option<&KnownIn<T>>,
        inode: &Arc<Inode<T>>,
        parent: &Arc<Inode<T>>,
        name: &OsStr,
    ) -> Result<Found> {
        let changed = self.name_changes(known, &[parent]).await;
        let operation = {
            let (tree, inode, parent, name) = (self.tree.clone(), inode.clone(), parent.clone(), name.to_owned());
            async move {
                let (path, directory) = (inode.reach().await?, parent.reach().await?);
                tree.link(&path, &directory, &name).await?;
                changed.note();
                Ok(None)
            }
        };
        self.pond.namespace(None, Box::pin(operation)).await?;
        self.changed_at_origin(inode).await;
        let found = inode.look().await?;
        // The new name is one more lookup of the same inode.
        self.inodes.look_up(&found).ok_or(Errno::STALE)?;
        inode.find_by(parent, name);
        Ok(found)
    }

    /// Removes a name of anything but a directory.
    ///
    /// # Errors
    /// The origin's, and the engine's.
    pub async fn remove(&self, parent: &Arc<Inode<T>>, name: &OsStr) -> Result<()> {
        // The kernel holds the directory meanwhile: the name stays what it is here.
        let ((found, _), _turn) = self.locked((parent, name), None).await?;
        let known = self.known_file(&found);
        let going = self.going(parent, name, Some(&found), known.as_deref());
        let changed = self.name_changes(known.as_deref(), &[parent]).await;
        let operation = async move {
            removal::unlink(&going, false, || changed.note()).await?;
            Ok(None)
        };
        let last = known.as_deref().filter(|_| found.links == 1);
        let held = self.inodes.find(&found);
        // The log needs only the removal of the last name.
        let status = self.begin_status(known.as_deref().filter(|_| last.is_none()), held.as_ref()).await?;
        let change = last.map(|known| Namespace::Unlink { object: known.object() });
        let removed = self.pond.namespace(change, Box::pin(operation)).await;
        if removed.is_ok() {
            self.lost_name(&found, last).await;
        }
        status.end().await;
        removed
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// The origin's.
    pub async fn remove_directory(&self, parent: &Arc<Inode<T>>, name: &OsStr) -> Result<()> {
        let found = self.tree.look_in(&*parent.reach().await?, name).await?;
        self.notice(&found).await?;
        removal::unlink(&self.going(parent, name, Some(&found), None), true, || {}).await
    }

    /// Renames, replaces or exchanges.
    ///
    /// # Errors
    /// The origin's, and the engine's.
    pub async fn rename(
        &self,
        from: (&Arc<Inode<T>>, &OsStr),
        to: (&Arc<Inode<T>>, &OsStr),
        flags: RenameFlags,
    ) -> Result<()> {
        let exchange = flags.exchanges();
        // The kernel holds both directories meanwhile.
        let ((source, target), _turn) = self.locked(from, Some(to)).await?;
        let same = target.as_ref().is_some_and(|target| target.key() == source.key());
        let target = target.filter(|_| !same);
        let moved = self.known_file(&source);
        let other = target.as_ref().and_then(|target| self.known_file(target));
        let last = target.as_ref().is_some_and(|target| !exchange && target.links == 1);
        let replaced = other.as_deref().filter(|_| last);
        let held = target.as_ref().and_then(|target| self.inodes.find(target));
        // The log gets the file that moves, and the one that it replaces.
        let status = self.begin_status(other.as_deref().filter(|_| !last), held.as_ref()).await?;
        let operation = {
            let replacing = target.as_ref().filter(|_| !exchange);
            let going = self.going(to.0, to.1, replacing, other.as_deref());
            let renaming = self.renaming(from, to, flags, &source, target.as_ref(), going);
            let both = [from.0, to.0];
            let changed = self.name_changes(moved.as_deref().filter(|_| !same), &both).await;
            let other_changed = self.name_changes(other.as_deref(), if exchange { &both } else { &both[1..] }).await;
            carry_out(self.tree.clone(), renaming, moved.clone(), [changed, other_changed])
        };
        let directory = |found: &Found| found.kind == FileKind::Directory;
        let concerns_log = moved.is_some()
            || other.is_some()
            || directory(&source)
            || (exchange && target.as_ref().is_some_and(directory));
        let change = if concerns_log && !same {
            Some(Namespace::Rename {
                moved: moved.as_ref().map(|known| known.object()),
                replaced: replaced.map(|known| known.object()),
                from: self.path_in(from.0, from.1).await,
                to: self.path_in(to.0, to.1).await,
                exchange,
            })
        } else {
            None
        };
        let renamed = self.pond.namespace(change, Box::pin(operation)).await;
        if renamed.is_ok() {
            self.renamed(from, to, exchange, &source, (moved.as_deref(), other.as_deref())).await;
            if let Some(target) = target {
                self.lost_name(&target, replaced).await;
            }
        }
        status.end().await;
        renamed
    }

    async fn renamed(
        &self,
        from: Name<'_, T>,
        to: Name<'_, T>,
        exchange: bool,
        source: &Found,
        (moved, other): (Option<&KnownIn<T>>, Option<&KnownIn<T>>),
    ) {
        // The engine got the stamp along with the change.
        if let Some(inode) = self.inodes.find(source) {
            inode.note_unsynced();
        }
        if let Some(moved) = moved {
            moved.rename(self.path_in(to.0, to.1).await);
        }
        if let Some(other) = other.filter(|_| exchange) {
            other.rename(self.path_in(from.0, from.1).await);
        }
    }

    /// Looks at a file by its name, and at the one that it meets, and waits for the locks on both.
    /// Returns how they are then.
    async fn locked(&self, name: Name<'_, T>, meets: Option<Name<'_, T>>) -> Result<(Both, Changing<'_>)> {
        let files =
            |found: &Both| [self.managed_key(&found.0), found.1.as_ref().and_then(|other| self.managed_key(other))];
        let mut found = self.look_at_both(name, meets).await?;
        self.notice(&found.0).await?;
        if let Some(other) = &found.1 {
            self.notice(other).await?;
        }
        loop {
            let wanted = files(&found);
            let locks = self.file_locks.change(wanted).await;
            if wanted == [None; 2] {
                return Ok((found, locks));
            }
            // During the wait others may have given a file names or taken names away; or, past the mount, put another
            // file in its place.
            found = self.look_at_both(name, meets).await?;
            if files(&found) == wanted {
                return Ok((found, locks));
            }
        }
    }

    async fn look_at_both(&self, name: Name<'_, T>, meets: Option<Name<'_, T>>) -> Result<Both> {
        let found = self.tree.look_in(&*name.0.reach().await?, name.1).await?;
        let Some(other) = meets else { return Ok((found, None)) };
        match self.tree.look_in(&*other.0.reach().await?, other.1).await {
            Ok(other) => Ok((found, Some(other))),
            Err(Errno::NOENT) => Ok((found, None)),
            Err(error) => Err(error),
        }
    }

    /// Call it when names of a file that the engine knows change in these directories. The next sync of the file
    /// makes the change durable.
    async fn name_changes(&self, known: Option<&KnownIn<T>>, directories: &[&Arc<Inode<T>>]) -> NameChanges<T, P> {
        let mut changed = NameChanges { pond: self.pond.clone(), known: None };
        if let Some(known) = known {
            let mut open = Vec::new();
            for directory in directories {
                // Opened before the change. A directory that may not be read cannot be synced.
                open.extend(directory.open_for(Access::Directory).await);
            }
            changed.known = Some((known.object(), open));
        }
        changed
    }

    /// A name of this file is gone, or was exchanged. `last` is what the engine knows of it, if the name was the last
    /// one and the engine was told.
    async fn lost_name(&self, found: &Found, last: Option<&KnownIn<T>>) {
        match (self.inodes.find(found), last) {
            (Some(inode), Some(known)) => {
                inode.note_unsynced();
                known.touched(self.tree.now());
            }
            (Some(inode), None) => self.changed_at_origin(&inode).await,
            (None, Some(_)) => self.known.gone(found.key()),
            (None, None) => {}
        }
    }

    /// The engine's knowledge of a file, if it knows the file.
    fn known_file(&self, found: &Found) -> Option<Arc<KnownIn<T>>> {
        self.known.find(self.managed_key(found)?)
    }

    /// The key of a file whose content goes through the engine.
    fn managed_key(&self, found: &Found) -> Option<FileKey> {
        let managed = found.kind == FileKind::File && self.inodes.same_device(found);
        managed.then(|| found.key())
    }

    /// The path of a directory entry below the origin's root, for the log and for messages. Empty if it is unknown.
    pub async fn path_in(&self, directory: &Inode<T>, name: &OsStr) -> Vec<u8> {
        let mut path = if directory.node == ROOT {
            Vec::new()
        } else {
            let path = self.path_of(directory).await;
            if path.is_empty() {
                return path;
            }
            path
        };
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name.as_encoded_bytes());
        path
    }

    /// A path below the origin's root by which the inode can be found now. Empty if its name is gone.
    ///
    /// The origin keeps a path right over every rename of it and of the directories above, so the name layer need
    /// not.
    pub async fn path_of(&self, inode: &Inode<T>) -> Vec<u8> {
        match inode.reach().await {
            Ok(path) => self.tree.name_of(&path).await,
            Err(_) => Vec::new(),
        }
    }

    /// Call it after a change that only the origin has (mode, owner, links, attributes): it is not in the log, so the
    /// next fsync makes it durable at the origin. The engine also learns the new status change time, so that it does
    /// not take the change for one by others.
    pub async fn changed_at_origin(&self, inode: &Inode<T>) {
        inode.note_unsynced();
        let Some(known) = inode.known() else { return };
        if let Ok(found) = inode.look().await {
            let stamp = found.stamp();
            // An engine that has let go of the file needs no stamp.
            self.pond.tell(Request::Restamp { object: known.object(), stamp, seen: true });
            known.touched(stamp.ctime);
        }
    }

    /// Does something that needs a descriptor, and tries again if none was left.
    pub(crate) async fn with_room<R>(&self, wanting: impl AsyncFn() -> Result<R>) -> Result<R> {
        match wanting().await {
            Err(Errno::MFILE | Errno::NFILE) => {
                self.inodes.make_room();
                wanting().await
            }
            result => result,
        }
    }
}

/// Directories in which names of a file that the engine knows are changed.
struct NameChanges<T: Tree, P> {
    pond: Arc<P>,
    known: Option<(headpond_base::ObjectId, Vec<T::File>)>,
}

impl<T: Tree, P: ContentStore<T>> NameChanges<T, P> {
    /// The names have changed.
    fn note(self) {
        if let Some((object, directories)) = self.known {
            directories.into_iter().for_each(|directory| self.pond.name_changed(object, directory));
        }
    }
}

/// Makes a rename at the origin, when the engine says.
async fn carry_out<T: Tree, P: ContentStore<T>>(
    tree: Arc<T>,
    renaming: Rename<T, P>,
    moved: Option<Arc<KnownIn<T>>>,
    changed: [NameChanges<T, P>; 2],
) -> Result<Option<headpond_format::Stamp>> {
    renaming.carry_out(move || changed.into_iter().for_each(NameChanges::note)).await?;
    let Some(moved) = moved else { return Ok(None) };
    let stamp = renaming.look().await.ok().map(|found| found.stamp());
    // The origin's own time, not a slightly later one: applications see it after the next mount.
    moved.touched(stamp.map_or_else(|| tree.now(), |stamp| stamp.ctime));
    Ok(stamp)
}

impl<T: Tree, P> fmt::Debug for Names<T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Names").field("inodes", &self.inodes).finish_non_exhaustive()
    }
}
