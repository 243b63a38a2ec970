//! Reading and setting attributes: mode, owner, size, times.
//!
//! Invariant: size and modification time of a file that the engine knows come from the engine. Everything else comes
//! from the origin.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use fuser::{FileAttr, FileType as FuseType, INodeNo, Request, TimeOrNow};
use headpond_base::BLOCK_U64;
use headpond_names::{DeviceNumber, FileKind, Found, ROOT, block_on};
use rustix::fs::{AtFlags, Gid, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid};
use rustix::io::Errno;

use crate::caller::Rights;
use crate::front::Front;
use crate::handles::{ContentWay, OpenHandle};
use crate::outcome::ReplyOutcome;
use crate::outcome::outcome;
use crate::privileges::SET_IDS;
use crate::reached::Reached;
use crate::stat::mode_of;
use crate::times;
use crate::tree::Inode;

/// The changes that an application asks for.
#[derive(Default, Debug)]
pub(crate) struct WantedAttributes {
    pub(crate) mode: Option<u32>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) size: Option<u64>,
    pub(crate) atime: Option<TimeOrNow>,
    pub(crate) mtime: Option<TimeOrNow>,
}

/// The unit of a file's space in its status, in bytes.
const STAT_BLOCK: u64 = 512;

impl WantedAttributes {
    fn is_empty(&self) -> bool {
        let Self { mode, uid, gid, size, atime, mtime } = self;
        mode.or(*uid).or(*gid).is_none() && size.is_none() && atime.is_none() && mtime.is_none()
    }
}

impl Front {
    /// What applications see of an inode.
    pub(crate) fn attributes(&self, inode: &Inode) -> ReplyOutcome<FileAttr> {
        // Two steps, and the second wins. An application sees a change between the two in full or in part, never
        // undone.
        let found = if inode.known().is_some() { inode.stat_as_held()? } else { inode.stat()? };
        Ok(self.attributes_from(inode, &found))
    }

    /// Tells the file of a node from earlier files with the same number.
    pub(crate) fn generation(&self, node: u64) -> u64 {
        self.names.inodes.get(node).map_or(0, |inode| inode.generation)
    }

    /// What applications see of an inode, given what the origin just said of it.
    pub(crate) fn attributes_from(&self, inode: &Inode, found: &Found) -> FileAttr {
        let mut attributes = FileAttr {
            // fuser sends one number both as the node and as the inode number.
            ino: INodeNo(inode.node),
            size: found.size,
            blocks: found.blocks,
            atime: times::moment(found.atime),
            mtime: times::moment(found.mtime),
            ctime: times::moment(found.ctime),
            crtime: UNIX_EPOCH,
            kind: fuse_type(found.kind),
            perm: found.mode as u16,
            nlink: found.links,
            uid: found.uid,
            gid: found.gid,
            rdev: device_number(found.stands_for),
            blksize: found.block_size,
            flags: 0,
        };
        if inode.node == ROOT {
            // The root's node is always 1; only here can its own number be shown.
            attributes.ino = INodeNo(found.inode);
        }
        if let Some(view) = inode.known().map(|known| known.view()) {
            attributes.size = view.size;
            // Where the origin reserves nothing, what is dirty has no space there yet. A file without any is a hole for
            // GNU tar, which then reads none of it.
            if view.size > 0 {
                attributes.blocks = attributes.blocks.max(BLOCK_U64 / STAT_BLOCK);
            }
            attributes.mtime = times::system_time(view.mtime);
            attributes.ctime = times::system_time(view.ctime);
        } else if let Some(ctime) = self.kept_times.seen(inode.key, found.ctime.unix_nanos()) {
            attributes.ctime = times::system_time(ctime);
        }
        attributes
    }

    /// Changes attributes in such an order that a failure leaves as little done as possible.
    pub(crate) fn set_attributes(
        &self,
        request: &Request,
        inode: &Arc<Inode>,
        file: Option<&OpenHandle>,
        wanted: &WantedAttributes,
    ) -> ReplyOutcome<FileAttr> {
        if let Some(mode) = wanted.mode {
            let _change = self.changing_status(inode)?;
            // Linux has no modes of symbolic links.
            if inode.kind == FileKind::Symlink {
                return Err(Errno::OPNOTSUPP);
            }
            let changed = rustix::fs::chmod(inode.proc_path()?, mode_of(mode));
            inode.beside.privileges.set_unknown();
            changed?;
            // At once: the next step may fail.
            self.changed_at_origin(inode);
        }
        if wanted.uid.is_some() || wanted.gid.is_some() || wanted.is_empty() && self.acts_as_owner(request, inode)? {
            // The origin's own chown takes set-user-id away.
            let (uid, gid) = (wanted.uid.map(Uid::from_raw), wanted.gid.map(Gid::from_raw));
            let _change = self.changing_status(inode)?;
            rustix::fs::chownat(inode.path()?, c"", uid, gid, AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW)?;
            self.changed_at_origin(inode);
        }
        if let Some(size) = wanted.size {
            self.truncate(request, inode, file, size)?;
        }
        if wanted.atime.is_some() || wanted.mtime.is_some() {
            self.set_times(inode, file, wanted.atime, wanted.mtime)?;
        }
        self.attributes(inode)
    }

