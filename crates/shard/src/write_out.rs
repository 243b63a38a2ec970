//! Waiting until the device of a file has a range of it.

// rustix has no function for this call.
#![allow(unsafe_code)]

use std::fs::File;
use std::os::fd::AsRawFd;

use headpond_base::{Errno, Result};

/// Writes a range of a file from the page cache to its device, and waits for that. Metadata, the device's own cache
/// and other ranges are left to a sync. File systems without a device do nothing.
///
/// # Errors
/// The device's. The kernel tells a failed write-back to a descriptor once, so this may be the error of another range,
/// and a sync after it may succeed.
pub(crate) fn write_out(file: &File, offset: u64, bytes: u64) -> Result<()> {
    if bytes == 0 {
        // To the kernel that would be all up to the file's end.
        return Ok(());
    }
    let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    let (Ok(offset), Ok(bytes)) = (offset.try_into(), bytes.try_into()) else { return Err(Errno::INVAL) };
    // SAFETY: the call takes a descriptor, which is open, and three numbers.
    let result = unsafe { libc::sync_file_range(file.as_raw_fd(), offset, bytes, flags) };
    if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error().into()) }
}
