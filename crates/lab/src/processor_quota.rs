//! A control group with a quota of processor time, as a container has it.
//!
//! Invariant: the group goes with its owner, once its processes have ended, and the lab is where it was before.

use crate::control_group::{ControlGroup, move_to};
use crate::failure::{Failure, Result};
use std::fs;
use std::path::{Path, PathBuf};

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

/// This process, and what it starts, in a group that may use as much time as one processor has.
pub struct OneProcessorQuota {
    /// Where this process was before.
    before: PathBuf,
    /// Goes after this process has left it.
    _group: ControlGroup,
}

impl OneProcessorQuota {
    /// Goes into such a group.
    ///
    /// # Errors
    /// When the kernel has no such groups, or refuses one. Only root can.
    pub fn enter() -> Result<Self> {
        let doing = "reading /proc/self/cgroup";
        let groups = fs::read_to_string("/proc/self/cgroup").map_err(Failure::io(doing))?;
        for Version { root, controller, quota: (file, value) } in VERSIONS {
            let root = Path::new(root);
            let Some(own) = own_group(&groups, controller) else { continue };
            let made = ControlGroup::make(root).filter(|group| group.set(file, value).is_ok());
            if let Some(group) = made {
                group.take(std::process::id())?;
                return Ok(Self { before: root.join(own.trim_start_matches('/')), _group: group });
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

impl Drop for OneProcessorQuota {
    fn drop(&mut self) {
        let _ = move_to(&self.before, std::process::id());
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
