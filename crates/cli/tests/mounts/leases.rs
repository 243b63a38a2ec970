//! Promise 12 with a lease: once an owner's lease is gone, a guard goes on with its copy, and nothing that was synced is
//! lost; an owner whose lease may be over stands still; one that was deposed serves nothing. Two hosts are two
//! directories here, the origin is one that both see, and etcd is a real one.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::lacking::lacks_nothing;
use crate::peers::{Peer, append, kept, lose_the_mount, records};
use crate::pond::{
    Pond, SIZE, headpond, is_mounted, kill_with_workers, once_no_test_holds_it, run, wait_until, write_and_sync,
};
use crate::several_devices::{pool, pool_status};

/// A running etcd, with data of its own.
struct Etcd {
    child: Child,
    dir: PathBuf,
    port: u16,
}

fn etcd_program() -> Option<PathBuf> {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/bin/etcd");
    let here = [built, "etcd".into()].into_iter().find(|path| Command::new(path).arg("--version").output().is_ok());
    lacks_nothing(here.is_none().then_some("etcd (Debian: package etcd-server)")).then_some(here).flatten()
}

impl Etcd {
    /// None where there is no etcd, which the test has then said.
    fn start(pond: &Pond) -> Option<Self> {
        let program = etcd_program()?;
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let dir = pond.at("etcd");
        Some(Self { child: Self::run(&program, &dir, port), dir, port })
    }

