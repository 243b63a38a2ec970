//! The life of a mount: what is checked before it, what is left beside the origin while it
//! lasts, how it is spoken with, and how it ends.
//!
//! Invariants:
//! - A start that is refused changes nothing, at the origin or on flash.
//! - The marker beside the origin is durable before the first write can be acknowledged, and
//!   goes only when the origin has everything (see [`MarkerHold`]).
//! - Nothing here is on the path of a read or a write.

mod a_few;
mod background;
mod beside;
mod boot;
mod client;
mod clock;
mod confinement;
mod conflict;
mod durable;
mod elsewhere;
mod ending;
mod exit;
mod faults;
mod flash;
mod flushes;
mod fuse;
mod holders;
mod http;
mod last_daemon;
mod lease;
mod live_settings;
mod marker;
mod mounts;
mod neighbours;
mod notify;
mod numbers;
mod obsolete;
mod operations;
mod origin_root;
mod ownership;
mod panel;
mod places;
mod plan;
mod protocol;
mod recovery;
mod refusal;
mod resolve;
mod rules;
mod running;
mod runtime_dir;
mod service;
mod settings;
mod shown;
mod size;
mod socket;
mod standing;
mod status;
mod waiting;
mod watch;

pub use background::{leave_terminal, report_ready, report_refusal, start as start_background};
pub use client::Daemon;
pub use confinement::KEPT as KEPT_CAPABILITIES;
pub use conflict::{Conflicts, Decisions, Doubtful, FileConflict, Leftover, Side};
pub use ending::Ended;
pub use exit::ExitStatus;
pub use flash::{Content, Flash};
pub use headpond_device::{Backend, FaultPlan, Fill};
pub use headpond_shard::DiskModel;
pub use holders::{Holder, describe as describe_holders, holders};
pub use marker::{Claim, ClaimWatch, MARKER_NAME, Marker, MarkerHold, MarkerState, Standing};
pub use mounts::{Detach, FS_TYPE, Mounted, detach, mounted_on, mounts};
pub use numbers::{
    FileNumbers, Latency, METRICS, Metric, MetricKind, Numbers, ProcessNumbers, Snapshot, metrics_reference,
};
pub use origin_root::OriginRoot;
pub use places::{Places, mountpoint_path};
pub use plan::MountPlan;
pub use protocol::{Answer, Command, Progress};
pub use refusal::Refusal;
pub use resolve::{Found, Wanted};
pub use running::Running;
pub use runtime_dir::{make as make_runtime_dir, name_of as runtime_name};
pub use settings::{Kind, MODE, OFF, Setting, SettingChange, Settings, TABLE as SETTINGS, Value, read_toml, reference};
pub use shown::{FlushShown, RuleShown, Verdict};
pub use size::Size;
pub use status::Status;
