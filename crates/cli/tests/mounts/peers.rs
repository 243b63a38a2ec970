//! Promise 12 over two hosts: what was synced outlives the owner's host and flash, a lost peer is no error, and who was
//! deposed changes nothing. Two hosts are two directories here, and the origin is one that both see.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use headpond_peer::{PeerFrame, Said};

use crate::devices_change::wait_for_progress;
use crate::lacking::lacks_nothing;
use crate::pond::{Pond, SIZE, headpond, pattern, run, wait_until, write_and_sync};
use crate::several_devices::{EndAtLast, fault, pool, pool_status, write_and_verify};

/// A `headpond peer serve`.
pub struct Peer {
    child: Child,
    pub address: String,
}

impl Peer {
    fn start(pond: &Pond, listen: &str, more: &[&OsStr]) -> Self {
        Self::keeping(pond, "store", listen, more)
    }

    /// One that keeps its copies in a directory of this name.
    pub fn keeping(pond: &Pond, store: &str, listen: &str, more: &[&OsStr]) -> Self {
        let log = pond.at(&format!("{store}.log"));
        let mut command = headpond();
        command.args(["peer", "serve", "--listen", listen, "--store"]).arg(pond.at(store)).args(more);
        let mut child = command.stdin(Stdio::null()).stderr(File::create(&log).unwrap()).spawn().unwrap();
        let said = || fs::read_to_string(&log).unwrap();
        wait_until("the peer listens", || {
            assert!(child.try_wait().unwrap().is_none(), "{}", said());
            said().contains("listens at ")
        });
        let said = said();
        let address = said.split("listens at ").nth(1).unwrap().lines().next().unwrap().to_owned();
        Self { child, address }
    }

    /// At a unix socket.
    pub fn here(pond: &Pond) -> Self {
        Self::start(pond, &format!("unix:{}", pond.at("peer").display()), &[])
    }

    /// On a third host.
    pub fn on_another(pond: &Pond) -> Self {
        Self::keeping(pond, "store3", &format!("unix:{}", pond.at("peer3").display()), &[])
    }

    pub fn signal(&self, signal: &str) {
        assert!(Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap().success());
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Certificates for a host on the loopback, and their authority.
fn certificates(dir: &Path) -> PathBuf {
    fs::create_dir(dir).unwrap();
    fs::write(dir.join("names"), "subjectAltName=IP:127.0.0.1").unwrap();
    let openssl = |line: &str| {
        let done = Command::new("openssl").args(line.split(' ')).current_dir(dir).output().unwrap();
        assert!(done.status.success(), "{line}: {}", String::from_utf8_lossy(&done.stderr));
    };
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -noenc -days 2";
    openssl(&format!("req -x509 {key} -subj /CN=ca -keyout ca.key -out ca.pem"));
    openssl(&format!("req {key} -subj /CN=host -keyout key.pem -out host.csr").replace(" -days 2", ""));
    openssl(
        "x509 -req -in host.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names -out certificate.pem",
    );
    fs::set_permissions(dir.join("key.pem"), fs::Permissions::from_mode(0o600)).unwrap();
    dir.to_owned()
}

/// Appends records and syncs each, until it cannot. Counts those whose sync was answered.
pub fn append(path: &Path, synced: &AtomicU64) {
    let Ok(mut file) = OpenOptions::new().create(true).append(true).open(path) else { return };
    for number in 1.. {
        let record = pattern(4096, number);
        if file.write_all(&record).and_then(|()| file.sync_all()).is_err() {
            return;
        }
        synced.store(number, Ordering::SeqCst);
    }
}

/// How many records of a ledger are there, one behind the other.
pub fn records(path: &Path) -> u64 {
    let Ok(held) = fs::read(path) else { return 0 };
    (1..).zip(held.chunks(4096)).take_while(|(number, record)| **record == pattern(4096, *number)[..]).count() as u64
}

pub fn mount(pond: &mut Pond, more: &[&str]) -> usize {
    let daemon = pond.mount_foreground(more);
    wait_until("the peer has a copy", || {
        let status = pool_status(pond);
        let mut members = status["members"].as_array().unwrap().iter();
        status["state"] == "ONLINE" && members.any(|member| member["copies_only"] == true)
    });
    // What is dirty stays in the pool.
    run(["set".as_ref(), pond.mnt().as_os_str(), "flush-period=12h".as_ref()]).ok();
    daemon
}

fn take_over(pond: &Pond, more: &[&str]) -> crate::pond::Said {
    take_over_from(pond, "store", more)
}

fn take_over_from(pond: &Pond, store: &str, more: &[&str]) -> crate::pond::Said {
    let mut command = headpond();
    command.arg("takeover").arg(pond.origin()).arg(pond.at("mnt2")).current_dir(pond.at("")).args(["--store", store]);
    command.arg("--background").arg("--log").arg(pond.at("log2")).args(more);
    command.stdin(Stdio::null()).output().unwrap().into()
}

/// The second flash of a host that has two.
const SECOND: &str = "second-flash";

/// Waits until so many syncs were answered.
fn at_least(synced: &AtomicU64, count: u64) {
    wait_until("it is written", || synced.load(Ordering::SeqCst) >= count);
}

/// Loads a mount until so many syncs were answered, kills its host, and destroys its flashes. Returns how many were.
fn lose_the_owner(pond: &mut Pond, daemon: usize, after: u64) -> u64 {
    lose_the_owner_after(pond, daemon, |_, synced| at_least(synced, after))
}

/// The same, but `happens` says when. It runs under load, and sees how many syncs were answered.
fn lose_the_owner_after(pond: &mut Pond, daemon: usize, happens: impl FnOnce(&Pond, &AtomicU64)) -> u64 {
    let (synced, ledger) = (AtomicU64::new(0), pond.mnt().join("ledger"));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| append(&ledger, &synced));
        happens(pond, &synced);
        pond.kill(daemon);
        fs::remove_file(pond.flash()).unwrap();
        let _ = fs::remove_file(pond.at(SECOND));
        writer.join().unwrap();
    });
    let _ = Command::new("umount").arg("-l").arg(pond.mnt()).output();
    synced.into_inner()
}

