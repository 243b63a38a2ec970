//! Block devices for tests, made of files: as flash, or with a file system on them as an origin that
//! can lose power. Needs root and a free loop device.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::lacking::lacks_nothing;

/// A loop device over a file, and what is mounted from it.
pub struct Loop {
    device: PathBuf,
    mounted: Vec<PathBuf>,
}

impl Loop {
    /// Over a file that is there. `None` where this user has no loop devices.
    pub fn over(file: &Path) -> Option<Self> {
        let output = Command::new("losetup").args(["--find", "--show"]).arg(file).output();
        let failed = match &output {
            Ok(output) if output.status.success() => None,
            Ok(output) => Some(String::from_utf8_lossy(&output.stderr).into_owned()),
            Err(error) => Some(error.to_string()),
        };
        if !lacks_nothing(failed.map(|failed| format!("a loop device: {failed}"))) {
            return None;
        }
        let output = output.unwrap();
        let device = PathBuf::from(String::from_utf8(output.stdout).unwrap().trim());
        Some(Self { device, mounted: Vec::new() })
    }

    pub fn device(&self) -> &Path {
        &self.device
    }

    /// Mounts it with these options.
    pub fn mount(&mut self, on: &Path, options: &str) {
        run(Command::new("mount").args(["-o", options]).arg(&self.device).arg(on));
        self.mounted.push(on.to_owned());
    }

    /// Takes away what is mounted from it, which must succeed at once.
    #[track_caller]
    pub fn unmount(&mut self) {
        for on in self.mounted.drain(..).rev() {
            run(Command::new("umount").arg(on));
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        for on in self.mounted.drain(..).rev() {
            // Of a daemon that was just killed, or that a failed test left, something may still be open here.
            let started = Instant::now();
            let gone =
                || Command::new("umount").arg(&on).stderr(Stdio::null()).status().is_ok_and(|status| status.success());
            while !gone() {
                if started.elapsed() > Duration::from_secs(10) {
                    let _ = Command::new("umount").arg("--lazy").arg(&on).status();
                    break;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        let _ = Command::new("losetup").arg("--detach").arg(&self.device).status();
    }
}

/// A file of `bytes` with an empty ext4 in it.
pub fn make_ext4(file: &Path, bytes: u64) {
    std::fs::File::create(file).unwrap().set_len(bytes).unwrap();
    run(Command::new("mkfs.ext4").args(["-q", "-F", "-E", "lazy_itable_init=0"]).arg(file));
}

/// Whether a program is there, which may be one of the administrator's.
pub fn has(program: &str) -> bool {
    let there = path_with_sbin().split(':').any(|dir| Path::new(dir).join(program).exists());
    lacks_nothing((!there).then_some(program))
}

/// What became of a program, which may be one of the administrator's.
pub fn output(command: &mut Command) -> Output {
    command.env("PATH", path_with_sbin()).output().unwrap()
}

#[track_caller]
pub fn run(command: &mut Command) {
    let output = output(command);
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn path_with_sbin() -> String {
    format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default())
}
