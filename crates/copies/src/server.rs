//! The peer's end: serves the copies of a store to their owners. One thread for each connection.
//!
//! Invariants:
//! - A hello is answered once what it changes in the store is durable, and all sessions before it are over.
//! - Requests of a connection are carried out one by one, in order. An answer leaves after its request was carried out.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use headpond_base::PoolId;
use headpond_peer::{Accepted, Asked, Hello, HelloRefused, KeeperSide, PROTOCOL, PeerFrame, Reason, Said};

use crate::address::PeerAddress;
use crate::certificates::Certificates;
use crate::channel::{Channel, Socket};
use crate::copy::{Copy, Over, SharedCopy};
use crate::link::PATIENCE;
use crate::store::{Record, Store, StoreError, now};

/// The most connections.
const CONNECTIONS_MAX: usize = 64;

/// How often a connection without requests looks whether it is over.
const LOOK: Duration = Duration::from_millis(200);

/// How often what was written is brought to disk.
const SETTLE: Duration = Duration::from_millis(500);

/// Bytes of answers, beyond which they leave at once.
const OUT_MAX: usize = 1 << 20;

/// How a server serves.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Where it listens.
    pub listen: PeerAddress,
    /// The most bytes of all copies together.
    pub limit: u64,
    /// A sync is on disk before its answer, whatever the owner asks for.
    pub durable: bool,
    /// Who it is, and whom it knows.
    pub certificates: Option<Certificates>,
}

enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

/// Says what happens, in a line.
type Say = dyn Fn(&str) + Send + Sync;

/// A server that listens.
pub struct PeerServer {
    listener: Listener,
    serving: Arc<Serving>,
    config: ServerConfig,
    _store_lock: fs::File,
}

/// What all connections share.
struct Serving {
    store: Store,
    limit: u64,
    durable: bool,
    open: Mutex<HashMap<PoolId, SharedCopy>>,
    connections: AtomicUsize,
    say: Box<Say>,
}

impl PeerServer {
    /// Takes the store, and listens.
    ///
    /// # Errors
    /// [`StoreError`]; without certificates also if others than this host could connect.
    pub fn listen(
        store: Store,
        config: ServerConfig,
        say: impl Fn(&str) + Send + Sync + 'static,
    ) -> Result<Self, StoreError> {
        let store_lock = store.take_for_server()?;
        let name = config.listen.to_string();
        let failed = |error: io::Error| StoreError::io("listen at", Path::new(&name))(error);
        let listener = match &config.listen {
            PeerAddress::Unix(path) => {
                // One that a killed server left. While we have the store, no other server of it lives.
                if fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket())
                    && std::os::unix::net::UnixStream::connect(path).is_err()
                {
                    fs::remove_file(path).map_err(failed)?;
                }
                let listener = UnixListener::bind(path).map_err(failed)?;
                // Who can connect can read and replace the copies.
                fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(failed)?;
                Listener::Unix(listener)
            }
            address => {
                if config.certificates.is_none() && !address.is_of_this_host().map_err(failed)? {
                    let why = "others than this host could connect. Give --certificates DIR, or listen at a unix \
                               socket or a loopback address";
                    return Err(failed(io::Error::other(why)));
                }
                Listener::Tcp(TcpListener::bind(&address.resolve().map_err(failed)?[..]).map_err(failed)?)
            }
        };
        let serving = Serving {
            store,
            limit: config.limit,
            durable: config.durable,
            open: Mutex::default(),
            connections: AtomicUsize::new(0),
            say: Box::new(say),
        };
        Ok(Self { listener, serving: Arc::new(serving), config, _store_lock: store_lock })
    }

    /// Where it listens; with port 0 in the configuration, the port that the system chose.
    ///
    /// # Errors
    /// The system's.
    pub fn address(&self) -> io::Result<PeerAddress> {
        match &self.listener {
            Listener::Unix(_) => Ok(self.config.listen.clone()),
            Listener::Tcp(listener) => {
                let address = listener.local_addr()?;
                Ok(PeerAddress::Tcp { host: address.ip().to_string(), port: address.port() })
            }
        }
    }

    /// Serves until the process ends.
    ///
    /// # Errors
    /// If threads cannot be started.
    pub fn serve(&self) -> io::Result<()> {
        let serving = self.serving.clone();
        let settle = move || {
            loop {
                std::thread::sleep(SETTLE);
                let copies: Vec<SharedCopy> = serving.open().values().cloned().collect();
                for copy in copies {
                    if !copy.settle() {
                        (serving.say)(&format!(
                            "pool {}: a sync of the copy failed: it promises nothing more",
                            copy.pool
                        ));
                    }
                }
            }
        };
        std::thread::Builder::new().name("settle".to_owned()).spawn(settle)?;
        loop {
            let socket = match &self.listener {
                Listener::Unix(listener) => listener.accept().map(|(socket, _)| Socket::Unix(socket)),
                Listener::Tcp(listener) => listener.accept().map(|(socket, _)| Socket::Tcp(socket)),
            };
            let socket = match socket {
                Ok(socket) => socket,
                Err(error) => {
                    // Of one connection, or of the system's limits: neither ends the server.
                    (self.serving.say)(&format!("cannot take a connection: {error}"));
                    std::thread::sleep(LOOK);
                    continue;
                }
            };
            if self.serving.connections.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS_MAX {
                self.serving.connections.fetch_sub(1, Ordering::Relaxed);
                (self.serving.say)("too many connections: one is refused");
                continue;
            }
            let (serving, certificates) = (self.serving.clone(), self.config.certificates.clone());
            let work = move || {
                // A stranger, or one that is gone already: it was promised nothing.
                if let Err(error) = serving.meet(socket, certificates.as_ref()) {
                    (serving.say)(&format!("a connection ended: {error}"));
                }
                serving.connections.fetch_sub(1, Ordering::Relaxed);
            };
            if let Err(error) = std::thread::Builder::new().name("owner".to_owned()).spawn(work) {
                self.serving.connections.fetch_sub(1, Ordering::Relaxed);
                (self.serving.say)(&format!("cannot serve a connection: {error}"));
            }
        }
    }
}

