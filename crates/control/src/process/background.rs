//! Starting in the background: the command starts itself once more, as a daemon with a session of its own, and waits
//! until the daemon says whether the mount stands.
//!
//! Invariant: a command that ends with success leaves a mount. Otherwise there is no mount, and the reason is on the
//! terminal. A start whose command was interrupted ends too.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{chdir, setsid};
use serde::{Deserialize, Serialize};

use super::log::log_line;
use crate::refusal::{ExitStatus, Refusal};

/// Whether this is a daemon whose command waits for its report.
static REPORTS: AtomicBool = AtomicBool::new(false);

/// The daemon's report to the command that started it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Report {
    /// The start waits, and why. More reports follow.
    Waiting {
        text: String,
    },
    Ready {
        text: String,
    },
    Refused {
        status: u8,
        text: String,
    },
}

/// Starts this program once more, with `mark` before the same arguments and with its errors going to `log`. Waits for
/// its report, and returns the daemon's text when the mount stands.
///
/// # Errors
/// The daemon's refusal, or that it died.
pub fn start(mark: &str, arguments: impl Iterator<Item = OsString>, log: &Path) -> Result<String, Refusal> {
    let failed = |error: io::Error| Refusal::Failed { doing: "start in the background".to_owned(), error };
    let log_file = open_log(log)?;
    let own = std::env::current_exe().map_err(failed)?;
    let mut child = Command::new(own)
        .arg(OsStr::new(mark))
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log_file)
        .spawn()
        .map_err(failed)?;
    let said = child.stdout.take().map(|stdout| BufReader::new(stdout).lines());
    let mut report = None;
    for line in said.into_iter().flatten() {
        match serde_json::from_str(&line.map_err(failed)?) {
            Ok(Report::Waiting { text }) => eprintln!("headpond: {text}"),
            last => {
                report = last.ok();
                break;
            }
        }
    }
    match report {
        Some(Report::Ready { text }) => Ok(text),
        Some(Report::Refused { status, text }) => {
            let _ = child.wait();
            Err(Refusal::Relayed { text, status: ExitStatus::from_code(status).unwrap_or(ExitStatus::Failed) })
        }
        Some(Report::Waiting { .. }) | None => {
            let ended = child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
            Err(failed(io::Error::other(format!(
                "the daemon ended with {ended} before it was ready. Its log: {}",
                log.display()
            ))))
        }
    }
}

fn open_log(path: &Path) -> Result<File, Refusal> {
    OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path)
        .map_err(|error| Refusal::from_io("open the log", path, error))
}

/// In the daemon: leaves the terminal. Call it first, but after making all paths absolute.
///
/// # Errors
/// If the system does not allow it.
pub fn leave_terminal() -> Result<(), Refusal> {
    REPORTS.store(true, Ordering::Relaxed);
    super::log::begin();
    // Fails only for a process that already leads a session, which is the aim.
    let _ = setsid();
    chdir("/").map_err(|error| Refusal::from_io("change to", Path::new("/"), error))
}

/// Says on the command's terminal what is going on, and in the log.
pub(crate) fn tell(text: &str) {
    log_line(text);
    if REPORTS.load(Ordering::Relaxed) {
        // Another place finds out that the command is gone: see `is_orphan`.
        let _ = say(&Report::Waiting { text: text.to_owned() });
    }
}

/// In the daemon, before its report: whether the command that waits for it is gone.
pub(crate) fn is_orphan() -> bool {
    if !REPORTS.load(Ordering::Relaxed) {
        return false;
    }
    let stdout = io::stdout();
    let mut watched = [PollFd::new(&stdout, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut watched, Some(&now)).is_ok_and(|count| count > 0) && watched[0].revents().contains(PollFlags::ERR)
}

/// In the daemon: reports that the mount stands, and lets go of the command's output.
///
/// # Errors
/// If the command is gone: its operator gave up, so the daemon should end.
pub fn report_ready(text: &str) -> io::Result<()> {
    report(&Report::Ready { text: text.to_owned() })
}

/// In the daemon: reports why there is no mount.
pub fn report_refusal(refusal: &Refusal) {
    // If the command is gone, the log still has it.
    let _ = report(&Report::Refused { status: refusal.status().code(), text: refusal.to_string() });
}

fn report(report: &Report) -> io::Result<()> {
    REPORTS.store(false, Ordering::Relaxed);
    say(report)?;
    let null = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdout(&null)?;
    Ok(())
}

fn say(report: &Report) -> io::Result<()> {
    let mut line = serde_json::to_vec(report)?;
    line.push(b'\n');
    let mut stdout = io::stdout().lock();
    stdout.write_all(&line)?;
    stdout.flush()
}
