//! The program that reads are compared with: nbdkit's file plugin with its cache filter.
//!
//! nbdkit reads its file through the system's page cache. With memory to spare it soon serves from memory what
//! headpond serves from flash, and the report says so. For the other comparison, nbdkit and the pages that it reads
//! get a control group with a fraction of the data's size, so that both sides read flash.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use rustix::fs::{Advice, fadvise};

use super::Outcome;
use super::pond::READY_MAX;

/// Where control groups are: by version 1 and by version 2, with the file that sets their limit.
const GROUPS: [(&str, &str); 2] =
    [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];

/// A server. Ends when dropped.
pub struct Nbdkit {
    child: Child,
    socket: PathBuf,
    memory: Option<Memory>,
}

impl Nbdkit {
    /// Serves `file` at a socket beside it, with the filter's defaults.
    pub fn start(file: &Path) -> Outcome<Self> {
        Self::run(file, &[], None)
    }

    /// The same in so many bytes of memory, the pages of its file among them, with nothing of the file in memory
    /// before. By default the filter reads 64 KiB at a time, which pays where memory keeps the rest; here it reads what
    /// it is asked for.
    pub fn start_within(file: &Path, bytes: u64) -> Outcome<Self> {
        let open = fs::File::open(file)?;
        open.sync_all()?;
        fadvise(&open, 0, None, Advice::DontNeed)?;
        Self::run(file, &["cache-min-block-size=4096"], Some(Memory::limited(bytes)?))
    }

    fn run(file: &Path, options: &[&str], memory: Option<Memory>) -> Outcome<Self> {
        let socket = file.with_extension("socket");
        let _ = fs::remove_file(&socket);
        let mut nbdkit = Command::new("nbdkit");
        nbdkit.args(["--foreground", "--filter=cache", "--unix"]).arg(&socket).arg("file").arg(file).args(options);
        let child = nbdkit.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let child =
            child.map_err(|error| format!("nbdkit cannot be started: {error}; on Debian: apt-get install nbdkit"))?;
        let server = Self { child, socket, memory };
        if let Some(memory) = &server.memory {
            memory.take_in(server.child.id())?;
        }
        let until = Instant::now() + READY_MAX;
        while !server.socket.exists() {
            if Instant::now() > until {
                return Err("nbdkit made no socket".into());
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        Ok(server)
    }

    /// Where it listens.
    pub fn socket(&self) -> &Path {
        &self.socket
    }
}

impl Drop for Nbdkit {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_file(&self.socket);
        // Nobody is in it any more, so it can go.
        drop(self.memory.take());
    }
}

/// A control group with a limit. Taken away when dropped.
struct Memory(PathBuf);

impl Memory {
    fn limited(bytes: u64) -> Outcome<Self> {
        for (above, limit) in GROUPS {
            let group = Path::new(above).join(format!("headpond-lab-{}", std::process::id()));
            if fs::create_dir(&group).is_err() {
                continue;
            }
            let group = Self(group);
            // Where the controller of memory is not to be had there, neither is this file.
            if fs::write(group.0.join(limit), bytes.to_string()).is_ok() {
                return Ok(group);
            }
        }
        Err("no control group with a limit of memory can be made; this wants root, and cgroups".into())
    }

    fn take_in(&self, process: u32) -> Outcome<()> {
        Ok(fs::write(self.0.join("cgroup.procs"), process.to_string())?)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}
