//! Keys to what the environment has: the name layer holds them in place of an origin and an engine of its own.

/// The origin. A key to it: see `env.rs`.
#[derive(Debug)]
pub(crate) struct Origin;

/// The engine. The same.
#[derive(Debug)]
pub(crate) struct Engine;
