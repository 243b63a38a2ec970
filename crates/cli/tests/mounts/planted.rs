//! What the owner of the origin, or of a directory on the way, can plant for a daemon that is another user, often
//! root: none of it is followed, and nothing is made or changed elsewhere.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::Command;

use crate::pond::{Pond, SIZE, write_and_sync};

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// What an origin's owner did to a root mount: its marker was written to where the link led.
#[test]
fn links_planted_for_the_marker_lead_nowhere() {
    for name in [
        "marker.json",
        "marker.json.next",
        "lock",
        "obsolete-pool",
        "obsolete-pool.next",
        "durable.json",
        "durable.json.next",
    ] {
        let pond = Pond::new();
        let ours = pond.origin().join(".headpond");
        fs::create_dir(&ours).unwrap();
        symlink(pond.at("elsewhere"), ours.join(name)).unwrap();
        if is_root() {
            chown(&ours, Some(1234), Some(1234)).unwrap();
        }
        let said = pond.mount(&["--size", SIZE]);
        if is_root() {
            said.refused(15, &[".headpond belongs to user 1234", "rm -r", "chown"]);
            assert!(!pond.flash().exists());
        } else if said.status == 0 {
            pond.unmount(&[]).ok();
        } else {
            said.refused(15, &["symbolic link", "rm -r"]);
        }
        assert!(!pond.at("elsewhere").exists(), "{name}: something was made where the link leads");
    }
}

#[test]
fn a_directory_a_fifo_or_a_file_that_others_may_write_is_refused_without_a_hang() {
    type Plant = fn(&Path);
    let plants: [(Plant, &str); 4] = [
        (|ours| symlink("/var", ours).unwrap(), "symbolic link"),
        (|ours| fifo(ours), "FIFO"),
        (
            |ours| {
                fs::create_dir(ours).unwrap();
                fifo(&ours.join("marker.json"));
            },
            "FIFO",
        ),
        (
            |ours| {
                fs::create_dir(ours).unwrap();
                fs::set_permissions(ours, fs::Permissions::from_mode(0o777)).unwrap();
            },
            "is writable by other users",
        ),
    ];
    for (plant, says) in plants {
        let pond = Pond::new();
        plant(&pond.origin().join(".headpond"));
        // Not even when dirty data may be dropped: it says nothing of what lies there.
        pond.mount(&["--size", SIZE]).refused(15, &[says]);
        pond.mount(&["--size", SIZE, "--discard-dirty"]).refused(15, &[says]);
    }
}

/// A directory of the origin is replaced by a link while the pool has dirty data for a file in it.
#[test]
fn dirty_data_is_not_written_through_a_link_to_another_place() {
    let pond = Pond::new();
    pond.mount(&["--size", SIZE]).ok();
    fs::create_dir(pond.mnt().join("db")).unwrap();
    write_and_sync(&pond.mnt().join("db/file"), b"before");
    pond.flush().ok();
    write_and_sync(&pond.mnt().join("db/file"), b"dirty!");
    pond.unmount(&["--keep-dirty"]).ok();
    // The same file, by a way that leads out of the origin and back.
    fs::rename(pond.origin().join("db"), pond.at("outside")).unwrap();
    symlink(pond.at("outside"), pond.origin().join("db")).unwrap();
    pond.mount(&[]).refused(50, &["db/file", "missing at the origin"]);
    assert_eq!(fs::read(pond.at("outside/file")).unwrap(), b"before");
    fs::remove_file(pond.origin().join("db")).unwrap();
    fs::rename(pond.at("outside"), pond.origin().join("db")).unwrap();
    pond.mount(&[]).ok();
    assert_eq!(fs::read(pond.mnt().join("db/file")).unwrap(), b"dirty!");
    pond.unmount(&[]).ok();
}

#[test]
fn a_marker_that_is_moved_away_in_use_costs_no_data_and_no_other_directory() {
    let pond = Pond::new();
    pond.mount(&["--size", SIZE]).ok();
    write_and_sync(&pond.mnt().join("file"), b"synced");
    let ours = pond.origin().join(".headpond");
    fs::rename(&ours, pond.at("aside")).unwrap();
    fs::create_dir(&ours).unwrap();
    fs::write(ours.join("mine"), "a user's own").unwrap();
    pond.unmount(&[]).ok();
    assert_eq!(fs::read(pond.origin().join("file")).unwrap(), b"synced");
    assert_eq!(fs::read(ours.join("mine")).unwrap(), b"a user's own");
}

/// A pool that others own shows them all that is cached, and lets them change it.
#[test]
fn a_flash_file_that_is_not_the_daemons_own_is_refused() {
    let pond = Pond::new();
    pond.mount(&["--size", SIZE]).ok();
    pond.unmount(&[]).ok();
    assert_eq!(fs::metadata(pond.flash()).unwrap().mode() & 0o777, 0o600);
    fs::set_permissions(pond.flash(), fs::Permissions::from_mode(0o666)).unwrap();
    pond.mount(&[]).refused(30, &["others", "chmod"]);
    fs::set_permissions(pond.flash(), fs::Permissions::from_mode(0o644)).unwrap();
    if is_root() {
        chown(pond.flash(), Some(1234), None).unwrap();
        pond.mount(&[]).refused(30, &["belongs to user 1234", "chown"]);
        chown(pond.flash(), Some(0), None).unwrap();
    }
    pond.mount(&[]).ok();
    pond.unmount(&[]).ok();
    fs::remove_file(pond.flash()).unwrap();
    fifo(&pond.flash());
    pond.mount(&["--size", SIZE]).refused(30, &["neither a file nor a block device"]);
    fs::remove_file(pond.flash()).unwrap();
    symlink(pond.at("elsewhere"), pond.flash()).unwrap();
    assert_ne!(pond.mount(&["--size", SIZE]).status, 0);
    assert!(!pond.at("elsewhere").exists(), "no pool is made through a link that leads nowhere");
}
