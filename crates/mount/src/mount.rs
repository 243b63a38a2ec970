//! Making a mount and removing it.
//!
//! Invariant: an unmount by the daemon ends all copies of the mount, in other mount namespaces too; and no unmount
//! takes away what a program has open, wherever that program runs.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use fuser::{BackgroundSession, Config, MountOption, Session, SessionACL};
use headpond_door::Workers;
use headpond_names::{KnownObject, block_on};
use rustix::fs::{Mode, OFlags, StatVfsMountFlags};

use crate::MountError;
use crate::beside::Beside;
use crate::door::FuseDoor;
use crate::file_system::{FileSystem, Greeting};
use crate::front::Front;
use crate::fuse::connection::Connection;
use crate::fuse::forgetting::Forgetting;
use crate::fuse::source::source_of;
use crate::fuse::{mountpoint, relay};
use crate::insight::Files;
use crate::pond::Pond;

/// The mount to make.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MountOptions {
    /// The directory with the data.
    pub origin: PathBuf,
    /// An empty directory elsewhere.
    pub mountpoint: PathBuf,
    /// All users may use the mount, with permissions checked as on any other file system. Otherwise only the mounting
    /// user may.
    pub allow_other: bool,
    /// Threads for all requests that are not for data. They wait for the origin's directories.
    pub threads: usize,
    /// Nothing can be changed through the mount.
    pub read_only: bool,
}

/// The usual number of threads: enough that some are free while others wait for a slow directory.
pub const THREADS: usize = 8;

/// Threads for requests for data that may block, which are few.
const WORKERS: usize = 4;

/// The kernel releases a file a moment after its last descriptor is closed. For this long an open file may be one
/// that was just closed.
const CLOSING: Duration = Duration::from_secs(1);

/// A mount that is served. It ends when this or any other process unmounts it. When dropped, it unmounts if the mount
/// is not in use.
pub struct Mounted {
    /// fuser's threads, and the session that holds the mount. In this order: the mount outlives the serving.
    session: Option<(BackgroundSession, Session<Greeting>)>,
    mountpoint: PathBuf,
    connection: Connection,
    front: Arc<Front>,
}

/// Mounts, and serves the mount on threads of its own.
///
/// `known` are the files that the pool brought back with something that the origin lacks. Their sizes and times come
/// from the engine from the first moment.
///
/// # Errors
/// If the mount point or the origin is unfit, or the system refuses.
pub fn mount(options: &MountOptions, pond: Arc<dyn Pond>, known: &[KnownObject]) -> Result<Mounted, MountError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(&options.origin, flags, Mode::empty())
        .map_err(|error| MountError::Origin { origin: options.origin.clone(), error: error.into() })?;
    mount_with(options, root, pond, known, Beside::default())
}

/// The same, with what it shares with the control part. The caller has the origin open. The origin's path in the
/// options is only for show: where it leads by now does not matter.
///
/// # Errors
/// As of [`mount`].
pub fn mount_with(
    options: &MountOptions,
    root: OwnedFd,
    pond: Arc<dyn Pond>,
    known: &[KnownObject],
    beside: Beside,
) -> Result<Mounted, MountError> {
    let place = mountpoint::check(&options.mountpoint, &options.origin)?;
    let origin_failed =
        |error: rustix::io::Errno| MountError::Origin { origin: options.origin.clone(), error: error.into() };
    let below = rustix::fs::fstatvfs(&root).map_err(origin_failed)?.f_flag;
    let insight = beside.insight.clone();
    let front = Arc::new(Front::new(root, options.read_only, pond.clone(), known, beside).map_err(origin_failed)?);
    block_on(front.names.adopt(known));
    let files: Weak<dyn Files> = Arc::downgrade(&(front.clone() as Arc<dyn Files>));
    insight.of(files);
    let mut config = Config::default();
    config.mount_options = mount_options(options, below);
    config.acl = if options.allow_other { SessionACL::All } else { SessionACL::Owner };
    config.n_threads = Some(options.threads.max(1));
    let place_refused = |error| mountpoint::refusal(&place, error);
    let session = Session::new(Greeting, &place, &config).map_err(place_refused)?;
    let device = Arc::new(session.as_fd().try_clone_to_owned().map_err(place_refused)?);
    let (serving, door) = serve(device.clone(), front.clone(), &config).map_err(place_refused)?;
    pond.serve(Box::new(door));
    let connection = Connection::of(device, &place);
    Ok(Mounted { session: Some((serving, session)), mountpoint: place, connection, front })
}

