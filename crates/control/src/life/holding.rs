//! The holder's side of a mount: what the process does that only starts workers and keeps what they leave.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io;
use std::path::Path;

use headpond_holder::{Program, hold};
use rustix::process::{chdir, setsid};

use super::succession::layout;
use crate::process::log::{begin, log_line};
use crate::process::{confine, notify};
use crate::refusal::Refusal;

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
    // Without it all mounts would end with this process. Only root may ask for that.
    let _ = fs::write("/proc/self/oom_score_adj", "-1000");
    let program = Program::own(arguments).map_err(failed)?;
    let served = || {
        notify("READY=1");
        if background { leave() } else { Ok(()) }
    };
    hold(program, layout(), |line| log_line(line), served).map_err(failed)
}

/// Lets go of the command's output, which waits for its end, and of the directory in which it was called.
fn leave() -> io::Result<()> {
    let null = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdout(&null)?;
    chdir(Path::new("/"))?;
    Ok(())
}
