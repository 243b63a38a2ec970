//! A FUSE file system with one file, whose reads it answers at once from memory: what is left of FUSE's price if the
//! file system itself costs nothing.
//!
//! One thread looks for requests without a pause, so that no request waits until it wakes up. It needs a processor for
//! itself.

use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEntry, Request, Session,
};
use rustix::fs::OFlags;

use super::Outcome;

/// The file, and its size: that of the files which it is compared with.
const NAME: &str = "data";
const BYTES: u64 = 1 << 30;
const FILE: INodeNo = INodeNo(2);

/// The longest read.
const READ_BYTES_MAX: usize = 1 << 20;

/// How long the kernel may keep names and attributes: longer than any run.
const KEEP: Duration = Duration::from_secs(3600);

/// The file system, mounted. Its drop unmounts it.
pub struct FuseAlone {
    session: Option<BackgroundSession>,
    point: PathBuf,
}

impl FuseAlone {
    /// Mounts it.
    pub fn start(point: &Path) -> Outcome<Self> {
        std::fs::create_dir_all(point)?;
        let session = Session::new(Memory(vec![0; READ_BYTES_MAX]), point, &Config::default())?;
        // fuser asks again at once where there is no request.
        let flags = rustix::fs::fcntl_getfl(session.as_fd())?;
        rustix::fs::fcntl_setfl(session.as_fd(), flags | OFlags::NONBLOCK)?;
        Ok(Self { session: Some(session.spawn()?), point: point.to_owned() })
    }

    /// Its file.
    pub fn file(&self) -> PathBuf {
        self.point.join(NAME)
    }
}

impl Drop for FuseAlone {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            let _ = session.umount_and_join();
        }
    }
}

/// What each read gets.
struct Memory(Vec<u8>);

fn attributes(inode: INodeNo) -> FileAttr {
    let (kind, perm, size) =
        if inode == FILE { (FileType::RegularFile, 0o444, BYTES) } else { (FileType::Directory, 0o555, 0) };
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

impl Filesystem for Memory {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // As headpond's mount asks for it.
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        Ok(())
    }

    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if name == NAME {
            reply.entry(&KEEP, &attributes(FILE), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&KEEP, &attributes(inode));
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let left = usize::try_from(BYTES.saturating_sub(offset)).unwrap_or(usize::MAX);
        reply.data(&self.0[..left.min(size as usize).min(READ_BYTES_MAX)]);
    }
}
