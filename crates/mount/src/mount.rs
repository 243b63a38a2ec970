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
use headpond_ledger::MountLedger;
use headpond_names::{KnownObject, block_on};
use rustix::fs::{Mode, OFlags, StatVfsMountFlags};
use rustix::io::Errno;

use crate::MountError;
use crate::beside::Beside;
use crate::door::FuseDoor;
use crate::file_system::{FileSystem, Greeting, agreement};
use crate::front::Front;
use crate::front::pruning::Pruning;
use crate::fuse::connection::Connection;
use crate::fuse::forgetting::Forgetting;
use crate::fuse::journal::RequestJournal;
use crate::fuse::source::source_of;
use crate::fuse::wire::resend_message;
use crate::fuse::{mountpoint, relay};
use crate::insight::Files;
use crate::lasting::{LastingMount, TakenOver};
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
    /// fuser's threads, and the session that made the mount, if this process made it. In this order: the mount outlives
    /// the serving.
    session: Option<(BackgroundSession, Option<Session<Greeting>>)>,
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
    mount_lasting(options, root, pond, known, beside, None)
}

/// The same of a mount that may outlive this process: see [`attach_to`].
///
/// # Errors
/// As of [`mount`].
pub fn mount_lasting(
    options: &MountOptions,
    root: OwnedFd,
    pond: Arc<dyn Pond>,
    known: &[KnownObject],
    beside: Beside,
    mut lasting: Option<LastingMount>,
) -> Result<Mounted, MountError> {
    let journal = lasting.as_mut().and_then(|lasting| lasting.journal.take());
    let place = mountpoint::check(&options.mountpoint, &options.origin)?;
    let origin_failed = |error| origin_failed(options, error);
    let below = rustix::fs::fstatvfs(&root).map_err(origin_failed)?.f_flag;
    agree(lasting.as_ref())?;
    let (front, _) = front_of(options, root, &pond, known, beside, lasting)?;
    let mut config = config_of(options);
    config.mount_options = mount_options(options, below);
    let place_refused = |error| mountpoint::refusal(&place, error);
    let session = Session::new(Greeting, &place, &config).map_err(place_refused)?;
    let device = Arc::new(session.as_fd().try_clone_to_owned().map_err(place_refused)?);
    let (serving, door) = serve(device.clone(), front.clone(), &config, journal).map_err(place_refused)?;
    pond.serve(Box::new(door));
    let connection = Connection::of(device, &place);
    Ok(Mounted { session: Some((serving, Some(session))), mountpoint: place, connection, front })
}

/// Whether this kernel can send again what was taken and not answered: Linux 6.9 and later. Otherwise a mount that
/// lasts needs a [`RequestJournal`].
#[must_use]
pub fn can_send_again() -> bool {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse::<u32>().unwrap_or(0));
    (numbers.next(), numbers.next()) >= (Some(6), Some(9))
}

/// A mount that goes on.
#[derive(Debug)]
pub struct Attached {
    /// The mount.
    pub mounted: Mounted,
    /// Whether what was not answered comes again: from the kernel, or from the journal. If not, the callers of those
    /// requests wait for ever, and the caller of this can only end the connection.
    pub sends_again: bool,
    /// How many open files and directories could not be opened again. Requests for them fail.
    pub lost: usize,
}

