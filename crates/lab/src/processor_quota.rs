//! A control group with a quota of processor time, as a container has it.
//!
//! Invariant: the group goes with its owner, once its processes have ended, and the lab is where it was before.

use crate::failure::{Failure, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A kind of control groups: where they are, the controller by which `/proc/self/cgroup` names them, and the file for
/// the quota with what it takes for one processor.
struct Version {
    root: &'static str,
    controller: &'static str,
    quota: (&'static str, &'static str),
}

/// Microseconds in each 100,000, which is the period that the kernel begins with.
const VERSIONS: [Version; 2] = [
    Version { root: "/sys/fs/cgroup/cpu", controller: "cpu", quota: ("cpu.cfs_quota_us", "100000") },
    Version { root: "/sys/fs/cgroup", controller: "", quota: ("cpu.max", "100000 100000") },
];

/// How long the group of ended processes may be in use.
const END_MAX: Duration = Duration::from_secs(5);

/// This process, and what it starts, in a group that may use as much time as one processor has.
pub struct OneProcessorQuota {
    group: PathBuf,
    /// Where this process was before.
    before: PathBuf,
}

impl OneProcessorQuota {
    /// Goes into such a group.
    ///
    /// # Errors
    /// When the kernel has no such groups, or refuses one. Only root can.
    pub fn enter() -> Result<Self> {
        let doing = "reading /proc/self/cgroup";
        let groups = fs::read_to_string("/proc/self/cgroup").map_err(Failure::io(doing))?;
        for version in VERSIONS {
            let group = Path::new(version.root).join(format!("headpond-lab-{}", std::process::id()));
            let Some(own) = own_group(&groups, version.controller) else { continue };
            if !Path::new(version.root).join("cgroup.procs").exists() || fs::create_dir(&group).is_err() {
                continue;
            }
            let entered = Self { group, before: Path::new(version.root).join(own.trim_start_matches('/')) };
            let (file, value) = version.quota;
            if fs::write(entered.group.join(file), value).is_ok() {
                move_to(&entered.group)?;
                return Ok(entered);
            }
        }
        Err(Failure::Other("this machine has no control groups for processor time, or no right to make one".to_owned()))
    }
}

/// The group of this process by its controller, among the lines of `/proc/self/cgroup`.
fn own_group<'a>(groups: &'a str, controller: &str) -> Option<&'a str> {
    groups.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        controllers.split(',').any(|one| one == controller).then_some(path)
    })
}

fn move_to(group: &Path) -> Result<()> {
    let file = group.join("cgroup.procs");
    let doing = || format!("writing to {}", file.display());
    fs::write(&file, std::process::id().to_string()).map_err(Failure::io(doing()))
}

impl Drop for OneProcessorQuota {
    fn drop(&mut self) {
        let _ = move_to(&self.before);
        let start = Instant::now();
        // The kernel needs a moment after the end of the last process. What stays is empty, and does no harm.
        while fs::remove_dir(&self.group).is_err() && start.elapsed() < END_MAX {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_of_a_process_is_found_in_both_versions() {
        let first = "12:memory:/a\n3:cpu,cpuacct:/b/c\n1:name=systemd:/d\n";
        assert_eq!(own_group(first, "cpu"), Some("/b/c"));
        assert_eq!(own_group("0::/user.slice\n", ""), Some("/user.slice"));
        assert_eq!(own_group("0::/user.slice\n", "cpu"), None);
    }
}