    fn run(program: &Path, dir: &Path, port: u16) -> Child {
        let address = format!("http://127.0.0.1:{port}");
        let mut command = Command::new(program);
        command.arg("--data-dir").arg(dir).args([
            "--listen-client-urls",
            &address,
            "--advertise-client-urls",
            &address,
        ]);
        command.args(["--listen-peer-urls", "http://127.0.0.1:0"]);
        let log = File::create(dir.with_extension("log")).unwrap();
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap();
        wait_until("etcd answers", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        child
    }

    fn address(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn start_again(&mut self) {
        self.child = Self::run(&etcd_program().unwrap(), &self.dir, self.port);
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A wire to etcd that can be cut, so that one side alone cannot reach it.
struct Wire {
    port: u16,
    cut: Arc<AtomicBool>,
    ends: Arc<Mutex<Vec<TcpStream>>>,
}

impl Wire {
    fn to(etcd: &Etcd) -> Self {
        Self::for_changes(etcd, u64::MAX)
    }

    /// One that is cut by itself: so many changes reach etcd, and nothing after them.
    fn for_changes(etcd: &Etcd, most: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (port, to) = (listener.local_addr().unwrap().port(), etcd.port);
        let (cut, ends) = (Arc::new(AtomicBool::new(false)), Arc::<Mutex<Vec<TcpStream>>>::default());
        let (is_cut, all) = (cut.clone(), ends.clone());
        let left = Arc::new(AtomicU64::new(most));
        std::thread::spawn(move || {
            for near in listener.incoming().flatten() {
                // As a firewall that drops: who connects hears nothing.
                let far = TcpStream::connect(("127.0.0.1", to));
                let mut all = all.lock().unwrap();
                let Ok(far) = far else { continue };
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let (is_cut, left) = (is_cut.clone(), left.clone());
                    std::thread::spawn(move || {
                        let mut chunk = [0; 4096];
                        while let Ok(read) = from.read(&mut chunk) {
                            let is_change = chunk[..read].windows(10).any(|part| part == b"requestPut");
                            if is_change && left.fetch_sub(1, Ordering::SeqCst) == 0 {
                                is_cut.store(true, Ordering::SeqCst);
                            }
                            if read == 0 || (!is_cut.load(Ordering::SeqCst) && to.write_all(&chunk[..read]).is_err()) {
                                break;
                            }
                        }
                    });
                }
                all.extend([near, far]);
            }
        });
        Self { port, cut, ends }
    }

    fn address(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    fn cut(&self) {
        self.cut.store(true, Ordering::SeqCst);
    }

    fn is_cut(&self) -> bool {
        self.cut.load(Ordering::SeqCst)
    }

    fn mend(&self) {
        self.cut.store(false, Ordering::SeqCst);
        for end in self.ends.lock().unwrap().drain(..) {
            let _ = end.shutdown(Shutdown::Both);
        }
    }
}

/// A `headpond peer guard` of the second host, and its mount later.
struct Guard {
    child: Child,
    log: PathBuf,
}

impl Guard {
    fn start(pond: &Pond, registry: &str, more: &[&OsStr]) -> Self {
        Self::of(pond, &pond.origin(), registry, more)
    }

    fn of(pond: &Pond, origin: &Path, registry: &str, more: &[&OsStr]) -> Self {
        let log = pond.at("guard.log");
        let mut command = headpond();
        command.args(["peer", "guard"]).arg(origin).arg(pond.at("mnt2")).arg("--store").arg(pond.at("store"));
        command.args(["--registry", registry, "--lease-seconds", "3", "--node", "second"]).args(more);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&log).unwrap());
        Self { child: child.spawn().unwrap(), log }
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn wait_for_mount(&mut self, pond: &Pond) {
        let mnt = pond.at("mnt2");
        wait_until("the guard has mounted", || {
            assert!(self.child.try_wait().unwrap().is_none(), "{}", self.log());
            is_mounted(&mnt) && run([OsStr::new("status"), mnt.as_os_str()]).status == 0
        });
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            // With SIGTERM a mount ends, and keeps what is dirty.
            let _ = Command::new("kill").arg(self.child.id().to_string()).status();
            let _ = self.child.wait();
        }
    }
}

/// A program that fences: it notes with what it was called, and ends with this status.
fn fence(pond: &Pond, status: u8) -> PathBuf {
    fence_that(pond, &format!("exit {status}"))
}

/// The same with something to do.
fn fence_that(pond: &Pond, does: &str) -> PathBuf {
    noting(pond, "fence", "fenced", does)
}

/// A program of this name that notes with what it was called, and then has something to do.
fn noting(pond: &Pond, name: &str, calls: &str, does: &str) -> PathBuf {
    let path = pond.at(name);
    let next = pond.at(&format!("{name}.next"));
    fs::write(&next, format!("#!/bin/sh\necho \"$@\" >> {}\n{does}\n", pond.at(calls).display())).unwrap();
    fs::set_permissions(&next, fs::Permissions::from_mode(0o755)).unwrap();
    fs::rename(&next, &path).unwrap();
    path
}

/// Mounts the first host's side, with a copy and a lease.
fn mount(pond: &mut Pond, peer: &Peer, registry: &str) -> usize {
    let daemon = pond.mount_foreground(&[
        "--size",
        SIZE,
        "--peer",
        &peer.address,
        "--registry",
        registry,
        "--lease-seconds",
        "3",
        "--node",
        "first",
    ]);
    wait_until("the peer has a copy", || {
        let status = pool_status(pond);
        status["state"] == "ONLINE" && status["members"][1]["copies_only"] == true
    });
    run(["set".as_ref(), pond.mnt().as_os_str(), "flush-period=12h".as_ref()]).ok();
    wait_until("it has the lease", || {
        pond.status()["lease"] == "held"
            && run(["stats".as_ref(), pond.mnt().as_os_str()]).text.contains("\nlease_waiting 0\n")
    });
    daemon
}

fn unmount_lazily(mnt: &Path) {
    let _ = Command::new("umount").arg("-l").arg(mnt).output();
}

#[test]
fn a_guard_goes_on_with_all_that_was_synced_once_the_owner_is_dead() {
    let mut pond = Pond::new();
    let Some(etcd) = Etcd::start(&pond) else { return };
    let peer = Peer::here(&pond);
    let daemon = mount(&mut pond, &peer, &etcd.address());
    let program = fence(&pond, 1);
    let guard = Guard::start(&pond, &etcd.address(), &["--fence".as_ref(), program.as_os_str()]);
    wait_until("the guard watches", || guard.log().contains("node first owns it"));
    let (synced, ledger) = (AtomicU64::new(0), pond.mnt().join("ledger"));
    let killed = std::thread::scope(|scope| {
        let writer = scope.spawn(|| append(&ledger, &synced));
        wait_until("it is written", || synced.load(Ordering::SeqCst) >= 100);
        pond.kill(daemon);
        fs::remove_file(pond.flash()).unwrap();
        writer.join().unwrap();
        Instant::now()
    });
    unmount_lazily(&pond.mnt());
    // As long as the program fails, nothing is taken over.
    wait_until("the lease is given back", || guard.log().contains("The lease is given back"));
    assert!(guard.log().contains("exit status: 1"), "{}", guard.log());
    assert!(!is_mounted(&pond.at("mnt2")));
    // A guard that dies with the lease in its hand leaves the pool to the owner, and the next one knows whom to fence.
    fs::write(pond.at("fence"), "#!/bin/sh\nsleep 30\n").unwrap();
    wait_until("it has the lease again", || guard.log().matches("is about to follow").count() >= 2);
    guard.kill();
    let database = noting(&pond, "start", "started", "cat \"$1/ledger\" > /dev/null && exit 3");
    let programs = ["--fence".as_ref(), program.as_os_str(), "--on-mount".as_ref(), database.as_os_str()];
    let mut guard = Guard::start(&pond, &etcd.address(), &programs);
    let status =
        run(["peer".as_ref(), "status".as_ref(), "--json".as_ref(), "--store".as_ref(), pond.at("store").as_os_str()]);
    assert_eq!(status.ok().json()[0]["owner"], 1, "the number went up for nothing");
    fence(&pond, 0);
    guard.wait_for_mount(&pond);
    println!("from the kill to the mount, with one fence that failed: {:?}", killed.elapsed());
    let fenced = fs::read_to_string(pond.at("fenced")).unwrap();
    let words: Vec<&str> = fenced.lines().last().unwrap().split(' ').collect();
    assert_eq!(words[1..4], ["first", "second", "2"], "{fenced}");
    let calls = fenced.lines().count();
    let (found, synced) = (records(&pond.at("mnt2").join("ledger")), synced.into_inner());
    assert!(found >= synced, "{found} of {synced} synced records");
    write_and_sync(&pond.at("mnt2").join("after"), b"on the second host");
    assert_eq!(pond.marker().unwrap()["owner"], 2);
    // The database was to be started on it, once. That this failed is no matter of the mount.
    wait_until("it says how the program ended", || guard.log().contains("ended with exit status: 3"));
    let told = format!("{} {}\n", pond.at("mnt2").display(), words[0]);
    assert_eq!(fs::read_to_string(pond.at("started")).unwrap(), told);
    pond.another_worker("mnt2", 1);
    assert_eq!(fs::read(pond.at("mnt2").join("after")).unwrap(), b"on the second host");
    assert_eq!(fs::read_to_string(pond.at("started")).unwrap(), told, "a worker that takes over starts it again");
    // Its mount dies, too. The guard goes on with its own pool, and fences nobody.
    let status = run(["status".as_ref(), pond.at("mnt2").as_os_str(), "--json".as_ref()]).ok().json();
    let pids = ["holder", "pid"].map(|name| status[name].as_u64().unwrap().to_string());
    assert!(Command::new("kill").arg("-KILL").args(&pids).status().unwrap().success());
    wait_until("both are gone", || pids.iter().all(|pid| headpond_control::has_ended(pid.parse().unwrap())));
    unmount_lazily(&pond.at("mnt2"));
    drop(guard);
    noting(&pond, "start", "started", "exit 0");
    let mut guard = Guard::start(&pond, &etcd.address(), &programs);
    guard.wait_for_mount(&pond);
    assert_eq!(fs::read_to_string(pond.at("fenced")).unwrap().lines().count(), calls, "it fenced itself");
    wait_until("it says how the program ended", || guard.log().contains("start: done"));
    assert_eq!(fs::read_to_string(pond.at("started")).unwrap(), told.repeat(2), "with each mount anew");
    assert_eq!(fs::read(pond.at("mnt2").join("after")).unwrap(), b"on the second host");
}

/// What an application sees of a mount that serves nothing any more.
fn serves_nothing(mnt: &Path, before: &File) {
    let mut byte = [0];
    // Past the kernel's pages.
    let _ = rustix::fs::fadvise(before, 0, None, rustix::fs::Advice::DontNeed);
    assert!(before.read_at(&mut byte, 0).is_err(), "a deposed owner answered a read");
    let synced = before.write_at(b"X", 0).and_then(|_| before.sync_all());
    assert!(synced.is_err(), "a deposed owner answered a sync");
    assert!(File::create(mnt.join("new")).is_err(), "a deposed owner made a file");
}

#[test]
fn an_owner_that_was_stopped_or_cut_off_serves_nothing_once_another_has_the_pool() {
    for case in ["stopped", "cut off from etcd"] {
        let mut pond = Pond::new();
        let Some(etcd) = Etcd::start(&pond) else { return };
        let (peer, wire) = (Peer::here(&pond), Wire::to(&etcd));
        let daemon = mount(&mut pond, &peer, &wire.address());
        write_and_sync(&pond.mnt().join("file"), &[7; 8192]);
        let file = OpenOptions::new().read(true).write(true).open(pond.mnt().join("file")).unwrap();
        let program = fence(&pond, 0);
        let mut guard = Guard::start(&pond, &etcd.address(), &["--fence".as_ref(), program.as_os_str()]);
        wait_until("the guard watches", || guard.log().contains("node first owns it"));
        if case == "stopped" {
            pond.signal_both(daemon, "-STOP")
        } else {
            wire.cut()
        }
        guard.wait_for_mount(&pond);
        write_and_sync(&pond.at("mnt2").join("file"), b"the second host's");
        if case == "stopped" {
            pond.signal_both(daemon, "-CONT")
        } else {
            wire.mend()
        }
        wait_until("the old owner knows", || {
            pond.log().contains("another host has taken over the pool") || pond.log().contains("the registry says")
        });
        serves_nothing(&pond.mnt(), &file);
        drop(file);
        let said = run(["status".as_ref(), pond.mnt().as_os_str()]).text;
        assert!(said.contains("LOST") && said.contains("owner's number 2"), "{case}: {said}");
        run(["flush".as_ref(), pond.mnt().as_os_str(), "-q".as_ref()]).refused(72, &[]);
        lose_the_mount(&mut pond, daemon);
        assert_eq!(fs::read(pond.at("mnt2").join("file")).unwrap(), b"the second host's", "{case}");
        assert!(!pond.origin().join("new").exists(), "{case}: the old owner changed the origin");
        // It comes back to nothing, for as long as the second host has the pool, and after that.
        let back = |pond: &Pond| pond.mount(&["--registry", &etcd.address(), "--node", "first"]);
        back(&pond).refused(11, &["already"]);
        run(["unmount".as_ref(), pond.at("mnt2").as_os_str(), "--keep-dirty".as_ref()]).ok();
        back(&pond).refused(45, &["node second took it over", "owner's number 2"]);
    }
}

#[test]
fn a_deposed_owner_leaves_what_lies_beside_the_origin_as_it_is() {
    let mut pond = Pond::new();
    let Some(etcd) = Etcd::start(&pond) else { return };
    let (peer, wire) = (Peer::here(&pond), Wire::to(&etcd));
    let daemon = mount(&mut pond, &peer, &wire.address());
    write_and_sync(&pond.mnt().join("file"), b"dirty");
    let before = pond.marker().unwrap();
    // The guard takes the copy, so the peer deposes the owner; and then it cannot mount.
    let program = fence_that(&pond, &format!("touch {}", pond.at("mnt2").join("in-the-way").display()));
    let mut guard = Guard::start(&pond, &etcd.address(), &["--fence".as_ref(), program.as_os_str()]);
    wait_until("the guard watches", || guard.log().contains("node first owns it"));
    wire.cut();
    wait_until("the guard has ended", || guard.child.try_wait().unwrap().is_some());
    assert!(guard.log().contains("this host is the owner from now on"), "{}", guard.log());
    wait_until("the old owner has let go of its peer", || pond.log().contains("is out of the pool"));
    // It names its devices there as the last step of that.
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(pond.marker().unwrap(), before);
    // A start that finds it changed is refused.
    fs::remove_file(pond.at("mnt2").join("in-the-way")).unwrap();
    let program = fence(&pond, 0);
    let mut guard = Guard::start(&pond, &etcd.address(), &["--fence".as_ref(), program.as_os_str()]);
    guard.wait_for_mount(&pond);
    // A reboot of this host in order: its guard goes on with what is this host's.
    drop(guard);
    assert!(!is_mounted(&pond.at("mnt2")));
    let mut guard = Guard::start(&pond, &etcd.address(), &["--fence".as_ref(), program.as_os_str()]);
    guard.wait_for_mount(&pond);
    assert_eq!(fs::read(pond.at("mnt2").join("file")).unwrap(), b"dirty");
    lose_the_mount(&mut pond, daemon);
}

#[test]
fn a_guard_that_could_not_mount_deposes_nobody() {
    let mut pond = Pond::new();
    let Some(etcd) = Etcd::start(&pond) else { return };
    let (peer, wire) = (Peer::here(&pond), Wire::to(&etcd));
    let daemon = mount(&mut pond, &peer, &wire.address());
    write_and_sync(&pond.mnt().join("file"), b"dirty");
    let program = fence(&pond, 0);
    let start = |origin: &Path| Guard::of(&pond, origin, &etcd.address(), &["--fence".as_ref(), program.as_os_str()]);
    let in_the_way = pond.at("mnt2").join("in-the-way");
    fs::write(&in_the_way, b"").unwrap();
    let mut guard = start(&pond.origin());
    wait_until("the guard is refused", || guard.child.try_wait().unwrap().is_some());
    assert_eq!(guard.child.wait().unwrap().code(), Some(21), "{}", guard.log());
    fs::remove_file(&in_the_way).unwrap();
    // The file comes later, or the origin is not mounted.
    fs::create_dir(pond.at("unmounted")).unwrap();
    for (origin, why) in [(pond.origin(), "in-the-way"), (pond.at("unmounted"), "is it mounted there?")] {
        let mut guard = start(&origin);
        wait_until("the guard watches", || guard.log().contains("node first owns it"));
        if origin == pond.origin() {
            fs::write(&in_the_way, b"").unwrap();
        }
        wire.cut();
        wait_until("the guard gives the lease back", || {
            guard.log().contains(why) && guard.log().contains("The lease is given back")
        });
        assert!(guard.child.try_wait().unwrap().is_none(), "it goes on to watch: {}", guard.log());
        guard.kill();
        wire.mend();
        wait_until("the owner goes on", || pond.status()["lease"] == "held");
        write_and_sync(&pond.mnt().join("file"), b"dirty");
        let _ = fs::remove_file(&in_the_way);
    }
    assert!(!pond.at("fenced").exists(), "the owner was fenced");
    lose_the_mount(&mut pond, daemon);
}

#[test]
fn an_owner_without_a_registry_stands_still_when_its_lease_is_over_and_goes_on_when_it_is_back() {
    let mut pond = Pond::new();
    let Some(mut etcd) = Etcd::start(&pond) else { return };
    let peer = Peer::here(&pond);
    let daemon = mount(&mut pond, &peer, &etcd.address());
    let guard = Guard::start(&pond, &etcd.address(), &[]);
    wait_until("the guard watches", || guard.log().contains("node first owns it"));
    write_and_sync(&pond.mnt().join("file"), b"before");
    etcd.kill();
    wait_until("the lease is over", || pond.status()["lease"] == "waiting");
    run(["stats".as_ref(), pond.mnt().as_os_str()]).refused(0, &["\nlease_waiting 1\n"]);
    let written = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            write_and_sync(&pond.mnt().join("file"), b"meanwhile");
            written.store(true, Ordering::SeqCst);
        });
        // A name waits as well, and no program hears an error, however long it takes.
        let named = scope.spawn(|| File::create(pond.mnt().join("new")).map(drop));
        std::thread::sleep(Duration::from_secs(11));
        assert!(!written.load(Ordering::SeqCst) && !named.is_finished(), "it answered without a lease");
        pond.unmount(&[]).refused(2, &["--keep-dirty"]);
        let said = run(["status".as_ref(), pond.mnt().as_os_str()]).text;
        assert!(said.contains("stands still"), "{said}");
        etcd.start_again();
        wait_until("it goes on", || written.load(Ordering::SeqCst));
        named.join().unwrap().unwrap();
    });
    wait_until("it has the lease", || pond.status()["lease"] == "held");
    assert_eq!(fs::read(pond.mnt().join("file")).unwrap(), b"meanwhile");
    // A worker that dies is followed by one that has the lease: the guard does not notice.
    pond.kill_worker(daemon);
    assert_eq!(fs::read(pond.mnt().join("file")).unwrap(), b"meanwhile");
    wait_until("the next worker has the lease", || pond.status()["lease"] == "held");
    // Who ends in order is followed by nobody.
    pond.unmount(&[]).ok();
    wait_until("the guard sees it", || guard.log().contains("has left it in order"));
    assert!(!is_mounted(&pond.at("mnt2")));
    assert_eq!(fs::read(pond.origin().join("file")).unwrap(), b"meanwhile");
    drop(guard);
    pond.mount(&["--registry", &etcd.address(), "--node", "first"]).ok();
    pond.unmount(&[]).ok();
    etcd.kill();
    pond.mount(&["--registry", &etcd.address(), "--node", "first"]).refused(77, &["does not answer", "Start etcd"]);
}