/// Goes on with a mount that a process before this one served. That process must have ended. `device` is a copy of
/// its [`Mounted::device`], and `lasting` is what it left. Nothing may use the mount point's path before this returns:
/// nobody would answer.
///
/// The origin, the mount point's full path and `read_only` in the options must be those of the mount.
///
/// # Errors
/// If the origin is unfit, or what was left is of another version.
pub fn attach_to(
    device: OwnedFd,
    options: &MountOptions,
    root: OwnedFd,
    pond: Arc<dyn Pond>,
    known: &[KnownObject],
    beside: Beside,
    mut lasting: LastingMount,
) -> Result<Attached, MountError> {
    let journal = lasting.journal.take();
    agree(Some(&lasting))?;
    let (front, inodes) = front_of(options, root, &pond, known, beside, Some(lasting))?;
    // If this fails, the next process finds what this one found.
    let leaving = Leaving(front.ledger.clone());
    let lost = front.take_over(&inodes);
    // From here on only the kernel and the handles hold them.
    drop(inodes);
    let place = &options.mountpoint;
    let refused = |error| MountError::Mount { mountpoint: place.clone(), error };
    // Before the first request is taken: the kernel would send that one again, too.
    let sends_again = journal.is_some()
        || match rustix::io::write(&device, &resend_message()) {
            Ok(_) => true,
            Err(Errno::INVAL) => false,
            Err(error) => return Err(refused(error.into())),
        };
    let device = Arc::new(device);
    let (serving, door) = serve(device.clone(), front.clone(), &config_of(options), journal).map_err(refused)?;
    pond.serve(Box::new(door));
    leaving.stays();
    let connection = Connection::of(device, place);
    let mounted = Mounted { session: Some((serving, None)), mountpoint: place.clone(), connection, front };
    Ok(Attached { mounted, sends_again, lost })
}

/// Dropped before what it is for, it leaves the ledger as it is.
struct Leaving(Option<Arc<MountLedger>>);

impl Leaving {
    fn stays(mut self) {
        self.0 = None;
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        if let Some(ledger) = &self.0 {
            ledger.leave();
        }
    }
}

fn agree(lasting: Option<&LastingMount>) -> Result<(), MountError> {
    lasting.map_or(Ok(()), |lasting| lasting.ledger.agree(agreement())).map_err(MountError::Ledger)
}

fn origin_failed(options: &MountOptions, error: Errno) -> MountError {
    MountError::Origin { origin: options.origin.clone(), error: error.into() }
}

fn config_of(options: &MountOptions) -> Config {
    let mut config = Config::default();
    config.acl = if options.allow_other { SessionACL::All } else { SessionACL::Owner };
    config.n_threads = Some(options.threads.max(1));
    config
}

/// Everything behind a mount, and the inodes that a process before took in.
fn front_of(
    options: &MountOptions,
    root: OwnedFd,
    pond: &Arc<dyn Pond>,
    known: &[KnownObject],
    beside: Beside,
    lasting: Option<LastingMount>,
) -> Result<(Arc<Front>, TakenOver), MountError> {
    let insight = beside.insight.clone();
    let made = Front::lasting(root, options.read_only, pond.clone(), known, beside, lasting);
    let (front, inodes) = made.map_err(|error| origin_failed(options, error))?;
    let front = Arc::new(front);
    block_on(front.names.adopt(known));
    let files: Weak<dyn Files> = Arc::downgrade(&(front.clone() as Arc<dyn Files>));
    insight.of(files);
    Ok((front, inodes))
}

/// Serves the requests from the kernel's device. The returned door is for the pond.
fn serve(
    device: Arc<OwnedFd>,
    front: Arc<Front>,
    config: &Config,
    journal: Option<RequestJournal>,
) -> io::Result<(BackgroundSession, FuseDoor)> {
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
    if front.ledger.is_some() {
        let _ = front.pruning.set(Pruning::start(device.clone(), Arc::downgrade(&front))?);
    }
    let noted = journal.as_ref().map(|journal| journal.answered().clone());
    let standstill = front.standstill.clone();
    let (socket, serving) = relay::start(FileSystem::new(front.clone()), config, device.clone(), noted, standstill)?;
    let workers = Workers::start(config.n_threads.unwrap_or(1).min(WORKERS))?;
    Ok((serving, FuseDoor::new(device, front, socket, workers, journal)))
}

impl Mounted {
    /// The mount point.
    #[must_use]
    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// A copy of the kernel's device, for the process that keeps the mount if this one ends.
    ///
    /// # Errors
    /// If no descriptor is left.
    pub fn device(&self) -> io::Result<OwnedFd> {
        self.connection.device()
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
