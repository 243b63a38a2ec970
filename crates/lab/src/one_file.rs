//! The names and attributes of a FUSE file system with one file in its root: what the lab's own servers share.

use fuser::{Errno, FileAttr, FileType, Generation, INodeNo, ReplyAttr, ReplyEntry};
use std::ffi::OsStr;
use std::time::{Duration, UNIX_EPOCH};

const FILE: INodeNo = INodeNo(2);
/// How long the kernel may keep them. Nothing about the file ever changes.
const VALID: Duration = Duration::from_secs(3600);

/// The file.
#[derive(Clone, Copy, Debug)]
pub struct OneFile {
    /// Its name.
    pub name: &'static str,
    /// Its size in bytes.
    pub size: u64,
    /// Its permissions, and those of the root.
    pub permissions: (u16, u16),
}

impl OneFile {
    /// Answers a question for a name in the root.
    pub fn lookup(&self, name: &OsStr, reply: ReplyEntry) {
        if name == self.name {
            reply.entry(&VALID, &self.attributes(FILE), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    /// Answers a question for attributes.
    pub fn getattr(&self, inode: INodeNo, reply: ReplyAttr) {
        reply.attr(&VALID, &self.attributes(inode));
    }

    /// How many of so many bytes from `offset` on are there.
    #[must_use]
    pub fn within(&self, offset: u64, bytes: u32) -> usize {
        u64::from(bytes).min(self.size.saturating_sub(offset)) as usize
    }

    fn attributes(&self, inode: INodeNo) -> FileAttr {
        let (kind, perm, size) = if inode == FILE {
            (FileType::RegularFile, self.permissions.0, self.size)
        } else {
            (FileType::Directory, self.permissions.1, 0)
        };
        FileAttr {
            ino: inode,
            size,
            blocks: size / 512,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }
}
