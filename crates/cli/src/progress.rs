//! Waiting for long work of the daemon. The terminal shows how much is left and how long it takes.
//!
//! Invariant: the daemon does the work. A command that stops waiting, by ctrl-C or by a crash, changes nothing.

use std::io::IsTerminal;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use headpond_control::{Answer, ClientCommand, Daemon, Marker, MarkerState, OperationProgress, Refusal, Size};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::ask::{ask_status, confused};

/// How often the command asks the daemon.
const PERIOD: Duration = Duration::from_millis(200);

/// Seconds between two lines about a silent origin if there is no bar.
const SILENT_EVERY: u64 = 5;

/// A line for each so many answers if there is no bar.
const LINE_EVERY: u32 = 50;

/// Whether the operator pressed ctrl-C, or sent a like signal.
#[derive(Clone, Debug)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Starts to listen. The second ctrl-C ends the command at once.
    pub fn listen() -> Self {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            // In this order: the second signal finds the flag that the first one set. Without the handlers a signal
            // ends the command, which is harmless too.
            let _ = signal_hook::flag::register_conditional_shutdown(signal, 130, flag.clone());
            let _ = signal_hook::flag::register(signal, flag.clone());
        }
        Self(flag)
    }

    /// Whether the signal came.
    pub fn came(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Shows how much is still dirty.
pub struct DirtyBar {
    bar: Option<ProgressBar>,
    doing: &'static str,
    asked: u32,
    /// How long the origin had been silent in the last such line.
    told_silent: u64,
    seen: Estimate,
}

/// How much is left, in fine steps. Dirty data becomes clean many megabytes at a time, with a sync of the origin. In
/// between, the bytes written there show the progress.
#[derive(Clone, Copy, Debug, Default)]
struct Estimate {
    dirty_bytes: u64,
    written_before: u64,
}

impl Estimate {
    fn left(&mut self, dirty_bytes: u64, origin_write_bytes: u64) -> u64 {
        if dirty_bytes != self.dirty_bytes {
            *self = Self { dirty_bytes, written_before: origin_write_bytes };
        }
        let on_its_way = origin_write_bytes.saturating_sub(self.written_before);
        // Never quite done before the end: the last sync counts too.
        dirty_bytes.saturating_sub(on_its_way).max(dirty_bytes / 20)
    }
}

impl DirtyBar {
    /// A bar on a terminal, a line now and then elsewhere, or nothing if `quiet`.
    pub fn new(doing: &'static str, quiet: bool) -> Self {
        let bar = on_terminal(quiet, "{prefix} [{bar:30}] {msg}, {binary_bytes_per_sec}, {eta} to go");
        if let Some(bar) = &bar {
            bar.set_prefix(doing);
            bar.set_message("looking");
        }
        Self { bar, doing, asked: if quiet { u32::MAX } else { 0 }, told_silent: 0, seen: Estimate::default() }
    }

    /// Shows `dirty_bytes` as left. `origin_write_bytes` is what the origin got since the mount.
    pub fn left(&mut self, dirty_bytes: u64, origin_write_bytes: u64) {
        let dirty_bytes = self.seen.left(dirty_bytes, origin_write_bytes);
        match &self.bar {
            Some(bar) => {
                // Writers go on: the total may grow.
                let done = bar.position();
                let whole = bar.length().unwrap_or(0).max(done + dirty_bytes);
                bar.set_length(whole);
                bar.set_position(whole - dirty_bytes);
                bar.set_message(format!("{} left", Size(dirty_bytes)));
            }
            None if self.asked != u32::MAX => {
                if self.asked.is_multiple_of(LINE_EVERY) {
                    eprintln!("{}: {} left", self.doing, Size(dirty_bytes));
                }
                self.asked = (self.asked + 1) % (LINE_EVERY * 1000);
            }
            None => {}
        }
    }

    /// The origin has left a request without an answer for so many seconds. 0: it answers.
    pub fn silent(&mut self, seconds: u64) {
        if seconds == 0 {
            self.told_silent = 0;
            return;
        }
        let line = format!(
            "the origin has not answered for {seconds} s. ctrl-C ends this wait, and dirty data stays safe in the pool"
        );
        match &self.bar {
            Some(bar) => bar.set_message(line),
            None if self.asked != u32::MAX && seconds >= self.told_silent.saturating_add(SILENT_EVERY) => {
                eprintln!("{}: {line}", self.doing);
                self.told_silent = seconds;
            }
            None => {}
        }
    }

    /// Removes the bar.
    pub fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl Drop for DirtyBar {
    fn drop(&mut self) {
        self.clear();
    }
}

/// How a wait ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waited {
    /// The work is done.
    Done,
    /// Another command cancelled it.
    Cancelled,
    /// The operator interrupted the wait.
    Interrupted,
}

/// Starts an operation of the daemon and waits for its end.
///
/// # Errors
/// What the daemon refuses, or why it failed.
pub fn start_and_wait(
    daemon: &Daemon,
    command: &ClientCommand,
    bar: &mut DirtyBar,
    interrupt: &Interrupt,
) -> Result<Waited, Refusal> {
    let origin = ask_status(daemon)?.origin;
    let Answer::Started { id } = daemon.ask(command)? else { return Err(confused(daemon)) };
    wait_for(daemon, id, &origin, bar, interrupt)
}

/// Waits for the end of a started operation. `origin` is the daemon's origin.
///
/// # Errors
/// Why the operation failed, or what became of the daemon.
pub fn wait_for(
    daemon: &Daemon,
    id: u64,
    origin: &Path,
    bar: &mut DirtyBar,
    interrupt: &Interrupt,
) -> Result<Waited, Refusal> {
    let mut period = Duration::from_millis(5);
    loop {
        if interrupt.came() {
            return Ok(Waited::Interrupted);
        }
        let (progress, dirty_bytes, left_bytes, origin_write_bytes, silent_seconds) =
            match daemon.ask(&ClientCommand::Operation { id }) {
                Ok(Answer::Operation { progress, dirty_bytes, left_bytes, origin_write_bytes, silent_seconds }) => {
                    (progress, dirty_bytes, left_bytes, origin_write_bytes, silent_seconds)
                }
                Ok(_) => return Err(confused(daemon)),
                Err(Refusal::NotMounted { .. } | Refusal::NoAnswer { .. }) => return gone_meanwhile(daemon, origin),
                Err(refusal) => return Err(refusal),
            };
        match progress {
            OperationProgress::Running => {
                bar.left(left_bytes, origin_write_bytes);
                bar.silent(silent_seconds);
            }
            OperationProgress::Done => return Ok(Waited::Done),
            OperationProgress::Cancelled => return Ok(Waited::Cancelled),
            OperationProgress::Failed(why) => return Err(Refusal::FlushFailed { why, dirty_bytes }),
        }
        std::thread::sleep(period);
        period = (period * 2).min(PERIOD);
    }
}

/// The daemon ended before the operation did. The marker beside the origin says what is still dirty.
fn gone_meanwhile(daemon: &Daemon, origin: &Path) -> Result<Waited, Refusal> {
    let path = daemon.mountpoint();
    match Marker::beside(origin) {
        Some(Marker { state: MarkerState::DirtyLeft, dirty_bytes, .. }) => {
            let why = format!("{} was unmounted before the origin had everything", path.display());
            Err(Refusal::FlushFailed { why, dirty_bytes })
        }
        None if origin.is_dir() => Ok(Waited::Done),
        _ => {
            let why = "it crashed. What was synced is safe in the pool. Run the same `headpond mount` again".to_owned();
            Err(Refusal::NoAnswer { path: path.to_owned(), why })
        }
    }
}

/// A bar, if there is a terminal to show it.
fn on_terminal(quiet: bool, template: &str) -> Option<ProgressBar> {
    if quiet || !std::io::stderr().is_terminal() {
        return None;
    }
    let bar = ProgressBar::with_draw_target(Some(1), ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    Some(bar)
}

/// A bar on a terminal, a line now and then elsewhere, or nothing if `quiet`.
pub struct Bar {
    bar: Option<ProgressBar>,
    /// When the last line was printed. `None` if it prints no lines.
    line: Option<Instant>,
}

impl Bar {
    /// Time between two lines if there is no bar.
    const LINE_EVERY: Duration = Duration::from_secs(10);

    /// `template` is the bar's, as of indicatif.
    pub fn new(quiet: bool, template: &str) -> Self {
        let bar = on_terminal(quiet, template);
        let line = (!quiet && bar.is_none()).then(Instant::now);
        Self { bar, line }
    }

    /// Shows how far it is: on the bar, or as a line if one is due.
    pub fn show(&mut self, on_bar: impl FnOnce(&ProgressBar), line: impl FnOnce() -> String) {
        if let Some(bar) = &self.bar {
            on_bar(bar);
        } else if self.line.is_some_and(|line| line.elapsed() >= Self::LINE_EVERY) {
            eprintln!("{}", line());
            self.line = Some(Instant::now());
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_moves_on_between_two_syncs_and_never_reaches_nothing_before_the_last() {
        let mut seen = Estimate::default();
        let left = [(1000, 50), (1000, 450), (1000, 2050), (600, 2050), (600, 2150), (0, 2700)]
            .map(|(dirty, written)| seen.left(dirty, written));
        assert_eq!(left, [1000, 600, 50, 600, 500, 0]);
    }
}
