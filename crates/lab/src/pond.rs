//! headpond as a user runs it: its commands, and the figures of `headpond status --json`.
//!
//! Invariant: the drop of the owner takes the mount down, even after the daemon was killed.

use crate::command;
use crate::failure::{Failure, Result};
use crate::service::Service;
use serde_json::Value;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// How long a mount may take: recovery reads the tail of the log.
const MOUNT_MAX: Duration = Duration::from_secs(60);
/// What `headpond unmount` says when something still has a file open there.
const BUSY: &str = "exit status: 70";
/// How long that may go on once everything that used the mount has ended.
const BUSY_MAX: Duration = Duration::from_secs(20);
/// How often it is tried again meanwhile.
const LOOK: Duration = Duration::from_millis(100);
/// How long the daemon may take to end after the unmount.
const END_MAX: Duration = Duration::from_secs(60);

/// Where the program is.
#[derive(Clone, Debug)]
pub struct Headpond {
    program: PathBuf,
}

/// What to mount.
#[derive(Clone, Debug)]
pub struct Mounting {
    /// The slow directory.
    pub origin: PathBuf,
    /// Where it appears with headpond in front.
    pub mountpoint: PathBuf,
    /// The flash: a file or a device.
    pub flash: PathBuf,
    /// The other devices of the pool.
    pub others: Vec<PathBuf>,
    /// The size of each flash file, if the mount makes it.
    pub size: Option<String>,
    /// The cache mode.
    pub mode: &'static str,
    /// What a pool of several devices does for dirty data; none: what the pool has, or `mirror`.
    pub redundancy: Option<&'static str>,
    /// The disk that the origin is made to behave like.
    pub model_disk: Option<String>,
    /// What is wrong with the flash, in the words of `--test-fault`.
    pub fault: Option<String>,
    /// Where the daemon's messages go.
    pub log: PathBuf,
}

impl Mounting {
    /// In write-back, with everything below one directory, which is made so that a server under another account can
    /// pass through.
    pub fn below(directory: &Path, size: &str) -> Result<Self> {
        Self::on(directory, directory, size)
    }

    /// The same with the origin on the storage at another directory.
    pub fn on(storage: &Path, directory: &Path, size: &str) -> Result<Self> {
        std::fs::create_dir_all(directory)
            .and_then(|()| std::fs::set_permissions(directory, Permissions::from_mode(0o755)))
            .map_err(Failure::io(format!("making {}", directory.display())))?;
        Ok(Self {
            origin: directory_in(storage, "origin")?,
            mountpoint: directory_in(directory, "mnt")?,
            flash: directory.join("flash.pond"),
            others: Vec::new(),
            size: Some(size.to_owned()),
            mode: "write-back",
            redundancy: None,
            model_disk: None,
            fault: None,
            log: directory.join("headpond.log"),
        })
    }
}

/// A directory in another, made if it is missing, through which everybody can pass.
pub fn directory_in(parent: &Path, name: &str) -> Result<PathBuf> {
    let path = parent.join(name);
    std::fs::create_dir_all(&path)
        .and_then(|()| std::fs::set_permissions(&path, Permissions::from_mode(0o755)))
        .map_err(Failure::io(format!("making {}", path.display())))?;
    Ok(path)
}

/// What a mount has counted since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    /// Reads and writes that the mount has answered for applications.
    pub requests: u64,
    /// Read requests to the origin.
    pub origin_reads: u64,
    /// Write requests to the origin.
    pub origin_writes: u64,
    /// Bytes read from the origin.
    pub origin_read_bytes: u64,
    /// Bytes written to the origin.
    pub origin_write_bytes: u64,
    /// Bytes written to the flash.
    pub flash_write_bytes: u64,
    /// Blocks that reads found on flash.
    pub hit_blocks: u64,
    /// Blocks that reads had to fetch from the origin.
    pub miss_blocks: u64,
    /// Blocks that are newer than the origin's, now.
    pub dirty_blocks: u64,
    /// Blocks that the pool holds, clean and dirty, now.
    pub held_blocks: u64,
    /// Writes that had to wait for room or for destage.
    pub stalls: u64,
    /// Entries of the log that no sync of the flash covers yet, now.
    pub unsynced_entries: u64,
}

/// The processes of a mount.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Deserialize)]
pub struct Lives {
    /// The one that keeps the mount alive.
    pub holder: u32,
    /// The one that serves.
    #[serde(rename = "pid")]
    pub worker: u32,
    /// How many workers were there before it.
    pub takeovers: u64,
}

