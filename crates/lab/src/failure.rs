//! The failure of an experiment: what it was doing, with which command, and the command's output.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Why an experiment ended early.
#[derive(Debug)]
pub enum Failure {
    /// A command could not be started, or said that it failed.
    Command {
        /// What was being done, as in "loading the tables".
        doing: String,
        /// The command as it would be typed.
        command: String,
        /// Its exit status, or why it has none.
        status: String,
        /// The end of what it printed.
        output: String,
    },
    /// A system call failed.
    Io {
        /// What was being done, to which file.
        doing: String,
        /// What the system said.
        source: io::Error,
    },
    /// Something else, in words.
    Other(String),
    /// The user asked for an end.
    Interrupted,
}

/// The result of a part of an experiment.
pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// Makes the failure of a system call; for `map_err`.
    pub fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Command { doing, command, status, output } => {
                writeln!(f, "{doing}: {status}")?;
                writeln!(f, "  command: {command}")?;
                write!(f, "  its output:")?;
                if output.trim().is_empty() {
                    return write!(f, " none");
                }
                output.lines().try_for_each(|line| write!(f, "\n    {line}"))
            }
            Self::Io { doing, source } => write!(f, "{doing}: {source}"),
            Self::Other(what) => f.write_str(what),
            Self::Interrupted => f.write_str("interrupted"),
        }
    }
}

impl std::error::Error for Failure {}

static INTERRUPTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Lets SIGINT and SIGTERM end the experiment at its next step instead of ending the process,
/// so that servers are stopped and mounts are taken down.
pub fn catch_interrupts() -> Result<()> {
    let flag = INTERRUPTED.get_or_init(Arc::default);
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(flag)).map_err(Failure::io("catching signals"))?;
    }
    Ok(())
}

/// Fails if the user asked for an end; to be called at least once a second in every wait.
pub fn check_interrupt() -> Result<()> {
    let interrupted = INTERRUPTED.get().is_some_and(|flag| flag.load(Ordering::Relaxed));
    if interrupted { Err(Failure::Interrupted) } else { Ok(()) }
}
