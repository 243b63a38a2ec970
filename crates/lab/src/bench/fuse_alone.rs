//! A FUSE file system with one file, whose reads it answers at once from memory, and whose writes and syncs it answers at
//! once and forgets: what is left of FUSE's price if the file system itself costs nothing.
//!
//! One thread looks for requests without a pause, so that no request waits until it wakes up. It needs a processor for
//! itself.

use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use fuser::{
    BackgroundSession, Config, FileHandle, Filesystem, INodeNo, InitFlags, KernelConfig, LockOwner, OpenFlags,
    ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyWrite, Request, Session, WriteFlags,
};
use headpond_lab::one_file::OneFile;
use rustix::fs::OFlags;

use super::Outcome;
use super::table::Line;

/// The file, as large as those which it is compared with.
const FILE: OneFile = OneFile { name: "data", size: 1 << 30, permissions: (0o666, 0o555) };

/// The longest read.
const READ_BYTES_MAX: usize = 1 << 20;

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
        self.point.join(FILE.name)
    }
}

/// What FUSE alone costs, as a ratio of the raw flash's rate, and what it leaves: one request of the raw file after the same
/// one by FUSE.
pub fn and_then(request: &str, bare: &[f64], empty: Vec<f64>) -> [Line; 2] {
    let both = bare.iter().zip(&empty).map(|(bare, empty)| 1.0 / (1.0 / bare + 1.0 / empty)).collect();
    let line = |what: &str, rates| {
        Line::ratio(&format!("FUSE alone{what}, {request}"), "of raw", rates, bare.to_vec(), 1.0).only_told()
    };
    [line(", answered from memory", empty), line(" and then the raw flash", both)]
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

impl Filesystem for Memory {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // As headpond's mount asks for it.
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        Ok(())
    }

    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        FILE.lookup(name, reply);
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        FILE.getattr(inode, reply);
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
        reply.data(&self.0[..FILE.within(offset, size).min(READ_BYTES_MAX)]);
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        reply.written(u32::try_from(data.len()).unwrap_or(u32::MAX));
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }
}
