//! The kernel's requests as fuser delivers them: each goes to its group of operations, and gets
//! exactly one answer.
//!
//! Some operations are left out on purpose. The answer then makes the kernel do them by itself, or
//! fail them: see the end of this file.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use fuser::{
    BsdFileFlags, CopyFileRangeFlags, Errno as FuseErrno, FileAttr, FileHandle, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, IoctlFlags, KernelConfig, LockOwner, OpenFlags, PollEvents, PollFlags, PollNotifier,
    RenameFlags as FuseRenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry,
    ReplyIoctl, ReplyLock, ReplyLseek, ReplyOpen, ReplyPoll, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow,
};
use headpond_base::{BLOCK, RECORD_BYTES_MAX};
use headpond_names::{FileKind, ROOT};
use rustix::fs::{FallocateFlags, FileType, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::front::Front;
use crate::front::asked_again::{Asked, set_before};
use crate::front::attributes::{KEEP, WantedAttributes, keep};
use crate::front::xattr::Sized as Value;
use crate::handles::{ContentWay, Opening};
use crate::outcome::ReplyOutcome;
use crate::outcome::fuse_errno;
use crate::outcome::outcome;
use crate::panel::{self, is_panel};
use crate::stat::kind_of;

/// Requests that the kernel may have under way in the background: asynchronous direct I/O and
/// readahead. The kernel's default of 12 would hold a database's queue back.
const BACKGROUND: u16 = 512;

/// Bytes of a request at most. A mebibyte that begins inside a page spans one page more than one that
/// does not, and the kernel counts pages.
const WRITE_BYTES_MAX: u32 = (RECORD_BYTES_MAX + BLOCK) as u32;

/// Capabilities that the mount asks the kernel for.
///
/// `FUSE_ATOMIC_O_TRUNC` is not among them, although it would save a request when an open truncates a file: with it
/// the kernel truncates a running program before it refuses to.
const CAPABILITIES: [InitFlags; 8] = [
    // File handles: with a handle, the kernel asks for an inode that it has forgotten, as "." of its number.
    InitFlags::FUSE_EXPORT_SUPPORT,
    // Several direct requests of one file at a time.
    InitFlags::FUSE_ASYNC_DIO,
    InitFlags::FUSE_PARALLEL_DIROPS,
    // Otherwise the kernel asks for a program's capabilities before each single write.
    InitFlags::FUSE_HANDLE_KILLPRIV_V2,
    // The kernel checks access lists. Without this, the group bits of a mode grant too much.
    InitFlags::FUSE_POSIX_ACL,
    // The umask does not count if a directory gives an access list.
    InitFlags::FUSE_DONT_MASK,
    InitFlags::FUSE_CACHE_SYMLINKS,
    InitFlags::FUSE_MAX_PAGES,
];

/// The agreement with the kernel on protocol and capabilities. It serves nothing.
#[derive(Debug)]
pub(crate) struct Greeting;

impl Filesystem for Greeting {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // The kernel's write-back cache stays off: it would acknowledge writes that no log has.
        for capability in CAPABILITIES {
            // An older kernel that lacks one gets the mount without it.
            let _ = config.add_capabilities(capability);
        }
        let _ = config.set_max_write(WRITE_BYTES_MAX);
        let _ = config.set_max_background(BACKGROUND);
        Ok(())
    }
}

/// What the mount agrees on with the kernel when it is made, as one number. A successor must agree on the same.
pub(crate) fn agreement() -> u64 {
    let capabilities = CAPABILITIES.iter().fold(InitFlags::empty(), |all, one| all | *one).bits();
    capabilities.rotate_left(17) ^ u64::from(WRITE_BYTES_MAX) << 16 ^ u64::from(BACKGROUND)
}

/// One mount, as fuser drives it.
pub(crate) struct FileSystem {
    front: Arc<Front>,
}

impl FileSystem {
    pub(crate) fn new(front: Arc<Front>) -> Self {
        Self { front }
    }
}