    /// Whether the caller may send a request that names nothing to change. The kernel sends that for a change of
    /// owner to the same owner.
    fn acts_as_owner(&self, request: &Request, inode: &Inode) -> ReplyOutcome<bool> {
        Ok(inode.stat()?.uid == request.uid() || Rights::of(request).acts_as_owner())
    }

    fn truncate(
        &self,
        request: &Request,
        inode: &Arc<Inode>,
        file: Option<&OpenHandle>,
        size: u64,
    ) -> ReplyOutcome<()> {
        if size > self.file_bytes_max {
            return Err(Errno::FBIG);
        }
        self.drop_privileges(inode, || Some(Rights::of(request)))?;
        match file.map(|file| &file.way) {
            Some(ContentWay::Straight(file, _)) => rustix::fs::ftruncate(file, size),
            Some(ContentWay::Pond { .. }) => outcome(block_on(self.names.truncate(inode, size))),
            None if inode.managed => {
                let _open = self.open_for_change(inode)?;
                outcome(block_on(self.names.truncate(inode, size)))
            }
            None => {
                let file = inode.open(rustix::fs::OFlags::WRONLY)?;
                rustix::fs::ftruncate(file, size)
            }
        }
    }

    fn set_times(
        &self,
        inode: &Arc<Inode>,
        file: Option<&OpenHandle>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
    ) -> ReplyOutcome<()> {
        let mut at_origin = Timestamps { last_access: timespec(atime), last_modification: timespec(mtime) };
        if let (Some(mtime), Some(known)) = (mtime, inode.known()) {
            let time = match mtime {
                TimeOrNow::SpecificTime(time) => times::from_timespec(times::requested(time)),
                TimeOrNow::Now => known.not_before(times::now()),
            };
            let _open = if file.is_some() { None } else { Some(self.open_for_change(inode)?) };
            outcome(block_on(self.names.set_mtime(inode, time)))?;
            at_origin.last_modification = timespec(None);
        }
        if at_origin.last_access.tv_nsec != UTIME_OMIT || at_origin.last_modification.tv_nsec != UTIME_OMIT {
            let _change = self.changing_status(inode)?;
            rustix::fs::utimensat(inode.path()?, c"", &at_origin, AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW)?;
            self.changed_at_origin(inode);
        }
        Ok(())
    }
}

fn timespec(time: Option<TimeOrNow>) -> Timespec {
    match time {
        None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        Some(TimeOrNow::Now) => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        Some(TimeOrNow::SpecificTime(time)) => times::requested(time),
    }
}

/// The file's type for fuser.
pub(crate) const fn fuse_type(kind: FileKind) -> FuseType {
    match kind {
        FileKind::Directory => FuseType::Directory,
        FileKind::Symlink => FuseType::Symlink,
        FileKind::Fifo => FuseType::NamedPipe,
        FileKind::Socket => FuseType::Socket,
        FileKind::CharacterDevice => FuseType::CharDevice,
        FileKind::BlockDevice => FuseType::BlockDevice,
        FileKind::File | FileKind::Unknown => FuseType::RegularFile,
    }
}

/// A device number in the 32-bit form that FUSE carries.
const fn device_number(DeviceNumber { major, minor }: DeviceNumber) -> u32 {
    (minor & 0xff) | (major & 0xfff) << 8 | (minor & 0xf_ff00) << 12
}

/// The time after which the kernel asks again. It learns at once of every change through the mount. This bounds how
/// long it misses what others did to the origin.
pub(crate) const KEEP: Duration = Duration::from_secs(1);

/// How long the kernel may keep a file's attributes: not at all with a set-user-id or set-group-id bit. A write takes
/// such a bit away here, and the kernel does not hear of it; but it runs programs with the rights that it has kept.
pub(crate) fn keep(attributes: &FileAttr) -> Duration {
    let has_privileges = attributes.kind == FuseType::RegularFile && u32::from(attributes.perm) & SET_IDS != 0;
    if has_privileges { Duration::ZERO } else { KEEP }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stat::device_from;

    #[test]
    fn device_numbers_survive_the_way_through_the_kernel() {
        for (major, minor) in [(1, 3), (8, 1), (259, 300), (0xfff, 0xf_ffff)] {
            assert_eq!(device_from(device_number(DeviceNumber { major, minor })), rustix::fs::makedev(major, minor));
        }
    }
}
