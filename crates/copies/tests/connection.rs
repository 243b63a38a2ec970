//! A real server, real sockets: what an owner's disk does over a connection, and who is served.

// A test ends at the first thing that is not as it must be.
#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};

use headpond_base::{BufMut, Errno, MemberId, PoolId};
use headpond_copies::{
    Link, LinkEnd, LinkError, LinkNews, PATIENCE, PeerAddress, PeerServer, SILENCE, ServerConfig, Store, StoredCopy,
    remove_copy, take_over,
};
use headpond_device::{Backend, Completion, DiskOp, End, FarDisk, Fill, Flash, Tag, TrimPolicy, start_reactor};
use headpond_peer::{Accepted, Hello, PeerFrame, Reason, Said, Versions};

const POOL: PoolId = PoolId([7; 16]);
const BYTES: u64 = 8 << 20;

fn hello(owner: u64, epoch: u64, bytes: u64) -> Hello {
    Hello {
        versions: Versions::SPOKEN,
        durable: false,
        pool: POOL,
        member: [9; 16],
        owner,
        epoch,
        bytes,
        beside: [0; 16],
    }
}

/// A server over this directory.
fn serve(dir: &Path, listen: &str, limit: u64) -> PeerAddress {
    let listen = listen.parse().unwrap();
    let config = ServerConfig { listen, limit, durable: false, certificates: None };
    let server = PeerServer::listen(Store::open(&dir.join("store")).unwrap(), config, |_| {}).unwrap();
    let address = server.address().unwrap();
    std::thread::spawn(move || server.serve().unwrap());
    address
}

fn socket(dir: &Path) -> String {
    format!("unix:{}", dir.join("peer").display())
}

fn connect(address: &PeerAddress, hello: &Hello) -> Result<(Flash, Receiver<LinkEnd>), LinkError> {
    let (sender, ended) = channel();
    let (link, _) = Link::connect(address, None, hello, PATIENCE, move |news| tell(&sender, news))?;
    Ok((Flash::far(std::sync::Arc::new(link), Path::new("peer")), ended))
}

fn refusal(address: &PeerAddress, hello: &Hello) -> Reason {
    match connect(address, hello) {
        Err(LinkError::Refused(refused)) => refused.reason,
        other => panic!("{:?}", other.map(|_| "served")),
    }
}

/// Tells why a connection ended.
fn tell(ended: &Sender<LinkEnd>, news: LinkNews) {
    if let LinkNews::Ended(end) = news {
        let _ = ended.send(end);
    }
}

fn filled(len: usize, byte: u8) -> headpond_base::Buf {
    let mut buf = BufMut::zeroed(len);
    buf.fill(byte);
    buf.freeze()
}

#[test]
fn a_disk_over_a_connection_is_a_disk_also_in_long_operations_and_for_the_next_connection() {
    let dir = tempfile::tempdir().unwrap();
    for listen in [socket(dir.path()), "127.0.0.1:0".to_owned()] {
        let dir = tempfile::tempdir_in(dir.path()).unwrap();
        let address = serve(dir.path(), &listen, u64::MAX);
        assert_eq!(refusal(&address, &hello(1, 1, 0)), Reason::NotKept);
        let (flash, _) = connect(&address, &hello(1, 1, BYTES)).unwrap();
        assert_eq!(flash.bytes(), BYTES);
        assert!(flash.read(0, 4096).unwrap().iter().all(|byte| *byte == 0));
        // Longer than what one frame has.
        let long = filled(5 << 20, 3);
        flash.write(1 << 20, &long).unwrap();
        flash.write(4096, &filled(4096, 4)).unwrap();
        flash.sync().unwrap();
        assert_eq!(&flash.read(1 << 20, 5 << 20).unwrap()[..], &long[..]);
        assert_eq!(flash.read(BYTES, 4096).err(), Some(Errno::INVAL));
        drop(flash);
        let (flash, _) = connect(&address, &hello(1, 2, 0)).unwrap();
        assert_eq!(flash.read(4096, 4096).unwrap()[..], [4; 4096]);
        assert_eq!(&flash.read(1 << 20, 5 << 20).unwrap()[..], &long[..]);
        // Made anew, it is empty.
        let (anew, _) = connect(&address, &hello(1, 2, BYTES)).unwrap();
        assert_eq!(anew.read(4096, 4096).unwrap()[..], [0; 4096]);
        assert!(flash.read(4096, 4096).is_err(), "and the connection before is over");
    }
}