fn entry(front: &Front, asked: Asked, result: ReplyOutcome<FileAttr>, reply: ReplyEntry) {
    front.counted(asked, result.as_ref().ok().map(|attributes| attributes.ino.0));
    match result {
        Ok(attributes) => {
            let generation = Generation(front.generation(attributes.ino.0));
            reply.entry_with_ttls(&keep(&attributes), &KEEP, &attributes, generation);
        }
        Err(error) => reply.error(fuse_errno(error)),
    }
}

fn attributes(result: ReplyOutcome<FileAttr>, reply: ReplyAttr) {
    match result {
        Ok(attributes) => reply.attr(&keep(&attributes), &attributes),
        Err(error) => reply.error(fuse_errno(error)),
    }
}

fn empty(result: ReplyOutcome<()>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(fuse_errno(error)),
    }
}

fn value(result: ReplyOutcome<Value>, reply: ReplyXattr) {
    match result {
        Ok(Value::Length(length)) => match u32::try_from(length) {
            Ok(length) => reply.size(length),
            Err(_) => reply.error(FuseErrno::E2BIG),
        },
        Ok(Value::Bytes(bytes)) => reply.data(&bytes),
        Err(error) => reply.error(fuse_errno(error)),
    }
}

/// The engine is the only way to a managed file's content, so the kernel's pages stay right from one open to the
/// next. A file on another file system may be changed by others.
fn caching(way: &ContentWay) -> FopenFlags {
    match way {
        ContentWay::Pond { .. } => FopenFlags::FOPEN_KEEP_CACHE,
        ContentWay::Straight(..) => FopenFlags::empty(),
    }
}

/// The system's flags of an open file.
pub(crate) fn open_flags(flags: i32) -> OFlags {
    OFlags::from_bits_retain(flags.cast_unsigned())
}

/// How a request opens something, with the flags by which that opens again at the origin.
fn opening(request: &Request, flags: OFlags) -> Opening {
    let flags = flags & (OFlags::ACCMODE | OFlags::SYNC | OFlags::DSYNC);
    Opening { unique: Asked::of(request).unique(), opener: request.uid(), flags: flags.bits() }
}

impl Filesystem for FileSystem {
    fn init(&mut self, _: &Request, _: &mut KernelConfig) -> io::Result<()> {
        // [`Greeting`] has agreed on everything with the kernel. This greeting comes from the relay.
        Ok(())
    }

    fn destroy(&mut self) {
        for file in self.front.files.drain() {
            self.front.close(&file);
        }
        self.front.directories.drain();
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if let Some(found) = self.front.panel_by_name(parent.0, name) {
            return match found {
                Ok(attributes) => reply.entry(&panel::KEEP, &attributes, Generation(0)),
                Err(error) => reply.error(fuse_errno(error)),
            };
        }
        if name == "." || name == ".." {
            let found = self.front.look_up_by_number(parent.0, name == "..");
            return entry(&self.front, Asked::of(request), found, reply);
        }
        let found = outcome(self.front.names.inodes.get(parent.0)).and_then(|parent| self.front.look_up(&parent, name));
        entry(&self.front, Asked::of(request), found.map(|(_, attributes)| attributes), reply);
    }

    fn forget(&self, _: &Request, ino: INodeNo, nlookup: u64) {
        self.front.forget(ino.0, nlookup);
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        if is_panel(ino.0) {
            return match self.front.panel_attributes(ino.0) {
                Ok(attributes) => reply.attr(&panel::KEEP, &attributes),
                Err(error) => reply.error(fuse_errno(error)),
            };
        }
        attributes(outcome(self.front.names.inodes.get(ino.0)).and_then(|inode| self.front.attributes(&inode)), reply);
    }

