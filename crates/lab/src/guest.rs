//! A guest of User Mode Linux: another kernel as a process. It has file systems and servers that this machine's
//! kernel lacks, and takes power cuts that this machine must not take.
//!
//! It boots with this machine's root read-only, a script as init, and a disk if it is given one. The script's output
//! comes over the console, line by line.
//!
//! Invariants
//! - It is one process group of its own, and the whole group is killed: helpers outlive their first process.
//! - It never runs longer than its limit.
//! - It changes nothing of this machine except its disks, and what its script mounts to write there. Everything else
//!   that it writes lies in its memory.

mod wide_registers;

use crate::command;
use crate::failure::{Failure, Result, check_interrupt};
use rustix::process::{Pid, Signal, kill_process_group};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// The kernel, and where its package keeps its modules.
const KERNEL: &str = "linux.uml";
const MODULES: &str = "/usr/lib/uml/modules";
/// How often it is looked whether the user, or the caller, wants an end.
const LOOK: Duration = Duration::from_millis(50);
/// Lines of the console that a failure shows.
const LINES_SHOWN: usize = 60;
/// What the script's last line begins with; its exit status follows.
const END: &str = "GUEST-END ";

/// The description of a guest.
#[derive(Clone, Debug)]
pub struct Guest {
    /// Where its disk and its scripts are made.
    pub directory: PathBuf,
    /// Modules that are loaded at the start.
    pub modules: &'static [&'static str],
    /// The image of the disk `/dev/ubda`, if it has one.
    pub disk: Option<PathBuf>,
    /// Sockets of block devices that others serve over vhost-user: `/dev/vda`, `/dev/vdb`, ...
    pub sockets: Vec<PathBuf>,
    /// What it does: a script for bash.
    pub script: String,
    /// Variables of the script.
    pub environment: Vec<(&'static str, String)>,
    /// After so long it is killed.
    pub limit: Duration,
}

/// How a guest ended that did not fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GuestEnd {
    /// Its script ended well.
    Script,
    /// It was killed because the caller wanted that.
    Killed,
}

impl Guest {
    /// Boots it and waits for its end, with a call for each line that it prints. Fails unless the script ended well.
    pub fn run(&self, each: impl FnMut(&str)) -> Result<()> {
        self.run_until(|| false, each).map(drop)
    }

    /// The same, but killed as soon as `enough`. Gives all that it printed until then.
    pub fn run_until(&self, enough: impl Fn() -> bool, mut each: impl FnMut(&str)) -> Result<GuestEnd> {
        self.watch_until(enough, |_, line| each(line))
    }

