//! `headpond freeze`: runs a command while the origin is complete and stands still.
//!
//! Invariant: the standstill belongs to this process's connection. However this process ends, the origin thaws.

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::Duration;

use headpond_control::{ClientCommand, Daemon, Refusal};
use rustix::process::{Pid, Signal, kill_process};

use crate::args::FreezeArgs;
use crate::ask::ask_status;
use crate::progress::{DirtyBar, Interrupt, Waited, start_and_wait};

/// With less dirty data than this the origin comes to a standstill: writes wait until this is flushed.
const LITTLE: u64 = 16 << 20;

/// The most flushes while other programs write as fast as the origin takes it.
const ROUNDS: usize = 3;

/// How often to look whether the command has ended.
const LOOK: Duration = Duration::from_millis(20);

/// `headpond freeze`. Returns the status of the command.
pub fn run(args: &FreezeArgs) -> Result<ExitCode, Refusal> {
    let daemon = Daemon::of(&args.mountpoint)?;
    let interrupt = Interrupt::listen();
    let interrupted = || Refusal::Interrupted("interrupted: the command did not run, and the mount goes on".to_owned());
    if ask_status(&daemon)?.state == "frozen" {
        // A flush would wait for the thaw.
        return Err(Refusal::Usage("the mount is frozen already. To see until when: headpond status".to_owned()));
    }
    let mut bar = DirtyBar::new("flushing", args.quiet);
    for _ in 0..ROUNDS {
        if start_and_wait(&daemon, &ClientCommand::Flush { path: None }, &mut bar, &interrupt)? != Waited::Done {
            return Err(interrupted());
        }
        if ask_status(&daemon)?.dirty_bytes < LITTLE {
            break;
        }
    }
    bar.clear();
    let frozen = daemon.freeze(args.for_seconds, || interrupt.came())?.ok_or_else(interrupted)?;
    let (program, arguments) = args.command.split_first().ok_or_else(interrupted)?;
    let mut child = Command::new(program)
        .args(arguments)
        .spawn()
        .map_err(|error| Refusal::Failed { doing: format!("run {}", program.display()), error })?;
    let Some(status) = wait(&mut child, &interrupt)? else {
        drop(frozen);
        end(&mut child)?;
        let text = "interrupted: the origin goes on. Do not trust the snapshot, if there is one".to_owned();
        return Err(Refusal::Interrupted(text));
    };
    let stood = frozen.thaw();
    if status.success() {
        return stood.map(|()| ExitCode::SUCCESS);
    }
    if let Err(refusal) = stood {
        headpond_control::log_line(refusal);
    }
    // As shells do for a command that a signal ended.
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}

/// Waits for the command's end. `None` after an interrupt.
fn wait(child: &mut Child, interrupt: &Interrupt) -> Result<Option<ExitStatus>, Refusal> {
    while !interrupt.came() {
        if let Some(status) = child.try_wait().map_err(lost)? {
            return Ok(Some(status));
        }
        std::thread::sleep(LOOK);
    }
    Ok(None)
}

/// Ends the command after an interrupt, which it may have got itself.
fn end(child: &mut Child) -> Result<(), Refusal> {
    if child.try_wait().map_err(lost)?.is_none() {
        // It fails if the command has ended at this moment.
        let _ = kill_process(Pid::from_child(child), Signal::TERM);
        child.wait().map_err(lost)?;
    }
    Ok(())
}

fn lost(error: std::io::Error) -> Refusal {
    Refusal::Failed { doing: "wait for the command".to_owned(), error }
}