    fn setattr(
        &self,
        request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let wanted = WantedAttributes { mode, uid, gid, size, atime, mtime };
        let result = self.front.to_change(ino.0).and_then(|inode| {
            let file = fh.and_then(|handle| self.front.files.get(handle.0).ok());
            self.front.set_attributes(request, &inode, file.as_deref(), &wanted)
        });
        attributes(result, reply);
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        match outcome(self.front.names.inodes.get(ino.0)).and_then(|inode| self.front.read_link(&inode)) {
            Ok(target) => reply.data(target.as_encoded_bytes()),
            Err(error) => reply.error(fuse_errno(error)),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let asked = Asked::of(request);
        let made = self.front.to_change(parent.0).and_then(|parent| {
            let made = self.front.make_node(request, &parent, name, mode, umask, rdev);
            let kind = kind_of(FileType::from_raw_mode(mode));
            self.front.done(asked, made, Errno::EXIST, || self.front.was_made(&parent, name, kind, None))
        });
        entry(&self.front, asked, made, reply);
    }

    fn mkdir(&self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        let asked = Asked::of(request);
        let made = self.front.to_change(parent.0).and_then(|parent| {
            let made = self.front.make_directory(request, &parent, name, mode, umask);
            let was = || self.front.was_made(&parent, name, FileKind::Directory, None);
            self.front.done(asked, made, Errno::EXIST, was)
        });
        entry(&self.front, asked, made, reply);
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let removed = self.front.to_change(parent.0).and_then(|parent| self.front.remove(&parent, name));
        empty(self.front.done(Asked::of(request), removed, Errno::NOENT, || Ok(())), reply);
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let removed = self.front.to_change(parent.0).and_then(|parent| self.front.remove_directory(&parent, name));
        empty(self.front.done(Asked::of(request), removed, Errno::NOENT, || Ok(())), reply);
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let asked = Asked::of(request);
        let made = self.front.to_change(parent.0).and_then(|parent| {
            let made = self.front.make_symlink(request, &parent, name, target);
            let was = || self.front.was_made(&parent, name, FileKind::Symlink, Some(target));
            self.front.done(asked, made, Errno::EXIST, was)
        });
        entry(&self.front, asked, made, reply);
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: FuseRenameFlags,
        reply: ReplyEmpty,
    ) {
        let flags = RenameFlags::from_bits_retain(flags.bits());
        let renamed = self.front.to_change(parent.0).and_then(|from| {
            let to = outcome(self.front.names.inodes.get(newparent.0))?;
            self.front.rename_asked(Asked::of(request), (&from, name), (&to, newname), flags)
        });
        empty(renamed, reply);
    }

    fn link(&self, request: &Request, ino: INodeNo, newparent: INodeNo, newname: &OsStr, reply: ReplyEntry) {
        let asked = Asked::of(request);
        let linked = self.front.to_change(ino.0).and_then(|inode| {
            let parent = outcome(self.front.names.inodes.get(newparent.0))?;
            let linked = self.front.link(&inode, &parent, newname);
            let was = || self.front.was_linked(&inode, &parent, newname);
            self.front.done(asked, linked, Errno::EXIST, was)
        });
        entry(&self.front, asked, linked, reply);
    }

    fn open(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if is_panel(ino.0) {
            return match self.front.panel_open(ino.0, open_flags(flags.0)) {
                // Past the kernel's pages: each open reads its own text to its end.
                Ok(handle) => reply.opened(FileHandle(handle), FopenFlags::FOPEN_DIRECT_IO),
                Err(error) => reply.error(fuse_errno(error)),
            };
        }
        let asked = Asked::of(request);
        if let Some((number, file)) = self.front.opened_before(asked) {
            return reply.opened(FileHandle(number), caching(&file.way));
        }
        let opened = outcome(self.front.names.inodes.get(ino.0))
            .and_then(|inode| self.front.open(request, &inode, open_flags(flags.0)));
        match opened {
            Ok(file) => {
                let caching = caching(&file.way);
                let how = opening(request, open_flags(flags.0));
                reply.opened(FileHandle(self.front.files.insert(file, how)), caching);
            }
            Err(error) => reply.error(fuse_errno(error)),
        }
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let asked = Asked::of(request);
        if let Some((number, file, attributes)) = self.front.created_before(asked) {
            let generation = Generation(file.inode.generation);
            let (keep, caching) = (keep(&attributes), caching(&file.way));
            return reply.created(&keep, &attributes, generation, FileHandle(number), caching);
        }
        let created = self.front.to_change(parent.0).and_then(|parent| {
            let flags = open_flags(flags);
            let created = self.front.create(request, &parent, name, mode, umask, flags);
            // What another program made in the meantime is stale, too.
            self.front.done(asked, created, Errno::STALE, || self.front.was_created(request, &parent, name, flags))
        });
        self.front.counted(asked, created.as_ref().ok().map(|(attributes, _)| attributes.ino.0));
        match created {
            Ok((attributes, file)) => {
                let caching = caching(&file.way);
                // A new file is open for both at the origin.
                let handle = FileHandle(self.front.files.insert(file, opening(request, OFlags::RDWR)));
                let generation = Generation(self.front.generation(attributes.ino.0));
                reply.created(&keep(&attributes), &attributes, generation, handle, caching);
            }
            Err(error) => reply.error(fuse_errno(error)),
        }
    }

    fn release(
        &self,
        _: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        if is_panel(ino.0) {
            self.front.panel_release(fh.0)
        } else {
            self.front.release(fh.0)
        }
        reply.ok();
    }

    /// Only the panel's reads come here: all others are the door's.
    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let read = if is_panel(ino.0) { self.front.panel_read(ino.0, fh.0, offset, size) } else { Err(Errno::BADF) };
        match read {
            Ok(bytes) => reply.data(&bytes),
            Err(error) => reply.error(fuse_errno(error)),
        }
    }