impl Headpond {
    /// The `headpond` that was built together with the running program.
    pub fn beside_this_program() -> Result<Self> {
        let this = std::env::current_exe().map_err(Failure::io("looking for the running program"))?;
        let program = this.with_file_name("headpond");
        if program.exists() {
            return Ok(Self { program });
        }
        Err(Failure::Other(format!(
            "{} is missing: build it with `cargo build --release --bin headpond`",
            program.display()
        )))
    }

    /// The `headpond` at `program`.
    #[must_use]
    pub fn at(program: PathBuf) -> Self {
        Self { program }
    }

    /// The program itself.
    #[must_use]
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// The version, as the program tells it.
    pub fn version(&self) -> Result<String> {
        let text = command::run("asking headpond's version", Command::new(&self.program).arg("--version"))?;
        Ok(text.trim().to_owned())
    }

    /// Mounts, with the daemon as a child of this process, and waits until the mount answers.
    pub fn mount(&self, what: &Mounting) -> Result<Mount> {
        self.mount_with(what, &[])
    }

    /// The same with further options.
    pub fn mount_with(&self, what: &Mounting, more: &[&str]) -> Result<Mount> {
        let mut mount = self.begin_mount(what, more)?;
        mount.wait_until_it_answers(MOUNT_MAX)?;
        Ok(mount)
    }

    /// Begins to mount, and kills the daemon a little later, wherever it is then: in its recovery, or
    /// serving already.
    pub fn kill_while_mounting(&self, what: &Mounting, after: Duration) -> Result<()> {
        let mount = self.begin_mount(what, &[])?;
        std::thread::sleep(after);
        mount.kill();
        Ok(())
    }

    /// The mount that a process serves which another command has started, or will serve once it is its turn.
    #[must_use]
    pub fn served_by(&self, service: Service, mountpoint: &Path) -> Mount {
        Mount { headpond: self.clone(), mountpoint: mountpoint.to_owned(), service, mounted: true }
    }

    fn begin_mount(&self, what: &Mounting, more: &[&str]) -> Result<Mount> {
        std::fs::create_dir_all(&what.mountpoint)
            .map_err(Failure::io(format!("making {}", what.mountpoint.display())))?;
        let mut command = Command::new(&self.program);
        command.arg("mount").arg(&what.origin).arg(&what.mountpoint).arg("--flash").arg(&what.flash);
        what.others.iter().for_each(|other| {
            command.arg("--flash").arg(other);
        });
        command.args(what.size.iter().flat_map(|size| ["--size", size]));
        command.args(["--mode", what.mode]).args(more);
        command.args(what.redundancy.iter().flat_map(|redundancy| ["--redundancy", redundancy]));
        command.args(what.model_disk.iter().flat_map(|disk| ["--model-disk", disk]));
        command.args(what.fault.iter().flat_map(|fault| ["--test-fault", fault]));
        if rustix::process::geteuid().is_root() {
            // The database server runs under another account.
            command.arg("--allow-other");
        }
        let service = Service::start("headpond mount", command, &what.log)?;
        Ok(Mount { headpond: self.clone(), mountpoint: what.mountpoint.clone(), service, mounted: true })
    }

    /// How many torn batches, never synced, a pool that is not in use will drop from its log at its next start. Fails
    /// if anything is lost, unless `may_lose`: a pool that has taken torn batches for whole has lost what they tore.
    pub fn dropped_batches(&self, flash: &Path, may_lose: bool) -> Result<u64> {
        let mut check = Command::new(&self.program);
        check.arg("check").arg(flash).args(["--json", "--quiet"]);
        // Its exit status tells of every torn block, harmless or not; the report tells them apart.
        let output = command::detach(&mut check).output().map_err(Failure::io("looking at the pool"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let report = serde_json::from_str::<Value>(&text).unwrap_or_default();
        let harmless = ["sound", "harmless"].map(Value::from).contains(&report["verdict"]);
        let told = text.to_string() + &String::from_utf8_lossy(&output.stderr);
        report["dropped_batches"]
            .as_u64()
            .filter(|_| harmless || may_lose && report["verdict"] == "loss")
            .ok_or_else(|| command::failed("looking at the pool", &check, output.status, &told))
    }

    fn figures(&self, mountpoint: &Path) -> Result<Figures> {
        let mut status = Command::new(&self.program);
        status.arg("status").arg(mountpoint).arg("--json");
        let text = command::run("asking headpond's status", &mut status)?;
        figures(&text)
    }
}

/// A directory with headpond in front.
pub struct Mount {
    headpond: Headpond,
    mountpoint: PathBuf,
    service: Service,
    mounted: bool,
}

impl Mount {
    /// The mount's command as it would be typed.
    #[must_use]
    pub fn typed(&self) -> String {
        self.service.typed()
    }

    /// The process that serves.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.service.children().first().copied().unwrap_or_else(|| self.service.pid())
    }

    /// Kills the process that serves, and nothing else: another one takes over. Returns the process, if there was one.
    pub fn kill_worker(&self) -> Option<u32> {
        let worker = self.service.children().first().copied()?;
        let pid = rustix::process::Pid::from_raw(i32::try_from(worker).ok()?)?;
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).ok().map(|()| worker)
    }

