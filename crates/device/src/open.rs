//! Starts a reactor for flash files, and chooses its backend.

use std::io;

use headpond_base::{Errno, MemberId};

use crate::far::WithFar;
use crate::{Flash, FlashError, Psync, Reactor, TrimPolicy, Uring};

/// What carries out a reactor's operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Backend {
    /// io_uring; psync if the kernel, a container or a policy refuses it.
    #[default]
    Auto,
    /// io_uring only.
    Uring,
    /// Threads with pread and pwrite.
    Psync,
}

/// Starts a reactor that drives `flashes`. The member is the disk's name. Disks that lie elsewhere may join it, too.
///
/// # Errors
/// When the named backend is refused, or threads cannot be started.
pub fn start_reactor(
    flashes: Vec<(MemberId, Flash)>,
    backend: Backend,
    trim: TrimPolicy,
) -> Result<Box<dyn Reactor>, FlashError> {
    let far = |(member, flash): &(MemberId, Flash)| Some((*member, flash.far_disk()?.clone()));
    let elsewhere = flashes.iter().filter_map(far).collect();
    let here = flashes.into_iter().filter(|(_, flash)| flash.far_disk().is_none()).collect();
    let near = start_with(here, backend, trim, Uring::ring)?;
    Ok(Box::new(WithFar::new(near, elsewhere)))
}

/// Asks the kernel for a ring, and gives it back at once.
///
/// # Errors
/// The kernel's, if this process gets none now.
pub fn probe_uring() -> io::Result<()> {
    Uring::ring().map(drop)
}

/// [`start_reactor`] with `ring` as a parameter, so that a test can refuse it.
fn start_with(
    flashes: Vec<(MemberId, Flash)>,
    backend: Backend,
    trim: TrimPolicy,
    ring: impl FnOnce() -> io::Result<io_uring::IoUring>,
) -> Result<Box<dyn Reactor>, FlashError> {
    // What one flash refuses, all refuse. The first stands for all in the error.
    let path = flashes.first().map(|(_, flash)| flash.path().to_owned()).unwrap_or_default();
    if backend != Backend::Psync {
        match ring() {
            Ok(ring) => {
                return match Uring::new(ring, flashes, trim) {
                    Ok(reactor) => Ok(Box::new(reactor)),
                    Err(source) => Err(FlashError::NoUring { path, source }),
                };
            }
            Err(error) if backend == Backend::Auto && is_refusal(&error) => {}
            Err(source) => return Err(FlashError::NoUring { path, source }),
        }
    }
    match Psync::new(flashes, trim) {
        Ok(reactor) => Ok(Box::new(reactor)),
        Err(source) => Err(FlashError::Io { doing: "start threads for", path, source }),
    }
}

/// Whether io_uring is forbidden or missing, and not just in trouble for the moment. A sysctl or a security policy
/// forbids it (EPERM, EACCES). It is missing in an old kernel or behind a filter (ENOSYS), or lacks what is needed
/// (EINVAL). Older kernels count rings in the limit on locked memory (ENOMEM).
fn is_refusal(error: &io::Error) -> bool {
    const ENOSYS: Errno = Errno(38);
    const EPERM: Errno = Errno(1);
    const EACCES: Errno = Errno(13);
    const ENOMEM: Errno = Errno(12);
    [EPERM, EACCES, ENOSYS, ENOMEM, Errno::INVAL].contains(&Errno(error.raw_os_error().unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fill;

    fn flash(dir: &tempfile::TempDir) -> Vec<(MemberId, Flash)> {
        vec![(MemberId(0), Flash::create(&dir.path().join("flash"), 1 << 20, Fill::Reserved).unwrap())]
    }

    #[test]
    fn refused_io_uring_falls_back_to_psync_by_itself_and_only_then() {
        for errno in [1, 38] {
            let refuse = || Err(io::Error::from_raw_os_error(errno));
            let dir = tempfile::tempdir().unwrap();
            let reactor = start_with(flash(&dir), Backend::Auto, TrimPolicy::Off, refuse).unwrap();
            assert_eq!(reactor.name(), "psync");
        }
        let dir = tempfile::tempdir().unwrap();
        let refuse = || Err(io::Error::from_raw_os_error(1));
        let named = start_with(flash(&dir), Backend::Uring, TrimPolicy::Off, refuse);
        assert!(matches!(named, Err(FlashError::NoUring { .. })));
        let dir = tempfile::tempdir().unwrap();
        let trouble = || Err(io::Error::from_raw_os_error(24));
        assert!(start_with(flash(&dir), Backend::Auto, TrimPolicy::Off, trouble).is_err());
    }
}
