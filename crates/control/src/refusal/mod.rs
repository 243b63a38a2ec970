//! Every reason for which headpond refuses or fails a command.
//!
//! Invariant: a refusal changes nothing, at the origin or on flash. Its message says what failed, on what, why, and
//! which command helps. Its [`ExitStatus`] is its class. Uses `wording`.

mod conflict;
mod exit;

use std::io;
use std::path::{Path, PathBuf};

pub use conflict::{Conflicts, Decisions, Doubtful, FileConflict, Leftover, WinningSide};
pub use exit::ExitStatus;
use headpond_copies::StoreError;

use crate::wording::Size;

/// Why headpond refuses.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The origin cannot be used.
    #[error("origin {}: {why}", .path.display())]
    Origin {
        /// The origin.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The origin fails.
    #[error(
        "origin {}: cannot sync its file system: {error}\n  Writes that went directly to the origin before the last crash may be lost. Read the kernel's \
         log, and check the data. If you mount again, headpond goes on with what the origin has.",
        .path.display()
    )]
    OriginFailed {
        /// The origin.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The origin is mounted already.
    #[error("origin {} is already {by}\n  An origin can have one mount. To end that one: headpond unmount {target}", .path.display())]
    OriginInUse {
        /// The origin.
        path: PathBuf,
        /// The holder, if the marker names it.
        by: String,
        /// The path to unmount.
        target: String,
    },
    /// The origin lies in another origin, or another one in it.
    #[error("origin {} {what}\n  {advice}", .path.display())]
    OriginNested {
        /// The origin.
        path: PathBuf,
        /// How they lie, and whose the other one is.
        what: String,
        /// What to do first.
        advice: String,
        /// Its class: that of the other origin's state.
        status: ExitStatus,
    },
    /// The marker names another pool.
    #[error(
        "origin {}: its newest data may be in another pool: {} ({state})\n  Mount the origin with that flash. To drop for good what only that flash has: --discard-dirty",
        .path.display(), .flash.display()
    )]
    OriginDirtyElsewhere {
        /// The origin.
        path: PathBuf,
        /// The flash that the marker names.
        flash: PathBuf,
        /// What the marker says of it.
        state: String,
    },
    /// The flash failed in an earlier use, and the origin was changed without the pool.
    #[error("pool: {} failed while in use ({when}), and the origin went on without it\n{left}", .path.display())]
    PoolObsolete {
        /// The flash.
        path: PathBuf,
        /// When it failed.
        when: String,
        /// The dirty files on which the operator must decide.
        left: Leftover,
    },
    /// The pool is not the one that the marker waits for, but an image of it.
    #[error("pool: {} {what}\n{left}", .path.display())]
    PoolImage {
        /// The flash.
        path: PathBuf,
        /// What kind of image, and of when.
        what: String,
        /// The dirty files on which the operator must decide.
        left: Doubtful,
    },
    /// The marker makes no sense.
    #[error(
        "marker {}: {why}\n  It may name a pool with newer data than the origin's. If you are sure that no pool has any: --discard-dirty",
        .path.display()
    )]
    Marker {
        /// The marker's file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// What lies beside the origin under headpond's names is not headpond's.
    #[error("{} {what}: headpond does not use it, and did not change it\n  {advice}", .path.display())]
    BesideNotOurs {
        /// The directory, or the file in it.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
        /// What to do.
        advice: String,
    },
    /// The mount point cannot be used.
    #[error("mount point {}: {why}", .path.display())]
    MountPoint {
        /// The mount point.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The mount point holds files, which the mount would hide.
    #[error(
        "mount point {} is not empty: it holds '{example}'\n  A mount would hide that. Use an empty directory.", .path.display()
    )]
    MountPointNotEmpty {
        /// The mount point.
        path: PathBuf,
        /// One of the names in it.
        example: String,
    },
    /// The mount point has a mount already.
    #[error("mount point {}: {what} is mounted there already\n  To unmount it: headpond unmount {}", .path.display(), .path.display())]
    MountPointInUse {
        /// The mount point.
        path: PathBuf,
        /// What is mounted.
        what: String,
    },
    /// One of the three paths lies in another.
    #[error("{what}\n  {advice}")]
    Overlap {
        /// Which one lies in which.
        what: String,
        /// Where to put it instead.
        advice: &'static str,
    },
    /// The flash cannot be used.
    #[error("flash {}: {why}", .path.display())]
    Flash {
        /// The flash.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Another process has the flash.
    #[error("flash {} is in use by another headpond, or mounted as a file system\n  A flash can serve one mount. To see your mounts: headpond status", .path.display())]
    FlashInUse {
        /// The flash.
        path: PathBuf,
    },
    /// The flash holds something that is no pool.
    #[error("flash {}: {what}, not a headpond pool\n  Nothing was written. To overwrite what it holds: --format", .path.display())]
    FlashForeign {
        /// The flash.
        path: PathBuf,
        /// What it holds.
        what: String,
    },
    /// The pool has dirty data of another origin.
    #[error(
        "pool: {} holds dirty data of {whose}\n  {why}\n  To save it, mount that origin with this flash and flush. To drop its {} of dirty data for good: --discard-dirty",
        .path.display(), Size(*.dirty_bytes)
    )]
    FlashDirtyElsewhere {
        /// The flash.
        path: PathBuf,
        /// The origin that the data belongs to.
        whose: String,
        /// Bytes of dirty data.
        dirty_bytes: u64,
        /// Why headpond does not take it for this origin's.
        why: String,
    },
    /// The flash is too small for a pool.
    #[error("flash {}: {why}", .path.display())]
    FlashTooSmall {
        /// The flash.
        path: PathBuf,
        /// Its size, and the size that is enough.
        why: String,
    },
    /// There is no space for the file.
    #[error("flash {}: no room for a file of {} there\n  Free some space, or choose a smaller --size.", .path.display(), Size(*.bytes))]
    FlashNoSpace {
        /// The flash.
        path: PathBuf,
        /// The size asked for.
        bytes: u64,
    },
    /// The pool cannot be taken into use as it is.
    #[error("pool: {}: {what}\n  {advice}", .path.display())]
    Pool {
        /// The flash.
        path: PathBuf,
        /// What is wrong.
        what: String,
        /// What can be done.
        advice: &'static str,
        /// Its class: one of those for pools.
        status: ExitStatus,
    },
    /// The registry says that this host may not own the pool, or says nothing.
    #[error("pool {pool}: {what}\n  Nothing was changed. {advice}")]
    Owner {
        /// The pool.
        pool: String,
        /// What the registry says.
        what: String,
        /// What to do.
        advice: &'static str,
        /// Its class.
        status: ExitStatus,
    },
    /// Dirty data of files that others changed at the origin.
    #[error("{0}")]
    Conflict(Conflicts),
    /// There is no FUSE, or it refused the mount.
    #[error("cannot mount on {}: {why}", .path.display())]
    NoFuse {
        /// The mount point.
        path: PathBuf,
        /// What the system said, and what to do.
        why: String,
    },
    /// The system does not permit it.
    #[error("{what}: not permitted\n  {advice}")]
    NoPermission {
        /// The operation that failed.
        what: String,
        /// What can be done.
        advice: String,
    },
    /// The mount is in use.
    #[error("{} is in use{by}\n  The mount stays as it is. Stop these programs, then unmount again.", .path.display())]
    Busy {
        /// The mount point.
        path: PathBuf,
        /// The programs that use it, if they can be seen.
        by: String,
    },
    /// headpond has no mount there.
    #[error("{}: no headpond is mounted there{hint}", .path.display())]
    NotMounted {
        /// The path that was given.
        path: PathBuf,
        /// What is there instead, if that helps.
        hint: String,
    },
    /// The mount is ending.
    #[error("{} is being unmounted: the daemon finishes its writes and then ends", .path.display())]
    Ending {
        /// The mount point.
        path: PathBuf,
    },
    /// The origin did not take everything.
    #[error("{why}\n  {} of dirty data stay safe in the pool.", Size(*.dirty_bytes))]
    FlushFailed {
        /// The origin's error.
        why: String,
        /// Bytes that are still dirty.
        dirty_bytes: u64,
    },
    /// A scrub found dirty data that no device has.
    #[error(
        "{bytes} of data that the origin lacks are damaged, and no device has them. Reads of them fail. Restore the files from a backup, or write them anew"
    )]
    DirtyLost {
        /// How much.
        bytes: Size,
    },
    /// The operator pressed ctrl-C, or sent a like signal.
    #[error("{0}")]
    Interrupted(String),
    /// The daemon is there and does not answer.
    #[error("the daemon of {} does not answer: {why}", .path.display())]
    NoAnswer {
        /// The mount point.
        path: PathBuf,
        /// What happened.
        why: String,
    },
    /// The origin stood still not at all, or not to the end.
    #[error("freeze: {}: {what}: {why}", .path.display())]
    NotFrozen {
        /// The mount point.
        path: PathBuf,
        /// What that means for the snapshot.
        what: &'static str,
        /// What ended the standstill, or prevented it.
        why: String,
    },
    /// The command line does not fit what headpond found.
    #[error("{0}")]
    Usage(String),
    /// Anything else.
    #[error("{doing}: {error}")]
    Failed {
        /// The operation that failed, and on what.
        doing: String,
        /// What the system said.
        error: io::Error,
    },
    /// A store of copies cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The refusal of another process.
    #[error("{text}")]
    Relayed {
        /// Its message.
        text: String,
        /// Its status.
        status: ExitStatus,
    },
}

