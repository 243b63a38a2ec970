//! The terminal as `headpond top` uses it: the alternate screen, and keys without return.
//!
//! Invariant: however `top` ends, the terminal is as it was before.

use std::io::{self, IsTerminal, Read, Write};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::pipe;

/// A key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyPress {
    /// q, or ctrl-C.
    Quit,
    /// Anything else.
    Other,
}

/// The alternate screen, until it is dropped.
pub struct Screen {
    before: Termios,
    /// Becomes readable when a signal comes that ends the program.
    signals: std::os::unix::net::UnixStream,
}

impl Screen {
    /// Switches to the alternate screen.
    ///
    /// # Errors
    /// If there is no terminal.
    pub fn open() -> io::Result<Self> {
        if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
            return Err(io::Error::other("standard input or output is not a terminal"));
        }
        let (signals, ring) = std::os::unix::net::UnixStream::pair()?;
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            pipe::register(signal, ring.try_clone()?)?;
        }
        let before = tcgetattr(io::stdin())?;
        let mut keys = before.clone();
        keys.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        tcsetattr(io::stdin(), OptionalActions::Now, &keys)?;
        let screen = Self { before, signals };
        write(b"\x1b[?1049h\x1b[?25l\x1b[2J")?;
        Ok(screen)
    }

    /// Shows lines from the top.
    pub fn draw(&mut self, lines: &[String]) -> io::Result<()> {
        let mut bytes = b"\x1b[H".to_vec();
        for line in lines {
            bytes.extend_from_slice(line.as_bytes());
            bytes.extend_from_slice(b"\x1b[K\r\n");
        }
        bytes.extend_from_slice(b"\x1b[J");
        write(&bytes)
    }

    /// Waits for a key, at most `patience`.
    pub fn wait(&mut self, patience: Duration) -> io::Result<Option<KeyPress>> {
        let stdin = io::stdin();
        let patience = Timespec { tv_sec: patience.as_secs().cast_signed(), tv_nsec: 0 };
        let mut ready = [PollFd::new(&stdin, PollFlags::IN), PollFd::new(&self.signals, PollFlags::IN)];
        match poll(&mut ready, Some(&patience)) {
            Ok(0) => return Ok(None),
            // The window was resized, for example.
            Err(rustix::io::Errno::INTR) => return Ok(None),
            result => _ = result?,
        }
        if !ready[1].revents().is_empty() {
            return Ok(Some(KeyPress::Quit));
        }
        let mut pressed = [0; 16];
        let count = stdin.lock().read(&mut pressed)?;
        // At the end of input there is no user any more.
        let quit = count == 0 || pressed[..count].iter().any(|key| matches!(key, b'q' | b'Q' | 3));
        Ok(Some(if quit { KeyPress::Quit } else { KeyPress::Other }))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // If the terminal is gone, there is nothing left to do.
        let _ = write(b"\x1b[?25h\x1b[?1049l");
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}

fn write(bytes: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes)?;
    stdout.flush()
}
