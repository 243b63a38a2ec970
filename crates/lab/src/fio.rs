//! fio with verification: it fills a file with bytes that say where and in which run they were written, and reads
//! them back, at once or much later.

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
    /// It works in `directory` and names the file alone: by a longer name fio would make the directories that are
    /// missing, and where a mount is gone meanwhile that is below its bare mount point.
    fn command(&self, directory: &Path, file: &str) -> Command {
        let mut command = Command::new("fio");
        command.current_dir(directory);
        // A thread of fio's one process: ending the process ends the job.
        command.args(["--thread", "--name=verify", "--ioengine=psync", "--verify_fatal=1", "--minimal"]);
        // fio's checksums would accept what an older run left; this pattern names the run and the place.
        command.arg("--verify=pattern").arg(format!("--verify_pattern=%o0x{:016x}", self.seed | 1));
        command.args(["--verify_state_save=0", "--end_fsync=1", "--allrandrepeat=1"]);
        command.arg(format!("--filename={file}")).arg(format!("--size={}M", self.mib));
        command.arg(format!("--rw={}", if self.random { "randwrite" } else { "write" }));
        command.args([format!("--bs={}", self.request), format!("--direct={}", u8::from(self.direct))]);
        command.args([format!("--fsync={}", self.sync_every), format!("--randseed={}", self.seed)]);
        command
    }

    /// Writes the file in that directory, syncs it, and reads all of it back.
    #[must_use]
    pub fn write(&self, directory: &Path, file: &str) -> Command {
        let mut command = self.command(directory, file);
        command.arg("--do_verify=1");
        command
    }

    /// Reads what an earlier [`Job::write`] with the same numbers left.
    #[must_use]
    pub fn verify(&self, directory: &Path, file: &str) -> Command {
        let mut command = self.command(directory, file);
        command.arg("--verify_only");
        command
    }
}
