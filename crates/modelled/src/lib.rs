//! An origin, made as slow as a modelled disk: an instrument of the lab. With `--model-disk` the command line puts it
//! before a mount's origin.
//!
//! Invariant: nothing that serves data uses this crate. Without the option no request comes here. A headpond built
//! without the lab does not contain it.

mod disk;
mod layout;

pub use disk::{DiskCounts, ModelDisk};
pub use headpond_models::{DiskModel, Spindle};