#[test]
fn a_copy_that_the_owner_went_on_without_is_not_taken_over() {
    let mut pond = Pond::new();
    let Some(etcd) = Etcd::start(&pond) else { return };
    let peer = Peer::here(&pond);
    let daemon = mount(&mut pond, &peer, &etcd.address());
    write_and_sync(&pond.mnt().join("file"), b"on both");
    peer.signal("-KILL");
    wait_until("the pool goes on without it", || pool_status(&pond)["members"][1]["state"] == "FAULTED");
    write_and_sync(&pond.mnt().join("file"), b"on one");
    lose_the_mount(&mut pond, daemon);
    let guard = Guard::start(&pond, &etcd.address(), &["--grace".as_ref(), "0".as_ref()]);
    wait_until("the guard refuses", || guard.log().contains("went on without the copy here"));
    drop(guard);
    let by_hand = || {
        let mut command = headpond();
        command.arg("takeover").arg(pond.origin()).arg(pond.at("mnt2")).arg("--store").arg(pond.at("store"));
        command
            .args(["--registry", &etcd.address(), "--grace", "0", "--node", "second"])
            .args(["--background", "--log"]);
        crate::pond::Said::from(command.arg(pond.at("log2")).stdin(Stdio::null()).output().unwrap())
    };
    by_hand().refused(43, &["went on without the copy here"]);
    // The owner comes back, and has all.
    drop(peer);
    let peer = Peer::here(&pond);
    pond.mount(&["--registry", &etcd.address(), "--node", "first", "--lease-seconds", "3", "--peer", &peer.address])
        .ok();
    assert_eq!(fs::read(pond.mnt().join("file")).unwrap(), b"on one");
    by_hand().refused(46, &["node first owns it"]);
    pool(&pond, "wait", &["-q".as_ref()]).ok();
    // Left in order, with dirty data: by hand, the second host may go on.
    pond.unmount(&["--keep-dirty"]).ok();
    by_hand().ok();
    assert_eq!(fs::read(pond.at("mnt2").join("file")).unwrap(), b"on one");
}