    /// Only the panel's, as in `read`: there is nothing to make durable.
    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn opendir(&self, request: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        if is_panel(ino.0) {
            // The panel's listing keeps no state.
            return reply.opened(FileHandle(0), FopenFlags::empty());
        }
        if let Some((number, _)) = self.front.directory_opened_before(Asked::of(request)) {
            return reply.opened(FileHandle(number), FopenFlags::empty());
        }
        match outcome(self.front.names.inodes.get(ino.0))
            .and_then(|inode| self.front.open_directory(&inode, request.uid()))
        {
            Ok(directory) => {
                let how = opening(request, OFlags::empty());
                reply.opened(FileHandle(self.front.directories.insert(directory, how)), FopenFlags::empty());
            }
            Err(error) => reply.error(fuse_errno(error)),
        }
    }

    fn readdir(&self, _: &Request, ino: INodeNo, fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        if is_panel(ino.0) {
            return match self.front.panel_list(offset, &mut reply) {
                Ok(()) => reply.ok(),
                Err(error) => reply.error(fuse_errno(error)),
            };
        }
        let read = self
            .front
            .directories
            .get(fh.0)
            .and_then(|directory| self.front.read_directory(&directory, offset, &mut reply));
        match read {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(fuse_errno(error)),
        }
    }

    fn releasedir(&self, _: &Request, ino: INodeNo, fh: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        if !is_panel(ino.0) {
            self.front.directories.remove(fh.0);
        }
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, ino: INodeNo, fh: FileHandle, datasync: bool, reply: ReplyEmpty) {
        if is_panel(ino.0) {
            return reply.ok();
        }
        let synced =
            self.front.directories.get(fh.0).and_then(|directory| self.front.sync_directory(&directory, datasync));
        empty(synced, reply);
    }

    fn statfs(&self, _: &Request, ino: INodeNo, reply: ReplyStatfs) {
        // The panel lies on no file system of its own.
        let node = if is_panel(ino.0) { ROOT } else { ino.0 };
        match outcome(self.front.names.inodes.get(node)).and_then(|inode| self.front.room(&inode)) {
            Ok(room) => {
                let narrow = |wide: u64| u32::try_from(wide).unwrap_or(u32::MAX);
                reply.statfs(
                    room.f_blocks,
                    room.f_bfree,
                    room.f_bavail,
                    room.f_files,
                    room.f_ffree,
                    narrow(room.f_bsize),
                    narrow(room.f_namemax),
                    narrow(room.f_frsize),
                );
            }
            Err(error) => reply.error(fuse_errno(error)),
        }
    }

    fn setxattr(
        &self,
        request: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let set = self.front.to_change(ino.0).and_then(|inode| {
            let set = self.front.set_attribute(request, &inode, name, value, flags);
            let was = || self.front.has_attribute(&inode, name, value);
            self.front.done(Asked::of(request), set, set_before(flags), was)
        });
        empty(set, reply);
    }

