//! Control groups of the lab's own, of either version.
//!
//! Invariant: a group goes with its owner, once its processes have ended.

use crate::failure::{Failure, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How long the group of ended processes may be in use.
const END_MAX: Duration = Duration::from_secs(5);
/// Numbers the groups of this process.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// A group.
#[derive(Debug)]
pub(crate) struct ControlGroup(PathBuf);

impl ControlGroup {
    /// Makes one below `root`; none if there are no groups, or this process may make none.
    pub(crate) fn make(root: &Path) -> Option<Self> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = root.join(format!("headpond-lab-{}-{number}", std::process::id()));
        let is_made = root.join("cgroup.procs").exists() && fs::create_dir(&path).is_ok();
        // Only where it is made: the drop of one that is not would wait for it to go.
        is_made.then(|| Self(path))
    }

    /// Whether it has this file.
    pub(crate) fn has(&self, file: &str) -> bool {
        self.0.join(file).exists()
    }

    /// Sets one of its limits.
    pub(crate) fn set(&self, file: &str, value: &str) -> Result<()> {
        write(&self.0.join(file), value)
    }

    /// Takes a process in, with all its threads.
    pub(crate) fn take(&self, process: u32) -> Result<()> {
        move_to(&self.0, process)
    }
}

/// Moves a process to the group at `path`.
pub(crate) fn move_to(path: &Path, process: u32) -> Result<()> {
    write(&path.join("cgroup.procs"), &process.to_string())
}

fn write(file: &Path, value: &str) -> Result<()> {
    fs::write(file, value).map_err(Failure::io(format!("writing to {}", file.display())))
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        let start = Instant::now();
        // The kernel needs a moment after the end of the last process. What stays is empty, and does no harm.
        while fs::remove_dir(&self.0).is_err() && start.elapsed() < END_MAX {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
