//! The peer's end: serves the copies of a store to their owners. One thread for each connection.
//!
//! A server that is told to stop takes no more connections, ends those that it has, brings each copy to disk, and notes
//! that it is there. So a copy counts after its host was shut down in order.

use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::address::PeerAddress;
use crate::certificates::Certificates;
use crate::channel::Socket;
use crate::session::Serving;
use crate::store::Store;
use crate::store_error::StoreError;

/// How often it looks for connections that take too long to say hello, and how long it rests after a failure.
const LOOK: Duration = Duration::from_millis(200);

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

/// A server that listens.
pub struct PeerServer {
    listener: Listener,
    serving: Arc<Serving>,
    config: ServerConfig,
    stop: Arc<OwnedFd>,
    _store_lock: fs::File,
}

/// Stops a server, from any thread.
#[derive(Clone, Debug)]
pub struct Stopper(Arc<OwnedFd>);

impl Stopper {
    /// Stops it: [`PeerServer::serve`] returns once everything is on disk.
    pub fn stop(&self) {
        // It fails only if it is full, and then the server wakes.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }
}

impl Listener {
    fn descriptor(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(listener) => listener.as_fd(),
            Self::Tcp(listener) => listener.as_fd(),
        }
    }

    fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Self::Unix(listener) => listener.set_nonblocking(true),
            Self::Tcp(listener) => listener.set_nonblocking(true),
        }
    }

    fn accept(&self) -> io::Result<Socket> {
        let socket = match self {
            Self::Unix(listener) => listener.accept().map(|(socket, _)| Socket::Unix(socket)),
            Self::Tcp(listener) => listener.accept().map(|(socket, _)| Socket::Tcp(socket)),
        };
        socket.and_then(|socket| socket.set_blocking().map(|()| socket))
    }
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
                    return Err(StoreError::OpenToAll(name));
                }
                Listener::Tcp(TcpListener::bind(&address.resolve().map_err(failed)?[..]).map_err(failed)?)
            }
        };
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let stop = Arc::new(stop.map_err(|errno| failed(errno.into()))?);
        listener.set_nonblocking().map_err(failed)?;
        let serving = Arc::new(Serving::of(store, config.limit, config.durable, Box::new(say)));
        Ok(Self { listener, serving, config, stop, _store_lock: store_lock })
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

    /// What stops it.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper(self.stop.clone())
    }

    /// Serves until it is stopped. On return each copy is on disk, and its record says so.
    ///
    /// # Errors
    /// If the listener fails for good, or a copy could not be brought to disk when it was stopped.
    pub fn serve(&self) -> io::Result<()> {
        let mut may_be_late = false;
        loop {
            let mut watched = [
                PollFd::from_borrowed_fd(self.listener.descriptor(), PollFlags::IN),
                PollFd::new(&*self.stop, PollFlags::IN),
            ];
            let limit = Timespec { tv_sec: 0, tv_nsec: LOOK.subsec_nanos().into() };
            match poll(&mut watched, may_be_late.then_some(&limit)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            if !watched[1].revents().is_empty() {
                break;
            }
            may_be_late = self.serving.places.sweep();
            let socket = match self.listener.accept() {
                Ok(socket) => socket,
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                    continue;
                }
                Err(error) => {
                    // Of one connection, or of the system's limits: neither ends the server.
                    self.serving.say(&format!("cannot take a connection: {error}"));
                    std::thread::sleep(LOOK);
                    continue;
                }
            };
            may_be_late = true;
            if let Err(error) = self.take(socket) {
                self.serving.say(&format!("cannot serve a connection: {error}"));
            }
        }
        self.close_listener();
        self.serving.end_all()
    }

    /// Serves a connection on a thread of its own.
    fn take(&self, socket: Socket) -> io::Result<()> {
        let place = self.serving.places.arrive(&socket)?;
        let (serving, certificates) = (self.serving.clone(), self.config.certificates.clone());
        let work = move || {
            // A stranger, or one that is gone already: it was promised nothing.
            if let Err(error) = serving.meet(socket, &place, certificates.as_ref()) {
                serving.say(&format!("a connection ended: {error}"));
            }
            drop(place);
        };
        std::thread::Builder::new().name("owner".to_owned()).spawn(work).map(drop)
    }

    /// Who connects from now on finds nobody.
    fn close_listener(&self) {
        if let (Listener::Unix(_), PeerAddress::Unix(path)) = (&self.listener, &self.config.listen) {
            // One that another process has put there since stays: it answers.
            if fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket() && found.nlink() == 1) {
                let _ = fs::remove_file(path);
            }
        }
    }
}
