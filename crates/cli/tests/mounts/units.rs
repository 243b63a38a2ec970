//! The units for systemd in `packaging`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use headpond_control::ExitStatus;

use crate::lacking::lacks_nothing;
use crate::pond::{Pond, Said, pattern};

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
    let names = [
        "headpond@mysql.service",
        "headpond-peer.service",
        "headpond-guard@mysql.service",
        "var-lib-mysql.mount",
        "mariadb.service",
        "postgresql@15-main.service",
    ];
    for database in ["mariadb.service", "postgresql@15-main.service"] {
        fs::write(dir.path().join(database), "[Service]\nExecStart=/bin/true\n").unwrap();
    }
    for name in names {
        let mut verify = Command::new("systemd-analyze");
        verify.args(["verify", "--man=no"]).arg(dir.path().join(name)).env("SYSTEMD_LOG_LEVEL", "warning");
        let said = Said::from(verify.output().unwrap());
        assert!(!said.ok().text.contains(dir.path().to_str().unwrap()), "{name}: {}", said.text);
    }
}

/// The line of the documents, with two more options that fstab(5) and systemd.mount(5) have.
#[test]
fn an_fstab_line_becomes_a_unit_that_waits_for_its_places_and_comes_before_its_database() {
    let generator = "/usr/lib/systemd/system-generators/systemd-fstab-generator";
    if !lacks_nothing((!Path::new(generator).exists()).then_some("systemd-fstab-generator (Debian: package systemd)")) {
        return;
    }
    let documents = fs::read_to_string(packaging().join("../docs/operations.md")).unwrap();
    let line =
        documents.lines().find(|line| line.starts_with("    /slow/mysql ") && line.contains(" headpond ")).unwrap();
    let line = format!("{}\n", line.trim().replace("allow_other,", "allow_other,_netdev,nofail,"));
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("fstab"), line).unwrap();
    let places = ["normal", "early", "late"].map(at);
    places.iter().for_each(|place| fs::create_dir(place).unwrap());
    let made = Command::new(generator).args(&places).env("SYSTEMD_FSTAB", at("fstab")).output().unwrap();
    Said::from(made).ok();
    let unit = at("normal/var-lib-mysql.mount");
    let text = fs::read_to_string(&unit).unwrap();
    for line in [
        "What=/slow/mysql",
        "Where=/var/lib/mysql",
        "Type=headpond",
        "RequiresMountsFor=/nvme",
        "Before=mariadb.service",
        "TimeoutSec=30min",
    ] {
        assert!(text.lines().any(|one| one == line), "{line}:\n{text}");
    }
    let options = text.lines().find_map(|line| line.strip_prefix("Options=")).unwrap();
    for option in ["flash=/nvme/pond", "allow_other", "_netdev", "nofail"] {
        assert!(options.split(',').any(|one| one == option), "{option}:\n{text}");
    }
    // With _netdev of the network's file systems; with nofail a wish of theirs, and no need.
    assert!(at("normal/remote-fs.target.wants/var-lib-mysql.mount").symlink_metadata().is_ok());
    assert!(!at("normal/remote-fs.target.requires").exists() && !text.contains("Before=remote-fs.target"), "{text}");
}

#[test]
fn a_service_does_not_repeat_what_a_mount_refuses() {
    let unit = fs::read_to_string(packaging().join("systemd/headpond@.service")).unwrap();
    let listed = unit.lines().find_map(|line| line.strip_prefix("RestartPreventExitStatus=")).unwrap();
    // A refused command line, and what lies below the statuses of commands for a mount that stands.
    let refusals = ExitStatus::TABLE.iter().map(|(status, _)| *status).filter(|status| {
        let only_from_check = *status == ExitStatus::PoolBlemished;
        let may_pass = *status == ExitStatus::OwnedElsewhere;
        (ExitStatus::Usage.code()..ExitStatus::Busy.code()).contains(&status.code()) && !only_from_check && !may_pass
    });
    let refusals: Vec<String> = refusals.map(|status| status.code().to_string()).collect();
    assert_eq!(listed.split(' ').collect::<Vec<_>>(), refusals);
}

