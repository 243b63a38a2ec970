//! The origin's extended file flags, which rustix has no call for.
#![allow(unsafe_code)]

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::ioctl::{Getter, Opcode, ioctl};

/// `FS_IOC_FSGETXATTR`, `_IOR('X', 31, struct fsxattr)`.
pub(crate) const GET_XFLAGS: u32 = 0x801c_581f;

/// `struct fsxattr`: flags, extent size, extents, project, and reserved bytes.
pub(crate) type Extended = [u8; 28];

/// The extended flags that the origin has of an open file.
pub(crate) fn extended(file: &OwnedFd) -> Result<Extended, Errno> {
    // SAFETY: the kernel writes a `struct fsxattr`. Its 28 bytes may have any values, and the request's number gives
    // its length.
    unsafe { ioctl(file, Getter::<{ GET_XFLAGS as Opcode }, Extended>::new()) }
}