#[test]
fn what_was_synced_outlives_the_owners_host_and_its_flashes() {
    for (tls, flashes, after) in [(false, 1, 40), (true, 2, 90), (false, 2, 333)] {
        let missing = Command::new("openssl").arg("version").output().is_err().then_some("openssl");
        if tls && !lacks_nothing(missing) {
            continue;
        }
        let mut pond = Pond::new();
        let dir = tls.then(|| certificates(&pond.at("certificates")));
        let peer = match &dir {
            Some(dir) => Peer::start(&pond, "127.0.0.1:0", &["--certificates".as_ref(), dir.as_os_str()]),
            None => Peer::here(&pond),
        };
        let mut more = vec!["--size", SIZE, "--peer", &peer.address];
        if let Some(dir) = &dir {
            more.extend(["--peer-certificates", dir.to_str().unwrap()]);
        }
        let second = pond.at(SECOND);
        if flashes == 2 {
            more.extend(["--flash", second.to_str().unwrap()]);
        }
        let daemon = mount(&mut pond, &more);
        let synced = lose_the_owner(&mut pond, daemon, after);
        assert!(records(&pond.origin().join("ledger")) < synced, "the origin alone would do, so this shows nothing");
        take_over(&pond, &[]).refused(2, &["--old-owner-is-dead", "Nothing was changed"]);
        let missing = ["--old-owner-is-dead", "--on-mount", "/nowhere"];
        take_over(&pond, &missing).refused(2, &["--on-mount /nowhere", "No such file"]);
        assert_ne!(pond.marker().unwrap()["owner"], 2, "the refusal came too late");
        let program = pond.at("start");
        fs::write(&program, format!("#!/bin/sh\ncp \"$1/ledger\" {}\n", pond.at("seen").display())).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        take_over(&pond, &["--old-owner-is-dead", "--on-mount", program.to_str().unwrap()]).ok();
        wait_until("it says how the program ended", || {
            fs::read_to_string(pond.at("log2")).unwrap().contains("start: done")
        });
        assert!(records(&pond.at("seen")) >= synced, "the program saw another ledger");
        let ledger = pond.at("mnt2").join("ledger");
        assert!(records(&ledger) >= synced, "{} of {synced} synced records", records(&ledger));
        let listed = run([
            "peer".as_ref(),
            "status".as_ref(),
            "--json".as_ref(),
            "--store".as_ref(),
            pond.at("store").as_os_str(),
        ]);
        let listed = listed.ok().json();
        assert_eq!((&listed[0]["owner"], &listed[0]["taken_over"]), (&2.into(), &true.into()), "{listed}");
        assert_eq!(pond.marker().unwrap()["owner"], 2);
        // It is a mount like any other.
        write_and_sync(&pond.at("mnt2").join("after"), b"on the second host");
        run(["unmount".as_ref(), pond.at("mnt2").as_os_str()]).ok();
        assert!(records(&pond.origin().join("ledger")) >= synced);
        assert_eq!(fs::read(pond.origin().join("after")).unwrap(), b"on the second host");
    }
}