/// A manager of its own, in namespaces of its own: units below `$1/units`, and the mount in `$1`.
const BY_A_MANAGER: &str = r#"
set -eu
export PATH="$PATH:/usr/sbin:/sbin" XDG_RUNTIME_DIR=/run/user/0 SYSTEMD_UNIT_PATH="$1/units:"
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/system /run/user
mkdir -m 700 /run/user/0
# Who asks for the state of the host gets that of this manager.
mkdir "$1/bin"
printf '#!/bin/sh\nexec /usr/bin/systemctl --user "$@"\n' > "$1/bin/systemctl"
chmod +x "$1/bin/systemctl"
/lib/systemd/systemd --user --log-target=console --unit=nothing.target > "$1/manager.log" 2>&1 & manager=$!
until_so() { for _ in $(seq 400); do if eval "$1"; then return 0; fi; sleep 0.1; done; echo "in vain: $1"; exit 1; }
of() { systemctl --user show -p "$2" --value "$1"; }
until_so '[ -S /run/user/0/systemd/private ]'
systemctl --user start mariadb.service survivor.service
mount=headpond@mysql.service
holder=$(of $mount MainPID) database=$(of mariadb.service MainPID) survivor=$(of survivor.service MainPID)
echo synced > "$1/mnt/file"
sync "$1/mnt/file"
kill -KILL "$holder"
until_so '[ "$(of $mount ActiveState)" = active ] && [ "$(of $mount MainPID)" != "$holder" ]'
until_so '[ "$(of mariadb.service ActiveState)" = active ] && [ "$(of mariadb.service MainPID)" != "$database" ]'
until_so '[ "$(of survivor.service ActiveState)" = active ] && [ "$(of survivor.service MainPID)" != "$survivor" ]'
[ "$(cat "$1/mnt/file")" = synced ]
systemctl --user stop mariadb.service survivor.service
systemctl --user stop $mount
[ "$(cat "$1/origin/file")" = synced ]
[ ! -e "$1/origin/.headpond" ]

echo 'OPTIONS="--model-disk hdd-7200"' >> "$1/conf/mysql.conf"
systemctl --user start $mount
"$2" set "$1/mnt" shutdown-flush=1s
block=0
while [ $block -lt 600 ]; do
    dd if="$1/blocks" of="$1/mnt/file" bs=4096 count=1 skip=$block seek=$((block * 592)) conv=notrunc status=none
    block=$((block + 1))
done
sync "$1/mnt/file"
systemctl --user exit
wait $manager
grep -q dirty-left "$1/origin/.headpond/marker.json"
echo ALL IS WELL
"#;

#[test]
fn a_mount_whose_processes_are_all_killed_comes_back_with_its_database_and_a_shutdown_does_not_wait_for_its_flush() {
    let lacking = [("/lib/systemd/systemd", "systemd"), ("/usr/bin/unshare", "unshare"), ("/dev/fuse", "/dev/fuse")];
    let lacking = lacking.into_iter().find(|(path, _)| !Path::new(path).exists()).map(|(_, name)| name);
    let lacking = lacking.or_else(|| (!rustix::process::geteuid().is_root()).then_some("root, for namespaces"));
    if !lacks_nothing(lacking) {
        return;
    }
    let pond = Pond::new();
    let at = |name: &str| pond.at(name);
    fs::create_dir(at("conf")).unwrap();
    let blocks: Vec<u8> = (0..600).flat_map(|block| pattern(4096, block)).collect();
    fs::write(at("blocks"), blocks).unwrap();
    copy(&packaging().join("systemd"), &at("units"));
    copy(&packaging().join("examples/systemd"), &at("units"));
    // Its places are others here.
    fs::remove_dir_all(at("units/headpond@mysql.service.d")).unwrap();
    let unit = at("units/headpond@.service");
    let text = fs::read_to_string(&unit).unwrap().replace("/etc/headpond", at("conf").to_str().unwrap());
    fs::write(&unit, text).unwrap();
    let [origin, mnt, flash] = ["origin", "mnt", "flash"].map(|name| at(name).display().to_string());
    // A manager for a user gives its services a PATH of its own.
    let path = format!("{}:{}", at("bin").display(), std::env::var("PATH").unwrap());
    let conf = format!("ORIGIN={origin}\nMOUNTPOINT={mnt}\nFLASH={flash}\nOPTIONS=--size 64M\nPATH={path}\n");
    fs::write(at("conf/mysql.conf"), conf).unwrap();
    // One works in the mount, and ends with an error once that fails. The other one takes no notice.
    for (name, script) in [("mariadb", "while ls > /dev/null; do sleep 0.1; done; exit 1"), ("survivor", "sleep 1000")]
    {
        let database = format!("[Service]\nWorkingDirectory={mnt}\nExecStart=/bin/sh -c '{script}'\n");
        fs::write(at(&format!("units/{name}.service")), database).unwrap();
    }
    copy(&at("units/mariadb.service.d"), &at("units/survivor.service.d"));
    fs::write(at("units/nothing.target"), "[Unit]\nDescription=nothing\n").unwrap();
    let mut manager = Command::new("timeout");
    manager.args(["--kill-after=5", "120", "unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]);
    manager
        .args(["sh", "-c", BY_A_MANAGER, "sh"])
        .arg(pond.origin().parent().unwrap())
        .arg(env!("CARGO_BIN_EXE_headpond"));
    let said = Said::from(manager.output().unwrap());
    let log = fs::read_to_string(at("manager.log")).unwrap_or_default();
    assert!(said.status == 0 && said.text.contains("ALL IS WELL"), "{}\nthe manager:\n{log}", said.text);
    pond.mount(&[]).ok();
    pond.check_dirty_for_long(&pond.mnt());
    pond.unmount(&[]).ok();
    pond.check_dirty_for_long(&pond.origin());
}
