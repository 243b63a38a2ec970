//! The connection between kernel and mount as a whole: whether it stands, and how it ends while copies of the mount
//! are left.
//!
//! A mount may have copies in other mount namespaces (a container, `unshare -m`). An unmount here does not reach
//! them. The connection stands as long as there is a copy, or a program has a file of it open.
//!
//! Invariant: after a successful [`Connection::abort`] no request comes in any more, and programs that use a copy get
//! ENOTCONN. The engine keeps what was answered before.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};

/// Where the kernel shows its connections, if it is mounted.
const CONNECTIONS: &str = "/sys/fs/fuse/connections";

/// See the module.
#[derive(Debug)]
pub(crate) struct Connection {
    device: Arc<OwnedFd>,
    /// The kernel's name for it: the number of the mount's device. None if the mount could not find it out.
    number: Option<u32>,
}

impl Connection {
    /// The connection behind a mount point.
    pub(crate) fn of(device: Arc<OwnedFd>, mountpoint: &Path) -> Self {
        Self { device, number: number_at(mountpoint) }
    }

    /// A copy of the device.
    pub(crate) fn device(&self) -> io::Result<OwnedFd> {
        self.device.try_clone()
    }

    /// Whether this connection's mount is on the mount point, and not something mounted there later; as far as can be
    /// found out.
    pub(crate) fn is_on(&self, mountpoint: &Path) -> bool {
        self.number.is_none() || self.number == number_at(mountpoint)
    }

    /// The number of the mount's device, whose major number is 0.
    pub(crate) const fn number(&self) -> Option<u32> {
        self.number
    }

    /// Whether requests may still come.
    pub(crate) fn stands(&self) -> bool {
        stands(&*self.device)
    }

    /// Ends the connection, and says whether that worked. It needs the kernel's list of connections, where an entry
    /// belongs to the user who mounted. Root can have the list even if it is not mounted.
    pub(crate) fn abort(&self) -> bool {
        let Some(number) = self.number else { return false };
        let name = format!("{number}/abort");
        let listed = rustix::fs::open(CONNECTIONS, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        let aborted = listed.and_then(|list| write_one(&list, &name));
        aborted.or_else(|_| own_list().and_then(|list| write_one(&list, &name))).is_ok() && !self.stands()
    }
}

/// Whether requests may still come from a device of the kernel's.
#[must_use]
pub fn stands(device: impl AsFd) -> bool {
    let mut polled = [PollFd::new(&device, PollFlags::empty())];
    loop {
        match poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
            Err(Errno::INTR) => {}
            _ => return !polled[0].revents().contains(PollFlags::ERR),
        }
    }
}

/// The number of the device that a path is on, if its major number is 0. Asks only for what the kernel knows without
/// the mount.
fn number_at(path: &Path) -> Option<u32> {
    let flags = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
    let found = rustix::fs::statx(CWD, path, flags, StatxFlags::empty()).ok()?;
    (found.stx_dev_major == 0).then_some(found.stx_dev_minor)
}

/// The kernel's list of connections, mounted nowhere.
fn own_list() -> Result<OwnedFd, Errno> {
    let list = rustix::mount::fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_create(&list)?;
    rustix::mount::fsmount(&list, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())
}

fn write_one(list: &OwnedFd, name: &str) -> Result<(), Errno> {
    let file = rustix::fs::openat(list, name, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(&file, b"1").map(drop)
}
