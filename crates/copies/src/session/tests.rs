//! A server whose disk is slow, fails, or loses its power, with owners at real sockets.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;

use headpond_base::{BufMut, PoolId};
use headpond_device::Flash;
use headpond_peer::{Hello, PeerFrame, Reason, Said, Versions};
use tempfile::TempDir;

use crate::server::{PeerServer, ServerConfig, Stopper};
use crate::store::{Store, StoredCopy};
use crate::store_error::StoreError;
use crate::taken_over::{HeldCopy, hold_in, take_over};
use crate::{Link, LinkEnd, LinkError, LinkNews, PATIENCE, PeerAddress};

const POOL: PoolId = PoolId([7; 16]);
const OTHER: PoolId = PoolId([8; 16]);
const BYTES: u64 = 8 << 20;

fn hello(pool: PoolId, bytes: u64) -> Hello {
    Hello {
        versions: Versions::SPOKEN,
        durable: false,
        pool,
        member: [9; 16],
        owner: 1,
        epoch: 1,
        bytes,
        beside: [0; 16],
    }
}

fn durable(pool: PoolId, bytes: u64) -> Hello {
    Hello { durable: true, ..hello(pool, bytes) }
}

/// A door that lets nobody through while it is shut, and tells when somebody waits.
#[derive(Default)]
struct Door {
    state: Mutex<(bool, usize)>,
    changed: Condvar,
}

impl Door {
    fn shut(&self, shut: bool) {
        self.state.lock().unwrap().0 = shut;
        self.changed.notify_all();
    }

    fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        state.1 += 1;
        self.changed.notify_all();
        let mut state = self.changed.wait_while(state, |state| state.0).unwrap();
        state.1 -= 1;
    }

    fn wait_for_one(&self) {
        drop(self.changed.wait_while(self.state.lock().unwrap(), |state| state.1 == 0).unwrap());
    }
}

