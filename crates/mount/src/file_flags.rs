//! The origin's extended file flags, which rustix has no call for.
#![allow(unsafe_code)]

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::ioctl::{Getter, Opcode, ioctl};

/// `FS_IOC_FSGETXATTR`, `_IOR('X', 31, struct fsxattr)`.
pub(crate) const GET_XFLAGS: u32 = 0x801c_581f;

/// `struct fsxattr`: flags, extent size, extents, project, and what is reserved.
pub(crate) type Extended = [u8; 28];

/// What the origin says of an open file.
pub(crate) fn extended(file: &OwnedFd) -> Result<Extended, Errno> {
    // SAFETY: the kernel writes a `struct fsxattr`, whose 28 bytes may be any, and which is as long as its number says.
    unsafe { ioctl(file, Getter::<{ GET_XFLAGS as Opcode }, Extended>::new()) }
}