/// A session of an owner.
struct Session {
    copy: SharedCopy,
    number: u64,
    durable: bool,
}

impl Serving {
    fn open(&self) -> MutexGuard<'_, HashMap<PoolId, SharedCopy>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves one connection to its end.
    fn meet(&self, socket: Socket, certificates: Option<&Certificates>) -> io::Result<()> {
        socket.set_patience(PATIENCE, PATIENCE)?;
        let tls = certificates.filter(|_| matches!(socket, Socket::Tcp(_))).map(Certificates::of_guest).transpose();
        let mut channel = Channel::open(socket, tls.map_err(io::Error::other)?)?;
        channel.socket().set_patience(LOOK, PATIENCE)?;
        let mut session = None;
        let ended = self.talk(&mut channel, &mut session);
        if let Some(session) = session {
            self.end(&session);
        }
        ended
    }

    fn talk(&self, channel: &mut Channel, session: &mut Option<Session>) -> io::Result<()> {
        let (mut inbox, mut out) = (Vec::new(), Vec::new());
        let mut side = KeeperSide::new();
        let since = Instant::now();
        loop {
            let mut taken = 0;
            while let Some((frame, len)) = PeerFrame::decode(&inbox[taken..]).map_err(io::Error::other)? {
                taken += len;
                match (side.take(&frame).map_err(io::Error::other)?, &session) {
                    (Asked::Hello(hello), _) => match self.begin(&hello) {
                        Ok((begun, accepted)) => {
                            side.admit(accepted.bytes);
                            *session = Some(begun);
                            PeerFrame { tag: frame.tag, said: Said::Accepted(accepted) }.encode(&mut out);
                        }
                        Err(refused) => {
                            PeerFrame { tag: frame.tag, said: Said::Refused(refused) }.encode(&mut out);
                            return channel.send_all(&out);
                        }
                    },
                    (asked, Some(begun)) => {
                        let done =
                            begun.copy.carry_out(&self.store, begun.number, frame.tag, &asked, begun.durable, &mut out);
                        if let Err(over) = done {
                            return self.say_over(channel, begun, over, &mut out);
                        }
                    }
                    (_, None) => return Err(io::Error::other("a request before a hello")),
                }
                if out.len() >= OUT_MAX {
                    channel.send_all(&out)?;
                    out.clear();
                }
            }
            inbox.drain(..taken);
            channel.send_all(&out)?;
            out.clear();
            match channel.receive(&mut inbox) {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
                    ) =>
                {
                    match session {
                        Some(begun) => {
                            if let Err(over) = begun.copy.look(&self.store, begun.number) {
                                return self.say_over(channel, begun, over, &mut out);
                            }
                        }
                        None if since.elapsed() > PATIENCE => return Err(io::Error::other("it did not say who it is")),
                        None => {}
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn say_over(&self, channel: &mut Channel, begun: &Session, over: Over, out: &mut Vec<u8>) -> io::Result<()> {
        let pool = begun.copy.pool;
        match over {
            Over::Superseded => (self.say)(&format!("pool {pool}: a newer connection has taken the place of one")),
            Over::Deposed(owner) => {
                (self.say)(&format!("pool {pool}: the owner is deposed: the owner's number is {owner} by now"));
                PeerFrame { tag: 0, said: Said::Deposed(owner) }.encode(out);
            }
            Over::Broken(rule) => return Err(io::Error::other(rule)),
        }
        channel.send_all(out)
    }

    /// Judges a hello, and makes durable what follows from it.
    fn begin(&self, hello: &Hello) -> Result<(Session, Accepted), HelloRefused> {
        // One hello at a time: the next one finds what this one has made.
        let mut open = self.open();
        let refused = |reason: Reason, bytes: u64| {
            let known = self.store.read(hello.pool).ok().flatten();
            let (owner, epoch) = known.map_or((0, 0), |record| (record.owner, record.epoch));
            HelloRefused { reason, owner, epoch, bytes }
        };
        let failing = |error: StoreError| {
            (self.say)(&format!("pool {}: {error}", hello.pool));
            refused(if matches!(error, StoreError::InUse(_)) { Reason::InUse } else { Reason::Failing }, 0)
        };
        // Nothing is recorded for a copy that another process has, such as a pool that took over.
        let known = self.store.read(hello.pool).map_err(&failing)?;
        let known = known.filter(|known| known.owner <= hello.owner && !open.contains_key(&hello.pool));
        let path = known.map(|known| self.store.file_path(&known)).filter(|path| path.exists());
        let mut free = path.map(|path| Copy::open(hello.pool, &path)).transpose().map_err(&failing)?;
        let records = self.store.records().map_err(&failing)?;
        let record = match records.meet(hello, self.limit).map_err(&failing)? {
            Ok(record) => record,
            Err((reason, bytes)) => {
                (self.say)(&format!(
                    "pool {}: an owner with number {} is refused: {reason:?}",
                    hello.pool, hello.owner
                ));
                return Err(refused(reason, bytes));
            }
        };
        drop(records);
        if hello.bytes > 0
            && let Some(before) = open.remove(&hello.pool)
        {
            before.close();
        }
        let copy = match open.get(&hello.pool) {
            Some(copy) => copy.clone(),
            None => {
                let opened = match free.take().filter(|_| hello.bytes == 0) {
                    Some(free) => free,
                    None => Copy::open(hello.pool, &self.store.file_path(&record)).map_err(&failing)?,
                };
                let copy = Arc::new(opened);
                open.insert(hello.pool, copy.clone());
                copy
            }
        };
        let number = copy.begin(record.owner);
        let durable = self.durable || hello.durable;
        let what = if hello.bytes > 0 { "a new copy" } else { "its copy" };
        (self.say)(&format!("pool {}: owner {} has {what} of {} MiB", hello.pool, record.owner, record.bytes >> 20));
        let accepted = Accepted { version: PROTOCOL, durable, bytes: record.bytes, member: record.member_name() };
        Ok((Session { copy, number, durable }, accepted))
    }

    /// A connection has ended. If it was the newest, the copy goes to disk, and its file is free.
    fn end(&self, session: &Session) {
        let mut open = self.open();
        let pool = session.copy.pool;
        if !session.copy.is_newest(session.number) {
            return;
        }
        let settled = session.copy.settle();
        let noted = self.store.records().and_then(|records| match self.store.read(pool)? {
            Some(record) => records.write(pool, &Record { settled, last_connection: now(), ..record }),
            None => Ok(()),
        });
        if let Err(error) = noted {
            (self.say)(&format!("pool {pool}: {error}"));
        }
        session.copy.close();
        open.remove(&pool);
        (self.say)(&format!("pool {pool}: the connection has ended"));
    }
}
