//! What root's daemon may do: what serving takes, and nothing else. Needs root, as others have nothing to give up.

use std::fs;
use std::process::Command;

use headpond_control::KEPT_CAPABILITIES;

use crate::lacking::has_root;
use crate::pond::{Pond, SIZE, Said};

/// A line of a thread's status, in hexadecimal digits.
fn bits(status: &str, name: &str) -> u64 {
    let line =
        status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("no {name} in {status}"));
    u64::from_str_radix(line.trim(), 16).unwrap()
}

#[test]
fn each_thread_of_the_daemon_has_the_capabilities_that_serving_takes_and_cannot_get_more() {
    if !has_root("whose capabilities are looked at") {
        return;
    }
    let kept = KEPT_CAPABILITIES.iter().fold(0, |all, (one, _)| all | one.bits());
    let own = bits(&fs::read_to_string("/proc/self/status").unwrap(), "CapPrm:");
    let pond = Pond::new();
    pond.mount(&["--size", SIZE, "--allow-other"]).ok();
    let process = pond.status()["pid"].as_u64().unwrap();
    let mut threads = 0;
    for thread in fs::read_dir(format!("/proc/{process}/task")).unwrap() {
        let Ok(status) = fs::read_to_string(thread.unwrap().path().join("status")) else { continue };
        for set in ["CapPrm:", "CapEff:", "CapBnd:"] {
            assert_eq!(bits(&status, set) & !kept, 0, "{set} {status}");
        }
        assert_eq!(bits(&status, "CapPrm:"), own & kept, "{status}");
        assert_eq!((bits(&status, "CapInh:"), bits(&status, "CapAmb:")), (0, 0), "{status}");
        assert_eq!(bits(&status, "NoNewPrivs:"), 1, "{status}");
        threads += 1;
    }
    assert!(threads > 5, "{threads} threads were looked at");
    pond.unmount(&[]).ok();
}

/// Done at the mount and at a plain directory, each command has to end the same way.
const DEEDS: &[&str] = &[
    "echo text > file && chmod 4755 file && chown 65533:65532 file",
    "chmod 0 file && cat file && echo more >> file",
    "touch -d 2001-01-01 file && ln file second && mv second third",
    "mknod null c 1 3 && mknod pipe p && echo x > null",
    "mkdir closed && chown 65533 closed && chmod 700 closed && echo x > closed/by-root",
    "setfattr -n trusted.a -v b file && setfattr -n user.a -v b file",
    "cp /bin/cat program && setcap cap_net_raw+ep program && getcap program | grep -q cap_net_raw",
    "mkdir shared && chmod 1777 shared && setpriv --reuid 65533 --regid 65532 --clear-groups sh -c 'echo x > shared/hers'",
    "test \"$(stat -c %u:%g shared/hers)\" = 65533:65532",
    "setpriv --reuid 65533 --regid 65532 --clear-groups cat closed/by-root",
    "setpriv --reuid 65531 --regid 65531 --clear-groups cat closed/by-root",
    "setpriv --reuid 65533 --regid 65532 --clear-groups mknod device c 1 3",
    "chmod 2775 shared && test \"$(stat -c %a shared)\" = 2775",
    "fallocate -l 100K file && truncate -s 10 file && rm -r closed third",
];

#[test]
fn with_the_capabilities_that_are_left_everything_is_done_as_on_the_origin() {
    if !has_root("whose capabilities are looked at") {
        return;
    }
    let pond = Pond::new();
    fs::set_permissions(pond.at(""), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    pond.mount(&["--size", SIZE, "--allow-other"]).ok();
    let mut differ = Vec::new();
    for deed in DEEDS {
        let [plain, mount] = [pond.at("other"), pond.mnt()].map(|place| {
            let said = Said::from(Command::new("sh").args(["-c", deed]).current_dir(place).output().unwrap());
            (said.status, said.text)
        });
        if plain != mount {
            differ.push(format!("{deed}:\n  {plain:?}\n  {mount:?}"));
        }
    }
    assert!(differ.is_empty(), "{}", differ.join("\n"));
    pond.unmount(&[]).ok();
}

#[test]
fn other_users_see_numbers_and_no_names_and_control_nothing() {
    if !has_root("to become another user") {
        return;
    }
    let pond = Pond::new();
    fs::set_permissions(pond.at(""), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    pond.mount(&["--size", SIZE, "--allow-other"]).ok();
    fs::write(pond.mnt().join("secret-name"), "x").unwrap();
    let program = pond.program(env!("CARGO_BIN_EXE_headpond"), "headpond");
    let (program, mnt) = (program.display(), pond.mnt().display().to_string());
    let as_stranger = |script: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65533", "--regid", "65533", "--clear-groups", "sh", "-c", script]);
        Said::from(command.env_remove("XDG_RUNTIME_DIR").output().unwrap())
    };
    for (text, may) in [("stats", true), ("dirty", true), ("errors", true), ("latency", true), ("settings", true)]
        .into_iter()
        .chain(["files", "processes", "rules", "whole"].map(|text| (text, false)))
    {
        let said = as_stranger(&format!("cat {mnt}/.headpond/{text}"));
        assert_eq!(said.status == 0, may, "{text}: {}", said.text);
        assert!(!said.text.contains("secret-name"), "{text}: {}", said.text);
    }
    for command in ["status", "stats", "get", "flush", "unmount", "set mode=write-through"] {
        let (verb, rest) = command.split_once(' ').unwrap_or((command, ""));
        let said = as_stranger(&format!("{program} {verb} {mnt} {rest}"));
        assert_ne!(said.status, 0, "{command}: {}", said.text);
        assert!(!said.text.contains("secret-name"), "{command}: {}", said.text);
    }
    assert_eq!(pond.status()["mode"], "write-back");
    pond.unmount(&[]).ok();
}

#[test]
fn numbers_that_other_machines_could_read_need_a_token() {
    let pond = Pond::new();
    pond.mount(&["--size", SIZE, "--http", "0.0.0.0:0"]).refused(2, &["--http-token", "127.0.0.1"]);
    assert!(!pond.flash().exists(), "a refused mount makes no pool");
    let token = pond.at("token");
    fs::write(&token, "0123456789abcdef\n").unwrap();
    fs::set_permissions(&token, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let with = ["--size", SIZE, "--metrics", "0.0.0.0:0", "--metrics-token", token.to_str().unwrap()];
    pond.mount(&with).refused(2, &["600"]);
    fs::set_permissions(&token, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    pond.mount(&with).ok();
    pond.unmount(&[]).ok();
}