/// While the registry has the list with the copy, the copy may have to go on.
#[test]
fn a_start_without_its_copy_that_the_registry_did_not_hear_of_leaves_the_copy_able_to_go_on() {
    let mut pond = Pond::new();
    let Some(etcd) = Etcd::start(&pond) else { return };
    let peer = Peer::here(&pond);
    let daemon = mount(&mut pond, &peer, &etcd.address());
    write_and_sync(&pond.mnt().join("file"), b"on both");
    lose_the_mount(&mut pond, daemon);
    let before = pond.marker().unwrap()["claim"]["id"].clone();
    drop(peer);
    // The start takes its lease with the first change. The second one would bring the list without the copy.
    let wire = Wire::for_changes(&etcd, 1);
    let mut starts = pond.start_foreground(&["--registry", &wire.address(), "--node", "first", "--lease-seconds", "3"]);
    wait_until("it cannot tell of its list", || wire.is_cut());
    wait_until("its claim lies beside the origin", || pond.marker().unwrap()["claim"]["id"] != before);
    // Longer than it takes to say that the use has begun.
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(pond.marker().unwrap()["claim"]["begun"], false);
    kill_with_workers(&mut starts);
    fs::remove_file(pond.flash()).unwrap();
    let mut guard = Guard::start(&pond, &etcd.address(), &["--grace".as_ref(), "0".as_ref()]);
    guard.wait_for_mount(&pond);
    assert_eq!(fs::read(pond.at("mnt2").join("file")).unwrap(), b"on both");
}

