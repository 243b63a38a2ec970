//! The operator's program that is started once the mount of a copy is there: it has the database started.
//!
//! Its arguments: mount point, pool. It runs beside the mount, which goes on whatever becomes of it, and has no more
//! capabilities than the daemon has by then. So it asks who can start a database, such as systemd.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use headpond_base::PoolId;
use headpond_control::{Refusal, log_line};

use crate::peer_args::absolute;

/// The program, and its arguments.
pub struct OnMount {
    program: PathBuf,
    mountpoint: PathBuf,
    pool: PoolId,
}

impl OnMount {
    /// `program`, for the mount of this pool.
    pub fn new(program: &Path, mountpoint: &Path, pool: PoolId) -> Self {
        // The daemon leaves the directory in which it was started.
        Self { program: absolute(program), mountpoint: absolute(mountpoint), pool }
    }

    /// Starts it. The log says how it ends.
    pub fn start(&self) {
        let mut command = Command::new(&self.program);
        command.arg(&self.mountpoint).arg(self.pool.to_string());
        let shown = self.program.display().to_string();
        // In a group of its own: what ends the mount at a terminal does not end the database.
        command.stdin(Stdio::null()).process_group(0);
        let mut run = move || -> io::Result<ExitStatus> {
            // The daemon's log.
            let log = io::stderr().as_fd().try_clone_to_owned()?;
            command.stdout(log).status()
        };
        let cannot = |program: &str, error: &io::Error| {
            log_line(format_args!("cannot run {program}: {error}. The mount is there all the same"));
        };
        let program = shown.clone();
        let wait = move || match run() {
            Ok(status) if status.success() => log_line(format_args!("{program}: done")),
            Ok(status) => log_line(format_args!("{program} ended with {status}. The mount is there all the same")),
            Err(error) => cannot(&program, &error),
        };
        if let Err(error) = std::thread::Builder::new().name("on-mount".to_owned()).spawn(wait) {
            cannot(&shown, &error);
        }
    }
}

/// Whether a program can be run: at the time of need it would be too late to say so.
///
/// # Errors
/// Why it cannot.
pub fn check(program: &Path) -> Result<(), Refusal> {
    let refused = |why: &str| Refusal::Usage(format!("--on-mount {}: {why}", program.display()));
    let found = program.metadata().map_err(|error| refused(&error.to_string()))?;
    if found.is_file() && found.permissions().mode() & 0o111 != 0 {
        Ok(())
    } else {
        Err(refused("give a file that can be executed"))
    }
}
