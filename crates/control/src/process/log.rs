//! The messages of a mount's process to its operator, on standard error.
//!
//! Invariant: each line of a background daemon's log begins with its time. In the foreground and under a service
//! manager no line does: the terminal shows the present, and a journal has times of its own.

use std::fmt::Display;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

/// Whether standard error is the log of a daemon.
static IS_LOG: AtomicBool = AtomicBool::new(false);

/// From now on standard error is the log of a daemon.
pub(crate) fn begin() {
    IS_LOG.store(true, Ordering::Relaxed);
}

/// Writes a message to standard error. A message that cannot be written is lost: with a log on a full disk a mount goes on.
pub fn log_line(message: impl Display) {
    let line = if IS_LOG.load(Ordering::Relaxed) {
        stamped(SystemTime::now(), message)
    } else {
        format!("headpond: {message}")
    };
    // `eprintln!` would panic, and end the process.
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// The message with its time, in UTC to the second: `2026-11-25T08:15:00Z`.
fn stamped(now: SystemTime, message: impl Display) -> String {
    let time = humantime::format_rfc3339_seconds(now).to_string();
    let message = message.to_string();
    message.lines().map(|line| format!("{time} {line}")).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn each_line_has_its_time() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        assert_eq!(stamped(now, "one\ntwo"), "2023-11-14T22:13:20Z one\n2023-11-14T22:13:20Z two");
    }
}
