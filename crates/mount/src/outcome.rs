//! How a request ends: errors of the system, of the engine and of fuser, turned into each other.

use fuser::Errno as FuseErrno;
use headpond_base::Result as Known;
use headpond_engine::Reply;
use rustix::io::Errno;

/// The result of an operation. Errors are the system's own, passed on as they are.
pub(crate) type ReplyOutcome<T> = Result<T, Errno>;

/// The system's error for an error of the engine.
pub(crate) fn errno(error: headpond_base::Errno) -> Errno {
    Errno::from_raw_os_error(error.0)
}

/// The engine's error for an error of the system.
pub(crate) fn engine_errno(error: Errno) -> headpond_base::Errno {
    headpond_base::Errno(error.raw_os_error())
}

/// An answer that does not fit its request: the engine and the mount disagree.
pub(crate) fn unexpected(reply: &Reply) -> Errno {
    match reply {
        Reply::Failed(error) => errno(*error),
        _ => Errno::IO,
    }
}

/// An error of the name layer, for the kernel.
pub(crate) fn outcome<R>(result: Known<R>) -> ReplyOutcome<R> {
    result.map_err(errno)
}

/// fuser's error for one of the system's.
pub(crate) fn fuse_errno(error: Errno) -> FuseErrno {
    FuseErrno::from_i32(error.raw_os_error())
}
