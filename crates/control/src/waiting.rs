//! A start that waits for the origin says so: a server that does not answer, or gives no locks for a while after a restart,
//! holds a system call for minutes.
//!
//! An NFS client waits out the server's grace also where a lock was asked for without waiting, and where a file is opened. So
//! the waiting is left to the system call, and a thread beside it tells. Ctrl-C ends the process as always: such calls give way
//! to a signal that kills.

use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use crate::{ExitStatus, background};

/// After so long it is told what is waited for.
const FIRST: Duration = Duration::from_secs(3);

/// And again each time after this.
const AGAIN: Duration = Duration::from_secs(15);

/// How often it is looked whether the command that started this is still there.
const PERIOD: Duration = Duration::from_millis(250);

/// Tells what a start waits for. Quiet once dropped.
pub(crate) struct Waiting {
    step: Sender<&'static str>,
}

impl Waiting {
    /// For an origin. Without a thread nothing is told.
    pub(crate) fn for_origin(origin: &Path) -> Self {
        let (step, steps) = channel();
        let origin = origin.to_owned();
        let tell = move || {
            let mut what = "";
            let mut since = Instant::now();
            let mut told = None::<Instant>;
            loop {
                match steps.recv_timeout(PERIOD) {
                    Ok(next) => (what, since, told) = (next, Instant::now(), None),
                    Err(RecvTimeoutError::Disconnected) => return,
                    Err(RecvTimeoutError::Timeout) => {}
                }
                if background::is_orphan() {
                    eprintln!("headpond: the command that started this is gone while it waited for {what}; leaving");
                    std::process::exit(ExitStatus::Interrupted.code().into());
                }
                let waited = since.elapsed();
                if waited >= FIRST && told.is_none_or(|told| told.elapsed() >= AGAIN) {
                    background::tell(&line(&origin, what, waited));
                    told = Some(Instant::now());
                }
            }
        };
        // Fails only where no thread can be started, and then the start will say so.
        let _ = std::thread::Builder::new().name("waiting".to_owned()).spawn(tell);
        Self { step }
    }

    /// The next thing that may have to be waited for.
    pub(crate) fn on(&self, what: &'static str) {
        let _ = self.step.send(what);
    }
}

fn line(origin: &Path, what: &str, waited: Duration) -> String {
    let (origin, seconds) = (origin.display(), waited.as_secs());
    format!(
        "waiting for {what} of {origin} for {seconds} s: its server does not answer, or has restarted and gives no locks yet (up \
         to 90 s, mostly). Nothing was changed; Ctrl-C ends this"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_what_is_waited_for_since_when_and_how_to_end_it() {
        let line = line(Path::new("/slow/db"), "the lock", Duration::from_secs(18));
        for part in ["the lock of /slow/db", "18 s", "Ctrl-C"] {
            assert!(line.contains(part), "{part} is missing in: {line}");
        }
    }
}