/// A server of a test, over a store in a boot of its own.
struct Server {
    dir: TempDir,
    stopper: Stopper,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Server {
    fn start(boot: &str, sync: impl Fn(PoolId, &File) -> io::Result<()> + Send + Sync + 'static) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), boot, sync)
    }

    fn start_in(
        dir: TempDir,
        boot: &str,
        sync: impl Fn(PoolId, &File) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let store = Store::open_in_boot(&dir.path().join("store"), boot).unwrap().syncing(sync);
        Self::over(store, dir)
    }

    fn over(store: Store, dir: TempDir) -> Self {
        let listen = PeerAddress::Unix(dir.path().join("peer"));
        let config = ServerConfig { listen, limit: u64::MAX, durable: false, certificates: None };
        let server = PeerServer::listen(store, config, |_| {}).unwrap();
        let stopper = server.stopper();
        Self { dir, stopper, thread: Some(std::thread::spawn(move || server.serve())) }
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("peer")
    }

    fn connect(&self, hello: &Hello) -> Result<(Flash, Receiver<LinkEnd>), LinkError> {
        let (sender, ended) = channel();
        let address = PeerAddress::Unix(self.socket());
        let (link, _) = Link::connect(&address, None, hello, PATIENCE, move |news| tell(&sender, news))?;
        Ok((Flash::far(Arc::new(link), Path::new("peer")), ended))
    }

    fn refusal(&self, hello: &Hello) -> Reason {
        match self.connect(hello) {
            Err(LinkError::Refused(refused)) => refused.reason,
            other => panic!("{:?}", other.map(|_| "served")),
        }
    }

    /// The version that both speak.
    fn version(&self, hello: &Hello) -> u16 {
        let address = PeerAddress::Unix(self.socket());
        Link::connect(&address, None, hello, PATIENCE, |_| {}).unwrap().1.version
    }

    fn kept_in(&self, boot: &str) -> StoredCopy {
        Store::open_in_boot(&self.dir.path().join("store"), boot).unwrap().all().unwrap().remove(0)
    }

    fn stop(&mut self) -> io::Result<()> {
        self.stopper.stop();
        self.thread.take().unwrap().join().unwrap()
    }

    fn hold(&self) -> Result<HeldCopy, StoreError> {
        hold_in(Store::open_in_boot(&self.dir.path().join("store"), "first").unwrap(), None)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.thread.is_some() {
            let _ = self.stop();
        }
    }
}

/// Tells why a connection ended.
fn tell(ended: &Sender<LinkEnd>, news: LinkNews) {
    if let LinkNews::Ended(end) = news {
        let _ = ended.send(end);
    }
}

fn filled(byte: u8) -> headpond_base::Buf {
    let mut buf = BufMut::zeroed(4096);
    buf.fill(byte);
    buf.freeze()
}

fn well(_: PoolId, file: &File) -> io::Result<()> {
    file.sync_data()
}

#[test]
fn a_pool_whose_disk_is_slow_holds_up_no_other_pool() {
    let door = Arc::new(Door::default());
    let passed = door.clone();
    let slow = move |pool: PoolId, file: &File| {
        if pool == POOL {
            passed.pass();
        }
        file.sync_data()
    };
    let server = Server::start("first", slow);
    let (owner, _) = server.connect(&durable(POOL, BYTES)).unwrap();
    door.shut(true);
    owner.write(0, &filled(1)).unwrap();
    let syncing = std::thread::spawn(move || owner.sync());
    door.wait_for_one();
    // While a sync of one pool lasts, and while its session ends.
    let (other, _) = server.connect(&hello(OTHER, BYTES)).unwrap();
    other.write(0, &filled(2)).unwrap();
    drop(other);
    let next = std::thread::scope(|scope| {
        let next = scope.spawn(|| server.connect(&hello(POOL, BYTES)).map(drop));
        let (other, _) = server.connect(&durable(OTHER, 0)).unwrap();
        assert_eq!(other.read(0, 4096).unwrap()[..], [2; 4096]);
        other.sync().unwrap();
        door.shut(false);
        next.join().unwrap()
    });
    next.unwrap();
    let _ = syncing.join().unwrap();
}

#[test]
fn a_copy_whose_disk_failed_is_known_as_that_by_every_later_process_and_its_owner_hears_of_it() {
    for durably in [false, true] {
        let fails = Arc::new(AtomicBool::new(false));
        let failing = fails.clone();
        let sync = move |_: PoolId, file: &File| {
            if failing.load(Ordering::SeqCst) { Err(io::Error::other("medium error")) } else { file.sync_data() }
        };
        let mut server = Server::start("first", sync);
        let (owner, ended) = server.connect(&Hello { durable: durably, ..hello(POOL, BYTES) }).unwrap();
        fails.store(true, Ordering::SeqCst);
        owner.write(0, &filled(1)).unwrap();
        if durably {
            assert!(owner.sync().is_err());
        }
        // It asks for nothing more, and hears it all the same.
        assert!(matches!(ended.recv().unwrap(), LinkEnd::Closed(_)));
        let kept = server.kept_in("first");
        assert!(!kept.counts && kept.why.as_ref().unwrap().contains("medium error"), "{kept:?}");
        assert_eq!(server.refusal(&hello(POOL, 0)), Reason::NotKept);
        fails.store(false, Ordering::SeqCst);
        assert!(server.stop().is_ok());
        let dir = std::mem::replace(&mut server.dir, tempfile::tempdir().unwrap());
        let refused = take_over(&dir.path().join("store"), None).unwrap_err().to_string();
        assert!(refused.contains("medium error") && refused.contains("Nothing was changed"), "{refused}");
        let next = Server::start_in(dir, "first", well);
        assert_eq!(next.refusal(&hello(POOL, 0)), Reason::NotKept);
        next.connect(&hello(POOL, BYTES)).unwrap();
        assert!(next.kept_in("first").counts, "one that was made anew");
    }
}

#[test]
fn a_durable_copy_counts_after_a_loss_of_power_and_is_called_so_only_once_all_before_is_on_disk() {
    let unsynced = Arc::new(AtomicBool::new(false));
    let dir = tempfile::tempdir().unwrap();
    let (clean, store) = (unsynced.clone(), dir.path().join("store"));
    let sync = move |_: PoolId, file: &File| {
        let kept = Store::open_in_boot(&store, "first").unwrap().all().unwrap();
        assert!(!kept[0].durable || !clean.load(Ordering::SeqCst), "called durable before it was");
        clean.store(false, Ordering::SeqCst);
        file.sync_data()
    };
    let server = Server::start_in(dir, "first", sync);
    let (owner, _) = server.connect(&hello(POOL, BYTES)).unwrap();
    owner.write(0, &filled(1)).unwrap();
    unsynced.store(true, Ordering::SeqCst);
    owner.sync().unwrap();
    assert!(!server.kept_in("second").counts);
    let (again, _) = server.connect(&durable(POOL, 0)).unwrap();
    assert!(!unsynced.load(Ordering::SeqCst), "accepted before what an earlier session wrote was on disk");
    again.write(4096, &filled(2)).unwrap();
    again.sync().unwrap();
    let kept = server.kept_in("second");
    assert!(kept.counts && kept.durable && kept.why.is_none(), "{kept:?}");
    let (_last, _) = server.connect(&hello(POOL, 0)).unwrap();
    assert!(!server.kept_in("second").counts, "from here on a sync may be in memory alone");
}

#[test]
fn a_server_that_is_stopped_leaves_copies_that_count_whoever_is_connected() {
    let mut server = Server::start("first", well);
    let (owner, ended) = server.connect(&hello(POOL, BYTES)).unwrap();
    owner.write(0, &filled(1)).unwrap();
    owner.sync().unwrap();
    let _silent = UnixStream::connect(server.socket()).unwrap();
    assert!(!server.kept_in("second").counts, "this shows nothing");
    server.stop().unwrap();
    assert!(matches!(ended.recv().unwrap(), LinkEnd::Closed(_)));
    let kept = server.kept_in("second");
    assert!(kept.counts && !kept.in_use, "{kept:?}");
    assert!(UnixStream::connect(server.socket()).is_err() && !server.socket().exists());
}

#[test]
fn a_server_that_is_stopped_brings_to_disk_what_one_that_was_killed_has_left() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open_in_boot(&dir.path().join("store"), "first").unwrap();
    let mut record = store.records().unwrap().accept(&hello(POOL, BYTES), u64::MAX, false).unwrap().unwrap();
    store.make_file(&record).unwrap().unwrap();
    assert!(store.records().unwrap().made(&mut record).unwrap());
    let mut server = Server::start_in(dir, "first", well);
    assert!(!server.kept_in("second").counts, "this shows nothing");
    server.stop().unwrap();
    assert!(server.kept_in("second").counts);
}

