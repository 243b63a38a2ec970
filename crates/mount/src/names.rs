//! Names: looking them up, making, linking, renaming and removing them.
//!
//! Invariants
//! - The origin's directories change at once. Where a file that the engine knows is renamed or
//!   loses its last name, the change runs when the engine says, in order with the log.
//! - What is made belongs to the caller.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fuser::{FileAttr, INodeNo, Request};
use headpond_engine::{Attributes, Namespace};
use rustix::fs::{AtFlags, CWD, FileType, RenameFlags, Statx};
use rustix::io::Errno;

use crate::attributes::device_from;
use crate::front::{Front, Outcome, engine_errno, errno, stamp};
use crate::inodes::{Inode, file_key, kind_of, stat};
use crate::known::Known;
use crate::open::creation_mode;
use crate::places::open_path;
use crate::{caller, removal, times};

impl Front {
    /// Looks a name up, for the kernel to hold.
    pub(crate) fn look_up(&self, parent: &Inode, name: &OsStr) -> Outcome<(Arc<Inode>, FileAttr)> {
        if Self::is_marker(parent, name) {
            return Err(Errno::NOENT);
        }
        let directory = parent.path()?;
        let found = stat(&directory, name)?;
        if let Some(inode) = self.inodes.look_up(&found) {
            inode.find_by(&parent.me()?, name);
            self.recall(&inode);
            let attributes = self.attributes_from(&inode, &found);
            return Ok((inode, attributes));
        }
        let path = self.inodes.home.with_room(|| open_path(&directory, name))?;
        let found = stat(&path, c"")?;
        let inode = self.inodes.take_in(path, &found, (parent, name), |key| self.known.find(key))?;
        let attributes = self.attributes_from(&inode, &found);
        Ok((inode, attributes))
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
        if found.stx_nlink == 0 {
            self.known.gone(inode.key);
        } else {
            let origin = Attributes { size: found.stx_size, mtime: times::from_statx(found.stx_mtime) };
            inode.forget_known();
            self.known.forgotten(inode.key, origin);
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
        let permissions = creation_mode(parent, mode & 0o7777, umask);
        let kind = FileType::from_raw_mode(mode);
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
    pub(crate) fn link(&self, inode: &Inode, parent: &Inode, name: &OsStr) -> Outcome<FileAttr> {
        if Self::is_marker(parent, name) {
            return Err(Errno::PERM);
        }
        rustix::fs::linkat(CWD, inode.proc_path()?, parent.path()?, name, AtFlags::SYMLINK_FOLLOW)?;
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
        let found = stat(parent.path()?, name)?;
        let known = self.known_file(&found);
        let going = self.going(parent, name, Some(&found), known.as_deref());
        match known {
            Some(known) if found.stx_nlink == 1 => {
                let operation = move || {
                    removal::unlink(&going, AtFlags::empty()).map_err(engine_errno)?;
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
                removal::unlink(&going, AtFlags::empty())?;
                if let Some(inode) = self.inodes.find(&found) {
                    self.changed_at_origin(&inode);
                }
            }
        }
        Ok(())
    }

    /// Removes an empty directory.
    pub(crate) fn remove_directory(&self, parent: &Arc<Inode>, name: &OsStr) -> Outcome<()> {
        if Self::is_marker(parent, name) {
            return Err(self.marker_errno(parent, name));
        }
        let found = stat(parent.path()?, name)?;
        removal::unlink(&self.going(parent, name, Some(&found), None), AtFlags::REMOVEDIR)
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
        let source = stat(from_directory.path()?, from)?;
        let target = match stat(to_directory.path()?, to) {
            Ok(found) => Some(found),
            Err(Errno::NOENT) => None,
            Err(error) => return Err(error),
        };
        let same = target.as_ref().is_some_and(|target| file_key(target) == file_key(&source));
        let moved = self.known_file(&source);
        let other = target.as_ref().filter(|_| !same).and_then(|target| self.known_file(target));
        let replaced = other.as_ref().filter(|_| !exchange && target.is_some_and(|target| target.stx_nlink == 1));
        let replacing = target.as_ref().filter(|_| !same && !exchange);
        let going = self.going(to_directory, to, replacing, other.as_deref());
        let moving = self.moving((from_directory, from), (to_directory, to), flags, &source, target.as_ref(), going);
        let directory = |found: &Statx| kind_of(found) == FileType::Directory;
        let concerns_log = moved.is_some()
            || other.is_some()
            || directory(&source)
            || (exchange && target.as_ref().is_some_and(directory));
        if concerns_log && !same {
            let operation = {
                let is_known = moved.is_some();
                move || {
                    moving.carry_out().map_err(engine_errno)?;
                    let found = if is_known { moving.look().ok() } else { None };
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
            moving.carry_out()?;
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
