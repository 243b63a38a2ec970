//! fio with verification: a file is filled with bytes that tell where and in which run they were
//! written, and read back, at once or much later.

use crate::command;
use crate::failure::Result;
use std::path::Path;
use std::process::Command;

/// The version, as fio tells it.
pub fn version() -> Result<String> {
    let text = command::run("asking fio's version", Command::new("fio").arg("--version"))?;
    Ok(text.trim().to_owned())
}

/// How a file is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Job {
    /// How large it becomes, in MiB.
    pub mib: u32,
    /// The size of the requests, in bytes: a multiple of 512.
    pub request: u32,
    /// In a random order.
    pub random: bool,
    /// With O_DIRECT.
    pub direct: bool,
    /// Requests between two syncs.
    pub sync_every: u32,
    /// Decides the order and the bytes.
    pub seed: u64,
}

impl Job {
    fn command(&self, file: &Path) -> Command {
        let mut command = Command::new("fio");
        // A thread of its one process: whoever ends that ends the job.
        command.args(["--thread", "--name=verify", "--ioengine=psync", "--verify_fatal=1", "--minimal"]);
        // fio's checksums would accept what an older run left; this pattern names the run and the place.
        command.arg("--verify=pattern").arg(format!("--verify_pattern=%o0x{:016x}", self.seed | 1));
        command.args(["--verify_state_save=0", "--end_fsync=1", "--allrandrepeat=1"]);
        command.arg(format!("--filename={}", file.display())).arg(format!("--size={}M", self.mib));
        command.arg(format!("--rw={}", if self.random { "randwrite" } else { "write" }));
        command.args([format!("--bs={}", self.request), format!("--direct={}", u8::from(self.direct))]);
        command.args([format!("--fsync={}", self.sync_every), format!("--randseed={}", self.seed)]);
        command
    }

    /// Writes the file, syncs it, and reads all of it back.
    #[must_use]
    pub fn write(&self, file: &Path) -> Command {
        let mut command = self.command(file);
        command.arg("--do_verify=1");
        command
    }

    /// Reads what an earlier [`Job::write`] with the same numbers left.
    #[must_use]
    pub fn verify(&self, file: &Path) -> Command {
        let mut command = self.command(file);
        command.arg("--verify_only");
        command
    }
}
