//! The origin's names and inodes, as the name layer uses them.
//!
//! Contract
//! - A path stays with the file for which it was opened, through renames and after its last name is gone.
//! - Each call is one step of the origin: it happens as a whole, at some moment before it is ready.
//! - Errors are those of the system call of the same name. A call that finds no descriptor left fails with
//!   [`Errno::MFILE`](headpond_base::Errno::MFILE) or [`Errno::NFILE`](headpond_base::Errno::NFILE). The name layer
//!   then closes some, and calls again.

use std::ffi::OsStr;
use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use headpond_base::{Result, UnixNanos};

use crate::{FileKind, Found};

/// How fresh a look must be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Freshness {
    /// As the file system does it.
    Usual,
    /// What this machine has, without a question to a server.
    AsHeld,
    /// What the server has.
    Asked,
}

/// What a file is opened for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Reading.
    Read,
    /// Reading and writing.
    Write,
    /// Reading, and it has to be a directory.
    Directory,
}

/// What to make, if it is not a regular file that is opened with that.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Making {
    /// A directory.
    Directory {
        /// Its final permissions.
        mode: u32,
    },
    /// A device, pipe, socket or empty file.
    Node {
        /// Its kind.
        kind: FileKind,
        /// Its final permissions.
        mode: u32,
        /// The device that it stands for, as the kernel sends it.
        device: u32,
    },
    /// A symbolic link.
    Symlink {
        /// Where it leads.
        target: PathBuf,
    },
}

/// How to rename: the system's own bits. The name layer understands one of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RenameFlags(pub u32);

impl RenameFlags {
    /// Replaces what has the new name.
    pub const REPLACE: Self = Self(0);
    /// Only if the new name is free.
    pub const KEEP: Self = Self(1);
    /// The two change places.
    pub const EXCHANGE: Self = Self(2);

    /// Whether the two change places.
    #[must_use]
    pub const fn exchanges(self) -> bool {
        self.0 & Self::EXCHANGE.0 != 0
    }
}

/// The origin's names and inodes.
pub trait Tree: Send + Sync + 'static {
    /// Names an inode and does nothing else (`O_PATH`).
    type Path: Send + Sync + 'static;
    /// An open file, or an open directory.
    type File: Send + Sync + 'static;
    /// The caller of an operation. New files belong to it.
    type Caller: Sync;
    /// What the front door keeps with each inode.
    type OfInode: Default + Send + Sync + 'static;
    /// What the front door keeps with each file that the engine knows.
    type OfKnown: Default + Send + Sync + 'static;

    /// The time, as the origin stamps files. Never ahead of that.
    fn now(&self) -> UnixNanos;

    /// The user as whom the origin is used. User 0 opens everything.
    fn user(&self) -> u32;

    /// Lets some time pass.
    fn pause(&self, time: Duration) -> impl Future<Output = ()> + Send;

    /// The status of an inode.
    fn look(&self, path: &Self::Path, how: Freshness) -> impl Future<Output = Result<Found>> + Send;

    /// The status of what has a name in a directory. It does not follow a symbolic link.
    fn look_in(&self, directory: &Self::Path, name: &OsStr) -> impl Future<Output = Result<Found>> + Send;

    /// The status of an open file.
    fn look_at(&self, file: &Self::File) -> impl Future<Output = Result<Found>> + Send;

    /// The path of what has a name in a directory. It does not follow a symbolic link.
    fn find(&self, directory: &Self::Path, name: &OsStr) -> impl Future<Output = Result<Self::Path>> + Send;

    /// The path of an open file.
    fn path_of(&self, file: &Self::File) -> impl Future<Output = Result<Self::Path>> + Send;

    /// The name below the root by which a path can be found now. Empty if there is none.
    fn name_of(&self, path: &Self::Path) -> impl Future<Output = Vec<u8>> + Send;

    /// Opens a file. Reads through it do not move the access time, if the origin allows that.
    fn open(&self, path: &Self::Path, access: Access) -> impl Future<Output = Result<Self::File>> + Send;

    /// How many bytes from the start have space, so that writes there need not ask for any. `found` is what was just
    /// seen of it.
    fn allocated(&self, file: &Self::File, found: &Found) -> impl Future<Output = u64> + Send;

    /// Makes a regular file under a free name, for a caller, and opens it for reading and writing.
    fn create(
        &self,
        directory: &Self::Path,
        name: &OsStr,
        mode: u32,
        caller: &Self::Caller,
    ) -> impl Future<Output = Result<Self::File>> + Send;

    /// Makes anything else, for a caller.
    fn make(
        &self,
        directory: &Self::Path,
        name: &OsStr,
        what: &Making,
        caller: &Self::Caller,
    ) -> impl Future<Output = Result<()>> + Send;

    /// Gives an inode a further name.
    fn link(&self, path: &Self::Path, directory: &Self::Path, name: &OsStr) -> impl Future<Output = Result<()>> + Send;

    /// Removes a name: that of an empty directory, or of anything else.
    fn unlink(
        &self,
        directory: &Self::Path,
        name: &OsStr,
        is_directory: bool,
    ) -> impl Future<Output = Result<()>> + Send;

    /// Renames.
    fn rename(
        &self,
        from: (&Self::Path, &OsStr),
        to: (&Self::Path, &OsStr),
        flags: RenameFlags,
    ) -> impl Future<Output = Result<()>> + Send;

    /// Sets permissions.
    fn set_mode(&self, path: &Self::Path, mode: u32) -> impl Future<Output = Result<()>> + Send;

    /// Whether applications must not see this entry of the root, although its name is allowed. Names that are never
    /// seen do not come this far.
    fn hides(&self, found: &Found) -> impl Future<Output = bool> + Send {
        let _ = found;
        async { false }
    }

    /// Whether a directory may be entered.
    ///
    /// # Errors
    /// The reason to refuse.
    fn may_enter(
        &self,
        above: &Self::Path,
        name: &OsStr,
        directory: &Self::Path,
        found: &Found,
    ) -> impl Future<Output = Result<()>> + Send {
        let _ = (above, name, directory, found);
        async { Ok(()) }
    }
}
