//! A bound on the memory of a daemon, and on the page cache of the files that it reads: a control group of its own.
//!
//! Where a slow origin is measured, the host's page cache would otherwise answer in its place.
//!
//! Invariant: the group goes with its owner, once its processes have ended.

use crate::failure::{Failure, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The root of the groups of version 1, with its file for the bound; the same of version 2.
const ROOTS: [(&str, &str); 2] = [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];
/// The bounds on swap, with what they are set to: the same for memory with swap, and none.
const SWAP: [(&str, Option<&str>); 2] = [("memory.memsw.limit_in_bytes", None), ("memory.swap.max", Some("0"))];
/// How long the group of ended processes may be in use.
const END_MAX: Duration = Duration::from_secs(5);
/// Numbers the groups of this process.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// A control group with a bound.
pub struct MemoryBound {
    path: PathBuf,
}

impl MemoryBound {
    /// Makes a group of at most so many MiB.
    ///
    /// # Errors
    /// When the kernel has no such groups, or refuses one. Only root can.
    pub fn make(mib: u32) -> Result<Self> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("headpond-lab-{}-{number}", std::process::id());
        for (root, file) in ROOTS {
            let path = Path::new(root).join(&name);
            if !Path::new(root).join("cgroup.procs").exists() || fs::create_dir(&path).is_err() {
                continue;
            }
            let bound = Self { path };
            let limit = bound.path.join(file);
            if limit.exists() {
                let doing = format!("writing to {}", limit.display());
                let bytes = (u64::from(mib) << 20).to_string();
                fs::write(&limit, &bytes).map_err(Failure::io(doing))?;
                for (file, value) in SWAP {
                    // Kernels that do not count swap lack the file.
                    let _ = fs::write(bound.path.join(file), value.unwrap_or(&bytes));
                }
                return Ok(bound);
            }
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
        let file = self.path.join("cgroup.procs");
        fs::write(&file, process.to_string()).map_err(Failure::io(format!("writing to {}", file.display())))
    }
}

impl Drop for MemoryBound {
    fn drop(&mut self) {
        let start = Instant::now();
        // The kernel needs a moment after the end of the last process. What stays is empty, and does no harm.
        while fs::remove_dir(&self.path).is_err() && start.elapsed() < END_MAX {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
