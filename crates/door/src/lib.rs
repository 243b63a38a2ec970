//! What all doors share: the contract with the shard, the rules in force, counts of requests, and threads for calls
//! that may block.
//!
//! Invariant: nothing here knows FUSE, the origin or the shard. A new kind of door needs this crate, the engine's
//! requests and the shard's handle, and nothing of the mount.

mod contract;
mod live_rules;
mod rules_of_path;
mod usage;
mod workers;

pub use contract::{Done, Door, DoorId, Taken};
pub use live_rules::LiveRules;
pub use rules_of_path::{InForce, Masked, RulesOfPath};
pub use usage::{Amount, Tally, Totals};
pub use workers::Workers;
