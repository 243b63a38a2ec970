//! The life of a mount: what is checked before it, what is left beside the origin while it
//! lasts, how it is spoken with, and how it ends.
//!
//! Invariants:
//! - A start that is refused changes nothing, at the origin or on flash.
//! - The marker beside the origin is durable before the first write can be acknowledged, and
//!   goes only when the origin has everything (see [`MarkerHold`]).
//! - Nothing here is on the path of a read or a write.

mod client;
mod clock;
mod conflict;
mod exit;
mod flash;
mod marker;
mod mounts;
mod operations;
mod places;
mod protocol;
mod refusal;
mod resolve;
mod runtime_dir;
mod size;
mod socket;
mod status;

pub use client::Daemon;
pub use clock::{duration, utc};
pub use conflict::{Conflicts, Decisions, FileConflict, Side};
pub use exit::ExitStatus;
pub use flash::{Content, Flash};
pub use marker::{MARKER_NAME, Marker, MarkerHold, MarkerState};
pub use mounts::{Detach, FS_TYPE, Mounted, detach, mounted_on, mounts};
pub use operations::Operations;
pub use places::{Places, mountpoint_path};
pub use protocol::{Answer, Command, Progress};
pub use refusal::Refusal;
pub use resolve::{Found, OriginRoot, Wanted};
pub use runtime_dir::{make as make_runtime_dir, name_of as runtime_name};
pub use size::Size;
pub use socket::{Client, ControlSocket};
pub use status::Status;
