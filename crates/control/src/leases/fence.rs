//! The operator's program that keeps an old owner from the origin: an NFS export, a reservation, a volume's attachment,
//! power.
//!
//! Its arguments: pool, old node, new node, new owner's number, origin. Status 0 alone says that the old node cannot
//! write to the origin any more.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use headpond_base::PoolId;
use headpond_claim::OwnerRecord;

/// How long a program may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often it is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// Runs it. Why the old node is not fenced, if it is not.
pub(crate) fn fence(program: &Path, pool: PoolId, old: &str, new: &OwnerRecord, origin: &Path) -> Result<(), String> {
    let shown = program.display();
    let mut command = Command::new(program);
    command.arg(pool.to_string()).arg(old).arg(&new.node.name).arg(new.owner.to_string()).arg(origin);
    let mut child = command.stdin(Stdio::null()).spawn().map_err(|error| format!("cannot run {shown}: {error}"))?;
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
    // It may just have ended.
    let _ = child.kill();
    let _ = child.wait();
}
