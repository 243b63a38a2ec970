//! Names: looking them up, making, linking, renaming and removing them.
//!
//! Invariants
//! - The origin's directories change at once. Where a file that the engine knows is renamed or
//!   loses its last name, the change runs when the engine says, in order with the log.
//! - What is made belongs to the caller.
//! - A directory that is another headpond's origin is not entered: see `nested`.

use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fuser::{FileAttr, Request};
use headpond_engine::{Attributes, Namespace};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, Statx};
use rustix::io::Errno;

use crate::attributes::device_from;
use crate::front::{Front, Outcome, engine_errno, errno, stamp};
use crate::inodes::{Inode, ROOT, file_key, kind_of, stat};
use crate::known::Known;
use crate::open::creation_mode;
use crate::{MARKER_NAME, caller, nested, times};

impl Front {
    /// Looks a name up, for the kernel to hold.
    pub(crate) fn look_up(&self, parent: &Inode, name: &OsStr) -> Outcome<(Arc<Inode>, FileAttr)> {
        if Self::is_marker(parent, name) {
            return Err(Errno::NOENT);
        }
        let found = stat(parent, name)?;
        if self.is_marker_by_another_name(parent, &found) {
            return Err(Errno::NOENT);
        }
        if let Some(inode) = self.inodes.look_up(&found) {
            if inode.kind == FileType::Directory && inode.node != ROOT {
                self.check_nested(parent, name, &*inode, &found).inspect_err(|_| self.forget(inode.node, 1))?;
            }
            let attributes = self.attributes_from(&inode, &found);
            return Ok((inode, attributes));
        }
        let path = rustix::fs::openat(parent, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        let found = stat(&path, c"")?;
        if kind_of(&found) == FileType::Directory {
            self.check_nested(parent, name, &path, &found)?;
        }
        let inode = self.inodes.take_in(path, &found, |key| self.known.find(key));
        let attributes = self.attributes_from(&inode, &found);
        Ok((inode, attributes))
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

    /// The kernel gave back lookups.
    pub(crate) fn forget(&self, node: u64, count: u64) {
        let Some(inode) = self.inodes.forget(node, count) else { return };
        if let Some(removed) = inode.removed() {
            removed.is_closing();
        }
        if !inode.managed || inode.known().is_none() {
            return;
        }
        let Ok(found) = inode.stat() else { return };
        if found.stx_nlink == 0 {
            self.known.gone(inode.key);
        } else {
            let origin = Attributes { size: found.stx_size, mtime: times::from_statx(found.stx_mtime) };
            let key = inode.key;
            drop(inode);
            self.known.forgotten(key, origin);
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
        self.make(request, parent, name, || rustix::fs::mkdirat(parent, name, mode)).map(|(_, attributes)| attributes)
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
        let permissions = creation_mode(parent, mode & 0o7777, umask);
        let kind = FileType::from_raw_mode(mode);
        let (inode, attributes) = self.make(request, parent, name, || {
            rustix::fs::mknodat(parent, name, kind, permissions, device_from(device))
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
        self.make(request, parent, name, || rustix::fs::symlinkat(target, parent, name))
            .map(|(_, attributes)| attributes)
    }

    /// Where a symbolic link leads.
    pub(crate) fn read_link(&self, inode: &Inode) -> Outcome<OsString> {
        let target = rustix::fs::readlinkat(inode, c"", Vec::new())?;
        Ok(OsString::from_vec(target.into_bytes()))
    }

    /// Why headpond's own directory cannot be removed: there is none to be seen, or it is the panel.
    fn marker_errno(&self, parent: &Inode, name: &OsStr) -> Errno {
        if self.is_panel_name(parent, name) { Errno::PERM } else { Errno::NOENT }
    }

    /// Gives a file one more name.
    pub(crate) fn link(&self, inode: &Inode, parent: &Inode, name: &OsStr) -> Outcome<FileAttr> {
        if Self::is_marker(parent, name) {
            return Err(Errno::PERM);
        }
        rustix::fs::linkat(CWD, inode.proc_path(), parent, name, AtFlags::SYMLINK_FOLLOW)?;
        self.changed_at_origin(inode);
        let found = inode.stat()?;
        // The new name is one more lookup of the same inode.
        self.inodes.look_up(&found).ok_or(Errno::STALE)?;
        Ok(self.attributes_from(inode, &found))
    }

    /// Removes a name of anything but a directory.
    pub(crate) fn remove(&self, parent: &Arc<Inode>, name: &OsStr) -> Outcome<()> {
        if Self::is_marker(parent, name) {
            return Err(self.marker_errno(parent, name));
        }
        // The kernel holds the directory meanwhile: the name stays what it is here.
        let found = stat(&**parent, name)?;
        let known = self.known_file(&found);
        let gone = self.when_gone(Some(&found), known.as_deref());
        match known {
            Some(known) if found.stx_nlink == 1 => {
                let (directory, entry) = (parent.clone(), name.to_owned());
                let operation = move || {
                    rustix::fs::unlinkat(&*directory, &entry, AtFlags::empty()).map_err(engine_errno)?;
                    gone();
                    Ok(None)
                };
                let change = Namespace::Unlink { object: known.object() };
                self.pond.namespace(change, Box::new(operation)).map_err(errno)?;
                if self.inodes.find(&found).is_none() {
                    self.known.gone(file_key(&found));
                } else {
                    known.touched(times::now());
                }
            }
            _ => {
                rustix::fs::unlinkat(&**parent, name, AtFlags::empty())?;
                gone();
                if let Some(inode) = self.inodes.find(&found) {
                    self.changed_at_origin(&inode);
                }
            }
        }
        Ok(())
    }

    /// Removes an empty directory.
    pub(crate) fn remove_directory(&self, parent: &Inode, name: &OsStr) -> Outcome<()> {
        if Self::is_marker(parent, name) {
            return Err(self.marker_errno(parent, name));
        }
        rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)
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
        let source = stat(&**from_directory, from)?;
        let target = match stat(&**to_directory, to) {
            Ok(found) => Some(found),
            Err(Errno::NOENT) => None,
            Err(error) => return Err(error),
        };
        let same = target.as_ref().is_some_and(|target| file_key(target) == file_key(&source));
        let moved = self.known_file(&source);
        let other = target.as_ref().filter(|_| !same).and_then(|target| self.known_file(target));
        let replaced = other.as_ref().filter(|_| !exchange && target.is_some_and(|target| target.stx_nlink == 1));
        let gone = self.when_gone(target.as_ref().filter(|_| !same && !exchange), other.as_deref());
        let directory = |found: &Statx| kind_of(found) == FileType::Directory;
        let concerns_log = moved.is_some()
            || other.is_some()
            || directory(&source)
            || (exchange && target.as_ref().is_some_and(directory));
        if concerns_log && !same {
            let operation = {
                let (from_directory, from) = (from_directory.clone(), from.to_owned());
                let (to_directory, to) = (to_directory.clone(), to.to_owned());
                let is_known = moved.is_some();
                move || {
                    rustix::fs::renameat_with(&*from_directory, &from, &*to_directory, &to, flags)
                        .map_err(engine_errno)?;
                    gone();
                    let found = if is_known { stat(&*to_directory, &to).ok() } else { None };
                    Ok(found.as_ref().map(stamp))
                }
            };
            let change = Namespace::Rename {
                moved: moved.as_ref().map(|known| known.object()),
                replaced: replaced.map(|known| known.object()),
                from: self.path_in(from_directory, from),
                to: self.path_in(to_directory, to),
                exchange,
            };
            self.pond.namespace(change, Box::new(operation)).map_err(errno)?;
        } else {
            rustix::fs::renameat_with(&**from_directory, from, &**to_directory, to, flags)?;
            gone();
        }
        self.renamed(&source, moved.as_deref());
        if let Some(moved) = &moved {
            moved.rename(self.path_in(to_directory, to));
        }
        if let Some(other) = other.as_ref().filter(|_| exchange) {
            other.rename(self.path_in(from_directory, from));
        }
        if let Some(target) = target.filter(|_| !same) {
            match self.inodes.find(&target) {
                Some(inode) => self.changed_at_origin(&inode),
                None if replaced.is_some() => self.known.gone(file_key(&target)),
                None => {}
            }
        }
        Ok(())
    }

    /// To be called when a name of a file, if there is one, is gone, and before anybody is told: if it was the last, those who
    /// need space wait until the file is closed here.
    fn when_gone(&self, found: Option<&Statx>, known: Option<&Known>) -> impl FnOnce() + Send + 'static + use<> {
        let last = found.filter(|found| found.stx_nlink == 1);
        let inode = last.and_then(|found| self.inodes.find(found)).filter(|inode| inode.managed);
        let (pond, object) = (self.pond.clone(), known.map(Known::object));
        move || {
            if let Some(inode) = inode
                && let Some(removed) = pond.removed(object)
            {
                inode.set_removed(removed);
            }
        }
    }

    /// The engine was given the stamp along with the change; the rest is told here.
    fn renamed(&self, found: &Statx, known: Option<&Known>) {
        if let Some(known) = known {
            known.touched(times::now());
        }
        if let Some(inode) = self.inodes.find(found) {
            inode.unsynced.store(true, Ordering::Release);
        }
    }

    /// The file as the engine knows it, if it does.
    fn known_file(&self, found: &Statx) -> Option<Arc<Known>> {
        if kind_of(found) != FileType::RegularFile || !self.inodes.same_device(found) {
            return None;
        }
        self.known.find(file_key(found))
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
