//! How you reach a running mount: the control socket with its protocol and commands, and the texts in `.headpond`.
//!
//! Keeps true: only root and the daemon's user get answers over the socket, every conversation is bounded in bytes
//! and time, and none waits for storage. Uses `pool`, `devices`, `mounts`, `numbers`, `settings`, `history`, `process`,
//! `origin`, `ownership`, `refusal` and `wording`.

mod client;
mod commands;
mod copies;
mod copy_search;
mod countdown;
mod device_events;
mod faults;
mod flushes;
mod freeze;
mod frozen;
mod members;
mod operations;
mod panel;
mod pool;
mod pool_shown;
mod protocol;
mod record;
mod recordings;
pub(crate) mod rules;
mod scrub;
mod scrub_shown;
mod shown;
mod socket;
mod status;
mod watch;

pub use client::{Daemon, Frozen};
pub(crate) use commands::{Event, Phase, Service, outcome};
pub(crate) use faults::MemberFaults;
pub(crate) use frozen::Freeze;
pub(crate) use members::{DeviceKeeper, PoolMembers, StartedPool, name_devices};
pub(crate) use pool_shown::listed;
pub use pool_shown::{PoolChange, PoolChangeShown, PoolMemberShown, PoolShown};
pub use protocol::{Answer, ClientCommand, OperationProgress};
pub use scrub_shown::{DamagedDeviceShown, LostBlockShown, PoolScrubShown, ScrubState};
pub use shown::{Decision, FlushShown, RuleShown};
pub(crate) use socket::{Client, ControlSocket};
pub use status::Status;
