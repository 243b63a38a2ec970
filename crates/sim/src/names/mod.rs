//! Histories of names: the real name layer and the real engine together, over a simulated origin with directories.
//!
//! Applications work in a few directories through a model of the kernel. They create, open, link, rename, exchange,
//! remove, change modes, write and sync, several at a time. Meanwhile the kernel forgets, the origin fails, and
//! daemon and machines die. The seed chooses every step between two waits.
//!
//! Keeps true: the same seed and options always give the same run.

mod apps;
mod door;
mod env;
mod kernel;
mod keys;
mod lives;
mod promises;
mod run;
mod tasks;

pub(crate) use run::run;
