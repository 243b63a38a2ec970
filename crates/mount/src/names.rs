//! Names: looking them up, making, linking, renaming and removing them.
//!
//! Invariants
//! - The origin's directories change at once. Where a file that the engine knows is renamed or
//!   loses its last name, the change runs when the engine says, in order with the log.
//! - From the look at what the engine knows of a file to the end of the change it is this change's turn at the file
//!   (`turns.rs`): nobody opens it in between, and nobody gives it names or takes them.
//! - What is made belongs to the caller.
//! - A directory that is another headpond's origin is not entered: see `nested`.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::sync::Arc;

use fuser::{FileAttr, INodeNo, Request};
use headpond_engine::Namespace;
use rustix::fs::{AtFlags, CWD, FileType, OFlags, RenameFlags, Statx};
use rustix::io::Errno;

use crate::attributes::device_from;
use crate::caller::Rights;
use crate::front::{Front, Outcome, engine_errno, errno, stamp};
use crate::inodes::{Inode, ROOT, file_key, kind_of, stat};
use crate::known::{FileKey, Known};
use crate::open::creation_mode;
use crate::places::open_path;
use crate::turns::Changing;
use crate::{MARKER_NAME, caller, nested, privileges, removal, times};

impl Front {
    /// Looks a name up, for the kernel to hold.
    pub(crate) fn look_up(&self, parent: &Inode, name: &OsStr) -> Outcome<(Arc<Inode>, FileAttr)> {
        if Self::is_marker(parent, name) {
            return Err(Errno::NOENT);
        }
        let directory = parent.path()?;
        let found = stat(&directory, name)?;
        if self.is_marker_by_another_name(parent, &found) {
            return Err(Errno::NOENT);
        }
        self.notice(&found)?;
        if let Some(inode) = self.inodes.look_up(&found) {
            inode.find_by(&parent.me()?, name);
            if inode.kind == FileType::Directory && inode.node != ROOT {
                let checked = inode.path().and_then(|path| self.check_nested(parent, name, path, &found));
                checked.inspect_err(|_| self.forget(inode.node, 1))?;
            }
            self.recall(&inode);
            let attributes = self.attributes_from(&inode, &found);
            return Ok((inode, attributes));
        }
        let path = self.inodes.home.with_room(|| open_path(&directory, name))?;
        let found = stat(&path, c"")?;
        if kind_of(&found) == FileType::Directory {
            self.check_nested(parent, name, &path, &found)?;
        }
        let inode = self.take_in(path, &found, (parent, name))?;
        let attributes = self.attributes_from(&inode, &found);
        Ok((inode, attributes))
    }

    /// To be called with what a name shows, before it is believed to be what has its number: where the origin keeps no birth
    /// times, a file that others removed, or a directory, may be held by that number.
    fn notice(&self, found: &Statx) -> Outcome<()> {
        let Some(gone) = self.inodes.replaced_by(found) else { return Ok(()) };
        if gone.managed {
            let _turn = self.turns.change([Some(gone.key), None]);
            if gone.is_replaced() {
                // Another thread was faster: what is known by the number now is of the new file.
                return Ok(());
            }
            if let Some(known) = gone.known().or_else(|| self.known.find(gone.key)) {
                let change = Namespace::Unlink { object: known.object() };
                self.pond.namespace(Some(change), Box::new(|| Ok(None))).map_err(errno)?;
            }
            gone.set_replaced();
            self.known.gone(gone.key);
        } else {
            gone.set_replaced();
        }
        Ok(())
    }

    /// Takes in what was found by a name, with one lookup by the kernel.
    pub(crate) fn take_in(&self, path: OwnedFd, found: &Statx, place: (&Inode, &OsStr)) -> Outcome<Arc<Inode>> {
        self.notice(found)?;
        self.inodes.take_in(path, found, place, |key| self.known.find(key))
    }

    /// Refuses a directory that is another headpond's origin, and the marker of one that became it meanwhile.
    fn check_nested(&self, parent: &Inode, name: &OsStr, directory: impl AsFd, found: &Statx) -> Outcome<()> {
        let is_marker = name == MARKER_NAME && parent.stat().is_ok_and(|above| nested::has_marker(&directory, &above));
        if !is_marker && !nested::is_origin(&directory, found) {
            return Ok(());
        }
        self.nested.met(if is_marker { self.path_of(parent) } else { self.path_in(parent, name) });
        Err(nested::REFUSED)
    }