#[test]
fn the_newest_connection_of_an_owner_ends_the_others_before_it_is_answered() {
    let dir = tempfile::tempdir().unwrap();
    let address = serve(dir.path(), &socket(dir.path()), u64::MAX);
    let (old, ended) = connect(&address, &hello(1, 1, BYTES)).unwrap();
    old.write(0, &filled(4096, 1)).unwrap();
    let (new, _) = connect(&address, &hello(1, 1, 0)).unwrap();
    assert!(old.write(0, &filled(4096, 2)).is_err());
    assert!(matches!(ended.recv().unwrap(), LinkEnd::Closed(_)));
    assert_eq!(new.read(0, 4096).unwrap()[..], [1; 4096]);
    assert_eq!(refusal(&address, &hello(1, 0, 0)), Reason::Epoch, "an older image of the pool");
}

#[test]
fn a_hello_that_was_given_up_replaces_no_copy_however_late_it_arrives() {
    let dir = tempfile::tempdir().unwrap();
    let address = serve(dir.path(), &socket(dir.path()), u64::MAX);
    let (copy, _) = connect(&address, &hello(1, 1, BYTES)).unwrap();
    copy.write(0, &filled(4096, 1)).unwrap();
    // It asks for an empty copy in place of this one, and its owner has gone.
    let (given_up, _) = connect(&address, &Hello { member: [9; 16], ..hello(1, 1, BYTES) }).unwrap();
    drop(given_up);
    copy.write(4096, &filled(4096, 2)).unwrap();
    assert_eq!(copy.read(0, 4096).unwrap()[..], [1; 4096]);
    // One that goes on gets it.
    let (new, _) = connect(&address, &Hello { member: [9; 16], ..hello(1, 1, BYTES) }).unwrap();
    assert_eq!(new.read(0, 4096).unwrap()[..], [0; 4096]);
    assert!(copy.write(0, &filled(4096, 3)).is_err());
}

#[test]
fn after_a_take_over_the_deposed_owner_hears_so_and_writes_nothing_more() {
    let dir = tempfile::tempdir().unwrap();
    let address = serve(dir.path(), &socket(dir.path()), u64::MAX);
    let store = dir.path().join("store");
    assert!(take_over(&store, None).unwrap_err().to_string().contains("no copy"));
    let (old, ended) = connect(&address, &hello(1, 1, BYTES)).unwrap();
    old.write(0, &filled(4096, 1)).unwrap();
    old.sync().unwrap();
    let taken = take_over(&store, None).unwrap();
    assert_eq!((taken.owner, taken.pool), (2, POOL));
    assert_eq!(old.write(0, &filled(4096, 2)), Err(Errno::STALE));
    assert_eq!(ended.recv().unwrap(), LinkEnd::Deposed(2));
    assert_eq!(std::fs::read(&taken.path).unwrap()[..4096], [1; 4096]);
    assert_eq!(take_over(&store, None).unwrap(), taken, "done again, it changes nothing");
    // The old owner comes back, while the pool that took over is in use and while it is not.
    let held = Flash::open(&taken.path).unwrap();
    assert_eq!(refusal(&address, &hello(1, 9, 0)), Reason::Owner);
    assert_eq!(refusal(&address, &hello(1, 9, BYTES)), Reason::Owner);
    assert_eq!(refusal(&address, &hello(2, 9, BYTES)), Reason::InUse, "nothing is made from under it");
    drop(held);
    assert_eq!(refusal(&address, &hello(1, 9, 0)), Reason::Owner);
    assert_eq!(std::fs::read(&taken.path).unwrap()[..4096], [1; 4096]);
}

#[test]
fn a_store_has_one_server_and_no_more_room_than_it_was_given() {
    let dir = tempfile::tempdir().unwrap();
    let address = serve(dir.path(), &socket(dir.path()), BYTES);
    let again = Store::open(&dir.path().join("store")).unwrap();
    let config = ServerConfig { listen: address.clone(), limit: 1, durable: false, certificates: None };
    let refused = PeerServer::listen(again, config, |_| {}).err().unwrap().to_string();
    assert!(refused.contains("another"), "{refused}");
    assert_eq!(refusal(&address, &hello(1, 1, BYTES + 4096)), Reason::NoRoom);
    assert!(connect(&address, &hello(1, 1, BYTES)).is_ok());
    let open = ServerConfig { listen: "0.0.0.0:0".parse().unwrap(), limit: 1, durable: false, certificates: None };
    let other = Store::open(&dir.path().join("other")).unwrap();
    let refused = PeerServer::listen(other, open, |_| {}).err().unwrap().to_string();
    assert!(refused.contains("--certificates"), "{refused}");
    let elsewhere = connect(&"192.0.2.1:7433".parse().unwrap(), &hello(1, 1, 0));
    assert!(matches!(elsewhere, Err(LinkError::NoCertificates)));
}