impl Refusal {
    /// The class of this refusal.
    #[must_use]
    pub const fn status(&self) -> ExitStatus {
        match self {
            Self::Origin { .. } => ExitStatus::OriginUnusable,
            Self::OriginFailed { .. } => ExitStatus::OriginFailed,
            Self::OriginInUse { .. } => ExitStatus::OriginInUse,
            Self::OriginDirtyElsewhere { .. } => ExitStatus::OriginDirtyElsewhere,
            Self::PoolObsolete { .. } => ExitStatus::PoolObsolete,
            Self::PoolImage { .. } => ExitStatus::PoolImage,
            Self::Marker { .. } => ExitStatus::MarkerDamaged,
            Self::BesideNotOurs { .. } => ExitStatus::BesideNotOurs,
            Self::MountPoint { .. } => ExitStatus::MountPointUnusable,
            Self::MountPointNotEmpty { .. } => ExitStatus::MountPointNotEmpty,
            Self::MountPointInUse { .. } => ExitStatus::MountPointInUse,
            Self::Overlap { .. } => ExitStatus::Overlap,
            Self::Flash { .. } => ExitStatus::FlashUnusable,
            Self::FlashInUse { .. } => ExitStatus::FlashInUse,
            Self::FlashForeign { .. } => ExitStatus::FlashForeign,
            Self::FlashDirtyElsewhere { .. } => ExitStatus::FlashDirtyElsewhere,
            Self::FlashTooSmall { .. } => ExitStatus::FlashTooSmall,
            Self::FlashNoSpace { .. } => ExitStatus::FlashNoSpace,
            Self::Pool { status, .. }
            | Self::Owner { status, .. }
            | Self::OriginNested { status, .. }
            | Self::Relayed { status, .. } => *status,
            Self::Conflict(_) => ExitStatus::Conflict,
            Self::NoFuse { .. } => ExitStatus::NoFuse,
            Self::NoPermission { .. } => ExitStatus::NoPermission,
            Self::Busy { .. } => ExitStatus::Busy,
            Self::NotMounted { .. } | Self::Ending { .. } => ExitStatus::NotMounted,
            Self::FlushFailed { .. } => ExitStatus::FlushFailed,
            Self::DirtyLost { .. } => ExitStatus::DirtyLost,
            Self::Interrupted(_) => ExitStatus::Interrupted,
            Self::NotFrozen { .. } => ExitStatus::NotFrozen,
            Self::NoAnswer { .. } => ExitStatus::NoAnswer,
            Self::Usage(_) | Self::Store(StoreError::WhichPool(_) | StoreError::OpenToAll(_)) => ExitStatus::Usage,
            // What a store refuses may pass: a supervisor tries again.
            Self::Failed { .. } | Self::Store(_) => ExitStatus::Failed,
        }
    }

    /// The refusal for an error of the system in an operation on a path. A missing permission has a class of its own.
    #[must_use]
    pub fn from_io(doing: &str, path: &Path, error: impl Into<io::Error>) -> Self {
        let error = error.into();
        let doing = format!("{doing} {}", path.display());
        let advice = match error.kind() {
            io::ErrorKind::PermissionDenied => "Run headpond as the owner of the files, or as root.",
            io::ErrorKind::ReadOnlyFilesystem => "The file system is read-only, and headpond must write there.",
            _ => return Self::Failed { doing, error },
        };
        Self::NoPermission { what: doing, advice: advice.to_owned() }
    }
}
