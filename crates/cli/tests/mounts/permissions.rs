//! No FUSE, or no permission: refused before anything is made. As another user, or in a mount name
//! space of its own where something is missing; both need root.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::lacking::has_root;
use crate::loop_device::run;
use crate::pond::{Pond, SIZE, Said, is_mounted};

/// A pond that belongs to nobody, with the binary where that user can reach it.
fn nobodys() -> Option<Pond> {
    if !has_root("to become another user") {
        return None;
    }
    let pond = Pond::new();
    pond.program(env!("CARGO_BIN_EXE_headpond"), "headpond");
    run(Command::new("chown").args(["-R", "nobody"]).arg(pond.at("")));
    Some(pond)
}

/// `headpond mount` as nobody, after `before` was done as root in a name space that nobody else sees.
fn mount_as_nobody(pond: &Pond, before: &str, more: &[&str]) -> Said {
    let script = format!("set -e; {before}\nexec setpriv --reuid nobody --regid nogroup --clear-groups \"$0\" \"$@\"");
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script]).arg(pond.at("headpond"));
    command.args([OsStr::new("mount"), pond.origin().as_os_str(), pond.mnt().as_os_str(), OsStr::new("--flash")]);
    command.arg(pond.flash()).args(["--size", SIZE]).args(more).env_remove("XDG_RUNTIME_DIR");
    Said::from(command.stdin(Stdio::null()).output().unwrap())
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[track_caller]
fn nothing_was_made(pond: &Pond) {
    assert!(!is_mounted(&pond.mnt()));
    assert!(!pond.flash().exists(), "no flash is left");
    assert_eq!(fs::read_dir(pond.origin()).unwrap().count(), 0, "nothing is left at the origin");
}

#[test]
fn without_fuse_nothing_is_made() {
    let Some(pond) = nobodys() else { return };
    let missing = "mount -t tmpfs none /dev";
    mount_as_nobody(&pond, missing, &[]).refused(60, &["/dev/fuse", "modprobe fuse"]);
    nothing_was_made(&pond);
    let forbidden = "mount -t tmpfs none /dev; mknod /dev/fuse c 10 229; chmod 600 /dev/fuse";
    mount_as_nobody(&pond, forbidden, &[]).refused(60, &["/dev/fuse", "ermission denied"]);
    nothing_was_made(&pond);
    let no_helper =
        "for dir in /bin /usr/bin; do [ ! -e $dir/fusermount3 ] || mount --bind /dev/null $dir/fusermount3; done";
    mount_as_nobody(&pond, no_helper, &[]).refused(60, &["fusermount3", "fuse3"]);
    nothing_was_made(&pond);
}

#[test]
fn root_without_fuse_is_told_the_same() {
    if !has_root("for a mount name space") {
        return;
    }
    let pond = Pond::new();
    let mut command = Command::new("unshare");
    command.args([
        "--mount",
        "sh",
        "-c",
        "mount -t tmpfs none /dev && exec \"$0\" \"$@\"",
        env!("CARGO_BIN_EXE_headpond"),
    ]);
    command.arg("mount").arg(pond.origin()).arg(pond.mnt()).arg("--flash").arg(pond.flash()).args(["--size", SIZE]);
    Said::from(command.output().unwrap()).refused(60, &["/dev/fuse"]);
    nothing_was_made(&pond);
}

#[test]
fn each_place_without_permission_is_named() {
    let Some(pond) = nobodys() else { return };
    run(Command::new("chown").arg("root").args([pond.mnt(), pond.at("other")]));
    let mnt = pond.mnt();
    mount_as_nobody(&pond, "", &[]).refused(61, &["mount on", mnt.to_str().unwrap(), "root"]);
    nothing_was_made(&pond);
    run(Command::new("chown").arg("nobody").arg(pond.mnt()));

    for mode in [0o000, 0o555] {
        // Not to be read; not to be written, where the marker goes.
        run(Command::new("chown").arg("root").arg(pond.origin()));
        chmod(&pond.origin(), mode);
        mount_as_nobody(&pond, "", &[]).refused(61, &[pond.origin().to_str().unwrap(), "owner"]);
        nothing_was_made(&pond);
        run(Command::new("chown").arg("nobody").arg(pond.origin()));
        chmod(&pond.origin(), 0o755);
    }

    fs::write(pond.flash(), "root's").unwrap();
    chmod(&pond.flash(), 0o600);
    mount_as_nobody(&pond, "", &["--format"]).refused(61, &[pond.flash().to_str().unwrap(), "as root"]);
    assert_eq!(fs::read(pond.flash()).unwrap(), b"root's");
    fs::remove_file(pond.flash()).unwrap();

    if !fs::read_to_string("/etc/fuse.conf")
        .is_ok_and(|text| text.lines().any(|line| line.trim() == "user_allow_other"))
    {
        mount_as_nobody(&pond, "", &["--allow-other"]).refused(61, &["user_allow_other", "/etc/fuse.conf"]);
        nothing_was_made(&pond);
    }
}

#[test]
fn a_directory_where_no_flash_file_may_be_made_is_told() {
    let Some(pond) = nobodys() else { return };
    run(Command::new("chown").arg("root").arg(pond.at("other")));
    let flash = pond.at("other/flash");
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "nobody", "--regid", "nogroup", "--clear-groups"]).arg(pond.at("headpond")).arg("mount");
    command.arg(pond.origin()).arg(pond.mnt()).arg("--flash").arg(&flash).args(["--size", SIZE]);
    command.env_remove("XDG_RUNTIME_DIR");
    Said::from(command.output().unwrap()).refused(61, &[flash.to_str().unwrap(), "root"]);
    nothing_was_made(&pond);
}
