//! The daemon as a process of its host: how it gets into the background and reports that it stands or waits, where
//! its socket and log lie, and what it may still do once it serves.
//!
//! Keeps true: a command that starts a daemon learns how the start ended, and a daemon keeps no capability that it
//! does not need. Uses `refusal`.

pub(crate) mod background;
mod boot;
mod confinement;
pub(crate) mod log;
mod memory;
mod notify;
mod out_of_memory;
mod processors;
pub(crate) mod runtime_dir;
mod waiting;

pub(crate) use boot::boot;
pub use confinement::KEPT;
pub(crate) use confinement::confine;
pub(crate) use memory::give_large_buffers_back;
pub(crate) use notify::notify;
pub(crate) use out_of_memory::{kill_before_holder, never_kill_for_memory};
pub use processors::Processors;
pub(crate) use waiting::{Step, Waiting};