    /// Kills the process that keeps the mount alive, and the one that serves with it. The dead mount stays.
    pub fn kill_holder(&mut self) {
        self.service.kill();
    }

    /// Whether the process that keeps the mount alive is there.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.service.is_running()
    }

    /// The processes of the mount, as `headpond status` tells them.
    pub fn lives(&self) -> Result<Lives> {
        let text = self.status()?;
        let lives: Lives = serde_json::from_str(&text)
            .map_err(|error| Failure::Other(format!("headpond status --json: {error}:\n{text}")))?;
        if lives.holder == self.service.pid() {
            return Ok(lives);
        }
        Err(Failure::Other(format!("process {} holds the mount, and not {}", lives.holder, self.service.pid())))
    }

    /// Waits until it answers. Fails if its process ends before.
    pub fn wait_until_it_answers(&mut self, limit: Duration) -> Result<()> {
        let (headpond, mountpoint) = (self.headpond.clone(), self.mountpoint.clone());
        self.service.wait_until(limit, || headpond.figures(&mountpoint).is_ok())
    }

    /// Whether the kernel has a mount there, alive or dead.
    #[must_use]
    pub fn is_mounted(&self) -> bool {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        mounts.lines().any(|line| line.split(' ').nth(4).map(Path::new) == Some(&self.mountpoint))
    }

    /// What the owner's lease is, as in `headpond status`.
    pub fn lease(&self) -> Result<String> {
        let status: Value = serde_json::from_str(&self.status()?).unwrap_or_default();
        Ok(status["lease"].as_str().unwrap_or_default().to_owned())
    }

    /// What `headpond status` says to people, whatever its exit status is.
    pub fn status_shown(&self) -> Result<String> {
        let mut status = Command::new(&self.headpond.program);
        let output = command::detach(&mut status).arg("status").arg(&self.mountpoint).output();
        let output = output.map_err(Failure::io("asking headpond's status"))?;
        Ok(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    }

    /// What `headpond status` says to programs.
    fn status(&self) -> Result<String> {
        let mut status = Command::new(&self.headpond.program);
        command::run("asking headpond's status", status.arg("status").arg(&self.mountpoint).arg("--json"))
    }

    /// Lets another worker of the same program take over.
    pub fn upgrade(&self) -> Result<()> {
        let mut upgrade = Command::new(&self.headpond.program);
        command::run("upgrading the mount", upgrade.arg("upgrade").arg(&self.mountpoint)).map(drop)
    }

    /// The same, and does not wait for it.
    pub fn begin_upgrade(&self) -> Result<Service> {
        let mut upgrade = Command::new(&self.headpond.program);
        upgrade.arg("upgrade").arg(&self.mountpoint);
        Service::start("headpond upgrade", upgrade, &self.mountpoint.with_file_name("upgrade.log"))
    }

    /// What the mount has counted.
    pub fn figures(&self) -> Result<Figures> {
        self.headpond.figures(&self.mountpoint)
    }

    /// Writes everything to the origin, then unmounts. The origin is complete afterwards.
    pub fn unmount(mut self) -> Result<()> {
        self.take_down(&[])
    }

    /// Unmounts at once. Dirty data stays on the flash.
    pub fn unmount_keep_dirty(mut self) -> Result<()> {
        self.take_down(&["--keep-dirty"])
    }

    /// The same, of a mount that somebody keeps. With `--keep-dirty` dirty data stays on the flash.
    pub(crate) fn take_down(&mut self, flags: &[&str]) -> Result<()> {
        let mut unmount = Command::new(&self.headpond.program);
        unmount.arg("unmount").arg(&self.mountpoint).args(flags);
        let start = Instant::now();
        while let Err(failure) = command::run("unmounting", &mut unmount) {
            // The kernel closes a killed server's files some time after it has ended, as far as an io_uring holds them.
            let busy = matches!(&failure, Failure::Command { status, .. } if status == BUSY);
            if !busy || start.elapsed() > BUSY_MAX {
                return Err(failure);
            }
            std::thread::sleep(LOOK);
        }
        self.mounted = false;
        self.service.wait_for_end(END_MAX)
    }

    /// Starts a command on this mount, as in `set MOUNTPOINT mode=write-around`, and returns while it runs.
    pub fn start(&self, name: &str, more: &[&str], log: &Path) -> Result<Service> {
        let mut command = Command::new(&self.headpond.program);
        command.arg(name).arg(&self.mountpoint).args(more);
        Service::start(&format!("headpond {name}"), command, log)
    }

    /// Makes a device of the pool fail, in the words of `headpond fault`. The mount was made with a fault of `none`.
    pub fn fault(&self, flash: &Path, fault: &str) -> Result<()> {
        let mut command = Command::new(&self.headpond.program);
        command.arg("fault").arg(&self.mountpoint).arg(fault).arg("--flash").arg(flash);
        command::run("making a device fail", &mut command).map(drop)
    }

    /// The state of a device of the pool, as in `headpond pool status`.
    pub fn device_state(&self, flash: &Path) -> Result<String> {
        let (pool, text) = self.pool()?;
        let mut members = pool["members"].as_array().into_iter().flatten();
        let found = members.find(|member| member["flash"].as_str().map(Path::new) == Some(flash));
        found
            .and_then(|member| member["state"].as_str())
            .map(ToOwned::to_owned)
            .ok_or_else(|| Failure::Other(format!("the pool does not know {}:\n{text}", flash.display())))
    }

    /// The state of the pool, as in `headpond pool status`.
    pub fn pool_state(&self) -> Result<String> {
        Ok(self.pool()?.0["state"].as_str().unwrap_or_default().to_owned())
    }

    /// The devices that the pool misses, by the names under which it knows them.
    pub fn missed_devices(&self) -> Result<Vec<String>> {
        let (pool, _) = self.pool()?;
        let members = pool["members"].as_array().into_iter().flatten();
        let missed = members.filter(|member| member["missed_since"].as_str().is_some_and(|since| !since.is_empty()));
        Ok(missed.filter_map(|member| member["flash"].as_str()).map(ToOwned::to_owned).collect())
    }

    /// `headpond pool remove`: of a device that is missed, that it is wanted no more.
    pub fn remove_device(&self, device: &str) -> Result<()> {
        let mut remove = Command::new(&self.headpond.program);
        remove.args(["pool", "remove"]).arg(&self.mountpoint).args([device, "--quiet"]);
        command::run("removing a device", &mut remove).map(drop)
    }

    /// What `headpond pool status` says, and its words.
    fn pool(&self) -> Result<(Value, String)> {
        let mut status = Command::new(&self.headpond.program);
        let text =
            command::run("asking for the pool", status.args(["pool", "status"]).arg(&self.mountpoint).arg("--json"))?;
        Ok((serde_json::from_str(&text).unwrap_or_default(), text))
    }

    /// `headpond pool replace`, which ends once the old device is out of the pool.
    pub fn replace_device(&self, old: &Path, new: &Path, size: &str) -> Result<()> {
        let mut replace = Command::new(&self.headpond.program);
        replace.args(["pool", "replace"]).arg(&self.mountpoint).args([old, new]).args(["--size", size, "--quiet"]);
        command::run("replacing a device", &mut replace).map(drop)
    }

    /// Begins `headpond pool wait`, which ends once all dirty data has its copies, and tells how the pool is then.
    pub fn begin_pool_wait(&self, log: &Path) -> Result<Service> {
        let mut wait = Command::new(&self.headpond.program);
        wait.args(["pool", "wait"]).arg(&self.mountpoint).args(["--quiet", "--json"]);
        Service::start("headpond pool wait", wait, log)
    }

    /// Numbers of the mount by their names, as in `headpond stats`.
    pub fn numbers<const N: usize>(&self, names: [&str; N]) -> Result<[u64; N]> {
        let mut stats = Command::new(&self.headpond.program);
        let text = command::run("asking for numbers", stats.arg("stats").arg(&self.mountpoint).arg("--json"))?;
        let told: Value = serde_json::from_str(&text).unwrap_or_default();
        let missing = |name: &str| Failure::Other(format!("headpond stats --json has no number '{name}':\n{text}"));
        let mut numbers = [0; N];
        for (number, name) in numbers.iter_mut().zip(names) {
            *number = told["metrics"][name].as_f64().ok_or_else(|| missing(name))? as u64;
        }
        Ok(numbers)
    }

    /// Changes settings, as in `flush-period=off`.
    pub fn set(&self, settings: &[&str]) -> Result<()> {
        let mut set = Command::new(&self.headpond.program);
        command::run("changing settings", set.arg("set").arg(&self.mountpoint).args(settings)).map(drop)
    }

    /// Writes everything to the origin, and waits for that.
    pub fn flush(&self) -> Result<()> {
        let mut flush = Command::new(&self.headpond.program);
        command::run("flushing", flush.arg("flush").arg(&self.mountpoint).arg("--quiet")).map(drop)
    }

    /// Begins a flush of everything dirty, and returns its handle.
    pub fn begin_flush(&self) -> Result<u64> {
        let mut flush = Command::new(&self.headpond.program);
        flush.arg("flush").arg(&self.mountpoint).args(["--background", "--json"]);
        let text = command::run("beginning a flush", &mut flush)?;
        serde_json::from_str::<Value>(&text)
            .ok()
            .and_then(|answer| answer["handle"].as_u64())
            .ok_or_else(|| Failure::Other(format!("headpond flush --json gave no handle:\n{text}")))
    }

    /// Ends a flush, if it is still under way. Returns whether it was.
    pub fn cancel_flush(&self, handle: u64) -> bool {
        let mut cancel = Command::new(&self.headpond.program);
        cancel.arg("flush").arg(&self.mountpoint).arg("--cancel").arg(handle.to_string());
        command::run("ending a flush", &mut cancel).is_ok()
    }

    /// Kills the daemon at once, as a crash would, and takes the dead mount out of the way.
    pub fn kill(mut self) {
        self.kill_holder();
        detach(&self.mountpoint);
        self.mounted = false;
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if self.mounted && self.take_down(&["--keep-dirty"]).is_err() {
            detach(&self.mountpoint);
        }
    }
}