#[test]
fn a_stop_says_what_could_not_be_brought_to_disk() {
    let fails = Arc::new(AtomicBool::new(false));
    let failing = fails.clone();
    let sync = move |_: PoolId, _: &File| {
        if failing.load(Ordering::SeqCst) { Err(io::Error::other("medium error")) } else { Ok(()) }
    };
    let mut server = Server::start("first", sync);
    let (owner, _) = server.connect(&hello(POOL, BYTES)).unwrap();
    fails.store(true, Ordering::SeqCst);
    owner.write(0, &filled(1)).unwrap();
    // The thread that settles may have been first, and then the stop finds nothing to do.
    let stopped = server.stop().map_err(|error| error.to_string());
    assert!(stopped.is_ok() || stopped.unwrap_err().contains("medium error"));
    assert!(!server.kept_in("first").counts);
}

#[test]
fn strangers_that_say_nothing_keep_no_owner_out() {
    let server = Server::start("first", well);
    let (owner, _) = server.connect(&hello(POOL, BYTES)).unwrap();
    let mut silent: Vec<UnixStream> = (0..70).map(|_| UnixStream::connect(server.socket()).unwrap()).collect();
    let (other, _) = server.connect(&hello(OTHER, BYTES)).unwrap();
    silent.extend((0..70).map(|_| UnixStream::connect(server.socket()).unwrap()));
    other.write(0, &filled(2)).unwrap();
    owner.write(0, &filled(1)).unwrap();
    assert_eq!(silent[0].read(&mut [0]).unwrap(), 0, "the oldest gave way");
}

