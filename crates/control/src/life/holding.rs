//! The holder's side of a mount: what the process does that only starts workers and keeps what they leave.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io;
use std::path::Path;

use headpond_holder::{Patience, Program, Told, hold};
use headpond_shard::Budget;
use rustix::process::{chdir, setsid};

use super::succession::layout;
use crate::process::log::{begin, log_line};
use crate::process::{confine, never_kill_for_memory, notify};
use crate::refusal::Refusal;

/// For tests: so many seconds without a sign of life make a worker hang.
const HANGS_AFTER: &str = "HEADPOND_HANGS_AFTER";

/// Holds a mount until it ends. Workers are this program with these arguments. Returns the exit status of the last
/// one, which has said why it ended. In the `background` it leaves the terminal and its directory once the mount
/// stands.
///
/// # Errors
/// If no worker can be started.
pub fn hold_mount(arguments: Vec<OsString>, background: bool) -> Result<u8, Refusal> {
    let failed =
        |error: io::Error| Refusal::Failed { doing: "start the worker that serves the mount".to_owned(), error };
    confine().map_err(|error| Refusal::Failed { doing: "give up capabilities".to_owned(), error })?;
    if background {
        begin();
        // Fails only for a process that already leads a session, which is the aim.
        let _ = setsid();
    }
    // It keeps a descriptor of each file that is open and has no name, so it needs as many as the system allows.
    let _ = Budget::of_process();
    never_kill_for_memory();
    let program = Program::own(arguments).map_err(failed)?;
    let served = || {
        notify("READY=1");
        if background { leave() } else { Ok(()) }
    };
    let watchdog = std::env::var_os("WATCHDOG_USEC").is_some();
    let tell = |told: Told<'_>| match told {
        Told::Line(line) => log_line(line),
        // A unit with a watchdog restarts a holder that hangs.
        Told::Watching if watchdog => notify("WATCHDOG=1"),
        Told::Watching => {}
    };
    let looks = std::env::var(HANGS_AFTER).ok().and_then(|looks| looks.parse().ok());
    hold(program, layout(), looks.map_or_else(Patience::default, Patience), tell, served).map_err(failed)
}

/// Lets go of the command's output, which waits for its end, and of the directory in which it was called.
fn leave() -> io::Result<()> {
    let null = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdout(&null)?;
    chdir(Path::new("/"))?;
    Ok(())
}
