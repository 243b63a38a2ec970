//! How the lab lets go of what it has mounted.

use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a mount may be in use when its owner lets go of it. The kernel closes a daemon's files some time after its
/// end, as far as an io_uring holds them; another process may look at a loop device just then; and a namespace that
/// ends at that moment may have the last copy of what was mounted.
const BUSY_MAX: Duration = Duration::from_secs(30);
/// How often it is tried again meanwhile.
const LOOK: Duration = Duration::from_millis(100);

/// Unmounts what is mounted at `path` once nobody uses it, and removes the mount point.
///
/// Who has copied this machine's mounts meanwhile, such as a container, still has it; without its mount point the
/// kernel takes it away there, too. It writes what is left then, so what is below has to answer still.
///
/// # Errors
/// When it cannot be unmounted, or is in use for too long. Then the mount point stays as well.
pub(crate) fn let_go(path: &Path) -> io::Result<()> {
    let start = Instant::now();
    loop {
        match unmount(path, UnmountFlags::empty()) {
            Err(Errno::BUSY) if start.elapsed() < BUSY_MAX => std::thread::sleep(LOOK),
            Err(error) => return Err(error.into()),
            Ok(()) => break,
        }
    }
    // It may be another's, or be gone: then it is no matter of this mount.
    let _ = fs::remove_dir(path);
    Ok(())
}