/// Stands between an owner and its peer, and answers writes of data itself from some time on.
fn lie(listen: &Path, peer: &Path, from: u64) {
    let listener = UnixListener::bind(listen).unwrap();
    let peer = peer.to_owned();
    std::thread::spawn(move || {
        let (owner, _) = listener.accept().unwrap();
        let mut to_peer = UnixStream::connect(peer).unwrap();
        let (mut from_peer, mut to_owner) = (to_peer.try_clone().unwrap(), owner.try_clone().unwrap());
        let mut from_owner = owner;
        let (mut inbox, mut chunk, mut seen) = (Vec::new(), vec![0; 1 << 16], 0);
        loop {
            while let Ok(Some((frame, len))) = PeerFrame::decode(&inbox) {
                let is_write = matches!(frame.said, Said::Write { .. });
                seen += u64::from(is_write);
                let mut answer = Vec::new();
                if is_write && seen >= from {
                    PeerFrame { tag: frame.tag, said: Said::Done }.encode(&mut answer);
                } else {
                    to_peer.write_all(&inbox[..len]).unwrap();
                    // One request at a time: its answer is the next frame.
                    while !matches!(frame.said, Said::Trim { .. }) && !matches!(PeerFrame::decode(&answer), Ok(Some(_)))
                    {
                        let read = from_peer.read(&mut chunk).unwrap();
                        assert!(read > 0);
                        answer.extend_from_slice(&chunk[..read]);
                    }
                }
                if to_owner.write_all(&answer).is_err() {
                    return;
                }
                inbox.drain(..len);
            }
            match from_owner.read(&mut chunk) {
                Ok(read) if read > 0 => inbox.extend_from_slice(&chunk[..read]),
                _ => return,
            }
        }
    });
}

/// The negative control of the test above.
#[test]
fn a_peer_that_answers_what_it_does_not_keep_is_found_by_the_ledger() {
    let mut pond = Pond::new();
    let _peer = Peer::here(&pond);
    lie(&pond.at("liar"), &pond.at("peer"), 150);
    let address = format!("unix:{}", pond.at("liar").display());
    let daemon = mount(&mut pond, &["--size", SIZE, "--peer", &address]);
    let synced = lose_the_owner(&mut pond, daemon, 300);
    let taken = take_over(&pond, &["--old-owner-is-dead"]);
    let found = records(&pond.at("mnt2").join("ledger"));
    assert!(taken.status != 0 || found < synced, "{found} of {synced} records, and the peer had dropped some");
}

#[test]
fn a_peer_that_is_lost_under_load_is_no_error_and_can_be_had_again() {
    for (signal, why) in [("-KILL", "has ended"), ("-STOP", "was silent for 0.9 s")] {
        let pond = Pond::new();
        let peer = Peer::here(&pond);
        pond.mount(&["--size", SIZE, "--peer", &peer.address, "--peer-timeout", "900"]).ok();
        let (end, path) = (AtomicBool::new(false), pond.mnt().join("file"));
        let holds = std::thread::scope(|scope| {
            let writer = scope.spawn(|| write_and_verify(&path, &end));
            let at_last = EndAtLast(&end);
            wait_until("it is copied", || pool_status(&pond)["members"][1]["dirty_bytes"].as_u64() > Some(0));
            peer.signal(signal);
            wait_until("the pool goes on without it", || pool_status(&pond)["members"][1]["state"] == "FAULTED");
            write_and_sync(&pond.mnt().join("after"), b"without a copy");
            drop(at_last);
            writer.join().unwrap()
        });
        let status = pool_status(&pond);
        assert_eq!(status["state"], "DEGRADED", "{signal}");
        let action = status["actions"][0].as_str().unwrap();
        let told = [peer.address.as_str(), "--peer", "each sync waits for the origin", "again and again"];
        assert!(told.iter().all(|what| action.contains(what)), "{signal}: {action}");
        let log = pond.log();
        let mut of_peer = log.lines().filter(|line| line.contains(&format!("peer {}", peer.address)));
        assert!(of_peer.any(|line| line.contains(why)), "{signal}: {log}");
        drop(peer);
        let again = Peer::here(&pond);
        wait_until("it has a copy again", || pool_status(&pond)["state"] == "ONLINE");
        pool(&pond, "wait", &["-q".as_ref()]).ok();
        let status = pool_status(&pond);
        assert_eq!((&status["state"], &status["exposed_bytes"]), (&"ONLINE".into(), &0.into()), "{signal}: {status}");
        pool(&pond, "add", &["--peer".as_ref(), "unix:/nowhere".as_ref()])
            .refused(2, &["as many as copies=1 says", "copies=2"]);
        assert!(fs::read(&path).unwrap() == holds, "{signal}");
        pool(&pond, "remove", &[again.address.as_ref(), "-q".as_ref()]).ok();
        pond.unmount(&[]).ok();
        assert!(fs::read(pond.origin().join("file")).unwrap() == holds, "{signal}");
    }
}

/// The status says how much is still to be copied. The flash is slow, so there is time to look.
fn first_copy_is_told(pond: &Pond) {
    wait_for_progress(pond, "what is dirty", |status| {
        ["exposed_bytes", "exposed_bytes_per_second", "exposed_left_seconds"].map(|name| status[name].clone())
    });
    pool(pond, "status", &[]).refused(0, &["exposed: ", " have one copy, ", "/s", " to go"]);
    pond.fault("heal").ok();
    let waited = pool(pond, "wait", &["--json".as_ref()]).ok().json();
    assert_eq!((&waited["state"], &waited["exposed_bytes"]), (&"ONLINE".into(), &0.into()), "{waited}");
}

