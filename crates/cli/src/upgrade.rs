//! `headpond upgrade`: another program takes over a mount in use.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use headpond_control::{Answer, ClientCommand, Daemon, Refusal, Status, shared_layout};
use serde::Serialize;

use crate::args::{SHARED_LAYOUT, UpgradeArgs};
use crate::ask::{ask_status, confused};
use crate::output::{print, print_json};

/// How long the new program, or the old one after it, may take to serve.
const PATIENCE: Duration = Duration::from_secs(120);

/// How often the command looks.
const LOOK: Duration = Duration::from_millis(20);

/// What came of it.
#[derive(Serialize)]
struct Upgraded {
    /// Whether the named program serves.
    upgraded: bool,
    /// The process that serves.
    pid: u32,
    /// Its version.
    version: String,
    /// For how long no process served.
    pause_seconds: f64,
}

/// `headpond upgrade`.
pub fn run(args: &UpgradeArgs) -> Result<(), Refusal> {
    let daemon = Daemon::of(&args.mountpoint)?;
    let before = ask_status(&daemon)?;
    let program = match &args.program {
        Some(program) => fs::canonicalize(program).map_err(|error| Refusal::from_io("find", program, error))?,
        None => PathBuf::from("/proc/self/exe")
            .canonicalize()
            .map_err(|error| Refusal::Failed { doing: "find this program's file".to_owned(), error })?,
    };
    refuse_one_in_the_mount(&program, &args.mountpoint)?;
    let layout = if args.program.is_some() { layout_of(&program)? } else { shared_layout() };
    match daemon.ask(&ClientCommand::Upgrade { program: program.clone(), layout })? {
        Answer::Done => {}
        _ => return Err(confused(&daemon)),
    }
    let since = Instant::now();
    let after = wait_for_another(&args.mountpoint, &before, since)?;
    let upgraded = Upgraded {
        upgraded: is_running(after.pid, &program),
        pid: after.pid,
        version: after.version,
        pause_seconds: since.elapsed().as_secs_f64(),
    };
    if args.json {
        print_json(&upgraded)?;
    } else if upgraded.upgraded {
        let Upgraded { pid, version, pause_seconds, .. } = &upgraded;
        print(&format!(
            "headpond {version} serves {}, as process {pid}, after {pause_seconds:.2} s\n",
            before.mountpoint.display()
        ))?;
    }
    if upgraded.upgraded {
        return Ok(());
    }
    Err(Refusal::Usage(format!(
        "upgrade to {}: it did not come up, and the last program goes on. The daemon's log says why",
        program.display()
    )))
}

/// A program in the mount itself could be read only once it serves.
fn refuse_one_in_the_mount(program: &Path, mountpoint: &Path) -> Result<(), Refusal> {
    let device = |path: &Path| fs::metadata(path).map(|file| file.dev());
    let (of_program, of_mount) = (device(program), device(mountpoint));
    match (of_program, of_mount) {
        (Ok(one), Ok(other)) if one == other => Err(Refusal::Usage(format!(
            "upgrade: {} lies in the mount itself, which nobody serves while the program starts. Nothing was changed. \
             Copy the program to another place",
            program.display()
        ))),
        _ => Ok(()),
    }
}

/// How a program divides the memory that it shares with a holder.
fn layout_of(program: &Path) -> Result<String, Refusal> {
    let said = Command::new(program).arg(SHARED_LAYOUT).output();
    let said = said.map_err(|error| Refusal::from_io("run", program, error))?;
    if !said.status.success() {
        return Err(Refusal::Usage(format!(
            "upgrade: {} is no headpond that can take over a mount",
            program.display()
        )));
    }
    Ok(String::from_utf8_lossy(&said.stdout).trim().to_owned())
}

/// The status of the worker that serves after the one of `before`.
fn wait_for_another(mountpoint: &Path, before: &Status, since: Instant) -> Result<Status, Refusal> {
    loop {
        let now = Daemon::of(mountpoint).and_then(|daemon| ask_status(&daemon));
        match now {
            Ok(now) if now.pid != before.pid => return Ok(now),
            Err(refusal) if since.elapsed() > PATIENCE => return Err(refusal),
            _ => std::thread::sleep(LOOK),
        }
    }
}

/// Whether a process runs the program in this file.
fn is_running(process: u32, program: &Path) -> bool {
    let identity = |path: &Path| fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
    let running = identity(Path::new(&format!("/proc/{process}/exe")));
    running.is_some() && running == identity(program)
}
