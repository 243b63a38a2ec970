//! A process that runs in the background of an experiment: a server, a mount, a load.
//!
//! Invariant: a service is ended, by its process id, when its owner lets go of it.

use crate::command;
use crate::failure::{Failure, Result, check_interrupt};
use headpond_holder::has_ended;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a service may take to end when asked, before it is killed.
const GRACE: Duration = Duration::from_secs(30);
/// How long a service that was told to quit may take before it is killed.
const QUIT_MAX: Duration = Duration::from_secs(10);
/// How long a child that ends with a killed process may take, and how often that is looked at.
const BOUND_MAX: Duration = Duration::from_secs(2);
const BOUND_LOOK: Duration = Duration::from_millis(2);
/// How often a wait looks.
const LOOK: Duration = Duration::from_millis(50);

/// A running process with its output in a file.
pub struct Service {
    name: String,
    command: Command,
    child: Child,
    log: PathBuf,
}

impl Service {
    /// Starts `command`; what it prints goes to the end of the file `log`.
    pub fn start(name: &str, mut command: Command, log: &Path) -> Result<Self> {
        let file = File::options().create(true).append(true).open(log);
        let file = file.map_err(Failure::io(format!("opening {}", log.display())))?;
        let copy = file.try_clone().map_err(Failure::io(format!("opening {}", log.display())))?;
        let child = command::detach(&mut command)
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(copy)
            .spawn()
            .map_err(|error| command::failed(&format!("starting {name}"), &command, error, ""))?;
        Ok(Self { name: name.to_owned(), command, child, log: log.to_path_buf() })
    }

    /// The command as it would be typed.
    #[must_use]
    pub fn typed(&self) -> String {
        command::typed(&self.command)
    }

    /// The process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until `ready` says so. Fails if the process ends before, or takes too long.
    pub fn wait_until(&mut self, limit: Duration, mut ready: impl FnMut() -> bool) -> Result<()> {
        let start = Instant::now();
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(self.failed(&format!("ended with {status}")));
            }
            if ready() {
                return Ok(());
            }
            if start.elapsed() > limit {
                return Err(self.failed(&format!("not ready after {} s", limit.as_secs())));
            }
            check_interrupt()?;
            std::thread::sleep(LOOK);
        }
    }

    /// Waits for the process to end by itself.
    pub fn wait_for_end(&mut self, limit: Duration) -> Result<()> {
        let start = Instant::now();
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => return Err(self.failed(&format!("ended with {status}"))),
                Ok(None) if start.elapsed() > limit => {
                    return Err(self.failed(&format!("still running after {} s", limit.as_secs())));
                }
                Ok(None) => {}
                Err(error) => return Err(self.failed(&error.to_string())),
            }
            check_interrupt()?;
            std::thread::sleep(LOOK);
        }
    }

    /// Whether the process has ended by itself, and well.
    pub fn ended(&mut self) -> Result<bool> {
        match self.child.try_wait() {
            Ok(Some(status)) if status.success() => Ok(true),
            Ok(Some(status)) => Err(self.failed(&format!("ended with {status}"))),
            Ok(None) => Ok(false),
            Err(error) => Err(self.failed(&error.to_string())),
        }
    }

    /// A failure of this service, with the end of its log.
    fn failed(&self, status: &str) -> Failure {
        let log = fs::read(&self.log).unwrap_or_default();
        command::failed(&self.name, &self.command, status, &String::from_utf8_lossy(&log))
    }

    /// Kills the process at once, as a crash would, and waits until it is gone. A child of it that ends with it (see
    /// `headpond mount`) is gone, too.
    pub fn kill(&mut self) {
        let bound = self.children();
        // Failing means that it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let start = Instant::now();
        while start.elapsed() < BOUND_MAX && !bound.iter().all(|child| has_ended(*child)) {
            std::thread::sleep(BOUND_LOOK);
        }
    }

    /// Whether the process has not ended.
    #[must_use]
    pub fn is_running(&self) -> bool {
        !has_ended(self.pid())
    }

    /// The processes that it has started.
    pub fn children(&self) -> Vec<u32> {
        let list = fs::read_to_string(format!("/proc/{0}/task/{0}/children", self.pid())).unwrap_or_default();
        list.split_whitespace().filter_map(|child| child.parse().ok()).collect()
    }

    /// Asks the process to end in order.
    pub fn interrupt(&self) {
        self.signal(Signal::INT);
    }

    /// Asks the process to end at once by its own means, then makes sure that it does.
    pub fn quit(&mut self) {
        self.signal(Signal::QUIT);
        let start = Instant::now();
        while start.elapsed() < QUIT_MAX && !matches!(self.child.try_wait(), Ok(Some(_))) {
            std::thread::sleep(LOOK);
        }
        self.kill();
    }

    /// Has the process end, which it may do with any status. Fails if it takes too long: something that it waits for
    /// does not come.
    pub fn terminate(&mut self, limit: Duration) -> Result<()> {
        self.signal(Signal::TERM);
        let start = Instant::now();
        while !matches!(self.child.try_wait(), Ok(Some(_))) {
            if start.elapsed() > limit {
                return Err(self.failed(&format!("told to end, and still there after {} s", limit.as_secs())));
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid {
            // The child is not waited for yet, so its id can not have passed to another process.
            let _ = kill_process(pid, signal);
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        self.signal(Signal::TERM);
        let start = Instant::now();
        while start.elapsed() < GRACE {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(LOOK);
        }
        self.kill();
    }
}
