//! A start that waits for the origin says so. A server that does not answer, or grants no locks for a while after a
//! restart, blocks a system call for minutes. A start that is itself at work says that, and blames no server.
//!
//! An NFS client waits out the server's grace period even for a lock without waiting, and for an open. So the start
//! leaves the waiting to the system call, and a thread beside it reports. Ctrl-C ends the process as always: such
//! calls end on a signal that kills.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use super::background;
use super::log::log_line;
use crate::refusal::ExitStatus;

/// A line says what the start waits for after this time.
const FIRST: Duration = Duration::from_secs(3);

/// And again each time after this time.
const AGAIN: Duration = Duration::from_secs(15);

/// How often it checks that the command of this start is still there.
const PERIOD: Duration = Duration::from_millis(250);

/// A step that a start may have to wait for.
#[derive(Clone, Copy)]
pub(crate) enum Step {
    /// The origin answers about this.
    Origin(&'static str),
    /// The pool is read or written.
    Pool,
    /// The origin's file system writes what its host has in memory.
    Sync,
    /// The pool's files are compared with the origin's, one by one.
    Files,
    /// The registry of owners answers, or another host's lease ends.
    Registry,
}

/// Reports what a start waits for, until it is dropped.
pub(crate) struct Waiting {
    step: Sender<Step>,
}

impl Waiting {
    /// For this origin. If the thread cannot start, no line comes.
    ///
    /// A worker that takes over waits for its origin as long as that takes: another worker would wait as well. So while
    /// it does, this gives the signs of life, in `beat`.
    pub(crate) fn for_origin(origin: &Path, beat: Option<&'static AtomicU64>) -> Self {
        let (step, steps) = channel();
        let origin = origin.to_owned();
        let tell = move || {
            let mut step = Step::Pool;
            let mut since = Instant::now();
            let mut told = None::<Instant>;
            loop {
                match steps.recv_timeout(PERIOD) {
                    Ok(next) => (step, since, told) = (next, Instant::now(), None),
                    Err(RecvTimeoutError::Disconnected) => return,
                    Err(RecvTimeoutError::Timeout) => {}
                }
                if let Some(beat) = beat.filter(|_| !matches!(step, Step::Pool)) {
                    beat.fetch_add(1, Ordering::Relaxed);
                }
                if background::is_orphan() {
                    log_line("the `headpond mount` that started this daemon is gone; the daemon ends");
                    std::process::exit(ExitStatus::Interrupted.code().into());
                }
                let waited = since.elapsed();
                if waited >= FIRST && told.is_none_or(|told| told.elapsed() >= AGAIN) {
                    background::tell(&line(&origin, step, waited));
                    told = Some(Instant::now());
                }
            }
        };
        // Fails only if no thread can start, and then the start itself says so.
        let _ = std::thread::Builder::new().name("waiting".to_owned()).spawn(tell);
        Self { step }
    }

    /// The start goes on to its next step.
    pub(crate) fn on(&self, step: Step) {
        let _ = self.step.send(step);
    }
}

fn line(origin: &Path, step: Step, waited: Duration) -> String {
    let (origin, seconds) = (origin.display(), waited.as_secs());
    match step {
        Step::Origin(what) => format!(
            "waiting {seconds} s for {what} of {origin}: its server does not answer, or has restarted and gives no locks yet (usually \
             for 90 s). Nothing was changed; ctrl-C ends this"
        ),
        Step::Pool => {
            format!("reading the pool of {origin} for {seconds} s: a larger pool takes longer. ctrl-C ends this")
        }
        Step::Registry => {
            format!(
                "waiting {seconds} s for the registry of owners of {origin}: it is silent, or another host has the pool's lease. \
                 Nothing was changed; ctrl-C ends this"
            )
        }
        Step::Sync => format!(
            "syncing {origin} for {seconds} s: this host's memory holds many writes for it, or it answers slowly. ctrl-C ends this"
        ),
        Step::Files => format!(
            "comparing the pool's files with those of {origin} for {seconds} s: there are many, or the origin answers slowly. \
             ctrl-C ends this"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_what_is_waited_for_since_when_and_how_to_end_it() {
        let line = |step| line(Path::new("/slow/db"), step, Duration::from_secs(18));
        for part in ["the lock of /slow/db", "its server"] {
            assert!(line(Step::Origin("the lock")).contains(part), "{part} is missing");
        }
        for step in [Step::Origin("the lock"), Step::Pool, Step::Sync, Step::Files, Step::Registry] {
            let line = line(step);
            assert!(line.contains("/slow/db") && line.contains("18 s") && line.contains("ctrl-C"), "{line}");
            assert!(!line.contains("server") || matches!(step, Step::Origin(_)), "no server has to do with it: {line}");
        }
    }
}