/// Takes a mount away whose daemon does not answer.
pub fn detach(mountpoint: &Path) {
    let mut unmount = if rustix::process::geteuid().is_root() {
        let mut unmount = Command::new("umount");
        unmount.arg("--lazy");
        unmount
    } else {
        let mut unmount = Command::new("fusermount3");
        unmount.args(["-u", "-z"]);
        unmount
    };
    // It fails if the mount is gone already, which is as good.
    let _ = command::run("detaching the mount", unmount.arg(mountpoint));
}

fn figures(json: &str) -> Result<Figures> {
    let status: Value = serde_json::from_str(json)
        .map_err(|error| Failure::Other(format!("headpond status --json: {error}:\n{json}")))?;
    let number = |name: &str| {
        find(&status, name)
            .ok_or_else(|| Failure::Other(format!("headpond status --json has no number '{name}':\n{json}")))
    };
    Ok(Figures {
        requests: number("reads")? + number("writes")?,
        origin_reads: number("origin_reads")?,
        origin_writes: number("origin_writes")?,
        origin_read_bytes: number("origin_read_bytes")?,
        origin_write_bytes: number("origin_write_bytes")?,
        flash_write_bytes: number("flash_write_bytes")?,
        hit_blocks: number("read_hits_blocks")?,
        miss_blocks: number("read_miss_blocks")?,
        dirty_blocks: number("dirty_blocks")?,
        held_blocks: number("used_blocks")?,
        stalls: number("stalls")?,
        unsynced_entries: number("last_entry")?.saturating_sub(number("durable_entry")?),
    })
}