/// A guard has its store keep the next number before its mount has begun. If nothing comes of that, the registry still
/// names the owner before.
#[test]
fn a_number_that_a_take_over_left_behind_keeps_no_owner_from_its_pool() {
    let mut pond = Pond::new();
    let Some(etcd) = Etcd::start(&pond) else { return };
    let peer = Peer::here(&pond);
    let daemon = mount(&mut pond, &peer, &etcd.address());
    write_and_sync(&pond.mnt().join("file"), b"before");
    lose_the_mount(&mut pond, daemon);
    drop(peer);
    let paths = fs::read_dir(pond.at("store")).unwrap().map(|entry| entry.unwrap().path());
    let path = paths.into_iter().find(|path| path.extension() == Some("json".as_ref())).unwrap();
    let mut record: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    assert_eq!(record["owner"], 1);
    record["owner"] = 2.into();
    fs::write(&path, record.to_string()).unwrap();
    let peer = Peer::here(&pond);
    let lease = ["--registry", &etcd.address(), "--node", "first", "--lease-seconds", "3", "--peer", &peer.address];
    pond.mount_foreground(&lease);
    assert_eq!(fs::read(pond.mnt().join("file")).unwrap(), b"before");
    let said = || fs::read_to_string(pond.at("log")).unwrap();
    wait_until("it says why that peer has no copy", || said().contains("a take-over there came to nothing"));
    write_and_sync(&pond.mnt().join("file"), b"behind");
    wait_until("it has the lease", || pond.status()["lease"] == "held");
    assert_eq!(kept(&pond, "store")["owner"], 2, "a number never goes down");
}