    fn getxattr(&self, _: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        if is_panel(ino.0) {
            return reply.error(FuseErrno::ENODATA);
        }
        value(
            outcome(self.front.names.inodes.get(ino.0)).and_then(|inode| self.front.get_attribute(&inode, name, size)),
            reply,
        );
    }

    fn listxattr(&self, request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        if is_panel(ino.0) {
            return value(Ok(if size == 0 { Value::Length(0) } else { Value::Bytes(Vec::new()) }), reply);
        }
        let names = outcome(self.front.names.inodes.get(ino.0))
            .and_then(|inode| self.front.list_attributes(request, &inode, size));
        value(names, reply);
    }

    fn removexattr(&self, request: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let removed = self.front.to_change(ino.0).and_then(|inode| self.front.remove_attribute(&inode, name));
        empty(self.front.done(Asked::of(request), removed, Errno::NODATA, || Ok(())), reply);
    }

    fn fallocate(
        &self,
        request: &Request,
        _: INodeNo,
        fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        match self.front.may_change().and_then(|()| self.front.files.get(fh.0)) {
            Ok(file) => {
                let mode = FallocateFlags::from_bits_retain(mode.cast_unsigned());
                self.front.allocate(request, &file, offset, length, mode, reply);
            }
            Err(error) => reply.error(fuse_errno(error)),
        }
    }

    fn lseek(&self, _: &Request, ino: INodeNo, fh: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        match self.front.files.get(fh.0) {
            Ok(file) => self.front.seek(&file, offset, whence, reply),
            // An open directory has positions of its own kind.
            Err(_) if self.front.names.inodes.get(ino.0).is_ok_and(|inode| inode.kind == FileKind::Directory) => {
                reply.error(FuseErrno::EINVAL);
            }
            Err(error) => reply.error(fuse_errno(error)),
        }
    }

    /// Applications get ENOTTY ("inappropriate ioctl for device") for any request unknown here.
    fn ioctl(
        &self,
        request: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _: IoctlFlags,
        cmd: u32,
        in_data: &[u8],
        _: u32,
        reply: ReplyIoctl,
    ) {
        match self.front.ioctl(request, ino.0, fh.0, cmd, in_data) {
            Ok(bytes) => reply.ioctl(0, &bytes),
            Err(error) => reply.error(fuse_errno(error)),
        }
    }

    // From here on: left out on purpose.

    /// Nothing waits for a close. The kernel does not ask again after this answer.
    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.error(FuseErrno::ENOSYS);
    }

    /// The kernel copies by reading and writing instead, and does not ask again.
    fn copy_file_range(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        reply.error(FuseErrno::ENOSYS);
    }

    /// Locks are the kernel's own: all users of the mount are on this machine.
    fn getlk(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: LockOwner,
        _: u64,
        _: u64,
        _: i32,
        _: u32,
        reply: ReplyLock,
    ) {
        reply.error(FuseErrno::ENOSYS);
    }

    /// As `getlk`.
    fn setlk(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: LockOwner,
        _: u64,
        _: u64,
        _: i32,
        _: u32,
        _: bool,
        reply: ReplyEmpty,
    ) {
        reply.error(FuseErrno::ENOSYS);
    }

    /// Files are always ready; the kernel knows after this answer.
    fn poll(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: PollNotifier,
        _: PollEvents,
        _: PollFlags,
        reply: ReplyPoll,
    ) {
        reply.error(FuseErrno::ENOSYS);
    }

    /// The kernel checks permissions by itself (`default_permissions`).
    fn access(&self, _: &Request, _: INodeNo, _: fuser::AccessFlags, reply: ReplyEmpty) {
        reply.error(FuseErrno::ENOSYS);
    }

    /// The mount does not know where a file's blocks lie on a device.
    fn bmap(&self, _: &Request, _: INodeNo, _: u32, _: u64, reply: fuser::ReplyBmap) {
        reply.error(FuseErrno::ENOSYS);
    }
}
