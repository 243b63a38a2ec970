//! Commands that meet each other: each gets a clear answer, and nothing is lost.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixListener;
use std::process::{Child, Stdio};

use headpond_control::{make_runtime_dir, runtime_name};

use crate::pond::{Pond, SIZE, Said, headpond, is_mounted, pattern, wait_until, write_and_sync};

/// A mount with more dirty data than its slow origin takes in a moment.
fn busy_pond() -> Pond {
    busy_pond_of(1000)
}

fn busy_pond_of(blocks: u64) -> Pond {
    let pond = Pond::new();
    pond.mount(&["--size", SIZE, "--model-disk", "hdd-7200"]).ok();
    let file = File::create(pond.mnt().join("file")).unwrap();
    for block in 0..blocks {
        file.write_all_at(&pattern(4096, block), block * 37 * 65536).unwrap();
    }
    file.sync_all().unwrap();
    pond
}

fn start(pond: &Pond, command: &[&str]) -> Child {
    let mut started = headpond();
    started.args(command).arg(pond.mnt()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    started.spawn().unwrap()
}

fn said(child: Child) -> Said {
    Said::from(child.wait_with_output().unwrap())
}

fn is_complete(pond: &Pond) {
    let file = File::open(pond.origin().join("file")).unwrap();
    let mut block = vec![0; 4096];
    for number in 0..400_u64 {
        file.read_exact_at(&mut block, number * 37 * 65536).unwrap();
        assert!(block == pattern(4096, number), "block {number}");
    }
}

#[test]
fn an_unmount_during_a_flush_ends_both_and_the_origin_is_complete() {
    let pond = busy_pond();
    let flush = start(&pond, &["flush"]);
    wait_until("the flush runs", || pond.status()["state"] == "flushing");
    let unmount = start(&pond, &["unmount"]);
    said(unmount).ok().refused(0, &["complete"]);
    said(flush).ok();
    is_complete(&pond);
}

#[test]
fn leaving_during_a_flush_tells_the_flush_that_it_did_not_end() {
    // More than is written while the daemon waits for the flush before it leaves.
    let pond = busy_pond_of(2000);
    let flush = start(&pond, &["flush"]);
    wait_until("the flush runs", || pond.status()["state"] == "flushing");
    let left = said(start(&pond, &["unmount", "--keep-dirty"]));
    left.ok();
    assert!(left.text.contains("stay in the pool"), "{}", left.text);
    said(flush).refused(72, &["stay safe in the pool"]);
    pond.mount(&[]).ok();
    pond.unmount(&[]).ok();
    is_complete(&pond);
}

#[test]
fn whoever_comes_while_the_mount_ends_is_told_so() {
    let pond = busy_pond_of(3000);
    // A plain umount: the mount is gone at once, and the daemon writes what is left.
    pond.plain_umount();
    wait_until("the daemon notices", || {
        let status = Said::from(start(&pond, &["status", "--json"]).wait_with_output().unwrap());
        status.status != 0 || status.text.contains("unmounting")
    });
    for command in [["flush"].as_slice(), &["unmount"], &["unmount", "--keep-dirty"]] {
        said(start(&pond, command)).refused(71, &["being unmounted"]);
    }
    wait_until("the origin is complete", || pond.marker().is_none());
    is_complete(&pond);
}

#[test]
fn two_unmounts_at_once_end_with_one_done_and_one_told() {
    let pond = busy_pond();
    let unmounts = [start(&pond, &["unmount"]), start(&pond, &["unmount"])];
    let ended = unmounts.map(said);
    assert!(ended.iter().any(|said| said.status == 0), "{ended:?}");
    assert!(ended.iter().all(|said| [0, 71].contains(&said.status)), "{ended:?}");
    is_complete(&pond);
}

#[test]
fn a_daemon_killed_during_a_flush_is_told_apart_from_one_that_ended() {
    let mut pond = Pond::new();
    let daemon = pond.mount_foreground(&["--size", SIZE, "--model-disk", "hdd-7200"]);
    let file = File::create(pond.mnt().join("file")).unwrap();
    for block in 0..1000_u64 {
        file.write_all_at(&pattern(4096, block), block * 37 * 65536).unwrap();
    }
    file.sync_all().unwrap();
    drop(file);
    let flush = start(&pond, &["flush"]);
    wait_until("the flush runs", || pond.status()["state"] == "flushing");
    pond.kill(daemon);
    said(flush).refused(74, &["is safe in the pool"]);
    pond.mount(&[]).ok();
    pond.unmount(&[]).ok();
    is_complete(&pond);
}

#[test]
fn sockets_of_dead_daemons_are_cleared_away() {
    let mut pond = Pond::new();
    let dir = make_runtime_dir().unwrap();
    let left = dir.join(format!("{}.sock", runtime_name(&pond.mnt())));
    let other = dir.join(format!("{}.sock", runtime_name(&pond.at("gone"))));
    drop(UnixListener::bind(&other).unwrap());
    let daemon = pond.mount_foreground(&["--size", SIZE]);
    assert!(!other.exists(), "cleared by the mount");
    write_and_sync(&pond.mnt().join("file"), b"data");
    assert!(left.exists());
    pond.kill(daemon);
    // By this command, or by another test's before it.
    headpond().arg("status").output().unwrap();
    assert!(!left.exists(), "cleared by status");
    assert!(is_mounted(&pond.mnt()), "the dead mount is still told");
    Said::from(start(&pond, &["status"]).wait_with_output().unwrap()).refused(71, &["daemon is gone"]);
    pond.mount(&[]).ok();
    assert_eq!(fs::read(pond.mnt().join("file")).unwrap(), b"data");
    pond.unmount(&[]).ok();
}