    /// The same; each call also has the guest's process group.
    pub fn watch_until(&self, enough: impl Fn() -> bool, mut each: impl FnMut(u32, &str)) -> Result<GuestEnd> {
        let mut process = Process::start(self.command()?)?;
        let group = process.0.id();
        let console = process.0.stdout.take().ok_or_else(|| Failure::Other("a guest without a console".to_owned()))?;
        let (send, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(console).split(b'\n').map_while(std::result::Result::ok) {
                let line = String::from_utf8_lossy(&line).trim_end().to_owned();
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        let start = Instant::now();
        let mut said: Vec<String> = Vec::new();
        let failed = |why: String, said: &[String]| {
            let last = said[said.len().saturating_sub(LINES_SHOWN)..].join("\n    ");
            Failure::Other(format!("the guest {why}; its console:\n    {last}"))
        };
        loop {
            check_interrupt()?;
            if enough() {
                drop(process);
                // The console ends with the guest.
                lines.iter().filter(|line| !line.starts_with(END)).for_each(|line| each(group, &line));
                return Ok(GuestEnd::Killed);
            }
            match lines.recv_timeout(LOOK) {
                Ok(line) => {
                    if let Some(status) = line.strip_prefix(END) {
                        let why = format!("ended with status {status}");
                        return if status == "0" { Ok(GuestEnd::Script) } else { Err(failed(why, &said)) };
                    }
                    each(group, &line);
                    said.push(line);
                }
                Err(RecvTimeoutError::Disconnected) => return Err(failed("stopped".to_owned(), &said)),
                Err(RecvTimeoutError::Timeout) if start.elapsed() > self.limit => {
                    return Err(failed(format!("took more than {} s", self.limit.as_secs()), &said));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    fn command(&self) -> Result<Command> {
        let write = |name: &str, text: &str| {
            let path = self.directory.join(name);
            fs::write(&path, text).map_err(Failure::io(format!("writing {}", path.display())))?;
            Ok::<_, Failure>(path)
        };
        let script = write("script.sh", &self.script)?;
        let quoted = |value: &str| value.replace('\'', r"'\''");
        let set = self.environment.iter().map(|(name, value)| format!("export {name}='{}'\n", quoted(value)));
        let set: String = set.collect();
        let init = write("init.sh", &init(&set, self.modules, &script))?;
        let mut command = Command::new(KERNEL);
        command.args(["mem=512M", "root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro", "quiet", "con=null"]);
        command.arg("con0=null,fd:1");
        if wide_registers::here() {
            command.env("LD_PRELOAD", wide_registers::library(&self.directory)?);
        }
        command.args(self.disk.iter().map(|disk| format!("ubda={}", disk.display())));
        // 2 is the number of block devices.
        command.args(self.sockets.iter().map(|socket| format!("virtio_uml.device={}:2", socket.display())));
        command.arg("init=/bin/bash").arg("--").arg(init);
        Ok(command)
    }

    /// The image of an empty disk in a directory.
    pub fn empty_disk(directory: &Path, bytes: u64) -> Result<PathBuf> {
        let disk = directory.join("disk.img");
        let made = File::create(&disk).and_then(|file| file.set_len(bytes));
        made.map(|()| disk.clone()).map_err(Failure::io(format!("making {}", disk.display())))
    }

    /// What this machine lacks for guests that use these programs, if anything.
    #[must_use]
    pub fn missing(programs: &[&str]) -> Option<String> {
        let compiler: &[&str] = if wide_registers::here() { &[wide_registers::COMPILER] } else { &[] };
        let mut missing = command::absent(&[&["modprobe", "ip"], compiler, programs].concat());
        // They come together.
        if !command::absent(&[KERNEL]).is_empty() || !Path::new(MODULES).exists() {
            missing.push(format!("{KERNEL} with its modules in {MODULES} (Debian: user-mode-linux)"));
        }
        (!missing.is_empty()).then(|| missing.join(", "))
    }
}

/// The first script: what every guest needs, then the one that was given.
fn init(set: &str, modules: &[&str], script: &Path) -> String {
    let modules = modules.join(" ");
    let script = script.display();
    format!(
        r#"export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev 2>/dev/null
for place in /tmp /run /mnt /var/lib; do mount -t tmpfs none $place; done
mkdir -p /tmp/modules/lib; ln -s {MODULES} /tmp/modules/lib/modules
for module in {modules}; do modprobe -d /tmp/modules $module || echo "no module $module"; done
ip link set lo up; hostname guest
{set}
cd /
( . {script} ); echo "{END}$?"
echo o > /proc/sysrq-trigger; sleep 60
"#
    )
}

/// Killed with all that it started when dropped.
struct Process(Child);

impl Process {
    fn start(mut command: Command) -> Result<Self> {
        command::detach(&mut command).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let child = command.spawn().map_err(|error| command::failed("starting a guest", &command, error, ""))?;
        Ok(Self(child))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Not waited for yet, so its number is still its own.
        if let Some(group) = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        let missing = Guest::missing(&["no-such-program-anywhere"]).expect("it is nowhere");
        assert!(missing.contains("no-such-program-anywhere"), "{missing}");
    }
}
