//! Requests that fuser does not know, answered as the kernel's `linux/fuse.h` defines them: status with birth time
//! (`FUSE_STATX`, Linux 6.6), and files without a name (`FUSE_TMPFILE`, Linux 6.1).
//!
//! A file without a name bypasses the pool as long as the kernel knows it, even after it gets a name. Otherwise the
//! log would have to count it as removed, and take that back.

use std::time::{SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, FileType as FuseType};
use headpond_names::{Found, Moment};
use rustix::fs::{AtFlags, FileType, OFlags, StatxAttributes, StatxFlags};
use rustix::io::Errno;

use crate::caller::{self, AsCaller, Caller, Rights};
use crate::front::Front;
use crate::front::asked_again::Asked;
use crate::front::attributes::{KEEP, keep};
use crate::front::open::creation_mode;
use crate::fuse::answer::Answer;
use crate::fuse::wire::Create;
use crate::handles::{ContentWay, OpenHandle, Opening};
use crate::outcome::ReplyOutcome;
use crate::outcome::outcome;
use crate::panel::is_panel;
use crate::reached::{Reached, pin, with_room};
use crate::stat::{found_of, mode_of, path_descriptor, raw_stat};
use crate::tree::Inode;
use crate::{privileges, times};

/// The body of an answer, field by field.
#[derive(Default)]
struct Body(Vec<u8>);

impl Body {
    fn u16(mut self, value: u16) -> Self {
        self.0.extend_from_slice(&value.to_ne_bytes());
        self
    }

    fn u32(mut self, value: u32) -> Self {
        self.0.extend_from_slice(&value.to_ne_bytes());
        self
    }

    fn u64(mut self, value: u64) -> Self {
        self.0.extend_from_slice(&value.to_ne_bytes());
        self
    }

    fn zeros(mut self, count: usize) -> Self {
        self.0.resize(self.0.len() + count, 0);
        self
    }

    /// `struct fuse_sx_time`.
    fn time(self, (seconds, nanos): (i64, u32)) -> Self {
        self.u64(seconds.cast_unsigned()).u32(nanos).zeros(4)
    }
}

impl Front {
    /// Answers with the status of a node, with all fields of statx.
    pub(crate) fn answer_statx(&self, node: u64, answer: Answer) {
        let seen = if is_panel(node) {
            self.panel_attributes(node).map(|attributes| (attributes, None))
        } else {
            outcome(self.names.inodes.get(node)).and_then(|inode| {
                let (found, flags) = look(&inode)?;
                Ok((self.attributes_from(&inode, &found), Some((found, flags))))
            })
        };
        match seen {
            Ok((attributes, found)) => answer.bytes(&statx_body(&attributes, found.as_ref()).0),
            Err(error) => answer.error(error),
        }
    }

    /// Makes a file without a name in a directory, opens it and answers with it.
    pub(crate) fn answer_tmpfile(&self, parent: u64, create: Create, caller: Caller, asked: Asked, answer: Answer) {
        if let Some((handle, file, attributes)) = self.created_before(asked) {
            return answer.bytes(&created_body(&attributes, file.inode.generation, handle).0);
        }
        let made =
            outcome(self.names.inodes.get(parent)).and_then(|parent| self.make_nameless(&parent, create, caller));
        match made {
            Ok((attributes, file)) => {
                let (generation, node) = (file.inode.generation, file.inode.node);
                let how = Opening { unique: asked.unique(), opener: caller.uid, flags: OFlags::RDWR.bits() };
                let handle = self.files.insert(file, how);
                self.counted(asked, Some(node));
                answer.bytes(&created_body(&attributes, generation, handle).0);
            }
            Err(error) => {
                self.counted(asked, None);
                answer.error(error);
            }
        }
    }

    fn make_nameless(&self, parent: &Inode, create: Create, caller: Caller) -> ReplyOutcome<(FileAttr, OpenHandle)> {
        if self.read_only {
            return Err(Errno::ROFS);
        }
        caller::without_umask();
        let mode = privileges::of_new_file(parent, create.mode, || Rights::of_caller(caller))?;
        let mode = creation_mode(parent, mode, create.umask);
        let directory = parent.path()?;
        let share = self.held_by(caller.uid)?;
        let file = {
            let _as = AsCaller::of_caller(caller)?;
            // The origin's file remembers whether it may get a name later.
            let asked = OFlags::from_bits_retain(create.flags) & OFlags::EXCL;
            let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC | asked;
            with_room(parent, || rustix::fs::openat(&directory, c".", flags, mode_of(mode)))?
        };
        let path = path_descriptor(&file)?;
        let found = self.names.tree().stat(&path, c"")?;
        let inode = self.names.inodes.take_in_nameless(path, &found);
        match pin(&inode, false) {
            Ok(pinned) => Ok((
                self.attributes_from(&inode, &found),
                OpenHandle::new(pinned, ContentWay::Straight(file.into(), share), true, caller.uid),
            )),
            Err(error) => {
                self.forget(inode.node, 1);
                Err(error)
            }
        }
    }
}

