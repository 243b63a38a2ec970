//! Where a peer listens: `unix:PATH` or `HOST:PORT`.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;

/// Where a peer listens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PeerAddress {
    /// A unix socket, for a peer on the same host, or at the end of a tunnel.
    Unix(PathBuf),
    /// A host and a port.
    Tcp {
        /// The name or the address of the host.
        host: String,
        /// The port.
        port: u16,
    },
}

impl PeerAddress {
    /// The addresses of a host, for TCP.
    pub(crate) fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        match self {
            Self::Unix(_) => Ok(Vec::new()),
            Self::Tcp { host, port } => {
                let found: Vec<SocketAddr> = (host.as_str(), *port).to_socket_addrs()?.collect();
                if found.is_empty() { Err(io::Error::other("the name has no address")) } else { Ok(found) }
            }
        }
    }

    /// Whether a peer there may be spoken to without certificates: nobody else's machine is on the way.
    ///
    /// # Errors
    /// If the name cannot be resolved.
    pub fn is_of_this_host(&self) -> io::Result<bool> {
        Ok(self.resolve()?.iter().all(|address| address.ip().is_loopback()))
    }
}

impl FromStr for PeerAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            let path = PathBuf::from(path);
            return if path.is_absolute() {
                Ok(Self::Unix(path))
            } else {
                Err(format!("'{text}': the path of a unix socket begins with /, as in unix:/run/headpond-peer.sock"))
            };
        }
        let wrong = || format!("'{text}' is no address of a peer: unix:PATH or HOST:PORT");
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let port = port.parse().map_err(|_| wrong())?;
        if host.is_empty() || host.contains('/') {
            return Err(wrong());
        }
        Ok(Self::Tcp { host: host.to_owned(), port })
    }
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_read_back_and_what_is_none_is_refused() {
        for text in ["unix:/run/peer.sock", "db2:7433", "127.0.0.1:7433", "[::1]:7433"] {
            assert_eq!(text.parse::<PeerAddress>().unwrap().to_string(), text);
        }
        for text in ["", "db2", "db2:", ":7433", "unix:peer.sock", "/run/peer.sock", "db2:70000", "/a:1"] {
            assert!(text.parse::<PeerAddress>().is_err(), "{text}");
        }
        let is_of_this_host = |text: &str| text.parse::<PeerAddress>().unwrap().is_of_this_host().unwrap();
        assert!(is_of_this_host("unix:/run/peer.sock") && is_of_this_host("127.0.0.1:1") && is_of_this_host("[::1]:1"));
        assert!(!is_of_this_host("192.0.2.1:1") && !is_of_this_host("0.0.0.0:1"));
    }
}
