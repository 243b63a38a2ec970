//! `mount.headpond ORIGIN MOUNTPOINT [-sfnv] [-o OPTIONS]`, which `mount -t headpond` and a line in `/etc/fstab` run.
//!
//! Invariant: a mount with fewer limits than asked for does not stay.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use clap::Parser;
use headpond_control::{Refusal, log_line};
use rustix::fs::{StatVfsMountFlags, statvfs};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount_remount};

use super::options::{self, Options};
use super::{Arguments, Failure};
use crate::args::{Cli, UnmountArgs};
use crate::unmount;

/// Mounts in the background, or only checks the command line (`-f`).
pub(super) fn run(arguments: &[OsString]) -> Result<(), Failure> {
    let given = Arguments::parse(arguments, "sfnv")?;
    let [origin, mountpoint] = given.paths.as_slice() else {
        return Err(Failure::Usage("a mount needs an origin and a mount point".to_owned()));
    };
    let options = options::parse(&given.options, given.has('s'))?;
    let line = command_line(origin, mountpoint, &options);
    if given.has('v') {
        log_line(format_args!("{line:?}"));
    }
    if given.has('f') {
        let checked = Cli::try_parse_from(std::iter::once(&OsString::from("headpond")).chain(&line));
        return checked.map(drop).map_err(|error| Failure::Usage(error.to_string()));
    }
    let ended = headpond()?.args(&line).status().map_err(|error| failed("start headpond", error))?;
    if !ended.success() {
        return Err(Failure::Said(ended.code()));
    }
    let mountpoint = Path::new(mountpoint);
    limit(mountpoint, options.limits).map_err(|error| {
        let mountpoint = mountpoint.to_owned();
        // It was mounted a moment ago: what an unmount refuses, a person must look at.
        let left = unmount::run(&UnmountArgs { mountpoint: mountpoint.clone(), keep_dirty: true, quiet: true });
        let refusal = match error {
            Errno::PERM => Refusal::NoPermission {
                what: format!("limit the mount at {}", mountpoint.display()),
                advice: "Only root can add ro and noexec. The option user means noexec, too: write user,exec."
                    .to_owned(),
            },
            error => failed(&format!("limit the mount at {} as its options say", mountpoint.display()), error.into()),
        };
        left.err().unwrap_or(refusal).into()
    })
}

/// This program under its own name.
fn headpond() -> Result<Command, Refusal> {
    let own = std::env::current_exe().map_err(|error| failed("find headpond", error))?;
    let mut command = Command::new(own);
    command.arg0("headpond");
    // `mount` takes it away when an ordinary user runs it, and fusermount3 must be found.
    if std::env::var_os("PATH").is_none() {
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    }
    Ok(command)
}

fn failed(doing: &str, error: io::Error) -> Refusal {
    Refusal::Failed { doing: doing.to_owned(), error }
}

/// The same mount as a command line of headpond's own, which begins with the command.
fn command_line(origin: &OsString, mountpoint: &OsString, options: &Options) -> Vec<OsString> {
    let mut line: Vec<OsString> = vec!["mount".into(), "--background".into()];
    line.extend(options.arguments.iter().cloned());
    line.extend(["--".into(), origin.clone(), mountpoint.clone()]);
    line
}

/// What a remount takes away from a mount if it does not name it.
const KEPT: [(StatVfsMountFlags, MountFlags); 5] = [
    (StatVfsMountFlags::RDONLY, MountFlags::RDONLY),
    (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
    (StatVfsMountFlags::NODEV, MountFlags::NODEV),
    (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
    (StatVfsMountFlags::NOATIME, MountFlags::NOATIME),
];

/// Adds limits to a mount that stands. An ordinary user's mount has two of them by itself, and can get no more.
fn limit(mountpoint: &Path, limits: MountFlags) -> rustix::io::Result<()> {
    if limits.is_empty() {
        return Ok(());
    }
    let flags = statvfs(mountpoint)?.f_flag;
    let has: MountFlags = KEPT.into_iter().filter(|(flag, _)| flags.contains(*flag)).map(|(_, flag)| flag).collect();
    if has.contains(limits) {
        return Ok(());
    }
    mount_remount(mountpoint, MountFlags::BIND | has | limits, "")
}