/// The number of that name, in whichever group of the status it stands.
fn find(value: &Value, name: &str) -> Option<u64> {
    let object = value.as_object()?;
    object.get(name).and_then(Value::as_u64).or_else(|| object.values().find_map(|inner| find(inner, name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_in_whichever_group_they_stand() {
        let json = r#"{"mode":"write-back","used_blocks":9,"engine":{"read_hits_blocks":7,"read_miss_blocks":1,"dirty_blocks":3,"stalls":2,"reads":8,"writes":4,"last_entry":12,"durable_entry":9},
            "origin":{"origin_reads":5,"origin_writes":6,"origin_read_bytes":20480,"origin_write_bytes":24576},
            "flash":{"flash_write_bytes":4096}}"#;
        let figures = figures(json).expect("all are there");
        assert_eq!((figures.hit_blocks, figures.origin_writes, figures.dirty_blocks), (7, 6, 3));
        assert_eq!((figures.held_blocks, figures.stalls, figures.flash_write_bytes), (9, 2, 4096));
        assert_eq!((figures.requests, figures.unsynced_entries), (12, 3));
    }

    #[test]
    fn a_status_that_lacks_a_figure_is_an_error_and_not_a_zero() {
        let error = figures(r#"{"reads":1,"writes":1,"origin_reads":5}"#).expect_err("most are missing");
        assert!(error.to_string().contains("origin_writes"), "{error}");
    }
}