    /// Looks up a node by its number alone, or the directory above it: what a file handle has, if the kernel has
    /// forgotten the inode.
    pub(crate) fn look_up_by_number(&self, node: u64, above: bool) -> Outcome<FileAttr> {
        let inode = self.inodes.by_number(node)?;
        self.recall(&inode);
        let seen = inode.stat().and_then(|found| {
            if !above {
                return Ok((inode.clone(), found));
            }
            let (parent, _) = inode.place().ok_or(Errno::STALE)?;
            let parent = self.inodes.by_number(parent.node)?;
            let found = parent.stat().inspect_err(|_| self.forget(parent.node, 1))?;
            Ok((parent, found))
        });
        if above || seen.is_err() {
            self.forget(node, 1);
        }
        seen.map(|(inode, found)| {
            // The node's number, also of the root: the kernel takes it for one.
            FileAttr { ino: INodeNo(inode.node), ..self.attributes_from(&inode, &found) }
        })
    }

    /// The kernel gave back lookups.
    pub(crate) fn forget(&self, node: u64, count: u64) {
        let Some(inode) = self.inodes.forget(node, count) else { return };
        if let Some(removed) = inode.removed() {
            removed.is_closing();
        }
        self.forget_known(&inode);
        self.inodes.home.remember(&inode);
    }

    fn forget_known(&self, inode: &Inode) {
        // One that is gone was forgotten when it went; its number may be another file's by now.
        if !inode.managed || inode.is_gone() || inode.known().is_none() {
            return;
        }
        let Ok(found) = inode.stat() else { return };
        let key = inode.key;
        if found.stx_nlink == 0 {
            self.known.gone(key);
        } else {
            inode.forget_known();
            self.known.forgotten(key);
        }
    }

    /// An inode that the kernel had forgotten, and something else held, is as one that was just taken in.
    fn recall(&self, inode: &Inode) {
        if inode.managed
            && inode.known().is_none()
            && let Some(known) = self.known.find(inode.key)
        {
            inode.set_known(&known);
        }
    }

    /// Makes a directory.
    pub(crate) fn make_directory(
        &self,
        request: &Request,
        parent: &Inode,
        name: &OsStr,
        mode: u32,
        umask: u32,
    ) -> Outcome<FileAttr> {
        let mode = creation_mode(parent, mode, umask);
        self.make(request, parent, name, || rustix::fs::mkdirat(parent.path()?, name, mode))
            .map(|(_, attributes)| attributes)
    }

    /// Makes a device, pipe, socket or empty file.
    pub(crate) fn make_node(
        &self,
        request: &Request,
        parent: &Inode,
        name: &OsStr,
        mode: u32,
        umask: u32,
        device: u32,
    ) -> Outcome<FileAttr> {
        let kind = FileType::from_raw_mode(mode);
        let permissions = privileges::of_new_file(parent, mode & 0o7777, || Rights::of(request))?;
        let permissions = creation_mode(parent, permissions, umask);
        let (inode, attributes) = self.make(request, parent, name, || {
            rustix::fs::mknodat(parent.path()?, name, kind, permissions, device_from(device))
        })?;
        if kind == FileType::RegularFile
            && let Err(error) = self.introduce(&inode)
        {
            self.forget(inode.node, 1);
            return Err(error);
        }
        Ok(attributes)
    }

    /// Makes a symbolic link.
    pub(crate) fn make_symlink(
        &self,
        request: &Request,
        parent: &Inode,
        name: &OsStr,
        target: &Path,
    ) -> Outcome<FileAttr> {
        self.make(request, parent, name, || rustix::fs::symlinkat(target, parent.path()?, name))
            .map(|(_, attributes)| attributes)
    }

    /// Where a symbolic link leads.
    pub(crate) fn read_link(&self, inode: &Inode) -> Outcome<OsString> {
        let target = rustix::fs::readlinkat(inode.path()?, c"", Vec::new())?;
        Ok(OsString::from_vec(target.into_bytes()))
    }

    /// Why headpond's own directory cannot be removed: there is none to be seen, or it is the panel.
    fn marker_errno(&self, parent: &Inode, name: &OsStr) -> Errno {
        if self.is_panel_name(parent, name) { Errno::PERM } else { Errno::NOENT }
    }

