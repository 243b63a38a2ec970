//! Keys to the environment. The name layer holds them in place of an origin and an engine of its own.

/// A key to the origin: see `env.rs`.
#[derive(Debug)]
pub(crate) struct Origin;

/// A key to the engine.
#[derive(Debug)]
pub(crate) struct Engine;
