//! `umount.fuse.headpond MOUNTPOINT [-flnrv]`, which a plain `umount` runs.
//!
//! Invariant: it returns when the mount is gone and the origin complete, as `headpond unmount` does. Who does not want
//! to wait says so: `-f` leaves dirty data in the pool, `-l` lets the daemon go on alone.

use std::ffi::OsString;
use std::path::Path;

use headpond_control::{Detach, FS_TYPE, Refusal, detach, mounted_on, mountpoint_path};

use super::{Arguments, Failure};
use crate::args::UnmountArgs;
use crate::unmount;

/// Unmounts.
pub(super) fn run(arguments: &[OsString]) -> Result<(), Failure> {
    // `-r`: a mount that stays, stays as it was.
    let given = Arguments::parse(arguments, "flnrv")?;
    let [mountpoint] = given.paths.as_slice() else {
        return Err(Failure::Usage("an unmount needs a mount point".to_owned()));
    };
    let mountpoint = mountpoint_path(Path::new(mountpoint));
    if given.has('l') {
        return Ok(detach(&mountpoint, Detach::Lazy)?);
    }
    let arguments = UnmountArgs { mountpoint, keep_dirty: given.has('f'), quiet: false };
    match unmount::run(&arguments) {
        Err(Refusal::NotMounted { .. }) if is_ours(&arguments.mountpoint) => {
            // The daemon is gone, and only the kernel's entry is left.
            Ok(detach(&arguments.mountpoint, Detach::Idle)?)
        }
        result => Ok(result?),
    }
}

fn is_ours(mountpoint: &Path) -> bool {
    mounted_on(mountpoint).is_some_and(|mount| mount.fs_type == FS_TYPE)
}