#[test]
fn the_first_copy_says_how_much_is_left_of_it() {
    let mut pond = Pond::new();
    pond.mount(&["--size", "96M", "--test-fault", "none"]).ok();
    run(["set", pond.mnt().to_str().unwrap(), "flush-period=off", "idle-flush=off", "sequential-cutoff=off"]).ok();
    let (path, holds) = (pond.mnt().join("file"), pattern(24 << 20, 1));
    write_and_sync(&path, &holds);
    // Of a peer that is added, and of one that a mount is the first to name.
    let peer = Peer::here(&pond);
    pond.fault("delay=20").ok();
    pool(&pond, "add", &["--peer".as_ref(), peer.address.as_ref(), "--background".as_ref()]).ok();
    first_copy_is_told(&pond);
    pool(&pond, "remove", &[peer.address.as_ref(), "-q".as_ref()]).ok();
    write_and_sync(&path, &holds);
    pond.unmount(&["--keep-dirty"]).ok();
    pond.mount_foreground(&["--test-fault", "delay=20", "--peer", &peer.address]);
    first_copy_is_told(&pond);
    pond.unmount(&[]).ok();
    assert!(fs::read(pond.origin().join("file")).unwrap() == holds);
}

/// Waits until this peer has a copy that is whole.
pub fn wait_for_copy_at(pond: &Pond, peer: &Peer) {
    wait_until("it has the copy", || {
        let status = pool_status(pond);
        let members = status["members"].as_array().unwrap();
        let has = |member: &serde_json::Value| member["flash"] == peer.address.as_str() && member["state"] == "ONLINE";
        members.iter().any(has) && status["state"] == "ONLINE"
    });
}

/// A host with this store takes over from one that is gone, and has each of so many synced records.
fn goes_on_with_everything(pond: &Pond, store: &str, synced: u64) {
    assert!(records(&pond.origin().join("ledger")) < synced, "the origin alone would do, so this shows nothing");
    take_over_from(pond, store, &["--old-owner-is-dead"]).ok();
    let found = records(&pond.at("mnt2").join("ledger"));
    assert!(found >= synced, "{found} of {synced} synced records");
    run(["unmount".as_ref(), pond.at("mnt2").as_os_str()]).ok();
}

#[test]
fn the_next_peer_has_the_copy_once_the_first_is_lost_and_it_can_take_over() {
    let mut pond = Pond::new();
    let (first, next) = (Peer::here(&pond), Peer::on_another(&pond));
    let daemon = mount(&mut pond, &["--size", SIZE, "--peer", &first.address, "--peer", &next.address]);
    wait_for_copy_at(&pond, &first);
    // The worker that follows knows both.
    pond.kill_worker(daemon);
    wait_for_copy_at(&pond, &first);
    let synced = lose_the_owner_after(&mut pond, daemon, |pond, synced| {
        at_least(synced, 50);
        first.signal("-KILL");
        wait_for_copy_at(pond, &next);
        at_least(synced, synced.load(Ordering::SeqCst) + 50);
    });
    take_over(&pond, &["--old-owner-is-dead"]).refused(43, &["is not all of the pool"]);
    goes_on_with_everything(&pond, "store3", synced);
}

/// The host that goes on has a peer of its own: one that is there only later. A third one goes on when that host dies, too.
#[test]
fn a_take_over_has_its_copy_at_the_peer_that_it_names() {
    let mut pond = Pond::new();
    let (first, next) = (Peer::here(&pond), Peer::on_another(&pond));
    let daemon = mount(&mut pond, &["--size", SIZE, "--peer", &first.address]);
    let synced = lose_the_owner(&mut pond, daemon, 50);
    let address = next.address.clone();
    next.signal("-STOP");
    take_over(&pond, &["--old-owner-is-dead", "--peer", &address]).ok();
    let mnt = pond.at("mnt2");
    next.signal("-CONT");
    let has_copy = || {
        let status = run(["pool".as_ref(), "status".as_ref(), mnt.as_os_str(), "--json".as_ref()]).ok().json();
        status["members"].as_array().unwrap().iter().any(|member| member["flash"] == address.as_str())
            && status["exposed_bytes"] == 0
    };
    wait_until("it has its copy", has_copy);
    run(["set".as_ref(), mnt.as_os_str(), "flush-period=12h".as_ref()]).ok();
    write_and_sync(&mnt.join("after"), b"on the second host");
    // A worker follows another one, whatever the store keeps by then: here the copy of another owner.
    let other = Pond::new();
    other.mount(&["--size", SIZE, "--peer", &first.address]).ok();
    wait_for_copy_at(&other, &first);
    pond.another_worker("mnt2", 1);
    assert_eq!(fs::read(mnt.join("after")).unwrap(), b"on the second host");
    other.unmount(&[]).ok();
    kill_second(&pond);
    for copy in fs::read_dir(pond.at("store")).unwrap() {
        fs::remove_file(copy.unwrap().path()).unwrap();
    }
    drop(first);
    take_over_from(&pond, "store3", &["--old-owner-is-dead"]).ok();
    let found = records(&mnt.join("ledger"));
    assert!(found >= synced, "{found} of {synced} synced records");
    assert_eq!(fs::read(mnt.join("after")).unwrap(), b"on the second host");
    run(["unmount".as_ref(), mnt.as_os_str()]).ok();
}

