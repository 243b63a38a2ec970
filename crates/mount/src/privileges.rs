//! Taking away set-user-id, set-group-id and program capabilities from files that are written,
//! truncated or given away, as Linux does. The kernel leaves this to the file system when it is
//! told so (`FUSE_HANDLE_KILLPRIV_V2`), and in exchange does not ask for capabilities before
//! each write.
//!
//! Invariant: a file that had such bits when a write of an unprivileged caller was asked for has
//! none when that write is answered.

use rustix::fs::{Mode, RawMode};
use rustix::io::Errno;

use crate::inodes::{Inode, Privileges};

/// The extended attribute with a program's capabilities.
pub(crate) const CAPABILITIES: &str = "security.capability";

const SET_UID: RawMode = 0o4000;
const SET_GID: RawMode = 0o2000;
const GROUP_EXECUTE: RawMode = 0o010;

/// The content is about to change. Capabilities always go; set-user-id and set-group-id stay if
/// the caller `keeps` them, which is asked only where there are any. Says whether anything changed.
pub(crate) fn drop_before_change(inode: &Inode, keeps: impl FnOnce() -> bool) -> Result<bool, Errno> {
    if inode.privileges() == Privileges::None {
        return Ok(false);
    }
    let mode = RawMode::from(inode.stat()?.stx_mode) & 0o7777;
    // Set-group-id without group execute is not a privilege; historically it asks for locking.
    let group = if mode & GROUP_EXECUTE != 0 { SET_GID } else { 0 };
    let dangerous = mode & (SET_UID | group);
    let mut changed = false;
    match rustix::fs::removexattr(inode.proc_path(), CAPABILITIES) {
        Ok(()) => changed = true,
        // An ordinary user's daemon may not remove them; the origin's kernel does when it is written.
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::PERM | Errno::ACCESS) => {}
        Err(error) => return Err(error),
    }
    if dangerous == 0 {
        inode.set_privileges(Privileges::None);
    } else if !keeps() {
        rustix::fs::chmod(inode.proc_path(), Mode::from_raw_mode(mode & !dangerous))?;
        inode.set_privileges(Privileges::None);
        changed = true;
    }
    Ok(changed)
}