/// Serves the requests from the kernel's device. The returned door is for the pond.
fn serve(device: Arc<OwnedFd>, front: Arc<Front>, config: &Config) -> io::Result<(BackgroundSession, FuseDoor)> {
    let flags = rustix::fs::fcntl_getfl(&device)?;
    rustix::fs::fcntl_setfl(&device, flags | OFlags::NONBLOCK)?;
    // There is one device to a front.
    let forgetting = Forgetting::start(device.clone())?;
    let (known, forgets) = (front.names.known.clone(), Arc::downgrade(&forgetting));
    front.pond.when_lost(Box::new(move |object| {
        // The pond outlives the mount, and so outlives this.
        if let Some((key, forgetting)) = known.of(object).zip(forgets.upgrade()) {
            forgetting.all_of(key.inode);
        }
    }));
    let _ = front.forgetting.set(forgetting);
    let (socket, serving) = relay::start(FileSystem::new(front.clone()), config, device.clone())?;
    let workers = Workers::start(config.n_threads.unwrap_or(1).min(WORKERS))?;
    Ok((serving, FuseDoor::new(device, front, socket, workers)))
}

impl Mounted {
    /// The mount point.
    #[must_use]
    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// The number of its device, whose major number is 0. All copies of the mount have it, in all mount namespaces.
    #[must_use]
    pub const fn number(&self) -> Option<u32> {
        self.connection.number()
    }

    /// Whether this mount is on its mount point. Another process may have unmounted it and mounted something else
    /// there.
    #[must_use]
    pub fn is_here(&self) -> bool {
        self.connection.is_on(&self.mountpoint)
    }

    /// Whether no program has anything of it open, in any copy.
    #[must_use]
    pub fn is_unused(&self) -> bool {
        self.front.files.is_empty() && self.front.directories.is_empty()
    }

    /// Unmounts, and waits until the last request is answered. Copies of the mount in other mount namespaces end too.
    ///
    /// # Errors
    /// [`MountError::Busy`] if the mount is in use, here or through a copy. The mount then stays, and you can try
    /// again.
    pub fn unmount(&mut self) -> Result<(), MountError> {
        if self.session.is_none() {
            return Ok(());
        }
        let started = Instant::now();
        while !self.is_unused() {
            if started.elapsed() > CLOSING {
                return Err(MountError::Busy(self.mountpoint.clone()));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        if self.is_here() {
            mountpoint::unmount(&self.mountpoint)?;
        }
        self.end_copies()
    }

    /// Ends the copies in other mount namespaces after the mount is gone here. Waits until the last request is
    /// answered, unless the kernel does not let this process end the copies: then they end with the process.
    ///
    /// # Errors
    /// As of [`Mounted::join`].
    pub fn end_copies(&mut self) -> Result<(), MountError> {
        if self.connection.stands() && !self.connection.abort() { Ok(()) } else { self.join() }
    }

    /// Waits until any process unmounts it.
    ///
    /// # Errors
    /// If serving ended in another way.
    pub fn join(&mut self) -> Result<(), MountError> {
        match self.session.take() {
            Some((serving, _held)) => ended(serving.join()),
            None => Ok(()),
        }
    }

    /// Whether the mount was unmounted.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.session.as_ref().is_none_or(|(serving, _)| serving.guard.is_finished())
    }
}

impl fmt::Debug for Mounted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mounted").field("mountpoint", &self.mountpoint).finish_non_exhaustive()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.session.is_some() && (!self.is_here() || mountpoint::unmount(&self.mountpoint).is_ok()) {
            // An error has no reader any more.
            let _ = self.end_copies();
        }
    }
}

fn ended(result: io::Result<()>) -> Result<(), MountError> {
    match result {
        // The kernel's words for a mount that was aborted or is gone.
        Err(error) if matches!(error.raw_os_error(), Some(19 | 103)) => Ok(()),
        other => other.map_err(MountError::Session),
    }
}

fn mount_options(options: &MountOptions, below: StatVfsMountFlags) -> Vec<MountOption> {
    let mut all = vec![
        MountOption::FSName(source_of(&options.origin)),
        // A custom option, because fuser's own would not reach the kernel: lists then show `fuse.headpond`.
        MountOption::CUSTOM("subtype=headpond".to_owned()),
        // The kernel checks permissions with the callers' groups, which the mount does not know.
        MountOption::DefaultPermissions,
        // Reads do not move access times: each move would be a write to the slow origin.
        MountOption::NoAtime,
    ];
    if rustix::process::geteuid().is_root() {
        // The mount allows what the origin's own mount allows. Ordinary users get neither from the system.
        if !below.contains(StatVfsMountFlags::NODEV) {
            all.push(MountOption::Dev);
        }
        if !below.contains(StatVfsMountFlags::NOSUID) {
            all.push(MountOption::Suid);
        }
    }
    if below.contains(StatVfsMountFlags::NOEXEC) {
        all.push(MountOption::NoExec);
    }
    if options.read_only || below.contains(StatVfsMountFlags::RDONLY) {
        all.push(MountOption::RO);
    }
    all
}