/// Two hosts have all that is synced. The owner dies with its flash, and one of them: at once, or before.
#[test]
fn the_loss_of_the_owner_and_of_one_of_two_peers_loses_nothing() {
    for at_once in [true, false] {
        let mut pond = Pond::new();
        let (first, second) = (Peer::here(&pond), Peer::on_another(&pond));
        let two = ["--size", SIZE, "--copies", "2", "--peer", &first.address, "--peer", &second.address];
        let daemon = mount(&mut pond, &two);
        let wait_for_both = |pond: &Pond| {
            wait_for_copy_at(pond, &first);
            wait_for_copy_at(pond, &second);
        };
        wait_for_both(&pond);
        wait_until("either could take over", || who_can_take_over(&pond) == 2);
        // The worker that follows knows both.
        pond.kill_worker(daemon);
        wait_for_both(&pond);
        let synced = lose_the_owner_after(&mut pond, daemon, |pond, synced| {
            at_least(synced, 50);
            first.signal("-KILL");
            if !at_once {
                wait_until("the loss is noticed", || pool_status(pond)["state"] == "DEGRADED");
                at_least(synced, synced.load(Ordering::SeqCst) + 50);
                let status = pool_status(pond);
                let action = status["actions"][0].as_str().unwrap_or_default();
                assert!(action.contains("a copy on one other host, not on two"), "{status}");
                assert_eq!(status["exposed_bytes"], 0, "the other one has everything: {status}");
                wait_until("the other one can take over", || who_can_take_over(pond) == 1);
            }
        });
        goes_on_with_everything(&pond, "store3", synced);
    }
}

/// A server keeps one copy of a pool. By a second address it would make another in its place, again and again.
#[test]
fn one_peer_by_two_addresses_has_one_copy() {
    let mut pond = Pond::new();
    let peer = Peer::here(&pond);
    std::os::unix::fs::symlink(pond.at("peer"), pond.at("same")).unwrap();
    let same = format!("unix:{}", pond.at("same").display());
    let two = ["--size", SIZE, "--copies", "2", "--peer", &peer.address, "--peer", &same];
    let daemon = pond.mount_foreground(&two);
    write_and_sync(&pond.mnt().join("file"), b"on two hosts");
    wait_until("it has everything", || who_can_take_over(&pond) == 1);
    wait_until("the second one is refused", || pond.log().contains("it has the pool's other copy, by another address"));
    let by_hand = pool(&pond, "add", &["--peer".as_ref(), same.as_ref()]);
    assert!(by_hand.text.contains("needs another host"), "{}", by_hand.text);
    write_and_sync(&pond.mnt().join("file"), b"and it stays so");
    assert_eq!(who_can_take_over(&pond), 1, "{}", pond.log());
    assert_eq!(pond.log().matches(" has joined the pool").count(), 1, "{}", pond.log());
    pond.unmount(&[]).ok();
    pond.wait(daemon);
}

/// How many peers have everything.
fn who_can_take_over(pond: &Pond) -> usize {
    let status = pool_status(pond);
    let members = status["members"].as_array().unwrap();
    members.iter().filter(|member| member["can_take_over"] == true).count()
}

#[test]
fn a_peer_that_is_removed_is_not_asked_again_and_the_next_one_is() {
    let mut pond = Pond::new();
    let (first, next) = (Peer::here(&pond), Peer::on_another(&pond));
    let daemon = mount(&mut pond, &["--size", SIZE, "--peer", &first.address, "--peer", &next.address]);
    write_and_sync(&pond.mnt().join("file"), b"on two hosts");
    assert_eq!(pool_status(&pond)["peers"], serde_json::json!([first.address, next.address]));
    pool(&pond, "remove", &[first.address.as_ref(), "-q".as_ref()]).ok();
    wait_for_copy_at(&pond, &next);
    assert_eq!(pool_status(&pond)["peers"], serde_json::json!([next.address]));
    pool(&pond, "remove", &[next.address.as_ref(), "-q".as_ref()]).ok();
    let status = pool_status(&pond);
    assert_eq!((&status["state"], &status["peers"]), (&"ONLINE".into(), &serde_json::json!([])), "{status}");
    pond.unmount(&[]).ok();
    pond.wait(daemon);
}