/// A file's flags, and which flags its file system has.
type FileFlags = [StatxAttributes; 2];

/// The origin's status and flags of an inode.
fn look(inode: &Inode) -> ReplyOutcome<(Found, FileFlags)> {
    match inode.path() {
        Ok(path) => {
            let found = raw_stat(path, c"", AtFlags::EMPTY_PATH)?;
            Ok((found_of(&found), [found.stx_attributes, found.stx_attributes_mask]))
        }
        Err(error) => inode.last_seen().map(|found| (found, [StatxAttributes::empty(); 2])).ok_or(error),
    }
}

/// `struct fuse_statx_out`.
fn statx_body(attributes: &FileAttr, found: Option<&(Found, FileFlags)>) -> Body {
    let birth = found.and_then(|(found, _)| found.birth);
    let mask = StatxFlags::BASIC_STATS | birth.map_or(StatxFlags::empty(), |_| StatxFlags::BTIME);
    let birth = birth.map_or((0, 0), |Moment { seconds, nanos }| (seconds, nanos));
    let [flags, known] = found.map_or([StatxAttributes::empty(); 2], |(_, flags)| *flags);
    let keep = keep(attributes);
    Body::default()
        .u64(keep.as_secs())
        .u32(keep.subsec_nanos())
        .zeros(4 + 16)
        // struct fuse_statx
        .u32(mask.bits())
        .u32(attributes.blksize)
        .u64(flags.bits())
        .u32(attributes.nlink)
        .u32(attributes.uid)
        .u32(attributes.gid)
        .u16(mode(attributes) as u16)
        .zeros(2)
        .u64(attributes.ino.0)
        .u64(attributes.size)
        .u64(attributes.blocks)
        .u64(known.bits())
        .time(parts(attributes.atime))
        .time(birth)
        .time(parts(attributes.ctime))
        .time(parts(attributes.mtime))
        .u32(found.map_or(0, |found| found.0.stands_for.major))
        .u32(found.map_or(0, |found| found.0.stands_for.minor))
        .u32(0)
        .u32(0)
        .zeros(14 * 8)
}

/// `struct fuse_entry_out`, and `struct fuse_open_out`.
fn created_body(attributes: &FileAttr, generation: u64, handle: u64) -> Body {
    let [atime, mtime, ctime] = [attributes.atime, attributes.mtime, attributes.ctime].map(parts);
    Body::default()
        .u64(attributes.ino.0)
        .u64(generation)
        .u64(KEEP.as_secs())
        .u64(keep(attributes).as_secs())
        .u32(KEEP.subsec_nanos())
        .u32(keep(attributes).subsec_nanos())
        // struct fuse_attr
        .u64(attributes.ino.0)
        .u64(attributes.size)
        .u64(attributes.blocks)
        .u64(atime.0.cast_unsigned())
        .u64(mtime.0.cast_unsigned())
        .u64(ctime.0.cast_unsigned())
        .u32(atime.1)
        .u32(mtime.1)
        .u32(ctime.1)
        .u32(mode(attributes))
        .u32(attributes.nlink)
        .u32(attributes.uid)
        .u32(attributes.gid)
        .u32(attributes.rdev)
        .u32(attributes.blksize)
        .u32(0)
        // struct fuse_open_out
        .u64(handle)
        .zeros(8)
}

/// Kind and permissions, as the system writes them.
fn mode(attributes: &FileAttr) -> u32 {
    let kind = match attributes.kind {
        FuseType::Directory => FileType::Directory,
        FuseType::Symlink => FileType::Symlink,
        FuseType::NamedPipe => FileType::Fifo,
        FuseType::Socket => FileType::Socket,
        FuseType::CharDevice => FileType::CharacterDevice,
        FuseType::BlockDevice => FileType::BlockDevice,
        FuseType::RegularFile => FileType::RegularFile,
    };
    kind.as_raw_mode() | u32::from(attributes.perm)
}

/// Seconds since 1970, and the nanoseconds after those.
fn parts(time: SystemTime) -> (i64, u32) {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => (i64::try_from(after.as_secs()).unwrap_or(i64::MAX), after.subsec_nanos()),
        Err(error) => times::before_epoch(error.duration()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::stat::stat;

    #[test]
    fn answers_are_as_long_as_the_kernel_has_them() {
        let found = (stat(rustix::fs::CWD, c"/").unwrap(), [StatxAttributes::empty(); 2]);
        let attributes = FileAttr {
            ino: fuser::INodeNo(7),
            size: 1,
            blocks: 8,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH - Duration::from_millis(1),
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: FuseType::RegularFile,
            perm: 0o644,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        };
        assert_eq!(statx_body(&attributes, Some(&found)).0.len(), 32 + 256);
        assert_eq!(created_body(&attributes, 1, 2).0.len(), 40 + 88 + 16);
        assert_eq!(parts(attributes.mtime), (-1, 999_000_000));
    }
}