#[test]
fn a_server_survives_whatever_it_is_sent() {
    let dir = tempfile::tempdir().unwrap();
    let address = serve(dir.path(), &socket(dir.path()), u64::MAX);
    let (flash, _) = connect(&address, &hello(1, 1, BYTES)).unwrap();
    flash.write(0, &filled(4096, 1)).unwrap();
    let encoded = |said| {
        let mut bytes = Vec::new();
        PeerFrame { tag: 1, said }.encode(&mut bytes);
        bytes
    };
    let data = [5; 4096];
    let beyond = [encoded(Said::Hello(hello(1, 1, 0))), encoded(Said::Write { offset: BYTES, data: &data })].concat();
    let mut rotten = encoded(Said::Hello(hello(1, 1, BYTES)));
    rotten[40] ^= 1;
    let unknown = encoded(Said::Write { offset: 0, data: &data });
    for bytes in [b"GET / HTTP/1.1\r\n\r\n".to_vec(), rotten, unknown, beyond, encoded(Said::Deposed(9))] {
        let mut stranger = UnixStream::connect(dir.path().join("peer")).unwrap();
        stranger.write_all(&bytes).unwrap();
        let mut answer = Vec::new();
        // It ends the connection. A reset is an end, too.
        let _ = stranger.read_to_end(&mut answer);
    }
    let (flash, _) = connect(&address, &hello(1, 1, 0)).unwrap();
    assert_eq!(flash.read(0, 4096).unwrap()[..], [1; 4096], "and nothing of it was carried out");
}

/// A peer of a test: answers a hello, then does what the test says with the connection.
fn fake(dir: &Path, then: impl FnOnce(UnixStream) + Send + 'static) -> PeerAddress {
    fake_that_says(dir, &[], then)
}

/// One that says these words in one piece with the acceptance.
fn fake_that_says(
    dir: &Path,
    words: &'static [Said<'static>],
    then: impl FnOnce(UnixStream) + Send + 'static,
) -> PeerAddress {
    let path = dir.join("fake");
    let listener = UnixListener::bind(&path).unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut asked = [0; 104];
        stream.read_exact(&mut asked).unwrap();
        let mut out = Vec::new();
        let accepted = Accepted { version: 1, durable: false, bytes: BYTES, member: [9; 16] };
        for said in std::iter::once(&Said::Accepted(accepted)).chain(words) {
            PeerFrame { tag: 0, said: *said }.encode(&mut out);
        }
        stream.write_all(&out).unwrap();
        then(stream);
    });
    PeerAddress::Unix(path)
}

/// Says `words` times, over more than the time for which a peer may be silent, that it is at work.
fn works(stream: &mut UnixStream, words: usize) -> std::io::Result<()> {
    let mut out = Vec::new();
    PeerFrame { tag: 0, said: Said::Working }.encode(&mut out);
    for _ in 0..words {
        std::thread::sleep(SILENCE / 8);
        stream.write_all(&out)?;
    }
    Ok(())
}

#[test]
fn a_peer_that_is_at_work_is_waited_for_and_not_for_ever() {
    let answers = |mut stream: UnixStream| {
        let mut inbox = Vec::new();
        let mut bytes = vec![0; 1 << 16];
        let tag = loop {
            // What is left of the hello comes first.
            let at = (0..inbox.len()).find(
                |at| matches!(PeerFrame::decode(&inbox[*at..]), Ok(Some((frame, _))) if frame.said == Said::Sync),
            );
            if let Some(at) = at {
                break PeerFrame::decode(&inbox[at..]).unwrap().unwrap().0.tag;
            }
            let taken = stream.read(&mut bytes).unwrap();
            inbox.extend_from_slice(&bytes[..taken]);
        };
        works(&mut stream, 16).unwrap();
        let mut out = Vec::new();
        PeerFrame { tag, said: Said::Done }.encode(&mut out);
        stream.write_all(&out).unwrap();
        std::thread::park();
    };
    let hangs = |mut stream: UnixStream| while works(&mut stream, 16).is_ok() {};
    let sync = |address: &PeerAddress| {
        let (sender, ended) = channel();
        let (link, _) =
            Link::connect(address, None, &hello(1, 1, 0), SILENCE, move |news| tell(&sender, news)).unwrap();
        let (done, answer) = channel();
        link.submit(
            DiskOp::Sync { tag: Tag(1) },
            Box::new(move |end| {
                let _ = done.send(matches!(end, End::Sync(Ok(()))));
            }),
        );
        (answer.recv().unwrap(), ended.try_recv().ok())
    };
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(sync(&fake(dir.path(), answers)), (true, None));
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(sync(&fake(dir.path(), hangs)), (false, Some(LinkEnd::Slow(PATIENCE))));
}

