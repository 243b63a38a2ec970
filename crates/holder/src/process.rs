//! The state of a process, as `/proc` tells it.

use std::fs;

/// The state, and how many threads there are. `None` if there is no such process.
fn state_of(process: u32) -> Option<(char, u32)> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name before this may hold anything.
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(16)?.parse().ok()?))
}

/// Whether a process is gone. One that nobody has waited for counts as gone: everything that it had is closed.
#[must_use]
pub fn has_ended(process: u32) -> bool {
    // The first thread may be gone before others that still have files open.
    state_of(process).is_none_or(|(state, threads)| matches!(state, 'Z' | 'X') && threads <= 1)
}

/// Whether a debugger or a signal has stopped a process.
pub(crate) fn is_stopped(process: u32) -> bool {
    state_of(process).is_some_and(|(state, _)| matches!(state, 'T' | 't'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Pid, Signal, kill_process};
    use std::process::{Command, Stdio};

    #[test]
    fn a_process_is_told_apart_at_work_stopped_dead_and_waited_for() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let process = child.id();
        let signal = |child, signal| kill_process(Pid::from_child(child), signal).unwrap();
        assert!(!has_ended(process) && !is_stopped(process) && !has_ended(std::process::id()));
        signal(&child, Signal::STOP);
        while !is_stopped(process) {
            std::thread::yield_now();
        }
        assert!(!has_ended(process));
        signal(&child, Signal::KILL);
        while !has_ended(process) {
            std::thread::yield_now();
        }
        assert!(!is_stopped(process));
        child.wait().unwrap();
        assert!(has_ended(process));
    }
}
