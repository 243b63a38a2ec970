//! The lock beside the origin, as a lease: over a network it can be lost while its descriptor stays open.
//!
//! After a loss of an NFS lock the kernel fails only reads and writes through the locked descriptor, with EIO, and
//! for good. A new lock on that descriptor is granted, but the descriptor still fails. So headpond checks the lock by
//! a read past the kernel's pages, and takes it again on a new descriptor. Tried with Linux 6.1: `cargo xtask origins
//! --origin nfs`.
//!
//! Invariant: [`LockState::Yes`] means that the origin's server, if there is one, gave or confirmed the lock during the
//! call.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, OnceLock, PoisonError};

use headpond_base::{BLOCK, BufMut};
use rustix::fs::{FlockOperation, OFlags, fcntl_getfl, fcntl_setfl, flock};
use rustix::io::Errno;

/// A lock that was taken.
pub(crate) struct Lease {
    state: Mutex<State>,
    keeper: OnceLock<Box<LockKeeper>>,
}

/// Hears of the descriptor that has the lock from now on; none: it is given up. A descriptor that another process
/// keeps, too, has the lock over the end of this one.
pub(crate) type LockKeeper = dyn Fn(Option<BorrowedFd<'_>>) -> io::Result<()> + Send + Sync;

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("state", &self.state).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct State {
    /// None after the lock was given up for good.
    file: Option<File>,
    /// Whether the descriptor holds the lock. One that was given up reads well, but holds nothing.
    held: bool,
}

/// The state of a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LockState {
    /// This process has it.
    Yes,
    /// It was lost, and another process has it.
    ByAnother,
    /// Unknown.
    Unknown(Errno),
}

impl Lease {
    /// The lock that `file` holds.
    pub(crate) fn of(file: File) -> Self {
        read_past_pages(&file);
        Self { state: Mutex::new(State { file: Some(file), held: true }), keeper: OnceLock::new() }
    }

    /// From now on another process keeps the lock's descriptor, too.
    ///
    /// # Errors
    /// If it cannot be given to that one.
    pub(crate) fn kept_by(&self, keeper: Box<LockKeeper>) -> io::Result<()> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let keeper = self.keeper.get_or_init(|| keeper);
        state.file.as_ref().map_or(Ok(()), |file| keeper(Some(file.as_fd())))
    }

    fn tell(&self, file: Option<BorrowedFd<'_>>) {
        if let Some(keeper) = self.keeper.get() {
            // It fails only if the other process is gone, and this one about to be.
            let _ = keeper(file);
        }
    }

    /// Closes the lock's file. An NFS client renames a removed file that is open, and keeps it in its directory,
    /// which then cannot be removed.
    pub(crate) fn close(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).file = None;
        self.tell(None);
    }

    /// Checks whether the lock is still held. If it was lost and is free, takes it again on the file that `open`
    /// gives.
    pub(crate) fn look(&self, open: impl FnOnce() -> Result<File, Errno>) -> LockState {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(held) = &state.file else { return LockState::Unknown(Errno::NOENT) };
        if state.held {
            // Over NFS this asks the server in the name of the lock. The file is empty: there is nothing to read.
            match held.read_at(&mut BufMut::zeroed(BLOCK), 0) {
                Ok(_) => return LockState::Yes,
                Err(error) => match Errno::from_io_error(&error) {
                    Some(Errno::IO | Errno::STALE | Errno::BADF | Errno::NOLCK) => {}
                    Some(errno) => return LockState::Unknown(errno),
                    None => return LockState::Unknown(Errno::IO),
                },
            }
            // Otherwise the kernel's own record of the lock would keep this process out.
            let _ = flock(held, FlockOperation::Unlock);
            state.held = false;
        }
        let file = match open() {
            Ok(file) => file,
            Err(errno) => return LockState::Unknown(errno),
        };
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                read_past_pages(&file);
                self.tell(Some(file.as_fd()));
                *state = State { file: Some(file), held: true };
                LockState::Yes
            }
            Err(Errno::WOULDBLOCK) => LockState::ByAnother,
            Err(errno) => LockState::Unknown(errno),
        }
    }
}

/// A file system that refuses this is no network file system.
fn read_past_pages(file: &File) {
    let _ = fcntl_getfl(file).and_then(|flags| fcntl_setfl(file, flags | OFlags::DIRECT));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(path: &std::path::Path) -> File {
        File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap()
    }

    #[test]
    fn a_lock_that_is_held_is_looked_at_and_not_taken_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let file = open(&path);
        flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
        let lease = Lease::of(file);
        assert_eq!(lease.look(|| panic!("there is no need")), LockState::Yes);
        assert_eq!(flock(open(&path), FlockOperation::NonBlockingLockExclusive), Err(Errno::WOULDBLOCK));
    }

    #[test]
    fn a_lost_lock_is_taken_again_unless_another_has_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        drop(open(&path));
        // Reads through it fail, as those through a descriptor with a lost lock do.
        let lost = File::options().write(true).open(&path).unwrap();
        let lease = Lease::of(lost);
        let other = open(&path);
        flock(&other, FlockOperation::NonBlockingLockExclusive).unwrap();
        assert_eq!(lease.look(|| Ok(open(&path))), LockState::ByAnother);
        assert_eq!(lease.look(|| Ok(open(&path))), LockState::ByAnother, "what was given up is not believed");
        assert_eq!(lease.look(|| Err(Errno::STALE)), LockState::Unknown(Errno::STALE));
        flock(&other, FlockOperation::Unlock).unwrap();
        assert_eq!(lease.look(|| Ok(open(&path))), LockState::Yes);
        assert_eq!(flock(&other, FlockOperation::NonBlockingLockExclusive), Err(Errno::WOULDBLOCK));
        assert_eq!(lease.look(|| panic!("there is no need")), LockState::Yes);
    }
}