#[test]
fn without_a_copy_a_sync_waits_for_the_origin_or_for_another_copy_as_is_set() {
    let mut pond = Pond::new();
    let peer = Peer::here(&pond);
    let daemon = mount(&mut pond, &["--size", SIZE, "--peer", &peer.address]);
    let (file, at_origin) = (pond.mnt().join("file"), pond.origin().join("file"));
    write_and_sync(&file, b"on two hosts");
    let is_lost = || {
        let status = pool_status(&pond);
        status["members"].as_array().unwrap().iter().any(|member| member["state"] == "FAULTED")
    };
    peer.signal("-KILL");
    wait_until("the copy is lost", is_lost);
    for round in 0..20 {
        write_and_sync(&file, &pattern(1 << 16, round));
        assert!(fs::read(&at_origin).unwrap() == pattern(1 << 16, round), "write-through: round {round}");
    }
    drop(peer);
    let peer = Peer::here(&pond);
    wait_for_copy_at(&pond, &peer);
    run(["set".as_ref(), pond.mnt().as_os_str(), "on-copy-loss=freeze".as_ref()]).ok();
    peer.signal("-KILL");
    let answered = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            write_and_sync(&pond.mnt().join("other"), b"once there are two hosts");
            answered.store(true, Ordering::SeqCst);
        });
        wait_until("the copy is lost", is_lost);
        let action = pool_status(&pond)["actions"][0].as_str().unwrap().to_owned();
        assert!(action.contains("no sync is answered"), "{action}");
        assert!(fs::read(&file).unwrap() == pattern(1 << 16, 19), "reads go on");
        assert!(!answered.load(Ordering::SeqCst), "a sync was answered without a copy");
        drop(peer);
        let peer = Peer::here(&pond);
        wait_for_copy_at(&pond, &peer);
        writer.join().unwrap();
        assert!(answered.load(Ordering::SeqCst));
        pond.unmount(&[]).ok();
    });
    pond.wait(daemon);
}

/// SIGKILL for the mount that took over.
fn kill_second(pond: &Pond) {
    let mnt = pond.at("mnt2");
    let status = run(["status".as_ref(), mnt.as_os_str(), "--json".as_ref()]).ok().json();
    let pids = ["holder", "pid"].map(|name| status[name].as_u64().unwrap().to_string());
    assert!(Command::new("kill").arg("-KILL").args(&pids).status().unwrap().success());
    wait_until("both are gone", || pids.iter().all(|pid| headpond_control::has_ended(pid.parse().unwrap())));
    let _ = Command::new("umount").arg("-l").arg(mnt).output();
}

#[test]
fn an_owner_that_was_deposed_answers_no_sync_and_comes_back_to_nothing() {
    let mut pond = Pond::new();
    let peer = Peer::here(&pond);
    let daemon = mount(&mut pond, &["--size", SIZE, "--peer", &peer.address]);
    write_and_sync(&pond.mnt().join("before"), b"on both");
    // It lives, and has the lock beside the origin: nothing is raised, and the copy stays.
    take_over(&pond, &["--old-owner-is-dead"]).refused(11, &["already"]);
    write_and_sync(&pond.mnt().join("before"), b"on both hosts");

    // Where that lock is not seen.
    let file = OpenOptions::new().write(true).open(pond.mnt().join("before")).unwrap();
    let taken = headpond_control::take_over(&pond.at("store"), None).unwrap();
    assert_eq!(taken.owner, 2);
    let deposed = file.write_all_at(b"ON", 0).and_then(|()| file.sync_all());
    assert!(deposed.is_err(), "the sync of a deposed owner was answered");
    wait_until("it says so", || {
        let said = run(["status".as_ref(), pond.mnt().as_os_str()]).text;
        said.contains("LOST") && said.contains("owner's number 2")
    });
    assert!(!pond.origin().join(".headpond/obsolete.json").exists());
    drop(file);
    pond.kill(daemon);
    let _ = Command::new("umount").arg("-l").arg(pond.mnt()).output();
    assert!(fs::read(&taken.path).unwrap().windows(13).any(|held| held == b"on both hosts"));

    // The old owner comes back before the new one has begun, while it serves, and after it.
    let comes_back = |more: &[&str]| pond.mount(more);
    comes_back(&["--peer", &peer.address]).refused(45, &["owner's number 2", "another host"]);
    take_over(&pond, &["--old-owner-is-dead"]).ok();
    assert_eq!(fs::read(pond.at("mnt2").join("before")).unwrap(), b"on both hosts");
    comes_back(&["--peer", &peer.address]).refused(11, &["already"]);
    write_and_sync(&pond.at("mnt2").join("before"), b"on the second host");
    kill_second(&pond);
    comes_back(&["--peer", &peer.address]).refused(45, &["owner's number 2", "another host"]);
    // Without its peer the marker tells.
    comes_back(&[]).refused(45, &["owner's number 2", "Nothing was written"]);
    take_over(&pond, &["--old-owner-is-dead"]).ok();
    assert_eq!(fs::read(pond.at("mnt2").join("before")).unwrap(), b"on the second host");
}

#[test]
fn a_worker_that_dies_is_followed_by_one_that_has_the_copy() {
    let mut pond = Pond::new();
    let peer = Peer::here(&pond);
    let daemon = mount(&mut pond, &["--size", SIZE, "--peer", &peer.address]);
    for round in 0..3 {
        write_and_sync(&pond.mnt().join("file"), &pattern(1 << 20, round));
        pond.kill_worker(daemon);
        assert!(fs::read(pond.mnt().join("file")).unwrap() == pattern(1 << 20, round));
        wait_until("the copy is there", || pool_status(&pond)["state"] == "ONLINE");
    }
    let synced = lose_the_owner(&mut pond, daemon, 20);
    take_over(&pond, &["--old-owner-is-dead"]).ok();
    assert!(records(&pond.at("mnt2").join("ledger")) >= synced);
    assert!(fs::read(pond.at("mnt2").join("file")).unwrap() == pattern(1 << 20, 2));
}

