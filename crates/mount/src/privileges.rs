//! Taking away set-user-id, set-group-id and program capabilities from files that are written,
//! truncated or given away, as Linux does. The kernel leaves this to the file system when it is
//! told so (`FUSE_HANDLE_KILLPRIV_V2`), and in exchange does not ask for capabilities before
//! each write.
//!
//! Invariant: a file that had such bits when a write of an unprivileged caller was asked for has
//! none when that write is answered.

use rustix::fs::{Mode, RawMode};
use rustix::io::Errno;

use crate::caller::Rights;
use crate::inodes::{Inode, Privileges};

/// The extended attribute with a program's capabilities.
pub(crate) const CAPABILITIES: &str = "security.capability";

const SET_UID: RawMode = 0o4000;
const SET_GID: RawMode = 0o2000;
const GROUP_EXECUTE: RawMode = 0o010;

/// The content is about to change. Capabilities always go; set-user-id and set-group-id go as the
/// `rights` of the caller say, who is looked at only where there are any. Says whether anything
/// changed.
pub(crate) fn drop_before_change(inode: &Inode, rights: impl FnOnce() -> Option<Rights>) -> Result<bool, Errno> {
    if inode.privileges() == Privileges::None {
        return Ok(false);
    }
    let found = inode.stat()?;
    let mode = RawMode::from(found.stx_mode) & 0o7777;
    let mut changed = false;
    match rustix::fs::removexattr(inode.proc_path()?, CAPABILITIES) {
        Ok(()) => changed = true,
        // An ordinary user's daemon may not remove them; the origin's kernel does when it is written.
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::PERM | Errno::ACCESS) => {}
        Err(error) => return Err(error),
    }
    if mode & (SET_UID | SET_GID) == 0 {
        inode.set_privileges(Privileges::None);
        return Ok(changed);
    }
    let Some(rights) = rights().filter(|rights| !rights.keeps_set_id()) else {
        return Ok(changed);
    };
    let mut dropped = mode & SET_UID;
    // Without group execute the bit is no privilege, but only members may keep it.
    if mode & GROUP_EXECUTE != 0 || !rights.in_group(found.stx_gid) {
        dropped |= mode & SET_GID;
    }
    if dropped != 0 {
        rustix::fs::chmod(inode.proc_path()?, Mode::from_raw_mode(mode & !dropped))?;
        changed = true;
    }
    Ok(changed)
}
