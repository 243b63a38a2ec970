//! An origin, made as slow as a modelled disk: the lab's instrument, which the command line puts in front of a mount's
//! origin where `--model-disk` asks for it.
//!
//! Invariant: nothing that serves data uses this crate. Without the option no request comes here; a headpond built
//! without the lab does not have it.

mod disk;
mod layout;

pub use disk::{DiskCounts, ModelDisk};
pub use headpond_models::{DiskModel, Spindle};
