//! A machine that refuses io_uring, as large distributions and containers do by default: the mount works without it,
//! and `doctor` says why. A filter on the system call stands in for the machine.

// The filter is installed between fork and exec.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_ulong};
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use crate::lacking::has_root;
use crate::pond::{Pond, SIZE, Said, headpond};

/// A step of a filter (linux/filter.h).
#[repr(C)]
struct Step {
    code: u16,
    if_true: u8,
    if_false: u8,
    value: u32,
}

/// A filter (linux/filter.h).
#[repr(C)]
struct Program {
    len: u16,
    steps: *const Step,
}

/// The same on all architectures.
const IO_URING_SETUP: u32 = 425;

const LOAD_WORD: u16 = 0x20;
const JUMP_IF_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;

const SECCOMP_RET_ERRNO: u32 = 0x0005_0000;
const SECCOMP_RET_ALLOW: u32 = 0x7fff_0000;

const PR_SET_NO_NEW_PRIVS: c_int = 38;
const PR_SET_SECCOMP: c_int = 22;
const SECCOMP_MODE_FILTER: c_ulong = 2;

unsafe extern "C" {
    fn prctl(option: c_int, ...) -> c_int;
}

/// Refuses `io_uring_setup` to a command and all that it starts.
fn without_io_uring(command: &mut Command, errno: u32) -> &mut Command {
    let filter = move || {
        let step = |code, if_true, if_false, value| Step { code, if_true, if_false, value };
        let steps = [
            // The number of the system call is the first word.
            step(LOAD_WORD, 0, 0, 0),
            step(JUMP_IF_EQUAL, 0, 1, IO_URING_SETUP),
            step(RETURN, 0, 0, SECCOMP_RET_ERRNO | errno),
            step(RETURN, 0, 0, SECCOMP_RET_ALLOW),
        ];
        let program = Program { len: 4, steps: steps.as_ptr() };
        let (one, zero): (c_ulong, c_ulong) = (1, 0);
        // SAFETY: these options take numbers, and a filter that lives until the call returns.
        let installed = unsafe {
            prctl(PR_SET_NO_NEW_PRIVS, one, zero, zero, zero) == 0
                && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &raw const program, zero, zero) == 0
        };
        if installed { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    // SAFETY: the closure only calls the kernel, and touches no memory but its own stack.
    unsafe { command.pre_exec(filter) }
}

fn doctor(errno: u32, arguments: &[&str]) -> Said {
    without_io_uring(headpond().arg("doctor").args(arguments), errno).stdin(Stdio::null()).output().unwrap().into()
}

#[test]
fn the_doctor_names_what_refuses_io_uring_what_allows_it_and_what_it_costs() {
    for (errno, name) in [(1, "EPERM"), (38, "ENOSYS")] {
        let said = doctor(errno, &[]);
        for part in [name, "psync", "docs/benchmarks.md"] {
            assert!(said.ok().text.contains(part), "'{part}' is missing in:\n{}", said.text);
        }
        let found = doctor(errno, &["--json"]).json();
        assert_eq!(found["io_uring"]["usable"], false, "{found}");
        assert_eq!((&found["io_uring"]["backend"], &found["io_uring"]["error"]), (&"psync".into(), &name.into()));
        assert!(found["io_uring"]["allow"].as_array().is_some_and(|ways| !ways.is_empty()), "{found}");
    }
}

#[test]
fn a_mount_that_gets_no_io_uring_takes_psync_by_itself_and_says_so() {
    // The filter goes with it that programs gain no rights, so fusermount3 could not mount.
    if !has_root("as fusermount3 does not work below a filter") {
        return;
    }
    let pond = Pond::new();
    let mount = |backend: &str| -> Said {
        let mut command = headpond();
        command.arg("mount").arg(pond.origin()).arg(pond.mnt()).arg("--flash").arg(pond.flash());
        command.args(["--size", SIZE, "--backend", backend, "--background", "--log"]).arg(pond.at("log"));
        without_io_uring(&mut command, 1).stdin(Stdio::null()).output().unwrap().into()
    };
    mount("uring").refused(30, &["refuses io_uring", "psync"]);
    let said = mount("auto");
    assert!(said.ok().text.contains("headpond doctor"), "{}", said.text);
    assert_eq!(pond.status()["backend"], "psync");
    fs::write(pond.mnt().join("file"), b"through threads").unwrap();
    assert_eq!(fs::read(pond.mnt().join("file")).unwrap(), b"through threads");
    pond.unmount(&[]).ok();
    assert_eq!(fs::read(pond.origin().join("file")).unwrap(), b"through threads");
}
