//! The state of a process, as `/proc` tells it.

use std::fs;
use std::path::Path;

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

/// Whether a process is gone, or was killed and will be. Threads of it that the kernel does not let go may still have files
/// and sockets open, and do nothing with them. Anybody may ask, about any process.
#[must_use]
pub fn is_dead(process: u32) -> bool {
    // The first thread of a process that goes on never ends.
    state_of(process).is_none_or(|(state, _)| matches!(state, 'Z' | 'X'))
}

/// Whether a process was killed, and all that is left of it are threads in the midst of a write to a FUSE device.
///
/// The kernel lets no signal end such a write while it waits for the lock of a directory. A lookup in that directory may
/// have the lock, and wait for an answer that only the next worker can give. A wait for the end of such a process may
/// never be over. It does nothing more: each thread ends with its write.
#[must_use]
pub fn is_dead_but_for_fuse(process: u32) -> bool {
    if state_of(process).is_none_or(|(state, threads)| state != 'Z' || threads <= 1) {
        return false;
    }
    let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else { return false };
    threads.flatten().all(|thread| {
        let thread = thread.path();
        is_in_fuse(&thread) || fs::read_to_string(thread.join("stat")).is_ok_and(|stat| stat.contains(") Z "))
    })
}

/// Whether a thread, by its directory in `/proc`, waits in a system call whose first argument is an open FUSE device.
fn is_in_fuse(thread: &Path) -> bool {
    let Ok(call) = fs::read_to_string(thread.join("syscall")) else { return false };
    let descriptor = call.split(' ').nth(1).and_then(|first| first.strip_prefix("0x"));
    let Some(descriptor) = descriptor.and_then(|first| u32::from_str_radix(first, 16).ok()) else { return false };
    fs::read_link(thread.join(format!("fd/{descriptor}"))).is_ok_and(|open| open == Path::new("/dev/fuse"))
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
