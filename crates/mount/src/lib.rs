//! The FUSE front door: a file system over an existing directory, the origin, with the engine in
//! front of the content of its regular files.
//!
//! Invariants
//! - Names, owners, modes, links and attributes are the origin's; only the content, size and
//!   modification time of regular files on the origin's own device are the engine's.
//! - A request for data goes to the engine with its reply; no thread waits.
//! - The kernel checks permissions. A new file belongs to its creator.
//! - Locks (`flock`, `fcntl`) are the kernel's own. Access times move only if a program sets them.
//!
//! The way of a request for data: the kernel -> `door`, on the shard's own thread -> `data` -> the engine. Of any
//! other: the kernel -> `door` -> `relay` -> [`fuser`] -> `file_system` -> a group of operations (`names`,
//! `attributes`, `open`, `space`, `dirs`, `xattr`) -> [`headpond_names`] -> the origin (`tree`), or the engine
//! through the [`Pond`].

mod atomic_write;
mod beside;
mod caller;
mod door;
mod error;
mod file_flags;
mod file_system;
mod front;
mod fuse;
mod handles;
mod insight;
mod kept;
mod kernel_pages;
mod lasting;
mod mount;
mod nested;
mod outcome;
mod panel;
mod pond;
mod privileges;
mod processes;
mod reached;
mod seen_privileges;
#[cfg(test)]
mod sent_again;
mod shares;
mod standstill;
mod stat;
mod telling;
mod times;
mod tree;
mod whole;
#[cfg(test)]
mod without_kernel;

pub use beside::Beside;
pub use error::MountError;
pub use fuse::connection::stands as connection_stands;
pub use fuse::journal::{JournalRoom, RequestJournal};
pub use fuse::mountpoint::{MountAnswer, ask_mount};
pub use fuse::source::{path_of_source, source_of};
pub use headpond_ledger::{LedgerRefusal, LedgerRoom, MountLedger};
pub use headpond_names::KnownObject;
pub use insight::{FileUse, Insight};
pub use kept::{KEPT_TIMES_MAX, KeptTime};
pub use lasting::{DescriptorKeeper, LastingMount};
pub use mount::{
    Attached, MountOptions, Mounted, THREADS, attach_to, can_send_again, mount, mount_lasting, mount_with,
};
pub use panel::{Panel, Sheet};
pub use pond::{Done, Operation, Pond};
pub use processes::ProcessUse;
pub use standstill::Standstill;
pub use whole::{WholeFile, WholeWrites};

/// The directory at the origin's root where headpond keeps the marker: it says that a pool has dirty data of this
/// origin. Applications neither see it through the mount nor can make it. Under this name they see the [`Panel`] or
/// nothing.
pub const MARKER_NAME: &str = ".headpond";
