//! What is mounted where: the kernel's table, the places of a mount among other mounts, and the processes that keep a
//! mount busy.
//!
//! Keeps true: nothing here asks a mounted file system itself, because one that is stuck or whose daemon died does
//! not answer. Uses `ownership`, `origin`, `refusal` and `wording`.

mod elsewhere;
mod fuse;
mod holders;
mod neighbours;
mod places;
mod table;

pub(crate) use elsewhere::{Elsewhere, NextStep};
pub(crate) use fuse::check as check_fuse;
pub(crate) use holders::holders_of;
pub use holders::{Holder, describe, holders};
pub use places::{CheckedPlaces, mountpoint_path};
pub use table::{Detach, FS_TYPE, ListedMount, detach, mounted_on, mounts};