#[test]
fn a_peer_that_is_silent_ends_or_forges_is_lost_and_the_other_disk_goes_on() {
    type Then = fn(UnixStream);
    let silent: Then = |stream| {
        std::thread::park();
        drop(stream);
    };
    let ends: Then = |mut stream| {
        let _ = stream.read(&mut [0; 32]);
    };
    let forges: Then = |mut stream| {
        let mut out = Vec::new();
        PeerFrame { tag: 77, said: Said::Done }.encode(&mut out);
        let _ = stream.read(&mut [0; 32]);
        let _ = stream.write_all(&out);
        std::thread::park();
    };
    for then in [silent, ends, forges] {
        let dir = tempfile::tempdir().unwrap();
        let address = fake(dir.path(), then);
        let (flash, ended) = connect(&address, &hello(1, 1, 0)).unwrap();
        let near = Flash::create(&dir.path().join("near"), 1 << 20, Fill::Reserved).unwrap();
        let disks = vec![(MemberId(0), near), (MemberId(1), flash)];
        let mut reactor = start_reactor(disks, Backend::Auto, TrimPolicy::Off).unwrap();
        let mut done: Vec<Completion> = Vec::new();
        reactor.submit(MemberId(1), DiskOp::Write { tag: Tag(1), offset: 0, data: filled(4096, 1) });
        reactor.submit(MemberId(1), DiskOp::Sync { tag: Tag(4) });
        reactor.submit(MemberId(0), DiskOp::Write { tag: Tag(2), offset: 0, data: filled(4096, 1) });
        while !done.iter().any(|end| end.disk == MemberId(0)) {
            reactor.wait(&mut done, None).unwrap();
        }
        while done.len() < 3 {
            reactor.wait(&mut done, None).unwrap();
        }
        // The write alone promised nothing.
        let failed = |end: &Completion| end.tag == Tag(4) && matches!(end.end, End::Sync(Err(_)));
        assert!(done.iter().any(failed), "{done:?}");
        ended.recv().unwrap();
        reactor.submit(MemberId(1), DiskOp::Sync { tag: Tag(3) });
        done.clear();
        while done.is_empty() {
            reactor.wait(&mut done, None).unwrap();
        }
        assert!(matches!(done[0].end, End::Sync(Err(_))), "and nothing comes back over it");
    }
}

/// What the store of a test keeps.
fn kept(dir: &Path) -> StoredCopy {
    Store::open(&dir.join("store")).unwrap().all().unwrap().remove(0)
}

#[test]
fn a_copy_that_its_owner_lets_go_frees_its_room_and_the_owners_number_stays() {
    let dir = tempfile::tempdir().unwrap();
    let address = serve(dir.path(), &socket(dir.path()), BYTES);
    let (flash, ended) = connect(&address, &hello(2, 5, BYTES)).unwrap();
    flash.write(4096, &filled(4096, 4)).unwrap();
    flash.sync().unwrap();
    let file = kept(dir.path()).file;
    flash.let_go().unwrap();
    let now = kept(dir.path());
    assert!(now.removed && !now.counts && !now.in_use && now.bytes == 0, "{now:?}");
    assert!(!file.exists());
    drop(flash);
    assert_eq!(ended.recv().ok(), None, "that is no end that anybody needs to hear of");
    assert_eq!(refusal(&address, &hello(1, 9, BYTES)), Reason::Owner);
    assert_eq!(refusal(&address, &hello(2, 4, BYTES)), Reason::Epoch);
    assert_eq!(refusal(&address, &hello(2, 6, 0)), Reason::NotKept);
    // The room is there for another pool.
    let other = Hello { pool: PoolId([8; 16]), ..hello(1, 1, BYTES) };
    assert!(connect(&address, &other).is_ok());
}

#[test]
fn who_is_told_to_let_go_by_a_session_that_is_over_keeps_the_copy() {
    let dir = tempfile::tempdir().unwrap();
    let address = serve(dir.path(), &socket(dir.path()), BYTES);
    let (first, _) = connect(&address, &hello(1, 1, BYTES)).unwrap();
    let (next, _) = connect(&address, &hello(1, 2, 0)).unwrap();
    assert!(first.let_go().is_err());
    next.write(4096, &filled(4096, 4)).unwrap();
    next.sync().unwrap();
    assert!(kept(dir.path()).counts);
    drop((first, next));
    take_over(&dir.path().join("store"), None).unwrap();
}