#[test]
fn a_pool_is_handed_over_with_all_that_is_dirty_and_back_again() {
    let mut pond = Pond::new();
    let Some(etcd) = Etcd::start(&pond) else { return };
    let peer = Peer::here(&pond);
    let daemon = mount(&mut pond, &peer, &etcd.address());
    let hand_over = |to: &str| run(["handover".as_ref(), pond.mnt().as_os_str(), "--to".as_ref(), to.as_ref()]);
    hand_over("first").refused(2, &["this host is that node"]);
    let mut guard = Guard::start(&pond, &etcd.address(), &[]);
    wait_until("the guard watches", || guard.log().contains("node first owns it"));
    let file = pond.mnt().join("file");
    write_and_sync(&file, b"dirty");
    let open = File::open(&file).unwrap();
    hand_over("second").refused(70, &["in use"]);
    drop(open);
    let began = Instant::now();
    once_no_test_holds_it(|| hand_over("second")).refused(0, &["It is given to second"]);
    guard.wait_for_mount(&pond);
    println!("from the command to the other host's mount: {:?}", began.elapsed());
    // It waited for no lease's end, and for no grace.
    assert!(!guard.log().contains("no proof"), "{}", guard.log());
    assert_eq!(fs::read(pond.at("mnt2").join("file")).unwrap(), b"dirty");
    assert_eq!(pond.wait(daemon), 0);
    pond.mount(&["--registry", &etcd.address(), "--node", "first"]).refused(11, &["already"]);
    run(["handover".as_ref(), pond.at("mnt2").as_os_str(), "--to".as_ref(), "first".as_ref()])
        .refused(2, &["no other host has a copy"]);
    assert_eq!(fs::read(pond.at("mnt2").join("file")).unwrap(), b"dirty");
}

