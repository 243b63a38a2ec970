//! Extended attributes, access lists among them. The origin keeps them all.

use std::ffi::OsStr;
use std::sync::Arc;

use fuser::Request;
use headpond_engine::{FlushId, FlushScope, Reply, Request as Ask};
use rustix::fs::XattrFlags;
use rustix::io::Errno;

use crate::caller::Rights;
use crate::front::Front;
use crate::outcome::{ReplyOutcome, unexpected};
use crate::pond::call_with;
use crate::privileges::{self, CAPABILITIES};
use crate::reached::Reached;
use crate::tree::Inode;

/// The id of these flushes: above those that operators start. The last one is that of `headpond freeze`, which ends its own.
const FLUSH_ID: FlushId = FlushId(u64::MAX - 1);

/// The extended attribute with a file's access list.
const ACCESS_LIST: &str = "system.posix_acl_access";

/// Attributes that only administrators see.
const TRUSTED: &[u8] = b"trusted.";

/// An answer to a caller that may want only its length.
pub(crate) enum Sized {
    /// The length.
    Length(usize),
    /// The bytes.
    Bytes(Vec<u8>),
}

impl Front {
    /// An attribute's value, or its length if `size` is zero.
    pub(crate) fn get_attribute(&self, inode: &Inode, name: &OsStr, size: u32) -> ReplyOutcome<Sized> {
        if size == 0 {
            return Ok(Sized::Length(rustix::fs::getxattr_query(inode.proc_path()?, name)?));
        }
        let mut value = vec![0; size as usize];
        let length = rustix::fs::getxattr(inode.proc_path()?, name, &mut value[..])?;
        value.truncate(length);
        Ok(Sized::Bytes(value))
    }

    /// The names of all attributes, or their length if `size` is zero.
    pub(crate) fn list_attributes(&self, request: &Request, inode: &Inode, size: u32) -> ReplyOutcome<Sized> {
        let length = rustix::fs::listxattr_query(inode.proc_path()?)?;
        let mut names = vec![0; length];
        let length = rustix::fs::listxattr(inode.proc_path()?, &mut names[..])?;
        names.truncate(length);
        if request.uid() != 0 && names.windows(TRUSTED.len()).any(|part| part == TRUSTED) {
            names = names
                .split_inclusive(|byte| *byte == 0)
                .filter(|name| !name.starts_with(TRUSTED))
                .flatten()
                .copied()
                .collect();
        }
        if size == 0 {
            return Ok(Sized::Length(names.len()));
        }
        if names.len() > size as usize {
            return Err(Errno::RANGE);
        }
        Ok(Sized::Bytes(names))
    }

    /// Sets an attribute.
    pub(crate) fn set_attribute(
        &self,
        request: &Request,
        inode: &Arc<Inode>,
        name: &OsStr,
        value: &[u8],
        flags: i32,
    ) -> ReplyOutcome<()> {
        let flags = XattrFlags::from_bits(flags.cast_unsigned()).ok_or(Errno::INVAL)?;
        if name == CAPABILITIES {
            self.flush_before_privileges(inode)?;
        }
        let _change = self.changing_status(inode)?;
        let set = rustix::fs::setxattr(inode.proc_path()?, name, value, flags);
        // The attribute may be a program's capabilities, or an access list that changes the mode.
        inode.beside.privileges.set_unknown();
        set?;
        let dropped = if name == ACCESS_LIST {
            privileges::drop_after_access_list(inode, || Rights::of(request))
        } else {
            Ok(false)
        };
        self.changed_at_origin(inode);
        dropped?;
        Ok(())
    }

    /// Flushes a file before it gets capabilities. The origin's kernel takes capabilities away when the file is
    /// written there, and destage writes later. So earlier writes go to the origin first.
    pub(crate) fn flush_before_privileges(&self, inode: &Inode) -> ReplyOutcome<()> {
        let Some(known) = inode.known() else { return Ok(()) };
        let scope = FlushScope::Objects([known.object()].into());
        match call_with(&*self.pond, Ask::Flush { id: FLUSH_ID, scope }, |_| {}) {
            Reply::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// Removes an attribute.
    pub(crate) fn remove_attribute(&self, inode: &Arc<Inode>, name: &OsStr) -> ReplyOutcome<()> {
        let _change = self.changing_status(inode)?;
        rustix::fs::removexattr(inode.proc_path()?, name)?;
        self.changed_at_origin(inode);
        Ok(())
    }
}