    /// Gives a file one more name.
    pub(crate) fn link(&self, inode: &Arc<Inode>, parent: &Arc<Inode>, name: &OsStr) -> Outcome<FileAttr> {
        if Self::is_marker(parent, name) {
            return Err(Errno::PERM);
        }
        let _turn = self.turns.change([inode.managed.then_some(inode.key), None]);
        let _change = self.changing_status_in_turn(inode.known().as_ref(), Some(inode))?;
        let changed = self.name_changes(inode.known().as_deref(), &[parent]);
        let operation = {
            let (inode, parent, name) = (inode.clone(), parent.clone(), name.to_owned());
            move || {
                let link =
                    || rustix::fs::linkat(CWD, inode.proc_path()?, parent.path()?, &name, AtFlags::SYMLINK_FOLLOW);
                link().map_err(engine_errno)?;
                changed();
                Ok(None)
            }
        };
        self.pond.namespace(None, Box::new(operation)).map_err(errno)?;
        self.changed_at_origin(inode);
        let found = inode.stat()?;
        // The new name is one more lookup of the same inode.
        self.inodes.look_up(&found).ok_or(Errno::STALE)?;
        inode.find_by(&parent.me()?, name);
        Ok(self.attributes_from(inode, &found))
    }

    /// Removes a name of anything but a directory.
    pub(crate) fn remove(&self, parent: &Arc<Inode>, name: &OsStr) -> Outcome<()> {
        if Self::is_marker(parent, name) {
            return Err(self.marker_errno(parent, name));
        }
        // The kernel holds the directory meanwhile: the name stays what it is here.
        let (found, _turn) = self.at_turn(|| Ok((stat(parent.path()?, name)?, None)))?;
        let found = found.0;
        let known = self.known_file(&found);
        let going = self.going(parent, name, Some(&found), known.as_deref());
        let changed = self.name_changes(known.as_deref(), &[parent]);
        let operation = move || {
            removal::unlink(&going, AtFlags::empty(), changed).map_err(engine_errno)?;
            Ok(None)
        };
        let last = known.as_ref().filter(|_| found.stx_nlink == 1);
        let held = self.inodes.find(&found);
        // The log is told of the last name alone.
        let _change = self.changing_status_in_turn(known.as_ref().filter(|_| last.is_none()), held.as_deref())?;
        let change = last.map(|known| Namespace::Unlink { object: known.object() });
        self.pond.namespace(change, Box::new(operation)).map_err(errno)?;
        self.lost_name(&found, last.map(|last| &**last));
        Ok(())
    }

    /// Removes an empty directory.
    pub(crate) fn remove_directory(&self, parent: &Arc<Inode>, name: &OsStr) -> Outcome<()> {
        if Self::is_marker(parent, name) {
            return Err(self.marker_errno(parent, name));
        }
        let found = stat(parent.path()?, name)?;
        self.notice(&found)?;
        removal::unlink(&self.going(parent, name, Some(&found), None), AtFlags::REMOVEDIR, || {})
    }

    /// Renames, replaces or exchanges.
    pub(crate) fn rename(
        &self,
        from_directory: &Arc<Inode>,
        from: &OsStr,
        to_directory: &Arc<Inode>,
        to: &OsStr,
        flags: RenameFlags,
    ) -> Outcome<()> {
        if Self::is_marker(from_directory, from) {
            return Err(self.marker_errno(from_directory, from));
        }
        if Self::is_marker(to_directory, to) {
            return Err(Errno::PERM);
        }
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        // The kernel holds both directories meanwhile.
        let look = || {
            let source = stat(from_directory.path()?, from)?;
            match stat(to_directory.path()?, to) {
                Ok(target) => Ok((source, Some(target))),
                Err(Errno::NOENT) => Ok((source, None)),
                Err(error) => Err(error),
            }
        };
        let ((source, target), _turn) = self.at_turn(look)?;
        let same = target.as_ref().is_some_and(|target| file_key(target) == file_key(&source));
        let target = target.filter(|_| !same);
        let moved = self.known_file(&source);
        let other = target.as_ref().and_then(|target| self.known_file(target));
        let last = target.as_ref().is_some_and(|target| !exchange && target.stx_nlink == 1);
        let replaced = other.as_ref().filter(|_| last);
        let held = target.as_ref().and_then(|target| self.inodes.find(target));
        // The log is told of the one that moves, and of the one that goes.
        let _change = self.changing_status_in_turn(other.as_ref().filter(|_| !last), held.as_deref())?;
        let operation = {
            let replacing = target.as_ref().filter(|_| !exchange);
            let going = self.going(to_directory, to, replacing, other.as_deref());
            let moving =
                self.moving((from_directory, from), (to_directory, to), flags, &source, target.as_ref(), going);
            let both = [from_directory, to_directory];
            let changed = self.name_changes(moved.as_deref().filter(|_| !same), &both);
            let other_changed = self.name_changes(other.as_deref(), if exchange { &both } else { &both[1..] });
            let moved = moved.clone();
            move || {
                let noted = || {
                    changed();
                    other_changed();
                };
                moving.carry_out(noted).map_err(engine_errno)?;
                let Some(moved) = moved else { return Ok(None) };
                let stamp = moving.look().ok().as_ref().map(stamp);
                // The origin's own time, not that of a moment later: it is what is seen after the next mount.
                moved.touched(stamp.map_or_else(times::now, |stamp| stamp.ctime));
                Ok(stamp)
            }
        };
        let directory = |found: &Statx| kind_of(found) == FileType::Directory;
        let concerns_log = moved.is_some()
            || other.is_some()
            || directory(&source)
            || (exchange && target.as_ref().is_some_and(directory));
        let change = (concerns_log && !same).then(|| Namespace::Rename {
            moved: moved.as_ref().map(|known| known.object()),
            replaced: replaced.map(|known| known.object()),
            from: self.path_in(from_directory, from),
            to: self.path_in(to_directory, to),
            exchange,
        });
        self.pond.namespace(change, Box::new(operation)).map_err(errno)?;
        // The engine was given the stamp along with the change.
        if let Some(inode) = self.inodes.find(&source) {
            inode.unsynced.note();
        }
        if let Some(moved) = &moved {
            moved.rename(self.path_in(to_directory, to));
        }
        if let Some(other) = other.as_ref().filter(|_| exchange) {
            other.rename(self.path_in(from_directory, from));
        }
        if let Some(target) = target {
            self.lost_name(&target, replaced.map(|replaced| &**replaced));
        }
        Ok(())
    }

