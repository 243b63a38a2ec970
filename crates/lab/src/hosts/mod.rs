//! Hosts that die: a database under load, whose owner is killed, stopped or cut off, again and again. The other host
//! takes it over, and the one that was replaced becomes the second.
//!
//! Two hosts, a third with the registry, and the wires between them are network namespaces of this machine. Everything
//! else is real: etcd, TLS, the guard, the mounts, the databases. Both hosts see one directory as the origin.
//!
//! | file | what it is |
//! | --- | --- |
//! | `chain` | the rounds: what happens, and what is looked at then |
//! | `host` | what runs on a host: mount, server of copies, guard |
//! | `guide` | the guide of docs/copies.md, followed word for word |
//! | `network`, `registry`, `certificates` | namespaces and wires; etcd; TLS |
//! | `pulse` | a writer that shows when a mount answered |
//! | `events`, `told` | what can happen; what is told of it |
//!
//! Invariants
//! - After each event every transaction that a client was told of is there and whole, and the database's own checks find
//!   nothing.
//! - No synced write is answered by the old owner once the new one has answered one.
//! - What does not depose an owner is no error to any client.
//! - All that was made ends with the run, also when it fails.

mod certificates;
mod chain;
mod events;
mod guide;
mod host;
mod network;
mod pulse;
mod registry;
mod told;

pub use events::{Event, Fenced, drawn};
pub use guide::{Guide, follow, guide_lacks};
pub use told::{HostsTold, Round};

use crate::command;
use crate::failure::{Failure, Result};
use crate::kind::Kind;
use crate::pond::Headpond;
use chain::Chain;
use std::path::Path;

/// What is to be done.
#[derive(Clone, Debug)]
pub struct Options {
    /// The database: one that is a server.
    pub kind: Kind,
    /// What happens, in this order.
    pub events: Vec<Event>,
    /// Decides the moments.
    pub seed: u64,
}

/// Runs a chain of rounds in `directory`, and tells `each` about every one. At the end everything is brought to the
/// origin, and the same is found there without headpond.
pub fn run(headpond: &Headpond, directory: &Path, options: &Options, mut each: impl FnMut(&Round)) -> Result<()> {
    let mut chain = Chain::begin(headpond, directory, options)?;
    for event in &options.events {
        each(&chain.round(*event)?);
    }
    chain.end()
}

/// What this machine lacks for it, if anything.
#[must_use]
pub fn missing(kind: Kind) -> Option<String> {
    let mut missing = kind.missing();
    missing.extend(hosts_lack());
    (!missing.is_empty()).then(|| missing.join(", "))
}

/// What this machine lacks for hosts with mounts, copies and a registry.
fn hosts_lack() -> Vec<String> {
    let mut missing = command::absent(&["ip", "openssl", "fusermount3"]);
    missing.extend(registry::missing());
    if !rustix::process::geteuid().is_root() {
        missing.push("root, for networks of its own".to_owned());
    }
    if !Path::new("/dev/fuse").exists() {
        missing.push("/dev/fuse".to_owned());
    }
    missing
}

const fn failed(what: String) -> Failure {
    Failure::Other(what)
}
