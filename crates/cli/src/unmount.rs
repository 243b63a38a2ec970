//! `headpond unmount`: flushes while the mount still serves, then takes the mount away.
//!
//! Invariant: until the mount goes, every way out (ctrl-C, a busy mount, an origin that fails) leaves it as it was.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use headpond_control::{Answer, ClientCommand, Daemon, Refusal, Size, describe_holders, has_ended, holders};

use crate::args::{HandoverArgs, UnmountArgs};
use crate::ask::{ask_status, confused};
use crate::progress::{DirtyBar, Interrupt, Waited, start_and_wait};

/// With less dirty data than this, the mount goes first and the daemon writes the rest: a flush
/// may never end while a program writes.
const LITTLE: u64 = 64 << 20;

/// How long the daemon's processes may take to end after their last word.
const END_MAX: Duration = Duration::from_secs(10);

/// The most flushes while other programs write as fast as the origin takes it.
const ROUNDS: usize = 3;

/// `headpond unmount`.
pub fn run(args: &UnmountArgs) -> Result<(), Refusal> {
    let daemon = Daemon::of(&args.mountpoint)?;
    let interrupt = Interrupt::listen();
    check_idle(daemon.mountpoint())?;
    let status = ask_status(&daemon)?;
    // A host that goes down waits for no flush of unknown length.
    let bounded = !args.keep_dirty && host_goes_down();
    let flushes_all = !args.keep_dirty && !bounded;
    if flushes_all && status.lease == "waiting" {
        return Err(Refusal::Usage(format!(
            "{} stands still, as its lease is not renewed: nothing can go to the origin now. Nothing was changed. Start the \
             registry, or leave with what is dirty in the pool: --keep-dirty",
            daemon.mountpoint().display()
        )));
    }
    // A flush would wait for the thaw. The unmount itself thaws.
    if flushes_all && status.state != "frozen" {
        flush_first(&daemon, args, &interrupt)?;
        // The flush took a while: a program may have opened something.
        check_idle(daemon.mountpoint())?;
    }
    let processes = ask_status(&daemon).map_or([0; 2], |status| [status.pid, status.holder]);
    let command = ClientCommand::Unmount { keep_dirty: args.keep_dirty, bounded };
    let (dirty_bytes, note) = leave(&daemon, command, args.quiet, &interrupt)?;
    let ended = wait_for_end(&daemon, processes);
    let mountpoint = daemon.mountpoint().display();
    if let Some(note) = note {
        println!("unmounted {mountpoint}: {} of dirty data stay in the pool. {note}", Size(dirty_bytes));
    } else if dirty_bytes > 0 {
        println!(
            "unmounted {mountpoint}: {} of dirty data stay in the pool. The origin is stale until you mount it again \
             with the same flash",
            Size(dirty_bytes)
        );
    } else if !args.quiet {
        println!("unmounted {mountpoint}: the origin is complete");
    }
    ended
}

/// `headpond handover`.
pub fn hand_over(args: &HandoverArgs) -> Result<(), Refusal> {
    let daemon = Daemon::of(&args.mountpoint)?;
    let interrupt = Interrupt::listen();
    check_idle(daemon.mountpoint())?;
    let processes = ask_status(&daemon).map_or([0; 2], |status| [status.pid, status.holder]);
    let command = ClientCommand::HandOver { to: args.to.clone() };
    let (dirty_bytes, note) = leave(&daemon, command, args.quiet, &interrupt)?;
    let ended = wait_for_end(&daemon, processes);
    println!(
        "unmounted {}: {} of dirty data stay in the pool. {}",
        daemon.mountpoint().display(),
        Size(dirty_bytes),
        note.unwrap_or_default()
    );
    ended
}

/// Waits until the daemon's processes are gone: only then are the origin's volume and the flash free.
fn wait_for_end(daemon: &Daemon, processes: [u32; 2]) -> Result<(), Refusal> {
    let started = Instant::now();
    loop {
        let Some(process) = processes.into_iter().find(|process| !has_ended(*process)) else { return Ok(()) };
        if started.elapsed() > END_MAX {
            let doing =
                format!("wait for the end of process {process}, which served {}", daemon.mountpoint().display());
            let error = std::io::Error::other(format!(
                "it did not come within {} s. Until then the origin's volume and the flash are in use. The process has \
                 nothing left to do: kill -KILL {process}",
                END_MAX.as_secs()
            ));
            return Err(Refusal::Failed { doing, error });
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Whether the service manager shuts the host down, or restarts it. A host without systemd never says so.
fn host_goes_down() -> bool {
    let said = Command::new("systemctl").arg("is-system-running").stdin(Stdio::null()).output();
    said.is_ok_and(|said| said.stdout.trim_ascii() == b"stopping")
}

fn check_idle(mountpoint: &Path) -> Result<(), Refusal> {
    let found = holders(mountpoint);
    if found.is_empty() {
        return Ok(());
    }
    Err(Refusal::Busy { path: mountpoint.to_owned(), by: describe_holders(&found) })
}

fn flush_first(daemon: &Daemon, args: &UnmountArgs, interrupt: &Interrupt) -> Result<(), Refusal> {
    let mut bar = DirtyBar::new("flushing", args.quiet);
    for _ in 0..ROUNDS {
        if start_and_wait(daemon, &ClientCommand::Flush { path: None }, &mut bar, interrupt)? != Waited::Done {
            return Err(stays(daemon.mountpoint()));
        }
        if ask_status(daemon)?.dirty_bytes < LITTLE {
            break;
        }
    }
    if interrupt.came() { Err(stays(daemon.mountpoint())) } else { Ok(()) }
}

fn stays(mountpoint: &Path) -> Refusal {
    Refusal::Interrupted(format!("interrupted: {} stays mounted, and nothing is lost", mountpoint.display()))
}

/// Takes the mount away. The daemon then writes the rest, which is little, so you can interrupt this wait, too.
fn leave(
    daemon: &Daemon,
    command: ClientCommand,
    quiet: bool,
    interrupt: &Interrupt,
) -> Result<(u64, Option<String>), Refusal> {
    let (answered, answer) = channel();
    let asking = daemon.clone();
    std::thread::spawn(move || {
        // Fails only if the command waits no more.
        let _ = answered.send(asking.ask_and_wait(&command));
    });
    let mut bar = DirtyBar::new("finishing", quiet);
    let mut first = true;
    loop {
        match answer.recv_timeout(Duration::from_millis(300)) {
            Ok(Ok(Answer::Unmounted { dirty_bytes, note })) => return Ok((dirty_bytes, note)),
            Ok(Ok(_)) => return Err(confused(daemon)),
            Ok(Err(refusal)) => return Err(refusal),
            Err(RecvTimeoutError::Timeout) if interrupt.came() => {
                let text = "interrupted: the daemon writes the rest to the origin and then ends. When the origin is \
                            complete, the marker beside it is gone";
                return Err(Refusal::Interrupted(text.to_owned()));
            }
            Err(RecvTimeoutError::Timeout) => {
                if let Ok(status) = ask_status(daemon)
                    && !first
                {
                    bar.left(status.dirty_bytes, status.origin_write_bytes);
                    bar.silent(status.origin_silent_seconds);
                }
                first = false;
            }
            Err(RecvTimeoutError::Disconnected) => return Err(confused(daemon)),
        }
    }
}
