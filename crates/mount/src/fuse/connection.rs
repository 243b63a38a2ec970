//! The kernel's side of a mount as a whole: whether it stands, and its end while copies of it are left.
//!
//! A mount may have copies in other mount namespaces (a container, `unshare -m`), and an unmount here does not reach
//! them. The connection with the kernel stands as long as there is a copy, or a program has a file of it open.
//!
//! Invariant: after a successful [`Connection::abort`] no request comes in any more, and programs that use a copy get
//! ENOTCONN. What was answered before is the engine's, as ever.

use std::os::fd::OwnedFd;
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
    /// The kernel's name for it: the number of the mount's device. None where that could not be found out.
    number: Option<u32>,
}

impl Connection {
    /// The one that is behind a mount point.
    pub(crate) fn of(device: Arc<OwnedFd>, mountpoint: &Path) -> Self {
        Self { device, number: number_at(mountpoint) }
    }

    /// Whether it is what is mounted on a mount point, and not something that came there since: as far as can be found out.
    pub(crate) fn is_on(&self, mountpoint: &Path) -> bool {
        self.number.is_none() || self.number == number_at(mountpoint)
    }

    /// The number of the mount's device, whose major number is 0.
    pub(crate) const fn number(&self) -> Option<u32> {
        self.number
    }

    /// Whether requests may still come.
    pub(crate) fn stands(&self) -> bool {
        let mut polled = [PollFd::new(&*self.device, PollFlags::empty())];
        loop {
            match poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
                Err(Errno::INTR) => {}
                _ => return !polled[0].revents().contains(PollFlags::ERR),
            }
        }
    }

    /// Ends it, and says whether that worked. It needs the kernel's list of connections, which belongs to the user
    /// who mounted. Root can have the list even if it is not mounted.
    pub(crate) fn abort(&self) -> bool {
        let Some(number) = self.number else { return false };
        let name = format!("{number}/abort");
        let listed = rustix::fs::open(CONNECTIONS, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        let aborted = listed.and_then(|list| write_one(&list, &name));
        aborted.or_else(|_| own_list().and_then(|list| write_one(&list, &name))).is_ok() && !self.stands()
    }
}

/// The number of the device that a path is on, if its major number is 0. Asks for nothing that the kernel would have to ask a mount for.
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
