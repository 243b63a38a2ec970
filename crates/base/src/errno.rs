//! The one error that crosses the engine: an errno, because applications get an errno.

use std::fmt;

/// An operating system error number. The engine makes only those named here. Others come from the origin and are
/// passed on unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(pub i32);

/// The result of an operation of the engine or of a device.
pub type Result<T> = std::result::Result<T, Errno>;

impl Errno {
    /// Not permitted.
    pub const PERM: Self = Self(1);
    /// No such file.
    pub const NOENT: Self = Self(2);
    /// The device failed, or bytes did not match their checksum and no second copy exists.
    pub const IO: Self = Self(5);
    /// The object is no longer known.
    pub const BADF: Self = Self(9);
    /// Permission denied.
    pub const ACCESS: Self = Self(13);
    /// In use elsewhere.
    pub const BUSY: Self = Self(16);
    /// The name exists already.
    pub const EXIST: Self = Self(17);
    /// Not a directory.
    pub const NOTDIR: Self = Self(20);
    /// The request makes no sense.
    pub const INVAL: Self = Self(22);
    /// The machine has no descriptor left.
    pub const NFILE: Self = Self(23);
    /// The process has no descriptor left.
    pub const MFILE: Self = Self(24);
    /// The file is a program that runs.
    pub const TXTBSY: Self = Self(26);
    /// A file would become too large.
    pub const FBIG: Self = Self(27);
    /// The origin has no room for a later destage.
    pub const NOSPC: Self = Self(28);
    /// A quota leaves no room.
    pub const DQUOT: Self = Self(122);
    /// No data or hole past this offset.
    pub const NXIO: Self = Self(6);
    /// The device is gone.
    pub const NODEV: Self = Self(19);
    /// Interrupted. You may try again.
    pub const INTR: Self = Self(4);
    /// Given up on request.
    pub const CANCELED: Self = Self(125);
    /// The daemon is stopping.
    pub const SHUTDOWN: Self = Self(108);
    /// Not now. Try again in a moment.
    pub const AGAIN: Self = Self(11);
    /// The origin must not change: another host has it.
    pub const ROFS: Self = Self(30);
    /// No answer came in time.
    pub const TIMEDOUT: Self = Self(110);
    /// The origin's server no longer knows the file.
    pub const STALE: Self = Self(116);
    /// The origin's file system cannot do this.
    pub const OPNOTSUPP: Self = Self(95);

    /// Whether there is no room: on the device, in a quota, or in a file that would be too large.
    #[must_use]
    pub const fn is_no_space(self) -> bool {
        matches!(self, Self::NOSPC | Self::DQUOT | Self::FBIG)
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Errno({})", self.0)
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", std::io::Error::from_raw_os_error(self.0))
    }
}

impl std::error::Error for Errno {}

impl From<std::io::Error> for Errno {
    fn from(error: std::io::Error) -> Self {
        Self(error.raw_os_error().unwrap_or(Self::IO.0))
    }
}

impl From<Errno> for std::io::Error {
    fn from(errno: Errno) -> Self {
        Self::from_raw_os_error(errno.0)
    }
}