#[test]
fn a_pool_whose_own_flash_fails_goes_on_upon_its_copy() {
    let pond = Pond::new();
    let peer = Peer::here(&pond);
    pond.mount(&["--size", SIZE, "--peer", &peer.address, "--test-fault", "none"]).ok();
    let (end, path) = (AtomicBool::new(false), pond.mnt().join("file"));
    let holds = std::thread::scope(|scope| {
        let writer = scope.spawn(|| write_and_verify(&path, &end));
        let at_last = EndAtLast(&end);
        wait_until("it is copied", || pool_status(&pond)["members"][1]["dirty_bytes"].as_u64() > Some(0));
        fault(&pond, "flash", "cut");
        wait_until("the pool goes on without it", || pool_status(&pond)["members"][0]["state"] == "FAULTED");
        write_and_sync(&pond.mnt().join("after"), b"on the copy");
        drop(at_last);
        writer.join().unwrap()
    });
    let status = pool_status(&pond);
    assert_eq!(
        (&status["state"], &status["members"][1]["copies_only"]),
        (&"DEGRADED".into(), &false.into()),
        "{status}"
    );
    assert_eq!(pond.status()["flash_failed"], false);
    assert!(fs::read(&path).unwrap() == holds);
    // Another flash has all that is dirty, so the next mount has it without the peer.
    let another = pond.at(SECOND);
    pool(&pond, "add", &[another.as_os_str(), "--size".as_ref(), SIZE.as_ref()]).ok();
    write_and_sync(&pond.mnt().join("after"), b"on both");
    wait_until("each block has its second copy", || pool_status(&pond)["exposed_bytes"] == 0);
    assert_eq!(fs::read(pond.mnt().join("after")).unwrap(), b"on both");
    pond.unmount(&[]).ok();
    assert!(fs::read(pond.origin().join("file")).unwrap() == holds);
}

/// A peer that is asked for a copy makes it in the place of what it has: here of the pool's only device.
#[test]
fn the_peer_that_has_the_only_device_is_not_asked_for_a_copy_and_the_next_one_is() {
    let mut pond = Pond::new();
    let (first, next) = (Peer::here(&pond), Peer::on_another(&pond));
    let named = ["--size", SIZE, "--peer", &first.address, "--peer", &next.address, "--test-fault", "none"];
    let daemon = mount(&mut pond, &named);
    let file = pond.mnt().join("file");
    write_and_sync(&file, &pattern(1 << 20, 1));
    fault(&pond, "flash", "cut");
    write_and_sync(&pond.mnt().join("after"), b"on the copy");
    let has_copy = |status: &serde_json::Value| {
        let mut members = status["members"].as_array().unwrap().iter();
        members.any(|member| member["flash"] == next.address.as_str() && member["state"] == "ONLINE")
    };
    wait_until("the next peer has a copy", || has_copy(&pool_status(&pond)));
    assert_eq!(pond.status()["flash_failed"], false, "{}", pond.log());
    assert_eq!(fs::read(&file).unwrap(), pattern(1 << 20, 1));
    write_and_sync(&file, &pattern(1 << 20, 2));
    pond.unmount(&[]).ok();
    pond.wait(daemon);
    assert_eq!(fs::read(pond.origin().join("file")).unwrap(), pattern(1 << 20, 2));
}

#[test]
fn without_certificates_a_peer_is_on_this_host() {
    let pond = Pond::new();
    let store = pond.at("store");
    let serve = |listen: &str| {
        run([
            "peer".as_ref(),
            "serve".as_ref(),
            "--listen".as_ref(),
            listen.as_ref(),
            "--store".as_ref(),
            store.as_os_str(),
        ])
    };
    serve("0.0.0.0:0").refused(2, &["--certificates"]);
    serve("nonsense").refused(2, &["unix:PATH or HOST:PORT"]);
    pond.mount(&["--size", SIZE, "--peer", "192.0.2.1:7433"]).refused(0, &["DEGRADED", "--peer-certificates"]);
    pond.unmount(&[]).ok();
    // Where dirty data has one copy, a peer would have none.
    pond.mount(&["--redundancy", "none", "--peer", "unix:/nowhere"]).refused(0, &["redundancy=mirror"]);
    pond.unmount(&[]).ok();
}

/// What a store says of its only pool.
pub fn kept(pond: &Pond, store: &str) -> serde_json::Value {
    let store = pond.at(store);
    run(["peer".as_ref(), "status".as_ref(), "--json".as_ref(), "--store".as_ref(), store.as_os_str()]).ok().json()[0]
        .clone()
}

