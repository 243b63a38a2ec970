//! From flash files to a reactor: which backend carries out their operations.

use std::io;

use headpond_base::{Errno, MemberId};

use crate::{Flash, FlashError, Psync, Reactor, TrimPolicy, Uring};

/// Which backend to use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Backend {
    /// io_uring, or psync where the kernel, a container or a policy refuses it.
    #[default]
    Auto,
    /// io_uring or nothing.
    Uring,
    /// Threads with pread and pwrite.
    Psync,
}

/// Starts a reactor that drives flashes, each as the disk with its name.
///
/// # Errors
/// When the backend was named and is refused, or threads cannot be started.
pub fn start_reactor(
    flashes: Vec<(MemberId, Flash)>,
    backend: Backend,
    trim: TrimPolicy,
) -> Result<Box<dyn Reactor>, FlashError> {
    start_with(flashes, backend, trim, Uring::ring)
}

/// [`start_reactor`] with the making of the ring given, so that its refusal can be tested.
fn start_with(
    flashes: Vec<(MemberId, Flash)>,
    backend: Backend,
    trim: TrimPolicy,
    ring: impl FnOnce() -> io::Result<io_uring::IoUring>,
) -> Result<Box<dyn Reactor>, FlashError> {
    // What cannot be done cannot be done for any of them: the first stands for all.
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

/// Whether io_uring is forbidden or not there, as opposed to a passing trouble: by sysctl or
/// security policy (EPERM, EACCES), by an old kernel or a filter (ENOSYS), by a kernel that lacks
/// what is needed (EINVAL), or by the limit on locked memory that older kernels count rings in (ENOMEM).
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
