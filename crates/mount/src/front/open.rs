//! Opening, creating and closing regular files, as the kernel asks for it. The name layer ([`headpond_names`]) does
//! the work. This file knows who asks, and sends files on other file systems straight to the origin.

use std::ffi::OsStr;
use std::fs::File;
use std::sync::Arc;

use fuser::{FileAttr, Request};
use headpond_names::{Content, Created, FileHandle, block_on};
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::caller::{Caller, Rights};
use crate::front::{Front, has_default_list};
use crate::handles::{ContentWay, OpenHandle};
use crate::outcome::ReplyOutcome;
use crate::outcome::outcome;
use crate::pond::Engine;
use crate::privileges;
use crate::reached::{Reached, pin};
use crate::shares::Share;
use crate::tree::{Inode, OriginTree};

/// One count of `Open` in the engine, given back when dropped.
pub(crate) type Counted<'a> = headpond_names::Counted<'a, OriginTree, Engine>;

impl Front {
    /// Opens a file that exists. `flags` are the application's.
    pub(crate) fn open(&self, request: &Request, inode: &Arc<Inode>, flags: OFlags) -> ReplyOutcome<OpenHandle> {
        let writes = is_for_writing(flags);
        let pinned = pin(inode, writes)?;
        let truncates = flags.contains(OFlags::TRUNC);
        if truncates {
            self.drop_privileges(inode, || Some(Rights::of(request)))?;
        }
        if !inode.managed {
            let passed = OFlags::ACCMODE | OFlags::TRUNC | OFlags::SYNC | OFlags::DSYNC;
            let share = self.held_by(request.uid())?;
            if writes || truncates {
                self.may_change()?;
            }
            let file = File::from(inode.open(flags & passed)?);
            return Ok(OpenHandle::new(pinned, ContentWay::Straight(file, share), writes, request.uid()));
        }
        outcome(block_on(self.names.open(pinned, truncates))).map(|handle| through_pond(handle, request.uid()))
    }

    /// Creates a file and opens it.
    pub(crate) fn create(
        &self,
        request: &Request,
        parent: &Arc<Inode>,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: OFlags,
    ) -> ReplyOutcome<(FileAttr, OpenHandle)> {
        if Self::is_marker(parent, name) {
            return Err(Errno::PERM);
        }
        let writes = is_for_writing(flags);
        let mode = privileges::of_new_file(parent, mode, || Rights::of(request))?;
        let mode = creation_mode(parent, mode, umask);
        let caller = Caller::of(request);
        let held = self.held_for_new(parent, request.uid())?;
        let created = outcome(block_on(self.names.create(parent, name, mode, writes, &caller)))?;
        self.opened_new(created, writes, request.uid(), held)
    }

    /// The share that a new file in a directory takes: only one on another file system bypasses the pool.
    pub(crate) fn held_for_new(&self, parent: &Inode, user: u32) -> ReplyOutcome<Option<Share>> {
        let elsewhere = parent.device != self.names.inodes.root().device;
        elsewhere.then(|| self.held_by(user)).transpose()
    }

    /// A new file, as the application gets it.
    pub(crate) fn opened_new(
        &self,
        created: Created<OriginTree>,
        writes: bool,
        opener: u32,
        held: Option<Share>,
    ) -> ReplyOutcome<(FileAttr, OpenHandle)> {
        let attributes = self.attributes_from(&created.inode, &created.found);
        let file = match created.content {
            Content::Pond(handle) => through_pond(handle, opener),
            Content::Straight(pinned, file) => {
                OpenHandle::new(pinned, ContentWay::Straight(file, held.ok_or(Errno::XDEV)?), writes, opener)
            }
        };
        Ok((attributes, file))
    }

    /// Opens a managed file in the engine for a change by its path. The result keeps it open.
    pub(crate) fn open_for_change(&self, inode: &Arc<Inode>) -> ReplyOutcome<Counted<'_>> {
        outcome(block_on(self.names.open_for_change(inode)))
    }

    /// The last descriptor of a handle was closed.
    pub(crate) fn release(&self, number: u64) {
        if let Some(file) = self.files.remove(number) {
            if file.is_whole() {
                self.whole.closed(file.inode.key, number);
            }
            self.abort(&file);
            self.close(&file);
            let inode = file.inode.clone();
            drop(file);
            block_on(self.names.let_go(&inode));
        }
    }

    /// Gives back a handle's count in the engine.
    pub(crate) fn close(&self, file: &OpenHandle) {
        if let ContentWay::Pond { object, .. } = file.way {
            self.names.close(object);
        }
    }
}

fn through_pond(handle: FileHandle<OriginTree>, opener: u32) -> OpenHandle {
    let FileHandle { inode, object, known, writes } = handle;
    OpenHandle::new(inode, ContentWay::Pond { object, known }, writes, opener)
}

/// Whether an open file may be written.
pub(crate) fn is_for_writing(flags: OFlags) -> bool {
    flags.intersects(OFlags::WRONLY | OFlags::RDWR)
}

/// The mode of something new. The umask counts unless the directory has an access list to give.
pub(crate) fn creation_mode(parent: &Inode, mode: u32, umask: u32) -> u32 {
    let mode = if umask & mode != 0 && !has_default_list(parent) { mode & !umask } else { mode };
    mode & 0o7777
}
