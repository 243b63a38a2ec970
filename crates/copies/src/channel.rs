//! A stream of bytes to the other side: a unix socket or TCP, as it is or in TLS. Blocking or not, as its socket is.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::net::sockopt;
use rustls::Connection;

/// After how long without a word the other side's kernel is asked whether it is there.
const PROBED_AFTER: Duration = Duration::from_secs(5);

/// How often, while it does not answer, and how many times.
const PROBED_EVERY: Duration = Duration::from_secs(2);
const PROBES: u32 = 5;

/// After how long without an answer the connection ends: what the probes take.
const GONE_AFTER: Duration = Duration::from_secs(15);

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
    pub(crate) fn set_blocking(&self) -> io::Result<()> {
        match self {
            Self::Unix(socket) => socket.set_nonblocking(false),
            Self::Tcp(socket) => socket.set_nonblocking(false),
        }
    }

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
                socket.set_read_timeout(Some(read)).and_then(|()| socket.set_write_timeout(Some(write)))
            }
        }
    }

    /// How TCP treats it: frames leave at once, and another side that vanished without a word ends the connection.
    pub(crate) fn tune(&self) -> io::Result<()> {
        let Self::Tcp(socket) = self else { return Ok(()) };
        // Frames go out whole: to wait for more would only delay them.
        socket.set_nodelay(true)?;
        sockopt::set_socket_keepalive(socket, true)?;
        sockopt::set_tcp_keepidle(socket, PROBED_AFTER)?;
        sockopt::set_tcp_keepintvl(socket, PROBED_EVERY)?;
        sockopt::set_tcp_keepcnt(socket, PROBES)?;
        // While something is on its way no probe leaves; then this counts.
        let gone = u32::try_from(GONE_AFTER.as_millis()).unwrap_or(u32::MAX);
        Ok(sockopt::set_tcp_user_timeout(socket, gone)?)
    }

    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        match self {
            Self::Unix(socket) => socket.try_clone().map(Self::Unix),
            Self::Tcp(socket) => socket.try_clone().map(Self::Tcp),
        }
    }

    /// Ends the connection. A thread that waits for its bytes returns.
    pub(crate) fn end(&self) {
        // It fails if it has ended.
        let _ = match self {
            Self::Unix(socket) => socket.shutdown(Shutdown::Both),
            Self::Tcp(socket) => socket.shutdown(Shutdown::Both),
        };
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

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn tcp_finds_out_that_the_other_side_is_gone() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let socket = Socket::Tcp(near.try_clone().unwrap());
        socket.tune().unwrap();
        assert!(sockopt::socket_keepalive(&near).unwrap() && near.nodelay().unwrap());
        let probed = sockopt::tcp_keepidle(&near).unwrap()
            + sockopt::tcp_keepintvl(&near).unwrap() * sockopt::tcp_keepcnt(&near).unwrap();
        assert_eq!(probed, GONE_AFTER);
        assert_eq!(u128::from(sockopt::tcp_user_timeout(&near).unwrap()), GONE_AFTER.as_millis());
        socket.end();
        assert_eq!((&near).read(&mut [0]).unwrap(), 0, "and whoever waits for it hears of its end");
    }
}
