//! The helpers of `mount` and `umount`: the same program under another name.

use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::lacking::has_root;
use crate::pond::{Pond, SIZE, Said, is_mounted, write_and_sync};

/// headpond under a helper's name.
fn helper(pond: &Pond, name: &str) -> PathBuf {
    let path = pond.at(name);
    if !path.exists() {
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_headpond"), &path).unwrap();
    }
    path
}

fn mount(pond: &Pond, more: &[&str]) -> Said {
    let mut command = Command::new(helper(pond, "mount.headpond"));
    command.arg(pond.origin()).arg(pond.mnt()).args(more);
    command.stdin(Stdio::null()).output().unwrap().into()
}

fn umount(pond: &Pond, more: &[&str]) -> Said {
    let mut command = Command::new(helper(pond, "umount.fuse.headpond"));
    command.arg(pond.mnt()).args(more).stdin(Stdio::null()).output().unwrap().into()
}

fn options(pond: &Pond) -> String {
    format!("flash={},size={SIZE},log={}", pond.flash().display(), pond.at("log").display())
}

/// In mounts of its own, where nothing but the helpers lies in the directory that `mount` looks in.
const SCRIPT: &str = r#"
cd "$0"; root=$(pwd)
for bin in /usr/sbin /sbin; do [ -L "$bin" ] || mount --bind helpers "$bin" || exit 9; done
trap 'umount -i -l "$root/mnt" 2>/dev/null' EXIT
mount -t headpond origin mnt -o "$1,nosuid" || exit 1
grep " $root/mnt " /proc/self/mountinfo
echo data >mnt/file
exec 3<mnt/file
umount mnt && exit 2
exec 3<&-
umount mnt || exit 3
cat origin/file
ls -A origin | grep headpond && exit 4
echo "$root/origin $root/mnt headpond $1,allow_other,nofail,_netdev,x-systemd.requires=a.service 0 0" >fstab
mount -T fstab -a || exit 5
mount -T fstab -a || exit 6
grep " $root/mnt " /proc/self/mountinfo
umount mnt || exit 7
mount -t fuse.headpond origin mnt -o "$1" || exit 8
grep -q " $root/mnt .* - fuse.headpond " /proc/self/mountinfo || exit 10
echo more >mnt/more
umount mnt || exit 11
[ "$(cat origin/more)" = more ] || exit 12
"#;

#[test]
fn mount_and_umount_find_the_helpers_also_from_fstab() {
    if !has_root("for mounts of its own") {
        return;
    }
    let pond = Pond::new();
    fs::create_dir(pond.at("helpers")).unwrap();
    for name in ["mount.headpond", "mount.fuse.headpond", "umount.fuse.headpond"] {
        helper(&pond, &format!("helpers/{name}"));
    }
    let mut command = Command::new("unshare");
    command.args(["--mount", "timeout", "60", "sh", "-c", SCRIPT]).arg(pond.at("")).arg(options(&pond));
    let said = Said::from(command.stdin(Stdio::null()).output().unwrap());
    said.ok().refused(0, &["fuse.headpond", ",nosuid", "is in use by", "data", "allow_other"]);
    assert!(!pond.origin().join(".headpond").exists());
}

#[test]
fn a_helper_refuses_what_it_does_not_know_and_only_checks_if_told_so() {
    let pond = Pond::new();
    let good = options(&pond);
    mount(&pond, &["-f", "-o", &good]).ok();
    mount(&pond, &["-o", &good, "-o", "colour=red"]).refused(1, &["unknown option colour=red"]);
    mount(&pond, &["-f", "-o", &format!("{good},mode=fast")]).refused(1, &["fast", "--mode"]);
    mount(&pond, &["-o", "size=1G"]).refused(1, &["flash="]);
    fs::write(pond.mnt().join("there"), b"").unwrap();
    mount(&pond, &["-o", &good]).refused(32, &["not empty"]);
    umount(&pond, &[]).refused(32, &["no headpond is mounted there"]);
    assert!(!is_mounted(&pond.mnt()) && !pond.flash().exists());
}

#[test]
fn a_mount_that_lacks_a_limit_does_not_stay() {
    if !has_root("to become another user") {
        return;
    }
    let pond = Pond::new();
    // The user must be able to reach the binary, wherever it was built.
    pond.program(env!("CARGO_BIN_EXE_headpond"), "mount.headpond");
    assert!(Command::new("chown").args(["-R", "nobody"]).arg(pond.at("")).status().unwrap().success());
    let as_nobody = |options: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "nobody", "--regid", "nogroup", "--clear-groups"]).arg(pond.at("mount.headpond"));
        command.arg(pond.origin()).arg(pond.mnt()).args(["-o", options]);
        // As `mount` leaves it for an ordinary user.
        command.env_clear();
        Said::from(command.stdin(Stdio::null()).output().unwrap())
    };
    as_nobody(&format!("{},noexec", options(&pond))).refused(32, &["limit the mount", "user,exec"]);
    assert!(!is_mounted(&pond.mnt()));
    as_nobody(&format!("{},nosuid", options(&pond))).ok();
    umount(&pond, &[]).ok();
    // The user's directory for sockets, if it was not in use for anything else.
    let _ = Command::new("rmdir").arg("/tmp/headpond-65534").stderr(Stdio::null()).status();
}

#[test]
fn a_plain_umount_can_be_interrupted_and_a_forced_one_leaves_dirty_data_in_the_pool() {
    let pond = Pond::new();
    pond.mount_slow_and_dirty();
    let mut command = Command::new(helper(&pond, "umount.fuse.headpond"));
    let mut umounting = command.arg(pond.mnt()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = [0; 8];
    umounting.stderr.as_mut().unwrap().read_exact(&mut said).unwrap();
    assert!(Command::new("kill").args(["-INT", &umounting.id().to_string()]).status().unwrap().success());
    let mut said = String::from_utf8(said.to_vec()).unwrap();
    umounting.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(umounting.wait().unwrap().code(), Some(8), "{said}");
    assert!(said.contains("MiB left") && said.contains("stays mounted") && is_mounted(&pond.mnt()), "{said}");
    umount(&pond, &["-f"]).ok().refused(0, &["stay in the pool"]);
    assert!(!is_mounted(&pond.mnt()));
    assert_eq!(pond.marker().unwrap()["state"], "dirty-left");
}

#[test]
fn a_plain_umount_takes_a_mount_away_whose_daemon_is_gone() {
    let mut pond = Pond::new();
    let daemon = pond.mount_foreground(&["--size", SIZE]);
    write_and_sync(&pond.mnt().join("file"), b"data");
    pond.kill(daemon);
    assert!(is_mounted(&pond.mnt()));
    umount(&pond, &[]).ok();
    assert!(!is_mounted(&pond.mnt()));
    assert_eq!(pond.marker().unwrap()["state"], "mounted", "the next mount recovers the pool");
}
