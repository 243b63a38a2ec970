//! Takes set-user-id, set-group-id and program capabilities from files that are written, truncated or given away, as
//! Linux does. `FUSE_HANDLE_KILLPRIV_V2` makes the kernel leave this to the mount. In exchange the kernel does not
//! ask for capabilities before each write.
//!
//! Invariants
//! - If a file has such bits when an unprivileged caller's write comes, it has none when the answer goes out.
//! - The kernel never runs a program by bits that the mount took away: it keeps none (see
//!   [`keep`](crate::front::attributes::keep)).
//! - Nothing made or changed here has a set-group-id bit that Linux would not have given the caller, on any kernel.

use rustix::io::Errno;

use crate::caller::Rights;
use crate::reached::Reached;
use crate::stat::mode_of;
use crate::tree::Inode;

/// The extended attribute with a program's capabilities.
pub(crate) const CAPABILITIES: &str = "security.capability";

const SET_UID: u32 = 0o4000;
const SET_GID: u32 = 0o2000;
const GROUP_EXECUTE: u32 = 0o010;

/// Both bits.
pub(crate) const SET_IDS: u32 = SET_UID | SET_GID;

/// Whether the file has anything that may have to go when its content changes.
pub(crate) fn has_any(inode: &Inode) -> Result<bool, Errno> {
    let look = inode.beside.privileges.look();
    let mode = inode.stat()?.mode;
    let able = rustix::fs::getxattr_query(inode.proc_path()?, CAPABILITIES).is_ok();
    let any = able || mode & SET_IDS != 0;
    if !any {
        inode.beside.privileges.set_none(look);
    }
    Ok(any)
}

/// Call it before the content changes. Capabilities always go. Set-user-id and set-group-id go as the caller's
/// `rights` say; the caller is looked at only if there are such bits. Says whether anything changed.
pub(crate) fn drop_before_change(inode: &Inode, rights: impl FnOnce() -> Option<Rights>) -> Result<bool, Errno> {
    if inode.beside.privileges.is_none() {
        return Ok(false);
    }
    let look = inode.beside.privileges.look();
    let found = inode.stat()?;
    let mode = found.mode;
    let mut changed = false;
    match rustix::fs::removexattr(inode.proc_path()?, CAPABILITIES) {
        Ok(()) => changed = true,
        // An ordinary user's daemon may not remove them. The origin's kernel does when the file is written.
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::PERM | Errno::ACCESS) => {}
        Err(error) => return Err(error),
    }
    if mode & (SET_UID | SET_GID) == 0 {
        inode.beside.privileges.set_none(look);
        return Ok(changed);
    }
    let Some(rights) = rights().filter(|rights| !rights.keeps_set_id()) else {
        return Ok(changed);
    };
    let mut dropped = mode & SET_UID;
    // Without group execute the bit is no privilege, but only members may keep it.
    if mode & GROUP_EXECUTE != 0 || !rights.in_group(found.gid) {
        dropped |= mode & SET_GID;
    }
    if dropped != 0 {
        rustix::fs::chmod(inode.proc_path()?, mode_of(mode & !dropped))?;
        changed = true;
    }
    Ok(changed)
}

/// Call it after the caller set an access list. A caller outside the file's group may not leave the file with that
/// group's rights: the list may have let others run it. Says whether the mode changed.
pub(crate) fn drop_after_access_list(inode: &Inode, rights: impl FnOnce() -> Rights) -> Result<bool, Errno> {
    let found = inode.stat()?;
    let mode = found.mode;
    if mode & SET_GID == 0 {
        return Ok(false);
    }
    let rights = rights();
    if rights.keeps_set_id() || rights.in_group(found.gid) {
        return Ok(false);
    }
    rustix::fs::chmod(inode.proc_path()?, mode_of(mode & !SET_GID))?;
    Ok(true)
}

/// The mode with which the caller may make a file below `parent`. If the directory gives its group to the file, only
/// members of the group may make a set-group-id program. The kernel sees to that from 6.0 on. Older kernels leave it
/// to the file system, and the origin's takes the daemon for a member.
pub(crate) fn of_new_file(parent: &Inode, mode: u32, rights: impl FnOnce() -> Rights) -> Result<u32, Errno> {
    if !is_group_program(mode) {
        return Ok(mode);
    }
    let found = parent.stat()?;
    let gives_group = found.mode & SET_GID != 0;
    Ok(if gives_group { without_foreign_group(mode, found.gid, &rights()) } else { mode })
}

const fn is_group_program(mode: u32) -> bool {
    mode & (SET_GID | GROUP_EXECUTE) == SET_GID | GROUP_EXECUTE
}

fn without_foreign_group(mode: u32, group: u32, rights: &Rights) -> u32 {
    let may = rights.keeps_set_id() || rights.in_group(group);
    if may { mode } else { mode & !SET_GID }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_of_a_group_is_made_by_its_members_and_by_who_may_all() {
        let stranger = Rights::of_groups(&[100]);
        let member = Rights::of_groups(&[100, 50]);
        assert_eq!(without_foreign_group(0o2775, 50, &stranger), 0o775);
        assert_eq!(without_foreign_group(0o2775, 50, &member), 0o2775);
        assert_eq!(without_foreign_group(0o2775, 50, &Rights::of_all()), 0o2775);
        assert!(is_group_program(0o2775) && !is_group_program(0o2765) && !is_group_program(0o4775));
    }
}
