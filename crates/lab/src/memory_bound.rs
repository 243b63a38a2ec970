//! A bound on the memory of a daemon, and on the page cache of the files that it reads: a control group of its own.
//!
//! Where a slow origin is measured, the host's page cache would otherwise answer in its place.
//!
//! Invariant: the group goes with its owner, once its processes have ended.

use crate::control_group::ControlGroup;
use crate::failure::{Failure, Result};
use std::path::Path;

/// The root of the groups of version 1, with its file for the bound; the same of version 2.
const ROOTS: [(&str, &str); 2] = [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];
/// The bounds on swap, with what they are set to: the same for memory with swap, and none.
const SWAP: [(&str, Option<&str>); 2] = [("memory.memsw.limit_in_bytes", None), ("memory.swap.max", Some("0"))];

/// A control group with a bound.
pub struct MemoryBound(ControlGroup);

impl MemoryBound {
    /// Makes a group of at most so many MiB.
    ///
    /// # Errors
    /// When the kernel has no such groups, or refuses one. Only root can.
    pub fn make(mib: u32) -> Result<Self> {
        for (root, file) in ROOTS {
            let Some(group) = ControlGroup::make(Path::new(root)).filter(|group| group.has(file)) else { continue };
            let bytes = (u64::from(mib) << 20).to_string();
            group.set(file, &bytes)?;
            for (file, value) in SWAP {
                // Kernels that do not count swap lack the file.
                let _ = group.set(file, value.unwrap_or(&bytes));
            }
            return Ok(Self(group));
        }
        let roots = ROOTS.map(|(root, _)| root).join(" or ");
        Err(Failure::Other(format!(
            "memory cannot be bounded here: no control groups for memory below {roots}, or no right to make one"
        )))
    }

    /// Puts a process into the group, with all its threads. What it used before does not count.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn take(&self, process: u32) -> Result<()> {
        self.0.take(process)
    }
}
