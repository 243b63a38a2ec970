//! The units for systemd in `packaging`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use headpond_control::ExitStatus;

use crate::lacking::lacks_nothing;
use crate::pond::Said;

fn packaging() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging")
}

/// Copies units, and the drop-ins in directories beside them.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &target);
        } else {
            // The program need not be installed here.
            let unit = fs::read_to_string(&path).unwrap();
            fs::write(target, unit.replace("/usr/bin/headpond", env!("CARGO_BIN_EXE_headpond"))).unwrap();
        }
    }
}

#[test]
fn systemd_finds_nothing_wrong_with_the_units_and_the_examples() {
    let here = Command::new("systemd-analyze").arg("--version").output().is_ok();
    if !lacks_nothing((!here).then_some("systemd-analyze (Debian: package systemd)")) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    copy(&packaging().join("systemd"), dir.path());
    copy(&packaging().join("examples/systemd"), dir.path());
    let names = ["headpond@mysql.service", "var-lib-mysql.mount", "mariadb.service", "postgresql@15-main.service"];
    for database in &names[2..] {
        fs::write(dir.path().join(database), "[Service]\nExecStart=/bin/true\n").unwrap();
    }
    for name in names {
        let mut verify = Command::new("systemd-analyze");
        verify.args(["verify", "--man=no"]).arg(dir.path().join(name)).env("SYSTEMD_LOG_LEVEL", "warning");
        let said = Said::from(verify.output().unwrap());
        assert!(!said.ok().text.contains(dir.path().to_str().unwrap()), "{name}: {}", said.text);
    }
}

#[test]
fn a_service_does_not_repeat_what_a_mount_refuses() {
    let unit = fs::read_to_string(packaging().join("systemd/headpond@.service")).unwrap();
    let listed = unit.lines().find_map(|line| line.strip_prefix("RestartPreventExitStatus=")).unwrap();
    // A refused command line, and what lies below the statuses of commands for a mount that stands.
    let refusals = ExitStatus::TABLE.iter().map(|(status, _)| *status).filter(|status| {
        let only_from_check = *status == ExitStatus::PoolBlemished;
        (ExitStatus::Usage.code()..ExitStatus::Busy.code()).contains(&status.code()) && !only_from_check
    });
    let refusals: Vec<String> = refusals.map(|status| status.code().to_string()).collect();
    assert_eq!(listed.split(' ').collect::<Vec<_>>(), refusals);
}