pub fn lose_the_mount(pond: &mut Pond, daemon: usize) {
    pond.kill(daemon);
    let _ = Command::new("umount").arg("-l").arg(pond.mnt()).output();
}

#[test]
fn a_take_over_that_is_refused_leaves_the_pool_with_its_owner() {
    // A copy that was lost before the owner, so it lacks what was synced after.
    let mut pond = Pond::new();
    let peer = Peer::here(&pond);
    let daemon = mount(&mut pond, &["--size", SIZE, "--peer", &peer.address]);
    write_and_sync(&pond.mnt().join("file"), b"on both hosts");
    peer.signal("-KILL");
    wait_until("the pool goes on without it", || pool_status(&pond)["members"][1]["state"] == "FAULTED");
    write_and_sync(&pond.mnt().join("file"), b"on this one alone");
    drop(peer);
    lose_the_mount(&mut pond, daemon);
    take_over(&pond, &["--old-owner-is-dead"]).refused(43, &["is not all of the pool"]);
    assert_eq!(kept(&pond, "store")["owner"], 1);
    let peer = Peer::here(&pond);
    let daemon = mount(&mut pond, &["--peer", &peer.address]);
    assert_eq!(fs::read(pond.mnt().join("file")).unwrap(), b"on this one alone");

    // A copy that has rotted. The server is there this time, and lets it go.
    let bytes = pattern(1 << 16, 7);
    write_and_sync(&pond.mnt().join("rotten"), &bytes);
    // Before the last checkpoint: a start does not read it again.
    pond.unmount(&["--keep-dirty"]).ok();
    pond.wait(daemon);
    let daemon = mount(&mut pond, &["--peer", &peer.address]);
    write_and_sync(&pond.mnt().join("after"), b"after it");
    lose_the_mount(&mut pond, daemon);
    let copy = PathBuf::from(kept(&pond, "store")["file"].as_str().unwrap());
    let held = fs::read(&copy).unwrap();
    let places: Vec<usize> =
        (0..held.len()).step_by(4096).filter(|at| held[*at..*at + 4096] == bytes[..4096]).collect();
    assert!(!places.is_empty(), "this test needs the data as it is");
    let file = OpenOptions::new().write(true).open(&copy).unwrap();
    places.iter().for_each(|at| file.write_all_at(&[9; 512], *at as u64).unwrap());
    take_over(&pond, &["--old-owner-is-dead"]).refused(38, &["damaged", "Nothing was changed", "--even-damaged"]);
    assert_eq!(kept(&pond, "store")["owner"], 1);
    let daemon = mount(&mut pond, &["--peer", &peer.address]);
    assert!(fs::read(pond.mnt().join("rotten")).unwrap() == bytes, "the owner has it");
    lose_the_mount(&mut pond, daemon);
    take_over(&pond, &["--old-owner-is-dead", "--even-damaged"]).ok();
    assert_eq!(kept(&pond, "store")["owner"], 2);
    assert_eq!(fs::read(pond.at("mnt2").join("after")).unwrap(), b"after it");
    run(["unmount".as_ref(), pond.at("mnt2").as_os_str(), "--keep-dirty".as_ref()]).ok();
}

/// As if the peer's host had started anew since: what its kernel had in memory alone does not count.
fn restart_the_peers_host(pond: &Pond) {
    let record = fs::read_dir(pond.at("store")).unwrap().map(|entry| entry.unwrap().path());
    let path = record.into_iter().find(|path| path.extension() == Some("json".as_ref())).unwrap();
    let mut record: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    record["boot"] = "another".into();
    fs::write(&path, record.to_string()).unwrap();
}

#[test]
fn a_copy_counts_after_its_host_was_stopped_in_order_or_if_its_syncs_are_durable() {
    for (signal, more, counts) in
        [("-TERM", None, true), ("-KILL", None, false), ("-KILL", Some("--copies-durable"), true)]
    {
        let mut pond = Pond::new();
        let mut peer = Peer::here(&pond);
        let mut options = vec!["--size", SIZE, "--peer", &peer.address];
        options.extend(more);
        let daemon = mount(&mut pond, &options);
        write_and_sync(&pond.mnt().join("file"), b"on both hosts");
        peer.signal(signal);
        let status = peer.child.wait().unwrap();
        assert_eq!(status.code(), (signal == "-TERM").then_some(0));
        let log = fs::read_to_string(pond.at("store.log")).unwrap();
        assert_eq!(log.contains("stopped: each copy is on disk"), signal == "-TERM", "{log}");
        // Before the owner notices, and tells the origin so.
        lose_the_mount(&mut pond, daemon);
        restart_the_peers_host(&pond);
        let kept = kept(&pond, "store");
        assert_eq!((&kept["counts"], &kept["durable"]), (&counts.into(), &more.is_some().into()), "{kept}");
        if !counts {
            assert!(kept["why"].as_str().unwrap().contains("went down"), "{kept}");
            take_over(&pond, &["--old-owner-is-dead"]).refused(1, &["does not count", "Nothing was changed"]);
        }
    }
}
