//! The life of a pool, and of the mount that is its door: what a start checks first, what lies beside the origin
//! meanwhile, how commands reach the daemon, and how a pool ends.
//!
//! Invariants:
//! - A refused start changes nothing, at the origin or on flash.
//! - The marker beside the origin is durable before the first write can be acknowledged. It goes only when the origin
//!   has everything (see [`MarkerHold`]).
//! - Nothing here is on the path of a read or a write.
//!
//! Each folder keeps one thing, and uses only those before it: `wording`, `reserve`, `refusal`, `process`, `deposed`,
//! `peers`, `leases`, `devices`, `origin`, `ownership`, `numbers`, `settings`, `history`, `mounts`, `pool`, `guard`, `service`, `web`, `life`.

mod deposed;
mod devices;
mod guard;
mod history;
mod leases;
mod life;
mod mounts;
mod numbers;
mod origin;
mod ownership;
mod peers;
mod pool;
mod process;
mod random;
mod refusal;
mod reserve;
mod service;
mod settings;
mod web;
mod wording;

pub use guard::{GuardPlan, Heir};
pub use headpond_copies::{
    Certificates, HeldCopy, PeerAddress, PeerServer, ServerConfig, Stopper, Store, StoreError, StoredCopy, TakenCopy,
    hold_copy, remove_copy, take_over, taken_over,
};
pub use headpond_device::{Backend, FaultPlan, Fill, probe_uring};
pub use headpond_holder::has_ended;
pub use headpond_registry::EtcdAddress;
pub use leases::LeasePlan;
pub use life::{Ended, Running, Succession, hold_mount, shared_layout};
pub use mounts::{
    CheckedPlaces, Detach, FS_TYPE, Holder, ListedMount, describe as describe_holders, detach, holders, mounted_on,
    mountpoint_path, mounts,
};
pub use numbers::{
    FileNumbers, LatencyDistribution, METRICS, Metric, MetricKind, Numbers, ProcessNumbers, Snapshot, metrics_reference,
};
pub use origin::OriginRoot;
pub use ownership::{Claim, ClaimWatch, MARKER_NAME, Marker, MarkerHold, MarkerMember, MarkerStanding, MarkerState};
pub use peers::PeerPlan;
pub use pool::{FlashContent, HeldFlash, JudgedStart, OriginFile, Wanted};
pub use process::background::{leave_terminal, report_ready, report_refusal, start as start_background};
pub use process::log::log_line;
pub use process::runtime_dir::{make as make_runtime_dir, name_of as runtime_name};
pub use process::{KEPT as KEPT_CAPABILITIES, Processors};
pub use refusal::{Conflicts, Decisions, Doubtful, ExitStatus, FileConflict, Leftover, Refusal, WinningSide};
pub use reserve::Reserve;
pub use service::{
    Answer, ClientCommand, Daemon, DamagedDeviceShown, Decision, FlushShown, Frozen, LostBlockShown, OperationProgress,
    PoolChange, PoolChangeShown, PoolMemberShown, PoolScrubShown, PoolShown, RuleShown, ScrubState, Status,
};
pub use settings::{
    MODE, MountPlan, OFF, OriginLayer, PoolPlan, Setting, SettingChange, Settings, TABLE as SETTINGS, Value, ValueKind,
    read_toml, reference,
};
pub use wording::clock::utc;
pub use wording::{HowMany, Size};