#[test]
fn without_a_registry_nothing_is_handed_over_and_nobody_guards() {
    let pond = Pond::new();
    let peer = Peer::here(&pond);
    pond.mount(&["--size", SIZE, "--peer", &peer.address]).ok();
    run(["handover".as_ref(), pond.mnt().as_os_str(), "--to".as_ref(), "second".as_ref()]).refused(2, &["--registry"]);
    assert_eq!(pond.status()["lease"], "");
    run([
        "peer".as_ref(),
        "guard".as_ref(),
        pond.origin().as_os_str(),
        pond.at("mnt2").as_os_str(),
        "--store".as_ref(),
        pond.at("store").as_os_str(),
    ])
    .refused(2, &["--registry http://HOST:PORT"]);
    let mut mistyped = headpond();
    mistyped.args(["peer", "guard"]).arg(pond.origin()).arg(pond.at("mnt2")).arg("--store").arg(pond.at("stoer"));
    let said = mistyped.args(["--registry", "http://127.0.0.1:1"]).stdin(Stdio::null()).output().unwrap();
    crate::pond::Said::from(said).refused(1, &["there is no store at", "stoer", "peer serve"]);
    assert!(!pond.at("stoer").exists());
    run(["mount", "/a", "/b", "--flash", "/c", "--registry", "etcd1:2379"]).refused(2, &["http://HOST:PORT"]);
}
