//! The operator's program that keeps an old owner from the origin: an NFS export, a reservation, a volume's attachment,
//! power.
//!
//! Its arguments: pool, old node, new node, new owner's number, origin. Status 0 alone says that the old node cannot
//! write to the origin any more.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use headpond_base::PoolId;
use rustix::process::{Pid, Signal, kill_process_group};

/// How long a program may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often it is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// Runs it. Why the old node is not fenced, if it is not.
pub(crate) fn fence(
    program: &Path,
    pool: PoolId,
    old: &str,
    new: &str,
    owner: u64,
    origin: &Path,
) -> Result<(), String> {
    let shown = program.display();
    let mut command = Command::new(program);
    command.arg(pool.to_string()).arg(old).arg(new).arg(owner.to_string()).arg(origin);
    // In a group of its own: what it has started ends with it.
    let child = command.stdin(Stdio::null()).process_group(0).spawn();
    let mut child = child.map_err(|error| format!("cannot run {shown}: {error}"))?;
    let until = Instant::now() + PATIENCE;
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(format!("{shown} ended with {status}")),
            Ok(None) if Instant::now() < until => std::thread::sleep(LOOK),
            Ok(None) => {
                end(&mut child);
                return Err(format!("{shown} did not end within {} s", PATIENCE.as_secs()));
            }
            Err(error) => {
                end(&mut child);
                return Err(format!("cannot wait for {shown}: {error}"));
            }
        }
    }
}

fn end(child: &mut Child) {
    // It may just have ended. Its group may not have.
    if let Some(group) = Pid::from_raw(child.id().cast_signed()) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.wait();
}