#[test]
fn a_hello_that_never_ends_is_not_waited_for() {
    let server = Server::start("first", well);
    let mut slow = UnixStream::connect(server.socket()).unwrap();
    let mut frame = Vec::new();
    PeerFrame { tag: 0, said: Said::Write { offset: 0, data: &[0; 1 << 20] } }.encode(&mut frame);
    for byte in frame {
        if slow.write_all(&[byte]).is_err() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    panic!("a megabyte came in, byte by byte");
}

#[test]
fn a_take_over_that_is_refused_has_changed_nothing_and_the_owner_comes_back() {
    let server = Server::start("first", well);
    let (owner, ended) = server.connect(&hello(POOL, BYTES)).unwrap();
    owner.write(0, &filled(1)).unwrap();
    owner.sync().unwrap();
    let held = server.hold().unwrap();
    assert_eq!((held.owner(), held.is_taken()), (2, false));
    assert_eq!(std::fs::read(held.path()).unwrap()[..4096], [1; 4096]);
    let second = server.hold().unwrap_err().to_string();
    assert!(second.contains("takeover"), "{second}");
    assert_eq!(server.refusal(&hello(POOL, 0)), Reason::InUse);
    assert_eq!(server.refusal(&hello(POOL, BYTES)), Reason::InUse);
    drop(held);
    // Not deposed: the connection is lost.
    assert!(matches!(ended.recv().unwrap(), LinkEnd::Closed(_)));
    assert_eq!(server.kept_in("first").owner, 1);
    let (again, _) = server.connect(&hello(POOL, 0)).unwrap();
    assert_eq!(again.read(0, 4096).unwrap()[..], [1; 4096]);
    again.write(0, &filled(3)).unwrap();
}

#[test]
fn a_take_over_that_goes_through_is_told_to_an_owner_that_asked_for_nothing_meanwhile() {
    let server = Server::start("first", well);
    let (_owner, ended) = server.connect(&hello(POOL, BYTES)).unwrap();
    let held = server.hold().unwrap();
    assert_eq!(held.take().unwrap().owner, 2);
    assert_eq!(ended.recv().unwrap(), LinkEnd::Deposed(2));
    let held = server.hold().unwrap();
    assert!(held.is_taken());
    assert_eq!(held.take().unwrap().owner, 2, "done again, it changes nothing");
}

#[test]
fn hosts_are_upgraded_one_after_the_other_and_one_that_is_two_versions_behind_loses_nothing() {
    let speak = |oldest, newest| Versions::between(oldest, newest).unwrap();
    let kept = tempfile::tempdir().unwrap();
    let mut bytes = BYTES;
    for (peer, owner, version) in [
        (speak(1, 1), speak(1, 1), Some(1)),
        (speak(1, 2), speak(1, 1), Some(1)),
        (speak(1, 2), speak(1, 2), Some(2)),
        (speak(2, 3), speak(1, 1), None),
        (speak(1, 2), speak(2, 3), Some(2)),
    ] {
        let store = Store::open_in_boot(kept.path(), "first").unwrap().speaking(peer);
        let mut server = Server::over(store, tempfile::tempdir().unwrap());
        let asks = Hello { versions: owner, ..hello(POOL, bytes) };
        if let Some(version) = version {
            let (flash, _) = server.connect(&asks).unwrap();
            if bytes > 0 {
                flash.write(4096, &filled(5)).unwrap();
                flash.sync().unwrap();
            } else {
                assert!(flash.read(4096, 4096).unwrap().iter().all(|byte| *byte == 5), "{peer}, {owner}");
            }
            drop(flash);
            bytes = 0;
            assert_eq!(server.version(&Hello { bytes, ..asks }), version, "{peer}, {owner}");
        } else {
            let said = server.connect(&asks).map(|_| "served").unwrap_err().to_string();
            assert!(said.contains("versions 2 to 3") && said.ends_with("upgrade headpond here"), "{said}");
        }
        server.stop().unwrap();
    }
}
