//! Inodes as the mount's threads use them: each call waits until it is done.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use headpond_names::{Found, Freshness, PathInUse, block_on};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::path::Arg;

use crate::outcome::ReplyOutcome;
use crate::outcome::outcome;
use crate::stat::proc_path;
use crate::tree::{Inode, OriginTree, Pinned};

/// A descriptor that only names an inode. It stays open as long as this lives.
pub(crate) struct OpenPath(PathInUse<OwnedFd>);

impl AsFd for OpenPath {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for OpenPath {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// A name of an open file in `/proc/self/fd`. It is valid as long as this lives.
pub(crate) struct ProcPath {
    name: String,
    _open: OpenPath,
}

impl Arg for ProcPath {
    fn as_str(&self) -> Result<&str, Errno> {
        Ok(&self.name)
    }

    fn to_string_lossy(&self) -> std::borrow::Cow<'_, str> {
        self.name.as_str().into()
    }

    fn as_cow_c_str(&self) -> Result<std::borrow::Cow<'_, std::ffi::CStr>, Errno> {
        self.name.as_cow_c_str()
    }

    fn into_c_str<'b>(self) -> Result<std::borrow::Cow<'b, std::ffi::CStr>, Errno>
    where
        Self: 'b,
    {
        // The descriptor would not stay open.
        Err(Errno::INVAL)
    }

    fn into_with_c_str<T, F>(self, f: F) -> Result<T, Errno>
    where
        F: FnOnce(&std::ffi::CStr) -> Result<T, Errno>,
    {
        self.name.as_str().into_with_c_str(f)
    }
}

/// What the mount can do with an inode at the origin.
pub(crate) trait Reached {
    /// A descriptor that only names it, open as long as the result lives.
    fn path(&self) -> ReplyOutcome<OpenPath>;

    /// Its status at the origin now. If the file is gone, its last status.
    fn stat(&self) -> ReplyOutcome<Found>;

    /// The same without asking a server: as this machine has it. The origin belongs to this mount alone, so its
    /// changes come from here.
    fn stat_as_held(&self) -> ReplyOutcome<Found>;

    /// Its name in `/proc/self/fd`. Calls that take only paths reach the file itself by this name, wherever it was
    /// moved, and even if it is a symbolic link.
    fn proc_path(&self) -> ReplyOutcome<ProcPath>;

    /// Opens the origin's file itself.
    fn open(&self, flags: OFlags) -> ReplyOutcome<OwnedFd>;
}

impl Reached for Inode {
    fn path(&self) -> ReplyOutcome<OpenPath> {
        outcome(block_on(self.reach())).map(OpenPath)
    }

    fn stat(&self) -> ReplyOutcome<Found> {
        outcome(block_on(self.look()))
    }

    fn stat_as_held(&self) -> ReplyOutcome<Found> {
        outcome(block_on(self.look_as(Freshness::AsHeld)))
    }

    fn proc_path(&self) -> ReplyOutcome<ProcPath> {
        let open = self.path()?;
        Ok(ProcPath { name: proc_path(&open), _open: open })
    }

    fn open(&self, flags: OFlags) -> ReplyOutcome<OwnedFd> {
        let flags = (flags - OFlags::NOFOLLOW) | OFlags::CLOEXEC;
        with_room(self, || rustix::fs::open(Reached::proc_path(self)?, flags, Mode::empty()))
    }
}

/// Does something that needs a descriptor, and tries again if the process had none left.
pub(crate) fn with_room<R>(any: &Inode, mut wanting: impl FnMut() -> ReplyOutcome<R>) -> ReplyOutcome<R> {
    match wanting() {
        Err(Errno::MFILE | Errno::NFILE) => {
            any.make_room();
            wanting()
        }
        result => result,
    }
}

/// Pins a file. Refused if it is gone: the kernel then looks up again what has its name now.
pub(crate) fn pin(inode: &std::sync::Arc<Inode>, writes: bool) -> ReplyOutcome<Pinned> {
    outcome(block_on(async {
        if writes { Pinned::for_writing(inode).await } else { headpond_names::Pinned::<OriginTree>::of(inode).await }
    }))
}