#[test]
fn while_a_peer_is_drained_its_owners_hear_so_and_it_makes_no_copy() {
    let dir = tempfile::tempdir().unwrap();
    let address = serve(dir.path(), &socket(dir.path()), 4 * BYTES);
    let store = Store::open(&dir.path().join("store")).unwrap();
    let hearing = |hello: &Hello| {
        let (sender, heard) = channel();
        let hears = move |news: LinkNews| drop(sender.send(news));
        (Link::connect(&address, None, hello, PATIENCE, hears).unwrap().0, heard)
    };
    let (link, heard) = hearing(&hello(1, 1, BYTES));
    let flash = Flash::far(std::sync::Arc::new(link), Path::new("peer"));
    flash.sync().unwrap();
    store.set_draining(true).unwrap();
    assert_eq!(heard.recv().unwrap(), LinkNews::Draining);
    let other = Hello { pool: PoolId([8; 16]), ..hello(1, 1, BYTES) };
    assert_eq!(refusal(&address, &other), Reason::Draining);
    assert_eq!(refusal(&address, &hello(1, 1, BYTES)), Reason::Draining, "nor in the place of one");
    flash.write(4096, &filled(4096, 4)).unwrap();
    flash.sync().unwrap();
    // A connection looks five times a second: it may not see that a drain was over for a short time.
    let looks = std::time::Duration::from_millis(500);
    let again = std::iter::repeat_with(|| {
        store.set_draining(false).unwrap();
        std::thread::sleep(looks);
        store.set_draining(true).unwrap();
        heard.recv_timeout(looks)
    });
    assert_eq!(again.flatten().next(), Some(LinkNews::Draining));
    drop(flash);
    // An owner that comes back has its copy, and hears the same.
    let (_link, heard) = hearing(&hello(1, 2, 0));
    assert_eq!(heard.recv().unwrap(), LinkNews::Draining);
}

#[test]
fn by_hand_only_a_copy_is_removed_that_nobody_has_and_one_that_counts_only_if_that_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let address = serve(dir.path(), &socket(dir.path()), BYTES);
    let (flash, _) = connect(&address, &hello(1, 1, BYTES)).unwrap();
    flash.sync().unwrap();
    let (store, pool) = (dir.path().join("store"), kept(dir.path()).pool);
    let refused = |pool: &str, discard| remove_copy(&store, pool, discard).unwrap_err().to_string();
    assert!(refused(&pool, true).contains("is connected"));
    flash.write(4096, &filled(4096, 4)).unwrap();
    flash.sync().unwrap();
    drop(flash);
    while kept(dir.path()).in_use {
        std::thread::yield_now();
    }
    assert!(refused(&pool, false).contains("--discard"));
    assert!(refused("another", true).contains("keeps no copy of pool another"));
    let file = kept(dir.path()).file;
    assert!(file.exists() && kept(dir.path()).counts);
    assert_eq!(remove_copy(&store, &pool, true).unwrap().bytes, BYTES);
    assert!(!file.exists() && kept(dir.path()).removed);
    assert!(refused(&pool, true).contains("keeps no copy"));
    assert!(take_over(&store, None).is_err());
    assert_eq!(refusal(&address, &hello(1, 0, BYTES)), Reason::Epoch, "what is known of the pool stays");
    let (flash, _) = connect(&address, &hello(1, 2, BYTES)).unwrap();
    assert!(flash.read(4096, 4096).unwrap().iter().all(|byte| *byte == 0));
    assert!(!kept(dir.path()).removed);
}

#[test]
fn what_comes_in_one_piece_with_the_acceptance_is_heard_though_nothing_follows() {
    let dir = tempfile::tempdir().unwrap();
    let (keeps, kept) = channel();
    let address = fake_that_says(dir.path(), &[Said::Draining], move |stream| drop(keeps.send(stream)));
    let (sender, heard) = channel();
    let hears = move |news: LinkNews| drop(sender.send(news));
    let link = Link::connect(&address, None, &hello(1, 1, 0), PATIENCE, hears).unwrap();
    let stream = kept.recv().unwrap();
    assert_eq!(heard.recv_timeout(PATIENCE), Ok(LinkNews::Draining));
    drop((link, stream));
}
