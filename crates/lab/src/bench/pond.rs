//! A mount as a user has it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use headpond_device::Backend;
use headpond_lab::pond::Headpond;
use headpond_lab::processor;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::Value;

use super::Outcome;
use super::backend;
use super::fio::finished;

/// How long a mount or a server may take to stand.
pub const READY_MAX: Duration = Duration::from_secs(120);

/// The program `headpond` that was built along with this one.
pub fn program() -> Outcome<PathBuf> {
    Ok(Headpond::beside_this_program()?.program().to_owned())
}

/// A mount. Its drop unmounts, and leaves dirty data in the pool.
pub struct Mount {
    point: PathBuf,
    daemon: Pid,
}

impl Mount {
    /// Mounts `origin` at `point`. A pool that is not there is made, and filled with zeros: as a pool is
    /// once each part of it was used.
    pub fn start(origin: &Path, point: &Path, flash: &Path, size: &str, backend: Backend) -> Outcome<Self> {
        let new: &[&str] = if flash.exists() { &[] } else { &["--size", size, "--fill", "zeros"] };
        Self::start_as(origin, point, &[flash], new, backend, &[])
    }

    /// Mounts `origin` at `point` with a new pool, without a holder.
    pub fn start_without_holder(origin: &Path, point: &Path, flash: &Path, size: &str) -> Outcome<Self> {
        let new = ["--size", size, "--fill", "zeros"];
        Self::start_as(origin, point, &[flash], &new, Backend::Auto, &[("HEADPOND_WITHOUT_HOLDER", "1")])
    }

    /// Mounts `origin` at `point` with a new pool on block devices, whose content it overwrites. `redundancy` is the
    /// word for where dirty data lies.
    pub fn start_on_devices(origin: &Path, point: &Path, devices: &[&Path], redundancy: &str) -> Outcome<Self> {
        Self::start_as(origin, point, devices, &["--format", "--redundancy", redundancy], Backend::Auto, &[])
    }

    /// With arguments for a new pool. None: it is an old one.
    fn start_as(
        origin: &Path,
        point: &Path,
        flashes: &[&Path],
        new: &[&str],
        backend: Backend,
        with: &[(&str, &str)],
    ) -> Outcome<Self> {
        std::fs::create_dir_all(origin)?;
        std::fs::create_dir_all(point)?;
        let mut mount = Command::new(program()?);
        mount.arg("mount").arg(origin).arg(point).arg("--background").args(new);
        flashes.iter().for_each(|flash| {
            mount.arg("--flash").arg(flash);
        });
        mount.args(["--backend", backend::argument(backend)]).envs(with.iter().copied());
        finished(&mut mount)?;
        let pid = status(point)?["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
        let daemon = pid.and_then(Pid::from_raw).ok_or("the mount does not tell its process")?;
        let mount = Self { point: point.to_owned(), daemon };
        if !new.is_empty() {
            // What is read as hits is written in order first, and would pass by as a stream. Kept over restarts.
            mount.set("sequential-cutoff=off")?;
        }
        Ok(mount)
    }

    /// Changes a setting.
    pub fn set(&self, setting: &str) -> Outcome<()> {
        finished(Command::new(program()?).arg("set").arg(&self.point).arg(setting)).map(drop)
    }

    /// Adds a rule.
    pub fn add_rule(&self, words: &[&str]) -> Outcome<()> {
        finished(Command::new(program()?).args(["rules", "add"]).arg(&self.point).args(words)).map(drop)
    }

    /// Its mount point.
    pub fn point(&self) -> &Path {
        &self.point
    }

    /// A file seen through the mount.
    pub fn file(&self, name: &str) -> PathBuf {
        self.point.join(name)
    }

    /// One of the mount's numbers.
    pub fn number(&self, name: &str) -> Outcome<f64> {
        let text = std::fs::read_to_string(self.point.join(".headpond/stats"))?;
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        Ok(value.ok_or_else(|| format!("the mount has no number {name}"))?.trim().parse()?)
    }

    /// Processor time of the daemon up to now, in seconds.
    pub fn processor_seconds(&self) -> f64 {
        processor::seconds(processor::ticks_of(self.daemon.as_raw_nonzero().get().unsigned_abs()))
    }

    /// The same in nanoseconds, by its threads of now, or by those of this name.
    pub fn processor_nanos(&self, thread: Option<&str>) -> f64 {
        processor::nanos_of_threads(self.daemon.as_raw_nonzero().get().unsigned_abs(), thread) as f64
    }

    /// A command of `headpond` about this mount.
    pub fn command(&self, name: &str) -> Outcome<Command> {
        let mut command = Command::new(program()?);
        command.arg(name).arg(&self.point);
        Ok(command)
    }

    /// What the mount tells of itself.
    pub fn status(&self) -> Outcome<Value> {
        status(&self.point)
    }

    /// Brings everything to the origin.
    pub fn flush(&self) -> Outcome<()> {
        finished(Command::new(program()?).arg("flush").arg(&self.point)).map(drop)
    }

    /// Kills the daemon, as a crash would, waits until it is gone (its last writes have to end), and clears
    /// away the rest of the mount.
    pub fn crash(self) -> Outcome<()> {
        kill_process(self.daemon, Signal::KILL)?;
        let until = Instant::now() + READY_MAX;
        while test_kill_process(self.daemon).is_ok() {
            if Instant::now() > until {
                return Err("the daemon was killed and does not go".into());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        finished(Command::new("umount").arg("--lazy").arg(&self.point))?;
        std::mem::forget(self);
        Ok(())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Ok(program) = program() {
            let _ = finished(Command::new(program).arg("unmount").arg("--keep-dirty").arg(&self.point));
        }
    }
}

fn status(point: &Path) -> Outcome<Value> {
    let text = finished(Command::new(program()?).arg("status").arg(point).arg("--json"))?;
    Ok(serde_json::from_str(&text)?)
}
