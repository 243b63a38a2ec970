//! Making a mount and taking it away.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fuser::{BackgroundSession, Config, MountOption, Session, SessionACL};
use rustix::fs::{Mode, OFlags, StatVfsMountFlags};
use rustix::process::{Resource, Rlimit};

use crate::door::FuseDoor;
use crate::file_system::{FileSystem, Greeting};
use crate::forgetting::Forgetting;
use crate::front::Front;
use crate::insight::Insight;
use crate::known::KnownObject;
use crate::live_rules::LiveRules;
use crate::panel::Panel;
use crate::pond::Pond;
use crate::source::source_of;
use crate::whole::WholeWrites;
use crate::workers::Workers;
use crate::{MountError, mountpoint, relay};

/// What is mounted where, and for whom.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MountOptions {
    /// The directory with the data.
    pub origin: PathBuf,
    /// An empty directory elsewhere.
    pub mountpoint: PathBuf,
    /// All users may use the mount, with permissions checked as on any other file system. Otherwise
    /// only the user who mounts.
    pub allow_other: bool,
    /// How many threads serve what is not for data: they wait for the origin's directories.
    pub threads: usize,
    /// Nothing can be changed through the mount.
    pub read_only: bool,
}

/// Threads where nothing else is said: enough that some are free while others wait for a slow
/// directory.
pub const THREADS: usize = 8;

/// Threads for requests for data that may block, which are few.
const WORKERS: usize = 4;

/// A mount that is served. It ends when it is unmounted from here or from anywhere else. When
/// dropped, it is unmounted if it is not in use.
#[derive(Debug)]
pub struct Mounted {
    /// What fuser serves, and what holds the mount. In this order: the mount outlives the serving.
    session: Option<(BackgroundSession, Session<Greeting>)>,
    mountpoint: PathBuf,
}

/// Mounts, and serves the mount on threads of its own.
///
/// `known` are the files which the pool brought back with something that the origin has not got
/// yet: their sizes and times are the engine's from the first moment.
///
/// # Errors
/// When the mount point or the origin will not do, or the system refuses.
pub fn mount(options: &MountOptions, pond: Arc<dyn Pond>, known: &[KnownObject]) -> Result<Mounted, MountError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(&options.origin, flags, Mode::empty())
        .map_err(|error| MountError::Origin { origin: options.origin.clone(), error: error.into() })?;
    mount_with(options, root, pond, known, Beside::default())
}

/// What a mount shares with whoever controls it.
#[derive(Clone, Default)]
pub struct Beside {
    /// What is seen in `.headpond` at the top of the mount; without it there is no such directory.
    pub panel: Option<Arc<dyn Panel>>,
    /// What can be seen of it.
    pub insight: Arc<Insight>,
    /// Who and what is cached.
    pub rules: Arc<LiveRules>,
    /// Of which files somebody was told that their writes are whole.
    pub whole: Arc<WholeWrites>,
}

/// The same, with what it shares, of the origin that the caller has open. Its path in the options is only shown: what
/// it leads to by now does not matter.
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
    allow_many_descriptors();
    let insight = beside.insight.clone();
    let front = Arc::new(Front::new(root, options.read_only, pond.clone(), known, beside).map_err(origin_failed)?);
    insight.of(&front);
    let mut config = Config::default();
    config.mount_options = mount_options(options, below);
    config.acl = if options.allow_other { SessionACL::All } else { SessionACL::Owner };
    config.n_threads = Some(options.threads.max(1));
    let place_refused = |error| mountpoint::refusal(&place, error);
    let session = Session::new(Greeting, &place, &config).map_err(place_refused)?;
    let (serving, door) = serve(&session, front, &config).map_err(place_refused)?;
    pond.serve(Box::new(door));
    Ok(Mounted { session: Some((serving, session)), mountpoint: place })
}

/// Has what comes out of the kernel's device served, but for the door, which is for the pond.
fn serve(session: &Session<Greeting>, front: Arc<Front>, config: &Config) -> io::Result<(BackgroundSession, FuseDoor)> {
    let device = Arc::new(session.as_fd().try_clone_to_owned()?);
    let flags = rustix::fs::fcntl_getfl(&device)?;
    rustix::fs::fcntl_setfl(&device, flags | OFlags::NONBLOCK)?;
    // There is one device to a front.
    let _ = front.forgetting.set(Forgetting::start(device.clone())?);
    let (socket, serving) = relay::start(FileSystem::new(front.clone()), config, device.clone())?;
    let workers = Workers::start(config.n_threads.unwrap_or(1).min(WORKERS))?;
    Ok((serving, FuseDoor::new(device, front, socket, workers)))
}

impl Mounted {
    /// Where it is.
    #[must_use]
    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// Unmounts and waits until the last request is answered.
    ///
    /// # Errors
    /// [`MountError::Busy`] if the mount is in use: it goes on then, and can be tried again.
    pub fn unmount(&mut self) -> Result<(), MountError> {
        if self.session.is_none() {
            return Ok(());
        }
        mountpoint::unmount(&self.mountpoint)?;
        self.join()
    }

    /// Waits until the mount is gone, whoever unmounts it.
    ///
    /// # Errors
    /// When serving it ended otherwise.
    pub fn join(&mut self) -> Result<(), MountError> {
        match self.session.take() {
            Some((serving, _held)) => ended(serving.join()),
            None => Ok(()),
        }
    }

    /// Whether it is over: somebody unmounted it.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.session.as_ref().is_none_or(|(serving, _)| serving.guard.is_finished())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.session.is_some() && mountpoint::unmount(&self.mountpoint).is_ok() {
            // Nobody is left to tell an error to.
            let _ = self.join();
        }
    }
}

fn ended(result: io::Result<()>) -> Result<(), MountError> {
    match result {
        // How the kernel says that the mount was aborted or is gone.
        Err(error) if matches!(error.raw_os_error(), Some(19 | 103)) => Ok(()),
        other => other.map_err(MountError::Session),
    }
}

fn mount_options(options: &MountOptions, below: StatVfsMountFlags) -> Vec<MountOption> {
    let mut all = vec![
        MountOption::FSName(source_of(&options.origin)),
        // As an option of the kernel, which fuser's own for it is not: lists show `fuse.headpond`.
        MountOption::CUSTOM("subtype=headpond".to_owned()),
        // The kernel checks permissions, with the callers' groups, which are not known here.
        MountOption::DefaultPermissions,
        // Reads do not move access times: each would be a write to the slow origin.
        MountOption::NoAtime,
    ];
    if rustix::process::geteuid().is_root() {
        // What the origin's own mount allows, this one does. Ordinary users get neither from the
        // system.
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

/// One descriptor is open for each inode that the kernel holds, so the limit is raised as far as
/// it goes: to the hard limit for all, and beyond it, to the system's own, for root.
fn allow_many_descriptors() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let system = std::fs::read_to_string("/proc/sys/fs/nr_open").ok().and_then(|text| text.trim().parse().ok());
    if let Some(most) = system {
        let raised = Rlimit { current: Some(most), maximum: Some(most) };
        if limit.maximum.is_none_or(|hard| hard < most) && rustix::process::setrlimit(Resource::Nofile, raised).is_ok()
        {
            return;
        }
    }
    // Refused: what there is has to do, and the inode table says so when it is full.
    let _ = rustix::process::setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}
