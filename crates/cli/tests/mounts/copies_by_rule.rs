//! Rules that say on how many other hosts a sync must be before it is answered.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::peers::{Peer, mount, wait_for_copy_at};
use crate::pond::{Pond, SIZE, pattern, run, wait_until, write_and_sync};
use crate::rules::rules;
use crate::several_devices::pool_status;

/// Writes over what is there: to cut a file waits for the log everywhere, as its status at the origin changes.
fn overwrite_and_sync(path: &Path, bytes: &[u8]) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(bytes, 0).unwrap();
    file.sync_all().unwrap();
}

fn lost(pond: &Pond) -> usize {
    let status = pool_status(pond);
    status["members"].as_array().unwrap().iter().filter(|member| member["state"] == "FAULTED").count()
}

/// Whether each of several syncs is at the origin once it is answered.
fn waits_for_the_origin(pond: &Pond, name: &str) -> bool {
    let at_origin = |path: &Path, round| fs::read(path).is_ok_and(|held| held == pattern(1 << 16, round));
    let rounds = (0..10).map(|round| {
        write_and_sync(&pond.mnt().join(name), &pattern(1 << 16, round));
        at_origin(&pond.origin().join(name), round)
    });
    rounds.collect::<Vec<_>>().iter().all(|is_there| *is_there)
}

#[test]
fn a_sync_that_needs_no_copy_waits_for_no_peer() {
    let mut pond = Pond::new();
    let peer = Peer::here(&pond);
    let daemon = mount(&mut pond, &["--size", SIZE, "--peer", &peer.address]);
    rules(&pond, "add", &["path=db/", "copies=2"]).refused(2, &["this mount keeps 1 copy", "Nothing was changed"]);
    rules(&pond, "add", &["path=tmp/", "copies=0"]).ok().refused(0, &["path=tmp/** action=cache copies=0"]);
    rules(&pond, "add", &["path=db/", "copies=1"]).ok();
    for dir in ["tmp", "db"] {
        fs::create_dir(pond.mnt().join(dir)).unwrap();
    }
    write_and_sync(&pond.mnt().join("db/file"), b"before");
    write_and_sync(&pond.mnt().join("tmp/file"), b"before");
    // The peer stands still. Until it is lost, a sync that needs it has no answer.
    wait_until("one is answered while another waits for a silent peer", || {
        let answered = AtomicBool::new(false);
        peer.signal("-STOP");
        let seen = std::thread::scope(|scope| {
            scope.spawn(|| {
                overwrite_and_sync(&pond.mnt().join("db/file"), b"once the peer has it");
                answered.store(true, Ordering::SeqCst);
            });
            overwrite_and_sync(&pond.mnt().join("tmp/file"), b"at once");
            let was_answered = answered.load(Ordering::SeqCst);
            let is_lost = lost(&pond) > 0;
            peer.signal("-CONT");
            assert!(is_lost || !was_answered, "a sync was answered, and the peer stood still");
            !is_lost
        });
        wait_for_copy_at(&pond, &peer);
        seen
    });
    peer.signal("-KILL");
    wait_until("the copy is lost", || lost(&pond) > 0);
    assert!(waits_for_the_origin(&pond, "db/file"), "without a copy");
    assert!(!waits_for_the_origin(&pond, "tmp/file"), "it needs none");
    pond.unmount(&[]).ok();
    pond.wait(daemon);
}

#[test]
fn a_sync_that_needs_two_copies_waits_for_the_origin_while_there_is_one() {
    let mut pond = Pond::new();
    let (first, second) = (Peer::here(&pond), Peer::on_another(&pond));
    let two = ["--size", SIZE, "--copies", "2", "--peer", &first.address, "--peer", &second.address];
    let daemon = mount(&mut pond, &two);
    wait_for_copy_at(&pond, &first);
    wait_for_copy_at(&pond, &second);
    fs::create_dir(pond.mnt().join("db")).unwrap();
    rules(&pond, "add", &["path=db/", "copies=2"]).ok();
    assert!(!waits_for_the_origin(&pond, "db/file"), "there are two");
    run(["set".as_ref(), pond.mnt().as_os_str(), "copies=1".as_ref()]).ok();
    let listed = rules(&pond, "list", &[]).ok().text.clone();
    assert!(listed.contains("this mount keeps 1 copy: while it asks for more"), "{listed}");
    run(["set".as_ref(), pond.mnt().as_os_str(), "copies=2".as_ref()]).ok();
    assert!(!rules(&pond, "list", &[]).ok().text.contains("this mount keeps"));
    second.signal("-KILL");
    wait_until("one copy is lost", || lost(&pond) > 0);
    assert!(waits_for_the_origin(&pond, "db/file"));
    assert!(!waits_for_the_origin(&pond, "file"), "one is enough without a rule");
    pond.unmount(&[]).ok();
    pond.wait(daemon);
}
