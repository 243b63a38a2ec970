//! The requests, one file each: how each is carried out, step by step.

mod change;
mod direct;
mod flush;
mod namespace;
mod read;
pub(crate) mod reserve;
mod secure;
mod seek;
mod set_mode;
pub(crate) mod status;
mod stop;
mod sync;
pub(crate) mod together;
