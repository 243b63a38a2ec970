//! Space and holes: fallocate, `SEEK_HOLE` and `SEEK_DATA`, statfs.

use fuser::{ReplyEmpty, ReplyLseek, Request};
use headpond_engine::{Reply, Request as Ask};
use headpond_shard::as_user;
use rustix::fs::{FallocateFlags, SeekFrom, StatVfs};
use rustix::io::Errno;

use crate::caller::Rights;
use crate::front::Front;
use crate::handles::{ContentWay, OpenHandle};
use crate::outcome::fuse_errno;
use crate::outcome::{ReplyOutcome, unexpected};
use crate::reached::Reached;
use crate::times;
use crate::tree::Inode;

/// `lseek` for the next data.
const SEEK_DATA: i32 = 3;
/// `lseek` for the next hole.
const SEEK_HOLE: i32 = 4;

impl Front {
    /// Reserves, punches or zeros a range.
    pub(crate) fn allocate(
        &self,
        request: &Request,
        file: &OpenHandle,
        offset: u64,
        length: u64,
        mode: FallocateFlags,
        reply: ReplyEmpty,
    ) {
        if let Err(error) = self.drop_privileges(&file.inode, || Some(Rights::of(request))) {
            return reply.error(fuse_errno(error));
        }
        let (object, known) = match &file.way {
            ContentWay::Pond { object, known } => (*object, known.clone()),
            ContentWay::Straight(file, _) => {
                return match as_user(request.uid(), || rustix::fs::fallocate(file, mode, offset, length)) {
                    Ok(()) => reply.ok(),
                    Err(error) => reply.error(fuse_errno(error)),
                };
            }
        };
        let keep_size = mode.contains(FallocateFlags::KEEP_SIZE);
        let zeros = mode.contains(FallocateFlags::ZERO_RANGE);
        let punches = mode.contains(FallocateFlags::PUNCH_HOLE);
        let handled = FallocateFlags::KEEP_SIZE | FallocateFlags::ZERO_RANGE | FallocateFlags::PUNCH_HOLE;
        // Collapsing, inserting and unsharing ranges: the kernel itself refuses them for FUSE.
        if !(mode - handled).is_empty() || (punches && (zeros || !keep_size)) {
            return reply.error(fuse_errno(Errno::OPNOTSUPP));
        }
        if length == 0 {
            return reply.error(fuse_errno(Errno::INVAL));
        }
        if !punches && offset.checked_add(length).is_none_or(|end| end > self.file_bytes_max) {
            return reply.error(fuse_errno(Errno::FBIG));
        }
        let mtime = known.not_before(times::now());
        let request = if zeros || punches {
            Ask::Zero { object, offset, len: length, extend: !keep_size, mtime }
        } else {
            Ask::Allocate { object, offset, len: length, extend: !keep_size, mtime, user: request.uid() }
        };
        let done = move |answer| match answer {
            Reply::Changed(attributes) => {
                known.changed(attributes, mtime);
                reply.ok();
            }
            other => reply.error(fuse_errno(unexpected(&other))),
        };
        self.pond.submit(request, Box::new(done));
    }

    /// Finds data or a hole.
    pub(crate) fn seek(&self, file: &OpenHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        let Ok(from) = u64::try_from(offset) else {
            return reply.error(fuse_errno(Errno::NXIO));
        };
        let data = match whence {
            SEEK_DATA => true,
            SEEK_HOLE => false,
            // The kernel works out all others by itself.
            _ => return reply.error(fuse_errno(Errno::INVAL)),
        };
        match &file.way {
            ContentWay::Pond { object, .. } => {
                let done = move |answer| match answer {
                    Reply::Offset(found) => reply.offset(i64::try_from(found).unwrap_or(i64::MAX)),
                    other => reply.error(fuse_errno(unexpected(&other))),
                };
                self.pond.submit(Ask::Seek { object: *object, offset: from, data }, Box::new(done));
            }
            ContentWay::Straight(file, _) => {
                let seek = if data { SeekFrom::Data(from) } else { SeekFrom::Hole(from) };
                match rustix::fs::seek(file, seek) {
                    Ok(found) => reply.offset(i64::try_from(found).unwrap_or(i64::MAX)),
                    Err(error) => reply.error(fuse_errno(error)),
                }
            }
        }
    }

    /// The free space of the file system that has this inode. Dirty data counts in the origin's answer, because its
    /// space there is reserved. At an origin that can reserve none, the answer lacks it.
    pub(crate) fn room(&self, inode: &Inode) -> ReplyOutcome<StatVfs> {
        rustix::fs::fstatvfs(inode.path()?)
    }
}
