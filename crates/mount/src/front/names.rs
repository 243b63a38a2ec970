//! Names as the kernel asks for them: looking them up, making, linking, renaming and removing them. The name layer
//! ([`headpond_names`]) does the work. This file knows who asks, and what applications see of the result.
//!
//! Invariant: headpond's own directory beside the data is never looked up, made, renamed or removed.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::sync::Arc;

use fuser::{FileAttr, INodeNo, Request};
use headpond_names::{Making, RenameFlags as Flags, block_on};
use rustix::fs::{FileType, RenameFlags};
use rustix::io::Errno;

use crate::caller::{Caller, Rights};
use crate::front::Front;
use crate::front::open::creation_mode;
use crate::outcome::ReplyOutcome;
use crate::outcome::outcome;
use crate::privileges;
use crate::reached::Reached;
use crate::stat::kind_of;
use crate::tree::Inode;

impl Front {
    /// Looks a name up. The kernel then holds the inode.
    pub(crate) fn look_up(&self, parent: &Arc<Inode>, name: &OsStr) -> ReplyOutcome<(Arc<Inode>, FileAttr)> {
        if Self::is_marker(parent, name) {
            return Err(Errno::NOENT);
        }
        let (inode, found) = outcome(block_on(self.names.look_up(parent, name)))?;
        let attributes = self.attributes_from(&inode, &found);
        Ok((inode, attributes))
    }

    /// Looks up a node by its number alone, or the directory above it. A file handle needs this if the kernel has
    /// forgotten the inode.
    pub(crate) fn look_up_by_number(&self, node: u64, above: bool) -> ReplyOutcome<FileAttr> {
        let (inode, found) = outcome(block_on(self.names.look_up_by_number(node, above)))?;
        // The node's number, also for the root: the kernel takes this field for a node.
        Ok(FileAttr { ino: INodeNo(inode.node), ..self.attributes_from(&inode, &found) })
    }

    /// The kernel gave back lookups.
    pub(crate) fn forget(&self, node: u64, count: u64) {
        block_on(self.names.forget(node, count));
    }

    /// Makes a directory.
    pub(crate) fn make_directory(
        &self,
        request: &Request,
        parent: &Arc<Inode>,
        name: &OsStr,
        mode: u32,
        umask: u32,
    ) -> ReplyOutcome<FileAttr> {
        let mode = creation_mode(parent, mode, umask);
        self.make(request, parent, name, &Making::Directory { mode })
    }

    /// Makes a device, pipe, socket or empty file.
    pub(crate) fn make_node(
        &self,
        request: &Request,
        parent: &Arc<Inode>,
        name: &OsStr,
        mode: u32,
        umask: u32,
        device: u32,
    ) -> ReplyOutcome<FileAttr> {
        let kind = kind_of(FileType::from_raw_mode(mode));
        let permissions = privileges::of_new_file(parent, mode & 0o7777, || Rights::of(request))?;
        let mode = creation_mode(parent, permissions, umask);
        self.make(request, parent, name, &Making::Node { kind, mode, device })
    }

    /// Makes a symbolic link.
    pub(crate) fn make_symlink(
        &self,
        request: &Request,
        parent: &Arc<Inode>,
        name: &OsStr,
        target: &Path,
    ) -> ReplyOutcome<FileAttr> {
        self.make(request, parent, name, &Making::Symlink { target: target.to_owned() })
    }

    /// Where a symbolic link leads.
    pub(crate) fn read_link(&self, inode: &Inode) -> ReplyOutcome<OsString> {
        let target = rustix::fs::readlinkat(inode.path()?, c"", Vec::new())?;
        Ok(OsString::from_vec(target.into_bytes()))
    }

    /// Why headpond's own directory cannot be removed: either no such directory shows, or it is the panel.
    fn marker_errno(&self, parent: &Inode, name: &OsStr) -> Errno {
        if self.is_panel_name(parent, name) { Errno::PERM } else { Errno::NOENT }
    }

    /// Gives a file a further name.
    pub(crate) fn link(&self, inode: &Arc<Inode>, parent: &Arc<Inode>, name: &OsStr) -> ReplyOutcome<FileAttr> {
        if Self::is_marker(parent, name) {
            return Err(Errno::PERM);
        }
        let found = outcome(block_on(self.names.link(inode, parent, name)))?;
        Ok(self.attributes_from(inode, &found))
    }

    /// Removes a name of anything but a directory.
    pub(crate) fn remove(&self, parent: &Arc<Inode>, name: &OsStr) -> ReplyOutcome<()> {
        if Self::is_marker(parent, name) {
            return Err(self.marker_errno(parent, name));
        }
        outcome(block_on(self.names.remove(parent, name)))
    }

    /// Removes an empty directory.
    pub(crate) fn remove_directory(&self, parent: &Arc<Inode>, name: &OsStr) -> ReplyOutcome<()> {
        if Self::is_marker(parent, name) {
            return Err(self.marker_errno(parent, name));
        }
        outcome(block_on(self.names.remove_directory(parent, name)))
    }

    /// Renames, replaces or exchanges.
    pub(crate) fn rename(
        &self,
        from_directory: &Arc<Inode>,
        from: &OsStr,
        to_directory: &Arc<Inode>,
        to: &OsStr,
        flags: RenameFlags,
    ) -> ReplyOutcome<()> {
        if Self::is_marker(from_directory, from) {
            return Err(self.marker_errno(from_directory, from));
        }
        if Self::is_marker(to_directory, to) {
            return Err(Errno::PERM);
        }
        let flags = Flags(flags.bits());
        outcome(block_on(self.names.rename((from_directory, from), (to_directory, to), flags)))
    }

    fn make(&self, request: &Request, parent: &Arc<Inode>, name: &OsStr, what: &Making) -> ReplyOutcome<FileAttr> {
        if Self::is_marker(parent, name) {
            return Err(Errno::PERM);
        }
        let (inode, found) = outcome(block_on(self.names.make(parent, name, what, &Caller::of(request))))?;
        Ok(self.attributes_from(&inode, &found))
    }
}
