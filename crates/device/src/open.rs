//! From a flash file to a device: which backend carries out its operations.

use std::io;
use std::path::Path;

use headpond_base::Errno;

use crate::{Device, Flash, FlashError, Psync, TrimPolicy, Uring};

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

/// Opens an existing flash file or device and starts a device on it.
///
/// # Errors
/// See [`Flash::open`] and [`start_device`].
pub fn open_flash(path: &Path, backend: Backend) -> Result<Box<dyn Device>, FlashError> {
    start_device(Flash::open(path)?, backend, TrimPolicy::default())
}

/// Starts a device on an open flash.
///
/// # Errors
/// When the backend was named and is refused, or threads cannot be started.
pub fn start_device(flash: Flash, backend: Backend, trim: TrimPolicy) -> Result<Box<dyn Device>, FlashError> {
    start_with(flash, backend, trim, Uring::ring)
}

/// [`start_device`] with the making of the ring given, so that its refusal can be tested.
fn start_with(
    flash: Flash,
    backend: Backend,
    trim: TrimPolicy,
    ring: impl FnOnce() -> io::Result<io_uring::IoUring>,
) -> Result<Box<dyn Device>, FlashError> {
    if backend != Backend::Psync {
        match ring() {
            Ok(ring) => {
                let path = flash.path().to_owned();
                return match Uring::new(ring, flash, trim) {
                    Ok(device) => Ok(Box::new(device)),
                    Err(source) => Err(FlashError::NoUring { path, source }),
                };
            }
            Err(error) if backend == Backend::Auto && is_refusal(&error) => {}
            Err(source) => return Err(FlashError::NoUring { path: flash.path().to_owned(), source }),
        }
    }
    let path = flash.path().to_owned();
    match Psync::new(flash, trim) {
        Ok(device) => Ok(Box::new(device)),
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

    fn flash(dir: &tempfile::TempDir) -> Flash {
        Flash::create(&dir.path().join("flash"), 1 << 20, Fill::Reserved).unwrap()
    }

    #[test]
    fn refused_io_uring_falls_back_to_psync_by_itself_and_only_then() {
        for errno in [1, 38] {
            let refuse = || Err(io::Error::from_raw_os_error(errno));
            let dir = tempfile::tempdir().unwrap();
            let device = start_with(flash(&dir), Backend::Auto, TrimPolicy::Off, refuse).unwrap();
            assert_eq!(device.name(), "psync");
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
