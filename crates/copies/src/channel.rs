//! A stream of bytes to the other side: a unix socket or TCP, as it is or in TLS. Blocking or not, as its socket is.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustls::Connection;

/// Bytes of one read.
const TAKEN_AT_ONCE: usize = 256 << 10;

/// A socket.
#[derive(Debug)]
pub(crate) enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

/// A socket, and what is between it and us.
pub(crate) struct Channel {
    socket: Socket,
    tls: Option<Box<Connection>>,
    taken: Vec<u8>,
}

impl Socket {
    pub(crate) fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Self::Unix(socket) => socket.set_nonblocking(true),
            Self::Tcp(socket) => socket.set_nonblocking(true),
        }
    }

    pub(crate) fn set_patience(&self, read: Duration, write: Duration) -> io::Result<()> {
        match self {
            Self::Unix(socket) => {
                socket.set_read_timeout(Some(read)).and_then(|()| socket.set_write_timeout(Some(write)))
            }
            Self::Tcp(socket) => {
                // Frames go out whole: to wait for more would only delay them.
                socket.set_nodelay(true)?;
                socket.set_read_timeout(Some(read)).and_then(|()| socket.set_write_timeout(Some(write)))
            }
        }
    }
}

impl Read for Socket {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(socket) => socket.read(into),
            Self::Tcp(socket) => socket.read(into),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Unix(socket) => socket.write(bytes),
            Self::Tcp(socket) => socket.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Channel {
    /// A channel over a blocking socket. With TLS, the two know each other on return.
    pub(crate) fn open(mut socket: Socket, tls: Option<Connection>) -> io::Result<Self> {
        let mut tls = tls.map(Box::new);
        if let Some(tls) = &mut tls {
            while tls.is_handshaking() {
                tls.complete_io(&mut socket)?;
            }
        }
        Ok(Self { socket, tls, taken: vec![0; TAKEN_AT_ONCE] })
    }

    pub(crate) const fn socket(&self) -> &Socket {
        &self.socket
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        match &self.socket {
            Socket::Unix(socket) => socket.as_fd(),
            Socket::Tcp(socket) => socket.as_fd(),
        }
    }

    /// Whether what was taken from us is not in the kernel yet.
    pub(crate) fn keeps_some(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }

    /// Gives the kernel what [`Channel::send`] took.
    pub(crate) fn push(&mut self) -> io::Result<()> {
        let Some(tls) = &mut self.tls else { return Ok(()) };
        while tls.wants_write() {
            if tls.write_tls(&mut self.socket)? == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        Ok(())
    }

    /// Takes the first of these bytes, as many as there is room for. `WouldBlock` if none.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.push()?;
        let Some(tls) = &mut self.tls else { return self.socket.write(bytes) };
        let taken = tls.writer().write(bytes)?;
        match self.push() {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(taken),
        }
    }

    /// Sends all of it on a blocking socket.
    pub(crate) fn send_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.send(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(sent) => bytes = &bytes[sent..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.push()
    }

    /// Appends what has come in, and tells how much; 0 at the end of the stream.
    pub(crate) fn receive(&mut self, into: &mut Vec<u8>) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else {
            let taken = self.socket.read(&mut self.taken)?;
            into.extend_from_slice(&self.taken[..taken]);
            return Ok(taken);
        };
        loop {
            match tls.reader().read(&mut self.taken) {
                Ok(taken) => {
                    into.extend_from_slice(&self.taken[..taken]);
                    return Ok(taken);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            // The end of the stream shows at the next look into the reader.
            tls.read_tls(&mut self.socket)?;
            tls.process_new_packets().map_err(io::Error::other)?;
        }
    }
}
