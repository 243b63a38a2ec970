//! Which processes keep a mount busy. An unmount names them, so that you need not guess.
//!
//! It reads what `/proc` says of open files and directories, and does not ask the mount. It sees what this user may
//! see; for what it misses, the kernel still refuses. Processes in other mount namespaces count if the mount, or a
//! copy of it, is mounted there.
//! or a copy of it, is mounted there.

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use super::table::{mounted_on, mounts_of};
use crate::wording::AFew;

/// A process that uses the mount.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holder {
    /// Its number.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// One of the files that it holds.
    pub example: PathBuf,
    /// How many it holds.
    pub count: usize,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (process {}): {}", self.name, self.pid, self.example.display())?;
        if self.count > 1 { write!(f, " and {} more", self.count - 1) } else { Ok(()) }
    }
}

/// The most holders in a message.
const SHOWN: usize = 5;

/// The processes that have something of the mount open.
#[must_use]
pub fn holders(mountpoint: &Path) -> Vec<Holder> {
    holders_of(mountpoint, mounted_on(mountpoint).map(|mount| mount.device))
}

/// The same for a mount with this device, which need not be mounted here any more.
pub(crate) fn holders_of(mountpoint: &Path, device: Option<(u32, u32)>) -> Vec<Holder> {
    let own = std::process::id();
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let mut spaces = Spaces { own: name_space(Path::new("/proc/self")), device, places: HashMap::new() };
    let mut found: Vec<Holder> =
        pids.filter(|&pid| pid != own).filter_map(|pid| holder(pid, mountpoint, &mut spaces)).collect();
    found.sort_by_key(|holder| holder.pid);
    found
}

/// The holders as a part of a sentence. Empty if there are none.
#[must_use]
pub fn describe(holders: &[Holder]) -> String {
    if holders.is_empty() {
        return String::new();
    }
    format!(" by:\n{}", AFew(holders, SHOWN)).trim_end().to_owned()
}

fn name_space(process: &Path) -> Option<PathBuf> {
    fs::read_link(process.join("ns/mnt")).ok()
}

/// The mount's paths in each mount namespace.
struct Spaces {
    own: Option<PathBuf>,
    device: Option<(u32, u32)>,
    places: HashMap<PathBuf, Vec<PathBuf>>,
}

impl Spaces {
    /// The paths by which a process sees the mount. In a container the same path may be something else, and the mount
    /// may lie elsewhere.
    fn places(&mut self, process: &Path, mountpoint: &Path) -> Vec<PathBuf> {
        let space = name_space(process);
        if space == self.own {
            return vec![mountpoint.to_owned()];
        }
        let Some(space) = space.filter(|_| self.device.is_some()) else { return Vec::new() };
        let device = self.device;
        let look = || {
            let same = mounts_of(process).into_iter().filter(|mount| Some(mount.device) == device);
            same.map(|mount| mount.mountpoint).collect()
        };
        self.places.entry(space).or_insert_with(look).clone()
    }
}

fn holder(pid: u32, mountpoint: &Path, spaces: &mut Spaces) -> Option<Holder> {
    let process = PathBuf::from(format!("/proc/{pid}"));
    let places = spaces.places(&process, mountpoint);
    if places.is_empty() {
        return None;
    }
    let links = ["cwd", "root", "exe"].map(|link| process.join(link)).into_iter();
    let files = fs::read_dir(process.join("fd")).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    let mut held = links.chain(files).filter_map(|link| {
        let target = fs::read_link(link).ok()?;
        places.iter().any(|place| target.starts_with(place)).then_some(target)
    });
    let example = held.next()?;
    let count = 1 + held.count();
    let name = fs::read_to_string(process.join("comm")).map_or_else(|_| "?".to_owned(), |name| name.trim().to_owned());
    Some(Holder { pid, name, example, count })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_process_that_works_in_the_mount_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let dir = fs::canonicalize(dir.path()).unwrap();
        assert_eq!(holders(&dir), Vec::new());
        let mut child = Command::new("sleep").arg("60").current_dir(&dir).stdout(Stdio::null()).spawn().unwrap();
        let found = holders(&dir);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].pid, &found[0].example), (child.id(), &dir));
        assert!(describe(&found).contains("sleep"), "{}", describe(&found));
    }
}