    /// Looks at a file by its name, and at one that it meets, and waits for the turn to change names of both. What is
    /// answered is how they are then.
    fn at_turn(
        &self,
        look: impl Fn() -> Outcome<(Statx, Option<Statx>)>,
    ) -> Outcome<((Statx, Option<Statx>), Changing<'_>)> {
        let files = |found: &(Statx, Option<Statx>)| {
            [self.managed_key(&found.0), found.1.as_ref().and_then(|other| self.managed_key(other))]
        };
        let mut found = look()?;
        self.notice(&found.0)?;
        if let Some(other) = &found.1 {
            self.notice(other)?;
        }
        loop {
            let wanted = files(&found);
            let turn = self.turns.change(wanted);
            if wanted == [None; 2] {
                return Ok((found, turn));
            }
            // While it was waited for, others may have given a file names or taken them; or, past the mount, put
            // another in its place.
            found = look()?;
            if files(&found) == wanted {
                return Ok((found, turn));
            }
        }
    }

    /// To be called when names of a file that the engine knows were changed in these directories: what was changed is
    /// made durable with the file.
    fn name_changes(
        &self,
        known: Option<&Known>,
        directories: &[&Arc<Inode>],
    ) -> impl FnOnce() + Send + 'static + use<> {
        // Opened before anything is changed. One that may not be read cannot be synced.
        let open = |directory: &&Arc<Inode>| directory.open(OFlags::RDONLY | OFlags::DIRECTORY).ok();
        let known = known.map(|known| (known.object(), directories.iter().filter_map(open).collect::<Vec<_>>()));
        let pond = self.pond.clone();
        move || {
            if let Some((object, directories)) = known {
                directories.into_iter().for_each(|directory| pond.name_changed(object, directory));
            }
        }
    }

    /// A name of this file is gone, or was exchanged. `last` is what the engine knows of it, if it was the last and the
    /// engine was told.
    fn lost_name(&self, found: &Statx, last: Option<&Known>) {
        match (self.inodes.find(found), last) {
            (Some(inode), Some(known)) => {
                inode.unsynced.note();
                known.touched(times::now());
            }
            (Some(inode), None) => self.changed_at_origin(&inode),
            (None, Some(_)) => self.known.gone(file_key(found)),
            (None, None) => {}
        }
    }

    /// The file as the engine knows it, if it does.
    fn known_file(&self, found: &Statx) -> Option<Arc<Known>> {
        self.known.find(self.managed_key(found)?)
    }

    /// The key of a file whose content goes through the engine.
    fn managed_key(&self, found: &Statx) -> Option<FileKey> {
        let managed = kind_of(found) == FileType::RegularFile && self.inodes.same_device(found);
        managed.then(|| file_key(found))
    }

    fn make(
        &self,
        request: &Request,
        parent: &Inode,
        name: &OsStr,
        operation: impl FnOnce() -> Outcome<()>,
    ) -> Outcome<(Arc<Inode>, FileAttr)> {
        if Self::is_marker(parent, name) {
            return Err(Errno::PERM);
        }
        caller::without_umask();
        {
            let _as = caller::AsCaller::of(request)?;
            operation()?;
        }
        self.look_up(parent, name)
    }
}
